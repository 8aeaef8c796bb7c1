"""The logs of the ISR's members: pairs of replicas that are one log and their neighbours that are not."""

from pathlib import Path

import pytest

from tests.checkers.recorded import Run
from tests.checkers.test_lost_writes import found
from tests.checkers.test_sql import agree


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Four records, sent, and read to the end at 900 ms: the high watermark is 4."""
    run = Run(tmp_path / "run")
    run.final_read({offset: run.send(offset, 100 + offset) for offset in range(4)})
    return run


def log(*, without: tuple[int, ...] = (), **other: int) -> dict[int, int]:
    values = {offset: (7 << 40) + offset for offset in range(4) if offset not in without}
    return values | {int(name.removeprefix("at_")): value for name, value in other.items()}


def kinds(run: Run) -> list[tuple[object, object]]:
    return [(kind, severity) for kind, severity, *_ in found(run.finish()) if kind in KINDS]


KINDS = {"replica_differs", "replica_lacks", "replicas_lack", "epoch_back"}


def test_the_logs_of_the_isr_are_one_log(run: Run) -> None:
    for node in (1, 2, 3):
        run.log(node, log())

    assert kinds(run) == []


@pytest.mark.parametrize(("of_node_3", "expected"), [
    pytest.param(log(at_2=5), "replica_differs", id="another value"),
    pytest.param(log(without=(2,)), "replica_lacks", id="a hole"),
    pytest.param(log(without=(3,)), "replica_lacks", id="its end is missing"),
    pytest.param(log(without=(0,)), "replica_lacks", id="its beginning is missing"),
])  # fmt: skip
def test_a_member_of_the_isr_holds_something_else(run: Run, of_node_3: dict[int, int], expected: str) -> None:
    run.log(1, log())
    run.log(3, of_node_3)

    assert kinds(run) == [(expected, "violation")]


@pytest.mark.parametrize(("is_dumped", "expected"), [
    pytest.param(True, [("replica_lacks", "violation")], id="its log was read"),
    pytest.param(False, [], id="nobody knows"),
])  # fmt: skip
def test_a_member_of_the_isr_holds_nothing_at_all(run: Run, is_dumped: bool, expected: list[tuple[str, str]]) -> None:
    run.log(1, log())
    if is_dumped:
        run.dump(3)

    assert kinds(run) == expected


def test_what_stands_beyond_the_high_watermark_may_differ(run: Run) -> None:
    run.log(1, log(at_4=8))
    run.log(3, log(at_4=9))

    assert kinds(run) == []


def test_who_left_the_isr_may_lack_everything(run: Run) -> None:
    run.change(500, isr=[1, 2])
    run.log(1, log())
    run.log(3, log(without=(1, 2, 3)))

    assert kinds(run) == []


def test_a_member_of_the_elr_may_lack_nothing(run: Run) -> None:
    run.change(500, isr=[1], eligible_leader_replicas=[3])
    run.log(1, log())
    run.log(3, log(without=(3,)))

    assert kinds(run) == [("replica_lacks", "violation")]


@pytest.mark.parametrize(("lost_from", "joins", "expected"), [
    pytest.param(2, False, [], id="its own disk lost it"),
    pytest.param(3, False, [("replica_lacks", "violation")], id="its disk lost only what stands behind"),
    pytest.param(2, True, [("replica_lacks", "violation")], id="it was whole again"),
])  # fmt: skip
def test_only_its_own_disk_excuses_a_member(
    run: Run, lost_from: int, joins: bool, expected: list[tuple[str, str]]
) -> None:
    run.node(3, "start", 1)
    run.fault("truncate-segment", 300, node=3, lost_from=lost_from)
    if joins:
        run.change(500, isr=[1, 2])
        run.change(600, isr=[1, 2, 3])
    run.log(1, log())
    run.log(3, log(without=(2, 3)) | ({} if lost_from == 2 else {3: (7 << 40) + 3}))

    assert kinds(run) == expected


@pytest.mark.parametrize(("while_down", "lost_end", "expected"), [
    pytest.param(True, 4, [], id="all that it lacks had been on that disk"),
    pytest.param(True, 3, [("replica_lacks", "violation")], id="its log had ended before what it lacks"),
    pytest.param(True, None, [], id="nobody knows where its log had ended"),
    pytest.param(False, 3, [], id="the process wrote on behind the cut"),
])  # fmt: skip
def test_a_disk_lost_nothing_behind_the_end_that_its_log_had(
    run: Run, while_down: bool, lost_end: int | None, expected: list[tuple[str, str]]
) -> None:
    """A member that is back before it left the ISR joins nothing: what it was to fetch since then no fault took."""
    run.node(3, "start", 1)
    if while_down:
        run.node(3, "killed", 299)
    run.fault("truncate-segment", 300, node=3, lost_from=2, lost_end=lost_end)
    run.registered(3, at=400, previous=2, fenced=False)
    run.log(1, log())
    run.log(3, log(without=(2, 3)))

    assert kinds(run) == expected


@pytest.mark.parametrize(("while_down", "lacks", "hurt_again", "expected"), [
    pytest.param(True, (), False, [], id="it holds what was written from then on"),
    pytest.param(True, (5,), False, [("replica_lacks", "violation")], id="it lacks some of that"),
    pytest.param(True, (5,), True, [], id="its disk lost it later"),
    pytest.param(False, (5,), False, [], id="its files were cut while it ran"),
])  # fmt: skip
def test_who_is_elected_while_hurt_is_whole_from_then_on(
    tmp_path: Path, while_down: bool, lacks: tuple[int, ...], hurt_again: bool, expected: list[tuple[str, str]]
) -> None:
    """An unclean election makes its log the log; what it writes itself no disk has lost yet."""
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    sent = {offset: run.send(offset, 100 + offset, acks=1) for offset in range(2)}
    run.node(3, "start", 1)
    if while_down:
        run.node(3, "killed", 299)
    run.fault("truncate-segment", 300, node=3, lost_from=2)
    if while_down:
        run.registered(3, at=400, previous=2, fenced=False)
    run.change(500, leader=3, isr=[3], leader_recovery_state=1)
    run.change(600, isr=[1, 2, 3])
    run.change(700, leader=1)
    sent |= {offset: run.send(offset, 750 + offset) for offset in range(2, 6)}
    if hurt_again:
        run.fault("truncate-segment", 800, node=3, lost_from=5, index=1)
    run.final_read(sent, 2_000, epoch=2)
    for node in (1, 2, 3):
        run.log(node, {offset: value for offset, value in sent.items() if node != 3 or offset not in lacks})

    assert [one for one in kinds(run) if one[0] == "replica_lacks"] == expected


@pytest.mark.parametrize(("node", "unseen_end", "expected"), [
    pytest.param(3, 2, [], id="in bytes that no checksum covers"),
    pytest.param(3, None, ["epoch_back", "replica_differs"], id="in bytes that recovery sees"),
    pytest.param(3, 1, ["epoch_back", "replica_differs"], id="in a batch before"),
    pytest.param(2, 2, ["epoch_back", "replica_differs"], id="on another node"),
])  # fmt: skip
def test_a_flipped_leader_epoch_may_stay_with_its_batch(
    run: Run, node: int, unseen_end: int | None, expected: list[str]
) -> None:
    """A member that came back to the ISR has kept it: nothing that it compares shows it."""
    run.node(node, "start", 1)
    run.fault("bit-flip", 300, node=node, lost_from=1 if unseen_end != 1 else 0, unseen_end=unseen_end)
    run.change(500, isr=[one for one in (1, 2, 3) if one != node])
    run.change(600, isr=[1, 2, 3])
    run.log(1, log())
    run.log(3, {0: (7 << 40)})
    run.log(3, {1: (7 << 40) + 1}, epoch=262144)
    run.log(3, log(without=(0, 1)))

    assert sorted(kind for kind, _ in kinds(run)) == expected


def test_another_nodes_disk_is_no_excuse(run: Run) -> None:
    run.node(2, "start", 1)
    run.fault("truncate-segment", 300, node=2, lost_from=0)
    run.log(1, log())
    run.log(3, log(without=(2,)))

    assert kinds(run) == [("replica_lacks", "violation")]


def test_what_was_shown_before_an_unclean_election_need_not_be_there(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    run.watermark(4, 100, epoch=0)
    run.change(1_000, leader=3, isr=[3], leader_recovery_state=1)
    run.change(1_100, leader_recovery_state=0)
    run.change(1_200, isr=[1, 3])
    run.watermark(2, 2_000, epoch=1, observer="node-3")
    run.log(3, log(without=(2, 3)))
    run.log(1, log())

    assert kinds(run) == []


def test_what_was_shown_after_an_unclean_election_has_to_be_there(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    run.change(1_000, leader=3, isr=[3], leader_recovery_state=1)
    run.change(1_100, leader_recovery_state=0)
    run.change(1_200, isr=[1, 3])
    run.watermark(4, 2_000, epoch=1, observer="node-3")
    run.log(3, log())
    run.log(1, log(without=(2, 3)))

    assert kinds(run) == [("replica_lacks", "violation")]


def test_a_hole_that_all_replicas_share(run: Run) -> None:
    for node in (1, 2, 3):
        run.log(node, log(without=(2,)))

    assert ("replicas_lack", "violation") in kinds(run)


def test_replicas_begin_at_the_log_start(run: Run) -> None:
    run.watermark(4, 950, epoch=0, log_start_offset=2)
    run.log(1, log())
    run.log(3, log(without=(0, 1)))

    assert kinds(run) == []


def test_a_compacted_topic_may_have_holes_and_no_other_values(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", **{"log.cleanup.policy": "compact"})
    run.watermark(4, 100, epoch=0)
    run.log(1, log())
    run.log(3, log(without=(2,), at_1=5))

    assert kinds(run) == [("replica_differs", "violation")]


def test_epochs_go_up_along_a_log(run: Run) -> None:
    for node in (1, 2, 3):
        run.log(node, log(), turn=2)

    assert kinds(run) == []


def test_epochs_that_go_back_along_every_log(run: Run) -> None:
    for node in (1, 2, 3):
        run.log(node, {0: 7 << 40}, epoch=1)
        run.log(node, {offset: value for offset, value in log().items() if offset})

    assert kinds(run) == [("epoch_back", "violation")] * 3


def log_null(run: Run, node: int, offset: int, *, is_control: bool = False) -> None:
    """Record of a replica's final log that something stands at an offset whose value is none of ours."""
    place = {"topic": "t", "partition": 0, "log_offset": offset, "leader_epoch": 0}
    run.recorder.row("logs", node=node, **place, value=None, is_control=is_control)


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("of_node", [1, 3])
def test_a_value_that_is_none_of_ours_in_one_log_alone_differs(tmp_path: Path, of_node: int, is_read: bool) -> None:
    """Of the leader or of a follower, whether readers have the record or only the high watermark is known."""
    run = Run(tmp_path / "run")
    records = {offset: run.send(offset, 100 + offset) for offset in range(4)}
    run.watermark(4, 900, epoch=0)
    for node in (1, 2, 3):
        run.log(node, log(without=(2,) if node == of_node else ()))
    log_null(run, of_node, 2)
    if is_read:
        run.final_read(dict(records))

    facts = [one[:2] + one[3:] for one in found(run.finish())]
    assert {("replica_differs", "violation", 2)} <= {*facts} <= {
        ("replica_differs", "violation", 2), ("diverged", "violation", 2)
    }  # fmt: skip
    assert (("diverged", "violation", 2) in facts) is is_read
    assert agree(run.run_dir, "replicas", "log_order").total() == len(facts)


def test_beyond_the_high_watermark_one_log_alone_may_hold_it(run: Run) -> None:
    for node in (1, 2, 3):
        run.log(node, log())
    log_null(run, 3, 4)

    assert found(run.finish()) == []
    assert agree(run.run_dir, "replicas", "log_order") == {}


def test_who_left_the_isr_may_hold_it(run: Run) -> None:
    run.change(950, isr=[1, 2])
    for node in (1, 2, 3):
        run.log(node, log(without=(2,) if node == 3 else ()))
    log_null(run, 3, 2)

    assert found(run.finish()) == []
    assert agree(run.run_dir, "replicas", "log_order") == {}
