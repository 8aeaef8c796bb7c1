"""What a JSON file says that nobody reads who reads it as what it is: names that files of its kind have not, and names that are there twice.

Of a name that is there twice one reader takes the first value, another the last: a file can say two things at once.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

Plain = Mapping[str, "Plain"] | Sequence["Plain"] | str | int | float | bool | None


def unknown_names(place: str, stated: Plain, known: Plain) -> Iterator[str]:
    """Yield the names that a file has and that no file of its kind has."""
    if isinstance(stated, Mapping) and isinstance(known, Mapping):
        for name in stated:
            if name not in known:
                yield f"{place}: {name}: no such name"
            else:
                yield from unknown_names(f"{place}: {name}", stated[name], known[name])
    elif isinstance(stated, list | tuple) and isinstance(known, list | tuple):
        for one, other in zip(stated, known, strict=False):
            yield from unknown_names(place, one, other)


def names_twice(place: str, text: bytes) -> list[str]:
    """Return a line for each name that an object of a JSON text has twice; who cannot read it at all says so elsewhere."""
    twice: list[str] = []

    def seen(pairs: list[tuple[str, Plain]]) -> None:
        counted = Counter(name for name, _ in pairs)
        twice.extend(f"{place}: {name}: there twice" for name, count in counted.items() if count > 1)

    try:
        json.loads(text, object_pairs_hook=seen)
    except (ValueError, RecursionError):
        return []
    return twice
