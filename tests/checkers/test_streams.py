"""Streams, judged from the table `operations`: each history beside its nearest neighbour that is wrong."""

from collections.abc import Mapping, Sequence

import pytest

from tribunal.checkers.api import PartitionRows, rows_of
from tribunal.checkers.judge.timeline import History
from tribunal.checkers.properties import streams
from tribunal.results.manifest import LOST_MS, ONE_LOST
from tribunal.results.recording import TABLES
from tribunal.results.rows import Fault, ObjectCall, table_of

MS = 1_000_000
KILLED = Fault(
    index=0, kind="kill", resolved_target="node 1", planned_ns=500 * MS, injected_ns=510 * MS, healed_ns=600 * MS,
    took_effect=True,
)  # fmt: skip
Called = tuple[str, str | None, str | None, int, str]


def judge(
    called: Sequence[Called],
    settings: Mapping[str, int | bool] | None = None,
    faults: Sequence[Fault] = (KILLED,),
    nodes: Mapping[int, int] | None = None,
) -> list[tuple[str, bool]]:
    """Return what is found, and whether it is permitted: function, argument, result, begin in ms (each takes 5), outcome.

    nodes:  which node answered, by the number of the call.
    """
    calls = [
        ObjectCall(
            process=9 if begin >= 900 else number, function=function, key="t", argument=argument, result=result,
            invoke_ns=begin * MS, complete_ns=(begin + 5) * MS, outcome=outcome, answered_by=(nodes or {}).get(number),
        )
        for number, (function, argument, result, begin, outcome) in enumerate(called)
    ]  # fmt: skip
    nothing = {name: TABLES[name].arrow.empty_table() for name in ("metadata", "nodes", "admin")}
    history = History(
        nothing["metadata"], nothing["nodes"], table_of(Fault, faults), nothing["admin"], settings=settings or {}
    )
    found = streams.kernel(PartitionRows({"operations": table_of(ObjectCall, calls)}), history)
    return sorted((one.kind, number in found.judgements) for number, one in enumerate(rows_of(found.anomalies)))


def put(element: int, begin: int, outcome: str = "ok", *, at: int | None = None, level: str = "publish") -> Called:
    return level, str(element), None if at is None else str(at), begin, outcome


def read(entries: Mapping[int, int] | Sequence[tuple[int, int]], begin: int, *, since: int = 0) -> Called:
    pairs = list(entries.items()) if isinstance(entries, Mapping) else entries
    return "read-stream", str(since), str([list(pair) for pair in pairs]), begin, "ok"


def whole(entries: Mapping[int, int]) -> list[Called]:
    """Read to the end when all is quiet: what there is, and that no more comes."""
    return [read(entries, 900), read({}, 950, since=max(entries, default=-1) + 1)]


A, B = put(5, 100), put(6, 200)
SENT = put(5, 100, level="publish-none")


