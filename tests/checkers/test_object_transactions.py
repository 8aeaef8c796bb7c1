"""Transactions on lists and registers, judged from the table `operations`: each history beside its nearest neighbour that is wrong."""

import pytest

from tribunal.checkers.api import PartitionRows, rows_of
from tribunal.checkers.judge.timeline import History
from tribunal.checkers.properties import object_transactions
from tribunal.results.manifest import PROMISED
from tribunal.results.recording import TABLES, DamagedRecording
from tribunal.results.rows import ObjectCall, table_of

FACTS = ("metadata", "nodes", "faults", "admin")
LISTS, REGISTERS = "txn-lists", "txn-registers"
Answered = tuple[str, str | None, int, int | None, str]


def judged(model: str | None, function: str, *answered: Answered) -> list[str]:
    """Return the kinds found in transactions, each of a process of its own: argument, result, begin, end, outcome."""
    calls = [
        ObjectCall(
            process=process, function=function, key="a b", argument=argument, result=result,
            invoke_ns=invoke_ns, complete_ns=complete_ns, outcome=outcome,
        )
        for process, (argument, result, invoke_ns, complete_ns, outcome) in enumerate(answered)
    ]  # fmt: skip
    settings = None if model is None else {f"{PROMISED}consistency": model}
    history = History(*(TABLES[name].arrow.empty_table() for name in FACTS), settings=settings)
    found = object_transactions.kernel(PartitionRows({"operations": table_of(ObjectCall, calls)}), history)
    return sorted(one.kind for one in rows_of(found.anomalies))


def ok(argument: str, result: str, begin: int, end: int) -> Answered:
    """Return a transaction that was acknowledged."""
    return argument, result, begin, end, "ok"


# Two that overlap: each reads what the other one changes, and sees it unchanged.
SKEW = (
    ok('[["r","a",null],["append","b",1]]', '[["r","a",null],["append","b",1]]', 10, 30),
    ok('[["r","b",null],["append","a",2]]', '[["r","b",null],["append","a",2]]', 20, 40),
)
LAST = (ok('[["r","a",null]]', '[["r","a",[2]]]', 50, 60), ok('[["r","b",null]]', '[["r","b",[1]]]', 50, 60))
OF_REGISTERS = (
    ok('[["r","a",null],["w","b",1]]', '[["r","a",null],["w","b",1]]', 10, 30),
    ok('[["r","b",null],["w","a",2]]', '[["r","b",null],["w","a",2]]', 20, 40),
    ok('[["r","a",null]]', '[["r","a",2]]', 50, 60),
    ok('[["r","b",null]]', '[["r","b",1]]', 50, 60),
)


@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        pytest.param("serializable", ["G2-item"], id="serializable"),
        pytest.param("snapshot-isolation", [], id="snapshot isolation permits it"),
        pytest.param("read-committed", [], id="so does what is weaker"),
        pytest.param(None, ["G2-item"], id="where nobody said, the strictest"),
    ],
)
@pytest.mark.parametrize(
    ("function", "answered"), [pytest.param(LISTS, (*SKEW, *LAST), id="lists"), pytest.param(REGISTERS, OF_REGISTERS, id="registers")]
)  # fmt: skip
def test_write_skew_is_what_the_promised_consistency_makes_of_it(
    model: str | None, kinds: list[str], function: str, answered: tuple[Answered, ...]
) -> None:
    """The same calls, by what the system's file promises."""
    assert judged(model, function, *answered) == kinds


def test_without_the_overlapping_read_there_is_no_skew() -> None:
    """Who sees the other one's change comes behind it."""
    seen = ok('[["r","b",null],["append","a",2]]', '[["r","b",[1]],["append","a",2]]', 20, 40)

    assert judged("serializable", LISTS, SKEW[0], seen, *LAST) == []


APPEND = ok('[["append","a",5]]', '[["append","a",5]]', 10, 20)
WRITE = ok('[["w","a",5]]', '[["w","a",5]]', 10, 20)
READ = '[["r","a",null]]'


