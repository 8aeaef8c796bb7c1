"""Lost writes: pairs of a run that is fine and its nearest neighbour that is not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_sql import agree
from tribunal.checkers.judge.engine import judge_runs
from tribunal.checkers.judge.silence import longest_silence
from tribunal.results.values import value_of

Row = dict[str, object]


def found(run_dir: Path) -> list[tuple[object, object, object, object]]:
    tables = judge_runs([run_dir], "inline")
    assert [row.words for row in (*tables.damages, *tables.failures)] == []
    found = [row.finding for row in tables.findings]
    return [(one.kind, one.severity, one.rule, one.log_offset) for one in found]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def test_nothing_is_lost_when_everything_is_read(run: Run) -> None:
    values = [run.send(i, 100 + i) for i in range(3)]
    run.final_read(dict(enumerate(values)))

    assert found(run.finish()) == []


def test_a_lost_acks_all_record_after_a_plain_leader_kill_is_a_violation(run: Run) -> None:
    values = [run.send(i, 100 + i) for i in range(3)]
    run.change(200, leader=2, isr=[2, 3])
    run.final_read(dict(enumerate(values[:2])), epoch=1)

    assert found(run.finish()) == [("lost", "violation", "", 2)]


def test_a_lost_acks_1_record_after_a_leader_change_is_permitted(run: Run) -> None:
    values = [run.send(i, 100 + i, acks=1) for i in range(3)]
    run.change(200, leader=2, isr=[2, 3])
    run.final_read(dict(enumerate(values[:2])))

    assert found(run.finish()) == [("lost", "permitted", "R5", 2)]


def test_a_lost_acks_1_record_without_a_leader_change_is_a_violation(run: Run) -> None:
    values = [run.send(i, 100 + i, acks=1) for i in range(3)]
    run.final_read(dict(enumerate(values[:2])))

    assert found(run.finish()) == [("lost", "violation", "", 2)]


UNCLEAN = {"unclean.leader.election.enable": True}


@pytest.mark.parametrize(
    ("change", "judged"),
    [
        pytest.param({"stamped": 100}, "permitted", id="answered when it was written"),
        pytest.param({"stamped": 102}, "violation", id="answered before it was written"),
        pytest.param({"stamped": -9_000}, "permitted", id="by a clock that is far behind"),
        pytest.param({"stamped": None}, "violation", id="nobody knows when it was written"),
        pytest.param({"stamped": 200}, "violation", id="by a clock that is ahead"),
        pytest.param({"stamped": 100, "leader_epoch": 1, "leader": 1}, "violation", id="of a later leader epoch"),
    ],
)
def test_a_leader_acts_on_a_smaller_isr_before_it_is_observed(
    tmp_path: Path, change: dict[str, Any], judged: str
) -> None:
    """It is answered at 101 ms by broker 1 alone; the ISR [1] is observed at 103 ms (rack-reads with min ISR 1, seed 3)."""
    run = Run(tmp_path / "run", **{**UNCLEAN, "min.insync.replicas": 1})
    run.send(0, 100, log_offset=0)
    run.change(103, isr=[1], **change)
    run.change(700, leader=2, isr=[2], leader_recovery_state=1)
    run.final_read({})

    assert [(kind, severity) for kind, severity, _, _ in found(run.finish())] == [("lost", judged)]


def test_nor_longer_before_than_observers_lag(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", **{**UNCLEAN, "min.insync.replicas": 1})
    run.send(0, 100, log_offset=0)
    run.change(603, isr=[1], stamped=100)
    run.change(700, leader=2, isr=[2], leader_recovery_state=1)
    run.final_read({})

    assert [(kind, severity) for kind, severity, _, _ in found(run.finish())] == [("lost", "violation")]


@pytest.mark.parametrize(
    ("settings", "judged"),
    [
        pytest.param(UNCLEAN, ("lost", "permitted", "R4", None), id="allowed"),
        pytest.param({}, ("lost", "violation", "", None), id="not allowed"),
    ],
)
def test_elections_count_for_a_record_whose_offset_nobody_knows(
    tmp_path: Path, settings: dict[str, bool], judged: tuple[object, ...]
) -> None:
    run = Run(tmp_path / "run", **settings)
    run.change(50, isr=[1, 2])
    run.send(0, 100, log_offset=None)
    run.change(200, leader=3, isr=[3], leader_recovery_state=1)
    run.final_read({})

    assert judged in found(run.finish())


@pytest.mark.parametrize(
    ("lost_from", "judged"),
    [
        pytest.param(0, ("lost", "permitted", "R3", None), id="everything"),
        pytest.param(7, ("lost", "violation", "", None), id="what lies behind"),
    ],
)
def test_of_a_record_whose_offset_nobody_knows_a_disk_has_lost_it_if_it_lost_all(
    tmp_path: Path, lost_from: int, judged: tuple[object, ...]
) -> None:
    run = Run(tmp_path / "run", mode="zookeeper")
    run.send(0, 100, log_offset=None)
    run.node(2, "killed", 150)
    run.fault("power-loss", 150, node=2, lost_from=lost_from)
    run.registered(2, at=200, previous=-1, fenced=False)
    run.change(210, leader=2, isr=[2])
    run.final_read({})

    assert found(run.finish()) == [judged]


def test_a_record_that_was_read_has_to_survive_whatever_its_acks(run: Run) -> None:
    values = [run.send(i, 100 + i, acks=1) for i in range(3)]
    run.read(dict(enumerate(values)), 150)
    run.change(200, leader=2, isr=[2, 3])
    run.final_read(dict(enumerate(values[:2])))

    assert found(run.finish()) == [("lost", "violation", "", 2)]


def test_a_record_of_unknown_fate_may_vanish_unread(run: Run) -> None:
    run.send(0, 100, outcome="info", complete_ns=None, log_offset=None)
    run.final_read({})

    assert found(run.finish()) == []


def test_a_record_of_unknown_fate_may_not_vanish_once_read(run: Run) -> None:
    value = run.send(0, 100, outcome="info", complete_ns=None, log_offset=None)
    run.read({0: value}, 150)
    run.change(200, leader=2, isr=[2, 3])
    run.final_read({})

    assert found(run.finish()) == [("lost_after_read", "violation", "", 0)]


@pytest.mark.parametrize(
    ("elr", "severity", "rule"),
    [pytest.param(False, "permitted", "R3", id="off"), pytest.param(True, "violation", "", id="on")],
)
def test_the_last_replica_standing_with_and_without_elr(tmp_path: Path, elr: bool, severity: str, rule: str) -> None:
    run = Run(tmp_path / "run", **{"eligible.leader.replicas.enable": elr})
    run.change(50, isr=[3], leader=3)
    run.send(0, 100)
    run.node(3, "killed", 150)
    run.change(160, leader=-1)
    run.fault("lose_unsynced", 170, node=3, lost_from=0)
    run.registered(3, at=200, previous=-1)
    run.change(210, leader=3)
    run.final_read({})

    assert ("lost", severity, rule, 0) in found(run.finish())


@pytest.mark.parametrize(
    ("isr", "elr", "loser", "led_again", "expected"),
    [
        pytest.param([3], False, 3, False, ("permitted", "R3"), id="all who may be elected lost it"),
        pytest.param([3], True, 3, False, ("violation", ""), id="ELR is on"),
        pytest.param([3], False, 2, False, ("violation", ""), id="another disk lost it"),
        pytest.param([2, 3], False, 3, False, ("violation", ""), id="another member did not lose it"),
        pytest.param([3], False, 3, True, ("violation", ""), id="somebody else leads in the end"),
    ],
)
def test_where_nobody_leads_in_the_end_who_may_be_elected_may_have_lost_it(
    tmp_path: Path, isr: list[int], elr: bool, loser: int, led_again: bool, expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **{"eligible.leader.replicas.enable": elr})
    run.change(50, isr=[1, 2, 3], leader=3)
    value = run.send(0, 100)
    run.change(140, isr=isr)
    run.node(loser, "killed", 150)
    run.fault("wipe", 160, node=loser, lost_from=0)
    run.change(200, leader=-1)
    run.registered(loser, at=210, previous=-1)
    if led_again:
        run.change(300, leader=2, isr=[2])
    members = [2] if led_again else isr
    for node in (1, 2, 3):
        run.log(node, {0: value} if node not in members else {})
        run.dump(node)

    assert expected in {(severity, rule) for kind, severity, rule, _ in found(run.finish()) if kind == "lost"}


@pytest.mark.parametrize(
    ("killed_at", "severity", "rule"),
    [pytest.param(150, "permitted", "R3", id="within"), pytest.param(250, "violation", "", id="behind")],
)
def test_a_fault_of_many_episodes_takes_data_when_it_ends_the_node(
    tmp_path: Path, killed_at: int, severity: str, rule: str
) -> None:
    """What a swarm lost counted from its first episode on, before the record was sent (found by a sweep, seed 607)."""
    run = Run(tmp_path / "run", **{"eligible.leader.replicas.enable": False})
    run.fault("rotating-swarm", 50, node=3, lost_from=0, lasts=180)
    run.send(0, 100)
    run.node(3, "killed", killed_at)
    run.registered(3, at=300, previous=-1)
    run.change(310, leader=3, isr=[3])
    run.final_read({})

    assert ("lost", severity, rule, 0) in found(run.finish())


def test_kill_9_of_everybody_excuses_nothing(run: Run) -> None:
    run.send(0, 100)
    for at, node in ((200, 1), (300, 2), (400, 3)):
        run.node(node, "killed", at)
        run.registered(node, at=at + 50, previous=-1)
    run.change(500, isr=[], leader=-1, eligible_leader_replicas=[], last_known_elr=[3])
    run.change(510, isr=[3], leader=3, leader_recovery_state=1)
    run.final_read({})

    assert ("lost", "violation", "", 0) in found(run.finish())


def test_two_proven_losses_spend_the_budget_of_min_isr_2(run: Run) -> None:
    run.change(50, isr=[2, 3], leader=2)
    run.send(0, 100)
    for at, node in ((200, 2), (300, 3)):
        run.node(node, "killed", at)
        run.fault("lose_unsynced", at + 10, node=node, lost_from=0)
        run.registered(node, at=at + 50, previous=-1)
    run.change(500, isr=[], leader=-1, eligible_leader_replicas=[], last_known_elr=[3])
    run.change(510, isr=[3], leader=3, leader_recovery_state=1)
    run.final_read({})

    assert found(run.finish()) == [("lost", "permitted", "R1", 0)]


def test_an_incomplete_final_read_loses_nothing_but_cannot_be_judged(run: Run) -> None:
    run.send(0, 100)
    run.poll(99, "final", 0, 0, 900, high_watermark=1)

    assert found(run.finish()) == [("unjudged", "unjudged", "", None)]


def test_without_a_final_read_the_logs_of_those_that_can_lead_decide(run: Run) -> None:
    values = [run.send(i, 100 + i) for i in range(2)]
    for node in (1, 2, 3):
        run.log(node, {0: values[0]})

    assert found(run.finish()) == [("lost", "violation", "", 1)]


def test_one_log_too_few_leaves_the_partition_unjudged(run: Run) -> None:
    values = [run.send(i, 100 + i) for i in range(2)]
    for node in (1, 2):
        run.log(node, {0: values[0]})

    assert found(run.finish()) == [("unjudged", "unjudged", "", None)]


def test_a_log_that_was_read_and_holds_nothing_counts_as_well(run: Run) -> None:
    values = [run.send(i, 100 + i) for i in range(2)]
    for node in (1, 2):
        run.log(node, {0: values[0]})
    run.dump(3)

    assert ("lost", "violation", "", 1) in found(run.finish())


def test_a_record_in_the_logs_but_not_in_the_read_is_unread(run: Run) -> None:
    values = [run.send(i, 100 + i) for i in range(2)]
    run.final_read({0: values[0]})
    for node in (1, 2, 3):
        run.log(node, dict(enumerate(values)))

    assert found(run.finish()) == [("unread", "violation", "", 1)]


PHANTOM = [("phantom", "violation", "", 1)]


@pytest.mark.parametrize(("fault", "expected"), [
    pytest.param({}, PHANTOM, id="nothing happened to its disk"),
    pytest.param({"lost_from": 1, "lost_end": 2}, PHANTOM, id="what left a disk is on it no more"),
    pytest.param({"lost_from": 1, "lost_end": 2, "unseen_end": 2}, [], id="damaged there where nobody sees it"),
    pytest.param({"lost_from": 0, "lost_end": 1, "unseen_end": 1}, PHANTOM, id="damaged before it"),
    pytest.param({"lost_from": 1, "lost_end": 2, "unseen_end": 2, "node": 2}, PHANTOM, id="another disk was"),
])  # fmt: skip
def test_what_nobody_sent_stands_in_no_replica_s_log(run: Run, fault: dict[str, Any], expected: list[Any]) -> None:
    """Node 3 is out of the ISR: what it holds beyond the others it will truncate, but nobody ever sent it."""
    run.change(50, isr=[1, 2])
    sent = run.send(0, 100)
    run.final_read({0: sent})
    if fault:
        run.fault("bit-flip", 200, **{"node": 3} | fault)
    for node in (1, 2, 3):
        run.log(node, {0: sent} | ({1: value_of(9, 5)} if node == 3 else {}))

    assert found(run.finish()) == expected
    assert agree(run.run_dir, "lost_writes")["phantom"] == len(expected)


@pytest.mark.parametrize("answered", ["sent", "info"])
def test_what_somebody_sent_may_stand_where_the_isr_lacks_it(run: Run, answered: str) -> None:
    run.change(50, isr=[1, 2])
    sent, other = run.send(0, 100), run.send(1, 110, acks=0 if answered == "sent" else -1, outcome=answered)
    run.final_read({0: sent})
    for node in (1, 2, 3):
        run.log(node, {0: sent} | ({1: other} if node == 3 else {}))

    assert [kind for kind, *_ in found(run.finish())] == []


def test_of_a_run_that_was_cut_off_any_value_may_have_been_sent(run: Run) -> None:
    run.log(3, {0: value_of(9, 5)})

    assert "phantom" not in [kind for kind, *_ in found(run.cut_off())]


def test_what_nobody_sent_is_a_phantom(run: Run) -> None:
    run.final_read({0: value_of(8, 0)})

    assert found(run.finish()) == [("phantom", "violation", "", 0)]


def test_a_cut_off_run_does_not_know_what_was_in_flight(run: Run) -> None:
    run.read({0: value_of(8, 0)}, 100)

    assert found(run.cut_off()) == [("unjudged", "unjudged", "", None)]


@pytest.mark.parametrize(
    ("worker_class", "kind", "severity"),
    [
        pytest.param("idempotent", "duplicate", "violation", id="idempotent"),
        pytest.param("plain", "repeated", "note", id="plain"),
    ],
)
def test_a_record_that_stands_twice(run: Run, worker_class: str, kind: str, severity: str) -> None:
    value = run.send(0, 100, worker_class=worker_class)
    run.final_read({0: value, 1: value})

    assert found(run.finish()) == [(kind, severity, "", 1)]


@pytest.mark.parametrize(("doubled", "worker_class", "kind"), [
    pytest.param(None, "no-retries", "duplicate", id="it was sent once, and arrived once"),
    pytest.param({}, "no-retries", "repeated", id="its request arrived twice"),
    pytest.param({}, "idempotent", "duplicate", id="its request arrived twice, which an idempotent producer's leader notices"),
    pytest.param({"to": 2}, "no-retries", "duplicate", id="a request to another node did"),
    pytest.param({"at_ns": 90 * MS}, "no-retries", "duplicate", id="an earlier request did"),
    pytest.param({"at_ns": 300 * MS}, "no-retries", "duplicate", id="a later request did"),
    pytest.param({"api_key": 1}, "no-retries", "duplicate", id="a fetch did"),
    pytest.param({"direction": "response"}, "no-retries", "duplicate", id="an answer did"),
    pytest.param({"fate": "delayed"}, "no-retries", "duplicate", id="a request was late"),
    pytest.param({"from": 3}, "no-retries", "duplicate", id="a broker's request did"),
])  # fmt: skip
def test_what_a_fault_lets_arrive_twice_was_not_sent_twice(
    run: Run, doubled: dict[str, Any] | None, worker_class: str, kind: str
) -> None:
    """A connection delivers a request once; found by the search (rotating-swarm, seed 761343778)."""
    value = run.send(0, 100, worker_class=worker_class, attempts=1, answered_by=1, complete_ns=200 * MS)
    if doubled is not None:
        request = {"from": 0, "to": 1, "api_key": 0, "direction": "request", "fate": "duplicated", "at_ns": 150 * MS}
        run.recorder.row("requests", **request | doubled)
    run.final_read({0: value, 1: value})
    run_dir = run.finish()

    assert [found_kind for found_kind, *_ in found(run_dir)] == [kind]
    assert [*agree(run_dir, "lost_writes")] == [kind]


@pytest.mark.parametrize(("start", "judged"), [(0, [("duplicate", "violation", "", 1)]), (1, [])])
def test_of_two_in_the_logs_the_one_before_the_log_start_is_in_no_readers_log(
    run: Run, start: int, judged: list[tuple[object, object, object, object]]
) -> None:
    """A leader that began behind a producer's last batch does not know it, and others still hold that batch."""
    value = run.send(0, 100, worker_class="idempotent")
    run.watermark(2, 800, epoch=0, log_start_offset=start)
    for node in (1, 2, 3):
        run.log(node, {0: value, 1: value})

    assert [one for one in found(run.finish()) if one[0] == "duplicate"] == judged


