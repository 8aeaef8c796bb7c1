"""Nights as data: Delta tables with a row per night and thing, to which many nights may add at once, and which Spark reads.

Each night adds its rows to each table in one transaction that carries the night's name (Delta's `txn`):
whoever adds a night a second time, or while somebody else does, adds nothing. A night that was killed may go on: then it takes the
place of what had been added of it. A writer that is killed leaves no rows that a reader sees.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import pyarrow as pa

from tribunal.results.night import Night, NightState
from tribunal.results.unreadable import UNREADABLE

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

CLIENT: Final = "pip install 'deltalake>=1.6' (the extra replog[nights])"
RETRIES: Final = 100  # commits of other nights that may come first
# The versions that a night's transactions carry: as far as it came before it was killed, and as it is.
SO_FAR: Final = 1
ADDED: Final = 2


class NoTables(Exception):
    """Nights cannot be kept there, or none are there."""


class NightRow(msgspec.Struct, frozen=True, kw_only=True):
    """A night, or a shard of one: `began` in UTC (ISO 8601), times in seconds; first_seed: None in rows that were added before there was the column."""

    night: str
    began: str
    shard: str
    commit: str
    word: str
    runs: int
    violations: int
    inconclusive: int
    errors: int
    simulated_hours: float
    seconds: float
    first_seed: int | None = None


class SweepRow(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario's seeds in a night; `seconds`: of one core."""

    night: str
    began: str
    shard: str
    scenario: str
    runs: int
    violations: int
    inconclusive: int
    errors: int
    seconds: float
    simulated_ms: int


class FindingRow(msgspec.Struct, frozen=True, kw_only=True):
    """A signature that runs of a night showed."""

    night: str
    began: str
    shard: str
    signature: str
    state: str
    count: int
    scenarios: list[str]
    seeds: list[int]


class KnownBugRow(msgspec.Struct, frozen=True, kw_only=True):
    """A known bug that was switched on; `seconds`: until it was found, or the search ended."""

    night: str
    began: str
    shard: str
    mutant: str
    scenario: str
    found: bool
    seeds: int
    seconds: float


class SensitivityRow(msgspec.Struct, frozen=True, kw_only=True):
    """How many anomalies of a class were put into recordings of a night, and how many of them were seen."""

    night: str
    began: str
    shard: str
    anomaly: str
    injected: int
    seen: int


