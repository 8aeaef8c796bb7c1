"""Small recordings of broken promises, each beside its nearest neighbour that is right or permitted.

An excuse has a place, a time and a holder: what moves one of them has to be seen.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_lost_writes import found
from tests.checkers.test_sql import agree
from tribunal.checkers.judge.engine import judge_runs

UNCLEAN = {"unclean.leader.election.enable": True}
NO_ELR = {"eligible.leader.replicas.enable": False}
TO_NODE_3 = {"leader": 3, "isr": [3], "leader_recovery_state": 1, "eligible_leader_replicas": []}
LOST = ("violation", "")
BY_R4 = ("permitted", "R4")
BY_R5 = ("permitted", "R5")
CREATED = {"partition_id": 0, "replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1, "leader_epoch": 0}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def judged(run: Run, kind: str = "lost") -> list[tuple[Any, Any]]:
    """Finish the run and return severity and rule of what was found of a kind."""
    return [(severity, rule) for own, severity, rule, _ in found(run.finish()) if own == kind]


# Settings: an election is judged by those in force for its topic, at its place in the metadata log.


@pytest.mark.parametrize(("configured", "expected"), [
    pytest.param([], LOST, id="never allowed"),
    pytest.param([("t", 500, "true")], BY_R4, id="allowed"),
    pytest.param([("", 500, "true")], BY_R4, id="allowed to all topics"),
    pytest.param([("u", 500, "true")], LOST, id="allowed to another topic"),
    pytest.param([("t", 500, "true"), ("t", 2000, "false")], LOST, id="forbidden again"),
    pytest.param([("t", 500, "true"), ("t", 2000, None)], LOST, id="taken back"),
    pytest.param([("", 500, "true"), ("t", 500, "false")], LOST, id="the topic's own counts"),
    pytest.param([("t", 4000, "true")], LOST, id="allowed afterwards"),
])  # fmt: skip
def test_an_unclean_election_is_allowed_where_and_when_it_happens(
    run: Run, configured: list[tuple[str, int, str | None]], expected: tuple[str, str]
) -> None:
    run.change(50, isr=[1, 2])
    run.send(0, 100)
    for topic, at, value in [one for one in configured if one[1] < 3000]:
        kind = {"resource_type": 2 if topic else 4, "resource_name": topic}
        run.metadata("ConfigRecord", at, **kind, name="unclean.leader.election.enable", value=value)
    run.change(3000, **TO_NODE_3)
    for topic, at, value in [one for one in configured if one[1] > 3000]:
        kind = {"resource_type": 2, "resource_name": topic}
        run.metadata("ConfigRecord", at, **kind, name="unclean.leader.election.enable", value=value)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("partition", "expected"), [
    pytest.param(0, BY_R4, id="here"),
    pytest.param(1, LOST, id="in another partition"),
])  # fmt: skip
def test_an_unclean_election_excuses_in_its_partition(
    tmp_path: Path, partition: int, expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    run.send(0, 100)
    election = {"record_type": "PartitionChangeRecord", "at_ns": 3000 * MS, "topic": "t", "partition": partition}
    body = '{"leader": 3, "isr": [3], "leader_recovery_state": 1, "eligible_leader_replicas": []}'
    run.recorder.row("metadata", metadata_offset=90, quorum_epoch=1, body=body, **election)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


# Leaders that were deposed: who answers has not heard of its successor, and with acks=all its followers have not either.


@pytest.mark.parametrize(("joined_at", "expected"), [
    pytest.param(None, BY_R4, id="it may follow the deposed leader still"),
    pytest.param(1500, LOST, id="it follows the new one"),
    pytest.param(7000, BY_R4, id="it did later"),
])  # fmt: skip
def test_a_deposed_leader_answers_acks_all_only_with_its_followers(
    tmp_path: Path, joined_at: int | None, expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    run.change(1000, **TO_NODE_3)
    if joined_at is not None:
        run.change(joined_at, isr=[3, 2], leader_recovery_state=0)
    run.send(0, 5000)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("node", "epoch", "at", "expected"), [
    pytest.param(1, 1, 2600, LOST, id="it had begun to follow the new one"),
    pytest.param(1, 1, 5500, BY_R5, id="it did so later"),
    pytest.param(1, 1, 4800, BY_R5, id="just before by its own clock, which may be behind"),
    pytest.param(1, 0, 2600, BY_R5, id="it said so in its own epoch"),
    pytest.param(3, 1, 2600, BY_R5, id="another one had"),
])  # fmt: skip
def test_who_stated_a_later_epoch_no_longer_answers_in_its_own(
    run: Run, node: int, epoch: int, at: int, expected: tuple[str, str]
) -> None:
    run.change(2000, leader=2, isr=[2, 3])
    row = {"observer": f"node-{node}", "source": "node", "topic": "t", "partition": 0, "log_end_offset": 0}
    run.recorder.row("watermarks", **row, leader_epoch=epoch, at_ns=at * MS)
    run.send(0, 5000, acks=1)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("answered_by", "expected"), [
    pytest.param(1, BY_R5, id="the deposed leader"),
    pytest.param(2, LOST, id="the new one"),
    pytest.param(3, LOST, id="one that never led"),
])  # fmt: skip
def test_whose_log_it_was_is_known_by_who_answered(run: Run, answered_by: int, expected: tuple[str, str]) -> None:
    run.change(2000, leader=2, isr=[2, 3])
    run.send(0, 5000, acks=1, answered_by=answered_by)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("process", "expected"), [
    pytest.param("a", BY_R5, id="the same process after it lost its session in ZooKeeper"),
    pytest.param("b", LOST, id="another process"),
    pytest.param(None, LOST, id="nobody knows which"),
])  # fmt: skip
def test_only_another_process_has_forgotten_that_it_leads(
    run: Run, process: str | None, expected: tuple[str, str]
) -> None:
    run.registered(1, 60, previous=-1, fenced=False, incarnation="a")
    run.change(2000, leader=2, isr=[2, 3])
    run.registered(1, 3000, previous=1, fenced=False, incarnation=process)
    run.send(0, 5000, acks=1, answered_by=1)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


# Exposed acks=1 and acks=0: what was shown or read has the guarantee of acks=all.


@pytest.mark.parametrize(("settings", "isr", "shown", "expected"), [
    pytest.param({}, [1, 2], 0, BY_R5, id="not shown"),
    pytest.param({}, [1, 2], 1, LOST, id="shown"),
    pytest.param({"mode": "zookeeper", **NO_ELR}, [1], 1, BY_R5, id="shown below min ISR, in ZooKeeper mode"),
    pytest.param({"mode": "zookeeper", **NO_ELR}, [1, 2], 1, LOST, id="shown by min ISR, in ZooKeeper mode"),
])  # fmt: skip
def test_what_a_high_watermark_passed_has_to_survive(
    tmp_path: Path, settings: dict[str, Any], isr: list[int], shown: int, expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **{key: value for key, value in settings.items() if key != "mode"})
    run.change(50, isr=isr)
    run.send(0, 1000, acks=1)
    run.watermark(shown, 1500, epoch=0)
    run.change(3000, leader=2, isr=[2])
    run.final_read({}, at=9000)

    rows = found(run.finish(mode=settings.get("mode", "kraft")))
    assert [(severity, rule) for kind, severity, rule, _ in rows if kind == "lost"] == [expected]


@pytest.mark.parametrize(("read", "unclean", "expected"), [
    pytest.param(False, False, [], id="never seen"),
    pytest.param(True, False, [LOST], id="read"),
    pytest.param(True, True, [BY_R4], id="read before an allowed unclean election"),
])  # fmt: skip
def test_acks_0_promises_what_was_read(
    tmp_path: Path, read: bool, unclean: bool, expected: list[tuple[str, str]]
) -> None:
    run = Run(tmp_path / "run", **(UNCLEAN if unclean else {}))
    run.change(50, isr=[1, 2])
    value = run.send(0, 1000, acks=0)
    if read:
        run.read({0: value}, 1500, epoch=0)
    run.change(3000, **(TO_NODE_3 if unclean else {"leader": 2, "isr": [2]}))
    run.final_read({}, at=9000)

    assert judged(run, "lost_after_read") == expected


@pytest.mark.parametrize(("acks", "shown", "read", "expected"), [
    pytest.param(1, 2500, None, 2500, id="acks=1, shown"),
    pytest.param(1, None, 2400, 2400, id="acks=1, read"),
    pytest.param(1, 2500, 2400, 2400, id="acks=1, read, then shown"),
    pytest.param(0, None, 2400, 2400, id="acks=0, read"),
    pytest.param(-1, 2500, None, 2500, id="acks=all, shown"),
    pytest.param(-1, None, None, None, id="acks=all, never shown"),
    pytest.param(1, None, None, None, id="acks=1, never shown"),
    pytest.param(1, 3500, None, None, id="acks=1, something else was shown there behind the election that lost it"),
    pytest.param(-1, 3500, None, None, id="acks=all, something else was shown there behind the election that lost it"),
])  # fmt: skip
def test_a_loss_says_since_when_the_record_had_been_shown(
    run: Run, acks: int, shown: int | None, read: int | None, expected: int | None
) -> None:
    run.change(50, isr=[1, 2])
    value = run.send(0, 1000, acks=acks)
    if read is not None:
        run.read({0: value}, read, epoch=0)
    if shown is not None:
        run.watermark(1, shown, epoch=0 if shown < 3000 else 1)
    run.change(3000, leader=2, isr=[2, 3])
    other = run.send(1, 3400, offset=0)
    run.final_read({0: other}, at=9000, epoch=1)

    tables = judge_runs([run.finish()], "inline")
    losses = [row.finding for row in tables.findings if row.finding.kind.startswith("lost")]
    assert [one.detail.exposed_ns for one in losses] == [None if expected is None else expected * MS]


def test_losses_of_what_was_shown_are_counted_apart_from_others(tmp_path: Path) -> None:
    """A witness stands for others: what it says of them has to hold for all it counts."""
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    for sequence in range(50):
        run.send(sequence, 1000 + sequence, acks=1)
    run.watermark(30, 2000, epoch=0)
    run.change(3000, **TO_NODE_3)
    run.final_read({}, at=9000)

    tables = judge_runs([run.finish()], "inline")
    losses = [row.finding for row in tables.findings if row.finding.kind == "lost"]
    counts = Counter[tuple[str, bool]]()
    for one in losses:
        counts[one.rule, one.detail.exposed_ns is not None] += one.count
    assert counts == {("R4", True): 30, ("R5", False): 20}


# Disks: a loss has a node, a partition, offsets and a time.

DISK = {"node": 3, "topic": "t", "partition": 0, "from_offset": 0, "begin_ns": 2100 * MS, "end_ns": 2200 * MS}


@pytest.mark.parametrize(("lost", "expected"), [
    pytest.param(DISK, ("permitted", "R3"), id="of the last replica standing"),
    pytest.param(DISK | {"topic": None, "partition": None}, ("permitted", "R3"), id="of all its partitions"),
    pytest.param(DISK | {"partition": 1}, LOST, id="of another partition"),
    pytest.param(DISK | {"topic": "u"}, LOST, id="of another topic"),
    pytest.param(DISK | {"node": 2}, LOST, id="of another node"),
    pytest.param(DISK | {"from_offset": 6}, LOST, id="behind it"),
    pytest.param(DISK | {"end_offset": 5}, LOST, id="before it"),
    pytest.param(DISK | {"from_offset": 5, "end_offset": 6}, ("permitted", "R3"), id="of it alone"),
    pytest.param(DISK | {"begin_ns": 500 * MS, "end_ns": 600 * MS}, LOST, id="before it was sent"),
    pytest.param(DISK | {"begin_ns": 9900 * MS, "end_ns": 9900 * MS}, LOST, id="when it had been missed"),
])  # fmt: skip
@pytest.mark.nightly
def test_a_disk_lost_what_it_lost(tmp_path: Path, lost: dict[str, Any], expected: tuple[str, str]) -> None:
    run = Run(tmp_path / "run", **NO_ELR)
    run.node(3, "start", 0)
    run.change(50, leader=3, isr=[3])
    run.send(5, 1000, acks=-1)
    run.node(3, "killed", 2000)
    fields = {"index": 0, "kind": "power-loss", "planned_ns": 1, "injected_ns": 1, "healed_ns": 9950 * MS}
    run.recorder.row("faults", **fields, took_effect=True, healed=True, losses=[lost])
    run.change(2050, leader=-1, isr=[3])
    run.registered(3, 2500, previous=-1, fenced=False)
    run.change(3000, leader=3, isr=[3])
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("wiped", "kept_by", "expected"), [
    pytest.param([2, 3], (), ("permitted", "R1"), id="both"),
    pytest.param([3], (), LOST, id="one: the ELR lost a member"),
    pytest.param([2], (), LOST, id="the one that was not elected"),
])  # fmt: skip
def test_the_last_known_leader_needs_min_isr_unclean_shutdowns(
    run: Run, wiped: list[int], kept_by: tuple[int, ...], expected: tuple[str, str]
) -> None:
    run.change(50, isr=[2, 3], leader=2)
    run.send(0, 100)
    for number, node in enumerate(wiped):
        run.node(node, "killed", 200 + 100 * number)
        run.fault("wipe", 210 + 100 * number, node=node, lost_from=0, index=number)
        run.registered(node, 250 + 100 * number, previous=-1)
    run.change(500, isr=[], leader=-1, eligible_leader_replicas=[], last_known_elr=[3])
    run.change(510, isr=[3], leader=3, leader_recovery_state=1)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("asked", "wiped", "expected"), [
    pytest.param([2, 3], [2, 3], ("permitted", "R2"), id="all of them lost it"),
    pytest.param([2, 3], [3], LOST, id="one of them has it"),
    pytest.param([1, 2, 3], [2, 3], ("permitted", "R2"), id="the third held nothing"),
])  # fmt: skip
def test_balanced_recovery_compares_logs(
    tmp_path: Path, asked: list[int], wiped: list[int], expected: tuple[str, str]
) -> None:
    settings = {"unclean.recovery.manager.enabled": True, "unclean.recovery.strategy": "balanced"}
    run = Run(tmp_path / "run", **settings)
    run.change(50, isr=[2, 3], leader=2)
    run.send(0, 100)
    for number, node in enumerate([2, 3]):
        run.node(node, "killed", 200 + 100 * number)
        if node in wiped:
            run.fault("wipe", 210 + 100 * number, node=node, lost_from=0, index=number)
        run.registered(node, 250 + 100 * number, previous=-1)
    run.change(500, isr=[], leader=-1, eligible_leader_replicas=[], last_known_elr=asked)
    run.change(510, isr=[3], leader=3, leader_recovery_state=1)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("node", "lost_from", "rejoined", "expected"), [
    pytest.param(2, 0, False, ("permitted", "R7"), id="of who is elected"),
    pytest.param(3, 0, False, LOST, id="of another one"),
    pytest.param(2, 1, False, LOST, id="behind the record"),
    pytest.param(2, 0, True, LOST, id="it was whole again"),
])  # fmt: skip
def test_files_that_were_cut_under_a_running_process(
    run: Run, node: int, lost_from: int, rejoined: bool, expected: tuple[str, str]
) -> None:
    for other in (1, 2, 3):
        run.node(other, "start", 0)
    run.send(0, 100)
    run.fault("truncate-segment", 1000, node=node, lost_from=lost_from)
    if rejoined:
        run.change(1500, isr=[1, 3])
        run.change(2000, isr=[1, 3, 2])
    run.change(3000, leader=2, isr=[2, 3])
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


# The ELR: who registers after an unclean shutdown is no clean candidate.


@pytest.mark.parametrize(("previous", "expected"), [
    pytest.param(-1, [LOST], id="it had shut down uncleanly"),
    pytest.param(None, [], id="it had shut down cleanly"),
])  # fmt: skip
def test_a_clean_election_from_the_elr(run: Run, previous: int | None, expected: list[object]) -> None:
    run.change(100, isr=[1], eligible_leader_replicas=[2, 3])
    run.registered(2, 500, previous=1 if previous is None else previous, fenced=False)
    run.change(1000, leader=2, isr=[2], eligible_leader_replicas=[1, 3])
    run.final_read({0: run.send(0, 1100)}, at=9000)

    assert judged(run, "clean_election_of_unclean_replica") == expected


# min ISR.


@pytest.mark.parametrize(("lowered", "grown_at", "acks", "at", "expected"), [
    pytest.param(None, None, -1, 3000, [LOST], id="below it"),
    pytest.param(None, None, 1, 3000, [], id="acks=1"),
    pytest.param(None, None, -1, 1200, [], id="before the leader surely knew"),
    pytest.param(("t", 500), None, -1, 3000, [], id="lowered before"),
    pytest.param(("u", 500), None, -1, 3000, [LOST], id="lowered for another topic"),
    pytest.param(("t", 6000), None, -1, 3000, [LOST], id="lowered afterwards"),
    pytest.param(None, 2000, -1, 3000, [], id="the ISR had grown again"),
])  # fmt: skip
def test_acks_all_needs_min_isr(
    run: Run, lowered: tuple[str, int] | None, grown_at: int | None, acks: int, at: int, expected: list[object]
) -> None:
    def lower(*, before: bool) -> None:
        if lowered is not None and (lowered[1] < 1000) is before:
            named = {"resource_type": 2, "resource_name": lowered[0], "name": "min.insync.replicas", "value": "1"}
            run.metadata("ConfigRecord", lowered[1], **named)

    lower(before=True)
    run.change(1000, isr=[1], eligible_leader_replicas=[2, 3])
    if grown_at is not None:
        run.change(grown_at, isr=[1, 2], eligible_leader_replicas=[])
    lower(before=False)
    run.metadata("NoOpRecord", 8000)
    run.final_read({0: run.send(0, at, acks=acks)}, at=9000)

    assert judged(run, "acknowledged_below_min_isr") == expected


# A larger min ISR comes with a new leader epoch (decision 0010): what a leader took that had not heard of it was promised the smaller one.


@pytest.mark.parametrize(("raised", "known", "severity"), [
    pytest.param(True, "", "permitted", id="its leader had not heard of it"),
    pytest.param(True, "stated", "violation", id="its leader had stated the new leader epoch"),
    pytest.param(True, "unhurt", "violation", id="nothing had hindered its leader for long"),
    pytest.param(True, "elsewhere", "violation", id="another broker answered"),
    pytest.param(True, "read before", "permitted", id="it was read in the leader epoch before"),
    pytest.param(True, "read behind", "violation", id="it was read in the new leader epoch"),
    pytest.param(False, "", "violation", id="it was as large before"),
])  # fmt: skip
def test_a_larger_min_isr_binds_who_knows_of_it(tmp_path: Path, raised: bool, known: str, severity: str) -> None:
    run = Run(tmp_path / "run", **{"min.insync.replicas": 1 if raised else 2})
    run.change(100, isr=[1])
    run.metadata("ConfigRecord", 1000, resource_type=2, resource_name="t", name="min.insync.replicas", value="2")
    run.change(1000, leader=1)
    if known != "unhurt":
        run.fault("hold-messages", 900, node=1, lasts=20_000, index=1)
    if known == "stated":
        run.watermark(0, 1500, epoch=1)
    value = run.send(0, 14_000, answered_by=2 if known == "elsewhere" else 1)
    if known.startswith("read"):
        run.read({0: value}, 14_100, epoch=0 if known == "read before" else 1)
    run.node(1, "killed", 14_999)
    run.fault("power-loss", 15_000, node=1, lost_from=0)
    run.change(15_500, leader=-1, isr=[], eligible_leader_replicas=[1], last_known_elr=[1])
    run.change(16_000, eligible_leader_replicas=[])
    run.registered(1, 16_000, previous=-1, fenced=False)
    run.change(16_010, leader=1, isr=[1], leader_recovery_state=1, last_known_elr=[])
    run.final_read({0: run.send(1, 17_000, offset=0)}, at=19_000, epoch=3)

    assert [one for one, _ in judged(run, "lost")] == [severity]


# Topics that are deleted: an order names them.

DELETE = {"api": "delete_topic", "topic": "t", "outcome": "ok", "invoke_ns": 900 * MS, "complete_ns": 950 * MS}


@pytest.mark.parametrize(("order", "expected"), [
    pytest.param(DELETE, ("permitted", "gone_by_order"), id="it was ordered"),
    pytest.param(DELETE | {"outcome": "info", "complete_ns": None}, ("permitted", "gone_by_order"), id="nobody answered"),
    pytest.param(DELETE | {"outcome": "fail"}, LOST, id="it was refused"),
    pytest.param(DELETE | {"topic": "u"}, LOST, id="another topic was meant"),
    pytest.param(DELETE | {"invoke_ns": 4000 * MS, "complete_ns": 4001 * MS}, LOST, id="ordered afterwards"),
    pytest.param(None, LOST, id="nobody ordered it"),
])  # fmt: skip
def test_a_topic_is_made_anew_by_order(run: Run, order: dict[str, Any] | None, expected: tuple[str, str]) -> None:
    run.send(0, 100)
    if order is not None:
        run.recorder.row("admin", **order)
    run.metadata("RemoveTopicRecord", 1000)
    run.metadata("PartitionRecord", 1100, **CREATED)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("read_at", "expected"), [
    pytest.param(9000, ("permitted", "gone_by_order"), id="when it had been deleted"),
    pytest.param(800, LOST, id="before anybody ordered that"),
])  # fmt: skip
def test_what_was_missing_did_not_go_with_the_topic_later(run: Run, read_at: int, expected: tuple[str, str]) -> None:
    run.send(0, 100)
    if read_at < 900:
        run.final_read({}, at=read_at)
    run.recorder.row("admin", **DELETE)
    run.metadata("RemoveTopicRecord", 1000)
    if read_at > 900:
        run.final_read({}, at=read_at)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("topic", "expected"), [
    pytest.param("t", [], id="the one that was deleted"),
    pytest.param("t@2", [LOST], id="the next one of its name"),
])  # fmt: skip
def test_the_next_topic_of_a_name_is_another_place(run: Run, topic: str, expected: list[object]) -> None:
    run.send(0, 100 if topic == "t" else 2000, topic=topic)
    run.recorder.row("admin", **DELETE)
    run.metadata("RemoveTopicRecord", 1000)
    run.metadata("PartitionRecord", 1100, topic="t@2", **CREATED)
    final = {"process": 99, "topic": "t@2", "partition": 0, "isolation": "read_uncommitted", "phase": "final"}
    answer = {"poll_index": 0, "position": 0, "record_count": 0, "high_watermark": 0, "log_start_offset": 0}
    run.recorder.row("polls", **final, **answer, invoke_ns=9000 * MS, complete_ns=9000 * MS, outcome="ok")

    assert judged(run) == expected


# Ends of transactions.


def committed(run: Run, offset: int = 0, at: int = 100, end: int = 200) -> int:
    """Send a record in a transaction that is committed, by the coordinator's answer, at `end`."""
    value = run.send(offset, at, txn_id="x")
    step = {"kind": "send", "topic": "t", "partition": 0, "log_offset": offset, "value": value}
    times = {"begin_ns": (at - 1) * MS, "end_ns": end * MS, "outcome": "committed"}
    run.recorder.row("txns", process=7, txn_id="x", operations=[step], **times)
    return value


