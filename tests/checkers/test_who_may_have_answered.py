"""Who may have answered: a deposed leader that does not know it, as long as somebody hinders it from hearing; and what its answers prove."""

from pathlib import Path

import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_small_recordings import BY_R4, BY_R5, CREATED, LOST, TO_NODE_3, UNCLEAN, judged

BY_R11 = ("permitted", "R11")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    return run


@pytest.mark.parametrize(("cut", "fenced", "expected"), [
    pytest.param(None, [], LOST, id="nothing hindered anybody"),
    pytest.param((900, 20_000), [], BY_R4, id="it was cut off"),
    pytest.param((5000, 9000), [], BY_R4, id="no quiet time was long enough"),
    pytest.param((200, 300), [], LOST, id="cut off before"),
    pytest.param(None, [1, 2], BY_R4, id="all of its ISR were fenced"),
    pytest.param(None, [1], LOST, id="its follower was in touch"),
])  # fmt: skip
def test_with_acks_all_it_needs_followers_that_do_not_know(
    run: Run, cut: tuple[int, int] | None, fenced: list[int], expected: tuple[str, str]
) -> None:
    if cut is not None:
        run.fault("cut", cut[0], node=1, lasts=cut[1])
    run.change(1000, **TO_NODE_3)
    for node in fenced:
        run.metadata("BrokerRegistrationChangeRecord", 1100, broker_id=node, broker_epoch=node, fenced=1)
    run.send(0, 18_000)
    run.final_read({}, at=29_000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("epoch", "expected"), [
    pytest.param(0, BY_R4, id="the deposed leader"), pytest.param(1, LOST, id="who was elected")
])  # fmt: skip
def test_whose_answer_a_first_poll_got(run: Run, epoch: int, expected: tuple[str, str]) -> None:
    """That nothing was in the client's hands before says when it was fetched, and not of whom."""
    value = run.send(0, 100)
    run.change(1000, **TO_NODE_3)
    poll = {"process": 90, "poll_index": 0, "topic": "t", "partition": 0, "phase": "tail"}
    answer = {"isolation": "read_uncommitted", "position": 0, "record_count": 1, "high_watermark": 1, "outcome": "ok"}
    times = {"invoke_ns": 2000 * MS, "complete_ns": 2001 * MS}
    run.recorder.row("polls", **poll, **answer, **times, leader_epoch=epoch, answered_by=1 + 2 * epoch)
    run.recorder.row("reads", **poll, log_offset=0, value=value, leader_epoch=0)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("epoch", "expected"), [
    pytest.param(0, BY_R5, id="a deposed leader's, of its own log"), pytest.param(1, LOST, id="its own leader's")
])  # fmt: skip
def test_which_high_watermark_passed_a_record(run: Run, epoch: int, expected: tuple[str, str]) -> None:
    run.watermark(5, 100, epoch=0)
    run.change(1000, **TO_NODE_3)
    run.change(1100, isr=[3, 2], leader_recovery_state=0)
    run.send(0, 2000, acks=1, answered_by=3)
    run.watermark(5, 2500, epoch=0)
    if epoch:
        run.watermark(5, 2600, epoch=1, observer="node-3")
    run.change(3000, leader=2, isr=[2], eligible_leader_replicas=[3])
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("group", "killed", "fetched", "expected"), [
    pytest.param(None, True, 3, BY_R11, id="nobody fetched it"),
    pytest.param("g", True, 3, LOST, id="it was fetched behind the election"),
    pytest.param("g", True, None, LOST, id="and was not there later"),
    pytest.param("g", False, 3, BY_R11, id="the deposed coordinator may have known it still"),
    pytest.param("h", True, 3, BY_R11, id="another group fetched its own"),
])  # fmt: skip
def test_a_position_that_was_fetched_was_there(
    run: Run, group: str | None, killed: bool, fetched: int | None, expected: tuple[str, str]
) -> None:
    for node in (1, 2, 3):
        run.node(node, "start", 0)
    run.metadata("PartitionRecord", 0, topic="__consumer_offsets", **CREATED | {"isr": [1, 2]})

    def did(what: str, offset: int | None, at: int, group: str = "g") -> None:
        row = {"process": 50, "topic": "t", "partition": 0, "outcome": "ok", "group": group}
        times = {"invoke_ns": at * MS, "complete_ns": (at + 1) * MS}
        run.recorder.row("commits", **row, **times, kind=what, committed_offset=offset)

    did("commit", 3, 1000)
    did("commit", 5, 1010)
    if killed:
        run.node(1, "killed", 2500)
    run.metadata("PartitionChangeRecord", 3000, topic="__consumer_offsets", partition_id=0, **TO_NODE_3)
    if group is not None:
        did("fetch", 5, 4000, group)
    did("fetch", fetched, 5000)

    assert judged(run, "offset_forgotten" if fetched is None else "offset_stale") == [expected]


