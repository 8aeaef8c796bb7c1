"""What a fault's proof says, in a few words: the proof itself is JSON, for programs and for who wants to know all of it."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from tribunal.results.unreadable import UNREADABLE

MOST: Final = 4
LONGEST: Final = 60
SEEN: Final = "seen"  # what a probe of the harness says it saw, beside how long that took
BESIDE: Final = ("holds", "took_ms", "incarnation")


def gist(proof: str | None) -> str:
    """Return what a proof says first; "" of one that is no JSON object, which is shown as it is."""
    try:
        known = msgspec.json.decode(proof or "{}", type=dict[str, object])
    except UNREADABLE:
        return ""
    return ", ".join([*_words(known)][:MOST])


def _words(known: Mapping[str, object]) -> Iterator[str]:
    for name, value in known.items():
        if name in BESIDE:
            continue
        words = name.replace("_", " ")
        if isinstance(value, dict):
            flags = [one for one in value.values() if isinstance(one, bool)]
            if isinstance(value.get(SEEN), str):
                yield _short(str(value[SEEN]))
            elif flags and len(flags) == len(value):
                yield f"{words} {sum(flags)} of {len(flags)}"
        elif isinstance(value, bool):
            yield words if value else f"not {words}"
        elif name == SEEN and isinstance(value, str):
            yield _short(value)
        elif isinstance(value, str | int | float) and value != "":
            yield _short(f"{words} {value:,}" if isinstance(value, int | float) else f"{words} {value}")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
