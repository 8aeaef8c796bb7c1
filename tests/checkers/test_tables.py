"""What judging takes and answers, as Spark carries it: work items in bytes, tables in Arrow; nothing is lost on the way."""

import msgspec
import pyarrow as pa
import pytest
from msgspec import inspect

from tribunal.checkers.graphs.circles import Reported, Stretch
from tribunal.checkers.graphs.findings import Contradiction, OfPart, Witness
from tribunal.checkers.judge.dealt_transactions import Part as PartOfLists
from tribunal.checkers.judge.fenced import Producer
from tribunal.checkers.judge.files import Window
from tribunal.checkers.judge.hot_partitions import Component, Group, Known, Range, Sieved
from tribunal.checkers.judge.items import (
    Beside,
    Circles,
    Files,
    FollowAgain,
    ImportedHistory,
    Lists,
    Messages,
    Offsets,
    Producers,
    Rest,
    Sent,
    SieveRange,
    Suspects,
    Transactions,
    WholePartition,
    WholeRun,
    WorkItem,
)
from tribunal.checkers.judge.offsets_in_groups import Extent
from tribunal.checkers.judge.tables import (
    NOT_JUDGED,
    SCHEMA,
    TYPES,
    Damage,
    Failed,
    Figures,
    FoundIn,
    ListsSeen,
    MessagesSeen,
    OffsetsSeen,
    Permitted,
    Place,
    ProducersSeen,
    SievedRange,
    StretchSeen,
    Summary,
    Tables,
    arrow_batch,
    read_row,
)
from tribunal.checkers.judge.tails import Followed, Part, Tails, Turn
from tribunal.checkers.properties.bank import Figures as BankFigures
from tribunal.results.verdict import Detail, EdgeKind, Finding, GuiltyElection, TransactionEdge

PLACE = Place("run", "t", 0)
ELECTION = GuiltyElection(leader=2, how="unclean", leader_epoch=3, at_ns=4)
EDGES = (TransactionEdge(source=1, target=2, kind=EdgeKind.WW), TransactionEdge(source=2, target=1, kind=EdgeKind.RW))
LOST = Finding(
    property_name="lost_writes", kind="lost", severity="permitted", explanation="words", topic="t", partition=0,
    log_offset=0, value=7, acks=0, rule="R4", count=3, detail=Detail(promise="none", election=ELECTION, was_at=0),
)  # fmt: skip
CIRCLE = Finding(
    property_name="transactions", kind="G1c", severity="violation", explanation="words",
    detail=Detail(detail="T1", edges=EDGES, rules_out=("serializable",)),
)  # fmt: skip
SIEVED = Sieved(range=Range(0, 8), clean=True, values={1: (2, 3)}, sent_elsewhere=[4], figures={"records read": 5})
PART = Part(first_call=1 << 40, first=0, last_call=1 + (1 << 40), last=7, position=-1)
TAIL = Followed(clean=True, whole=False, received=8, first=0, last=7, parts={2: PART}, waits=[1])
WITNESS = Witness((1, 2), "words", EDGES, (2, "t", 0, 7))
CONTRADICTION = Contradiction("t-0", 8, (1, 2), (1,), "words")
REPORTED = Reported((b"PAR1", b""), (b"\x00" * 16,), b"", b"\x07" + b"\x00" * 7)
ROWS = [
    pytest.param(FoundIn("run", LOST), id="a loss"),
    pytest.param(FoundIn("run", CIRCLE), id="a circle"),
    pytest.param(Permitted(PLACE, "lost_writes", b"PAR1\x00PAR1"), id="all that is permitted"),
    pytest.param(Figures(PLACE, "lost_writes", {"records read": 0}), id="figures"),
    pytest.param(Figures(Place("run"), "bank", {}), id="no figures of a run"),
    pytest.param(Summary(PLACE, "bank", b"\x81\x00\xff"), id="a summary"),
    pytest.param(SievedRange(PLACE, SIEVED), id="the sieve"),
    pytest.param(SievedRange(PLACE, msgspec.structs.replace(SIEVED, tail=TAIL)), id="the sieve, with tail readers"),
    pytest.param(ListsSeen(Place("run"), 4, REPORTED), id="lists that are sound"),
    pytest.param(ListsSeen(Place("run"), 4), id="lists that are not"),
    pytest.param(MessagesSeen(Place("run"), 4, b"\x81", again=True), id="messages"),
    pytest.param(MessagesSeen(Place("run"), 4), id="messages of which nobody could say anything"),
    pytest.param(ProducersSeen(Place("run"), 1, [Producer("w", 7, 100, 200, 0, 3, goes_back=True)]), id="producers"),
    pytest.param(ProducersSeen(Place("run"), 1, []), id="no producers"),
    pytest.param(ProducersSeen(Place("run"), 1), id="producers of which nobody could say anything"),
    pytest.param(OffsetsSeen(Place("run"), 1, b"\x90"), id="offsets of transactions"),
    pytest.param(OffsetsSeen(Place("run"), 1), id="offsets of which nobody could say anything"),
    pytest.param(StretchSeen(Place("run"), -1 << 62, has_circle=False), id="a stretch of time"),
    pytest.param(Damage(PLACE, "sends", "row 1"), id="a damage"),
    pytest.param(Failed(Place("run"), "bank", "KeyError: 1"), id="a failure"),
]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_the_same_after_its_way_through_arrow(row):
    batch = arrow_batch([row])
    (carried,) = as_spark_returns_them(batch)

    assert batch.schema == SCHEMA
    assert read_row(carried) == row


