"""Queues, judged from the table `operations`: each history beside its nearest neighbour that is wrong."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest

from tribunal.checkers.api import Found, PartitionRows, rows_of
from tribunal.checkers.judge.timeline import History
from tribunal.checkers.properties import queues
from tribunal.results.manifest import LOST_MS
from tribunal.results.recording import TABLES
from tribunal.results.rows import Fault, ObjectCall, table_of

MS = 1_000_000
KILLED = Fault(
    index=0, kind="kill", resolved_target="node 1", planned_ns=500 * MS, injected_ns=510 * MS, took_effect=True
)
Called = tuple[str, str | None, str | None, int, str]


def judge(
    kernel: Callable[[PartitionRows, History], Found],
    called: Iterable[Called],
    within_ms: int | None,
    more: Mapping[str, int] | None = None,
    processes: Sequence[int] | None = None,
) -> list[tuple[str, bool]]:
    """Return what a property finds, and whether it is permitted: function, argument, result, begin in ms (each takes 5), outcome.

    processes:  who calls, call by call; None: a process of its own for each.
    """
    calls = [
        ObjectCall(
            process=process, function=function, key="q", argument=argument, result=result,
            invoke_ns=begin * MS, complete_ns=(begin + 5) * MS, outcome=outcome,
        )
        for number, (function, argument, result, begin, outcome) in enumerate(called)
        for process in [number if processes is None else processes[number]]
    ]  # fmt: skip
    nothing = {name: TABLES[name].arrow.empty_table() for name in ("metadata", "nodes", "admin")}
    settings = {**(more or {}), **({} if within_ms is None else {f"{LOST_MS}kill": within_ms})}
    history = History(
        nothing["metadata"], nothing["nodes"], table_of(Fault, [KILLED]), nothing["admin"], settings=settings or None
    )
    found = kernel(PartitionRows({"operations": table_of(ObjectCall, calls)}), history)
    return sorted((one.kind, number in found.judgements) for number, one in enumerate(rows_of(found.anomalies)))


def judged(*called: Called, within_ms: int | None = None) -> list[tuple[str, bool]]:
    """Return what is found, and whether it is permitted."""
    return judge(queues.kernel, called, within_ms)


def put(begin: int, outcome: str = "ok") -> Called:
    return "enqueue", "5", None, begin, outcome


def take(result: str | None, begin: int) -> Called:
    return "dequeue", None, result, begin, "ok"


def acknowledge(begin: int, outcome: str = "ok") -> Called:
    return "acknowledge", "5", None, begin, outcome


def back(begin: int, outcome: str = "ok") -> Called:
    return "redeliver", None, None, begin, outcome


END = (back(900), take(None, 950))


@pytest.mark.parametrize(
    ("called", "found"),
    [
        pytest.param([put(100), take("5", 200), acknowledge(300), *END], [], id="given out and acknowledged"),
        pytest.param([put(100), *END], ["element_lost"], id="never given out"),
        pytest.param([put(100), put(200, "fail"), *END], ["element_lost"], id="put in, and once more in vain"),
        pytest.param([put(100, "info"), *END], [], id="in doubt"),
        pytest.param([put(100, "fail"), *END], [], id="refused"),
        pytest.param([put(100), ("dequeue", None, None, 200, "info"), *END], ["unaccounted"], id="somebody may have taken it"),
        pytest.param([put(100), ("dequeue", None, None, 200, "fail"), *END], ["element_lost"], id="surely nobody took it"),
        pytest.param([put(100), take("5", 200), *END], ["element_lost"], id="given out, not acknowledged, and gone"),
        pytest.param(
            [put(100), take("5", 200), acknowledge(300, "info"), *END], [], id="given out, and perhaps acknowledged"
        ),
        pytest.param([put(100), take(None, 950)], ["not_emptied"], id="somebody may hold it"),
        pytest.param([put(100), back(900), take(None, 902)], ["not_emptied"], id="empty beside what was given back"),
        pytest.param([put(100), back(900, "info"), take(None, 950)], ["not_emptied"], id="whether it was given back nobody knows"),
        pytest.param([put(100), back(900)], ["not_emptied"], id="nobody took to the end"),
        pytest.param([put(902), *END], ["not_emptied"], id="put in beside the end"),
        pytest.param([put(100), take("5", 200), back(900), take("5", 910), take(None, 950)], [], id="again, for nobody acknowledged it"),
        pytest.param(
            [put(100), take("5", 200), acknowledge(300), take("5", 306), *END], ["element_again"], id="again afterwards"
        ),
        pytest.param(
            [put(100), take("5", 200), acknowledge(300), take("5", 304), *END], [], id="again beside the acknowledgement"
        ),
        pytest.param(
            [put(100), take("5", 200), acknowledge(300, "info"), take("5", 400), *END], [], id="acknowledged in doubt"
        ),
        pytest.param(
            [put(100), take("5", 200), acknowledge(300, "fail"), back(900), take("5", 910), take(None, 950)], [], id="acknowledged in vain"
        ),
        pytest.param([take("5", 200), *END], ["element_unknown"], id="nobody put it in"),
        pytest.param([put(100, "fail"), take("5", 200), *END], ["element_unknown"], id="put in in vain"),
        pytest.param(
            [put(300), take("5", 200), take("5", 400), acknowledge(500), *END], ["element_unknown"], id="put in later"
        ),
        pytest.param([put(100, "info"), take("5", 200), acknowledge(300), *END], [], id="put in in doubt and there"),
        pytest.param([put(100, "info"), *END], [], id="put in in doubt and not there"),
        # A broker may give out what it has not confirmed, and end before it is on its disk.
        pytest.param([put(100, "info"), take("5", 200), *END], [], id="put in in doubt, there, and gone"),
    ],
)  # fmt: skip
def test_a_queue(called: list[Called], found: list[str]) -> None:
    """At least once until it is acknowledged, and never afterwards."""
    assert judged(*called) == [(kind, False) for kind in found]


@pytest.mark.parametrize(
    ("processes", "found"),
    [
        pytest.param([1, 2, 3, 3, 2], "unaccounted", id="by who goes on calling"),
        pytest.param([1, 2, 3, 3, 4], "element_lost", id="by who is gone"),
        pytest.param([1, 2, 2, 2, 2], "element_lost", id="by who gives it back itself"),
    ],
)
def test_what_was_given_out_and_never_acknowledged_may_be_kept(processes: list[int], found: str) -> None:
    """Some systems give back only what their own caller holds, and what those hold that are gone: who still calls may hold an element."""
    called = [put(100), take("5", 200), back(900), take(None, 950), ("enqueue", "6", None, 970, "fail")]

    assert judge(queues.kernel, called, None, processes=processes) == [(found, False)]


@pytest.mark.parametrize(("within_ms", "is_permitted"), [(400, True), (100, False), (None, False)])
def test_a_kill_takes_what_the_file_permits(within_ms: int | None, is_permitted: bool) -> None:
    """An enqueueing as well as an acknowledgement, of so long before the kill (at 500 ms) and not of longer."""
    assert judged(put(200), *END, within_ms=within_ms) == [("element_lost", is_permitted)]
    again = [put(100), take("5", 150), acknowledge(200), take("5", 700), *END]
    assert judged(*again, within_ms=within_ms) == [("element_again", is_permitted)]


def test_what_was_given_out_again_before_the_kill_is_not_excused_by_it() -> None:
    called = [put(100), take("5", 200), acknowledge(300), take("5", 400), *END]

    assert judged(*called, within_ms=400) == [("element_again", False)]


@pytest.mark.parametrize(("taken", "is_permitted"), [(300, True), (490, True), (600, False)])
def test_what_was_given_out_after_the_kill_was_not_taken_by_it(taken: int, is_permitted: bool) -> None:
    assert judged(put(200), take("5", taken), *END, within_ms=400) == [("element_lost", is_permitted)]
