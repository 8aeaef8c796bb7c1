"""The log as one object: pairs of a log that is in order and its neighbour that is not."""

from pathlib import Path
from typing import Any

import pytest

from tests.checkers.recorded import Run
from tests.checkers.test_lost_writes import found
from tests.checkers.test_ranges import cut_everything
from tests.checkers.test_sql import agree


def kinds(run: Run) -> list[object]:
    return [(kind, severity) for kind, severity, *_ in found(run.finish())]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def test_what_was_read_stays_where_it_was(run: Run) -> None:
    values = [run.send(i, 100 + i) for i in range(3)]
    run.read(dict(enumerate(values)), 150)
    run.final_read(dict(enumerate(values)))

    assert kinds(run) == []


def test_another_value_at_an_offset_that_was_read(run: Run) -> None:
    values = [run.send(i, 100 + i, outcome="info", complete_ns=None, log_offset=None) for i in range(2)]
    run.read({0: values[0]}, 150)
    run.final_read({0: values[1]})

    assert ("offset_conflict", "violation") in kinds(run)


@pytest.mark.parametrize(
    ("joined_at", "severity"),
    [
        pytest.param(60, "permitted", id="before it was sent"),
        pytest.param(110, "permitted", id="before it was seen: an attempt may be written late"),
        pytest.param(1000, "violation", id="after: it has it"),
    ],
)
def test_who_joined_the_isr_holds_what_had_been_seen_by_then(tmp_path: Path, joined_at: int, severity: str) -> None:
    run = Run(tmp_path, **{"unclean.leader.election.enable": True})
    run.change(50, isr=[1, 2])
    unknown = {"outcome": "info", "complete_ns": None, "log_offset": None}
    if joined_at < 100:
        run.change(joined_at, isr=[1, 2, 3])
    value = run.send(0, 100, **unknown)
    if joined_at == 110:
        run.change(joined_at, isr=[1, 2, 3])
    run.change(130, isr=[1, 2])
    run.watermark(1, 140, epoch=0)
    run.read({0: value}, 150)
    if joined_at > 150:
        run.change(joined_at, isr=[1, 2, 3])
        run.change(joined_at + 10, isr=[1, 2])
    run.change(1200, isr=[3], leader=3, leader_recovery_state=1, eligible_leader_replicas=[])
    run.final_read({0: run.send(1, 1300, **unknown)}, at=1900, epoch=1)

    assert ("offset_conflict", severity) in kinds(run)


def test_a_replica_that_can_lead_holds_another_value(run: Run) -> None:
    values = [run.send(i, 100 + i) for i in range(2)]
    run.final_read(dict(enumerate(values)))
    for node in (1, 2):
        run.log(node, dict(enumerate(values)))
    run.log(3, {0: values[0], 1: run.send(2, 120, outcome="info", complete_ns=None, log_offset=None)})

    assert kinds(run) == [("diverged", "violation"), ("replica_differs", "violation")]


def test_a_replica_that_cannot_lead_may_hold_anything(run: Run) -> None:
    run.change(50, isr=[1, 2])
    values = [run.send(i, 100 + i) for i in range(2)]
    run.final_read(dict(enumerate(values)))
    run.log(3, {0: values[0], 1: run.send(2, 120, outcome="info", complete_ns=None, log_offset=None)})

    assert kinds(run) == []


def test_an_acknowledged_offset_is_where_the_record_stands(run: Run) -> None:
    value = run.send(0, 100, offset=5)
    run.final_read({0: value})

    assert kinds(run) == [("moved", "violation")]


