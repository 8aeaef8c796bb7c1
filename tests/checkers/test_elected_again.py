"""A leader that was elected uncleanly wrote over what another one held; that one led again, and handed out its own; then the first is elected once more.

What stands in the end is older than the leader epoch that handed the record out last: the last election took it, and permits it or does not.
"""

from pathlib import Path

import pytest

from tests.checkers.recorded import Run
from tests.checkers.test_small_recordings import BY_R4, LOST, NO_ELR, UNCLEAN, judged

SENT, OVER_IT, BACK, AGAIN = 1_000, 3_000, 5_000, 7_000


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "run", **UNCLEAN, **NO_ELR)
    run.change(500, isr=[1])
    return run


@pytest.mark.parametrize(("last", "allowed", "expected"), [
    pytest.param({"leader_recovery_state": 1, "isr": [2]}, True, BY_R4, id="elected uncleanly once more"),
    pytest.param({"isr": [2]}, True, LOST, id="elected cleanly, having joined the isr"),
    pytest.param({"leader_recovery_state": 1, "isr": [2]}, False, LOST, id="elected uncleanly when that was forbidden"),
])  # fmt: skip
def test_the_last_election_is_the_one_that_permits(
    run: Run, last: dict[str, object], allowed: bool, expected: tuple[str, str]
) -> None:
    value = run.send(0, SENT, answered_by=1)
    run.read({0: value}, SENT + 100, epoch=0, process=91, leader_epoch=0)
    run.change(OVER_IT, leader=2, isr=[2], leader_recovery_state=1)
    run.watermark(0, OVER_IT + 10, epoch=1, observer="node-2", log_end_offset=0)
    other = run.send(1, OVER_IT + 100, acks=0)
    run.change(BACK, leader=1, isr=[1], leader_recovery_state=1)
    run.read({0: value}, BACK + 100, epoch=0, process=92, leader_epoch=2)
    if not allowed:
        named = {"resource_type": 2, "resource_name": "t", "name": "unclean.leader.election.enable", "value": "false"}
        run.metadata("ConfigRecord", BACK + 500, **named)
    if "leader_recovery_state" not in last:
        run.change(BACK + 600, isr=[1, 2], leader_recovery_state=0)
    run.change(AGAIN, leader=2, **last)
    run.final_read({0: other}, 20_000, epoch=1)

    assert judged(run) == [expected]
