"""A topic that was deleted and created anew, where both have one name: each one's leader epochs are its own."""

from pathlib import Path
from typing import Any

import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_sql import agree

REMOVED, ANEW, END = 4_000, 4_100, 9_000


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Node 1 leads epoch 0 of the first topic, node 2 leads epoch 0 of the second one; an operator has ordered it."""
    run = Run(tmp_path / "run")
    run.recorder.row(
        "admin", api="delete_topic", topic="t", invoke_ns=(REMOVED - 10) * MS, complete_ns=REMOVED * MS, outcome="ok"
    )
    return run


def made_anew(run: Run, *, leader: int = 2, turn: int | None = None) -> None:
    """Delete the topic and create it anew; `turn`: when leader epoch 1 of the first topic began."""
    if turn is not None:
        run.change(turn, leader=3, isr=[3, 2])
    run.metadata("RemoveTopicRecord", REMOVED)
    created = {"replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": leader, "leader_epoch": 0}
    run.metadata("PartitionRecord", ANEW, partition_id=0, **created)


def kinds(run: Run, *properties: str) -> list[str]:
    """What kernels and SQL of these properties find alike."""
    return sorted(agree(run.finish(), *properties))


def led(run: Run, node: int, at: int, *, epoch: int = 0, high_watermark: int = 0, **more: Any) -> None:
    run.watermark(high_watermark, at, epoch=epoch, observer=f"node-{node}", **more)


def test_each_topic_has_a_leader_of_epoch_0(run: Run) -> None:
    made_anew(run)
    led(run, 1, 1_000)
    led(run, 2, 6_000)

    assert kinds(run, "leaders") == []


@pytest.mark.parametrize(("node", "at", "expected"), [
    pytest.param(2, 2_000, ["leader_not_elected", "two_leaders"], id="who leads the second topic, in the time of the first"),
    pytest.param(3, 2_000, ["leader_not_elected", "two_leaders"], id="who leads neither, in the time of the first"),
    pytest.param(3, 7_000, ["leader_not_elected", "two_leaders"], id="who leads neither, in the time of the second"),
    pytest.param(1, 7_000, ["leader_not_elected", "two_leaders"], id="who led the first, long after that is known to everybody"),
    pytest.param(2, ANEW - 900, [], id="a little before it was observed"),
    pytest.param(1, ANEW + 900, [], id="a little after it was observed"),
])  # fmt: skip
def test_another_one_that_leads_was_not_elected(run: Run, node: int, at: int, expected: list[str]) -> None:
    made_anew(run)
    led(run, 1, 1_000)
    led(run, 2, 6_000)
    led(run, node, at)

    assert kinds(run, "leaders") == expected


@pytest.mark.parametrize(("at", "expected"), [
    pytest.param(7_000, [], id="while it is cut off"),
    pytest.param(30_000, ["leader_not_elected", "two_leaders"], id="long after the heal"),
])  # fmt: skip
def test_a_broker_that_is_cut_off_leads_the_deleted_topic_on(run: Run, at: int, expected: list[str]) -> None:
    run.fault("isolate", 3_000, node=1, lasts=6_000)
    made_anew(run)
    led(run, 1, 1_000)
    led(run, 2, 6_000)
    led(run, 1, at)

    assert kinds(run, "leaders") == expected


def test_a_broker_that_is_cut_off_leads_no_epoch_that_it_never_led(run: Run) -> None:
    run.fault("isolate", 3_000, node=3, lasts=6_000)
    made_anew(run)
    led(run, 2, 6_000)
    led(run, 3, 7_000)

    assert kinds(run, "leaders") == ["leader_not_elected", "two_leaders"]


def test_what_a_process_led_before_it_ended_it_does_not_lead_on(run: Run) -> None:
    run.fault("kill", 3_000, node=1, lasts=90_000)
    run.node(1, "killed", 3_000)
    made_anew(run)
    led(run, 2, 6_000)
    led(run, 1, 7_000)

    assert kinds(run, "leaders") == ["leader_not_elected", "two_leaders"]


def shown(run: Run, at: int, by: int, *, epoch: int = 0, high_watermark: int = 0, **more: Any) -> None:
    asked = {"asked_ns": (at - 1) * MS, "answered_by": by, "observer": "probe", "source": "fetch"}
    run.watermark(high_watermark, at, epoch=epoch, **asked | more)


@pytest.mark.parametrize(("at", "expected"), [
    pytest.param(6_000, [], id="of another topic"),
    pytest.param(2_000, ["log_start_back"], id="of the same topic"),
])  # fmt: skip
def test_the_log_start_of_a_topic_made_anew_is_another_one(run: Run, at: int, expected: list[str]) -> None:
    made_anew(run, leader=1)
    shown(run, 1_000, 1, log_start_offset=2, high_watermark=5)
    shown(run, at, 1, log_start_offset=0, high_watermark=5)

    assert kinds(run, "watermarks") == expected


@pytest.mark.parametrize(("at", "expected"), [
    pytest.param(6_000, [], id="of another topic"),
    pytest.param(1_500, ["high_watermark_below_former"], id="of the same topic"),
])  # fmt: skip
def test_what_the_topic_made_anew_shows_in_an_older_epoch_is_no_former_end(
    run: Run, at: int, expected: list[str]
) -> None:
    made_anew(run, turn=1_800)
    shown(run, at, 1 if at < REMOVED else 2, high_watermark=100)
    shown(run, 2_000, 3, epoch=1, high_watermark=5)
    shown(run, 2_500, 3, epoch=1, high_watermark=7)

    assert kinds(run, "watermarks") == expected


@pytest.mark.parametrize(("leader", "expected"), [
    pytest.param(1, [], id="of the other topic's leader"),
    pytest.param(2, ["last_stable_offset_back"], id="of its own leader"),
])  # fmt: skip
def test_only_the_leader_of_its_own_topic_is_compared(run: Run, leader: int, expected: list[str]) -> None:
    made_anew(run)
    shown(run, 6_000, leader, high_watermark=5, last_stable_offset=5)
    shown(run, 6_500, 2, high_watermark=5, last_stable_offset=4, observer="consumer")

    assert kinds(run, "watermarks") == expected


def test_a_last_stable_offset_is_not_bounded_by_what_the_former_topic_showed(run: Run) -> None:
    made_anew(run)
    shown(run, 1_000, 1, high_watermark=9)
    shown(run, 6_000, 2, high_watermark=1, last_stable_offset=2)

    assert kinds(run, "watermarks") == ["last_stable_offset_beyond_high_watermark"]


@pytest.mark.parametrize(("at", "expected"), [
    pytest.param(7_000, [], id="another topic's leader shows less"),
    pytest.param(2_000, ["unexposed"], id="its own leader shows no more"),
])  # fmt: skip
def test_what_another_topic_shows_does_not_say_that_an_end_had_not_moved(
    run: Run, at: int, expected: list[str]
) -> None:
    made_anew(run, leader=1)
    value = run.send(3, 900)
    run.poll(90, "tail", 3, 1, 1_000, high_watermark=3, leader_epoch=0)
    read = {"process": 90, "poll_index": 0, "log_offset": 3, "value": value, "leader_epoch": 0, "phase": "tail"}
    run.recorder.row("reads", topic="t", partition=0, **read)
    shown(run, at, 1, high_watermark=2 if at > REMOVED else 3)

    assert kinds(run, "consumers") == expected


@pytest.mark.parametrize(("epoch", "at", "expected"), [
    pytest.param(1, 2_000, ["read_epoch_of_nobody"], id="which nobody led in its topic"),
    pytest.param(1, 6_000, ["read_epoch_of_nobody"], id="which nobody led in either"),
    pytest.param(2, 6_000, [], id="which somebody led in the former one: a client may have fetched it before"),
    pytest.param(3, 2_000, [], id="which may be behind what was observed"),
    pytest.param(1, ANEW, [], id="at the time of the deletion"),
])  # fmt: skip
def test_a_leader_epoch_is_of_nobody_in_its_own_topic(run: Run, epoch: int, at: int, expected: list[str]) -> None:
    run.change(500, leader=-1, isr=[2, 3])
    run.change(600, leader=2)
    made_anew(run)
    for time in (5_000, 5_100):
        run.change(time, leader=-1)
        run.change(time + 50, leader=3)
    run.read({0: run.send(0, 400)}, at, epoch=epoch)

    assert [one for one in kinds(run, "log_order") if one != "unjudged"] == expected
