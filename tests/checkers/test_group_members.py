"""A group's members: commits of a generation that passed, records that nobody of the group received; in pairs."""

from pathlib import Path
from typing import Any

import pytest

from tests.checkers.recorded import MS, Run
from tribunal.checkers.judge.engine import judge_runs


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def committed(
    run: Run, process: int, generation: int, offset: int, at: int, outcome: str = "ok", group: str = "g"
) -> None:
    run.recorder.row(
        "commits", process=process, group=group, generation=generation, topic="t", partition=0, kind="commit",
        committed_offset=offset, invoke_ns=at * MS, complete_ns=(at + 2) * MS, outcome=outcome,
    )  # fmt: skip


def found(run: Run) -> list[tuple[Any, Any, Any]]:
    rows = [row.finding for row in judge_runs([run.finish()], "inline").findings]
    return [(one.kind, one.severity, one.log_offset) for one in rows if one.property_name == "group_members"]


def sent_and_read(run: Run, *received: int) -> None:
    values = [run.send(sequence, 100 + sequence) for sequence in range(3)]
    for offset in received:
        run.read({offset: values[offset]}, 200 + offset, process=50)
    run.final_read(dict(enumerate(values)))


@pytest.mark.parametrize("is_lossy", [False, True], ids=["", "a user's topic lost records"])
@pytest.mark.parametrize(
    ("at", "is_stale"), [pytest.param(303, True, id="after the new one's"), pytest.param(301, False, id="beside it")]
)
def test_a_commit_of_a_generation_that_passed_is_refused(run: Run, at: int, is_stale: bool, is_lossy: bool) -> None:
    sent_and_read(run, 0, 1, 2)
    committed(run, 50, 5, 2, 300)
    committed(run, 51, 4, 1, at)
    if is_lossy:
        run.fault("kill", 150, node=1, lost_from=0)

    assert found(run) == ([("stale_generation", "violation", 1)] if is_stale else [])


@pytest.mark.parametrize("is_lossy", [False, True], ids=["", "a disk lost records"])
@pytest.mark.parametrize(
    ("offset", "is_left_out"), [pytest.param(2, True, id="behind it"), pytest.param(1, False, id="up to it")]
)
def test_what_is_committed_was_received(run: Run, offset: int, is_left_out: bool, is_lossy: bool) -> None:
    sent_and_read(run, 0, 2)
    committed(run, 50, 5, offset, 300)
    if is_lossy:
        run.fault("kill", 150, node=1, lost_from=0)

    assert found(run) == ([("unconsumed", "violation", 1)] if is_left_out else [])


@pytest.mark.parametrize(
    ("allowed", "committed_at", "read_in", "severity"),
    [
        pytest.param(True, 55, None, "permitted", id="a position lay behind it before it was written"),
        pytest.param(True, None, 0, "permitted", id="what stood there was received"),
        pytest.param(True, None, 1, "violation", id="nobody had come there before"),
        pytest.param(False, 55, None, "violation", id="not allowed"),
    ],
)
def test_what_an_allowed_unclean_leader_writes_may_lie_behind_a_groups_position(
    tmp_path: Path, allowed: bool, committed_at: int | None, read_in: int | None, severity: str
) -> None:
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": allowed})
    run.change(40, isr=[1, 2])
    if read_in is not None:
        run.read({1: run.send(9, 42, offset=1, process=8, value=(8 << 40) + 9)}, 50, process=50, epoch=read_in)
    run.change(60, leader=3, isr=[3], leader_recovery_state=1)
    values = [run.send(sequence, 100 + sequence) for sequence in range(3)]
    for offset in (0, 2):
        run.read({offset: values[offset]}, 200 + offset, process=50, epoch=1)
    if committed_at is not None:
        committed(run, 50, 5, 2, committed_at)
    committed(run, 50, 5, 2, 300)
    run.final_read(dict(enumerate(values)), epoch=1)

    assert found(run) == [("unconsumed", severity, 1)]


SET_FORWARD = {"api": "alter_offset", "group": "g", "topic": "t", "partition": 0, "log_offset": 2, "outcome": "ok"}


