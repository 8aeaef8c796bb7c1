"""Watermarks: pairs of what a new leader may show and what it may not."""

from pathlib import Path
from typing import Any

import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_lost_writes import found
from tests.checkers.test_sql import agree


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def test_a_new_leader_may_show_a_lower_high_watermark(run: Run) -> None:
    run.watermark(9, 100, epoch=0)
    run.change(200, leader=2, isr=[2, 3])
    run.watermark(7, 300, epoch=1, observer="node-2")

    assert found(run.finish()) == []


def test_within_one_leader_epoch_it_may_not_go_back(run: Run) -> None:
    run.watermark(9, 100, epoch=0)
    run.watermark(7, 300, epoch=0)

    assert found(run.finish()) == [("high_watermark_back", "violation", "", 7)]


@pytest.mark.parametrize(("by", "kinds"), [
    pytest.param(2, [], id="a follower may show less than its leader"),
    pytest.param(1, ["high_watermark_back", "last_stable_offset_back"], id="the leader itself"),
])  # fmt: skip
def test_answers_of_two_replicas_are_not_compared(run: Run, by: int, kinds: list[str]) -> None:
    """KIP-392: a reader is sent to the follower of its rack, which hears of the high watermark later."""
    for high_watermark, at, node in ((9, 100, 1), (7, 300, by)):
        run.watermark(
            high_watermark, at, epoch=0, observer="client-1", source="fetch", answered_by=node,
            last_stable_offset=high_watermark,
        )  # fmt: skip

    assert [kind for kind, *_ in found(run.finish())] == kinds


def test_two_observers_are_not_compared_where_nobody_knows_when_they_asked(run: Run) -> None:
    run.watermark(9, 100, epoch=0, observer="client-1", source="fetch")
    run.watermark(7, 101, epoch=0, observer="client-2", source="fetch")

    assert found(run.finish()) == []


def answer(
    run: Run, offset: int, at: int, asked: int | None, *, epoch: int = 0, by: int | None = 1, **more: Any
) -> None:
    """Let a consumer be answered, of whom it is known when it asked."""
    asked_ns = None if asked is None else asked * MS
    run.watermark(
        offset,
        at,
        **({"observer": "client-2", "source": "fetch"} | more),
        epoch=epoch,
        answered_by=by,
        asked_ns=asked_ns,
    )


BACK = [("high_watermark_back", "violation", "", 7)]


@pytest.mark.parametrize(("asked", "expected"), [
    pytest.param(1101, BACK, id="asked when that had been heard"),
    pytest.param(1100, [], id="asked at that moment"),
    pytest.param(900, [], id="asked before: the answer may have been under way for long"),
    pytest.param(None, [], id="nobody knows when it asked"),
])  # fmt: skip
def test_a_leader_shows_nobody_less_than_it_had_shown_others(run: Run, asked: int | None, expected: list[Any]) -> None:
    answer(run, 9, 1100, 1000, observer="client-1")
    answer(run, 7, 1200, asked)

    assert found(run.finish()) == expected


@pytest.mark.parametrize(("asked", "expected"), [
    pytest.param(1601, BACK, id="its clock is that far off at most"),
    pytest.param(1600, [], id="within the error of its clock"),
])  # fmt: skip
def test_a_leader_shows_nobody_less_than_it_had_written_down(run: Run, asked: int, expected: list[Any]) -> None:
    run.watermark(9, 1100, epoch=0, observer="node-1")
    answer(run, 7, 1700, asked)

    assert found(run.finish()) == expected


@pytest.mark.parametrize("change", [
    pytest.param({"by": 2}, id="a follower, which hears of it later (KIP-392)"),
    pytest.param({"epoch": 1, "by": 2}, id="the next leader, which hears of it later (KIP-207)"),
    pytest.param({"epoch": 1, "by": 1}, id="one that did not lead in the epoch that it was asked for"),
    pytest.param({"epoch": None}, id="nobody knows in which leader epoch"),
    pytest.param({"by": None}, id="nobody knows who"),
])  # fmt: skip
def test_what_others_than_that_leader_in_its_epoch_show_is_not_compared(run: Run, change: dict[str, Any]) -> None:
    run.change(500, leader=2, isr=[1, 2, 3])
    answer(run, 9, 1100, 1000, observer="client-1")
    answer(run, 7, 2500, 2400, **change)

    assert found(run.finish()) == []


