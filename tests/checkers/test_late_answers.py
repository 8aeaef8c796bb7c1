"""What an answer shows that was on its way for long: no more than what its broker was when it ended."""

from pathlib import Path

import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_small_recordings import LOST, committed, out_of_sight

BY_R9 = ("permitted", "R9")
GONE, SHRUNK, LATE = 1_000, 1_900, 2_300


@pytest.mark.parametrize(("asked", "gone", "answered_by", "expected"), [
    pytest.param(900, GONE, 1, BY_R9, id="it ended before the isr had shrunk"),
    pytest.param(900, SHRUNK + 40, 1, LOST, id="it ended behind that"),
    pytest.param(900, GONE, None, LOST, id="nobody knows who answered"),
    pytest.param(None, GONE, 1, LOST, id="nobody knows when it was asked"),
])  # fmt: skip
def test_the_last_stable_offset_of_a_process_that_has_ended(
    tmp_path: Path, asked: int | None, gone: int, answered_by: int | None, expected: tuple[str, str]
) -> None:
    """Both holders of a marker fell, and the leader's disk lost it (R1); an answer that shows it arrived behind that (found by a search)."""
    run = Run(tmp_path / "run")
    for node in (1, 2, 3):
        run.node(node, "start", 0)
    run.change(50, isr=[1, 2])
    value = committed(run)
    for node in (1, 2):
        run.node(node, "killed", gone if node == 1 else GONE)
    run.fault("kill", GONE, node=2, index=0)
    run.fault("power-loss", gone, node=1, lost_from=1, index=1)
    run.change(SHRUNK, isr=[1], eligible_leader_replicas=[2])
    run.change(1_950, leader=-1, isr=[], eligible_leader_replicas=[2, 1])
    run.registered(2, 1_960, previous=-1, fenced=False)
    run.change(1_960, eligible_leader_replicas=[1])
    run.registered(1, 1_980, previous=-1, fenced=False)
    run.change(1_980, eligible_leader_replicas=[], last_known_elr=[1])
    run.change(2_000, leader=1, isr=[1], leader_recovery_state=1, last_known_elr=[])
    who = {} if answered_by is None else {"answered_by": answered_by}
    when = {} if asked is None else {"asked_ns": asked * MS}
    run.watermark(2, LATE, epoch=0, observer="client-9", source="fetch", last_stable_offset=2, **who, **when)

    assert out_of_sight(run, value=value) == [expected]