def out_of_sight(run: Run, *, epoch: int = 0, offset: int = 0, value: int) -> list[tuple[Any, Any]]:
    """All logs hold the record, and a reader of what is committed does not get it."""
    run.final_read({}, at=9000, isolation="read_committed")
    for node in (1, 2, 3):
        run.log(node, {offset: value}, epoch=epoch)
    return judged(run, "unread")


@pytest.mark.parametrize(("isr", "expected"), [
    pytest.param([1, 2], ("permitted", "R9"), id="the new leader need not have it"),
    pytest.param([1, 2, 3], LOST, id="it held it when it was decided"),
])  # fmt: skip
def test_a_decision_is_as_old_as_its_answer(tmp_path: Path, isr: list[int], expected: tuple[str, str]) -> None:
    """That the ISR shrinks later takes nothing from who had the decision."""
    run = Run(tmp_path / "run", **UNCLEAN)
    run.metadata("PartitionRecord", 0, topic="__transaction_state", **CREATED | {"isr": isr})
    value = committed(run)
    home = {"topic": "__transaction_state", "partition_id": 0}
    run.metadata("PartitionChangeRecord", 2000, **home, isr=[1], eligible_leader_replicas=[])
    run.metadata("PartitionChangeRecord", 4000, **home, **TO_NODE_3)

    assert out_of_sight(run, value=value) == [expected]


