"""The committed metadata's own rules: pairs of a state that may be and its neighbour that may not."""

from pathlib import Path
from typing import Any

import pytest

from tests.checkers.recorded import Run
from tests.checkers.test_lost_writes import found
from tests.checkers.test_sql import agree


def kinds(run: Run) -> list[object]:
    return [kind for kind, *_ in found(run.finish())]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param({"isr": [1, 2]}, [], id="ISR shrinks"),
        pytest.param({"isr": [1, 4]}, ["isr_outside_replicas"], id="ISR of a non-replica"),
        pytest.param({"isr": [1], "eligible_leader_replicas": [2, 3]}, [], id="ELR below min ISR"),
        pytest.param({"isr": [1], "eligible_leader_replicas": [1, 2, 3]}, ["isr_and_elr_overlap"], id="overlap"),
        pytest.param({"isr": [1, 2], "eligible_leader_replicas": [3]}, ["elr_beside_full_isr"], id="ELR at min ISR"),
        pytest.param({"isr": [2], "eligible_leader_replicas": [1, 3]}, ["leader_outside_isr"], id="leader outside"),
        pytest.param({"isr": [1], "eligible_leader_replicas": [2]}, ["elr_member_forgotten"], id="one forgotten"),
    ],
)
def test_states(run: Run, body: dict[str, Any], expected: list[str]) -> None:
    run.change(100, **body)

    assert kinds(run) == expected


MIN_ISR = {"resource_type": 2, "resource_name": "t", "name": "min.insync.replicas"}


@pytest.mark.parametrize(
    ("cleared", "expected"),
    [
        pytest.param("t", [], id="of this topic"),
        pytest.param("", [], id="of all topics"),
        pytest.param("other", ["isr_and_elr_overlap", "elr_beside_full_isr"], id="of another topic"),
    ],
)
def test_a_change_of_min_isr_may_empty_the_elr_by_a_record_of_its_own(
    run: Run, cleared: str, expected: list[str]
) -> None:
    """Released Kafka does so; what comes back into the ISR then was no member of the ELR any more."""
    run.change(100, isr=[1], eligible_leader_replicas=[2, 3])
    run.metadata("ConfigRecord", 200, value="1", **MIN_ISR)
    run.metadata("ClearElrRecord", 200, topic_name=cleared)
    run.change(300, isr=[1, 2])

    assert sorted(kinds(run)) == sorted(expected)


def test_an_elr_emptied_without_a_change_of_min_isr_forgets_its_members(run: Run) -> None:
    run.change(100, isr=[1], eligible_leader_replicas=[2, 3])
    run.metadata("ClearElrRecord", 200, topic_name="t")
    run.change(300, isr=[1, 2])

    assert kinds(run) == ["elr_member_forgotten", "elr_member_forgotten"]


@pytest.mark.parametrize(("isr", "expected"), [([3], []), ([3, 2], ["recovering_with_others"])])
def test_recovering_implies_an_isr_of_one(tmp_path: Path, isr: list[int], expected: list[str]) -> None:
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    run.change(100, isr=[1, 2])
    run.change(200, isr=isr, leader=3, leader_recovery_state=1)

    assert kinds(run) == expected


def test_an_unclean_election_needs_permission(run: Run) -> None:
    run.change(100, isr=[1, 2])
    run.change(200, isr=[3], leader=3, leader_recovery_state=1)

    assert kinds(run) == ["unclean_election_not_allowed"]


ENDED = {"adding_replicas": [], "removing_replicas": []}


@pytest.mark.parametrize(("end", "expected"), [
    pytest.param(ENDED, [], id="with the end of the reassignment"),
    pytest.param({}, ["unclean_election_not_allowed"], id="while it goes on"),
    pytest.param(ENDED | {"leader_recovery_state": 1, "isr": [4]}, ["unclean_election_not_allowed"], id="recovering"),
])  # fmt: skip
def test_who_joins_the_isr_with_the_end_of_a_reassignment_may_lead(
    run: Run, end: dict[str, Any], expected: list[str]
) -> None:
    run.registered(4, at=50, previous=-1, fenced=False)
    run.registered(4, at=60, previous=-1, fenced=False)  # uncleanly; joining makes it whole
    run.change(100, replicas=[1, 2, 3, 4], adding_replicas=[4], removing_replicas=[1])
    run.change(200, **{"isr": [2, 3, 4], "leader": 4, "replicas": [2, 3, 4], **end})

    assert kinds(run) == expected
    assert [*agree(run.run_dir, "control_plane").elements()] == expected


