"""I23: to whom a voter grants its vote or a pre-vote, and that it keeps the vote (KIP-595, KIP-996)."""

import asyncio
from functools import partial

import pytest

from replog.mutants import m64_volatile_vote
from replog.quorum.messages import OffsetAndEpoch
from replog.quorum.quorum_state import QuorumState
from replog.quorum.roles import Follower, Role, Unattached
from replog.quorum.state_file import FILE_NAME, StoredQuorumState, encode
from replog.quorum.voters import ReplicaKey
from replog.types import METADATA_TOPIC, NO_NODE, NodeId, QuorumEpoch
from replog.wire.messages.vote import VoteRequestPartitionData
from tests.scenarios.three_brokers import run
from tribunal.clusters.api import ClusterError
from tribunal.clusters.simulated.votes import Standing, Votes
from tribunal.clusters.simulated.world import Simulation
from tribunal.results.violation import GrantedBesideLeader, GrantedToShorterLog, VoteNotKept

VOTER, CANDIDATE, LEADER = 101, 102, 103
PATH = f"data/{METADATA_TOPIC}-0/{FILE_NAME}"
HERE = OffsetAndEpoch(20, 3)


def follower(*, has_fetched: bool) -> Follower:
    role = Follower(leader_id=NodeId(LEADER), fetch_deadline_ms=0)
    role.has_fetched = has_fetched
    return role


def standing(role: Role, end: OffsetAndEpoch = HERE, process: int = 1, *, has_leader: bool = False) -> Standing:
    return Standing((VOTER, process), role, LEADER if has_leader else NO_NODE, has_leader, end)


def ballot(*, pre_vote: bool, end: OffsetAndEpoch = HERE) -> VoteRequestPartitionData:
    return VoteRequestPartitionData(
        replica_epoch=7,
        replica_id=CANDIDATE,
        last_offset_epoch=end.epoch,
        last_offset=end.offset,
        pre_vote=pre_vote,
    )


def stored(epoch: int, voted: int | None) -> bytes:
    vote = None if voted is None else ReplicaKey(NodeId(voted))
    return encode(StoredQuorumState(epoch=QuorumEpoch(epoch), voted=vote))


@pytest.fixture
def granted():
    """Grants: what a voter is accused of that was one thing when it was asked, and another one or the same when it answered."""
    simulation = Simulation(1)
    machine = simulation.add_machine("voter", "10.0.0.1", 1)
    found = []
    votes = Votes({VOTER: machine}, dict, {VOTER: "data"}, found.append)

    def grants(asked, before, now, content=None):
        machine.disk.make_directory(PATH.rpartition("/")[0])
        if content is not None:
            machine.disk.replace_file(PATH, content)
        votes._granted(VOTER, asked, before, now)
        return [one.violation.facts for one in found]

    return grants


FOLLOWING, NOBODYS = follower(has_fetched=True), Unattached(leader_id=NO_NODE, election_deadline_ms=0)
BESIDE = [GrantedBesideLeader(candidate=CANDIDATE, leader=LEADER)]
LED = partial(standing, FOLLOWING, has_leader=True)
FREE = partial(standing, NOBODYS)


@pytest.mark.parametrize(("before", "now", "accused"), [
    pytest.param(LED(), LED(), BESIDE, id="it fetches from a leader"),
    pytest.param(FREE(), FREE(), [], id="it follows nobody"),
    pytest.param(LED(), FREE(), [], id="its leader was lost meanwhile"),
    pytest.param(FREE(), LED(), [], id="it has found a leader since"),
    pytest.param(LED(), standing(follower(has_fetched=True), has_leader=True), [], id="it follows another one since"),
    pytest.param(LED(), LED(process=2), [], id="it was started again meanwhile"),
])  # fmt: skip
def test_who_has_a_leader_grants_no_pre_vote(granted, before, now, accused):
    assert granted(ballot(pre_vote=True), before, now) == accused


@pytest.mark.parametrize("pre_vote", [True, False], ids=["a pre-vote", "a vote"])
@pytest.mark.parametrize(("end", "before", "now", "is_accused"), [
    pytest.param(OffsetAndEpoch(19, 3), HERE, HERE, True, id="fewer records"),
    pytest.param(OffsetAndEpoch(99, 2), HERE, HERE, True, id="an earlier last epoch"),
    pytest.param(HERE, HERE, HERE, False, id="the same log"),
    pytest.param(OffsetAndEpoch(5, 4), HERE, HERE, False, id="a later last epoch"),
    pytest.param(OffsetAndEpoch(19, 3), OffsetAndEpoch(19, 3), HERE, False, id="the voter's log has grown since"),
])  # fmt: skip
def test_nobody_is_elected_by_a_longer_log(granted, pre_vote, end, before, now, is_accused):
    found = granted(ballot(pre_vote=pre_vote, end=end), FREE(before), FREE(now), stored(7, CANDIDATE))

    assert [type(one) for one in found] == ([GrantedToShorterLog] if is_accused else [])


@pytest.mark.parametrize(("content", "accused"), [
    pytest.param(stored(7, CANDIDATE), [], id="it stands there"),
    pytest.param(stored(8, None), [], id="the voter has gone on to a later epoch"),
    pytest.param(None, [VoteNotKept(candidate=CANDIDATE, stored_epoch=None, stored_vote=None)], id="no file"),
    pytest.param(stored(7, None), [VoteNotKept(candidate=CANDIDATE, stored_epoch=7, stored_vote=None)], id="no vote"),
    pytest.param(stored(7, 103), [VoteNotKept(candidate=CANDIDATE, stored_epoch=7, stored_vote=103)], id="another's"),
    pytest.param(stored(6, CANDIDATE), [VoteNotKept(candidate=CANDIDATE, stored_epoch=6, stored_vote=CANDIDATE)],
                 id="of an earlier epoch"),
])  # fmt: skip
def test_a_vote_is_kept_before_it_is_given(granted, content, accused):
    assert granted(ballot(pre_vote=False), FREE(), FREE(), content) == accused


def test_a_pre_vote_is_kept_nowhere(granted):
    assert granted(ballot(pre_vote=True), FREE(), FREE()) == []


def test_elections_of_the_build_accuse_nobody(monkeypatch):
    granted = []

    async def scenario(cluster):
        is_kept = cluster._votes._is_kept
        monkeypatch.setattr(
            cluster._votes, "_is_kept", lambda voter, asked: (granted.append(voter), is_kept(voter, asked))
        )
        active = next(node for node in cluster.spec.controller_ids if cluster.nodes[node].quorum.is_leading)
        await cluster.kill(active)
        await asyncio.sleep(6)

    run(1, scenario)

    assert granted


def test_the_first_election_shows_who_forgets_its_vote(monkeypatch):
    """M64."""
    monkeypatch.setattr(QuorumState, "persist", QuorumState.persist)  # taken back behind the test, whoever changes it
    m64_volatile_vote.install()

    async def scenario(cluster):
        pass

    with pytest.raises(
        ClusterError, match=r"I23: .* grants .* its vote in epoch 1, and its quorum-state file says epoch 1, vote None"
    ):
        run(1, scenario)