@pytest.mark.parametrize(("epoch", "expected"), [
    pytest.param(0, ("permitted", "R9"), id="before it"),
    pytest.param(1, LOST, id="in its own epoch"),
])  # fmt: skip
def test_an_unclean_leader_aborts_what_its_log_left_open(tmp_path: Path, epoch: int, expected: tuple[str, str]) -> None:
    """A send that waited for the new leader was written behind what that one aborted."""
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    value = committed(run, at=100, end=5000)
    run.change(1000, **TO_NODE_3)

    assert out_of_sight(run, value=value, epoch=epoch) == [expected]


@pytest.mark.parametrize(("unclean", "leader", "expected"), [
    pytest.param([1, 2, 3], 3, ("permitted", "R9"), id="the last known one"),
    pytest.param([2, 3], 3, ("permitted", "R9"), id="of min ISR holders"),
    pytest.param([3], 3, LOST, id="another holder should have been kept eligible"),
    pytest.param([1, 2, 3], 2, LOST, id="another one than the last known"),
])  # fmt: skip
def test_the_last_known_leader_aborts_what_its_log_left_open(
    tmp_path: Path, unclean: list[int], leader: int, expected: tuple[str, str]
) -> None:
    """Power is lost everywhere before the marker: nothing is lost, and the leader that has to recover ends what is open (found by a search)."""
    run = Run(tmp_path / "run")
    for node in (1, 2, 3):
        run.node(node, "start", 0)
    run.change(50, isr=[1, 2, 3])
    value = committed(run, at=100, end=5000)
    for node in unclean:
        run.node(node, "killed", 1000)
        run.registered(node, 1500 + node, previous=-1, fenced=False)
    run.change(2000, leader=-1, isr=[], eligible_leader_replicas=[], last_known_elr=[3])
    run.change(2500, leader=leader, isr=[leader], leader_recovery_state=1, last_known_elr=[])

    assert out_of_sight(run, value=value) == [expected]


@pytest.mark.parametrize(("isr", "read_at", "stable_at", "expected"), [
    pytest.param([1, 2, 3], None, None, ("permitted", "R9"), id="nobody saw it"),
    pytest.param([1, 2, 3], 1000, None, LOST, id="who was elected had shown it"),
    pytest.param([1, 2], 1000, None, ("permitted", "R9"), id="who was elected never had it"),
    pytest.param([1, 2, 3], None, 1000, LOST, id="the last stable offset had passed it"),
    pytest.param([1, 2, 3], None, 5000, ("permitted", "R9"), id="it did under the new leader, which aborted it"),
])  # fmt: skip
def test_a_marker_that_was_seen_is_a_record_like_others(
    tmp_path: Path, isr: list[int], read_at: int | None, stable_at: int | None, expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=isr)
    value = committed(run)
    if read_at is not None:
        run.read({0: value}, read_at, isolation="read_committed")
    if stable_at is not None:
        run.watermark(2, stable_at, epoch=int(stable_at > 3000), last_stable_offset=2)
    run.change(3000, **TO_NODE_3)

    assert out_of_sight(run, value=value) == [expected]