def as_spark_returns_them(batch):
    """Maps are dictionaries there, and lists of pairs in pyarrow."""
    return [{name: spelt(value, SCHEMA.field(name).type) for name, value in row.items()} for row in batch.to_pylist()]


def spelt(value, kind):
    if value is None:
        return None
    if pa.types.is_binary(kind):
        return bytearray(value)
    if pa.types.is_map(kind):
        return dict(value)
    if pa.types.is_struct(kind):
        return {field.name: spelt(value[field.name], field.type) for field in kind}
    return value


def test_tables_keep_apart_what_is_not_the_same():
    tables = Tables()
    tables.add(param.values[0] for param in ROWS)

    tables.sort()

    assert [row.finding.kind for row in tables.findings] == ["lost", "G1c"]
    assert tables.counts == {"records read": 0}
    assert [len(one) for one in (tables.summaries, tables.sieved, tables.damages, tables.failures)] == [1, 2, 1, 1]
    assert Tables().findings == []


def test_tables_of_many_runs_are_taken_apart_by_run():
    tables = Tables(folded={"run": {"bank": BankFigures(records=2, amount=0)}})
    tables.add(param.values[0] for param in ROWS)

    apart = tables.by_run(["run", "another"])

    assert apart == {"run": tables, "another": Tables(folded={"another": {}})}
    with pytest.raises(KeyError):  # nobody's rows are passed over
        tables.by_run(["another"])


@pytest.mark.parametrize(
    "item",
    [
        WholeRun("run"),
        WholeRun("run", files_apart=True),
        Files("run", "sends", ("a", "b")),
        Sent("run", Window(("a", "b"), {1: (0, 8), 70_000: (3, 4)})),
        WholeRun("run", transactions_apart=True),
        Lists("run", PartOfLists(0, 4, (Group("a", 0, 0, 7, 0, 8),)), ((3, 5), (9, 10))),
        Lists("run", PartOfLists(0, 1, (), (Extent("t", 0, -1 << 62, 8, are_sent=True),)), ()),
        Offsets("run", 1, (Group("a", 0, 0, 7, 0, 8),)),
        Circles("run", (Group("a", 1, 8, 15, 0, 8),), Stretch(-1 << 62, 4, (b"PAR1",))),
        Producers("run", 1, (Group("a", 0, 0, 7, 0, 8),)),
        Transactions("run"),
        Beside("run", 8, (("w", 7),), (OfPart({"G1a": 2}, {"G1a": [WITNESS]}, [CONTRADICTION]),)),
        Messages("run", PartOfLists(0, 4, (Group("a", 0, 0, 7, 0, 8),)), b"\x07" + b"\x00" * 7),
        ImportedHistory("run"),
        WholePartition("run", "t#1-0"),
        SieveRange("run", "t-0", Range(0, 8), Known((1,), (1, 2), ()), {"sends": (Group("a", 0, 0, 7, 0, 8),)}),
        SieveRange(
            "run", "t-0", Range(0, 8), Known((), (), (), tails=Tails((90,), (Turn(0, 4, 9, -1, 2, 8),), ((3, 8),))), {}
        ),
        Rest("run", "t-0"),
        Rest("run", "t-0", tails_apart=True),
        FollowAgain("run", "t-0", (Component((Range(0, 8),)),), whole=True),
        Suspects(
            "run", "t-0", (Component((Range(0, 8), Range(8, 16)), (1 << 40,)), Component((), (7,))), {1: 4, 70_000: 0}
        ),
    ],
    ids=lambda item: type(item).__name__,
)
def test_a_work_item_is_the_same_after_its_way_through_bytes(item):
    assert msgspec.msgpack.decode(msgspec.msgpack.encode([item]), type=list[WorkItem]) == [item]


def nullable_without_default(kind: inspect.Type, place: str) -> list[str]:
    """Return the fields below a type that may be null and have no default."""
    found: list[str] = []
    if isinstance(kind, inspect.StructType):
        for field in (one for one in kind.fields if one.name not in NOT_JUDGED):
            there = f"{place}.{field.name}"
            may_be_null = isinstance(field.type, inspect.UnionType) and field.type.includes_none
            found += [there] if may_be_null and field.required else []
            found += nullable_without_default(field.type, there)
    for part in (getattr(kind, name, None) for name in ("item_type", "value_type")):
        found += nullable_without_default(part, place) if part is not None else []
    for part in getattr(kind, "types", ()):
        found += nullable_without_default(part, place)
    return found


@pytest.mark.parametrize("name", TYPES)
def test_what_may_be_null_in_an_answer_has_a_default(name: str) -> None:
    """A null is not carried: a file seen without a manifest beside it could not be read on the other side."""
    assert nullable_without_default(inspect.type_info(TYPES[name]), name) == []