@pytest.mark.parametrize(
    ("changes", "severity", "rule"),
    [
        pytest.param({}, "permitted", "R8", id="a leader of its forgot it"),
        pytest.param({"process": 8}, "violation", "", id="it was another producer's"),
        pytest.param({"election": 5000}, "violation", "", id="when it was done with the record"),
        pytest.param({"again": 700}, "violation", "", id="it was known again before it was sent"),
        pytest.param({"leader": 2}, "violation", "", id="the new leader had its records"),
        pytest.param({"unclean.leader.election.enable": False}, "violation", "", id="not allowed"),
        pytest.param({"stands": True}, "violation", "", id="what it was known by was never lost"),
        pytest.param({"stands": 0, "election": 700}, "violation", "", id="it stands there as it was acknowledged"),
        pytest.param({"stands": 1, "election": 700}, "permitted", "R8", id="it was written anew there later"),
    ],
)
def test_an_idempotent_producer_that_a_leader_forgot_repeats_itself(
    tmp_path: Path, changes: dict[str, object], severity: str, rule: str
) -> None:
    """It numbers its records anew in all its partitions: what was under way in `t` is written again (KIP-360)."""
    given = {"process": 7, "election": 200, "leader": 3, "again": None, "stands": None, **UNCLEAN} | changes
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": given["unclean.leader.election.enable"]})
    created = {"partition_id": 0, "replicas": [1, 2, 3], "isr": [1, 2], "leader": 1, "leader_epoch": 0}
    run.metadata("PartitionRecord", 0, topic="u", **created)
    elected = {"partition_id": 0, "isr": [given["leader"]], "leader": given["leader"], "leader_recovery_state": 1}
    run.metadata("PartitionChangeRecord", int(str(given["election"])), topic="u", **elected)
    other = (int(str(given["process"])) << 40) + 1
    run.send(1, 100, topic="u", offset=0, process=given["process"], value=other)
    if given["again"] is not None:
        run.send(2, 700, topic="u", offset=0)
        run.node(1, "killed", 150)  # it is not the deposed leader that answered
    if given["stands"] is not None:
        read = {"topic": "u", "partition": 0, "log_offset": 0, "value": other, "phase": "final"}
        epoch = None if given["stands"] is True else given["stands"]
        run.recorder.row("reads", process=98, poll_index=0, leader_epoch=epoch, **read)
    value = run.send(3, 800, complete_ns=900_000_000)
    run.final_read({0: value, 1: value}, at=1900)

    judged = [(kind, *rest) for kind, *rest in found(run.finish()) if kind == "duplicate"]

    assert judged == [("duplicate", severity, rule, 1)]