@pytest.mark.parametrize(("lost", "expected"), [
    pytest.param({"from_offset": 0, "end_offset": None}, ("permitted", "R9"), id="all of it"),
    pytest.param({"from_offset": 6, "end_offset": None}, ("permitted", "R9"), id="what stands behind it"),
    pytest.param({"from_offset": 0, "end_offset": 5}, LOST, id="what stands before it"),
])  # fmt: skip
def test_a_marker_stands_behind_its_records(tmp_path: Path, lost: dict[str, Any], expected: tuple[str, str]) -> None:
    run = Run(tmp_path / "run", **NO_ELR)
    run.node(3, "start", 0)
    run.change(50, leader=3, isr=[3])
    value = committed(run, offset=5, at=1000, end=1100)
    run.node(3, "killed", 2000)
    fields = {"index": 0, "kind": "power-loss", "planned_ns": 1, "injected_ns": 1, "healed_ns": 2300 * MS}
    place = {"node": 3, "topic": "t", "partition": 0, "begin_ns": 2100 * MS, "end_ns": 2200 * MS}
    run.recorder.row("faults", **fields, took_effect=True, healed=True, losses=[place | lost])
    run.change(2050, leader=-1, isr=[3])
    run.registered(3, 2500, previous=-1, fenced=False)
    run.change(3000, leader=3, isr=[3])

    assert out_of_sight(run, offset=5, value=value, epoch=1) == [expected]


# Clocks: nothing is judged by a node's own.


def lost_before_the_log_start(run: Run, leader: int, **clock: Any) -> list[tuple[Any, Any]]:
    """A record of ten seconds' age is gone before the log start, of a topic that keeps records for an hour."""
    run.metadata("ConfigRecord", 1, resource_type=2, resource_name="t", name="retention.ms", value="3600000")
    run.change(50, leader=leader, isr=[1, 2, 3])
    run.send(0, 100)
    if clock:
        run.fault("clock-jump", **clock)
    run.poll(99, "final", 1, 0, 10_000, high_watermark=1, log_start_offset=1)
    return judged(run)


