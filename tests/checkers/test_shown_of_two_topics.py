"""What proves that a record was there, or was not yet: only what was said of its own topic, where another one of that name had been deleted."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_small_recordings import judged

REMOVED, ANEW, SENT, ELECTED = 4_000, 4_100, 6_000, 7_000
LOST = ("violation", "")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """The first topic was led by node 1 in epoch 0 and may be by node 3 in epoch 1; an operator has ordered it."""
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    run.recorder.row(
        "admin", api="delete_topic", topic="t", invoke_ns=(REMOVED - 10) * MS, complete_ns=REMOVED * MS, outcome="ok"
    )
    return run


def made_anew(run: Run, *, leader: int, isr: Sequence[int] = (1, 2, 3)) -> None:
    run.metadata("RemoveTopicRecord", REMOVED)
    created = {"replicas": [1, 2, 3], "isr": [*isr], "leader": leader, "leader_epoch": 0}
    run.metadata("PartitionRecord", ANEW, partition_id=0, **created)


def shown(run: Run, node: int, at: int, *, epoch: int, end: int, high_watermark: int) -> None:
    run.watermark(high_watermark, at, epoch=epoch, observer=f"node-{node}", log_end_offset=end)


@pytest.mark.parametrize(("epoch", "short_at", "expected"), [
    pytest.param(1, 2_000, LOST, id="the former topic's leader of that epoch had a shorter log"),
    pytest.param(1, ELECTED + 10, ("permitted", "R4"), id="its own leader of that epoch had a shorter log"),
    pytest.param(0, ELECTED + 10, LOST, id="what a broker says of the former topic's epoch"),
])  # fmt: skip
def test_where_a_leaders_log_had_ended(run: Run, epoch: int, short_at: int, expected: tuple[str, str]) -> None:
    """What a leader writes itself, behind its election without the record, is no proof that the record was there."""
    run.change(1_500, leader=3)
    if short_at < REMOVED:
        shown(run, 3, short_at, epoch=epoch, end=0, high_watermark=0)
    made_anew(run, leader=1, isr=[1])
    value = run.send(0, SENT)
    run.read({0: value}, SENT + 50, epoch=0)
    run.change(ELECTED, leader=3, isr=[3], leader_recovery_state=1)
    if short_at > ELECTED:
        shown(run, 3, short_at, epoch=epoch, end=0, high_watermark=0)
    run.watermark(1, ELECTED + 200, epoch=1, observer="client-9", source="fetch", answered_by=3)
    run.change(ELECTED + 1_000, leader=1, isr=[1], leader_recovery_state=1)
    other = run.send(1, ELECTED + 1_100, offset=0)
    run.final_read({0: other}, 20_000, epoch=2)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("node", "exposed"), [
    pytest.param(1, False, id="by a broker that leads the deleted topic on"),
    pytest.param(2, True, id="by its own leader"),
])  # fmt: skip
def test_which_high_watermark_had_passed_it(run: Run, node: int, exposed: bool) -> None:
    """acks=1 promises the leader's log alone, until the high watermark has passed the record."""
    run.fault("isolate", 3_000, node=1, lasts=60_000)
    made_anew(run, leader=2)
    values = {offset: run.send(offset, SENT + offset, acks=1, answered_by=2) for offset in range(3)}
    shown(run, node, SENT + 400, epoch=0, end=100 if node == 1 else 3, high_watermark=100 if node == 1 else 3)
    run.change(ELECTED, leader=3, isr=[3])
    run.final_read({offset: values[offset] for offset in range(2)}, 20_000, epoch=0)

    assert judged(run) == [LOST if exposed else ("permitted", "R5")]
