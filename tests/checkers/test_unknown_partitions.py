"""Partitions of which a recording has no metadata: nothing is excused there, nobody is accused of what depends on them, and no checker fails."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_excuses_in_their_place import in_transaction
from tests.checkers.test_small_recordings import LOST, judged

PLACE = {"topic": "u", "partition": 0}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def received(run: Run, phase: str, records: Mapping[int, int], at: int, *, isolation: str, epoch: int | None) -> None:
    """Let a process read the topic from its beginning; in the final phase to its end."""
    process, end = {"tail": 80, "final": 99}[phase], max(records, default=-1) + 1
    asked = [(0, len(records)), (end, 0)] if phase == "final" else [(0, len(records))]
    of_poll = {"process": process, "phase": phase, **PLACE}
    for number, (position, count) in enumerate(asked):
        answer = {"position": position, "record_count": count, "high_watermark": end, "log_start_offset": 0}
        times = {"invoke_ns": (at + number) * MS, "complete_ns": (at + number) * MS, "outcome": "ok"}
        run.recorder.row("polls", **of_poll, **answer, **times, poll_index=number, isolation=isolation)
    for offset, value in records.items():
        run.recorder.row("reads", **of_poll, poll_index=0, log_offset=offset, value=value, leader_epoch=epoch)


@pytest.mark.parametrize("kind", ["kill", "clock-jump"])
def test_no_clock_excuses_what_stands_twice_where_nobody_knows_who_led(run: Run, kind: str) -> None:
    value = run.send(0, 100, topic="u", offset=0)
    run.fault(kind, 50, node=1, lasts=1000)
    received(run, "final", {0: value, 1: value}, 9000, isolation="read_uncommitted", epoch=None)

    assert judged(run, "duplicate") == [LOST]


@pytest.mark.parametrize("epoch", [None, 3])
def test_what_was_shown_of_a_transaction_is_not_judged_where_nobody_knows_who_led(run: Run, epoch: int | None) -> None:
    value = in_transaction(run, {"u": 0}, "info")["u"]
    received(run, "tail", {0: value}, 500, isolation="read_committed", epoch=epoch)
    received(run, "final", {}, 9000, isolation="read_committed", epoch=None)

    assert judged(run, "withdrawn") == [("unjudged", "")]