@pytest.mark.parametrize(("clock", "expected"), [
    pytest.param({}, LOST, id="nobody's clock was set"),
    pytest.param({"at": 2000, "node": 2}, ("permitted", "gone_by_order"), id="the leader's"),
    pytest.param({"at": 2000, "node": 3}, LOST, id="that of one that never led"),
])  # fmt: skip
def test_who_leads_moves_the_log_start_by_its_own_clock(
    run: Run, clock: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert lost_before_the_log_start(run, 2, **clock) == [expected]


def test_a_controllers_stamp_judges_nothing(run: Run) -> None:
    """Its clock says that the election was made before the record was sent: it was observed afterwards."""
    run.send(0, 1000, acks=1)
    row = {"metadata_offset": 90, "quorum_epoch": 1, "at_ns": 2000 * MS, "stamped_ns": 10 * MS, "topic": "t"}
    body = '{"leader": 2, "isr": [2, 3]}'
    run.recorder.row("metadata", **row, partition=0, record_type="PartitionChangeRecord", body=body)
    run.final_read({}, at=9000)

    assert judged(run) == [BY_R5]


# Consumers that are assigned their partitions.


@pytest.mark.parametrize(("error", "expected"), [
    pytest.param("OFFSET_OUT_OF_RANGE", [], id="it was told that it is out of range"),
    pytest.param("NOT_LEADER_OR_FOLLOWER", [LOST], id="it was told to look elsewhere"),
    pytest.param(None, [LOST], id="it was told nothing"),
])  # fmt: skip
@pytest.mark.parametrize(("again", "kind"), [([3], "skipped"), ([1, 2], "rewound")])
@pytest.mark.nightly
def test_only_who_is_out_of_range_begins_elsewhere(
    run: Run, error: str | None, expected: list[object], again: list[int], kind: str
) -> None:
    values = dict(enumerate(run.send(sequence, 100 + sequence) for sequence in range(4)))
    run.read({0: values[0], 1: values[1]}, 200, epoch=0)
    if error is not None:
        row = {"process": 90, "topic": "t", "partition": 0, "isolation": "read_uncommitted", "phase": "tail"}
        times = {"invoke_ns": 250 * MS, "complete_ns": 250 * MS, "outcome": "fail", "error": error}
        run.recorder.row("polls", **row, **times, poll_index=run.polls, position=2, record_count=0)
        run.polls += 1
    run.read({offset: values[offset] for offset in again}, 300, epoch=0)
    run.final_read(dict(values), at=9000, epoch=0)

    assert judged(run, kind) == expected


@pytest.mark.parametrize("again", [pytest.param([3], id="skipped"), pytest.param([1, 2, 3], id="rewound")])
@pytest.mark.parametrize("at", [150, 250, 3000])
def test_no_election_explains_what_a_consumer_does_in_one_log(tmp_path: Path, again: list[int], at: int) -> None:
    """What it received stands in the final log: nothing was lost between."""
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    values = dict(enumerate(run.send(sequence, 100 + sequence) for sequence in range(4)))
    if at < 200:
        run.change(at, **TO_NODE_3)
    run.read({0: values[0], 1: values[1]}, 200, epoch=0)
    if at == 250:
        run.change(at, **TO_NODE_3)
    run.read({offset: values[offset] for offset in again}, 300, epoch=0)
    if at > 300:
        run.change(at, **TO_NODE_3)
    run.final_read(dict(values), at=9000, epoch=0)

    kinds = {(kind, severity) for kind, severity, *_ in found(run.finish()) if kind in ("skipped", "rewound", "unseen")}
    assert kinds in ({("skipped", "violation"), ("unseen", "violation")}, {("rewound", "violation")})


@pytest.mark.parametrize(("group", "expected"), [
    pytest.param("g", ("permitted", "R12"), id="the group that lacks it"),
    pytest.param("h", LOST, id="another group"),
])  # fmt: skip
def test_a_group_lacks_what_lies_behind_its_own_position(tmp_path: Path, group: str, expected: tuple[str, str]) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(40, isr=[1, 2])
    row = {"generation": 5, "topic": "t", "partition": 0, "kind": "commit", "outcome": "ok", "committed_offset": 3}
    before = {"process": 50 if group == "g" else 60, "group": group}
    run.recorder.row("commits", **row, **before, invoke_ns=50 * MS, complete_ns=51 * MS)
    run.change(60, **TO_NODE_3)
    values = [run.send(sequence, 100 + sequence) for sequence in range(3)]
    for process, offsets in ((50, (0, 2)), (60, (0, 1, 2))):
        for offset in offsets:
            run.read({offset: values[offset]}, 200 + offset, process=process, epoch=1)
    for process, own in ((50, "g"), (60, "h")):
        run.recorder.row("commits", **row, process=process, group=own, invoke_ns=300 * MS, complete_ns=301 * MS)
    run.final_read(dict(enumerate(values)), at=9000, epoch=1)

    assert judged(run, "unconsumed") == [expected]


@pytest.mark.parametrize(("set_to", "expected"), [
    pytest.param(2, ("permitted", "R12"), id="beyond the record"),
    pytest.param(1, LOST, id="to the record"),
])  # fmt: skip
def test_one_group_had_read_on_and_another_one_was_set_beyond_a_record(
    tmp_path: Path, set_to: int, expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(40, isr=[1, 2])
    row = {"generation": 5, "topic": "t", "partition": 0, "kind": "commit", "outcome": "ok", "committed_offset": 3}
    run.recorder.row("commits", **row, process=50, group="g", invoke_ns=50 * MS, complete_ns=51 * MS)
    run.change(60, **TO_NODE_3)
    order = {"api": "alter_offset", "group": "h", "topic": "t", "partition": 0, "log_offset": set_to, "outcome": "ok"}
    run.recorder.row("admin", **order, invoke_ns=210 * MS, complete_ns=211 * MS)
    values = [run.send(sequence, 100 + sequence) for sequence in range(3)]
    for process, group in ((50, "g"), (60, "h")):
        for offset in (0, 2):
            run.read({offset: values[offset]}, 200 + offset, process=process, epoch=1)
        run.recorder.row("commits", **row, process=process, group=group, invoke_ns=300 * MS, complete_ns=301 * MS)
    run.final_read(dict(enumerate(values)), at=9000, epoch=1)

    assert set(judged(run, "unconsumed")) == {expected}


# Holders: who joined the ISR holds what it held, until something took it.


@pytest.mark.parametrize(("isrs", "expected"), [
    pytest.param([], BY_R4, id="it was in no ISR"),
    pytest.param([(500, [1, 2, 3])], LOST, id="it had joined"),
    pytest.param([(500, [1, 2, 3]), (1000, [1, 2])], LOST, id="it had joined and left"),
])  # fmt: skip
def test_who_joined_the_isr_holds_what_it_held(
    tmp_path: Path, isrs: list[tuple[int, list[int]]], expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    run.send(0, 100)
    for at, isr in isrs:
        run.change(at, isr=isr)
    run.change(3000, **TO_NODE_3)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("falls", "lowered", "expected"), [
    pytest.param([(200, 2), (600, 3)], None, ("permitted", "R1"), id="two of them"),
    pytest.param([(200, 3), (600, 3)], None, LOST, id="one of them twice"),
    pytest.param([(200, 2), (400, None), (600, 3)], None, LOST, id="the first was whole again"),
    pytest.param([(600, 3)], "t", ("permitted", "R1"), id="one of them, of min ISR 1"),
    pytest.param([(600, 3)], "u", LOST, id="one of them, of another topic's min ISR 1"),
])  # fmt: skip
def test_min_isr_less_one_unclean_shutdowns_are_survived(
    run: Run, falls: list[tuple[int, int | None]], lowered: str | None, expected: tuple[str, str]
) -> None:
    run.change(50, isr=[2, 3], leader=2)
    run.send(0, 100)
    if lowered is not None:
        named = {"resource_type": 2, "resource_name": lowered, "name": "min.insync.replicas", "value": "1"}
        run.metadata("ConfigRecord", 150, **named)
    for number, (at, node) in enumerate(falls):
        if node is None:  # the one that fell has fetched everything again
            run.change(at - 20, isr=[3], leader=3, eligible_leader_replicas=[])
            run.change(at, isr=[3, 2])
        else:
            run.node(node, "killed", at)
            run.fault("wipe", at + 10, node=node, lost_from=0, index=number)
            run.registered(node, at + 50, previous=-1)
    run.change(800, isr=[], leader=-1, eligible_leader_replicas=[], last_known_elr=[3])
    run.change(810, isr=[3], leader=3, leader_recovery_state=1)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("stable_at", "expected"), [
    pytest.param(None, ("permitted", "R9"), id="nobody saw its marker"),
    pytest.param(1000, LOST, id="its marker was there, and the new leader had it"),
])  # fmt: skip
def test_a_torn_transaction_needs_its_marker_to_be_lost(
    tmp_path: Path, stable_at: int | None, expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.metadata("PartitionRecord", 0, topic="u", **CREATED)
    sent = {"t": run.send(0, 100, txn_id="x"), "u": run.send(1, 101, topic="u", offset=0, txn_id="x")}
    steps = [
        {"kind": "send", "topic": topic, "partition": 0, "log_offset": 0, "value": value}
        for topic, value in sent.items()
    ]
    times = {"begin_ns": 99 * MS, "end_ns": None, "outcome": "info"}
    run.recorder.row("txns", process=7, txn_id="x", operations=steps, **times)
    if stable_at is not None:
        run.watermark(2, stable_at, epoch=0, topic="u", last_stable_offset=2)
    run.metadata("PartitionChangeRecord", 3000, topic="u", partition_id=0, **TO_NODE_3)
    run.final_read({0: sent["t"]}, at=9000, isolation="read_committed")
    final = {"process": 98, "topic": "u", "partition": 0, "isolation": "read_committed", "phase": "final"}
    answer = {"poll_index": 0, "position": 0, "record_count": 0, "high_watermark": 0, "log_start_offset": 0}
    run.recorder.row("polls", **final, **answer, invoke_ns=9000 * MS, complete_ns=9000 * MS, outcome="ok")

    assert judged(run, "torn") == [expected]


@pytest.mark.parametrize(("lost", "expected"), [
    pytest.param([{"from_offset": 0, "end_offset": None}], ("permitted", "R9"), id="lost, and grown again"),
    pytest.param([], LOST, id="never lost"),
])  # fmt: skip
def test_an_end_that_grew_again_shows_no_marker_that_was_lost(
    tmp_path: Path, lost: list[dict[str, Any]], expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **NO_ELR)
    run.metadata("PartitionRecord", 0, topic="u", **CREATED)
    home = {"topic": "u", "partition_id": 0, "isr": [3]}
    run.node(3, "start", 0)
    run.metadata("PartitionChangeRecord", 50, **home, leader=3)
    sent = {"t": run.send(0, 100, txn_id="x"), "u": run.send(1, 101, topic="u", offset=0, txn_id="x")}
    steps = [
        {"kind": "send", "topic": topic, "partition": 0, "log_offset": 0, "value": value}
        for topic, value in sent.items()
    ]
    times = {"begin_ns": 99 * MS, "end_ns": None, "outcome": "info"}
    run.recorder.row("txns", process=7, txn_id="x", operations=steps, **times)
    run.node(3, "killed", 2000)
    fields = {"index": 0, "kind": "power-loss", "planned_ns": 1, "injected_ns": 1, "healed_ns": 2300 * MS}
    place = {"node": 3, "topic": "u", "partition": 0, "begin_ns": 2100 * MS, "end_ns": 2200 * MS}
    run.recorder.row("faults", **fields, took_effect=True, healed=True, losses=[place | one for one in lost])
    run.metadata("PartitionChangeRecord", 2050, **home, leader=-1)
    run.registered(3, 2500, previous=-1, fenced=False)
    run.metadata("PartitionChangeRecord", 3000, **home, leader=3)
    run.watermark(2, 5000, epoch=3, observer="node-3", topic="u", last_stable_offset=2)
    run.final_read({0: sent["t"]}, at=9000, isolation="read_committed")
    final = {"process": 98, "topic": "u", "partition": 0, "isolation": "read_committed", "phase": "final"}
    answer = {"poll_index": 0, "position": 0, "record_count": 0, "high_watermark": 0, "log_start_offset": 0}
    run.recorder.row("polls", **final, **answer, invoke_ns=9000 * MS, complete_ns=9000 * MS, outcome="ok")

    assert judged(run, "torn") == [expected]


@pytest.mark.parametrize(("outcome", "isolation", "elected_at", "kept_by", "expected"), [
    pytest.param("info", "read_committed", None, [], [("lost_after_read", *LOST)], id="nobody took it"),
    pytest.param("info", "read_committed", 3000, [], [("lost_after_read", *BY_R4)], id="an unclean election took it"),
    pytest.param("info", "read_committed", 500, [], [("lost_after_read", *LOST)], id="an unclean election before it was received"),
    pytest.param("info", "read_uncommitted", None, [], [], id="who received it did not ask whether it was committed"),
    pytest.param("info", "read_committed", None, [1, 2, 3], [("unread", *LOST)], id="it stands in the logs, out of sight"),
    pytest.param("info", "read_committed", None, None, [("withdrawn", *LOST)], id="nobody read the logs"),
    pytest.param("info", "read_committed", 3000, None, [("withdrawn", "permitted", "R9")], id="nobody read them after an election"),
    pytest.param("info", "read_uncommitted", None, None, [], id="nobody read them, and who received it did not ask"),
    pytest.param("aborted", "read_committed", None, [], [], id="it was aborted: an aborted read"),
])  # fmt: skip
def test_what_a_committed_read_received_of_a_transaction_of_unknown_outcome_stays(
    tmp_path: Path,
    outcome: str,
    isolation: str,
    elected_at: int | None,
    kept_by: list[int] | None,
    expected: list[tuple[str, ...]],
) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    value = run.send(0, 100, txn_id="x")
    step = {"kind": "send", "topic": "t", "partition": 0, "log_offset": 0, "value": value}
    times = {"begin_ns": 99 * MS, "end_ns": None if outcome == "info" else 200 * MS}
    run.recorder.row("txns", process=7, txn_id="x", outcome=outcome, operations=[step], **times)
    if elected_at is not None and elected_at < 1000:
        run.change(elected_at, **TO_NODE_3)
        run.change(elected_at + 10, isr=[3, 1, 2], leader_recovery_state=0)
    run.read({0: value}, 1000, isolation=isolation, epoch=0 if elected_at is None or elected_at > 1000 else 1)
    if elected_at is not None and elected_at > 1000:
        run.change(elected_at, **TO_NODE_3)
    run.final_read({}, at=9000, isolation="read_committed")
    for node in () if kept_by is None else (1, 2, 3):
        if kept_by is not None and node in kept_by:
            run.log(node, {0: value})
        else:
            run.dump(node)
    run_dir = run.finish()
    own = ("lost_after_read", "withdrawn", "unread")

    assert [one[:3] for one in found(run_dir) if one[0] in own] == expected
    assert +Counter({kind: count for kind, count in agree(run_dir, "lost_writes").items() if kind in own}) == Counter(
        kind for kind, *_ in expected
    )


# What groups and coordinators remember is lost in its own partition, after it was written, and before it was missed.


def uncleanly_elected(run: Run, topic: str, at: int) -> None:
    """Elect node 3, which is in the ISR of no partition that begins with 1 and 2; who followed the former leader follows it."""
    run.metadata("PartitionChangeRecord", at, topic=topic, partition_id=0, **TO_NODE_3)
    run.metadata("PartitionChangeRecord", at + 10, topic=topic, partition_id=0, isr=[3, 2], leader_recovery_state=0)


ELECTIONS = [
    pytest.param({}, "permitted", id="in its place, in between"),
    pytest.param({"topic": "elsewhere"}, "violation", id="in another partition"),
    pytest.param({"at": 200}, "violation", id="before it was written"),
    pytest.param({"at": 6000}, "violation", id="after it was missed"),
    pytest.param({"isr": [1, 2, 3]}, "violation", id="of one that held it"),
    pytest.param({"allowed": False}, "violation", id="not allowed"),
]


@pytest.mark.parametrize(("election", "severity"), ELECTIONS)
@pytest.mark.parametrize("kind", ["offset_forgotten", "offset_stale"])
def test_a_position_is_lost_by_an_election_of_its_coordinator(
    tmp_path: Path, election: dict[str, Any], severity: str, kind: str
) -> None:
    run = Run(tmp_path / "run", **(UNCLEAN if election.get("allowed", True) else {}))
    at, isr = election.get("at", 3000), election.get("isr", [1, 2])
    for topic in ("__consumer_offsets", "elsewhere"):
        run.metadata("PartitionRecord", 0, topic=topic, **CREATED | {"isr": isr})
    row = {"process": 50, "group": "g", "topic": "t", "partition": 0, "outcome": "ok"}
    for number, offset in enumerate([3, 5]):
        times = {"invoke_ns": (1000 + 10 * number) * MS, "complete_ns": (1001 + 10 * number) * MS}
        run.recorder.row("commits", **row, **times, kind="commit", committed_offset=offset)
    uncleanly_elected(run, election.get("topic", "__consumer_offsets"), at)
    fetched = None if kind == "offset_forgotten" else 3
    times = {"invoke_ns": 5000 * MS, "complete_ns": 5001 * MS}
    run.recorder.row("commits", **row, **times, kind="fetch", committed_offset=fetched)

    assert [one for one, _ in judged(run, kind)] == [severity]


@pytest.mark.parametrize(("election", "severity"), [one for one in ELECTIONS if one.id != "of one that held it"])
@pytest.mark.parametrize("home", ["t", "__transaction_state"])
@pytest.mark.nightly
def test_an_end_is_lost_by_an_election_in_between(
    tmp_path: Path, election: dict[str, Any], severity: str, home: str
) -> None:
    """A transaction that was committed holds the last stable offset back to the end."""
    run = Run(tmp_path / "run", **(UNCLEAN if election.get("allowed", True) else {}))
    run.change(50, isr=[1, 2])
    for topic in ("__transaction_state", "elsewhere"):
        run.metadata("PartitionRecord", 60, topic=topic, **CREATED | {"isr": [1, 2]})
    committed(run, at=1000, end=1100)
    at = election.get("at", 3000)
    uncleanly_elected(run, election.get("topic", home), at if at < 6000 else 40_000)
    run.watermark(1, 20_000, epoch=int(at < 6000 and election.get("topic", home) == "t"), last_stable_offset=0)

    assert [one for one, _ in judged(run, "hanging")] == [severity]


# Watermarks: what was shown is lost by what happened after it was shown last, in its own partition.


@pytest.mark.parametrize(("election", "severity"), ELECTIONS)
def test_a_latest_offset_goes_back_by_an_election_in_between(
    tmp_path: Path, election: dict[str, Any], severity: str
) -> None:
    run = Run(tmp_path / "run", **(UNCLEAN if election.get("allowed", True) else {}))
    run.metadata("PartitionRecord", 10, topic="elsewhere", **CREATED)
    run.change(50, isr=election.get("isr", [1, 2]))
    at = election.get("at", 3000)
    if at < 1000:
        uncleanly_elected(run, "t", at)
    for offset, shown_at in ((9, 1000), (7, 5000)):
        if shown_at > at > 1000:
            uncleanly_elected(run, election.get("topic", "t"), at)
        who = {"answered_by": 3 if at < 1000 else 1} if shown_at == 1000 else {}
        row = {"observer": "client-90", "source": "list_offsets", "log_end_offset": offset, **who}
        run.watermark(offset, shown_at, epoch=None, **row)
    if at > 5000:
        uncleanly_elected(run, "t", at)

    assert [one for one, _ in judged(run, "latest_offset_back")] == [severity]


@pytest.mark.parametrize(("column", "kind"), [
    ("high_watermark", "high_watermark_back"), ("last_stable_offset", "last_stable_offset_back"),
])  # fmt: skip
@pytest.mark.parametrize("at", [500, 3000, 6000])
@pytest.mark.nightly
def test_no_election_explains_what_goes_back_within_an_epoch(tmp_path: Path, column: str, kind: str, at: int) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    for offset, shown_at in ((9, 1000), (7, 5000)):
        if shown_at > at > shown_at - 4000:
            run.change(at, **TO_NODE_3)
        row = {"last_stable_offset": offset} if column == "last_stable_offset" else {}
        run.watermark(
            9 if row else offset, shown_at, epoch=int(at == 500), observer=f"node-{3 if at == 500 else 1}", **row
        )
    if at > 5000:
        run.change(at, **TO_NODE_3)

    assert judged(run, kind) == [LOST]


@pytest.mark.parametrize(("at", "epoch", "expected"), [
    pytest.param(3000, 0, BY_R4, id="before the election"),
    pytest.param(500, 1, LOST, id="by who was elected"),
])  # fmt: skip
def test_an_end_that_was_shown(tmp_path: Path, at: int, epoch: int, expected: tuple[str, str]) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    values = {0: run.send(0, 100)}
    if at < 1000:
        run.change(at, **TO_NODE_3)
    run.watermark(5, 1000, epoch=epoch, observer=f"node-{1 + 2 * epoch}")
    if at > 1000:
        run.change(at, **TO_NODE_3)
    run.final_read(dict(values), at=9000, epoch=0)

    assert judged(run, "shown_end_lost") == [expected]


@pytest.mark.parametrize(("dumped", "start", "expected"), [
    pytest.param([1, 2, 3], 0, [LOST], id="all logs were read, and hold nothing"),
    pytest.param([1, 2, 3], 5, [], id="they begin where the end was shown"),
    pytest.param([1, 2], 0, [], id="nobody read the third"),
])  # fmt: skip
def test_an_end_that_was_shown_of_logs_that_hold_nothing(
    run: Run, dumped: list[int], start: int, expected: list[object]
) -> None:
    run.watermark(5, 500, epoch=0)
    for node in dumped:
        run.dump(node, start=start, end=start)

    assert judged(run, "shown_end_lost") == expected


@pytest.mark.parametrize(("epoch", "expected"), [
    pytest.param(0, BY_R4, id="by the leader before"),
    pytest.param(1, LOST, id="by who was elected"),
])  # fmt: skip
def test_who_answered_a_poll_had_what_it_handed_out(tmp_path: Path, epoch: int, expected: tuple[str, str]) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    value = run.send(0, 100)
    run.change(1000, **TO_NODE_3)
    row = {"process": 90, "topic": "t", "partition": 0, "isolation": "read_uncommitted", "phase": "tail"}
    times = {"invoke_ns": 2000 * MS, "complete_ns": 2001 * MS, "outcome": "ok", "leader_epoch": epoch}
    run.recorder.row("polls", **row, **times, poll_index=7, position=0, record_count=1, high_watermark=1)
    read = {"process": 90, "poll_index": 7, "topic": "t", "partition": 0, "log_offset": 0, "phase": "tail"}
    run.recorder.row("reads", **read, value=value)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


# min ISR: the high watermark does not move below it.


@pytest.mark.parametrize(("isr", "mode", "expected"), [
    pytest.param([1], "kraft", [LOST], id="below it"),
    pytest.param([1, 2], "kraft", [], id="at it"),
    pytest.param([1], "zookeeper", [], id="below it, in ZooKeeper mode"),
])  # fmt: skip
def test_a_high_watermark_moves_with_min_isr(
    run: Run, isr: list[int], mode: str, expected: list[tuple[str, str]]
) -> None:
    run.change(1000, isr=isr, eligible_leader_replicas=[node for node in (2, 3) if node not in isr])
    for high_watermark, at in ((1, 3000), (2, 4000)):
        run.watermark(high_watermark, at, epoch=0)
    run.metadata("NoOpRecord", 8000)

    rows = found(run.finish(mode=mode))
    kind = "high_watermark_moved_below_min_isr"
    assert [(severity, rule) for own, severity, rule, _ in rows if own == kind] == expected


# Led: who could lead is not left aside.


@pytest.mark.parametrize(("loser", "lost_from", "elr", "left", "expected"), [
    pytest.param(2, 0, False, [2], [], id="its disk lost the whole log"),
    pytest.param(2, 3, False, [2], [LOST], id="its log has its beginning"),
    pytest.param(3, 0, False, [2], [LOST], id="another disk did"),
    pytest.param(2, 0, False, [2, 3], [LOST], id="another member did not"),
    pytest.param(2, 0, True, [2], [LOST], id="with ELR it is taken out of the ISR"),
])  # fmt: skip
def test_who_lost_the_whole_log_is_not_elected_without_elr(
    tmp_path: Path, loser: int, lost_from: int, elr: bool, left: list[int], expected: list[tuple[str, str]]
) -> None:
    run = Run(tmp_path / "run", **{} if elr else NO_ELR)
    for node in (1, 2, 3):
        run.node(node, "start", 0)
    run.watermark(9, 100, epoch=0)
    run.change(200, isr=left)
    run.node(loser, "killed", 500)
    run.fault("wipe", 510, node=loser, lost_from=lost_from, lasts=100)
    run.change(700, leader=-1)
    run.node(loser, "start", 800)
    run.registered(loser, 900, previous=-1, fenced=False)
    run.metadata("NoOpRecord", 9000)

    assert judged(run, "leaderless") == expected


@pytest.mark.parametrize(("elr", "lay_in", "said_at", "again", "expected"), [
    pytest.param(False, "old", 1000, None, [], id="its disk was replaced"),
    pytest.param(False, "old", None, None, [], id="it never says where its replica lies now"),
    pytest.param(False, "new", 1000, None, [LOST], id="its disk is the one that it had"),
    pytest.param(False, "00000000-0000-0000-0000-000000000000", 1000, None, [LOST], id="nobody knew where its replica lay"),
    pytest.param(False, "old", 1000, 2, [LOST], id="it was unfenced again"),
    pytest.param(False, "old", 1000, 1, [LOST], id="another one with a replica was unfenced"),
    pytest.param(False, "old", 1000, 4, [], id="one without a replica was unfenced"),
    pytest.param(False, "old", 6000, 2, [], id="it was unfenced again before it said so"),
    pytest.param(True, "old", 1000, None, [LOST], id="with ELR it is taken out of the ISR"),
])  # fmt: skip
def test_whose_disk_was_replaced_is_passed_over_without_elr(
    tmp_path: Path, elr: bool, lay_in: str, said_at: int | None, again: int | None, expected: list[tuple[str, str]]
) -> None:
    """Nothing was on that disk, so none lost anything; found by the search (seed 148500016)."""
    run = Run(tmp_path / "run", **{} if elr else NO_ELR)
    for node in (1, 2, 3):
        run.node(node, "start", 0)
    run.watermark(0, 100, epoch=0)
    run.change(200, isr=[2], directories=["one", lay_in, "three"])
    run.node(2, "killed", 500)
    run.change(700, leader=-1)
    run.node(2, "start", 800)
    epoch = {"broker_id": 2, "broker_epoch": 900}
    run.metadata("RegisterBrokerRecord", 900, **epoch, fenced=True, log_dirs=["new"])
    run.metadata("BrokerRegistrationChangeRecord", 910, **epoch, fenced=-1)
    events = [(said_at, lambda: run.change(said_at, directories=["one", "new", "three"]))] if said_at else []
    if again is not None:
        back = {"broker_id": again, "broker_epoch": 1}
        events.append((5000, lambda: run.metadata("BrokerRegistrationChangeRecord", 5000, **back, fenced=-1)))
    for _, happens in sorted(events, key=lambda event: event[0]):
        happens()
    run.metadata("NoOpRecord", 9000)

    assert judged(run, "leaderless") == expected


@pytest.mark.parametrize(("left", "down", "unhealed", "expected"), [
    pytest.param({"isr": [2]}, None, None, [LOST], id="a member of the ISR could lead"),
    pytest.param({"isr": [], "eligible_leader_replicas": [2]}, None, None, [LOST], id="a member of the ELR could"),
    pytest.param({"isr": [], "eligible_leader_replicas": []}, None, None, [], id="nobody is in either"),
    pytest.param({"isr": [2]}, 2, None, [], id="it is down"),
    pytest.param({"isr": [2]}, 3, None, [LOST], id="another one is down"),
    pytest.param({"isr": [2]}, None, 1, [LOST], id="another broker was never healed"),
    pytest.param({"isr": [2]}, None, 2, [], id="it was never healed itself"),
])  # fmt: skip
def test_who_could_lead(
    run: Run, left: dict[str, Any], down: int | None, unhealed: int | None, expected: list[tuple[str, str]]
) -> None:
    for node in (1, 2, 3):
        run.node(node, "start", 0)
    run.fault("kill", 500, node=1, healed=unhealed != 1, lasts=None if unhealed == 1 else 100)
    run.node(1, "killed", 500)
    if unhealed == 2:
        run.fault("cut", 500, node=2, healed=False, lasts=None)
    if down is not None:
        run.node(down, "killed", 600)
    run.watermark(0, 100, epoch=0)
    run.change(700, leader=-1, **left)
    run.metadata("NoOpRecord", 9000)

    assert judged(run, "leaderless") == expected


@pytest.mark.parametrize(("kind", "heal", "expected"), [
    pytest.param("halves", {"healed": True, "undone": True}, [LOST], id="proven by full service"),
    pytest.param("halves", {"healed": False, "undone": True}, [LOST], id="which full service does not follow"),
    pytest.param("halves", {"healed": False, "undone": False}, [], id="which is not undone"),
    pytest.param("halves", {"healed": False, "undone": None}, [LOST], id="of which a recording says no more"),
    pytest.param("isolate", {"healed": False, "undone": False}, [LOST], id="which is not undone at another broker"),
])  # fmt: skip
def test_a_leader_is_owed_behind_a_fault(
    run: Run, kind: str, heal: dict[str, bool | None], expected: list[tuple[str, str]]
) -> None:
    """A partition without leader has no full ISR, and no fault beside it a proof of full service: were these in effect to the end, nobody would owe it a leader."""
    for node in (1, 2, 3):
        run.node(node, "start", 0)
    run.fault(kind, 500, node=1, lasts=100, **heal)
    run.watermark(0, 100, epoch=0)
    run.change(700, leader=-1, isr=[2])
    run.metadata("NoOpRecord", 9000)

    assert judged(run, "leaderless") == expected


# What operators and time-outs do to transactions and groups is right, and explains nothing else.


@pytest.mark.parametrize(("outcome", "visible", "expected"), [
    pytest.param("aborted", False, set(), id="aborted, by its time-out or an operator"),
    pytest.param("aborted", True, {("aborted_read", "violation")}, id="aborted, and seen"),
    pytest.param("info", False, set(), id="nobody knows, and it is out of sight"),
    pytest.param("info", True, set(), id="nobody knows, and it is seen"),
    pytest.param("committed", True, set(), id="committed, and seen"),
    pytest.param("committed", False, {("unread", "violation")}, id="committed, and out of sight"),
])  # fmt: skip
@pytest.mark.parametrize("order", [None, {"api": "fence_producer", "value": "x"}], ids=["", "fenced"])
@pytest.mark.nightly
def test_how_a_transaction_ended(
    run: Run, outcome: str, visible: bool, expected: set[object], order: dict[str, Any] | None
) -> None:
    if order is not None:
        run.recorder.row("admin", **order, invoke_ns=150 * MS, complete_ns=160 * MS, outcome="ok")
    value = run.send(0, 100, txn_id="x")
    step = {"kind": "send", "topic": "t", "partition": 0, "log_offset": 0, "value": value}
    times = {"begin_ns": 99 * MS, "end_ns": None if outcome == "info" else 200 * MS, "timeout_ms": 5_000}
    run.recorder.row("txns", process=7, txn_id="x", outcome=outcome, operations=[step], **times)
    run.final_read({0: value} if visible else {}, at=9000, isolation="read_committed")
    for node in (1, 2, 3):
        run.log(node, {0: value})

    rows = found(run.finish())
    assert {(kind, severity) for kind, severity, *_ in rows if severity != "note"} == expected


GROUP = {"group": "g", "invoke_ns": 2000 * MS, "complete_ns": 2010 * MS, "outcome": "ok"}
BACK = GROUP | {"api": "alter_offset", "topic": "t", "partition": 0, "log_offset": 0}


@pytest.mark.parametrize(("order", "severity"), [
    pytest.param(BACK, "permitted", id="set back before it"),
    pytest.param(BACK | {"log_offset": 1}, "violation", id="set back behind it"),
    pytest.param(BACK | {"group": "h"}, "violation", id="another group's"),
    pytest.param(BACK | {"topic": "u"}, "violation", id="of another topic"),
    pytest.param(BACK | {"outcome": "fail"}, "violation", id="refused"),
    pytest.param(BACK | {"invoke_ns": 500 * MS, "complete_ns": 501 * MS}, "violation", id="before it was processed"),
    pytest.param(BACK | {"invoke_ns": 8000 * MS, "complete_ns": 8001 * MS}, "violation", id="after it was again"),
    pytest.param(GROUP | {"api": "delete_group"}, "permitted", id="the group was deleted"),
    pytest.param(GROUP | {"api": "delete_group", "group": "h"}, "violation", id="another group was deleted"),
    pytest.param(GROUP | {"api": "delete_offset", "topic": "t", "partition": 0}, "permitted", id="its position was"),
    pytest.param(GROUP | {"api": "delete_offset", "topic": "t", "partition": 1}, "violation", id="another position was"),
])  # fmt: skip
@pytest.mark.nightly
def test_what_is_processed_again_was_ordered(run: Run, order: dict[str, Any], severity: str) -> None:
    value = run.send(0, 100)
    run.recorder.row("admin", **order)
    for process, at in ((8, 1000), (9, 5000)):
        step = {"kind": "poll", "topic": "t", "partition": 0, "log_offset": 0, "value": value}
        times = {"begin_ns": at * MS, "end_ns": (at + 10) * MS, "outcome": "committed"}
        run.recorder.row("txns", process=process, txn_id=f"x{process}", operations=[step], **times)
        row = {"process": process, "group": "g", "topic": "t", "partition": 0, "kind": "commit", "outcome": "ok"}
        times = {"invoke_ns": (at + 5) * MS, "complete_ns": (at + 6) * MS}
        run.recorder.row("commits", **row, **times, committed_offset=1)
    run.final_read({0: value}, at=9000)

    assert [one for one, _ in judged(run, "processed_twice")] == [severity]


@pytest.mark.parametrize(("node", "event", "expected"), [
    pytest.param(1, None, BY_R5, id="its leader ran on"),
    pytest.param(1, "killed", LOST, id="its leader was down"),
    pytest.param(3, "killed", BY_R5, id="another one was down"),
])  # fmt: skip
def test_acks_1_is_answered_by_who_runs(run: Run, node: int, event: str | None, expected: tuple[str, str]) -> None:
    for other in (1, 2, 3):
        run.node(other, "start", 0)
    run.change(2000, leader=2, isr=[2, 3])
    if event is not None:
        run.node(node, event, 2100)
    run.send(0, 5000, acks=1)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("lost_at", "rejoined_at", "expected"), [
    pytest.param(1500, None, ("permitted", "R3"), id="it never fetched it again"),
    pytest.param(1500, 2500, LOST, id="it had fetched it again"),
])  # fmt: skip
def test_who_fetched_again_what_its_disk_lost_has_it(
    tmp_path: Path, lost_at: int, rejoined_at: int | None, expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **NO_ELR)
    run.node(3, "start", 0)
    run.send(0, 1000)
    run.node(3, "killed", lost_at)
    run.fault("wipe", lost_at + 10, node=3, lost_from=0)
    run.registered(3, lost_at + 100, previous=-1, fenced=False)
    if rejoined_at is not None:
        run.change(rejoined_at - 200, isr=[1, 2])
        run.change(rejoined_at, isr=[1, 2, 3])
    run.change(4000, leader=3, isr=[3])
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("at", "in_logs", "expected"), [
    pytest.param(800, True, [LOST], id="before it"),
    pytest.param(1500, True, [], id="after it, and the logs hold it"),
    pytest.param(1500, False, [LOST], id="after it, and no log holds it"),
])  # fmt: skip
def test_what_is_shown_after_the_final_read_is_looked_for_in_the_logs(
    run: Run, at: int, in_logs: bool, expected: list[tuple[str, str]]
) -> None:
    """A request that was late is served behind the final read: nobody could read it there."""
    values = {offset: run.send(offset, 100 + offset) for offset in range(2)}
    late = {2: run.send(2, 120, acks=0)}
    run.watermark(3, at, epoch=0)
    run.final_read(values, at=900)
    for node in (1, 2, 3):
        run.log(node, values | (late if in_logs else {}))

    assert judged(run, "shown_end_lost") == expected


