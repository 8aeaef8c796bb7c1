"""What rows may not say: one vectorised look per table for contradictions.

A recording with an impossible row was not written by a sound harness, so nothing in it can be believed:
the answer is ERROR with table, row and reason, never a verdict. Checks that need one partition are
`contradiction`; the one that needs a whole run (a value sent twice) is `value_sent_twice`.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.results.recording import TABLES, WORDS, DamagedRecording
from tribunal.results.values import SEQUENCE_BITS


def wrong_schema(expected: pa.Schema, found: pa.Schema) -> str | None:
    """Say what is wrong with a file's columns; None when they are the expected ones."""
    if found.equals(expected):
        return None
    for name in expected.names:
        if name not in found.names:
            return f"column {name} is missing"
        if found.names.count(name) > 1:
            return f"column {name} is there twice"
        if not _same_type(expected.field(name).type, found.field(name).type):
            return f"column {name} has type {found.field(name).type}, not {expected.field(name).type}"
    extra = [name for name in found.names if name not in expected.names]
    return f"unknown column {extra[0]}" if extra else None


def _same_type(expected: pa.DataType, found: pa.DataType) -> bool:
    if pa.types.is_dictionary(expected) or pa.types.is_string(expected):
        kind = found.value_type if pa.types.is_dictionary(found) else found
        return bool(pa.types.is_string(kind)) or bool(pa.types.is_large_string(kind))
    return bool(expected.equals(found))


def contradiction(name: str, rows: pa.Table) -> DamagedRecording | None:
    """Return the first contradiction within these rows of one table, or None."""
    if rows.num_rows == 0:
        return None
    for check in (_null_where_required, _unknown_word, _negative, *_BY_TABLE.get(name, ())):
        damage = check(name, rows)
        if damage is not None:
            return damage
    return None


def value_sent_twice(values: np.ndarray) -> int | None:
    """Return the position of a value that an earlier row holds already, or None."""
    if all_different([values]):
        return None
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    return None if repeated.size == 0 else int(order[repeated + 1].min())


def all_different(parts: Iterable[np.ndarray]) -> bool:
    """Return whether no value occurs twice in all parts together: one bit a value, no sort.

    Values describe themselves: a process counts its records up, so its sequences are dense.
    """
    seen: dict[int, _Sequences] = {}
    for values in parts:
        for process, sequences in by_process(values):
            seen.setdefault(process, _Sequences()).add(sequences)
    return all(process.all_different() for process in seen.values())


class _Sequences:
    """The sequence numbers of one process: a mark each where they are dense, a list where they are not."""

    def __init__(self) -> None:
        self._marks = np.zeros(0, bool)
        self._marked = 0
        self._sparse: list[np.ndarray] = []

    def add(self, sequences: np.ndarray) -> None:
        end = int(sequences.max()) + 1
        if end > 64 * (self._marked + sequences.size) + (1 << 20):
            self._sparse.append(sequences)
            return
        if end > self._marks.size:
            self._marks = np.concatenate(
                [self._marks, np.zeros(max(end, 2 * self._marks.size) - self._marks.size, bool)]
            )
        self._marks[sequences] = True
        self._marked += sequences.size

    def all_different(self) -> bool:
        if int(np.count_nonzero(self._marks)) != self._marked:
            return False
        if not self._sparse:
            return True
        every = np.sort(np.concatenate([np.flatnonzero(self._marks), *self._sparse]))
        return bool((every[1:] != every[:-1]).all())


