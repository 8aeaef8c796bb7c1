"""What a system's file permits to be lost (R13), on sets and on lists of transactions: each beside its nearest neighbour that is not permitted."""

import pytest

from tribunal.checkers.api import PartitionRows, rows_of
from tribunal.checkers.judge.promised_losses import RULE
from tribunal.checkers.judge.timeline import History
from tribunal.checkers.properties import object_transactions, sets
from tribunal.results.manifest import LOST_MS, PROMISED
from tribunal.results.recording import TABLES
from tribunal.results.rows import Fault, ObjectCall, table_of

MS = 1_000_000
KILLED = Fault(
    index=0, kind="kill", resolved_target="node 1", planned_ns=1_000 * MS, injected_ns=1_010 * MS, took_effect=True
)
Answered = tuple[str, str | None, str | None, int, int, str]


def history(fault: Fault = KILLED, within_ms: int | None = 500, *, model: str = "serializable") -> History:
    """Return a run in which node 1 was killed at 1 s."""
    facts = [TABLES[name].arrow.empty_table() for name in ("metadata", "nodes")]
    settings: dict[str, str | int] = {f"{PROMISED}consistency": model}
    if within_ms is not None:
        settings[f"{LOST_MS}kill"] = within_ms
    return History(*facts, table_of(Fault, [fault]), TABLES["admin"].arrow.empty_table(), settings=settings)


def rows(*answered: Answered) -> PartitionRows:
    """Return calls, each of a process of its own: function, argument, result, begin and end in ms, outcome."""
    calls = [
        ObjectCall(
            process=process, function=function, key="a", argument=argument, result=result,
            invoke_ns=begin * MS, complete_ns=end * MS, outcome=outcome,
        )
        for process, (function, argument, result, begin, end, outcome) in enumerate(answered)
    ]  # fmt: skip
    return PartitionRows({"operations": table_of(ObjectCall, calls)})


def of_set(answered: list[Answered], of_run: History) -> list[tuple[str, bool]]:
    """Return what is found in a set, and whether it is permitted."""
    found = sets.kernel(rows(*answered), of_run)
    return [(one.kind, number in found.judgements) for number, one in enumerate(rows_of(found.anomalies))]


ADD = ("add", "5", None, 700, 800, "ok")
EMPTY = ("read-all", None, "[]", 2_000, 2_100, "ok")
IN_DOUBT = ("add", "5", None, 400, 1_500, "info")
SLOW = ("add", "5", None, 400, 800, "ok")


@pytest.mark.parametrize(
    ("of_run", "answered", "is_permitted"),
    [
        pytest.param(history(), [ADD, EMPTY], True, id="shortly before the kill"),
        pytest.param(history(within_ms=199), [ADD, EMPTY], False, id="longer before than is permitted"),
        pytest.param(history(within_ms=None), [ADD, EMPTY], False, id="nothing is permitted"),
        pytest.param(history(), [("add", "5", None, 1_011, 1_020, "ok"), EMPTY], False, id="after the kill"),
        pytest.param(
            history(Fault(**{name: getattr(KILLED, name) for name in KILLED.__struct_fields__} | {"kind": "pause"})),
            [ADD, EMPTY], False, id="another fault",
        ),
        pytest.param(
            history(Fault(**{name: getattr(KILLED, name) for name in KILLED.__struct_fields__} | {"took_effect": False})),
            [ADD, EMPTY], False, id="a kill without effect",
        ),
        pytest.param(
            history(), [ADD, ("read-all", None, "[5]", 1_500, 1_600, "ok"), EMPTY], False, id="seen after the kill"
        ),
        pytest.param(
            history(), [ADD, ("read-all", None, "[5]", 900, 950, "ok"), EMPTY], True, id="seen before the kill"
        ),
        pytest.param(
            history(), [ADD, ("read-all", None, "[]", 850, 990, "ok")], False, id="missed before the kill"
        ),
        pytest.param(
            history(), [IN_DOUBT, ("read-all", None, "[5]", 750, 760, "ok"), EMPTY], True, id="in doubt, and seen shortly before"
        ),
        pytest.param(
            history(), [IN_DOUBT, ("read-all", None, "[5]", 450, 460, "ok"), EMPTY], False, id="in doubt, and seen long before"
        ),
        pytest.param(
            history(), [SLOW, ("read-all", None, "[5]", 450, 460, "ok"), EMPTY], False, id="seen long before its late answer"
        ),
    ],
)  # fmt: skip
def test_an_element_of_a_set(of_run: History, answered: list[Answered], is_permitted: bool) -> None:
    """Place, time and holder: a kill that was proven, of the node that held it, shortly behind the acknowledgement."""
    assert of_set(answered, of_run) == [("element_lost", is_permitted)]


