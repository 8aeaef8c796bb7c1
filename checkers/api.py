"""What a property is, and what the engine gives it and takes from it. Read this first.

A property is one module of `checkers/properties` (or of a user's `tribunal_plugins/checkers`); its name is the module's. It has
- a docstring in words (the report shows its first line),
- `PROPERTY = Property(...)`, whose type says everything that may be given: the tables it looks at, the kinds of anomalies it can
  find, what finds them, and the same as a query.
The engine discovers modules by that value. Nothing else has to be touched to add one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tribunal.checkers.graphs.findings import AbortedMessage, Contradiction
from tribunal.checkers.guarantees import Excuse as Excuse
from tribunal.checkers.judge.endings import Ending
from tribunal.checkers.judge.led import Leaders
from tribunal.checkers.judge.timeline import Entry, History, Judgement, NodeSettings, Timeline
from tribunal.results import plugins
from tribunal.results.recording import TABLES, WORDS
from tribunal.results.verdict import Detail

Array = npt.NDArray[Any]  # a column: whole numbers or truth values, of whatever width
Built = TypeVar("Built")
Content = TypeVar("Content", bound=msgspec.Struct)
UNKNOWN: Final = -1

OK, FAIL, INFO, SENT = 0, 1, 2, 3  # codes of sends.outcome and polls.outcome, by WORDS
TAIL, FINAL = 0, 1  # codes of polls.phase and reads.phase

ANOMALY: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("log_offset", pa.int64()),
        ("value", pa.int64()),
        ("acks", pa.int32()),
        ("invoke_ns", pa.int64()),
        ("at_ns", pa.int64()),
        ("process", pa.int32()),
        ("node", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("other_offset", pa.int64()),
        ("other_value", pa.int64()),
        ("detail", pa.string()),
    ]
)


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """A row of ANOMALY."""

    kind: str
    log_offset: int | None = None
    value: int | None = None
    acks: int | None = None
    invoke_ns: int | None = None
    at_ns: int | None = None
    process: int | None = None
    node: int | None = None
    leader_epoch: int | None = None
    other_offset: int | None = None
    other_value: int | None = None
    detail: str | None = None


STEPS: Final = pa.schema(
    [
        ("txn", pa.int64()),
        ("process", pa.int32()),
        ("outcome", pa.int8()),
        ("begin_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("timeout_ms", pa.int64()),
        ("kind", pa.int8()),
        ("log_offset", pa.int64()),
        ("value", pa.int64()),
    ]
)


class Meaning(StrEnum):
    """What it means when an anomaly of a kind is found."""

    VIOLATION = "violation"  # whatever happened
    PROMISED = "promised"  # a violation unless a rule of docs/verdicts.md permits the loss
    NOTE = "note"  # a fact worth showing, no verdict
    UNJUDGED = "unjudged"  # the partition could not be judged: INCONCLUSIVE


class Grounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule may look at: the partition's committed history and that of the run, the partition's rows of its property's tables."""

    timeline: Timeline
    history: History
    rows: "PartitionRows"
    context: "Context"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that a property brings along with its kernel of partitions; a kernel of runs judges its anomalies itself.

    name:     as in docs/verdicts.md.
    words:    why it permits the anomaly, for people.
    excusing: returns the entry of the partition's history that excuses an anomaly; None: nothing does.
    """

    name: str
    words: str
    excusing: Callable[[Grounds, Anomaly], Entry | None]


class Kind(msgspec.Struct, frozen=True):
    """An anomaly's meaning, its sentence for the report, and the rules that the property accepts as an excuse for it."""

    meaning: Meaning
    sentence: str
    excused_by: tuple[Excuse | Rule, ...] = ()


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What a kernel has to know of the run besides its own rows.

    place:      the partition: its topic, as the recording names it, and its number; None: it is none's.
    complete:   the run came to its end; otherwise sends in flight were never written down.
    can_lead:   replicas whose final logs decide when there is no complete final read.
    committed:  values of committed transactions; None when there are no transactions.
    leaders:    who led which leader epoch, as committed in the metadata log, and when the topic was made anew.
    dumped:     nodes whose final log was read from the disk, and where it starts there: also one without records.
    begins:     where replicas' final logs begin, of which not all rows are here.
    ending:     how the partition's committed history ends; history: all of it.
    settings:   what every node was started with, by Kafka's names, and the `mode`; nothing where that is unknown.
    deleted_ns: when its topic's deletion was ordered first, by an order that may have been carried out.
    of_run:     a small table of the whole run (`phases`, `faults`, ...), read when it is asked for.
    made:       of all transactions of the run the columns of `transactions`, read when it is asked for; None: as of any table of the run.
    steps:      the steps of transactions in this partition (`tribunal.checkers.judge.steps`), read when they are asked for.
    sent_elsewhere:  values that may have been written here though they were offered to another topic of this name; looked for when they are asked for.
    """

    complete: bool
    place: tuple[str, int] | None = None
    can_lead: tuple[int, ...] = ()
    committed: Array | None = None
    leaders: Leaders = Leaders()
    dumped: Mapping[int, int] = {}
    begins: Mapping[int, int] = {}
    ending: Ending = Ending()
    history: Sequence[Entry] = ()
    settings: NodeSettings = msgspec.field(default_factory=dict)
    deleted_ns: int | None = None
    of_run: Callable[[str], pa.Table] = lambda name: TABLES[name].arrow.empty_table()
    made: Callable[[], pa.Table] | None = None
    steps: "Callable[[], Columns]" = lambda: Columns("steps", STEPS.empty_table())
    sent_elsewhere: Callable[[], Array] = lambda: np.zeros(0, np.int64)

    def transactions(self) -> pa.Table:
        """Return who made all transactions of the run, when, and how they ended: columns process, begin_ns, end_ns, outcome, timeout_ms of `txns`."""
        return self.of_run("txns") if self.made is None else self.made()


class Found(msgspec.Struct, frozen=True):
    """A kernel's answer: anomaly rows, small figures that are added up over partitions, a summary for the fold.

    judgements:  of rows that the kernel of a whole run has judged itself (those of a partition are judged by the engine).
    details:  what is known of rows as data, besides their columns.
    contradictions:  which rows of a whole run's kernel say that an offset held several values, or a polled message of an aborted transaction: judged where that partition is.
    """

    anomalies: pa.Table
    figures: dict[str, int] = msgspec.field(default_factory=dict)
    summary: msgspec.Struct | None = None
    judgements: Mapping[int, Judgement] = msgspec.field(default_factory=dict)
    details: Mapping[int, Detail] = msgspec.field(default_factory=dict)
    contradictions: Mapping[int, Contradiction | AbortedMessage] = msgspec.field(default_factory=dict)


class Folded(msgspec.Struct, frozen=True):
    """What a fold makes of all partitions' summaries: anomalies of the run, and figures for the report."""

    anomalies: pa.Table
    figures: msgspec.Struct | None = None