def test_what_a_follower_had_shown_binds_no_leader(run: Run) -> None:
    answer(run, 9, 1100, 1000, observer="client-1", by=2)
    answer(run, 7, 2500, 2400)

    assert found(run.finish()) == []


def test_what_a_client_is_shown_less_is_said_once_each_time_that_it_begins(run: Run) -> None:
    answer(run, 9, 1100, 1000, observer="client-1")
    for offset, at in ((6, 1300), (8, 1400), (9, 1500)):
        answer(run, offset, at, at - 100)
    answer(run, 7, 1700, 1600, observer="client-3")

    assert found(run.finish()) == [("high_watermark_back", "violation", "", 6), *BACK]


def test_the_last_stable_offset_of_a_leader_is_the_same_for_everybody(run: Run) -> None:
    answer(run, 9, 1100, 1000, observer="client-1", last_stable_offset=8)
    answer(run, 9, 1300, 1200, last_stable_offset=5)

    assert found(run.finish()) == [("last_stable_offset_back", "violation", "", 5)]


@pytest.mark.parametrize(("asked", "kinds"), [(1200, ["latest_offset_back"]), (1050, [])])
def test_the_latest_offset_is_where_the_leader_had_shown_others_its_high_watermark(
    run: Run, asked: int, kinds: list[str]
) -> None:
    answer(run, 9, 1100, 1000, observer="client-1")
    answer(run, 7, 1300, asked, observer="client-5", source="list_offsets", log_end_offset=7)

    assert [kind for kind, *_ in found(run.finish())] == kinds


def test_a_topic_that_was_made_anew_may_answer_in_the_name_of_the_old_one(run: Run) -> None:
    """Who asks by its name alone is answered for the new one, whose leader epochs begin anew."""
    order = {"api": "delete_topic", "topic": "t", "outcome": "ok"}
    run.recorder.row("admin", **order, invoke_ns=1, complete_ns=2)
    answer(run, 9, 1100, 1000, observer="client-1")
    run.metadata("PartitionRecord", 1500, partition_id=0, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1, leader_epoch=0)
    answer(run, 2, 2500, 2400)

    assert {one[1:3] for one in found(run.finish())} <= {("permitted", "gone_by_order")}


def test_the_latest_offset_may_not_go_back_across_leaders(run: Run) -> None:
    run.watermark(9, 100, epoch=None, observer="client-1", source="list_offsets", log_end_offset=9)
    run.change(200, leader=2, isr=[2, 3])
    run.watermark(7, 300, epoch=None, observer="client-1", source="list_offsets", log_end_offset=7)

    assert found(run.finish()) == [("latest_offset_back", "violation", "", 7)]


@pytest.mark.parametrize(
    ("unguarded", "rows", "judged"),
    [
        pytest.param(True, ((9, 0, 100), (7, 1, 300)), ("permitted", "R14"), id="a new leader"),
        pytest.param(False, ((9, 0, 100), (7, 1, 300)), ("violation", ""), id="since KIP-207"),
        pytest.param(True, ((9, 1, 250), (7, 1, 300)), ("violation", ""), id="the same leader"),
        pytest.param(
            True, ((9, None, 100), (7, None, 300)), ("violation", ""), id="nobody knows whose answers these are"
        ),
    ],
)
def test_before_kip_207_a_new_leader_may_say_less_until_it_has_caught_up(
    tmp_path: Path, unguarded: bool, rows: tuple[tuple[int, int | None, int], ...], judged: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **{"latest.offset.unguarded": unguarded})
    run.change(200, leader=2, isr=[2, 3])
    for offset, epoch, at in rows:
        run.watermark(offset, at, epoch=epoch, observer="client-1", source="list_offsets", log_end_offset=offset)

    assert [one[1:3] for one in found(run.finish()) if one[0] == "latest_offset_back"] == [judged]