@pytest.mark.parametrize(
    ("called", "found"),
    [
        pytest.param([A, B, *whole({0: 5, 1: 6})], [], id="all there"),
        pytest.param([A, B, *whole({3: 5, 9: 6})], [], id="offsets with gaps"),
        pytest.param([A, B, *whole({0: 5})], ["element_lost"], id="the last one is gone"),
        pytest.param([A, put(6, 200, "info"), *whole({0: 5})], [], id="in doubt, and not there"),
        pytest.param([A, put(6, 200, "info"), *whole({0: 5, 1: 6})], [], id="in doubt, and there"),
        pytest.param([A, put(6, 200, level="publish-none"), *whole({0: 5})], [], id="nobody had to acknowledge it"),
        pytest.param([A, put(6, 200, level="publish-one"), *whole({0: 5})], ["element_lost"], id="one node had"),
        pytest.param([A, put(6, 200, "fail"), *whole({0: 5})], [], id="refused"),
        pytest.param([A, put(6, 200, "fail"), *whole({0: 5, 1: 6})], ["element_unknown"], id="refused, and there"),
        pytest.param([A, *whole({0: 5, 1: 6})], ["element_unknown"], id="nobody published it"),
        pytest.param([read({0: 6}, 150), B, *whole({0: 6})], ["element_unknown"], id="read before it was published"),
        pytest.param([B, read({0: 6}, 203), *whole({0: 6})], [], id="read while it was published"),
        pytest.param([A, read({0: 5}, 900)], ["unread"], id="nobody read to the end"),
        pytest.param([A, read({}, 950, since=1)], ["unread"], id="nobody read the beginning"),
        pytest.param([A, put(6, 920), *whole({0: 5})], ["unread"], id="published beside the last reading"),
        pytest.param([SENT], ["unread"], id="of what was only sent nobody read anything"),
        pytest.param([SENT, read({0: 5}, 300)], ["unread"], id="of what was only sent nobody read to the end"),
        pytest.param([read({}, 50), SENT], ["unread"], id="of what was only sent nobody read anything behind it"),
        pytest.param([SENT, *whole({})], [], id="of what was only sent nothing need be there"),
        pytest.param([put(5, 100, "info")], ["unread"], id="of what is in doubt nobody read anything"),
        pytest.param([put(5, 100, "fail")], [], id="of what was refused nobody read anything"),
        pytest.param([A, put(6, 920, level="publish-none"), *whole({0: 5})], [], id="only sent, beside the last reading"),
        pytest.param(
            [A, read({0: 5}, 900), read({}, 950, since=7)], ["unread"], id="who reads on elsewhere has not read on"
        ),
        pytest.param([A, B, *whole({0: 6, 1: 5})], ["out_of_order"], id="the later one first"),
        pytest.param([A, put(6, 103), *whole({0: 6, 1: 5})], [], id="both at once, in either order"),
        pytest.param([put(5, 100, "info"), B, *whole({0: 6, 1: 5})], [], id="when the first one took effect nobody knows"),
        pytest.param([A, put(6, 200, "info"), *whole({0: 6, 1: 5})], ["out_of_order"], id="one in doubt was asked for later all the same"),
        pytest.param(
            [put(5, 100, level="publish-none"), B, *whole({0: 6, 1: 5})], [], id="what was only sent may come later"
        ),
        pytest.param([A, B, *whole({0: 5, 1: 6, 2: 5})], ["element_twice"], id="twice in one reading"),
        pytest.param([A, B, read({4: 6}, 300, since=4), *whole({0: 5, 1: 6})], ["element_twice"], id="at another place before"),
        pytest.param([put(5, 100, at=0), put(6, 200, at=1), *whole({0: 5, 1: 6})], [], id="where it was acknowledged"),
        pytest.param([put(5, 100, at=0), put(6, 200, at=7), *whole({0: 5, 1: 6})], ["offset_wrong"], id="elsewhere"),
        pytest.param(
            [A, B, put(7, 250), read({0: 5, 2: 7}, 300), *whole({0: 5, 1: 6, 2: 7})], ["passed_over"], id="one is passed over"
        ),
        pytest.param(
            [A, put(6, 299), put(7, 250), read({0: 5, 2: 7}, 300), *whole({0: 5, 1: 6, 2: 7})], ["out_of_order"],
            id="not passed over: it was published meanwhile",
        ),
        pytest.param(
            [A, put(8, 190, "info"), B, read({0: 5, 2: 8}, 300), *whole({0: 5, 1: 6})], [], id="who follows what is lost passes over nothing"
        ),
        pytest.param([A, B, read({0: 5}, 300), *whole({0: 5, 1: 6})], [], id="a read may show less than there is"),
        pytest.param([A, B, read({1: 6}, 300, since=1), *whole({0: 5, 1: 6})], [], id="a read from later on"),
        pytest.param([A, B, read({0: 5, 1: 6}, 300, since=1), *whole({0: 5, 1: 6})], ["offsets_back"], id="before its begin"),
        pytest.param(
            [A, B, read([(1, 6), (0, 5)], 300), *whole({0: 5, 1: 6})], ["offsets_back"], id="offsets that do not ascend"
        ),
        pytest.param(
            [A, put(6, 200, "info"), put(7, 210), read({0: 5, 1: 6}, 300), *whole({0: 5, 1: 7})], ["entry_changed"],
            id="another one at its place",
        ),
    ],
)  # fmt: skip
def test_a_stream(called: list[Called], found: list[str]) -> None:
    assert judge(called) == [(kind, False) for kind in found]