def test_the_judgement_names_the_kill() -> None:
    """Whoever reads the excuse finds the fault."""
    (judgement,) = sets.kernel(rows(ADD, EMPTY), history()).judgements.values()

    assert (judgement.promise.rule, judgement.at_ns, judgement.lost) == (RULE, KILLED.injected_ns, (1,))


def of_lists(*answered: Answered) -> list[tuple[str, bool]]:
    """Return what is found in transactions on lists, and whether it is permitted."""
    found = object_transactions.kernel(rows(*answered), history())
    return sorted((one.kind, number in found.judgements) for number, one in enumerate(rows_of(found.anomalies)))


def txn(argument: str, result: str, begin: int, end: int) -> Answered:
    """Return an acknowledged transaction."""
    return "txn-lists", argument, result, begin, end, "ok"


def append(steps: str, begin: int) -> Answered:
    """Return an acknowledged transaction that reads nothing."""
    return txn(steps, steps, begin, begin + 50)


def read(key: str, elements: str, begin: int) -> Answered:
    """Return an acknowledged read of a list."""
    return txn(f'[["r","{key}",null]]', f'[["r","{key}",{elements}]]', begin, begin + 50)


RECENT = append('[["append","a",5]]', 700)
BOTH = append('[["append","a",5],["append","b",6]]', 700)
EARLY = append('[["append","a",5]]', 300)


@pytest.mark.parametrize(
    ("answered", "found"),
    [
        pytest.param([RECENT, read("a", "[]", 2_000)], [("element_lost", True)], id="shortly before the kill"),
        pytest.param([EARLY, read("a", "[]", 2_000)], [("element_lost", False)], id="long before"),
        pytest.param(
            [BOTH, read("a", "[]", 2_000), read("b", "[]", 2_000)],
            [("element_lost", True), ("element_lost", True)],
            id="a whole transaction",
        ),
        pytest.param(
            [BOTH, read("a", "[]", 2_000), read("b", "[6]", 2_000)],
            [("element_lost", False)],
            id="half a transaction",
        ),
        pytest.param(
            [RECENT, txn('[["r","a",null],["append","b",6]]', '[["r","a",[5]],["append","b",6]]', 800, 850),
             read("a", "[]", 2_000), read("b", "[6]", 2_000)],
            [("element_lost", False)],
            id="who knew of it is still there",
        ),
        pytest.param(
            [RECENT, read("a", "[5]", 800), append('[["append","a",7]]', 1_500), read("a", "[7]", 2_000)],
            [("element_lost", True), ("incompatible-order", True)],
            id="what was appended in its place",
        ),
        pytest.param(
            [EARLY, read("a", "[5]", 800), append('[["append","a",7]]', 1_500), read("a", "[7]", 2_000)],
            [("element_lost", False), ("incompatible-order", False)],
            id="the same, long before",
        ),
        pytest.param(
            [EARLY, txn('[["append","a",7]]', '[["append","a",7]]', 2_010, 2_060), read("a", "[7]", 2_000)],
            [("element_lost", False), ("unread", False)],
            id="another append beside the last read hides no loss",
        ),
        pytest.param(
            [EARLY, txn('[["append","a",7]]', '[["append","a",7]]', 2_010, 2_060), read("a", "[5]", 2_000)],
            [("unread", False)],
            id="nor is that one itself judged",
        ),
        pytest.param(
            [EARLY, txn('[["append","a",7]]', '[["append","a",7]]', 1_800, 2_010), read("a", "[5]", 2_000)],
            [("unread", False)],
            id="that was acknowledged a moment after the read had begun",
        ),
        pytest.param(
            [RECENT, read("a", "[5]", 800), read("a", "[]", 2_000), read("a", "[9]", 2_100)],
            [("element_lost", True), ("incompatible-order", True), ("phantom", False)],
            id="what nobody appended stays so",
        ),
    ],
)  # fmt: skip
def test_an_element_of_a_list(answered: list[Answered], found: list[tuple[str, bool]]) -> None:
    """A permitted loss takes whole transactions, and all who knew of them; what contradicts itself without them stays a violation."""
    assert of_lists(*answered) == found
