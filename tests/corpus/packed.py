"""Histories of a log's clients in three Parquet files, a sixth of their size as compressed JSON.

Most of such a history can be calculated from the rest, so only what cannot is stored:
- a completion repeats the steps of its invocation: it says only what came back;
- the values sent to a key are 1, 2, 3 ... in order of invocation; `value_shift` says where one differs;
- `logs.parquet` holds every (offset, value) that anybody saw of a key, in order. An acknowledged offset is the first one
  there of its value (`offset_shift` says where it differs). A poll is a list of stretches of it (`polls.parquet`): each
  begins `skip` records after the last stretch that this process polled of this key.
Each file has one row group a history. The README of this folder lists the columns.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Event = dict[str, Any]
Pair = list[int]  # an offset and its value
SHIFTS = pa.list_(pa.int32())
SCHEMAS = {
    "events": pa.schema(
        [
            ("process", pa.int32()),
            ("type", pa.string()),
            ("f", pa.string()),
            ("time", pa.int64()),
            ("error", pa.string()),
            ("keys", pa.list_(pa.string())),
            ("steps", pa.list_(pa.string())),
            ("value_shift", SHIFTS),
            ("offset_shift", SHIFTS),
            ("polled", pa.list_(pa.int32())),
        ]
    ),
    "polls": pa.schema([("key", pa.string()), ("skip", pa.int32()), ("count", pa.int32())]),
    "logs": pa.schema([("key", pa.string()), ("offset", pa.int32()), ("value", pa.int32())]),
}
ASCENDING = {"time", "offset", "value"}  # neighbours differ by little: their differences are stored


def packed(histories: Sequence[Sequence[Event]], folder: Path) -> None:
    """Write the histories, one row group each; refuse what does not come back event for event."""
    with ExitStack() as files:
        writers = {name: files.enter_context(_writer(folder / f"{name}.parquet", SCHEMAS[name])) for name in SCHEMAS}
        for history in histories:
            for name, rows in _tables(history).items():
                writers[name].write_table(pa.Table.from_pylist(rows, SCHEMAS[name]))
    for position, history in enumerate(histories):
        assert unpacked(folder, position) == list(history), f"history {position} does not come back as it was"


def digest(history: Iterable[Event]) -> str:
    """The sha256 of a history's events as JSON, the names in alphabetical order."""
    text = "\n".join(json.dumps(event, sort_keys=True, separators=(",", ":")) for event in history)
    return hashlib.sha256(text.encode()).hexdigest()


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=22,
        data_page_size=1 << 26,  # a page is compressed by itself
        write_statistics=False,
        use_dictionary=[column.path for column in _leaves(schema) if column.name not in ASCENDING],
        column_encoding={column.path: "DELTA_BINARY_PACKED" for column in _leaves(schema) if column.name in ASCENDING},
    )


def _leaves(schema: pa.Schema) -> list[Any]:
    described = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), described)
    parquet = pq.ParquetFile(pa.BufferReader(described.getvalue())).schema
    return [parquet.column(place) for place in range(len(parquet))]


def _tables(history: Sequence[Event]) -> dict[str, list[Event]]:
    seen = _seen(history)
    polls: list[Event] = []
    return {
        "events": list(_rows(history, seen, polls)),
        "polls": polls,
        "logs": [{"key": key, "offset": o, "value": v} for key, log in seen.items() for o, v in log],
    }


def _seen(history: Sequence[Event]) -> dict[str, list[Pair]]:
    pairs: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
    for event in history:
        for step in event.get("mops", ()) if event["type"] == "ok" else ():
            answered = step[1] if step[0] == "poll" else {step[1]: [step[2]]}
            for key, found in answered.items():
                pairs[key].update((offset, value) for offset, value in found)
    return {key: [list(pair) for pair in sorted(pairs[key])] for key in sorted(pairs)}


def _rows(history: Sequence[Event], logs: Mapping[str, list[Pair]], polls: list[Event]) -> Iterator[Event]:
    sent: defaultdict[str, int] = defaultdict(int)
    stood: defaultdict[tuple[int, str], int] = defaultdict(int)
    places = {key: {tuple(pair): place for place, pair in enumerate(log)} for key, log in logs.items()}
    first = _first_offsets(logs)
    for event in history:
        row = {name: event[name] for name in ("process", "type", "f", "time", "error", "keys") if name in event}
        if "mops" in event and event["type"] == "invoke":
            row["steps"] = [step[1] if step[0] == "send" else None for step in event["mops"]]
            row["value_shift"] = _shifts(value - _next(sent, key) for _, key, value in _sends(event))
        elif "mops" in event and event["type"] == "ok":
            row["offset_shift"] = _shifts(offset - first[key][value] for _, key, (offset, value) in _sends(event))
            row["polled"] = []
            for answer in (step[1] for step in event["mops"] if step[0] == "poll"):
                found = ((key, places[key][tuple(pair)]) for key, pairs in answer.items() for pair in pairs)
                stretches = list(_stretches(found, event["process"], stood))
                row["polled"].append(len(stretches))
                polls += stretches
        yield row