@pytest.mark.parametrize(
    ("changes", "severity", "rule"),
    [
        pytest.param({}, "permitted", "R8", id="nothing else was written meanwhile"),
        pytest.param({"seen": 1_999}, "violation", "", id="it was seen to stand twice too soon"),
        pytest.param({"until": 1_100}, "permitted", "R8", id="a request came late"),
        pytest.param({"worker_class": "no-retries", "attempts": 1}, "violation", "", id="nobody knows its producer"),
        pytest.param({"expiration_ms": 1_001}, "violation", "", id="the producer has to be remembered for longer"),
        pytest.param({"expiration_ms": None}, "violation", "", id="for a day, as Kafka does"),
        pytest.param({"written": {"at": 1_400}}, "violation", "", id="it wrote another meanwhile"),
        pytest.param({"written": {"at": 1_400, "process": 8}}, "permitted", "R8", id="another producer did"),
        pytest.param({"written": {"at": 1_400, "topic": "u"}}, "permitted", "R8", id="elsewhere"),
        pytest.param({"written": {"at": 1_400, "acks": 1}}, "permitted", "R8", id="what the next leader may lack"),
        pytest.param({"written": {"at": 1_400, "outcome": "info"}}, "permitted", "R8", id="what may have come late"),
        pytest.param({"written": {"at": 1_990, "until": 2_010}}, "permitted", "R8", id="perhaps afterwards"),
        pytest.param({"expiration_ms": 1_500, "ahead": (1, 500)}, "permitted", "R8", id="its leader's clock was ahead"),
        pytest.param({"expiration_ms": 1_500, "ahead": (2, 500)}, "violation", "", id="another node's clock was"),
        pytest.param({"expiration_ms": 1_501, "ahead": (1, 500)}, "violation", "", id="not by as much"),
    ],
)
def test_a_leader_forgets_an_idempotent_producer_that_is_silent_for_too_long(
    tmp_path: Path, changes: dict[str, Any], severity: str, rule: str
) -> None:
    """A record that was sent a second before stands twice."""
    expiration_ms = changes.get("expiration_ms", 1_000)
    run = Run(tmp_path / "run", **({} if expiration_ms is None else {"producer.id.expiration.ms": expiration_ms}))
    more = {name: changes[name] for name in ("worker_class", "attempts") if name in changes}
    value = run.send(0, 1_000, complete_ns=changes.get("until", 2_000) * MS, **more)
    records = {0: value, 1: value}
    if "written" in changes:
        at, until, other = (changes["written"].get(name) for name in ("at", "until", "process"))
        more = {name: changes["written"][name] for name in ("topic", "acks", "outcome") if name in changes["written"]}
        sent = value_of(7 if other is None else other, 2)
        run.send(2, at, process=sent >> 40, value=sent, complete_ns=(until or at + 1) * MS, **more)
        records |= {} if "topic" in more else {2: sent}
    if "ahead" in changes:
        node, offset_ms = changes["ahead"]
        run.fault("clock-jump", 1_200, node=node, lasts=300, proof=f'{{"offset_ms": {offset_ms}}}')
    run.read({1: value}, changes.get("seen", 2_000))
    run.final_read(records, at=5_000)

    judged = [(kind, *rest) for kind, *rest in found(run.finish()) if kind == "duplicate"]

    assert judged == [("duplicate", severity, rule, 1)]


