"""What judging answers: a table for each thing that is not the same, for every engine.

A work item answers values of these types, in any order. Spark carries them in one stage as rows with a column a table, of which one is
set: `arrow_batch` and `read_row` are the way there and back, and the Arrow schema is made from the types themselves.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, assert_never

import msgspec
import pyarrow as pa
from msgspec import inspect

from tribunal.checkers.graphs.circles import Reported
from tribunal.checkers.judge.fenced import Producer
from tribunal.checkers.judge.files import FileSeen
from tribunal.checkers.judge.hot_partitions import Sieved, added
from tribunal.results.recording import NO_PARTITION
from tribunal.results.store import partition_order
from tribunal.results.verdict import Finding


class Place(msgspec.Struct, frozen=True):
    """What a row is about: a run, or one partition of it."""

    run_dir: str
    topic: str | None = None
    partition: int | None = None


def place_of(run_dir: str, topic_partition: str) -> Place:
    """Return the place of a partition, or of the run where there is none."""
    return Place(run_dir) if topic_partition == NO_PARTITION else Place(run_dir, *partition_order(topic_partition))


class FoundIn(msgspec.Struct, frozen=True):
    """A finding (severity violation, permitted, note) or a partition that could not be judged (unjudged)."""

    run_dir: str
    finding: Finding


class Figures(msgspec.Struct, frozen=True):
    """What a property counted; counts are added up over partitions."""

    place: Place
    property_name: str
    counts: dict[str, int]


class Summary(msgspec.Struct, frozen=True):
    """What a property's fold needs of a partition: a value of the property's own type, encoded until the fold reads it."""

    place: Place
    property_name: str
    content: bytes


class Permitted(msgspec.Struct, frozen=True):
    """All anomalies of a property in a place that a rule permits, with what permits each: the bytes of a Parquet file."""

    place: Place
    property_name: str
    rows: bytes


class SievedRange(msgspec.Struct, frozen=True):
    """What the sieve says of one range of a hot partition."""

    place: Place
    sieved: Sieved


class ListsSeen(msgspec.Struct, frozen=True):
    """What some lists of a run's transactions say of circles, if they say anything; those with the partitions' numbers from `first` on."""

    place: Place
    first: int
    reported: Reported | None = None


class MessagesSeen(msgspec.Struct, frozen=True):
    """What the messages say in some partitions, those with the numbers from `first` on, if they say anything.

    messages:  a value of `dealt_transactions.Messages`, encoded until it is looked at.
    again:     it is said for the second time, and counts.
    """

    place: Place
    first: int
    messages: bytes | None = None
    again: bool = False


class ProducersSeen(msgspec.Struct, frozen=True):
    """Who made some of a run's transactions, of the item with this number; None: nobody could say it."""

    place: Place
    first: int
    producers: list[Producer] | None = None


class OffsetsSeen(msgspec.Struct, frozen=True):
    """Which offsets of which partitions some of a run's transactions have, those of the item with this number.

    groups:  a list of `offsets_in_groups.OffsetsIn`, encoded until it is looked at; None: nobody could say it.
    """

    place: Place
    first: int
    groups: bytes | None = None


class StretchSeen(msgspec.Struct, frozen=True):
    """Whether a run's transactions depend on each other in a circle, in a stretch from some point in time on."""

    place: Place
    from_ns: int
    has_circle: bool


class Damage(msgspec.Struct, frozen=True):
    """A recording's table that contradicts itself, or cannot be read."""

    place: Place
    table: str
    words: str


class Failed(msgspec.Struct, frozen=True):
    """A property whose checker failed."""

    place: Place
    property_name: str
    words: str


OfTransactions = ListsSeen | MessagesSeen | ProducersSeen | OffsetsSeen | StretchSeen
TableRow = (
    FoundIn | Figures | Summary | Permitted | SievedRange | FileSeen | ListsSeen | MessagesSeen | ProducersSeen | OffsetsSeen | StretchSeen | Damage | Failed
)  # fmt: skip