def _sends(event: Event) -> list[list[Any]]:
    return [step for step in event["mops"] if step[0] == "send"]


def _next(sent: defaultdict[str, int], key: str) -> int:
    sent[key] += 1
    return sent[key]


def _shifts(differences: Iterable[int]) -> list[int] | None:
    shifts = list(differences)
    return shifts if any(shifts) else None


def _stretches(
    polled: Iterable[tuple[str, int]], process: int, stood: defaultdict[tuple[int, str], int]
) -> Iterator[Event]:
    stretch: Event = {}
    for key, place in polled:
        skip = place - stood[process, key]
        if stretch and (stretch["key"] != key or skip):
            yield stretch
            stretch = {}
        stretch = stretch or {"key": key, "skip": skip, "count": 0}
        stretch["count"] += 1
        stood[process, key] = place + 1
    if stretch:
        yield stretch


def unpacked(folder: Path, position: int) -> list[Event]:
    """Return the events of the history that stands at this position."""
    events, polls, logs = (pq.ParquetFile(folder / f"{name}.parquet").read_row_group(position) for name in SCHEMAS)
    answers = _Answers(_logs(logs), polls)
    sent: defaultdict[str, int] = defaultdict(int)
    opened: dict[int, list[list[Any]]] = {}
    history: list[Event] = []
    for index, row in enumerate(zip(*(column.to_pylist() for column in events.columns), strict=True)):
        process, kind, function, time, error, keys, steps, value_shift, offset_shift, polled = row
        event = {"index": index, "process": process, "type": kind, "f": function, "time": time}
        if error is not None:
            event["error"] = error
        if keys is not None:
            event["keys"] = keys
        if steps is not None:
            opened[process] = event["mops"] = _invoked(steps, value_shift, sent)
        elif process in opened:
            mops = opened.pop(process)
            event["mops"] = mops if polled is None else answers.to(process, mops, offset_shift, polled)
        history.append(event)
    return history


def _invoked(steps: list[str | None], value_shift: list[int] | None, sent: defaultdict[str, int]) -> list[list[Any]]:
    shifts = iter(value_shift) if value_shift else repeat(0)
    return [["poll"] if key is None else ["send", key, _next(sent, key) + next(shifts)] for key in steps]


def _logs(table: pa.Table) -> dict[str, list[Pair]]:
    logs: dict[str, list[Pair]] = {}
    for key, *pair in zip(*(column.to_pylist() for column in table.columns), strict=True):
        logs.setdefault(key, []).append(pair)
    return logs


def _first_offsets(logs: Mapping[str, list[Pair]]) -> dict[str, dict[int, int]]:
    return {key: {value: offset for offset, value in reversed(log)} for key, log in logs.items()}


class _Answers:
    """What came back, in the order in which it came."""

    def __init__(self, logs: Mapping[str, list[Pair]], polls: pa.Table) -> None:
        self._logs = logs
        self._first = _first_offsets(logs)
        self._stretches = zip(*(column.to_pylist() for column in polls.columns), strict=True)
        self._stood: defaultdict[tuple[int, str], int] = defaultdict(int)

    def to(
        self, process: int, mops: list[list[Any]], offset_shift: list[int] | None, polled: list[int]
    ) -> list[list[Any]]:
        shifts, counts = iter(offset_shift) if offset_shift else repeat(0), iter(polled)
        return [
            self._polled(process, next(counts)) if step[0] == "poll" else self._acknowledged(*step, next(shifts))
            for step in mops
        ]

    def _acknowledged(self, function: str, key: str, value: int, shift: int) -> list[Any]:
        return [function, key, [self._first[key][value] + shift, value]]

    def _polled(self, process: int, stretches: int) -> list[Any]:
        found: dict[str, list[Pair]] = {}
        for key, skip, count in islice(self._stretches, stretches):
            begin = self._stood[process, key] + skip
            self._stood[process, key] = begin + count
            found.setdefault(key, []).extend(self._logs[key][begin : begin + count])
        return ["poll", found]