@pytest.mark.parametrize(
    ("beside", "severity", "rule"),
    [
        pytest.param({"at": 500, "until": 1_510}, "permitted", "R8", id="it was under way beside this one"),
        pytest.param({"at": 500, "until": None}, "permitted", "R8", id="and had no answer"),
        pytest.param({"at": 400, "until": 1_450}, "violation", "", id="it was done with before this one was sent"),
        pytest.param({"at": 501, "until": 1_500}, "violation", "", id="it was done with too soon"),
        pytest.param({"at": 500, "until": 1_510, "process": 8}, "violation", "", id="it was another producer's"),
    ],
)
def test_a_producer_that_a_leader_forgot_repeats_itself_in_all_its_partitions(
    tmp_path: Path, beside: dict[str, Any], severity: str, rule: str
) -> None:
    """A record of it was under way for a second in another partition."""
    run = Run(tmp_path / "run", **{"producer.id.expiration.ms": 1_000})
    created = {"partition_id": 0, "replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1, "leader_epoch": 0}
    run.metadata("PartitionRecord", 0, topic="u", **created)
    until, process = beside["until"], beside.get("process", 7)
    answer = {"outcome": "info", "complete_ns": None} if until is None else {"complete_ns": until * MS}
    run.send(1, beside["at"], topic="u", offset=0, process=process, value=value_of(process, 1), **answer)
    value = run.send(3, 1_490, complete_ns=1_520 * MS)
    run.read({1: value}, 1_530)
    run.final_read({0: value, 1: value}, at=5_000)

    judged = [(kind, *rest) for kind, *rest in found(run.finish()) if kind == "duplicate"]

    assert judged == [("duplicate", severity, rule, 1)]


@pytest.mark.parametrize(
    ("answered", "longest"),
    [
        pytest.param([], (100, 200), id="nothing"),
        pytest.param([(140, 150)], (60, 200), id="one"),
        pytest.param([(110, 190)], (90, 190), id="either half"),
        pytest.param([(160, 190), (110, 120)], (80, 190), id="in any order"),
        pytest.param([(90, 150), (150, 210)], (100, 200), id="perhaps before, perhaps afterwards"),
    ],
)
def test_the_longest_silence(answered: list[tuple[int, int]], longest: tuple[int, int]) -> None:
    sent_ns, answered_ns = (np.array([one[side] for one in answered], np.int64) for side in (0, 1))

    assert longest_silence(sent_ns, answered_ns, 100, 200) == longest


def test_refused_and_corrupt_records(run: Run) -> None:
    refused = run.send(0, 100, outcome="fail", log_offset=None)
    run.final_read({0: refused, 1: None})

    assert found(run.finish()) == [("corrupt", "violation", "", 1), ("refused_yet_written", "violation", "", 0)]


@pytest.mark.parametrize(("outcome", "node", "expected"), [
    pytest.param("fail", 1, [("refused_yet_written", "violation", "", 1)], id="refused: nobody wrote it"),
    pytest.param("fail", 3, [("refused_yet_written", "violation", "", 1)], id="refused: nor has anybody else written it"),
    pytest.param("info", 1, [], id="of unknown fate: it may have been written"),
])  # fmt: skip
def test_what_was_refused_stands_in_no_log_read_or_not(
    run: Run, outcome: str, node: int, expected: list[tuple[str, str, str, int]]
) -> None:
    """Nobody leads in the end, so that nobody read the partition: the replicas' logs are the final log."""
    kept = run.send(0, 100)
    refused = run.send(1, 110, outcome=outcome, log_offset=None)
    run.change(300, isr=[1, 2])
    run.change(400, leader=-1)
    for member in (1, 2, 3):
        run.log(member, {0: kept} | ({1: refused} if member == node else {}))

    assert [one for one in found(run.finish()) if one[0] == "refused_yet_written"] == expected


def test_witnesses_are_capped_and_counted(run: Run) -> None:
    for i in range(100):
        run.send(i, 100 + i)
    run.final_read({})

    found = [row.finding for row in judge_runs([run.finish()], "inline").findings if row.finding.kind == "lost"]

    assert len(found) == 20
    assert sum(one.count for one in found) == 100


def test_an_uncommitted_transaction_promises_nothing(run: Run) -> None:
    run.send(0, 100, txn_id="x")
    run.recorder.row("txns", process=7, txn_id="x", begin_ns=0, end_ns=1, outcome="aborted", operations=[])
    run.final_read({})

    assert found(run.finish()) == []


def test_a_committed_transaction_promises_its_records(run: Run) -> None:
    value = run.send(0, 100, txn_id="x")
    operations = [{"kind": "send", "topic": "t", "partition": 0, "log_offset": 0, "value": value}]
    run.recorder.row("txns", process=7, txn_id="x", begin_ns=0, end_ns=1, outcome="committed", operations=operations)
    run.final_read({})

    assert found(run.finish()) == [("lost", "violation", "", 0)]


def test_a_deposed_leader_that_was_not_notified_may_lose_what_it_answered(run: Run) -> None:
    run.change(100, leader=2, isr=[2, 3])
    run.send(0, 5000, acks=1)
    run.final_read({})

    assert found(run.finish()) == [("lost", "permitted", "R5", 0)]


def test_a_deposed_leader_that_came_back_to_the_isr_was_notified(run: Run) -> None:
    run.change(100, leader=2, isr=[2, 3])
    run.change(4000, isr=[1, 2, 3])
    run.send(0, 5000, acks=1)
    run.final_read({})

    assert found(run.finish()) == [("lost", "violation", "", 0)]


@pytest.mark.parametrize(
    ("policy", "key", "expected"),
    [
        pytest.param("compact", "a", {("lost", "permitted", "gone_by_order", 1)}, id="its key was written again"),
        pytest.param("compact", "b", {("lost", "violation", "", 1)}, id="another key was written"),
        pytest.param(
            "delete",
            "a",
            {(kind, "violation", "", 1) for kind in ("lost", "gap", "replicas_lack")},
            id="not compacted",
        ),
    ],
)
def test_compaction_takes_only_what_a_newer_record_of_the_key_replaces(
    run: Run, policy: str, key: str, expected: set[object]
) -> None:
    """A register per key: its newest write has to survive, older ones may go (docs/verdicts.md, gone by order)."""
    run.metadata("ConfigRecord", 1, resource_type=2, resource_name="t", name="cleanup.policy", value=policy)
    values = [run.send(sequence, 100 + sequence, key=name) for sequence, name in enumerate(("c", "a", key))]
    left = {0: values[0], 2: values[2]}
    run.final_read(left)
    for node in (1, 2, 3):
        run.log(node, left)

    assert set(found(run.finish())) == expected


@pytest.mark.parametrize(
    ("since", "until", "severity"),
    [
        pytest.param(1, None, "permitted", id="all the time"),
        pytest.param(500, None, "permitted", id="before it was missed"),
        pytest.param(1, 500, "permitted", id="after it was sent"),
        pytest.param(2000, None, "violation", id="when it had been missed"),
        pytest.param(1, 50, "violation", id="before it was sent"),
    ],
)
def test_only_a_topic_that_is_compacted_meanwhile_loses_older_records(
    run: Run, since: int, until: int | None, severity: str
) -> None:
    policy = {"resource_type": 2, "resource_name": "t", "name": "cleanup.policy"}
    run.metadata("ConfigRecord", since, value="compact", **policy)
    if until is not None:
        run.metadata("ConfigRecord", until, value="delete", **policy)
    values = [run.send(sequence, 100 + sequence, key="a") for sequence in range(2)]
    run.final_read({1: values[1]})

    assert [(kind, found_as) for kind, found_as, *_ in found(run.finish())] == [("lost", severity)]


@pytest.mark.parametrize(
    ("before", "severity", "rule"),
    [
        pytest.param((1, 150, 2), "permitted", "R4", id="fetched ahead, who knows when"),
        pytest.param((1, 390, 1), "violation", "", id="fetched after the election"),
        pytest.param(None, "violation", "", id="its first poll: it had nothing in its hands"),
    ],
)
def test_what_a_client_hands_out_late_it_may_have_fetched_before(
    tmp_path: Path, before: tuple[int, int, int] | None, severity: str, rule: str
) -> None:
    """The unclean leader 3 may lack the record; had a consumer fetched it from there, the clean election would have lost it."""
    run = Run(tmp_path, **{"unclean.leader.election.enable": True})
    run.change(50, isr=[1, 2])
    values = [run.send(i, 100 + i) for i in range(2)]
    run.change(200, isr=[3], leader=3, leader_recovery_state=1, eligible_leader_replicas=[])
    run.change(300, isr=[3, 2], leader_recovery_state=0)
    if before is not None:
        position, at, end = before
        run.poll(90, "tail", position, 0, at, high_watermark=end)
    run.read({1: values[1]}, 400)
    run.change(500, isr=[2], leader=2, eligible_leader_replicas=[3])
    run.final_read({0: values[0]}, epoch=4)

    assert found(run.finish()) == [("lost", severity, rule, 1)]


@pytest.mark.parametrize(
    ("uncleanly", "at", "severity", "rule"),
    [
        pytest.param("t", 200, "permitted", "R9", id="its marker may be lost, or never written"),
        pytest.param("__transaction_state", 200, "permitted", "R9", id="its decision may be lost"),
        pytest.param("elsewhere", 200, "violation", "", id="another partition says nothing"),
        pytest.param("t", 50, "violation", "", id="it was sent after the election"),
    ],
)
def test_a_committed_record_out_of_sight(tmp_path: Path, uncleanly: str, at: int, severity: str, rule: str) -> None:
    run = Run(tmp_path, **{"unclean.leader.election.enable": True})
    created = {"partition_id": 0, "replicas": [1, 2, 3], "isr": [1, 2], "leader": 1, "leader_epoch": 0}
    for topic in ("__transaction_state", "elsewhere"):
        run.metadata("PartitionRecord", 0, topic=topic, **created)
    election = {"isr": [3], "leader": 3, "leader_recovery_state": 1}
    if at < 100:
        run.metadata("PartitionChangeRecord", at, topic=uncleanly, partition_id=0, **election)
    values = [run.send(i, 100 + i, txn_id="x") for i in range(2)]
    operations = [{"kind": "send", "topic": "t", "partition": 0, "log_offset": i, "value": values[i]} for i in (0, 1)]
    run.recorder.row("txns", process=7, txn_id="x", begin_ns=0, end_ns=1, outcome="committed", operations=operations)
    if at > 100:
        run.metadata("PartitionChangeRecord", at, topic=uncleanly, partition_id=0, **election)
    run.final_read({0: values[0]}, isolation="read_committed")
    for node in (1, 2, 3):
        run.log(node, dict(enumerate(values)))

    assert found(run.finish()) == [("unread", severity, rule, 1)]


@pytest.mark.parametrize(
    ("leader", "judged"),
    [
        pytest.param(3, ("lost", "permitted", "R4", 1), id="elected uncleanly"),
        pytest.param(2, ("lost", "violation", "", 1), id="elected from the ISR"),
    ],
)
def test_a_deposed_leader_may_go_on_to_answer_acks_all_where_the_new_one_was_not_in_its_isr(
    tmp_path: Path, leader: int, judged: tuple[object, ...]
) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    values = [run.send(0, 100)]
    run.change(150, leader=-1)
    run.change(160, leader=leader, isr=[leader], **({"leader_recovery_state": 1} if leader == 3 else {}))
    run.send(1, 170)
    run.final_read(dict(enumerate(values)))

    assert judged in found(run.finish())


@pytest.mark.parametrize(
    ("stays", "judged"),
    [
        pytest.param(5, [("lost", "permitted", "R5", 1)], id="it left the ISR at once"),
        pytest.param(700, [("lost", "violation", "", 1)], id="it was in the ISR of the new one"),
    ],
)
def test_a_deposed_leader_that_leaves_the_isr_at_once_need_not_know(
    run: Run, stays: int, judged: list[tuple[object, ...]]
) -> None:
    values = [run.send(0, 100)]
    run.change(200, leader=3, isr=[2, 3, 1])
    run.change(200 + stays, isr=[2, 3])
    run.send(1, 1500, acks=1)
    run.final_read(dict(enumerate(values)), at=1900)

    assert found(run.finish()) == judged


@pytest.mark.parametrize(
    ("kind", "nodes", "lasts", "lag_ms", "judged"),
    [
        pytest.param("isolate", "1", 1800, 30_000, ("permitted", "R5"), id="it was cut off all the time"),
        pytest.param("isolate", "2", 1800, 30_000, ("violation", ""), id="another one was"),
        pytest.param("isolate", "1", 400, 30_000, ("violation", ""), id="it was reached again before it answered"),
        pytest.param("clock-jump", "1", 1800, 30_000, ("violation", ""), id="what hurt it keeps no message"),
        pytest.param(
            "isolate", "1", 1800, 400, ("violation", ""), id="nobody is left there so long who does not follow"
        ),
        pytest.param(
            "isolate", "101", 1800, 400, ("permitted", "R5"), id="who would have taken it out of the ISR was cut off"
        ),
        pytest.param("isolate", "1, 3", 1800, 400, ("permitted", "R5"), id="who would have asked for that was cut off"),
        pytest.param("isolate", "101", 1800, 30_000, ("permitted", "R5"), id="who would have notified it was cut off"),
        pytest.param(
            "isolate", "101", 400, 30_000, ("violation", ""), id="who would have notified it was reached again"
        ),
        pytest.param(
            "clock-jump",
            "101",
            1800,
            30_000,
            ("violation", ""),
            id="what hurt who would have notified it keeps no message",
        ),
    ],
)
def test_a_deposed_leader_that_is_left_in_the_isr_need_not_know_while_it_is_cut_off(
    tmp_path: Path, kind: str, nodes: str, lasts: int, lag_ms: int, judged: tuple[str, str]
) -> None:
    """A preferred leader is elected while the former one hears of nothing, and leaves it in the ISR for as long as followers may lag."""
    run = Run(tmp_path / "run", **{"replica.lag.time.max.ms": lag_ms})
    for broker in (1, 2, 3):
        run.registered(broker, 10, None, fenced=False)
    values = [run.send(0, 100)]
    run.fault(kind, 150, node=1, target=nodes, lasts=lasts)
    run.change(200, leader=3, isr=[2, 3, 1])
    run.send(1, 1500, acks=1)
    run.change(1600, isr=[2, 3])
    run.send(2, 1700, acks=1)
    run.final_read(dict(enumerate(values)), at=2500)

    assert found(run.finish()) == [("lost", *judged, 1), ("lost", *judged, 2)]


@pytest.mark.parametrize(("victim", "severity"), [
    pytest.param(1, "permitted", id="it was the one that was cut off"),
    pytest.param(3, "violation", id="another one was"),
])  # fmt: skip
def test_over_whose_end_a_message_is_held_is_hurt_from_the_begin(tmp_path: Path, victim: int, severity: str) -> None:
    """The proof names who is cut off, killed or paused; the row is injected when that is over (rotating-swarm.45, seed 1776557625)."""
    run = Run(tmp_path / "run", **{"replica.lag.time.max.ms": 30_000})
    values = [run.send(0, 100)]
    times = {"planned_ns": 150 * MS, "injected_ns": 1900 * MS, "healed_ns": 1950 * MS}
    proven = {"proof": f'{{"victim":{victim}}}', "heal_proof": "{}", "took_effect": True, "healed": True, "losses": []}
    run.recorder.row(
        "faults", index=0, kind="hold-over", planned_target="x", resolved_target="broker 2", **times, **proven
    )
    run.change(200, leader=3, isr=[2, 3, 1])
    run.send(1, 1500, acks=1)
    run.change(1600, isr=[2, 3])
    run.final_read(dict(enumerate(values)), at=2500)

    assert [(kind, given) for kind, given, *_ in found(run.finish())] == [("lost", severity)]


@pytest.mark.parametrize(("kind", "severity"), [
    pytest.param("brokers-from-controllers", "permitted", id="no controller notified it"),
    pytest.param("change-system", "permitted", id="each broker is ended and begun again"),
    pytest.param("clients-from-brokers", "violation", id="it was reached by who notifies it"),
    pytest.param("isolate", "violation", id="another one was cut off"),
])  # fmt: skip
def test_a_fault_about_all_brokers_hinders_whom_it_does_not_name(tmp_path: Path, kind: str, severity: str) -> None:
    """It names the target that it was aimed at; the deposed leader is another one."""
    run = Run(tmp_path / "run", **{"replica.lag.time.max.ms": 30_000})
    values = [run.send(0, 100)]
    run.fault(kind, 150, node=2, target="broker 2", lasts=1800)
    run.change(200, leader=3, isr=[2, 3, 1])
    run.send(1, 1500, acks=1)
    run.change(1600, isr=[2, 3])
    run.final_read(dict(enumerate(values)), at=2500)

    assert [(kind, given) for kind, given, *_ in found(run.finish())] == [("lost", severity)]


@pytest.mark.parametrize(("kind", "planned", "injected", "severity"), [
    pytest.param("part-kill", 150, 1900, "permitted", id="it was cut off before another one was"),
    pytest.param("fast-bounce", 150, 1900, "permitted", id="it was ended and begun again"),
    pytest.param("fast-bounce", 150, None, "permitted", id="the run was broken off in the midst of it"),
    pytest.param("part-kill", 1600, 1900, "violation", id="it had known for long"),
    pytest.param("kill", 150, 1900, "violation", id="what is injected at once"),
])  # fmt: skip
def test_who_was_hurt_before_a_fault_counts_as_injected_is_hurt_from_the_begin(
    tmp_path: Path, kind: str, planned: int, injected: int | None, severity: str
) -> None:
    """The row is injected when it has come back; a deposed leader that was away until then need not know that it is."""
    run = Run(tmp_path / "run", **{"replica.lag.time.max.ms": 30_000})
    values = [run.send(0, 100)]
    times = {"planned_ns": planned * MS, "injected_ns": injected and injected * MS, "healed_ns": injected and 1950 * MS}
    proven = {"proof": "{}", "heal_proof": "{}", "took_effect": True, "healed": injected is not None, "losses": []}
    run.recorder.row("faults", index=0, kind=kind, planned_target="x", resolved_target="broker 1", **times, **proven)
    run.change(200, leader=3, isr=[2, 3, 1])
    run.send(1, 1500, acks=1)
    run.change(1600, isr=[2, 3])
    run.final_read(dict(enumerate(values)), at=2500)

    assert [(kind, given) for kind, given, *_ in found(run.finish())] == [("lost", severity)]


@pytest.mark.parametrize(
    ("mode", "lasts", "severity"),
    [
        pytest.param(
            "zookeeper", 1800, "permitted", id="another broker, which may be the controller, was down all the time"
        ),
        pytest.param("zookeeper", 400, "violation", id="it was back for long enough"),
        pytest.param("kraft", 1800, "violation", id="no broker has to notify it"),
    ],
)
def test_only_a_controller_notifies_a_deposed_leader_in_zookeeper_mode(
    tmp_path: Path, mode: str, lasts: int, severity: str
) -> None:
    """A controller that is killed behind an election leaves the former leader in its office (rotating-swarm, seed 708899471)."""
    settings = {"mode": "zookeeper"} if mode == "zookeeper" else {"eligible.leader.replicas.enable": False}
    run = Run(tmp_path / "run", **settings)
    values = [run.send(0, 100)]
    run.fault("kill", 210, node=2, lasts=lasts)
    run.change(200, leader=3, isr=[1, 2, 3])
    run.send(1, 1500, acks=1, answered_by=1)
    run.change(2100, leader=3, isr=[1, 3], leader_epoch=2)
    run.final_read(dict(enumerate(values)), at=2500)

    assert [(kind, given) for kind, given, *_ in found(run.finish())] == [("lost", severity)]


def test_a_final_read_that_did_not_come_to_the_end_says_nothing_of_what_stands_twice(run: Run) -> None:
    value = run.send(0, 100, offset=1)
    other = run.send(1, 101, offset=0)
    run.read({0: value}, 800, phase="final", process=98)
    run.poll(98, "final", 1, 0, 801, high_watermark=9)
    run.final_read({0: other, 1: value})

    assert "duplicate" not in [kind for kind, *_ in found(run.finish())]


def test_a_final_read_that_did_not_come_to_the_end_does_not_say_what_stands_there_instead(tmp_path: Path) -> None:
    """The logs hold a record of epoch 1 in its place, so that the unclean election to epoch 2 came later."""
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    first = run.send(0, 90)
    run.send(1, 100)
    run.change(200, leader=2, isr=[2, 3])
    later = run.send(2, 210, offset=1)
    run.change(300, leader=3, isr=[3], leader_recovery_state=1, eligible_leader_replicas=[])
    run.log(3, {0: first}, epoch=0)
    run.log(3, {1: later}, epoch=1)
    run.read({0: first}, 800, phase="final", process=98, epoch=0)

    assert [(kind, severity) for kind, severity, *_ in found(run.finish())] == [("lost", "violation")]


GONE, LOST = ("lost", "permitted", "gone_by_order", 0), ("lost", "violation", "", 0)


def log_begins_at_1(run: Run, since: int = 0) -> list[tuple[object, object, object, object]]:
    """Two records, and a final read 800 ms later that begins behind the first."""
    values = [run.send(sequence, since + 100 + sequence) for sequence in range(2)]
    times = {"invoke_ns": (since + 900) * 1_000_000, "complete_ns": (since + 900) * 1_000_000, "outcome": "ok"}
    final = {"process": 99, "topic": "t", "partition": 0, "isolation": "read_uncommitted", "phase": "final"}
    for number, (position, count) in enumerate([(1, 1), (2, 0)]):
        shown = {"poll_index": number, "position": position, "record_count": count}
        run.recorder.row("polls", **final, **shown, **times, high_watermark=2, log_start_offset=1)
    read = {"poll_index": 0, "log_offset": 1, "value": values[1], "leader_epoch": 0}
    run.recorder.row(
        "reads", process=99, topic="t", partition=0, phase="final", **read
    )  # fmt: skip
    return found(run.finish())


@pytest.mark.parametrize(
    ("topic", "name", "value", "expected"),
    [
        pytest.param("t", "retention.ms", "500", GONE, id="its own"),
        pytest.param("t", "retention.ms", "5000", LOST, id="longer than the record was old"),
        pytest.param("t", "retention.ms", "-1", LOST, id="without limit"),
        pytest.param("t", "retention.bytes", "1", GONE, id="of size"),
        pytest.param("t", "retention.bytes", "1048576", LOST, id="of more than was ever written"),
        pytest.param("other", "retention.ms", "500", LOST, id="another topic's"),
        pytest.param("t", "segment.bytes", "500", LOST, id="another setting"),
    ],
)
def test_retention_takes_what_lies_before_the_log_start(
    run: Run, topic: str, name: str, value: str, expected: object
) -> None:
    run.metadata("ConfigRecord", 1, resource_type=2, resource_name=topic, name=name, value=value)

    assert log_begins_at_1(run) == [expected]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("log.retention.ms", -1, LOST), ("log.retention.ms", 500, GONE), ("log.retention.hours", 168, LOST)],
)
def test_the_nodes_own_retention_counts_too(tmp_path: Path, name: str, value: int, expected: object) -> None:
    assert log_begins_at_1(Run(tmp_path / "run", **{name: value})) == [expected]


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        pytest.param([(1, "compact")], LOST, id="compaction only"),
        pytest.param([(1, "compact,delete")], GONE, id="both"),
        pytest.param([(1, "compact"), (500, "delete")], GONE, id="deleted later"),
        pytest.param([(1, "compact"), (500, None)], GONE, id="taken back"),
        pytest.param([(500, "compact")], GONE, id="deleted before"),
    ],
)
def test_retention_counts_where_old_segments_are_deleted(
    tmp_path: Path, policies: list[tuple[int, str | None]], expected: object
) -> None:
    run = Run(tmp_path / "run", **{"log.retention.ms": 500})
    for at, value in policies:
        run.metadata("ConfigRecord", at, resource_type=2, resource_name="t", name="cleanup.policy", value=value)

    assert log_begins_at_1(run) == [expected]


