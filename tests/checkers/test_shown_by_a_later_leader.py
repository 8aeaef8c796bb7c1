"""acks=1 promises the leader's log alone until a high watermark has passed the record: not one of a leader whose log had ended before it."""

from pathlib import Path

import pytest

from tests.checkers.recorded import Run
from tests.checkers.test_shown_of_two_topics import LOST, shown
from tests.checkers.test_small_recordings import judged

SENT, ELECTED = 6_000, 6_200  # sooner behind the answer than the clocks of nodes differ
PERMITTED = ("permitted", "R5")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


@pytest.mark.parametrize(("end", "stated", "expected"), [
    pytest.param(0, 0, PERMITTED, id="its log ended before the record"),
    pytest.param(1, 0, LOST, id="its log held something there"),
    pytest.param(0, None, LOST, id="nobody knows in which leader epoch the record was written"),
])  # fmt: skip
def test_what_a_later_leader_shows(run: Run, end: int, stated: int | None, expected: tuple[str, str]) -> None:
    if stated is not None:
        shown(run, 1, 1_500, epoch=stated, end=0, high_watermark=0)
    run.send(0, SENT, acks=1, answered_by=1)
    run.change(ELECTED, leader=2, isr=[2, 3])
    shown(run, 2, ELECTED + 10, epoch=1, end=end, high_watermark=0)
    run.send(1, ELECTED + 100, acks=0)
    run.watermark(1, ELECTED + 200, epoch=1, observer="client-9", source="fetch", answered_by=2)
    run.change(ELECTED + 400, leader=3, isr=[3])
    other = run.send(2, ELECTED + 500, offset=0, answered_by=3)
    run.final_read({0: other}, 20_000, epoch=2)

    assert judged(run) == [expected]