def test_an_earlier_attempt_may_be_all_that_an_allowed_unclean_election_brings_back(tmp_path: Path) -> None:
    """Leader 3 took the first attempt and was cut off; 1 and 2 took the second, were lost, and 3 was elected again."""
    run = Run(tmp_path, **{"unclean.leader.election.enable": True})
    run.change(50, isr=[1, 2])
    value = run.send(0, 100, offset=5)
    run.change(200, isr=[3], leader=3, leader_recovery_state=1, eligible_leader_replicas=[])
    run.change(300, isr=[3, 1, 2], leader_recovery_state=0)
    run.final_read({0: value})

    assert ("moved", "permitted") in kinds(run)


def test_a_clean_election_moves_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, **{"unclean.leader.election.enable": True})
    run.change(50, isr=[1, 2])
    value = run.send(0, 100, offset=5)
    run.change(200, isr=[2], leader=2, eligible_leader_replicas=[1])
    run.change(300, isr=[2, 1, 3], eligible_leader_replicas=[])
    run.final_read({0: value})

    assert kinds(run) == [("moved", "violation")]


@pytest.mark.parametrize(
    ("worker_class", "expected"), [("idempotent", ("reordered", "violation")), ("plain", ("overtaken", "note"))]
)
def test_a_producers_order(run: Run, worker_class: str, expected: tuple[str, str]) -> None:
    first = run.send(0, 100, worker_class=worker_class, offset=1, complete_ns=900_000_000)
    second = run.send(1, 101, worker_class=worker_class, offset=0, complete_ns=900_000_000)
    run.final_read({0: second, 1: first})

    assert kinds(run) == [expected]


def test_a_record_stands_before_one_that_had_completed_before_it_was_sent(run: Run) -> None:
    first = run.send(0, 100, worker_class="plain", offset=1)
    second = run.send(1, 200, worker_class="plain", offset=0)
    run.final_read({0: second, 1: first})

    assert ("real_time_order", "violation") in kinds(run)


def test_an_offset_that_holds_nothing(run: Run) -> None:
    values = [run.send(i, 100 + i, offset=2 * i) for i in range(2)]
    run.final_read({0: values[0], 2: values[1]})
    for node in (1, 2, 3):
        run.log(node, {0: values[0], 2: values[1]})

    assert kinds(run) == [("gap", "violation"), ("replicas_lack", "violation")]


def test_a_retry_that_is_written_late_does_not_put_others_before_their_time(run: Run) -> None:
    """The second attempt is answered; the first one was under way for a second and is written behind another record."""
    twice = run.send(0, 100, worker_class="plain", attempts=2, offset=0)
    other = run.send(1, 200, worker_class="plain", offset=1)
    run.final_read({0: twice, 1: other, 2: twice})

    assert kinds(run) == [("repeated", "note")]


def test_the_attempt_that_was_answered_says_when_it_stood_there(run: Run) -> None:
    twice = run.send(0, 100, worker_class="plain", attempts=2, offset=2)
    other = run.send(1, 200, worker_class="plain", offset=1)
    run.final_read({0: twice, 1: other, 2: twice})

    assert ("real_time_order", "violation") in kinds(run)