@pytest.mark.parametrize(
    ("nodes", "own", "expected"),
    [
        pytest.param({"log.retention.ms": 500}, [(1, "-1")], LOST, id="the topic's own counts"),
        pytest.param({"log.retention.ms": 500}, [(1, "-1"), (200, None)], GONE, id="until it is taken back"),
        pytest.param({"log.retention.minutes": 0}, [(1, "-1")], LOST, id="in another unit"),
        pytest.param({"log.retention.ms": -1, "log.retention.minutes": 0}, [], LOST, id="the finest unit counts"),
        pytest.param({"log.retention.minutes": 0}, [], GONE, id="the only one"),
    ],
)
def test_a_topics_own_retention_replaces_the_nodes(
    tmp_path: Path, nodes: dict[str, int], own: list[tuple[int, str | None]], expected: object
) -> None:
    run = Run(tmp_path / "run", **nodes)
    for at, value in own:
        run.metadata("ConfigRecord", at, resource_type=2, resource_name="t", name="retention.ms", value=value)

    assert log_begins_at_1(run) == [expected]


@pytest.mark.parametrize(
    ("kind", "at", "expected"),
    [
        pytest.param("clock-jump", 500, GONE, id="a clock, before it was missed"),
        pytest.param("clock-jump", 2000, LOST, id="a clock, afterwards"),
        pytest.param("kill", 500, LOST, id="no clock"),
    ],
)
def test_a_clock_that_was_set_makes_records_older_from_then_on(
    tmp_path: Path, kind: str, at: int, expected: object
) -> None:
    run = Run(tmp_path / "run", **{"log.retention.hours": 168})
    run.fault(kind, at, node=1)

    assert log_begins_at_1(run) == [expected]