class Tables(msgspec.Struct, kw_only=True):
    """All answers, by table.

    folded:  the folds' figures for the report, by run and property.
    """

    findings: list[FoundIn] = []
    figures: list[Figures] = []
    summaries: list[Summary] = []
    permitted: list[Permitted] = []
    sieved: list[SievedRange] = []
    files: list[FileSeen] = []
    lists: list[ListsSeen] = []
    producers: list[ProducersSeen] = []
    messages: list[MessagesSeen] = []
    stretches: list[StretchSeen] = []
    offsets: list[OffsetsSeen] = []
    damages: list[Damage] = []
    failures: list[Failed] = []
    folded: dict[str, dict[str, msgspec.Struct]] = {}

    def add(self, answers: Iterable[TableRow]) -> None:
        """Put answers where they belong."""
        for answer in answers:
            match answer:
                case FoundIn():
                    self.findings.append(answer)
                case Figures():
                    self.figures.append(answer)
                case Summary():
                    self.summaries.append(answer)
                case Permitted():
                    self.permitted.append(answer)
                case SievedRange():
                    self.sieved.append(answer)
                case FileSeen():
                    self.files.append(answer)
                case ListsSeen() | MessagesSeen() | ProducersSeen() | OffsetsSeen() | StretchSeen():
                    self._add_of_transactions(answer)
                case Damage():
                    self.damages.append(answer)
                case Failed():
                    self.failures.append(answer)
                case _:
                    assert_never(answer)

    def _add_of_transactions(self, answer: OfTransactions) -> None:
        match answer:
            case ListsSeen():
                self.lists.append(answer)
            case MessagesSeen():
                self.messages.append(answer)
            case ProducersSeen():
                self.producers.append(answer)
            case OffsetsSeen():
                self.offsets.append(answer)
            case StretchSeen():
                self.stretches.append(answer)
            case _:
                assert_never(answer)

    def forget_transactions(self, place: Place) -> None:
        """Take away what is known of a run's transactions to judge what is left of them: that is asked for now, or never."""
        self.producers = [row for row in self.producers if row.place != place]
        self.forget_messages(place)

    def forget_messages(self, place: Place) -> None:
        """Take away what its messages say, and how they were dealt out."""
        self.messages = [row for row in self.messages if row.place != place]
        self.offsets = [row for row in self.offsets if row.place != place]

    def sort(self) -> None:
        """Bring rows into an order that does not depend on how an engine happened to schedule them."""
        self.findings.sort(key=_order_of_finding)
        for table in (self.figures, self.summaries, self.permitted, self.failures):
            table.sort(
                key=lambda row: (row.place.run_dir, row.property_name, *_known(row.place.topic, row.place.partition))
            )
        self.damages.sort(key=lambda row: (row.place.run_dir, *_known(row.place.topic, row.place.partition), row.table))
        self.files.sort(key=lambda row: (row.run_dir, row.table, row.path))
        self.lists.sort(key=lambda row: (row.place.run_dir, row.first))
        self.messages.sort(key=lambda row: (row.place.run_dir, row.first, row.again))
        self.offsets.sort(key=lambda row: (row.place.run_dir, row.first))
        self.producers.sort(key=lambda row: (row.place.run_dir, row.first))
        self.stretches.sort(key=lambda row: (row.place.run_dir, row.from_ns))
        self.sieved.sort(
            key=lambda row: (row.place.run_dir, *_known(row.place.topic, row.place.partition), row.sieved.range.first)
        )

    def by_run(self, run_dirs: Iterable[str]) -> "dict[str, Tables]":
        """Return the rows of each of these runs, in one pass over all of them: a night has many runs and each many rows."""
        found = {run_dir: Tables(folded={run_dir: self.folded.get(run_dir, {})}) for run_dir in run_dirs}
        for finding in self.findings:
            found[finding.run_dir].findings.append(finding)
        for figures in self.figures:
            found[figures.place.run_dir].figures.append(figures)
        for summary in self.summaries:
            found[summary.place.run_dir].summaries.append(summary)
        for permitted in self.permitted:
            found[permitted.place.run_dir].permitted.append(permitted)
        for sieved in self.sieved:
            found[sieved.place.run_dir].sieved.append(sieved)
        for file in self.files:
            found[file.run_dir].files.append(file)
        of_transactions: Sequence[OfTransactions]
        of_transactions = [*self.lists, *self.messages, *self.producers, *self.offsets, *self.stretches]
        for seen in of_transactions:
            found[seen.place.run_dir]._add_of_transactions(seen)
        for damage in self.damages:
            found[damage.place.run_dir].damages.append(damage)
        for failed in self.failures:
            found[failed.place.run_dir].failures.append(failed)
        return found

    @property
    def counts(self) -> dict[str, int]:
        """All figures added up."""
        return dict(sorted(added(row.counts for row in self.figures).items()))