@pytest.mark.parametrize(("in_logs", "expected"), [
    pytest.param(True, [], id="the logs hold it"),
    pytest.param(False, [LOST], id="no log holds it"),
])  # fmt: skip
def test_what_a_last_poll_brings_is_looked_for_in_the_logs(
    run: Run, in_logs: bool, expected: list[tuple[str, str]]
) -> None:
    """A late request was served between a final read's end and its last poll: nobody polled behind that."""
    values = {offset: run.send(offset, 100 + offset) for offset in range(2)}
    late = {2: run.send(2, 120, acks=0)}
    run.final_read(values, at=900)
    run.poll(99, "final", 2, 1, 950, high_watermark=3, leader_epoch=0)
    run.watermark(3, 950, epoch=0)
    for node in (1, 2, 3):
        run.log(node, values | (late if in_logs else {}))

    assert judged(run, "shown_end_lost") == expected


@pytest.mark.parametrize(("lasts", "in_logs", "expected"), [
    pytest.param(100, True, [], id="behind what was there when it asked, and the logs hold it"),
    pytest.param(100, False, [LOST], id="behind what was there when it asked, and no log holds it"),
    pytest.param(0, True, [LOST], id="when it asked: then it must have been read"),
])  # fmt: skip
def test_what_the_last_poll_itself_was_shown_came_while_it_waited(
    run: Run, lasts: int, in_logs: bool, expected: list[tuple[str, str]]
) -> None:
    """A transaction was aborted behind a final read of committed records, and its marker is no record (wide-swarm-exactly-once, seed 182006)."""
    values = {offset: run.send(offset, 100 + offset) for offset in range(2)}
    run.final_read(values, at=900)
    run.poll(99, "final", 2, 0, 902, high_watermark=2)
    run.poll(99, "final", 2, 0, 1000, high_watermark=3, leader_epoch=0, lasts=lasts)
    late = {2: run.send(2, 120, acks=0)}
    for node in (1, 2, 3):
        run.log(node, values | (late if in_logs else {}))

    assert judged(run, "shown_end_lost") == expected
    assert agree(run.run_dir, "shown_end")["shown_end_lost"] == len(expected)


