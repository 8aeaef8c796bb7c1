"""Histories of other tools, and ours for other tools: one event an operation's invocation or completion.

The neutral form is the corpus's: JSON objects with `index`, `process`, `type` (invoke, ok, fail, info), `f`, `time` and `mops`
(or `value`, `key`). Jepsen writes the same as EDN or JSON, with the micro-operations in `value`. An imported
history is a folder with `history.jsonl` (neutral) and `import.json` (where from, which model).
"""

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeGuard

import msgspec

from tribunal.results import edn
from tribunal.results.edn import Value
from tribunal.results.recording import DamagedRecording
from tribunal.results.unreadable import UNREADABLE

HISTORY: Final = "history.jsonl"
ORIGIN: Final = "import.json"
FORMATS: Final = ("jepsen-json", "jepsen-edn", "corpus")
TYPES: Final = frozenset({"invoke", "ok", "fail", "info"})
STEPS: Final = frozenset({"append", "r", "w", "send", "poll"})
BYTES_MOST: Final = 4 << 30
Event = dict[str, Value]
Step = list[Value]


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where an imported history comes from and what it is a history of; `model` "" is found out from the operations."""

    source: str
    format: str
    model: str = ""
    options: dict[str, bool] = {}


def is_history(folder: Path) -> bool:
    """Return whether a folder holds an imported history instead of a recording."""
    return (folder / HISTORY).is_file()


def read(path: Path, form: str) -> list[Event]:
    """Return a file's events in the neutral form. Raises DamagedRecording: one line, with the place."""
    try:
        found = list(_edn_events(_text(path)) if form == "jepsen-edn" else _json_events(_text(path)))
    except (edn.NotEdn, *UNREADABLE) as problem:
        raise DamagedRecording("", None, f"{path.name}: {str(problem) or 'nested too deeply'}") from problem
    events = [_event(event, position, path.name) for position, event in enumerate(found)]
    if not events:
        raise DamagedRecording("", None, f"{path.name}: holds no operations")
    return events