class FigureRow(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that nights compare, such as probes reached."""

    night: str
    began: str
    shard: str
    figure: str
    value: float


class ReasonRow(msgspec.Struct, frozen=True, kw_only=True):
    """Why runs of a scenario were INCONCLUSIVE, and how many: a fault that did not take effect, a cluster that did not heal."""

    night: str
    began: str
    shard: str
    scenario: str
    reason: str
    count: int


class PartRow(msgspec.Struct, frozen=True, kw_only=True):
    """How long a part of a night took."""

    night: str
    began: str
    shard: str
    part: str
    seconds: float


Row = NightRow | SweepRow | FindingRow | KnownBugRow | SensitivityRow | FigureRow | ReasonRow | PartRow
One = TypeVar("One", NightRow, SweepRow, FindingRow, KnownBugRow, SensitivityRow, FigureRow, ReasonRow, PartRow)
TABLES: Final[dict[type[Row], str]] = {
    NightRow: "nights",
    SweepRow: "sweeps",
    FindingRow: "findings",
    KnownBugRow: "known_bugs",
    SensitivityRow: "sensitivity",
    FigureRow: "figures",
    ReasonRow: "reasons",
    PartRow: "parts",
}
ARROW: Final = {
    str: pa.string(), int: pa.int64(), int | None: pa.int64(), float: pa.float64(), bool: pa.bool_(),
    list[str]: pa.list_(pa.string()), list[int]: pa.list_(pa.int64()),
}  # fmt: skip


def add(store: str, night: Night) -> list[str]:
    """Add a night's rows to the tables of a store; return the tables that lacked it, or had it as it was when it was killed.

    store:  a folder, or an address that Delta knows, such as s3://bucket/nights with credentials in the environment.
    """
    from deltalake.exceptions import DeltaError

    rows = list(rows_of(night))
    lacked = []
    for kind, table in TABLES.items():
        content = pa.Table.from_pylist(
            [msgspec.to_builtins(row) for row in rows if isinstance(row, kind)], schema=schema(kind)
        )
        try:
            if _written(store, table, night, content):
                lacked.append(table)
        except (DeltaError, OSError) as problem:
            raise NoTables(f"{store}: {table}: {_line(problem)}") from None
    return lacked


def rows(store: str, kind: type[One]) -> list[One]:
    """Return the rows of one kind, the oldest night first. NoTables: no night was ever added, or what is there cannot be read."""
    from deltalake.exceptions import DeltaError

    try:
        table = _table(store, TABLES[kind])
        if table is None and kind is NightRow:
            raise NoTables(f"{store}: no nights are kept there; add some with --add FOLDER")
        if table is None:  # the first night was cut off as it was added
            return []
        found = msgspec.convert(table.to_pyarrow_table().to_pylist(), list[kind])  # type: ignore[valid-type]
    except (DeltaError, OSError, pa.ArrowInvalid, *UNREADABLE) as problem:
        raise NoTables(f"{store}: {TABLES[kind]}: {_line(problem)}") from None
    return sorted(found, key=lambda row: (row.began, row.night, row.shard))


def schema(kind: type[Row]) -> pa.Schema:
    """Return the columns of a kind of row."""
    return pa.schema([pa.field(one.name, ARROW[one.type]) for one in msgspec.structs.fields(kind)])


def rows_of(night: Night) -> Iterator[Row]:
    """Yield all rows of a night."""
    who = {"night": night.name, "began": night.began, "shard": night.shard}
    verdicts = night.verdicts
    yield NightRow(
        **who, commit=night.commit, word=night.word, runs=night.runs, violations=verdicts["VIOLATION"],
        inconclusive=verdicts["INCONCLUSIVE"], errors=verdicts["ERROR"], simulated_hours=night.simulated_hours,
        seconds=night.seconds, first_seed=night.first_seed,
    )  # fmt: skip
    for swept in night.swept:
        counts = swept.verdicts
        yield SweepRow(
            **who, scenario=swept.scenario, runs=swept.runs, violations=counts.get("VIOLATION", 0),
            inconclusive=counts.get("INCONCLUSIVE", 0), errors=counts.get("ERROR", 0), seconds=swept.seconds,
            simulated_ms=swept.simulated_ms,
        )  # fmt: skip
        for reason, count in swept.reasons.items():
            yield ReasonRow(**who, scenario=swept.scenario, reason=reason, count=count)
    for found in night.found:
        yield FindingRow(
            **who, signature=found.signature, state=found.state, count=found.count, scenarios=found.scenarios,
            seeds=found.seeds,
        )  # fmt: skip
    for canary in night.canaries:
        yield KnownBugRow(
            **who, mutant=canary.mutant, scenario=canary.scenario, found=canary.found, seeds=canary.seeds,
            seconds=canary.seconds,
        )  # fmt: skip
    for anomaly, figure in night.sensitivity.figures.items():
        yield SensitivityRow(**who, anomaly=anomaly, injected=figure.injected, seen=figure.seen)
    for name, value in night.figures.items():
        yield FigureRow(**who, figure=name, value=value)
    for part, seconds in night.part_seconds.items():
        yield PartRow(**who, part=part, seconds=seconds)


def nights_below(folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the nightly.json of folders and of folders below them. NoTables: one has none."""
    from tribunal.results.night_files import NIGHT

    for folder in folders:
        found = sorted(folder.rglob(NIGHT))
        if not found:
            raise NoTables(f"{folder}: no {NIGHT} there or below; name the folder that `tribunal nightly --out` wrote")
        yield from found


def _written(store: str, table: str, night: Night, content: pa.Table) -> bool:
    """Write what a night adds to a table; False: it is there. CommitFailedError: others were always first."""
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import CommitFailedError

    name = f"{night.name} {night.began} {night.shard}"
    version = SO_FAR if night.state is NightState.RUNNING else ADDED
    once = CommitProperties(max_commit_retries=RETRIES, app_transactions=[Transaction(name, version)])
    for left in reversed(range(RETRIES)):
        there = _made(store, table, content.schema)
        had = there.transaction_version(name)
        if had is not None and had >= version:
            return False
        try:
            _write(there, content, once, None if had is None else night)
        except CommitFailedError:  # the same night, or somebody made the table meanwhile, too
            if not left:
                raise
        else:
            return True
    raise AssertionError("the last try returns or raises")


def _write(there: "DeltaTable", content: pa.Table, once: "CommitProperties", instead_of: Night | None) -> None:
    """Write against the version that was looked at: who adds the same night behind it makes this commit fail.

    instead_of:  whose rows it takes the place of.
    """
    from deltalake import write_deltalake

    if instead_of is None:
        write_deltalake(there, content, mode="append", schema_mode="merge", commit_properties=once)
        return
    named = {"night": instead_of.name, "began": instead_of.began, "shard": instead_of.shard}
    own = " AND ".join(f"{column} = {_quoted(value)}" for column, value in named.items())
    write_deltalake(there, content, mode="overwrite", predicate=own, schema_mode="merge", commit_properties=once)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _made(store: str, table: str, columns: pa.Schema) -> "DeltaTable":
    """Return a table as it is now; make it where it is lacking. DeltaError: neither was possible."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    there = _table(store, table)
    if there is not None:
        return there
    try:
        return DeltaTable.create(_place(store, table), columns)
    except DeltaError:
        there = _table(store, table)  # somebody else made it meanwhile
        if there is None:
            raise
        return there


def _table(store: str, table: str) -> "DeltaTable | None":
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(_place(store, table))
    except TableNotFoundError:
        return None


def _place(store: str, table: str) -> str:
    return f"{store.rstrip('/')}/{table}"


def _line(problem: Exception) -> str:
    return str(problem).splitlines()[0] if str(problem) else type(problem).__name__