Known = tuple[bool, str | int]  # whether a value is known, and the value


def _order_of_finding(row: FoundIn) -> tuple[str | Known, ...]:
    one = row.finding
    detail = (one.detail.detail or "", one.detail.promise or "", str(one.detail.election or ""))
    named = (row.run_dir, one.severity, one.property_name, one.kind)
    return (
        *named, *_known(one.topic, one.partition, one.log_offset, one.value, one.acknowledged_ns, one.detail.was_at, one.node, one.leader_epoch),
        one.explanation, *detail,
    )  # fmt: skip


def _known(*values: str | int | None) -> tuple[Known, ...]:
    """Return values that can be compared; the unknown comes first."""
    return tuple((value is not None, 0 if value is None else value) for value in values)


# Arrow, for Spark


NAMES: Final[dict[type, str]] = {
    FoundIn: "finding", Figures: "figures", Summary: "summary", Permitted: "permitted", SievedRange: "sieved",
    FileSeen: "file", ListsSeen: "lists", MessagesSeen: "messages", ProducersSeen: "producers", OffsetsSeen: "offsets", StretchSeen: "stretch", Damage: "damage", Failed: "failed",
}  # fmt: skip
TYPES: Final[dict[str, type]] = {name: kind for kind, name in NAMES.items()}
NOT_JUDGED: Final = frozenset({"violation"})  # of a finding: a simulation's own


def _arrow(kind: inspect.Type) -> pa.DataType:
    match kind:
        case inspect.StrType() | inspect.EnumType():
            return pa.string()
        case inspect.IntType():
            return pa.int64()
        case inspect.BoolType():
            return pa.bool_()
        case inspect.BytesType():
            return pa.binary()
        case inspect.UnionType(types=types):
            (known,) = (one for one in types if not isinstance(one, inspect.NoneType))
            return _arrow(known)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return pa.list_(_arrow(item))
        case inspect.TupleType(item_types=items):
            return pa.list_(_arrow(items[0]))
        case inspect.DictType(key_type=key, value_type=value):
            return pa.map_(_arrow(key), _arrow(value))
        case inspect.StructType(fields=fields):
            return pa.struct([(one.encode_name, _arrow(one.type)) for one in fields if one.name not in NOT_JUDGED])
        case _:
            raise TypeError(f"no Arrow type for {kind}")


SCHEMA: Final = pa.schema([(name, _arrow(inspect.type_info(kind))) for name, kind in TYPES.items()])


def arrow_batch(answers: Iterable[TableRow]) -> pa.RecordBatch:
    """Return answers as rows of SCHEMA."""
    rows = [{NAMES[type(answer)]: msgspec.to_builtins(answer, builtin_types=(bytes,))} for answer in answers]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


Cell = str | int | bool | bytes | bytearray | list["Cell"] | dict[str, "Cell"] | None


def read_row(row: Mapping[str, Cell]) -> TableRow:
    """Return the answer that a row of SCHEMA holds; what is null was never said."""
    ((name, content),) = ((name, content) for name, content in row.items() if content is not None)
    answer: TableRow = msgspec.convert(_said(content), TYPES[name])
    return answer


def _said(content: Cell) -> Cell:
    if isinstance(content, dict):
        return {name: _said(value) for name, value in content.items() if value is not None}
    if isinstance(content, bytearray):
        return bytes(content)
    return [_said(value) for value in content] if isinstance(content, list) else content
