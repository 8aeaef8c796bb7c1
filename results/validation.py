"""What rows may not say: one vectorised look per table for contradictions.

A recording with an impossible row was not written by a sound harness, so nothing in it can be believed:
the answer is ERROR with table, row and reason, never a verdict. Checks that need one partition are
`contradiction`; the one that needs a whole run (a value sent twice) is `value_sent_twice`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from results.recording import SEQUENCE_BITS, TABLES, WORDS, DamagedRecording, TableSchema


def wrong_schema(table: TableSchema, found: pa.Schema) -> str | None:
    """Say what is wrong with a file's columns; None when they are the table's."""
    expected = table.arrow
    for name in expected.names:
        if name not in found.names:
            return f"column {name} is missing"
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
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    return None if repeated.size == 0 else int(order[repeated + 1].min())


def _first(mask: Any) -> int | None:
    position = pc.index(pc.fill_null(mask, False), True).as_py()  # noqa: FBT003 - pyarrow's own signature
    return None if position < 0 else int(position)


def _damage(name: str, mask: Any, reason: str) -> DamagedRecording | None:
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


def _unknown_word(name: str, rows: pa.Table) -> DamagedRecording | None:
    for (table, column), words in WORDS.items():
        if table != name or column not in rows.column_names:
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
_MAY_BE_NEGATIVE = frozenset({"acks", "clock_offset_ns", "previous_broker_epoch", "broker_epoch", "leader_epoch"})


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


def _ok_without_completion(name: str, rows: pa.Table) -> DamagedRecording | None:
    done = pc.not_equal(rows["outcome"].cast(pa.string()), "info")
    return _damage(name, pc.and_(done, pc.is_null(rows["complete_ns"])), "ok or fail without a completion time")


def _acks_disagree(name: str, rows: pa.Table) -> DamagedRecording | None:
    acks, outcome = rows["acks"], rows["outcome"].cast(pa.string())
    unknown = pc.invert(pc.is_in(acks, value_set=pa.array([-1, 0, 1], pa.int32())))
    never = pc.and_(pc.equal(acks, 0), pc.equal(outcome, "ok"))
    never_sent = pc.and_(pc.not_equal(acks, 0), pc.equal(outcome, "sent"))
    return (
        _damage(name, unknown, "acks is not 0, 1 or -1")
        or _damage(name, never, "acks=0 cannot be acknowledged: its outcome is `sent`")
        or _damage(name, never_sent, "outcome `sent` is for acks=0 only")
    )


def _foreign_value(name: str, rows: pa.Table) -> DamagedRecording | None:
    process = pc.shift_right(rows["value"], SEQUENCE_BITS)
    return _damage(name, pc.not_equal(process, rows["process"].cast(pa.int64())), "value does not name its process")


def _process_goes_back(name: str, rows: pa.Table) -> DamagedRecording | None:
    """A process counts its records up, so the invocations of rising values never go back."""
    values = rows["value"].to_numpy()
    invoke = rows["invoke_ns"].to_numpy()
    order = np.argsort(values, kind="stable")
    same = values[order][1:] >> SEQUENCE_BITS == values[order][:-1] >> SEQUENCE_BITS
    back = np.flatnonzero(same & (invoke[order][1:] < invoke[order][:-1]))
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
        _process_goes_back,
    ),
    "polls": (_goes_back("invoke_ns", "complete_ns"), _ok_without_completion),
    "commits": (_goes_back("invoke_ns", "complete_ns"), _ok_without_completion),
    "admin": (_goes_back("invoke_ns", "complete_ns"), _ok_without_completion),
    "txns": (_goes_back("begin_ns", "end_ns"),),
    "faults": (_goes_back("injected_ns", "healed_ns"),),
    "phases": (_goes_back("start_ns", "end_ns"),),
}