@pytest.mark.parametrize(("at", "in_logs", "expected"), [
    pytest.param(950, True, [], id="while it waited, and the logs hold it"),
    pytest.param(950, False, [LOST], id="while it waited, and no log holds it"),
    pytest.param(901, True, [LOST], id="before it asked"),
])  # fmt: skip
def test_an_empty_last_poll_proves_nothing_of_the_time_in_which_it_waited(
    run: Run, at: int, in_logs: bool, expected: list[tuple[str, str]]
) -> None:
    """What it asked was answered behind its end, with a record that came meanwhile (reassign, seed 30002)."""
    values = {offset: run.send(offset, 100 + offset) for offset in range(2)}
    late = {2: run.send(2, 120, acks=0)}
    run.final_read(values, at=900)
    run.poll(99, "final", 2, 0, 902, high_watermark=2, lasts=100)
    run.poll(99, "final", 2, 1, 1010, high_watermark=3, leader_epoch=0)
    run.watermark(3, at, epoch=0)
    for node in (1, 2, 3):
        run.log(node, values | (late if in_logs else {}))

    assert judged(run, "shown_end_lost") == expected


@pytest.mark.parametrize(("order", "expected"), [
    pytest.param({}, BY_R4, id="of this partition"),
    pytest.param({"partition": 1}, LOST, id="of another partition"),
    pytest.param({"topic": "u"}, LOST, id="of another topic"),
    pytest.param({"outcome": "fail"}, LOST, id="refused"),
    pytest.param({"value": "preferred"}, LOST, id="of the preferred leader"),
    pytest.param({"outcome": "info", "complete_ns": None}, BY_R4, id="its answer was lost"),
    pytest.param({"invoke_ns": 4000 * MS, "complete_ns": 4001 * MS}, LOST, id="sent afterwards"),
])  # fmt: skip
@pytest.mark.nightly
def test_an_ordered_election_of_a_watermarks_partition(
    run: Run, order: dict[str, Any], expected: tuple[str, str]
) -> None:
    named = {"api": "elect_leaders", "value": "unclean", "topic": "t", "partition": 0, "outcome": "ok"}
    run.recorder.row("admin", **named | {"invoke_ns": 2500 * MS, "complete_ns": 3100 * MS} | order)
    run.change(50, isr=[1, 2])
    run.watermark(5, 1000, epoch=0)
    run.change(3000, **TO_NODE_3)
    run.final_read({}, at=9000)

    assert judged(run, "shown_end_lost") == [expected]