class EncodedSummary(msgspec.Struct, frozen=True):
    """What a kernel said of a partition for its property's fold, on its way there."""

    topic: str
    partition: int
    content: bytes


class PartitionSummary(msgspec.Struct, Generic[Content], frozen=True):
    """What a kernel said of a partition for its property's fold."""

    topic: str
    partition: int
    content: Content


class Fold(msgspec.Struct, Generic[Content], frozen=True):
    """Puts the partitions of a run together, in their order.

    content:  the type of the kernel's summaries.
    """

    content: type[Content]
    join: Callable[[Sequence[PartitionSummary[Content]]], Folded]

    def folded(self, summaries: Sequence[EncodedSummary]) -> Folded:
        """Read the summaries and put them together."""
        decoder = msgspec.msgpack.Decoder(self.content)
        return self.join([PartitionSummary(one.topic, one.partition, decoder.decode(one.content)) for one in summaries])


class FoldOfAnything(Protocol):
    """A fold, whatever its summaries are."""

    def folded(self, summaries: Sequence[EncodedSummary]) -> Folded:
        """Read the summaries and put them together."""


class RangeRows(Protocol):
    """One range of a partition's offsets."""

    def rows(self, name: str, wanted: Sequence[str]) -> "PartitionRows":
        """Return these columns of the rows of a table that have an offset in this range; `log_offset` is among them."""


class LargePartition(Protocol):
    """A partition too large to be held at once. Each call reads its files anew."""

    @property
    def small(self) -> "PartitionRows":
        """The small tables: all that the property looks at but sends, reads and logs."""

    def in_ranges(self) -> Iterator["RangeRows"]:
        """Yield ranges of offsets, ascending, that hold all rows which have an offset."""

    def in_pieces(self, name: str, wanted: Sequence[str]) -> Iterator["PartitionRows"]:
        """Yield these columns of all rows of a table, a row group at a time."""