@pytest.mark.parametrize(("end", "expected"), [
    pytest.param({"removing_replicas": []}, [], id="with the end"),
    pytest.param({}, ["unclean_election_not_allowed"], id="while it goes on"),
])  # fmt: skip
def test_so_may_who_joins_with_the_end_of_one_that_only_removes(
    run: Run, end: dict[str, Any], expected: list[str]
) -> None:
    """Scenario removed-leader, seed 0: what was empty all the time is not in the record."""
    run.change(100, isr=[1, 2])
    run.change(150, removing_replicas=[1])
    run.change(200, isr=[2, 3], leader=3, replicas=[2, 3], **end)

    assert kinds(run) == expected


@pytest.mark.parametrize(("begun", "end", "expected"), [
    pytest.param({}, ENDED, ["unclean_election_not_allowed"], id="none was under way"),
    pytest.param({"adding_replicas": [4]}, ENDED, ["unclean_election_not_allowed"], id="it was given up"),
    pytest.param({"removing_replicas": [1]}, ENDED, [], id="it came to its end"),
])  # fmt: skip
def test_only_a_reassignment_that_is_under_way_ends(
    run: Run, begun: dict[str, Any], end: dict[str, Any], expected: list[str]
) -> None:
    run.change(100, isr=[1, 2])
    run.change(150, **begun)
    run.change(200, isr=[2, 3], leader=3, **end)

    assert kinds(run) == expected


def test_an_election_from_outside_without_recovering_is_unclean_too(run: Run) -> None:
    run.change(100, isr=[1, 2])
    run.change(200, isr=[3], leader=3)

    assert kinds(run) == ["unclean_election_not_allowed"]


@pytest.mark.parametrize(("unfenced", "expected"), [(True, []), (False, ["fenced_replica_joined"])])
def test_only_an_unfenced_broker_joins_the_isr(run: Run, unfenced: bool, expected: list[str]) -> None:
    run.change(100, isr=[1, 2])
    run.registered(3, at=150, previous=-1)
    if unfenced:
        run.metadata("BrokerRegistrationChangeRecord", 160, broker_id=3, fenced=-1)
    run.change(200, isr=[1, 2, 3])

    assert kinds(run) == expected


@pytest.mark.parametrize(("unchecked", "expected"), [(True, []), (False, ["fenced_replica_joined"])])
def test_before_kip_841_a_leader_in_zookeeper_mode_asks_nobody_who_is_registered(
    tmp_path: Path, unchecked: bool, expected: list[str]
) -> None:
    """Apache Kafka 2.1.1 and 2.2.2: a broker in controlled shutdown still fetched, and was in the ISR again when its session had ended."""
    run = Run(tmp_path / "run", **{"isr.members.unchecked": unchecked})
    run.change(100, isr=[1, 2])
    run.registered(3, at=150, previous=-1)
    run.change(200, isr=[1, 2, 3])

    assert kinds(run) == expected
    assert agree(run.run_dir, "control_plane")["fenced_replica_joined"] == len(expected)


@pytest.mark.parametrize(("first", "expected"), [(-1, []), (None, ["elr_lost_member", "elr_member_forgotten"])])
def test_isr_and_elr_are_empty_only_after_min_isr_unclean_shutdowns(
    run: Run, first: int | None, expected: list[str]
) -> None:
    run.change(100, isr=[2, 3], leader=2)
    run.change(110, isr=[3], leader=3, eligible_leader_replicas=[2])
    if first is not None:
        run.registered(2, at=200, previous=first)
    run.change(210, isr=[], leader=-1, eligible_leader_replicas=[], last_known_elr=[3])
    run.registered(3, at=220, previous=-1)
    run.change(300, isr=[3], leader=3, leader_recovery_state=1)

    assert kinds(run) == expected