ONE = {f"{ONE_LOST}kill": True}
BY_ONE = put(6, 200, level="publish-one")


@pytest.mark.parametrize(
    ("called", "settings", "nodes", "is_permitted"),
    [
        pytest.param([A, BY_ONE], ONE, {1: 1}, True, id="by the node that was killed"),
        pytest.param([A, BY_ONE], ONE, {1: 2}, False, id="by another node"),
        pytest.param([A, BY_ONE], ONE, {}, False, id="by whom nobody says"),
        pytest.param([A, BY_ONE], {}, {1: 1}, False, id="the file does not permit it"),
        pytest.param([A, BY_ONE], {f"{ONE_LOST}isolate": True}, {1: 1}, False, id="by another fault"),
        pytest.param([A, B], ONE, {1: 1}, False, id="acknowledged by all"),
        pytest.param([A, put(6, 700, level="publish-one")], ONE, {1: 1}, False, id="after the fault"),
        pytest.param([A, BY_ONE, read({0: 5, 1: 6}, 550)], ONE, {1: 1}, True, id="seen while the node was down"),
        pytest.param([A, BY_ONE, read({0: 5, 1: 6}, 650)], ONE, {1: 1}, False, id="seen when it was back"),
    ],
)
def test_what_one_node_alone_acknowledged(
    called: list[Called], settings: Mapping[str, bool], nodes: Mapping[int, int], is_permitted: bool
) -> None:
    """A fault takes it that the file names and that struck that node, and nothing else."""
    assert judge([*called, *whole({0: 5})], settings, nodes=nodes) == [("element_lost", is_permitted)]


@pytest.mark.parametrize(("node", "is_permitted"), [(1, True), (2, False)])
def test_what_was_shown_of_it_may_change_with_it(node: int, is_permitted: bool) -> None:
    """The node that had it alone was killed, and who led next put something else there."""
    called = [A, BY_ONE, read({0: 5, 1: 6}, 300), put(7, 700), *whole({0: 5, 1: 7})]

    found = judge(called, ONE, nodes={1: node, 2: node})

    assert found == [("element_lost", is_permitted), ("entry_changed", is_permitted)]


@pytest.mark.parametrize(
    ("outcome", "node", "found"),
    [
        pytest.param("info", 1, [("entry_changed", True)], id="shown by the node that was killed"),
        pytest.param("info", 2, [("entry_changed", False)], id="shown by another node"),
        pytest.param("ok", 1, [("element_lost", False), ("entry_changed", False)], id="acknowledged by all"),
    ],
)
def test_what_was_shown_before_anybody_acknowledged_it(outcome: str, node: int, found: list[tuple[str, bool]]) -> None:
    """One node alone may have had it: it goes as what that node had acknowledged."""
    called = [A, put(6, 200, outcome), read({0: 5, 1: 6}, 300), put(7, 700), *whole({0: 5, 1: 7})]

    assert judge(called, ONE, nodes={2: node}) == found


CUT = {f"{ONE_LOST}isolate": True}
CUT_OFF = Fault(
    index=0, kind="isolate", resolved_target="node 1", planned_ns=400 * MS, injected_ns=410 * MS, healed_ns=800 * MS,
    took_effect=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("node", "settings", "end", "found"),
    [
        pytest.param(1, {f"{ONE_LOST}isolate": True}, 6, [("element_lost", True), ("entry_changed", True)], id="of the node that was cut off"),
        pytest.param(3, {f"{ONE_LOST}isolate": True}, 6, [("element_lost", False), ("entry_changed", False)], id="of another node"),
        pytest.param(1, {}, 6, [("element_lost", False), ("entry_changed", False)], id="the file does not permit it"),
        pytest.param(
            1, {f"{ONE_LOST}isolate": True}, 7, [("element_lost", False), ("entry_changed", False)], id="what all had acknowledged is gone instead"
        ),
    ],
)  # fmt: skip
def test_what_one_node_alone_showed_while_the_others_had_something_else_there(
    node: int, settings: Mapping[str, bool], end: int, found: list[tuple[str, bool]]
) -> None:
    """Who is gone is who does not stand there in the end, whichever of the two was shown first."""
    by_all, by_one = put(6, 450), put(7, 455, level="publish-one")
    shown = [read({0: 5, 1: 6}, 500), read({0: 5, 1: 7}, 510)]  # by the others, and by the node that is cut off

    judged = judge(
        [A, by_all, by_one, *shown, *whole({0: 5, 1: end})], settings, [CUT_OFF], {1: 2, 2: node, 3: 2, 4: node}
    )

    assert judged == found