class Property(msgspec.Struct, frozen=True, kw_only=True):
    """All that a property may give; at least one kernel. Kernels are pure, and vectorised where there are many rows.

    tables:   the tables it looks at.
    kinds:    the anomalies it can find, each with its sentence and what it means.
    kernel:   looks at one partition's rows.
    kernel_in_pieces:  does the same for a partition too large to be held at once: first comes a piece with its small tables if it looks
              at any, then table after table of `columns_in_pieces`, in pieces with these columns, which it reads as far as it needs.
    kernel_in_ranges:  does the same for a partition too large to be held at once, range by range of offsets.
    timeline_kernel:   looks at one partition's committed history.
    run_kernel:        looks at a whole run.
    fold:     if something can only be said of all partitions together: the kernel's summaries, partition by partition, become
              anomalies of the run and figures for the report.
    detail:   if there is more to say of an anomaly than is in its columns.
    sql:      the same as a query that runs in Spark SQL and in DuckDB: the definition for readers, the oracle in tests.
    name, about:  the module's name and its docstring; `properties` writes them in.
    """

    tables: tuple[str, ...]
    kinds: Mapping[str, Kind]
    kernel: "Callable[[PartitionRows, Context], Found] | None" = None
    kernel_in_pieces: "Callable[[Iterable[PartitionRows], Context], Found] | None" = None
    columns_in_pieces: Mapping[str, tuple[str, ...]] = {}
    kernel_in_ranges: "Callable[[LargePartition, Context], Found] | None" = None
    timeline_kernel: Callable[[Timeline], Found] | None = None
    run_kernel: "Callable[[PartitionRows, History], Found] | None" = None
    fold: FoldOfAnything | None = None
    detail: Callable[[Anomaly], str] | None = None
    sql: str | None = None
    name: str = ""
    about: str = ""

    @property
    def rules(self) -> "tuple[Rule, ...]":
        """The rules that it brings along."""
        named = {rule.name: rule for kind in self.kinds.values() for rule in kind.excused_by if isinstance(rule, Rule)}
        return tuple(named.values())


class Columns(dict[str, Array]):
    """A table's columns by name, each converted when it is first asked for."""

    def __init__(self, name: str, rows: pa.Table) -> None:
        super().__init__()
        self._name = name
        self._rows = rows

    def __missing__(self, column: str) -> Array:
        self[column] = array(self._name, column, self._rows[column])
        return self[column]


class PartitionRows:
    """One partition's rows as numpy columns; unknown integers are -1, closed words are codes."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._tables = tables
        self._columns: dict[str, Columns] = {}
        self._derived: dict[Callable[[PartitionRows], object], object] = {}

    def table(self, name: str) -> pa.Table:
        """Return the Arrow rows."""
        return self._tables[name] if name in self._tables else TABLES[name].arrow.empty_table()

    def columns(self, name: str) -> Columns:
        """Return the table's columns as arrays: `sends`, `polls`, ...; converted when they are asked for, once."""
        if name not in self._columns:
            self._columns[name] = Columns(name, self.table(name))
        return self._columns[name]

    def derived(self, build: "Callable[[PartitionRows], Built]") -> "Built":
        """Return what a function makes of these rows: made once, for all properties that ask."""
        if build not in self._derived:
            self._derived[build] = build(self)
        return cast("Built", self._derived[build])

    def words(self, name: str, column: str) -> list[str]:
        """Return the words that an open word column's codes stand for."""
        return _dictionary(self.table(name)[column])[1]


def array(table: str, column: str, values: pa.ChunkedArray) -> Array:
    """Return one column as numpy: unknown is -1; closed words by their order in WORDS, open words by first sight."""
    words = WORDS.get((table, column))
    if words is not None:
        codes, found = _dictionary(values)
        # A dictionary may hold words of rows that are not among these; none of ours is unknown here.
        known = np.array([words.index(word) if word in words else UNKNOWN for word in found] + [UNKNOWN], np.int8)
        return np.asarray(known[codes])
    if pa.types.is_dictionary(values.type) or pa.types.is_string(values.type):
        return _dictionary(values)[0]
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    return np.asarray(values.fill_null(UNKNOWN).to_numpy() if values.null_count else values.to_numpy())


def _dictionary(values: pa.ChunkedArray) -> tuple[Array, list[str]]:
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    elif values.num_chunks > 1:
        values = values.unify_dictionaries()
    if values.num_chunks == 0:
        return np.zeros(0, np.int32), []
    codes = [chunk.indices.fill_null(UNKNOWN).to_numpy(zero_copy_only=False) for chunk in values.chunks]
    return np.concatenate(codes) if len(codes) > 1 else codes[0], values.chunk(0).dictionary.to_pylist()


def anomalies(kind: str, **columns: Array | Sequence[int] | Sequence[str | None]) -> pa.Table:
    """Build anomaly rows of one kind; -1 is unknown, as in the columns that kernels see."""
    size = len(next(iter(columns.values())))
    if size == 0:
        return nothing()
    arrays = [pa.array([kind], pa.string()).take(pa.array(np.zeros(size, np.int64)))]
    for field in list(ANOMALY)[1:]:
        values = columns.get(field.name)
        if values is None:
            arrays.append(pa.nulls(size, field.type))
        elif field.name in ("detail", "acks"):
            arrays.append(pa.array(values).cast(field.type))
        else:
            numbers = np.asarray(values, np.int64)
            arrays.append(pa.array(numbers, mask=numbers == UNKNOWN).cast(field.type))
    return pa.Table.from_arrays(arrays, schema=ANOMALY)