SHORTENED = {"api": "set_config", "topic": "t", "setting": "retention.ms", "value": "500", "outcome": "ok"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, LOST, id="before the record was sent"),
        pytest.param({"outcome": "fail"}, GONE, id="refused"),
        pytest.param({"outcome": "info", "complete_ns": None}, GONE, id="its answer was lost"),
        pytest.param({"topic": "u"}, GONE, id="of another topic"),
        pytest.param({"setting": "retention.bytes"}, GONE, id="another setting"),
        pytest.param({"invoke_ns": 30_500_000_000, "complete_ns": 30_501_000_000}, GONE, id="later"),
    ],
)
def test_retention_that_was_taken_back_takes_nothing_that_was_sent_later(
    run: Run, changes: dict[str, object], expected: object
) -> None:
    run.recorder.row("admin", **SHORTENED, invoke_ns=10_000_000, complete_ns=11_000_000)
    back = {"value": "-1", "invoke_ns": 20_000_000, "complete_ns": 21_000_000}
    run.recorder.row("admin", **{**SHORTENED, **back, **changes})

    assert log_begins_at_1(run, since=30_000) == [expected]


def test_retention_that_was_ordered_for_all_brokers_counts(run: Run) -> None:
    order = SHORTENED | {"topic": None, "setting": "log.retention.ms"}
    run.recorder.row("admin", **order, invoke_ns=10_000_000, complete_ns=11_000_000)

    assert log_begins_at_1(run) == [GONE]