@pytest.mark.parametrize(
    ("epoch", "shown_at", "judged"),
    [
        pytest.param(1, 280, ("violation", ""), id="it had caught up"),
        pytest.param(1, 350, ("permitted", "R14"), id="it caught up later"),
        pytest.param(0, 280, ("permitted", "R14"), id="that was the former leader"),
    ],
)
def test_before_kip_207_a_leader_that_has_caught_up_says_no_less(
    tmp_path: Path, epoch: int, shown_at: int, judged: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **{"latest.offset.unguarded": True})
    run.watermark(9, 100, epoch=0, observer="client-1", source="list_offsets", log_end_offset=9)
    run.change(200, leader=2, isr=[2, 3])
    run.watermark(9, shown_at, epoch=epoch, observer="node-2" if epoch else "node-1")
    asked = {"asked_ns": 290 * MS}
    run.watermark(7, 300, epoch=1, observer="client-1", source="list_offsets", log_end_offset=7, **asked)

    assert judged in [one[1:3] for one in found(run.finish()) if one[0] == "latest_offset_back"]


def test_the_latest_offset_may_go_back_over_an_allowed_unclean_election(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    run.change(50, isr=[1, 2])
    run.watermark(9, 100, epoch=None, observer="client-1", source="list_offsets", log_end_offset=9)
    run.change(200, leader=3, isr=[3], leader_recovery_state=1)
    run.watermark(7, 900, epoch=None, observer="client-1", source="list_offsets", log_end_offset=7)

    assert found(run.finish()) == [("latest_offset_back", "permitted", "R4", 7)]


@pytest.mark.parametrize(
    ("epoch", "by", "judged"),
    [
        pytest.param(0, 1, ("latest_offset_back", "permitted", "R4", 7), id="by the one before"),
        pytest.param(1, 3, ("latest_offset_back", "violation", "", 7), id="by the unclean leader itself"),
    ],
)
def test_who_had_shown_the_latest_offset_decides(
    tmp_path: Path, epoch: int, by: int, judged: tuple[object, ...]
) -> None:
    """What the answers tell of their leader epochs is believed: the one that had it higher, not the one that had it lower."""
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    run.change(50, isr=[1, 2])
    run.change(200, leader=3, isr=[3], leader_recovery_state=1)
    answer = {"observer": "client-1", "source": "list_offsets"}
    run.watermark(9, 1900, epoch=epoch, log_end_offset=9, answered_by=by, **answer)
    run.watermark(7, 2900, epoch=1, log_end_offset=7, answered_by=3, **answer)

    assert judged in found(run.finish())


ZOOKEEPER = {"mode": "zookeeper", "min.insync.replicas": 1}


def latest(run: Run, offset: int, at: int) -> None:
    run.watermark(offset, at, epoch=None, observer="client-1", source="list_offsets", log_end_offset=offset)


def after_a_power_loss(tmp_path: Path, *, shown_before: bool) -> Run:
    """Node 2, in the ISR with the leader, comes back without the offsets from 7 on; they were shown before that or not."""
    run = Run(tmp_path / "run", **ZOOKEEPER)
    run.change(50, isr=[1, 2])
    if shown_before:
        latest(run, 9, 100)
    run.fault("power-loss", 150, node=2, lost_from=7)
    run.registered(2, at=200, previous=-1, fenced=False)
    return run


def test_a_deposed_leader_may_show_what_the_new_one_lost(tmp_path: Path) -> None:
    """It answers ListOffsets until it is notified; the answer says nothing of its leader epoch."""
    run = after_a_power_loss(tmp_path, shown_before=True)
    run.change(210, leader=2, isr=[2])
    latest(run, 9, 260)
    latest(run, 7, 900)

    assert found(run.finish()) == [("latest_offset_back", "permitted", "R3", 7)]


def test_what_a_disk_lost_before_the_observation_counts(tmp_path: Path) -> None:
    run = after_a_power_loss(tmp_path, shown_before=True)
    latest(run, 9, 250)
    run.change(260, leader=2, isr=[2])
    latest(run, 7, 900)

    assert found(run.finish()) == [("latest_offset_back", "permitted", "R3", 7)]


@pytest.mark.parametrize("made_whole", ["it joined the isr again", "it led since"])
def test_a_loss_that_was_made_good_excuses_nothing(tmp_path: Path, made_whole: str) -> None:
    run = after_a_power_loss(tmp_path, shown_before=True)
    if made_whole == "it led since":
        run.change(220, leader=2, isr=[2])
        run.change(225, isr=[2, 1])
        run.change(230, leader=1)
    else:
        run.change(220, isr=[1])
        run.change(230, isr=[1, 2])
    latest(run, 9, 1000)
    run.change(1100, leader=2, isr=[2])
    latest(run, 7, 1900)

    assert found(run.finish()) == [("latest_offset_back", "violation", "", 7)]


def test_a_loss_before_the_offset_was_there_excuses_nothing(tmp_path: Path) -> None:
    run = after_a_power_loss(tmp_path, shown_before=False)
    latest(run, 9, 1000)
    run.change(1100, leader=2, isr=[2])
    latest(run, 7, 1900)

    assert found(run.finish()) == [("latest_offset_back", "violation", "", 7)]


def test_the_last_stable_offset_may_not_go_back_within_an_epoch(run: Run) -> None:
    run.watermark(9, 100, epoch=0, last_stable_offset=8)
    run.watermark(9, 200, epoch=0, last_stable_offset=5)

    assert found(run.finish()) == [("last_stable_offset_back", "violation", "", 5)]


@pytest.mark.parametrize(
    ("start", "kinds"),
    [pytest.param(9, [], id="at"), pytest.param(10, ["log_start_beyond_high_watermark"], id="beyond")],
)
def test_the_log_start_stays_at_or_below_the_high_watermark(run: Run, start: int, kinds: list[str]) -> None:
    run.watermark(9, 100, epoch=0, log_start_offset=start)

    assert [kind for kind, *_ in found(run.finish())] == kinds


STABLE_BEYOND = ["last_stable_offset_beyond_high_watermark"]


@pytest.mark.parametrize(("stable", "epoch", "other", "kinds"), [
    pytest.param(9, 0, None, [], id="at it"),
    pytest.param(10, 0, None, STABLE_BEYOND, id="beyond it"),
    pytest.param(10, None, None, [], id="nobody knows whose it was"),
    pytest.param(10, 0, {"at": 400, "epoch": 0}, [], id="which moved while it was read"),
    pytest.param(10, 0, {"at": 900, "epoch": 0}, STABLE_BEYOND, id="which moved later"),
    pytest.param(10, 0, {"at": 400, "epoch": 1}, STABLE_BEYOND, id="that of another leader epoch"),
])  # fmt: skip
def test_the_last_stable_offset_stays_at_or_below_the_high_watermark(
    run: Run, stable: int, epoch: int | None, other: dict[str, Any] | None, kinds: list[str]
) -> None:
    run.watermark(9, 100, epoch=epoch, last_stable_offset=stable, observer="client-1", source="fetch")
    if other is not None:
        run.watermark(10, **other, observer="client-2", source="fetch")

    assert [*agree(run.finish(), "watermarks")] == kinds


def test_a_new_leader_may_not_move_it_and_stay_below_what_a_former_one_had_shown(run: Run) -> None:
    run.watermark(9, 100, epoch=0)
    run.change(200, leader=2, isr=[2, 3])
    for high_watermark, at in ((5, 300), (7, 400)):
        run.watermark(high_watermark, at, epoch=1, observer="node-2")

    assert found(run.finish()) == [("high_watermark_below_former", "violation", "", 7)]


@pytest.mark.parametrize(("answered_by", "kinds"), [
    pytest.param(2, ["high_watermark_below_former"], id="its leader"),
    pytest.param(3, [], id="a follower, which hears of it later"),
    pytest.param(None, [], id="nobody knows who"),
])  # fmt: skip
def test_what_a_leader_answers_consumers_moves_it_as_well(run: Run, answered_by: int | None, kinds: list[str]) -> None:
    run.watermark(9, 100, epoch=0, observer="client-1", source="fetch", answered_by=3)
    run.change(200, leader=2, isr=[2, 3])
    for high_watermark, client in ((5, 1), (7, 2)):
        run.watermark(
            high_watermark, 300, epoch=1, observer=f"client-{client}", source="fetch", answered_by=answered_by
        )

    assert [kind for kind, *_ in found(run.finish())] == kinds


def test_once_it_has_moved_it_stands_where_it_was_or_beyond(run: Run) -> None:
    run.watermark(9, 100, epoch=0)
    run.change(200, leader=2, isr=[2, 3])
    for high_watermark, at in ((5, 300), (9, 400), (11, 500)):
        run.watermark(high_watermark, at, epoch=1, observer="node-2")

    assert found(run.finish()) == []


@pytest.mark.parametrize(("again", "judged"), [
    pytest.param(0, [("permitted", "R4", 7)], id="before the unclean election"),
    pytest.param(8, [("permitted", "R4", 8), ("violation", "", 7)], id="by the unclean leader as well"),
])  # fmt: skip
def test_each_stretch_is_judged_by_the_last_that_had_shown_it(
    tmp_path: Path, again: int, judged: list[tuple[str, str, int]]
) -> None:
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    run.change(50, isr=[1, 2])
    run.watermark(9, 100, epoch=0)
    run.change(1200, leader=3, isr=[3], leader_recovery_state=1)
    run.watermark(again, 2000, epoch=1, observer="node-3")
    run.change(2100, isr=[3, 1, 2], leader_recovery_state=0)
    run.change(4000, leader=2)
    for high_watermark, at in ((5, 4300), (7, 4400)):
        run.watermark(high_watermark, at, epoch=2, observer="node-2")

    assert sorted((severity, rule, offset) for _, severity, rule, offset in found(run.finish())) == judged


@pytest.mark.parametrize(("elr", "node", "at", "judged"), [
    pytest.param(False, 3, 150, ("permitted", "R3"), id="without ELR it stays in the ISR"),
    pytest.param(True, 3, 150, ("violation", ""), id="with ELR it is taken out"),
    pytest.param(False, 1, 150, ("violation", ""), id="one that was in no ISR since"),
    pytest.param(False, 3, 900, ("violation", ""), id="afterwards"),
])  # fmt: skip
def test_a_member_that_lost_its_disks_end_holds_it_back(
    tmp_path: Path, elr: bool, node: int, at: int, judged: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **{"eligible.leader.replicas.enable": elr})
    run.watermark(9, 100, epoch=0)
    run.fault("power-loss", at, node=node, lost_from=6)
    run.change(170, leader=2, isr=[2, 3])
    run.registered(node, at=at + 30, previous=-1, fenced=False)
    for high_watermark, seen in ((5, 300), (7, 350)):
        run.watermark(high_watermark, seen, epoch=1, observer="node-2")

    assert [one[1:3] for one in found(run.finish()) if one[0] == "high_watermark_below_former"] == [judged]


@pytest.mark.parametrize(("stated_at", "judged"), [
    pytest.param(4900, ("permitted", "R4"), id="when it had answered"),
    pytest.param(4200, ("violation", ""), id="long before it was heard"),
])  # fmt: skip
def test_a_deposed_leader_may_have_learned_of_its_successor_behind_its_answer(
    tmp_path: Path, stated_at: int, judged: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    run.change(50, isr=[1, 2])
    run.change(4000, leader=3, isr=[3], leader_recovery_state=1)
    run.watermark(0, stated_at, epoch=1)
    for offset, at, node in ((9, 5000, 1), (7, 6000, 3)):
        asked = {"observer": "client-1", "source": "list_offsets", "log_end_offset": offset, "answered_by": node}
        run.watermark(offset, at, epoch=None, **asked)

    assert [one[1:3] for one in found(run.finish()) if one[0] == "latest_offset_back"] == [judged]


@pytest.mark.parametrize(("epoch", "judged"), [
    pytest.param(None, ("permitted", "R4"), id="nobody says in which it was shown first"),
    pytest.param(1, ("violation", ""), id="the same one"),
])  # fmt: skip
def test_the_leader_epoch_of_what_was_seen_later_is_not_that_of_what_was_shown(
    tmp_path: Path, epoch: int | None, judged: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    run.change(50, isr=[1, 2])
    run.change(3000 if epoch is None else 500, leader=3, isr=[3], leader_recovery_state=1)
    for offset, at, shown_in in ((9, 1000, epoch), (7, 6000, 1)):
        asked = {"observer": "client-1", "source": "list_offsets", "log_end_offset": offset}
        run.watermark(offset, at, epoch=shown_in, **asked)

    assert [one[1:3] for one in found(run.finish()) if one[0] == "latest_offset_back"] == [judged]


@pytest.mark.parametrize(("epochs", "judged"), [
    pytest.param([1, 0, 1], [], id="a deposed leader answered in between"),
    pytest.param([1, 1, 1], [("violation", "")], id="the same leader did"),
    pytest.param([0, 1, 1], [("violation", "")], id="the next leader did"),
    pytest.param([1, None, 1], [("violation", "")], id="nobody knows who did"),
])  # fmt: skip
def test_a_deposed_leader_shows_its_own_end(run: Run, epochs: list[int | None], judged: list[object]) -> None:
    run.change(50, leader=2, isr=[1, 2, 3])
    for number, (epoch, offset) in enumerate(zip(epochs, (9, 7, 9), strict=True)):
        asked = {"observer": "client-1", "source": "list_offsets", "log_end_offset": offset}
        run.watermark(offset, 1000 * (1 + number), epoch=epoch, **asked)

    assert [one[1:3] for one in found(run.finish()) if one[0] == "latest_offset_back"] == judged


def test_a_topic_that_was_made_anew_begins_at_nothing(run: Run) -> None:
    order = {"api": "delete_topic", "topic": "t", "outcome": "ok"}
    run.recorder.row("admin", **order, invoke_ns=1, complete_ns=2)
    run.watermark(9, 100, epoch=0)
    run.change(150, leader=2, isr=[2, 3])
    run.watermark(9, 180, epoch=1, observer="node-2")
    run.metadata("PartitionRecord", 700, partition_id=0, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1, leader_epoch=2)
    for high_watermark, at in ((0, 1300), (3, 1400)):
        run.watermark(high_watermark, at, epoch=2)

    assert {(severity, rule) for _, severity, rule, _ in found(run.finish())} <= {("permitted", "gone_by_order")}


@pytest.mark.parametrize(
    ("other_fell", "judged"),
    [
        pytest.param(True, ("latest_offset_back", "permitted", "R1", 7), id="both holders fell"),
        pytest.param(False, ("latest_offset_back", "violation", "", 7), id="one of them did not"),
    ],
)
def test_who_held_an_offset_at_first_holds_it_when_a_smaller_isr_shows_it(
    run: Run, other_fell: bool, judged: tuple[str, str, str, int]
) -> None:
    """Two unclean shutdowns of min ISR 2, the first before the last one of the ISR showed the offset again (wide-swarm, seed 9)."""
    run.change(50, isr=[1, 2])
    latest(run, 9, 100)
    run.change(200, isr=[1], eligible_leader_replicas=[2])
    if other_fell:
        run.registered(2, at=210, previous=-1)
    run.change(220, eligible_leader_replicas=[])
    latest(run, 9, 300)
    run.node(1, "killed", 400)
    run.fault("wipe", 410, node=1, lost_from=0)
    run.change(500, isr=[], leader=-1, eligible_leader_replicas=[], last_known_elr=[1])
    run.registered(1, at=510, previous=-1)
    run.change(600, isr=[1], leader=1, leader_recovery_state=1, last_known_elr=[])
    latest(run, 7, 900)

    assert judged in found(run.finish())


@pytest.mark.parametrize(("first", "second", "is_wrong"), [
    pytest.param({"log_start_offset": 5}, {"log_start_offset": 3}, True, id="it goes back"),
    pytest.param({"log_start_offset": 5}, {"log_start_offset": 5}, False, id="it stays"),
    pytest.param({"log_start_offset": 3}, {"log_start_offset": 5}, False, id="it goes on"),
    pytest.param({"log_start_offset": 5}, {"log_start_offset": 3, "epoch": 1, "by": 2}, False, id="in a new leader epoch"),
    pytest.param({"log_start_offset": 5, "by": 2}, {"log_start_offset": 3, "by": 2}, False, id="at a follower, which may begin anew"),
    pytest.param({"log_start_offset": 5}, {"log_start_offset": 3, "by": None}, False, id="nobody knows who answered"),
    pytest.param({"log_start_offset": 5}, {"log_start_offset": None}, False, id="it is not known"),
    pytest.param({"log_start_offset": 5}, {"log_start_offset": 3, "observer": "client-2"}, True, id="as another one is shown"),
    pytest.param({"log_start_offset": 5}, {"log_start_offset": 3, "observer": "client-2", "source": "list_offsets"}, True, id="as it is looked up"),
    pytest.param({"log_start_offset": 5}, {"log_start_offset": 3, "observer": "client-2", "asked": None}, False, id="nobody knows when it asked"),
    pytest.param({"log_start_offset": 5}, {"log_start_offset": 3, "observer": "client-2", "asked": 90}, False, id="it had asked before"),
])  # fmt: skip
def test_what_its_leader_deleted_is_not_there_again(
    run: Run, first: dict[str, Any], second: dict[str, Any], is_wrong: bool
) -> None:
    run.change(210, leader=2, isr=[2, 3])
    answer(run, 9, **{"at": 100, "asked": 98, "source": "fetch", "observer": "client-1"} | first)
    answer(run, 9, **{"at": 300, "asked": 298, "source": "fetch", "observer": "client-1"} | second)

    kinds = [kind for kind, *_ in found(run.finish())]
    assert set(kinds) == ({"log_start_back"} if is_wrong else set())
    assert agree(run.run_dir, "watermarks")["log_start_back"] == len(kinds)


@pytest.mark.parametrize(("change", "judged"), [
    pytest.param({"stamped": 100}, "permitted", id="shown when it was written"),
    pytest.param({"stamped": 102}, "violation", id="shown before it was written"),
    pytest.param({"stamped": None}, "violation", id="nobody knows when it was written"),
    pytest.param({"stamped": 100, "leader_epoch": 1, "leader": 1}, "violation", id="of a later leader epoch"),
])  # fmt: skip
def test_a_leader_shows_what_a_smaller_isr_has_before_that_is_observed(
    tmp_path: Path, change: dict[str, Any], judged: str
) -> None:
    """Broker 1 alone shows the high watermark 1 at 101 ms; the ISR [1] is observed at 103 ms (museum/unended-transactions)."""
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True, "min.insync.replicas": 1})
    run.send(0, 90, outcome="info", log_offset=None)
    run.watermark(1, 101, epoch=0, observer="client-5", source="fetch")
    run.change(103, isr=[1], **change)
    run.change(700, leader=2, isr=[2], leader_recovery_state=1)
    run.final_read({})

    assert [(kind, severity) for kind, severity, _, _ in found(run.finish())] == [("shown_end_lost", judged)]