@pytest.mark.parametrize(
    ("outcome", "node", "settings", "shown", "end", "found"),
    [
        pytest.param("info", 1, CUT, 500, {1: 6, 2: 7}, [("element_twice", True), ("entry_changed", True)], id="of the node that was cut off"),
        pytest.param("info", 3, CUT, 500, {1: 6, 2: 7}, [("element_twice", False), ("entry_changed", False)], id="of another node"),
        pytest.param("info", 1, {}, 500, {1: 6, 2: 7}, [("element_twice", False), ("entry_changed", False)], id="the file does not permit it"),
        pytest.param("info", 1, CUT, 820, {1: 6, 2: 7}, [("element_twice", False), ("entry_changed", False)], id="shown when the node was back"),
        pytest.param("ok", 1, CUT, 500, {1: 6, 2: 7}, [("element_twice", False), ("entry_changed", False)], id="acknowledged by all"),
        pytest.param("info", 1, CUT, 500, {1: 7, 2: 6, 3: 7}, [("element_twice", False)], id="it stands at both offsets"),
    ],
)  # fmt: skip
def test_what_one_node_alone_showed_may_be_appended_again_where_the_others_are(
    outcome: str,
    node: int,
    settings: Mapping[str, bool],
    shown: int,
    end: Mapping[int, int],
    found: list[tuple[str, bool]],
) -> None:
    """Who had not been answered asked again: it stands once in the end, and no more where it was shown (R16)."""
    called = [A, put(6, 450), put(7, 455, outcome), read({0: 5, 1: 7}, shown)]

    assert judge([*called, *whole({0: 5, **end})], settings, [CUT_OFF], {3: node}) == found


@pytest.mark.parametrize(
    ("later", "found"),
    [
        pytest.param({0: 5, 1: 6}, ["unread"], id="a later read shows it"),
        pytest.param({0: 5}, ["element_lost", "unread"], id="no later read does"),
    ],
)
def test_what_a_later_read_shows_was_not_lost_where_a_node_lagged_behind(
    later: Mapping[int, int], found: list[str]
) -> None:
    """When all was quiet nobody read to the end: who did so last was answered by a node that did not have it yet."""
    lagging = [read({0: 5}, 950), read({}, 960, since=1)]

    called = [A, B, *lagging, read(later, 1_000), put(7, 2_000)]

    assert judge(called) == [(kind, False) for kind in found]


@pytest.mark.parametrize(("within_ms", "is_permitted"), [(400, True), (100, False)])
def test_a_kill_of_the_only_node_takes_what_its_file_permits(within_ms: int, is_permitted: bool) -> None:
    assert judge([A, B, *whole({0: 5})], {f"{LOST_MS}kill": within_ms}) == [("element_lost", is_permitted)]


@pytest.mark.parametrize(
    ("begin", "shown", "is_permitted"),
    [
        pytest.param(200, 300, True, id="shown shortly before the kill"),
        pytest.param(110, 120, False, id="shown long before it"),
        pytest.param(200, 620, False, id="shown behind it"),
    ],
)
def test_a_kill_of_the_only_node_takes_what_was_only_sent_as_well(begin: int, shown: int, is_permitted: bool) -> None:
    """When it was surely there says the first read that showed it: nobody acknowledged it."""
    sent = put(6, begin, level="publish-none")

    found = judge([A, sent, read({0: 5, 1: 6}, shown), put(7, 700), *whole({0: 5, 1: 7})], {f"{LOST_MS}kill": 300})

    assert [one for one in found if one[0] == "entry_changed"] == [("entry_changed", is_permitted)]