@pytest.mark.parametrize(("newer", "answered_by", "isr", "killed", "expected"), [
    pytest.param(4000, 1, [2], False, BY_R11, id="the deposed coordinator, of what was committed since"),
    pytest.param(2000, 1, [2], False, LOST, id="of what it had answered itself"),
    pytest.param(4000, 2, [2], False, LOST, id="its successor"),
    pytest.param(4000, None, [2], False, LOST, id="nobody knows who"),
    pytest.param(4000, 1, [2, 1], False, LOST, id="it follows its successor"),
    pytest.param(4000, 1, [2], True, LOST, id="it is another process"),
])  # fmt: skip
def test_a_deposed_coordinator_does_not_know_what_was_committed_since(
    run: Run, newer: int, answered_by: int | None, isr: list[int], killed: bool, expected: tuple[str, str]
) -> None:
    for node in (1, 2, 3):
        run.node(node, "start", 0)
    run.metadata("PartitionRecord", 0, topic="__consumer_offsets", **CREATED | {"isr": [1, 2]})

    def did(what: str, offset: int, at: int, answered_by: int | None = None) -> None:
        row = {"process": 50, "topic": "t", "partition": 0, "outcome": "ok", "group": "g", "answered_by": answered_by}
        times = {"invoke_ns": at * MS, "complete_ns": (at + 1) * MS}
        run.recorder.row("commits", **row, **times, kind=what, committed_offset=offset)

    did("commit", 3, 1000)
    run.metadata("PartitionChangeRecord", 3000, topic="__consumer_offsets", partition_id=0, leader=2, isr=[2])
    did("commit", 5, newer)
    if killed:
        run.node(1, "killed", 3500)
        run.node(1, "start", 3600)
    if isr != [2]:
        run.metadata("PartitionChangeRecord", 4100, topic="__consumer_offsets", partition_id=0, isr=isr)
    did("fetch", 3, 8000, answered_by)

    assert judged(run, "offset_stale") == [expected]


@pytest.mark.parametrize(("newer", "by", "written", "asked", "expected"), [
    pytest.param(2900, None, 2850, 8000, BY_R11, id="its successor may have answered it before anybody observed the election"),
    pytest.param(2900, None, 2850, 2950, BY_R11, id="it was asked before that, too"),
    pytest.param(2900, None, 2920, 8000, LOST, id="nobody else had been elected yet"),
    pytest.param(2900, None, None, 8000, LOST, id="nobody knows since when anybody else led"),
    pytest.param(2900, 1, 2850, 8000, LOST, id="it had answered it itself"),
    pytest.param(2900, None, 2850, 2840, LOST, id="it was asked before the election"),
    pytest.param(2400, None, 2000, 8000, LOST, id="a stamp says nothing of the time before a commit may have been observed"),
])  # fmt: skip
def test_what_a_successor_may_have_answered_no_deposed_coordinator_knows(
    run: Run, newer: int, by: int | None, written: int | None, asked: int, expected: tuple[str, str]
) -> None:
    for node in (1, 2, 3):
        run.node(node, "start", 0)
    run.metadata("PartitionRecord", 0, topic="__consumer_offsets", **CREATED | {"isr": [1, 2]})

    def did(what: str, offset: int, at: int, answered_by: int | None) -> None:
        row = {"process": 50, "topic": "t", "partition": 0, "outcome": "ok", "group": "g", "answered_by": answered_by}
        times = {"invoke_ns": at * MS, "complete_ns": (at + 1) * MS}
        run.recorder.row("commits", **row, **times, kind=what, committed_offset=offset)

    did("commit", 3, 1000, None)
    did("commit", 5, newer if asked > newer else asked - 100, by)
    elected = {"partition_id": 0, "leader": 2, "isr": [2]}
    run.metadata("PartitionChangeRecord", 3000, topic="__consumer_offsets", stamped=written, **elected)
    did("fetch", 3, asked, 1)

    assert judged(run, "offset_stale") == [expected]