@pytest.mark.parametrize(("epochs", "damaged", "expected"), [
    pytest.param([0, 0, 1, 1], {}, [], id="they go up"),
    pytest.param([0, 1, 0, 1], {}, [2], id="one goes back"),
    pytest.param([0, None, 0, 1], {}, [], id="nobody knows of one"),
    pytest.param([1, None, 0, 1], {}, [2], id="behind one that nobody knows"),
    pytest.param([0, 7, 0, 1], {"lost_from": 1, "lost_end": 2, "unseen_end": 2}, [], id="the newer one was damaged"),
    pytest.param([0, 1, 0, 1], {"lost_from": 2, "lost_end": 3, "unseen_end": 3}, [], id="the older one was"),
    pytest.param([0, 1, 0, 1], {"lost_from": 0, "lost_end": 1, "unseen_end": 1}, [2], id="another one was"),
    pytest.param([0, 1, 0, 1], {"lost_from": 1, "lost_end": 2}, [2], id="it was cut off, and not damaged"),
])  # fmt: skip
@pytest.mark.parametrize("phase", ["final", "tail"])
def test_leader_epochs_go_up_along_what_one_answer_hands_out(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    epochs: list[int | None],
    damaged: dict[str, Any],
    expected: list[int],
    phase: str,
) -> None:
    values = [run.send(i, 100 + i) for i in range(4)]
    if damaged:
        run.fault("bit-flip", 200, node=1, **damaged)
    reader = 99 if phase == "final" else 90
    run.poll(reader, phase, 0, 4, 900, high_watermark=4)
    for offset, epoch in enumerate(epochs):
        place = {"topic": "t", "partition": 0, "log_offset": offset, "value": values[offset], "leader_epoch": epoch}
        run.recorder.row("reads", process=reader, poll_index=run.polls - 1, phase=phase, **place)
    if phase == "final":
        run.poll(reader, phase, 4, 0, 901, high_watermark=4)
    else:
        run.final_read(dict(enumerate(values)), at=1000)
    back = [("read_epoch_back", "violation", "", offset) for offset in expected]

    assert [one for one in found(run.finish()) if one[0] == "read_epoch_back"] == back
    assert agree(run.run_dir, "log_order")["read_epoch_back"] == len(back)
    cut_everything(monkeypatch, 2)
    assert [one for one in found(run.run_dir) if one[0] == "read_epoch_back"] == back


@pytest.mark.parametrize(("epoch", "damaged", "mode", "expected"), [
    pytest.param(0, {}, "kraft", 0, id="the first one"),
    pytest.param(1, {}, "kraft", 1, id="nobody led: the leader had been taken away"),
    pytest.param(2, {}, "kraft", 0, id="somebody led again"),
    pytest.param(3, {}, "kraft", 1, id="no change of the metadata began it"),
    pytest.param(5, {}, "kraft", 0, id="the last one"),
    pytest.param(6, {}, "kraft", 0, id="one that may have begun when nobody observed any more"),
    pytest.param(None, {}, "kraft", 0, id="nobody knows which"),
    pytest.param(3, {}, "zookeeper", 0, id="not each state is observed in ZooKeeper mode"),
    pytest.param(3, {"lost_from": 1, "lost_end": 2, "unseen_end": 2}, "kraft", 0, id="its batch was damaged"),
    pytest.param(3, {"lost_from": 0, "lost_end": 1, "unseen_end": 1}, "kraft", 1, id="another batch was"),
])  # fmt: skip
def test_a_record_is_of_a_leader_epoch_in_which_somebody_led(
    run: Run, monkeypatch: pytest.MonkeyPatch, epoch: int | None, damaged: dict[str, Any], mode: str, expected: int
) -> None:
    values = [run.send(i, 100 + i) for i in range(3)]
    for at, leader, number in ((200, -1, 1), (300, 2, 2), (400, 3, 5)):
        run.metadata(
            "PartitionRecord", at, partition_id=0, replicas=[1, 2, 3], isr=[2, 3], leader=leader, leader_epoch=number
        )
    if damaged:
        run.fault("bit-flip", 450, node=3, **damaged)
    run.poll(90, "tail", 1, 1, 500, high_watermark=3)
    place = {"topic": "t", "partition": 0, "log_offset": 1, "value": values[1], "leader_epoch": epoch}
    run.recorder.row("reads", process=90, poll_index=run.polls - 1, phase="tail", **place)
    run.final_read(dict(enumerate(values)), at=1000)
    wrong = [("read_epoch_of_nobody", "violation", "", 1)] * expected

    assert [one for one in found(run.finish(mode=mode)) if one[0] == "read_epoch_of_nobody"] == wrong
    assert agree(run.run_dir, "log_order")["read_epoch_of_nobody"] == len(wrong)
    cut_everything(monkeypatch, 2)
    assert [one for one in found(run.run_dir) if one[0] == "read_epoch_of_nobody"] == wrong
