"""Registers and sets, judged from the table `operations`: each history beside its nearest neighbour that is wrong."""

from collections.abc import Callable

import msgspec
import pytest

from tribunal.checkers.api import Found, PartitionRows, rows_of
from tribunal.checkers.judge.timeline import History
from tribunal.checkers.properties import counters, locks, queues, registers, sets, streams
from tribunal.results.recording import TABLES, DamagedRecording
from tribunal.results.rows import ObjectCall, table_of

WRITE = ("write", "5", None, 10, 20, "ok")
READ = ("read", None, "5", 30, 40, "ok")
ADD = ("add", "5", None, 10, 20, "ok")
READ_ALL = ("read-all", None, "[5]", 30, 40, "ok")
FACTS = ("metadata", "nodes", "faults", "admin")
NOBODY = History(*(TABLES[name].arrow.empty_table() for name in FACTS), settings=None)
Answered = tuple[str, str | None, str | None, int, int | None, str]


def rows(*answered: Answered) -> PartitionRows:
    """Return calls, each of a process of its own: function, argument, result, begin, end, outcome."""
    calls = [
        ObjectCall(
            process=process, function=function, key="a", argument=argument, result=result,
            invoke_ns=invoke_ns, complete_ns=complete_ns, outcome=outcome,
        )
        for process, (function, argument, result, invoke_ns, complete_ns, outcome) in enumerate(answered)
    ]  # fmt: skip
    return PartitionRows({"operations": table_of(ObjectCall, calls)})


@pytest.mark.parametrize(
    ("answered", "kinds"),
    [
        pytest.param([WRITE, READ], [], id="what was written is read"),
        pytest.param([WRITE, ("read", None, None, 30, 40, "ok")], ["not_linearizable"], id="nothing is read after it"),
        pytest.param([WRITE, ("read", None, None, 15, 40, "ok"), READ], [], id="nothing is read beside it"),
        pytest.param([WRITE, ("read", None, None, 20, 40, "ok"), READ], [], id="at the same instant is beside it"),
        pytest.param([("write", "5", None, 10, 20, "fail"), READ], ["not_linearizable"], id="a failed write is read"),
        pytest.param([("write", "5", None, 10, 20, "info"), READ], [], id="a write in doubt is read"),
        pytest.param([("write", "5", None, 10, None, "info"), READ], [], id="one that nobody saw the end of, too"),
        pytest.param([WRITE, ("cas", "[5,6]", None, 22, 25, "ok"), ("read", None, "6", 30, 40, "ok")], [], id="cas"),
        pytest.param(
            [WRITE, ("cas", "[4,6]", None, 22, 25, "ok"), ("read", None, "6", 30, 40, "ok")],
            ["not_linearizable"],
            id="cas of another value",
        ),
        pytest.param([WRITE], ["unread"], id="nobody reads"),
        pytest.param([READ, ("write", "5", None, 10, 35, "ok")], ["unread"], id="nobody reads afterwards"),
    ],
)
def test_a_register(answered: list[Answered], kinds: list[str]) -> None:
    """What one register explains is fine; the last acknowledged write has to be read."""
    found = registers.kernel(rows(*answered), NOBODY)

    assert [one.kind for one in rows_of(found.anomalies)] == kinds


@pytest.mark.parametrize(
    ("answered", "kinds"),
    [
        pytest.param([ADD, READ_ALL], [], id="what was added is there"),
        pytest.param([ADD, ("read-all", None, "[]", 30, 40, "ok")], ["element_lost"], id="it is missing"),
        pytest.param(
            [ADD, ("add", "5", None, 21, 25, "fail"), ("read-all", None, "[]", 30, 40, "ok")],
            ["element_lost"],
            id="it is missing, and was added once more in vain",
        ),
        pytest.param([("add", "5", None, 10, 20, "info"), ("read-all", None, "[]", 30, 40, "ok")], [], id="in doubt"),
        pytest.param([ADD, ("read-all", None, "[5,6]", 30, 40, "ok")], ["element_unknown"], id="nobody added it"),
        pytest.param([ADD, ("read-all", None, "[5]", 15, 40, "ok")], ["unread"], id="read beside it"),
        pytest.param([("read-all", None, "[5]", 5, 9, "ok"), ADD, READ_ALL], ["element_unknown"], id="read before it"),
        pytest.param(
            [("add", "5", None, 1, 4, "info"), ("read-all", None, "[5]", 5, 9, "ok"), ADD, READ_ALL],
            [],
            id="read before it, behind another addition of it",
        ),
        pytest.param([ADD, ("read-all", None, None, 30, 40, "fail")], ["unread"], id="the read fails"),
        pytest.param([("add", "5", None, 10, 20, "fail"), READ_ALL], ["element_unknown"], id="refused, and there"),
        pytest.param([("add", "5", None, 10, 20, "info"), READ_ALL], [], id="in doubt, and there"),
        pytest.param(
            [("add", "5", None, 10, 20, "info"), READ_ALL, ("read-all", None, "[]", 50, 60, "ok")],
            ["element_lost"],
            id="in doubt, there, and gone",
        ),
        pytest.param(
            [("add", "5", None, 10, 20, "info"), READ_ALL, ("read-all", None, "[]", 31, 60, "ok")],
            [],
            id="in doubt, and there for who read beside the last one",
        ),
        pytest.param(
            [ADD, ("read-all", None, "[5,6]", 30, 40, "ok"), ("read-all", None, "[5]", 50, 60, "ok")],
            ["element_unknown"],
            id="nobody added it, and the last read lacks it",
        ),
        pytest.param(
            [ADD, ("add", "7", None, 31, 50, "ok"), ("read-all", None, "[]", 30, 40, "ok")],
            ["unread", "element_lost"],
            id="another addition beside the read hides no loss",
        ),
        pytest.param([ADD, ("add", "7", None, 31, 50, "ok"), READ_ALL], ["unread"], id="nor is that one itself judged"),
    ],
)
def test_a_set(answered: list[Answered], kinds: list[str]) -> None:
    """What was acknowledged stands in the last read, and nothing else does but what may have been added."""
    found = sets.kernel(rows(*answered), NOBODY)

    assert [one.kind for one in rows_of(found.anomalies)] == kinds