@pytest.mark.parametrize(
    ("answered", "kinds"),
    [
        pytest.param([APPEND, ok(READ, '[["r","a",[5]]]', 30, 40)], [], id="what was appended is there"),
        pytest.param([APPEND, ok(READ, READ, 30, 40)], ["element_lost"], id="it is missing"),
        pytest.param([(*APPEND[:1], None, 10, 20, "info"), ok(READ, READ, 30, 40)], [], id="in doubt"),
        pytest.param([(*APPEND[:1], None, 10, None, "info"), ok(READ, '[["r","a",[5]]]', 30, 40)], [], id="and there"),
        pytest.param(
            [(*APPEND[:1], None, 10, 20, "fail"), ok(READ, '[["r","a",[5]]]', 30, 40)], ["G1a"], id="failed and there"
        ),
        pytest.param([ok(READ, '[["r","a",[6]]]', 30, 40)], ["phantom"], id="nobody appended it"),
        pytest.param([APPEND], ["unread"], id="nobody reads"),
        pytest.param([APPEND, ok(READ, READ, 15, 40)], ["unread"], id="read beside it"),
        pytest.param([APPEND, (READ, None, 30, 40, "info")], ["unread"], id="nobody knows what the read saw"),
        pytest.param(
            [ok('[["append","a",5],["r","a",null]]', '[["append","a",5],["r","a",[]]]', 10, 20), ok(READ, '[["r","a",[5]]]', 30, 40)],
            ["internal"],
            id="its own append is not seen",
        ),
    ],
)  # fmt: skip
def test_a_list(answered: list[Answered], kinds: list[str]) -> None:
    """What was acknowledged stands in the last read, and nothing else does but what may have been appended."""
    assert judged("serializable", LISTS, *answered) == kinds


@pytest.mark.parametrize(
    ("model", "answered", "kinds"),
    [
        pytest.param("serializable", [WRITE, ok(READ, '[["r","a",5]]', 30, 40)], [], id="what was written is read"),
        pytest.param("serializable", [WRITE, ok(READ, READ, 30, 40)], [], id="without real time an old read is fine"),
        pytest.param(
            "strict-serializable", [WRITE, ok(READ, READ, 30, 40)], ["cyclic-versions"], id="with it the write is lost"
        ),
        pytest.param("serializable", [WRITE, ok(READ, '[["r","a",6]]', 30, 40)], ["phantom"], id="nobody wrote it"),
        pytest.param("serializable", [WRITE], ["unread"], id="nobody reads"),
    ],
)
def test_a_register(model: str, answered: list[Answered], kinds: list[str]) -> None:
    """A version's order follows from real time where the model has it."""
    assert judged(model, REGISTERS, *answered) == kinds


TWICE = '[["w","a",5],["w","a",6],["w","a",5]]'
MIDDLE = '[["w","a",5],["w","a",6]]'
APPENDED_TWICE = '[["append","a",5],["append","a",6],["append","a",5]]'


@pytest.mark.parametrize(
    ("function", "answered", "kinds"),
    [
        pytest.param(REGISTERS, [ok(TWICE, TWICE, 10, 20), ok(READ, '[["r","a",5]]', 30, 40)], ["ambiguous"], id="in one transaction"),
        pytest.param(REGISTERS, [WRITE, (WRITE[0], None, 30, 40, "fail"), ok(READ, '[["r","a",5]]', 50, 60)], ["ambiguous"], id="in two"),
        pytest.param(
            REGISTERS,
            [ok(MIDDLE, MIDDLE, 10, 20), ok(READ, '[["r","a",5]]', 30, 40)],
            ["G1b"],
            id="once, and not the last",
        ),
        pytest.param(
            REGISTERS,
            [ok(TWICE, TWICE, 10, 20), ok('[["r","a",null],["r","b",null]]', '[["r","a",5],["r","b",7]]', 30, 40)],
            ["ambiguous", "phantom"],
            id="another register is judged all the same",
        ),
        pytest.param(
            LISTS,
            [ok(APPENDED_TWICE, APPENDED_TWICE, 10, 20), ok(READ, '[["r","a",[5,6,5]]]', 30, 40)],
            ["ambiguous"],
            id="appended twice",
        ),
        pytest.param(LISTS, [APPEND, APPEND, ok(READ, READ, 30, 40)], ["ambiguous", "element_lost", "element_lost"], id="and lost"),
        pytest.param(
            LISTS,
            [APPEND, ok(READ, '[["r","a",[5,5]]]', 30, 40)],
            ["duplicate-elements"],
            id="appended once, and there twice",
        ),
    ],
)  # fmt: skip
def test_what_was_written_twice_says_nothing_of_its_object(
    function: str, answered: list[Answered], kinds: list[str]
) -> None:
    """Nobody knows which of the two writes a read saw; ours never do that, a workload of one's own may."""
    assert judged("strict-serializable", function, *answered) == kinds