DELETION = {"api": "delete_records", "topic": "t", "partition": 0, "log_offset": 1, "invoke_ns": 300_000_000}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, GONE, id="it named the record"),
        pytest.param({"partition": 1}, LOST, id="another partition"),
        pytest.param({"topic": "u"}, LOST, id="another topic"),
        pytest.param({"log_offset": 0}, LOST, id="up to it"),
        pytest.param({"log_offset": None}, GONE, id="up to the high watermark"),
        pytest.param({"outcome": "fail"}, LOST, id="refused"),
        pytest.param({"outcome": "info", "complete_ns": None}, GONE, id="its answer was lost"),
        pytest.param({"invoke_ns": 2_000_000_000, "complete_ns": 2_000_000_001}, LOST, id="when it had been missed"),
        pytest.param({"invoke_ns": 1, "complete_ns": 2}, LOST, id="carried out before it was sent"),
    ],
)
def test_an_order_takes_only_what_it_named(run: Run, changes: dict[str, object], expected: object) -> None:
    run.recorder.row("admin", **{"complete_ns": 400_000_000, "outcome": "ok", **DELETION, **changes})

    assert log_begins_at_1(run) == [expected]


ELECTION = {"api": "elect_leaders", "value": "unclean", "topic": "t", "partition": 0, "invoke_ns": 150_000_000}


@pytest.mark.parametrize(
    ("changes", "at", "severity"),
    [
        pytest.param({}, 200, "permitted", id="of this partition"),
        pytest.param({"topic": None, "partition": None}, 200, "permitted", id="of all"),
        pytest.param({"partition": 1}, 200, "violation", id="of another one"),
        pytest.param({"outcome": "fail"}, 200, "violation", id="refused"),
        pytest.param({"value": "preferred"}, 200, "violation", id="of the preferred leader"),
        pytest.param({}, 3000, "violation", id="carried out long ago"),
        pytest.param({"outcome": "info", "complete_ns": None}, 3000, "permitted", id="its answer was lost"),
    ],
)
def test_an_unclean_election_that_was_ordered_excuses_where_it_was_ordered(
    run: Run, changes: dict[str, object], at: int, severity: str
) -> None:
    run.recorder.row("admin", **{"complete_ns": 250_000_000, "outcome": "ok", **ELECTION, **changes})
    run.change(50, isr=[1, 2])
    run.send(0, 100)
    run.change(at, leader=3, isr=[3], leader_recovery_state=1, eligible_leader_replicas=[])
    run.final_read({}, at=9000)

    assert [judged for kind, judged, *_ in found(run.finish()) if kind == "lost"] == [severity]


@pytest.mark.parametrize(
    ("sent_at", "expected"),
    [
        pytest.param(100, [("lost", "permitted", "gone_by_order", 0)], id="before"),
        pytest.param(2000, [("lost", "violation", "", 0)], id="in the new one"),
    ],
)
def test_a_topic_that_was_deleted_and_made_anew_is_another_place(
    run: Run, sent_at: int, expected: list[object]
) -> None:
    """Its leader epochs begin anew, and so do its offsets."""
    order = {"api": "delete_topic", "topic": "t", "outcome": "ok"}
    run.recorder.row("admin", **order, invoke_ns=900_000_000, complete_ns=950_000_000)
    run.change(50, leader=2, isr=[1, 2, 3])
    run.send(0, sent_at)
    run.metadata("PartitionRecord", 1000, partition_id=0, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1, leader_epoch=0)
    run.final_read({}, at=9000)

    assert found(run.finish()) == expected


def test_the_compaction_of_another_topic_whose_record_has_this_ones_name_in_it_says_nothing(run: Run) -> None:
    """`t` is a part of nearly every text."""
    run.metadata("ConfigRecord", 1, resource_type=2, resource_name="state", name="cleanup.policy", value="compact")
    values = [run.send(sequence, 100 + sequence, key="a") for sequence in range(2)]
    run.final_read({1: values[1]})

    assert found(run.finish()) == [("lost", "violation", "", 0)]


@pytest.mark.parametrize(
    ("rejoins", "severity"),
    [
        pytest.param(True, "permitted", id="it was made like the leader without it"),
        pytest.param(False, "violation", id="it kept its log"),
    ],
)
def test_who_followed_a_leader_without_the_record_lacks_it(tmp_path: Path, rejoins: bool, severity: str) -> None:
    """Leader 3 had nothing, 2 brought the record back, and 1 was elected last."""
    run = Run(tmp_path, **{"unclean.leader.election.enable": True})
    run.change(50, isr=[1, 2])
    values = [run.send(i, 1000 + i) for i in range(2)]
    run.change(3000, isr=[3], leader=3, leader_recovery_state=1, eligible_leader_replicas=[])
    if rejoins:
        run.change(4000, isr=[3, 1], leader_recovery_state=0)
    run.change(5000, isr=[2], leader=2, leader_recovery_state=1, eligible_leader_replicas=[])
    run.poll(90, "tail", 1, 0, 6000, high_watermark=1)
    run.read({1: values[1]}, 6100)
    run.change(8000, isr=[1], leader=1, leader_recovery_state=1, eligible_leader_replicas=[])
    run.final_read({0: values[0]}, at=9000)

    assert [(kind, judged) for kind, judged, *_ in found(run.finish())] == [("lost", severity)]