@pytest.mark.parametrize(("epoch", "expected"), [
    pytest.param(2, BY_R4, id="the next leader wrote something else there"),
    pytest.param(1, LOST, id="the same leader epoch"),
])  # fmt: skip
def test_an_offset_has_one_value_in_a_leader_epoch(tmp_path: Path, epoch: int, expected: tuple[str, str]) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    run.change(1000, **TO_NODE_3)
    values = [run.send(number, 1500 + number, offset=0) for number in range(2)]
    run.read({0: values[0]}, 2000, epoch=1)
    run.change(4000, leader=2, isr=[2], leader_recovery_state=1)
    run.final_read({0: values[1]}, at=9000, epoch=epoch)

    assert judged(run, "offset_conflict") == [expected]


@pytest.mark.parametrize(("again", "expected"), [
    pytest.param(0, BY_R4, id="where it was sent again to"),
    pytest.param(1, LOST, id="where another one stands"),
])  # fmt: skip
def test_what_was_sent_again_is_not_there_where_it_stood_before(
    tmp_path: Path, again: int, expected: tuple[str, str]
) -> None:
    """A record was received before anybody answered it, an unclean election took it, and its producer sent it again."""
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    value = run.send(0, 1000, offset=0, complete_ns=3500 * MS, leader_epoch=1, attempts=2)
    other = run.send(1, 3600, offset=1)
    run.read({1: value}, 2000, epoch=0, answered_by=1, leader_epoch=0)
    run.change(3000, **TO_NODE_3)
    run.read({again: value}, 4000, epoch=1, process=91, answered_by=3, leader_epoch=1)
    run.final_read({0: value, 1: other}, at=9000, epoch=1)

    assert judged(run, "offset_conflict") == [expected]


@pytest.mark.parametrize(("lost", "expected"), [
    pytest.param({"node": 1, "lost_from": 0}, BY_R5, id="its leader's disk"),
    pytest.param({"node": 2, "lost_from": 0}, LOST, id="a follower's disk"),
    pytest.param({"node": 1, "lost_from": 1}, LOST, id="what stands behind it"),
    pytest.param({}, LOST, id="nothing"),
])  # fmt: skip
def test_acks_1_promises_the_leaders_disk(tmp_path: Path, lost: dict[str, int], expected: tuple[str, str]) -> None:
    run = Run(tmp_path / "run", **NO_ELR)
    run.node(1, "start", 0)
    run.node(2, "start", 0)
    run.send(0, 1000, acks=1)
    run.change(1900, isr=[1])
    for node in (1, 2):
        run.node(node, "killed", 2000)
    if lost:
        run.fault("wipe", 2010, **lost)
    run.change(2050, leader=-1)
    for node in (1, 2):
        run.registered(node, 2500, previous=-1, fenced=False)
    run.change(3000, leader=1)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("seen_by", "expected"), [
    pytest.param(None, BY_R4, id="nobody saw it afterwards"),
    pytest.param("reader", LOST, id="a first poll got it"),
    pytest.param("watermark", LOST, id="the new leader's high watermark passed it"),
])  # fmt: skip
def test_what_was_there_after_the_last_election_was_lost_by_none(
    tmp_path: Path, seen_by: str | None, expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    value = run.send(0, 100)
    run.change(1000, **TO_NODE_3)
    if seen_by == "reader":
        run.read({0: value}, 3000, epoch=0)
    if seen_by == "watermark":
        run.watermark(1, 3000, epoch=1, observer="node-3")
    run.final_read({}, at=9000)

    assert judged(run) == [expected]
