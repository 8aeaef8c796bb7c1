"""Three members elect, replicate and recover: a quorum without faults."""

import pytest

from replog.quorum import events
from replog.quorum.events import Failure
from replog.quorum.state_file import INT_MAX, StoredQuorumState, decode, encode
from replog.types import NO_NODE, NodeId, QuorumEpoch
from tests.quorum.quorum_world import Member, World

A, B, C = NodeId(101), NodeId(102), NodeId(103)


def a_cluster(seed: int = 1, **options: object) -> World:
    world = World(seed, **options)  # type: ignore[arg-type]
    world.start()
    world.run_until(world.agrees)
    return world


@pytest.mark.parametrize("seed", range(5))
def test_three_members_elect_one_leader_and_commit(seed: int) -> None:
    world = a_cluster(seed)

    assert world.append("x", "y")
    world.run_until(world.agrees)

    assert world.committed()[-2:] == ["x", "y"]
    assert len({core.leader_id for core in world._cores()}) == 1


def test_a_commit_takes_two_journeys_and_a_sync() -> None:
    world = a_cluster()
    world.latency_ms, world.sync_ms = (1, 1), (1, 1)
    world.run(2000)
    began_ms, end = world.now_ms, world.core(world.leader()).log.end_offset

    assert world.append("x")
    world.run_until(lambda: world.core(world.leader()).high_watermark > end)

    assert world.now_ms - began_ms <= 3


def test_the_leader_dies_and_nothing_committed_is_lost() -> None:
    world = a_cluster()
    world.append("x")
    world.run_until(world.agrees)
    old = world.leader()

    world.crash(old)
    world.run_until(lambda: world.leader() not in (old, -1))
    world.append("y")
    world.start(old)
    world.run_until(world.agrees)

    assert [content for content in world.committed() if content in "xy"] == ["x", "y"]


class LossyWorld(World):
    """A request may fail at once, as on a connection that is reset."""

    lost: tuple[NodeId, NodeId] | None = None  # from, to: the next one

    def _send(self, member: Member, effect: events.Send) -> None:
        if (member.node_id, effect.to) != self.lost:
            super()._send(member, effect)
            return
        self.lost = None
        self._fail(member, effect.request_id, Failure.LOST)


@pytest.mark.parametrize("lost", ["nothing", "a fetch"])
def test_a_lost_fetch_is_repeated_although_a_silent_member_was_asked_meanwhile(lost: str) -> None:
    """A follower whose leader failed it asks another member; while that one is silent, the leader is still there."""
    world = LossyWorld(1)
    world.start()
    world.run_until(world.agrees)
    leader = world.leader()
    follower, silent = (voter for voter in world.voters if voter != leader)
    world.isolate(silent)
    world.lost = (follower, leader) if lost == "a fetch" else None
    world.run_until(lambda: world.lost is None, limit_ms=2000)

    began_ms, end = world.now_ms, world.core(leader).log.end_offset
    assert world.append("x")
    world.run_until(lambda: world.core(leader).high_watermark > end)

    assert world.leader() == leader
    assert world.now_ms - began_ms < 200


def test_an_observer_learns_the_leader_and_the_log() -> None:
    world = a_cluster(observers=2)

    world.append("x")
    world.run_until(world.agrees)

    assert world.core(NodeId(1)).leader_id == world.leader()
    assert not world.core(NodeId(1)).is_voter


def test_a_single_voter_leads_at_once() -> None:
    world = World(1, voters=1)

    world.start()
    world.run(10)

    assert world.leader() == A
    assert world.core(A).epoch == 1


def test_nobody_stands_for_election_behind_the_last_epoch() -> None:
    """It would be no epoch that a message or a state file can hold: who counted there ended, and had forgotten its vote when it came back."""
    world = World(1)
    for member in world.members.values():
        member.disk.state_file = encode(StoredQuorumState(epoch=QuorumEpoch(INT_MAX - 1)))

    world.start()
    world.run(60_000)

    assert max(world.epochs()) == INT_MAX
    assert all(decode(member.disk.state_file) is not None for member in world.members.values())
    assert {core.leader_id for core in world._cores()} == {NO_NODE}