@pytest.mark.parametrize(("ends", "expected"), [
    pytest.param(["killed"], [], id="it was killed"),
    pytest.param(["stop", "killed"], ["elr_lost_member"], id="asked to stop before: it may have ended in good order"),
    pytest.param(["exit"], ["elr_lost_member"], id="it ended by itself"),
    pytest.param([], ["elr_lost_member"], id="nobody ended it"),
])  # fmt: skip
def test_who_was_killed_shut_down_uncleanly_though_nobody_reads_what_it_says_of_that(
    tmp_path: Path, ends: list[str], expected: list[str]
) -> None:
    """The kind `existing` records no previous broker epoch: Kafka 4.3.1 with one replica was accused of what it does after every kill -9."""
    run = Run(tmp_path / "run", **{"min.insync.replicas": 1})
    run.change(50, replicas=[1], isr=[1])
    for number, event in enumerate(ends):
        run.node(1, event, at=100 + number)
    run.change(200, isr=[], leader=-1, last_known_elr=[1])
    run.registered(1, at=200, previous=None)
    run.change(300, isr=[1], leader=1, leader_recovery_state=1, last_known_elr=[])

    assert [kind for kind in agree(run.finish(), "control_plane") if kind == "elr_lost_member"] == expected


@pytest.mark.parametrize(("replicas", "expected"), [
    pytest.param([1, 2, 3], ["elr_lost_member"], id="none"),
    pytest.param([1, 3, 2], ["elr_lost_member"], id="in another order"),
    pytest.param([1, 2, 3, 4], ["elr_lost_member"], id="one is added"),
    pytest.param([2, 3], ["elr_lost_member"], id="one that held nothing is taken away"),
    pytest.param([1, 3], [], id="a holder is taken away"),
])  # fmt: skip
def test_only_a_reassignment_that_takes_holders_away_leaves_fewer_of_them(
    run: Run, replicas: list[int], expected: list[str]
) -> None:
    run.change(100, isr=[2, 3], leader=2)
    run.change(110, isr=[3], leader=3, eligible_leader_replicas=[2])
    run.change(150, replicas=replicas, eligible_leader_replicas=[2] if 2 in replicas else [])
    run.change(210, isr=[], leader=-1, eligible_leader_replicas=[], last_known_elr=[3])
    run.registered(3, at=220, previous=-1)
    run.change(300, isr=[3], leader=3, leader_recovery_state=1)

    assert [kind for kind in agree(run.finish(), "control_plane") if kind == "elr_lost_member"] == expected


@pytest.mark.parametrize(("change", "expected"), [
    pytest.param({"replicas": [2, 3]}, ["elr_member_forgotten"], id="with one taken away that held nothing"),
    pytest.param({"replicas": [1, 2, 3, 4], "adding_replicas": [4]}, ["elr_member_forgotten"], id="with one added"),
    pytest.param({"replicas": [1, 3]}, [], id="taken away itself"),
    pytest.param({"replicas": [3]}, [], id="one replica is enough now"),
    pytest.param({"replicas": [2, 3], "eligible_leader_replicas": [2]}, [], id="kept"),
])  # fmt: skip
def test_a_reassignment_that_does_not_take_an_elr_member_away_keeps_it(
    run: Run, change: dict[str, Any], expected: list[str]
) -> None:
    run.change(100, isr=[2, 3], leader=2)
    run.change(110, isr=[3], leader=3, eligible_leader_replicas=[2])
    run.change(150, **{"eligible_leader_replicas": []} | change)

    assert kinds(run) == expected


def test_a_topic_that_is_made_anew_begins_with_an_isr_of_its_own(run: Run) -> None:
    """Whoever is fenced at that moment is not in its ISR, and nothing is kept of the former one."""
    created = {"partition_id": 0, "replicas": [1, 2, 3], "isr": [1], "leader": 1, "leader_epoch": 0}
    run.metadata("RemoveTopicRecord", 100)
    run.metadata("PartitionRecord", 200, **created)

    assert "elr_member_forgotten" not in kinds(run)