def test_the_words_name_the_call_and_the_write_before_it() -> None:
    """Whoever reads the verdict opens the recording there."""
    found = registers.kernel(rows(WRITE, ("read", None, None, 30, 40_000_000, "ok")), NOBODY)

    (one,) = rows_of(found.anomalies)
    assert msgspec.structs.asdict(one) | {
        "process": 1,
        "at_ns": 40_000_000,
        "detail": "register a: read of process 1 at 0.040 s returned nothing; acknowledged last before it: "
        "write 5 of process 0 at 0.000 s",
    } == msgspec.structs.asdict(one)


@pytest.mark.parametrize(
    ("kernel", "function", "result"),
    [
        pytest.param(registers.kernel, "read", "[5]", id="a list for a register's value"),
        pytest.param(sets.kernel, "read-all", "5", id="a number for a set"),
        pytest.param(sets.kernel, "read-all", "[5,null]", id="nothing in a set"),
    ],
)
def test_an_answer_that_no_such_object_gives_is_damage_and_no_violation(
    kernel: Callable[[PartitionRows, History], Found], function: str, result: str
) -> None:
    with pytest.raises(DamagedRecording, match=f"operations.*{function}"):
        kernel(rows((function, None, result, 30, 40, "ok")), NOBODY)


@pytest.mark.parametrize(
    ("kernel", "function", "argument"),
    [
        pytest.param(sets.kernel, "add", '"x"', id="a text"),
        pytest.param(sets.kernel, "add", "[5]", id="a list"),
        pytest.param(sets.kernel, "add", None, id="nothing"),
        pytest.param(sets.kernel, "add", "{", id="no JSON"),
        pytest.param(sets.kernel, "add", "9223372036854775808", id="more than 64 bits"),
        pytest.param(registers.kernel, "write", "[5]", id="a list for a register"),
        pytest.param(registers.kernel, "cas", "5", id="one value of two"),
        pytest.param(counters.kernel, "increment", "[5]", id="a list for a counter"),
        pytest.param(locks.kernel, "acquire", None, id="nobody"),
        pytest.param(queues.kernel, "enqueue", None, id="nothing for a queue"),
        pytest.param(streams.kernel, "publish", None, id="nothing for a stream"),
        pytest.param(streams.kernel, "read-stream", '"x"', id="a text for an offset"),
    ],
)
def test_a_call_that_no_workload_makes_is_damage_and_neither_a_violation_nor_a_bug(
    kernel: Callable[[PartitionRows, History], Found], function: str, argument: str | None
) -> None:
    """Whoever sends an archive may have written anything there."""
    with pytest.raises(DamagedRecording, match=f"operations, row 0: {function}"):
        kernel(rows((function, argument, None, 30, 40, "ok")), NOBODY)


def test_a_set_that_is_null_is_empty() -> None:
    """So Go writes a slice that nobody filled."""
    found = sets.kernel(rows(("add", "5", None, 10, 20, "ok"), ("read-all", None, "null", 30, 40, "ok")), NOBODY)

    assert [one.kind for one in rows_of(found.anomalies)] == ["element_lost"]


def test_the_words_name_the_node_that_answered() -> None:
    """Where the client says it: a reader had to guess whose state that was."""
    written, read = (
        ObjectCall(
            process=node, function=function, key="a", argument=argument, invoke_ns=node * 20, complete_ns=node * 20 + 9, outcome="ok",
            answered_by=node,
        )
        for node, (function, argument) in enumerate((("write", "5"), ("read", None)), 1)
    )  # fmt: skip
    found = registers.kernel(PartitionRows({"operations": table_of(ObjectCall, [written, read])}), NOBODY)

    (one,) = rows_of(found.anomalies)
    assert "read of process 2 (node 2) at" in str(one.detail)
    assert "write 5 of process 1 (node 1) at" in str(one.detail)
