"""Who joins the ISR holds what is committed by then: not a record of which the leader showed later that it was not, as it had been written meanwhile."""

from pathlib import Path

import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_small_recordings import judged

LOST, BY_R4 = ("violation", ""), ("permitted", "R4")
ALONE, WRITTEN, JOINED, SHOWN, ALONE_AGAIN, ELECTED = 2_000, 3_000, 4_000, 5_000, 6_000, 9_000


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Node 1 leads alone in leader epoch 1."""
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    run.change(ALONE, leader=1, isr=[1])
    return run


def asked(run: Run, high_watermark: int, at: int, *, epoch: int = 1, by: int | None = 1) -> None:
    run.watermark(
        high_watermark,
        at,
        epoch=epoch,
        observer="client-9",
        source="list_offsets",
        answered_by=by,
        asked_ns=(at - 1) * MS,
    )


@pytest.mark.parametrize(("high_watermark", "at", "complete", "leader", "expected"), [
    pytest.param(0, SHOWN, ALONE_AGAIN + 500, 1, BY_R4, id="acknowledged once its leader was alone again"),
    pytest.param(0, SHOWN, ALONE_AGAIN - 500, 1, LOST, id="acknowledged while the other one was in the ISR"),
    pytest.param(1, SHOWN, ALONE_AGAIN + 500, 1, LOST, id="committed already when it was asked"),
    pytest.param(0, JOINED - 500, ALONE_AGAIN + 500, 1, LOST, id="asked before the other one joined"),
    pytest.param(None, SHOWN, ALONE_AGAIN + 500, 1, LOST, id="nobody asked"),
    pytest.param(0, SHOWN, ALONE_AGAIN + 500, 3, LOST, id="the other one was elected"),
])  # fmt: skip
def test_who_joined_before_a_record_was_committed(
    run: Run, high_watermark: int | None, at: int, complete: int, leader: int, expected: tuple[str, str]
) -> None:
    value = run.send(0, WRITTEN, complete_ns=complete * MS, answered_by=1)
    run.change(JOINED, isr=[1, 3])
    if high_watermark is not None:
        asked(run, high_watermark, at)
    run.change(ALONE_AGAIN, leader=leader, isr=[leader])
    run.read({0: value}, ALONE_AGAIN + 600, epoch=1, answered_by=1)
    if leader == 1:
        run.change(ELECTED, leader=3, isr=[3], leader_recovery_state=1)
    other = run.send(1, ELECTED + 1_000, offset=0, answered_by=3)
    run.final_read({0: other}, 20_000, epoch=3)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("by", "expected"), [
    pytest.param(1, BY_R4, id="its leader"),
    pytest.param(3, LOST, id="a follower that serves readers: it hears of it later"),
    pytest.param(None, LOST, id="nobody knows who"),
])  # fmt: skip
def test_only_its_leader_says_what_is_not_committed_yet(run: Run, by: int | None, expected: tuple[str, str]) -> None:
    value = run.send(0, WRITTEN, complete_ns=(ALONE_AGAIN + 500) * MS, answered_by=1)
    run.change(JOINED, isr=[1, 3])
    asked(run, 0, SHOWN, by=by)
    run.change(ALONE_AGAIN, leader=1, isr=[1])
    run.read({0: value}, ALONE_AGAIN + 600, epoch=1, answered_by=1)
    run.change(ELECTED, leader=3, isr=[3], leader_recovery_state=1)
    other = run.send(1, ELECTED + 1_000, offset=0, answered_by=3)
    run.final_read({0: other}, 20_000, epoch=3)

    assert judged(run) == [expected]
