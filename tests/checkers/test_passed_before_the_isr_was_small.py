"""A high watermark moves over no ISR below min ISR: what a leader shows that is alone had been passed before, and who was in the ISR then held it."""

from pathlib import Path

import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_small_recordings import judged

LOST, BY_R1 = ("violation", ""), ("permitted", "R1")
SENT, ALONE, FALLEN = 1_000, 2_000, 4_000


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Nodes 2 and 3 are the ISR of min ISR 2, and 3 leads in leader epoch 1."""
    run = Run(tmp_path / "run")
    run.change(50, isr=[2, 3], leader=3)
    return run


def fell(run: Run, node: int, at: int) -> None:
    run.node(node, "killed", at)
    run.fault("wipe", at + 10, node=node, lost_from=0, index=node)
    run.registered(node, at + 50, previous=-1)


@pytest.mark.parametrize(("sent", "asked", "fallen", "expected"), [
    pytest.param(SENT, None, (2, 3), BY_R1, id="both who held it fell"),
    pytest.param(SENT, None, (3,), LOST, id="one of them has it still"),
    pytest.param(ALONE + 1_000, None, (2, 3), LOST, id="the leader that shows it was alone when it was written"),
    pytest.param(SENT, ALONE + 1_000, (2, 3), LOST, id="it had not been passed yet when its leader was alone"),
])  # fmt: skip
def test_who_held_what_a_leader_shows_that_is_alone(
    run: Run, sent: int, asked: int | None, fallen: tuple[int, ...], expected: tuple[str, str]
) -> None:
    """A reader gets the record of a producer that asks for no answer when leader 3 is alone: it was known to hold it, and 2 before (found by the search)."""
    value = run.send(0, sent, acks=0)
    if 2 in fallen:
        fell(run, 2, ALONE - 100)
    run.change(ALONE, isr=[3])
    if asked is not None:
        at_ns = (asked - 1) * MS
        run.watermark(0, asked, epoch=1, observer="client-9", source="list_offsets", answered_by=3, asked_ns=at_ns)
    run.read({0: value}, ALONE + 1_500, epoch=1, answered_by=3)
    run.watermark(1, ALONE + 1_600, epoch=1, observer="node-3", log_end_offset=1)
    fell(run, 3, FALLEN)
    run.change(FALLEN + 500, isr=[], leader=-1, eligible_leader_replicas=[], last_known_elr=[3])
    run.change(FALLEN + 510, isr=[3], leader=3, leader_recovery_state=1)
    other = run.send(1, FALLEN + 1_000, offset=0, answered_by=3)
    run.final_read({0: other}, 20_000, epoch=3)

    assert judged(run, "offset_conflict") == [expected]


@pytest.mark.parametrize(("isr", "shown_before", "fallen", "expected"), [
    pytest.param([2, 3], 4, (2, 3), BY_R1, id="both who held it fell"),
    pytest.param([2, 3], 4, (3,), LOST, id="one of them has it still"),
    pytest.param([2, 3], 9, (2, 3), BY_R1, id="the former leader had shown it"),
    pytest.param([3], 4, (3,), LOST, id="no ISR ever was large enough for it"),
])  # fmt: skip
def test_who_held_what_a_new_leader_shows_at_first_that_is_alone(
    tmp_path: Path, isr: list[int], shown_before: int, fallen: tuple[int, ...], expected: tuple[str, str]
) -> None:
    """What its predecessor had committed last it shows itself, before anybody had seen it (found by the search, seed 1347952797)."""
    run = Run(tmp_path / "run")
    run.change(50, isr=isr, leader=2 if 2 in isr else 3)
    run.watermark(shown_before, 500, epoch=1, observer="node-2", log_end_offset=9)
    run.change(ALONE, isr=[3], leader=3, eligible_leader_replicas=[2])
    run.watermark(9, ALONE + 10, epoch=2, observer="node-3", log_end_offset=9)
    if 2 in fallen:
        fell(run, 2, ALONE + 500)
        run.change(ALONE + 600, eligible_leader_replicas=[])
    fell(run, 3, FALLEN)
    run.change(FALLEN + 500, isr=[], leader=-1, eligible_leader_replicas=[], last_known_elr=[3])
    run.change(FALLEN + 510, isr=[3], leader=3, leader_recovery_state=1)
    for high_watermark, at in ((5, 700), (7, 800)):
        run.watermark(high_watermark, FALLEN + at, epoch=4, observer="node-3", log_end_offset=high_watermark)

    assert judged(run, "high_watermark_below_former") == [expected]