def killed_and_deposed(run: Run, *, killed_at: int, back_at: int | None) -> None:
    """Leader 1 is deposed at 2000 and does not come back to the ISR."""
    run.node(1, "start", 0)
    run.change(2000, leader=2, isr=[2, 3])
    run.node(1, "killed", killed_at)
    if back_at is not None:
        run.node(1, "start", back_at)
        run.registered(1, back_at + 10, previous=-1)


@pytest.mark.parametrize(
    ("killed_at", "back_at", "judged"),
    [
        pytest.param(1900, None, ("lost", "violation", "", 0), id="it was down"),
        pytest.param(1900, 3000, ("lost", "violation", "", 0), id="it had registered anew"),
        pytest.param(2400, 4500, ("lost", "violation", "", 0), id="it was down when the record was sent"),
        pytest.param(5500, None, ("lost", "permitted", "R5", 0), id="it ran, and nobody knows that it had heard"),
    ],
)
def test_a_deposed_leader_answers_only_while_the_process_runs_that_led(
    run: Run, killed_at: int, back_at: int | None, judged: tuple[object, ...]
) -> None:
    killed_and_deposed(run, killed_at=killed_at, back_at=back_at)
    run.send(0, 5000, acks=1)
    run.final_read({}, at=9000)

    assert found(run.finish()) == [judged]


@pytest.mark.parametrize(
    ("epoch", "judged"),
    [
        pytest.param(0, ("lost", "permitted", "R5", 0), id="by the deposed leader"),
        pytest.param(1, ("lost", "violation", "", 0), id="by the new one"),
        pytest.param(None, ("lost", "permitted", "R5", 0), id="by nobody that we know of"),
    ],
)
def test_what_the_new_leader_showed_it_may_not_lose_by_its_own_election(
    run: Run, epoch: int | None, judged: tuple[object, ...]
) -> None:
    """A watermark beyond the offset, in the epoch of the new leader, and nothing stands there: what it showed is gone."""
    run.change(2000, leader=2, isr=[2, 3])
    run.send(0, 15_000, acks=1)
    if epoch is not None:
        run.watermark(1, 15_100, epoch=epoch, observer=f"node-{epoch + 1}")
    run.final_read({}, at=19_000)

    rows = [one for one in found(run.finish()) if one[0] == "lost"]

    assert rows == ([("lost", "violation", "", 0)] if epoch == 0 else [judged])


def test_what_stands_in_its_place_is_what_the_new_leader_showed(run: Run) -> None:
    """The deposed leader answered at the same offset: it is not the record that the watermark passed."""
    run.change(2000, leader=2, isr=[2, 3])
    run.send(0, 15_000, acks=1)
    other = run.send(1, 15_050, offset=0)
    run.watermark(1, 15_100, epoch=1, observer="node-2")
    run.final_read({0: other}, at=19_000, epoch=1)

    assert found(run.finish()) == [("lost", "permitted", "R5", 0)]


@pytest.mark.parametrize(
    ("ends", "read", "sent", "next_leader", "judged"),
    [
        pytest.param(0, True, 100, 1, ("permitted", "R4"), id="it began without the record"),
        pytest.param(0, False, 100, 1, ("permitted", "R4"), id="it began without what was acknowledged long before"),
        pytest.param(1, True, 100, 1, ("violation", ""), id="it had the record"),
        pytest.param(None, True, 100, 1, ("violation", ""), id="nobody knows where its log ended"),
        pytest.param(0, False, 1100, 3, ("violation", ""), id="it wrote the record itself"),
    ],
)
def test_a_leader_that_began_behind_a_record_shows_what_it_wrote_in_its_place(
    tmp_path: Path, ends: int | None, read: bool, sent: int, next_leader: int, judged: tuple[str, str]
) -> None:
    """Two unclean elections: what the first leader put in the record's place the second one lacks as well (found by a search for M42)."""
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1])
    run.change(1000, leader=3, isr=[3], leader_recovery_state=1)
    value = run.send(0, sent)
    run.watermark(0, 1010, epoch=1, observer="node-3", log_end_offset=ends)
    if read:
        run.read({0: value}, sent + 50, epoch=0)
    run.watermark(1, 1200, epoch=1, observer="client-9", source="fetch")
    run.change(2000, leader=next_leader, isr=[next_leader], leader_recovery_state=1)
    other = run.send(1, 2100, offset=0)
    run.final_read({0: other}, at=2900, epoch=2)

    assert [one for one in found(run.finish()) if one[0] == "lost"] == [("lost", *judged, 0)]


@pytest.mark.parametrize(
    ("epoch", "severity"),
    [
        pytest.param(2, "violation", id="written after the unclean election"),
        pytest.param(0, "permitted", id="written before it"),
    ],
)
def test_a_reader_proves_in_which_epoch_a_record_was_written(tmp_path: Path, epoch: int, severity: str) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    run.change(1000, leader=3, isr=[3], leader_recovery_state=1, eligible_leader_replicas=[])
    run.change(1100, leader=3, isr=[3, 2], leader_recovery_state=0)
    value = run.send(0, 1200)
    run.poll(90, "tail", 0, 0, 900, high_watermark=1)
    run.read({0: value}, 1300, epoch=epoch)
    run.final_read({}, at=1900)

    assert [judged for kind, judged, *_ in found(run.finish()) if kind == "lost"] == [severity]


@pytest.mark.parametrize(
    ("at", "severity"),
    [pytest.param(300, "permitted", id="before"), pytest.param(5000, "violation", id="behind")],
)
def test_an_election_behind_the_first_proof_of_absence_excuses_nothing(tmp_path: Path, at: int, severity: str) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    values = [run.send(i, 100 + i) for i in range(2)]
    run.final_read({0: values[0]}, at=3000, epoch=0)
    run.change(at, leader=3, isr=[3], leader_recovery_state=1, eligible_leader_replicas=[])

    assert found(run.finish()) == [("lost", severity, "R4" if severity == "permitted" else "", 1)]


@pytest.mark.parametrize(
    ("topic", "severity"),
    [
        pytest.param("t", "violation", id="recorded"),
        pytest.param("u", "unjudged", id="not recorded"),
    ],
)
def test_nobody_is_accused_by_a_history_that_was_not_recorded(run: Run, topic: str, severity: str) -> None:
    """Any election may lie there: what is unknown excuses nothing, and proves nothing."""
    run.send(0, 100, topic=topic)
    final = {"process": 99, "topic": topic, "partition": 0, "isolation": "read_uncommitted", "phase": "final"}
    answer = {"poll_index": 0, "position": 0, "record_count": 0, "high_watermark": 0, "log_start_offset": 0}
    run.recorder.row("polls", **final, **answer, invoke_ns=900_000_000, complete_ns=900_000_000, outcome="ok")

    assert [(kind, judged) for kind, judged, *_ in found(run.finish())] == [("lost", severity)]


@pytest.mark.parametrize(
    ("logged", "severity"),
    [
        pytest.param(True, "permitted", id="a marker that was written there anew"),
        pytest.param(False, "violation", id="nothing"),
    ],
)
def test_a_watermark_may_have_passed_a_marker_in_a_records_place(tmp_path: Path, logged: bool, severity: str) -> None:
    """Final reads do not show markers: what the logs hold there is what the later leader showed."""
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    value = run.send(0, 100, txn_id="x")
    place = {"topic": "t", "partition": 0, "kind": "send"}
    ends = {"process": 7, "txn_id": "x", "begin_ns": 99_000_000, "end_ns": 110_000_000, "outcome": "committed"}
    run.recorder.row("txns", **ends, operations=[place | {"log_offset": 0, "value": value}])
    run.node(1, "killed", 500)
    run.change(1000, leader=3, isr=[3], leader_recovery_state=1, eligible_leader_replicas=[])
    run.watermark(1, 1500, epoch=1, observer="node-3")
    marker = {"node": 3, "topic": "t", "partition": 0, "leader_epoch": 1, "is_control": True}
    run.recorder.row("logs", **marker, log_offset=0 if logged else 5)
    run.final_read({}, at=9000)

    assert [one for kind, one, *_ in found(run.finish()) if kind == "lost"] == [severity]