@pytest.mark.parametrize(
    ("function", "argument", "result", "words"),
    [
        pytest.param(LISTS, READ, '[["r","b",[5]]]', 'step 1 is ["r","a",null], answered as', id="another list"),
        pytest.param(LISTS, READ, "[]", "0 steps answer 1", id="fewer steps"),
        pytest.param(LISTS, READ, '[["r","a",5]]', "txn-lists cannot read", id="a list is no number"),
        pytest.param(REGISTERS, READ, '[["r","a",[5]]]', "txn-registers cannot read", id="a register is no list"),
        pytest.param(REGISTERS, APPEND[0], APPEND[0], "txn-registers has no append", id="registers have no end"),
        pytest.param(LISTS, READ, None, "truncated", id="no answer"),
        pytest.param(LISTS, '[["r","a"]]', READ, "length", id="half a step"),
    ],
)
def test_a_transaction_that_is_none_is_damage(function: str, argument: str, result: str | None, words: str) -> None:
    """Nothing is judged by what it might have meant."""
    with pytest.raises(DamagedRecording, match=r"operations, row 1: txn-") as caught:
        judged("serializable", function, (READ, READ, 1, 2, "ok"), (argument, result, 10, 20, "ok"))

    assert words in str(caught.value)


def test_the_words_say_what_the_transactions_did() -> None:
    """Whoever reads the verdict needs no second look at the recording."""
    calls = [
        ObjectCall(process=7, function=LISTS, key="a", argument=READ, result='[["r","a",[6]]]', invoke_ns=30, complete_ns=40_000_000, outcome="ok")
    ]  # fmt: skip
    history = History(*(TABLES[name].arrow.empty_table() for name in FACTS), settings=None)

    found = object_transactions.kernel(PartitionRows({"operations": table_of(ObjectCall, calls)}), history)

    (one,) = rows_of(found.anomalies)
    assert (one.process, one.at_ns) == (7, 40_000_000)
    assert 'T0 of process 7, 0.000 s to 0.040 s: [["r","a",[6]]]' in (one.detail or "")


@pytest.mark.parametrize(
    ("function", "answered"),
    [
        pytest.param(
            LISTS,
            ok('[["r","a",null],["append","a",5]]', '[["r","a",[5]],["append","a",5]]', 10, 20),
            id="lists",
        ),
        pytest.param(
            REGISTERS, ok('[["r","a",null],["w","a",5]]', '[["r","a",5],["w","a",5]]', 10, 20), id="registers"
        ),
    ],
)
@pytest.mark.parametrize(
    ("model", "kinds"),
    [("serializable", ["future-read"]), ("read-committed", ["future-read"]), ("read-uncommitted", [])],
)
def test_a_transaction_reads_nothing_that_it_writes_itself_only_later(
    model: str, kinds: list[str], function: str, answered: Answered
) -> None:
    """As a system that answers reads when all writes of a transaction are made."""
    seen = "[5]" if function == LISTS else "5"

    assert judged(model, function, answered, ok(READ, f'[["r","a",{seen}]]', 30, 40)) == kinds


@pytest.mark.parametrize(
    ("function", "answered"),
    [
        pytest.param(
            LISTS,
            ok(
                '[["r","a",null],["append","a",5],["r","a",null],["append","a",6]]',
                '[["r","a",null],["append","a",5],["r","a",[5]],["append","a",6]]', 10, 20,
            ),
            id="lists",
        ),
        pytest.param(
            REGISTERS,
            ok(
                '[["r","a",null],["w","a",5],["r","a",null],["w","a",6]]',
                '[["r","a",null],["w","a",5],["r","a",5],["w","a",6]]', 10, 20,
            ),
            id="registers",
        ),
    ],
)  # fmt: skip
def test_what_it_has_written_itself_it_may_read(function: str, answered: Answered) -> None:
    seen = "[5,6]" if function == LISTS else "6"

    assert judged("serializable", function, answered, ok(READ, f'[["r","a",{seen}]]', 30, 40)) == []