def distinct(values: Array) -> Array:
    """Return the different values, ascending; numpy's own `unique` hashes, which is thirteen times slower."""
    if values.size == 0:
        return values
    ordered = values if is_ascending(values) else np.sort(values)
    new = np.empty(ordered.size, bool)
    new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return np.asarray(ordered if new.all() else ordered[new])


def is_ascending(values: Array) -> bool:
    """Return whether no value is below the one before it."""
    return bool((values[1:] >= values[:-1]).all())


def is_among(values: Array, few_or_sorted: Array) -> Array:
    """Return for each value whether it is one of others, which are distinct and ascending."""
    if few_or_sorted.size == 0:
        return np.zeros(values.size, bool)
    if few_or_sorted.size <= 8:
        return np.asarray(np.logical_or.reduce([values == other for other in few_or_sorted.tolist()]))
    place = np.minimum(np.searchsorted(few_or_sorted, values), few_or_sorted.size - 1)
    return np.asarray(few_or_sorted[place] == values)


class Index:
    """Finds rows by an integer column, with one sort at most."""

    def __init__(self, column: Array) -> None:
        self.column = column
        self.order: Array | None = None if is_ascending(column) else np.argsort(column)
        self.ordered: Array = column if self.order is None else column[self.order]

    def rows(self, values: Array) -> Array:
        """Return for each value a row that holds it, -1 for none and for unknown values."""
        if self.ordered.size == 0:
            return np.full(values.size, UNKNOWN, np.int64)
        place = np.minimum(np.searchsorted(self.ordered, values), self.ordered.size - 1)
        found = (self.ordered[place] == values) & (values != UNKNOWN)
        return np.where(found, place if self.order is None else self.order[place], UNKNOWN)


def sends_by_value(rows: "PartitionRows") -> Index:
    """Return the index of sends by their value."""
    return Index(rows.columns("sends")["value"])


def sends_of_reads(rows: "PartitionRows") -> Array:
    """Return for each row of `reads` the row of `sends` that it came from, -1 for none."""
    return _sends_of(rows, "reads")


def sends_of_logs(rows: "PartitionRows") -> Array:
    """Return for each row of `logs` the row of `sends` that it came from, -1 for none."""
    return _sends_of(rows, "logs")


def _sends_of(rows: "PartitionRows", table: str) -> Array:
    """Nearly every record stands where its acknowledgement says it does: only the others are searched by value."""
    sends, there = rows.columns("sends"), rows.columns(table)
    values = there["value"]
    found = np.full(values.size, UNKNOWN, np.int64)
    placed = np.flatnonzero(sends["log_offset"] != UNKNOWN)
    offsets = sends["log_offset"][placed]
    first, end = (int(offsets.min()), int(offsets.max()) + 1) if placed.size else (0, 0)
    if 0 < end - first <= 4 * placed.size + 1024:
        at = np.zeros(end - first, np.int64)
        at[offsets - first] = placed
        guess = at[np.clip(there["log_offset"] - first, 0, at.size - 1)]
        np.copyto(found, guess, where=sends["value"][guess] == values)
    rest = np.flatnonzero((found == UNKNOWN) & (values != UNKNOWN))
    if rest.size:
        found[rest] = rows.derived(sends_by_value).rows(values[rest])
    return found


NOTHING: Final = ANOMALY.empty_table()


def nothing() -> pa.Table:
    """No anomaly rows."""
    return NOTHING


def table_of(rows: Iterable[Anomaly]) -> pa.Table:
    """Return anomalies as a table."""
    return pa.Table.from_pylist([msgspec.structs.asdict(row) for row in rows], schema=ANOMALY)


def rows_of(anomalies: pa.Table) -> list[Anomaly]:
    """Return a table's anomalies."""
    return msgspec.convert(anomalies.to_pylist(), list[Anomaly])


PROPERTIES: Final = plugins.Seam(
    sort="property",
    attributes=("PROPERTY",),
    package="tribunal.checkers.properties",
    group="tribunal.properties",
    folder="checkers",
)


def properties() -> dict[str, Property]:
    """Return all properties by name: what is exported as PROPERTY; `BadPlugin` when one of a user's cannot be used."""
    found = plugins.of_type(PROPERTIES, Property).values()
    return {
        one.name: msgspec.structs.replace(one.value, name=one.name, about=one.document)
        for one in sorted(found, key=lambda one: one.name)
    }