def write(folder: Path, events: Iterable[Event], origin: Origin) -> None:
    """Make an imported history's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    encoder = msgspec.json.Encoder()
    with (folder / HISTORY).open("wb") as file:
        file.writelines(encoder.encode(event) + b"\n" for event in events)
    (folder / ORIGIN).write_bytes(msgspec.json.encode(origin) + b"\n")


def load(folder: Path) -> tuple[list[Event], Origin]:
    """Read an imported history back. Raises DamagedRecording."""
    try:
        origin = msgspec.json.decode((folder / ORIGIN).read_bytes(), type=Origin)
    except (OSError, *UNREADABLE) as problem:
        raise DamagedRecording("", None, f"{ORIGIN} cannot be read: {problem}") from problem
    return read(folder / HISTORY, "corpus"), origin


def _text(path: Path) -> str:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(BYTES_MOST + 1)
    except (EOFError, gzip.BadGzipFile) as problem:
        raise DamagedRecording("", None, f"{path.name}: {problem}") from problem
    if len(data) > BYTES_MOST:
        raise DamagedRecording("", None, f"{path.name}: larger than {BYTES_MOST >> 30} GiB")
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        raise DamagedRecording("", None, f"{path.name}: not UTF-8 text at byte {problem.start}") from problem


def _json_events(text: str) -> Iterator[Value]:
    """One JSON list of events, an object with a `history`, or an event a line."""
    stripped = text.lstrip()
    if stripped.startswith("["):
        events: list[Value] = msgspec.json.decode(stripped, type=list)
        yield from events
        return
    decoder = msgspec.json.Decoder()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            event: Value = decoder.decode(line)
        except UNREADABLE as problem:
            raise msgspec.DecodeError(f"line {number}: {problem}") from problem
        if isinstance(event, dict) and isinstance(history := event.get("history"), list):
            yield from history
        else:
            yield event


def _edn_events(text: str) -> Iterator[Value]:
    for value in edn.values(text):
        if isinstance(value, list):
            yield from value
        else:
            yield value


def _event(event: Value, position: int, name: str) -> Event:
    """Bring an event into the neutral form."""
    if not isinstance(event, dict):
        raise DamagedRecording("", None, f"{name}, event {position}: not an operation but {str(event)[:40]!r}")
    kind = event.get("type")
    if not isinstance(kind, str) or kind not in TYPES:
        raise DamagedRecording(
            "", None, f"{name}, event {position}: type is {str(kind)[:40]!r}, not invoke, ok, fail or info"
        )
    process = event.get("process", 0)
    if isinstance(process, bool) or not isinstance(process, int | str):
        raise DamagedRecording("", None, f"{name}, event {position}: process is {str(process)[:40]!r}")
    found: Event = {str(key): value for key, value in event.items() if key not in ("value", "mops")}
    steps = event.get("mops", event.get("value"))
    if not _are_steps(steps):
        return found | ({"value": event["value"]} if "value" in event else {})
    return found | {"f": event.get("f", "txn"), "mops": [_step(step, position, name) for step in steps]}


def _are_steps(steps: Value) -> TypeGuard[list[Step]]:
    return isinstance(steps, list) and bool(steps) and all(map(_is_step, steps))


def _is_step(step: Value) -> bool:
    return isinstance(step, list) and bool(step) and isinstance(step[0], str) and step[0] in STEPS


def _step(step: Step, position: int, name: str) -> Step:
    """Messages' keys become text: JSON knows no others in objects."""
    known = (step[0] == "poll" and len(step) <= 2) or len(step) == 3
    if not known:
        raise DamagedRecording("", None, f"{name}, event {position}: the step {step[0]} has {len(step) - 1} arguments")
    if step[0] == "send":
        _hashable(step[1], position, name)
        return ["send", str(step[1]), step[2]]
    if step[0] == "poll":
        return ["poll", *(_polled(messages, position, name) for messages in step[1:] if messages is not None)]
    _hashable(step[1], position, name)
    if step[0] == "r" and isinstance(step[2], list):
        for element in step[2]:
            _hashable(element, position, name)
    return step


def _hashable(key: Value, position: int, name: str) -> None:
    if isinstance(key, list | dict):
        raise DamagedRecording(
            "", None, f"{name}, event {position}: {json.dumps(key)[:40]} cannot be a key or an element"
        )


def _polled(messages: Value, position: int, name: str) -> dict[str, Value]:
    if not isinstance(messages, dict) or not all(map(_are_pairs, messages.values())):
        raise DamagedRecording(
            "", None, f"{name}, event {position}: a poll returns a map of key to [[offset, value], ...]"
        )
    return {str(key): pairs for key, pairs in messages.items()}


def _are_pairs(pairs: Value) -> bool:
    return isinstance(pairs, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)


def as_edn(events: Iterable[Mapping[str, Value]]) -> Iterator[str]:
    """Yield one line an event, as Jepsen writes histories."""
    for event in events:
        yield edn.written({edn.Keyword(str(key)): _edn_value(str(key), value) for key, value in _jepsen(event).items()})


def as_json(events: Iterable[Mapping[str, Value]]) -> Iterator[str]:
    """Yield one JSON object an event, with Jepsen's names."""
    for event in events:
        yield msgspec.json.encode(_jepsen(event)).decode()


def _jepsen(event: Mapping[str, Value]) -> Event:
    named = {key: value for key, value in event.items() if key != "mops"}
    return named | ({"value": event["mops"]} if "mops" in event else {})


_WORD: Final = re.compile(r"[a-z][a-z0-9-]*")


def _edn_value(name: str, value: Value) -> edn.Written:
    if name in ("type", "f") and isinstance(value, str):
        return edn.Keyword(value)
    if name == "process" and isinstance(value, str) and _WORD.fullmatch(value):
        return edn.Keyword(value)
    if name == "value" and _are_steps(value):
        return [[edn.Keyword(str(step[0])), *step[1:]] for step in value]
    return value