@pytest.mark.parametrize(("anew", "expected"), [
    pytest.param(True, [], id="in a topic that was made anew"),
    pytest.param(False, ["clean_election_of_unclean_replica"], id="in the same topic"),
])  # fmt: skip
def test_who_shut_down_uncleanly_may_be_elected(run: Run, anew: bool, expected: list[str]) -> None:
    """A topic that is made anew holds nothing that anybody may have lost before."""
    run.registered(2, 150, previous=-1, fenced=False)
    if anew:
        run.metadata("RemoveTopicRecord", 200)
        created = {"partition_id": 0, "replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1, "leader_epoch": 0}
        run.metadata("PartitionRecord", 300, **created)
    run.change(400, isr=[2, 3], leader=2)

    found = agree(run.finish(), "control_plane")

    assert [kind for kind in found if kind == "clean_election_of_unclean_replica"] == expected


@pytest.mark.parametrize(("permitted", "expected"), [
    pytest.param(True, [], id="an unclean election took it"),
    pytest.param(False, ["unclean_election_not_allowed"], id="that was not permitted"),
])  # fmt: skip
def test_after_an_unclean_election_the_former_holders_hold_nothing_that_counts(
    tmp_path: Path, permitted: bool, expected: list[str]
) -> None:
    """Its leader alone is in the ISR, and has only to shut down uncleanly (lost-while-recovering, seed 7202)."""
    run = Run(tmp_path / "run", **({"unclean.leader.election.enable": True} if permitted else {}))
    run.change(100, isr=[2, 3], leader=2)
    run.change(110, isr=[3], leader=3, eligible_leader_replicas=[2])
    run.change(200, isr=[1], leader=1, leader_recovery_state=1, eligible_leader_replicas=[])
    run.change(300, isr=[], leader=-1, eligible_leader_replicas=[1], last_known_elr=[1])
    run.change(390, eligible_leader_replicas=[])
    run.registered(1, at=390, previous=-1)
    run.metadata("BrokerRegistrationChangeRecord", 395, broker_id=1, fenced=-1)
    run.change(400, isr=[1], leader=1, last_known_elr=[])

    assert kinds(run) == expected


@pytest.mark.parametrize(("elr_before", "expected"), [([3], []), ([1, 3], ["unclean_election_not_allowed"])])
def test_an_unclean_registration_that_empties_the_elr_elects_in_the_same_batch(
    run: Run, elr_before: list[int], expected: list[str]
) -> None:
    """The changes are written before the registration that causes them (found by a sweep: power-loss-all, seed 1000)."""
    run.change(100, isr=[2, 3], leader=2)
    run.change(110, isr=[2], eligible_leader_replicas=[3])
    run.change(120, isr=[], leader=-1, eligible_leader_replicas=[*elr_before, 2], last_known_elr=[2])
    run.change(190, eligible_leader_replicas=elr_before)
    run.registered(2, at=190, previous=-1)
    run.metadata("BrokerRegistrationChangeRecord", 200, broker_id=2, fenced=-1)
    run.change(210, isr=[2], leader=2, leader_recovery_state=1, eligible_leader_replicas=[], last_known_elr=[])
    run.registered(3, at=210, previous=-1)

    assert kinds(run) == expected


def test_a_clean_election_of_an_unclean_replica(run: Run) -> None:
    run.change(100, isr=[1], eligible_leader_replicas=[2, 3])
    run.registered(2, at=150, previous=-1)
    run.change(200, isr=[2], leader=2, eligible_leader_replicas=[1, 3])

    assert kinds(run) == ["clean_election_of_unclean_replica"]


def test_a_last_known_leader_is_whole_from_then_on(run: Run) -> None:
    run.change(100, isr=[1, 2])
    for at, node in ((200, 1), (300, 2)):
        run.registered(node, at=at, previous=-1)
    run.change(400, isr=[], leader=-1, eligible_leader_replicas=[], last_known_elr=[2])
    run.change(500, isr=[2], leader=2, leader_recovery_state=1)
    run.change(600, leader_recovery_state=0)
    run.change(700, leader=-1)
    run.change(800, leader=2)

    assert kinds(run) == []


def test_broker_epochs_only_grow(run: Run) -> None:
    run.metadata("RegisterBrokerRecord", 100, broker_id=1, broker_epoch=0, incarnation_id="other")

    assert kinds(run) == ["broker_epoch_back"]


@pytest.mark.parametrize(("shrink_at", "severity"), [(130, "permitted"), (200, "violation")])
def test_who_left_the_isr_before_the_answer_may_lack_the_record(tmp_path: Path, shrink_at: int, severity: str) -> None:
    """It waits for a follower that is cut off until that one is dropped (found by a sweep: unclean-recovery, seed 3000)."""
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    kept = run.send(0, 110)
    run.send(1, 120, complete_ns=140_000_000)
    run.change(shrink_at, isr=[1, 2])
    run.change(300, isr=[], leader=-1, eligible_leader_replicas=[1, 2])
    run.change(400, isr=[3], leader=3, leader_recovery_state=1, eligible_leader_replicas=[])
    run.final_read({0: kept}, epoch=2)

    assert ("lost", severity) in [row[:2] for row in found(run.finish())]


@pytest.mark.parametrize(("unclean", "severity"), [(True, "permitted"), (False, "violation")])
def test_what_replaced_a_record_may_be_older_than_the_record(tmp_path: Path, unclean: bool, severity: str) -> None:
    """A deposed leader goes on writing, is elected uncleanly later, and what it wrote then stands (found by a sweep: unclean-recovery, seed 1002)."""
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": unclean})
    kept, deposed = run.send(0, 110), run.send(2, 125, acks=0)
    run.send(1, 120, complete_ns=350_000_000)
    run.change(200, isr=[2, 3], leader=2)
    run.change(500, isr=[], leader=-1, eligible_leader_replicas=[2, 3])
    run.change(600, isr=[1], leader=1, leader_recovery_state=1, eligible_leader_replicas=[])
    run.final_read({0: kept, 1: deposed}, epoch=0)

    assert ("lost", severity) in [row[:2] for row in found(run.finish())]


@pytest.mark.parametrize(("unclean", "severity"), [(True, "permitted"), (False, "violation")])
def test_what_those_hold_who_cannot_lead_replaced_nothing(tmp_path: Path, unclean: bool, severity: str) -> None:
    """A run that ended with the unclean election has logs only, and the longer ones are of the deposed (rotating-swarm, seed 240019)."""
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": unclean})
    kept = run.send(0, 110)
    run.change(200, isr=[1, 2])
    lost = run.send(1, 220)
    run.change(300, isr=[3], leader=3)
    for node in (1, 2):
        run.log(node, {0: kept, 1: lost})
    run.log(3, {0: kept})

    assert ("lost", severity) in [row[:2] for row in found(run.finish())]


@pytest.mark.parametrize(("epoch", "expected"), [(2, []), (1, ["quorum_epoch_back"])])
def test_a_quorum_epoch_never_goes_back(run: Run, epoch: int, expected: list[str]) -> None:
    run.metadata_epoch = 2
    run.metadata("NoOpRecord", 100)
    run.metadata_epoch = epoch
    run.metadata("NoOpRecord", 101)

    assert kinds(run) == expected


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("ended", ["unclean", "restarted"])
def test_what_befell_a_node_before_its_topic_was_made_anew_excuses_nothing_of_the_new_one(
    run: Run, ended: str, *, again: bool
) -> None:
    """The one that was deleted may have lost it from the ELR; who is in the first ISR of the other one is whole, unless that befalls it once more."""
    created = {"partition_id": 0, "replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1, "leader_epoch": 0}

    def ends(at: int) -> None:
        if ended == "unclean":
            run.registered(3, at=at, previous=-1, fenced=False)
        else:
            run.node(3, "killed", at)
            run.node(3, "start", at + 100)

    run.change(3_000, isr=[1, 2])
    ends(4_000)
    run.metadata("RemoveTopicRecord", 8_000)
    run.metadata("PartitionRecord", 8_500, **created)
    if again:
        ends(12_000)
    run.change(16_000, isr=[1], eligible_leader_replicas=[2])

    assert kinds(run).count("elr_member_forgotten") == (0 if again else 1)
