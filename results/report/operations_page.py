"""The page of a run's operations: a table of the recording, filtered, in order of time, one page of rows at once.

`tribunal serve` makes it when it is asked for: nothing of it is in the report's file, so it may show all rows of a long run.
A row is named by its table, its partition and its place among that partition's rows as they are stored.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import parse_qs, urlencode

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.results.report import environment
from tribunal.results.store import Recording
from tribunal.results.values import SEQUENCE_BITS, record_name

ROWS: Final = 200
SHOWN: Final = {
    "sends": ("invoke_ns", "complete_ns", "process", "outcome", "acks", "value", "log_offset", "leader_epoch", "answered_by", "error"),
    "polls": ("invoke_ns", "complete_ns", "process", "outcome", "phase", "position", "record_count", "high_watermark", "answered_by", "error"),
    "reads": ("process", "poll_index", "phase", "value", "log_offset", "leader_epoch"),
    "watermarks": ("at_ns", "observer", "high_watermark", "log_end_offset", "last_stable_offset", "leader_epoch"),
}  # fmt: skip
WHEN: Final = ("invoke_ns", "at_ns")
OUTCOMES: Final = ("ok", "sent", "fail", "info")


Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""What a column of the recording can hold."""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a reader asked for; times in seconds, `record` is a record's number among those of its process, `text` is sought in every column of words, `page` counts from 1."""

    table: Literal["sends", "polls", "reads", "watermarks"] = "sends"
    partition: str = ""
    process: Whole | None = None
    outcome: str = ""
    acks: Whole | None = None
    value: Whole | None = None
    record: Whole | None = None
    offset: Whole | None = None
    since: Seconds | None = None
    until: Seconds | None = None
    text: str = ""
    page: Annotated[int, msgspec.Meta(ge=1)] = 1

    @property
    def query(self) -> str:
        """Return it as the query of an address."""
        return urlencode(msgspec.to_builtins(self))


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a row is stored."""

    table: Literal["sends", "polls", "reads", "watermarks"]
    partition: str
    row: int


class Shown(msgspec.Struct, frozen=True):
    """One row of the page: its place among the partition's rows, and its cells as words."""

    row: int
    cells: list[str]


class OperationsPage(msgspec.Struct, frozen=True, kw_only=True):
    """What the page shows; `count`: rows that match, of `of`."""

    wanted: Wanted
    partitions: list[str]
    columns: list[str]
    rows: list[Shown]
    count: int
    of: int

    @property
    def pages(self) -> int:
        """How many pages there are, at least one."""
        return max(1, -(-self.count // ROWS))


def wanted(query: str) -> Wanted:
    """Read the query of an address. Raises msgspec.ValidationError."""
    return msgspec.convert(_given(query), Wanted, strict=False)


def _given(query: str) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(query).items()}


def operations_page(recording: Recording, asked: Wanted) -> OperationsPage:
    """Return a page of the rows that match; without a partition those of the first one."""
    partitions = recording.partitions(asked.table)
    asked = msgspec.structs.replace(asked, partition=asked.partition or next(iter(partitions), ""))
    rows = recording.table(asked.table, asked.partition)
    found = _matching(rows, asked)
    first = (asked.page - 1) * ROWS
    own = found[first : first + ROWS]
    columns = [name for name in SHOWN[asked.table] if name in rows.column_names]
    table = rows.select(columns).take(own).to_pylist()
    return OperationsPage(
        wanted=asked, partitions=partitions, columns=[_heading(name) for name in columns], count=len(found), of=rows.num_rows,
        rows=[Shown(place, _cells(columns, row)) for place, row in zip(own.to_pylist(), table, strict=True)],
    )  # fmt: skip


def render(run_dir: Path, asked: Wanted) -> str:
    """Return the page of a run as HTML."""
    content = operations_page(Recording.open(run_dir, compare=False), asked)
    template = environment().get_template("operations.html.j2")
    return template.render(
        content=content, wanted=content.wanted, run=run_dir.name, tables=SHOWN, outcomes=OUTCOMES, turned=_turned
    )


def place(query: str) -> Place:
    """Read the address of a row. Raises msgspec.ValidationError."""
    return msgspec.convert(_given(query), Place, strict=False)


def raw_row(run_dir: Path, asked: Place) -> bytes | None:
    """Return a row of the recording with all its columns as JSON; None: there is none."""
    rows = Recording.open(run_dir, compare=False).table(asked.table, asked.partition)
    if not 0 <= asked.row < rows.num_rows:
        return None
    return msgspec.json.format(msgspec.json.encode(rows.slice(asked.row, 1).to_pylist()[0]), indent=1)


def _turned(asked: Wanted, page: int) -> str:
    return msgspec.structs.replace(asked, page=page).query


def _matching(rows: pa.Table, asked: Wanted) -> pa.Array:
    """Return the places of the rows that match, in order of time where the table has one."""
    masks = [
        pc.equal(rows[name], number)
        for name, number in (("process", asked.process), ("acks", asked.acks), ("value", asked.value), ("log_offset", asked.offset))
        if number is not None and name in rows.column_names
    ]  # fmt: skip
    if asked.record is not None and "value" in rows.column_names:
        masks.append(pc.equal(pc.bit_wise_and(rows["value"], (1 << SEQUENCE_BITS) - 1), asked.record))
    if asked.outcome and "outcome" in rows.column_names:
        masks.append(pc.equal(rows["outcome"].cast(pa.string()), asked.outcome))
    when = next((name for name in WHEN if name in rows.column_names), None)
    if when is not None and asked.since is not None:
        masks.append(pc.greater_equal(rows[when], round(asked.since * 1e9)))
    if when is not None and asked.until is not None:
        masks.append(pc.less_equal(rows[when], round(asked.until * 1e9)))
    if asked.text:
        masks.append(_says(rows, asked.text))
    places = pa.array(range(rows.num_rows), pa.int64()) if not masks else _places(masks)
    if when is None:
        return places
    return places.take(pc.sort_indices(rows[when].take(places)))


def _places(masks: Sequence[pa.ChunkedArray]) -> pa.Array:
    every = masks[0]
    for mask in masks[1:]:
        every = pc.and_kleene(every, mask)
    return pc.indices_nonzero(pc.fill_null(every, fill_value=False)).cast(pa.int64())


def _says(rows: pa.Table, text: str) -> pa.ChunkedArray:
    """Return which rows have a text in any column of words, in whatever case."""
    said = pa.chunked_array([pa.repeat(pa.scalar(False), rows.num_rows)])  # noqa: FBT003 - pyarrow's own signature
    for name in rows.column_names:
        kind = rows.schema.field(name).type
        if pa.types.is_string(kind) or pa.types.is_dictionary(kind):
            has = pc.match_substring(rows[name].cast(pa.string()), text, ignore_case=True)
            said = pc.or_(said, pc.fill_null(has, fill_value=False))
    return said


def _heading(name: str) -> str:
    if name.endswith("_ns"):
        return f"{name.removesuffix('_ns')}, s"
    return "record" if name == "value" else name


def _cells(columns: Sequence[str], row: dict[str, int | str | None]) -> list[str]:
    return [_cell(name, row[name]) for name in columns]


def _cell(name: str, value: int | str | None) -> str:
    if value is None:
        return ""
    if name.endswith("_ns") and isinstance(value, int):
        return f"{value / 1e9:.6f}"
    if name == "value" and isinstance(value, int):
        return record_name(value)
    return "all" if name == "acks" and value == -1 else str(value)