@pytest.mark.parametrize(
    ("order", "severity"),
    [
        pytest.param({}, "permitted", id="beyond the record"),
        pytest.param({"log_offset": 1}, "violation", id="to the record"),
        pytest.param({"group": "h"}, "violation", id="another group's"),
        pytest.param({"partition": 1}, "violation", id="in another partition"),
        pytest.param({"outcome": "fail"}, "violation", id="refused"),
        pytest.param({"invoke_ns": 400 * MS, "complete_ns": 401 * MS}, "violation", id="behind its commits"),
    ],
)
@pytest.mark.parametrize("others", [[], [0, 1, 2]], ids=["", "another group received all"])
def test_an_operator_may_set_a_group_beyond_a_record(
    run: Run, order: dict[str, Any], severity: str, others: list[int]
) -> None:
    run.recorder.row("admin", **{**SET_FORWARD, "invoke_ns": 210 * MS, "complete_ns": 211 * MS} | order)
    values = [run.send(sequence, 100 + sequence) for sequence in range(3)]
    for process, offsets in ((50, [0, 2]), (60, others)):
        for offset in offsets:
            run.read({offset: values[offset]}, 200 + offset, process=process)
    committed(run, 50, 5, 3, 300)
    if others:
        committed(run, 60, 1, 3, 300, group="h")
    run.final_read(dict(enumerate(values)))

    assert found(run) == [("unconsumed", severity, 1)]


@pytest.mark.parametrize(
    ("outcome", "is_left_out"),
    [pytest.param("info", False, id="never answered"), pytest.param("fail", True, id="refused")],
)
def test_who_received_a_record_and_committed_it_without_an_answer_was_a_member(
    run: Run, outcome: str, is_left_out: bool
) -> None:
    values = [run.send(sequence, 100 + sequence) for sequence in range(3)]
    run.read({0: values[0], 1: values[1]}, 200, process=50)
    committed(run, 50, 5, 2, 210, outcome)
    run.read({2: values[2]}, 220, process=51)
    committed(run, 51, 6, 3, 230)
    run.final_read(dict(enumerate(values)))

    wanted = [("unconsumed", "violation", 0), ("unconsumed", "violation", 1)] if is_left_out else []
    assert found(run) == wanted


@pytest.mark.parametrize(
    ("topic", "severity"),
    [
        pytest.param("__consumer_offsets", "permitted", id="generations lie there"),
        pytest.param("elsewhere", "violation", id="they lie elsewhere"),
    ],
)
def test_an_unclean_leader_of_the_groups_topic_may_count_generations_anew(
    tmp_path: Path, topic: str, severity: str
) -> None:
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    created = {"partition_id": 0, "replicas": [1, 2, 3], "isr": [1, 2], "leader": 1, "leader_epoch": 0}
    run.metadata("PartitionRecord", 0, topic=topic, **created)
    run.metadata("PartitionChangeRecord", 302, topic=topic, partition_id=0, isr=[3], leader=3, leader_recovery_state=1)
    sent_and_read(run, 0, 1, 2)
    committed(run, 50, 5, 2, 250)
    committed(run, 50, 1, 2, 310)

    assert found(run) == [("stale_generation", severity, 2)]


@pytest.mark.parametrize(
    ("reader", "severity"),
    [pytest.param(50, "permitted", id="a member"), pytest.param(60, "violation", id="who is no member")],
)
def test_only_members_had_read_on_beyond_what_a_group_lacks(tmp_path: Path, reader: int, severity: str) -> None:
    """Process 51 received the record, but all that it committed was refused."""
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    run.change(40, isr=[1, 2])
    run.read({1: run.send(9, 42, offset=1, process=8, value=(8 << 40) + 9)}, 50, process=reader, epoch=0)
    run.change(60, leader=3, isr=[3], leader_recovery_state=1)
    values = [run.send(sequence, 100 + sequence) for sequence in range(3)]
    for process, offset in ((50, 0), (51, 1), (50, 2)):
        run.read({offset: values[offset]}, 200 + offset, process=process, epoch=1)
    committed(run, 51, 4, 2, 250, "fail")
    committed(run, 50, 5, 3, 300)
    run.final_read(dict(enumerate(values)), epoch=1)

    assert found(run) == [("unconsumed", severity, 1)]