def by_process(values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each process with the sequence numbers of its values."""
    processes = values >> SEQUENCE_BITS
    if processes.size and processes.min() >= 0 and processes.max() < 1 << 15:
        processes = processes.astype(np.int16)  # sorted in linear time
    order = np.argsort(processes, kind="stable")
    borders = np.flatnonzero(np.diff(processes[order])) + 1
    sequences = (values & ((1 << SEQUENCE_BITS) - 1))[order]
    for low, high in zip([0, *borders], [*borders, len(order)], strict=True):
        if high > low:
            yield int(processes[order[low]]), sequences[low:high]


def _first(mask: pa.ChunkedArray) -> int | None:
    position = pc.index(pc.fill_null(mask, False), True).as_py()  # noqa: FBT003 - pyarrow's own signature
    return None if position < 0 else int(position)


def _damage(name: str, mask: pa.ChunkedArray, reason: str) -> DamagedRecording | None:
    row = _first(mask)
    return None if row is None else DamagedRecording(name, row, reason)


def _null_where_required(name: str, rows: pa.Table) -> DamagedRecording | None:
    for column in sorted(TABLES[name].required):
        if column in rows.column_names and rows[column].null_count:
            reason = f"{column} is unknown"
            if column in ("invoke_ns", "begin_ns"):
                reason = "completed without invoke"
            return _damage(name, pc.is_null(rows[column]), reason)
    return None


def _says(column: pa.ChunkedArray, word: str) -> pa.ChunkedArray:
    """Return which rows hold the word; dictionaries are looked through, not their rows."""
    if not pa.types.is_dictionary(column.type):
        return pc.equal(column, word)
    chunks = []
    for chunk in column.chunks:
        code = pc.index(chunk.dictionary, word).as_py()
        chunks.append(pc.equal(chunk.indices, pa.scalar(code, chunk.indices.type)))
    return pa.chunked_array(chunks, pa.bool_())


def _only_these_words(column: pa.ChunkedArray, words: tuple[str, ...]) -> bool:
    """Return whether dictionaries hold nothing else; a word that no row uses makes this say no."""
    if not pa.types.is_dictionary(column.type):
        return False
    return all(set(chunk.dictionary.to_pylist()) <= {*words, None} for chunk in column.chunks)


def _unknown_word(name: str, rows: pa.Table) -> DamagedRecording | None:
    for (table, column), words in WORDS.items():
        if table != name or column not in rows.column_names or _only_these_words(rows[column], words):
            continue
        known = pa.array([*words, None], pa.string())
        mask = pc.invert(pc.is_in(rows[column].cast(pa.string()), value_set=known))
        row = _first(mask)
        if row is not None:
            return DamagedRecording(
                name, row, f"{column} is {rows[column][row].as_py()!r}, not one of {', '.join(words)}"
            )
    return None


_MINUS_ONE_ALLOWED = frozenset({"committed_offset", "position"})
_MAY_BE_NEGATIVE = frozenset(
    {"acks", "clock_offset_ns", "previous_broker_epoch", "broker_epoch", "leader_epoch", "stamped_ns"}
)


def _negative(name: str, rows: pa.Table) -> DamagedRecording | None:
    for column in rows.column_names:
        if column in _MAY_BE_NEGATIVE or not pa.types.is_integer(rows.schema.field(column).type):
            continue
        least = -1 if column in _MINUS_ONE_ALLOWED else 0
        if rows[column].null_count == rows.num_rows or pc.min(rows[column]).as_py() >= least:
            continue
        reason = "time before the run's start" if column.endswith("_ns") else "negative"
        return _damage(name, pc.less(rows[column], least), f"{column}: {reason}")
    return None


def _goes_back(start: str, end: str) -> Callable[[str, pa.Table], DamagedRecording | None]:
    def check(name: str, rows: pa.Table) -> DamagedRecording | None:
        if start not in rows.column_names or end not in rows.column_names:
            return None
        return _damage(name, pc.less(rows[end], rows[start]), f"time goes back: {end} is before {start}")

    return check


def _waits_too_long(name: str, rows: pa.Table) -> DamagedRecording | None:
    longest = pc.subtract(rows["until_ns"], rows["since_ns"])
    return _damage(name, pc.greater(rows["waited_ns"], longest), "waited longer than from since_ns to until_ns")


def _ok_without_completion(name: str, rows: pa.Table) -> DamagedRecording | None:
    done = pc.invert(_says(rows["outcome"], "info"))
    return _damage(name, pc.and_(done, pc.is_null(rows["complete_ns"])), "ok or fail without a completion time")


def _acks_disagree(name: str, rows: pa.Table) -> DamagedRecording | None:
    acks, sent = rows["acks"], _says(rows["outcome"], "sent")
    unknown = pc.invert(pc.is_in(acks, value_set=pa.array([-1, 0, 1], pa.int32())))
    never = pc.and_(pc.equal(acks, 0), _says(rows["outcome"], "ok"))
    never_sent = pc.and_(pc.not_equal(acks, 0), sent)
    return (
        _damage(name, unknown, "acks is not 0, 1 or -1")
        or _damage(name, never, "acks=0 cannot be acknowledged: its outcome is `sent`")
        or _damage(name, never_sent, "outcome `sent` is for acks=0 only")
    )


def _foreign_value(name: str, rows: pa.Table) -> DamagedRecording | None:
    process = pc.shift_right(rows["value"], SEQUENCE_BITS)
    return _damage(name, pc.not_equal(process, rows["process"].cast(pa.int64())), "value does not name its process")


def time_goes_back(name: str, rows: pa.Table) -> DamagedRecording | None:
    """A process counts its records up, so the invocations of rising values never go back."""
    values = rows["value"].to_numpy()
    invoke = rows["invoke_ns"].to_numpy()
    order = np.argsort(values)
    ordered = values[order]
    same = ordered[1:] >> SEQUENCE_BITS == ordered[:-1] >> SEQUENCE_BITS
    times = invoke[order]
    back = np.flatnonzero(same & (times[1:] < times[:-1]))
    if back.size == 0:
        return None
    return DamagedRecording(
        name, int(order[back[0] + 1]), "time goes back: a process's later record has an earlier invoke"
    )


_BY_TABLE: dict[str, tuple[Callable[[str, pa.Table], DamagedRecording | None], ...]] = {
    "sends": (
        _goes_back("invoke_ns", "complete_ns"),
        _ok_without_completion,
        _acks_disagree,
        _foreign_value,
        time_goes_back,
    ),
    "polls": (_goes_back("invoke_ns", "complete_ns"), _ok_without_completion),
    "commits": (_goes_back("invoke_ns", "complete_ns"), _ok_without_completion),
    "admin": (_goes_back("invoke_ns", "complete_ns"), _ok_without_completion),
    "operations": (_goes_back("invoke_ns", "complete_ns"), _ok_without_completion),
    "txns": (_goes_back("begin_ns", "end_ns"),),
    "faults": (_goes_back("injected_ns", "healed_ns"),),
    "phases": (_goes_back("start_ns", "end_ns"),),
    "waits": (_goes_back("since_ns", "until_ns"), _waits_too_long),
}
