"""KIP-853: adding, removing and updating a voter, on cores in virtual time."""

from typing import Any
from uuid import UUID

import pytest

from replog.config import Endpoint
from replog.errors import Error
from replog.quorum import events
from replog.quorum.messages import VoterChange, VoterChangeAnswer, VoterChangeRequest
from replog.quorum.roles import Leader
from replog.quorum.voters import ReplicaKey
from replog.types import NO_NODE, ZERO_UUID, NodeId
from tests.quorum.quorum_world import Member, World

SOMEWHERE = Endpoint("node", 9)


class Quorum(World):
    """A quorum whose leader can be asked for other voters."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self.answers: list[VoterChangeAnswer] = []
        self._asked = 0
        self.start()
        self.run_until(lambda: self.agrees() and self.knows_directories())

    def knows_directories(self) -> bool:
        core = self.core(self.leader())
        return all(key.directory_id != ZERO_UUID for key in core.voters.members) and self.is_quiet()

    def is_quiet(self) -> bool:
        core = self.core(self.leader())
        return not core.log.voters or core.log.voters[-1][0] < core.high_watermark

    def perform(self, member: Member, effect: events.Effect) -> None:
        if isinstance(effect, events.Answered) and isinstance(effect.answer, VoterChangeAnswer):
            self.answers.append(effect.answer)
        else:
            super().perform(member, effect)

    def ask(self, change: VoterChange, voter: ReplicaKey, *, at: NodeId | None = None, **fields: Any) -> None:
        self._asked -= 1
        values = {"endpoint": SOMEWHERE, "timeout_ms": 5000} | fields
        request = VoterChangeRequest(change=change, voter=voter, **values)
        member = self.members[self.leader() if at is None else at]
        self.deliver(member, events.Received(now_ms=self.now_ms, token=self._asked, request=request))

    def outcome(self, change: VoterChange, voter: ReplicaKey, **fields: Any) -> Error:
        before = len(self.answers)
        self.ask(change, voter, **fields)
        self.run_until(lambda: len(self.answers) > before)
        return self.answers[-1].error

    def key(self, node: NodeId) -> ReplicaKey:
        return ReplicaKey(node, self.members[node].disk.directory_id)

    def followers(self) -> list[NodeId]:
        return [node for node in self.voters if node != self.leader()]


@pytest.mark.parametrize("seed", range(5))
def test_a_wiped_voter_is_removed_and_added_back(seed: int) -> None:
    world = Quorum(seed)
    wiped = world.followers()[0]
    before = world.key(wiped)
    world.crash(wiped)
    world.wipe(wiped)
    world.start(wiped)
    world.append("while it was away")
    world.run(3000)
    assert not world.core(wiped).is_voter

    removed = world.outcome(VoterChange.REMOVE, before)
    added = world.outcome(VoterChange.ADD, world.key(wiped))

    assert (removed, added) == (Error.NONE, Error.NONE)
    world.run(3000)
    assert world.core(wiped).is_voter
    world.crash(next(node for node in world.followers() if node != wiped))
    world.append("with its vote")
    world.run(3000)
    assert "with its vote" in world.committed()


def test_a_voter_is_removed_and_the_others_go_on_without_it() -> None:
    world = Quorum(1, voters=5)
    gone = world.followers()[:2]

    outcomes = [world.outcome(VoterChange.REMOVE, world.key(node)) for node in gone]
    for node in gone:
        world.crash(node)
    world.append("by three")
    world.run(2000)

    assert outcomes == [Error.NONE] * 2
    assert len(world.core(world.leader()).voters.members) == 3
    assert "by three" in world.committed()


def test_the_leader_knows_of_a_removed_voter_what_it_knew_before() -> None:
    """As the released software's leader: it is shown as an observer, also before it has fetched as one."""
    world = Quorum(3)
    leader, (gone, other) = world.leader(), world.followers()
    world.isolate(gone)

    removed = world.outcome(VoterChange.REMOVE, world.key(gone))
    status = world.core(leader).status()
    assert status is not None
    observers = {one.replica: one for one in status.observers}

    assert removed is Error.NONE
    assert observers[world.key(gone)].last_fetch_ms >= 0
    assert observers[world.key(gone)].log_end_offset > 0
    assert world.key(other) not in observers


def test_a_removed_voter_becomes_an_observer_and_asks_for_no_votes() -> None:
    """SPEC D20."""
    world = Quorum(2)
    gone = world.followers()[0]

    world.outcome(VoterChange.REMOVE, world.key(gone))
    world.run(3000)
    world.isolate(gone)
    before, epoch = world.standard_votes, world.core(gone).epoch
    world.run(60_000)

    assert not world.core(gone).is_voter
    assert (world.standard_votes, world.core(gone).epoch) == (before, epoch)


def test_a_voter_that_does_not_know_yet_that_it_is_one_votes_when_the_leader_falls_silent() -> None:
    """KIP-996 refuses pre-votes of those who fetched within the fetch timeout, and no longer (SPEC D2)."""
    world = Quorum(4)
    leader, (added, other) = world.leader(), world.followers()
    world.outcome(VoterChange.REMOVE, world.key(added))
    world.run(3000)
    world.cut([leader], [added])
    world.ask(VoterChange.ADD, world.key(added))
    world.run_until(lambda: world.core(other).voters.contains(world.key(added)) and world.is_quiet())
    assert not world.core(added).is_voter

    world.isolate(leader)
    world.run_until(lambda: world.leader() == other)

    assert world.core(other).voters.contains(world.key(added))


def test_a_leader_that_removes_itself_leads_until_that_is_committed() -> None:
    world = Quorum(3)
    leader = world.leader()

    outcome = world.outcome(VoterChange.REMOVE, world.key(leader))
    assert not isinstance(world.core(leader).role, Leader)
    world.run_until(lambda: world.leader() not in (leader, NO_NODE))
    world.append("after it")
    world.run(2000)

    assert outcome is Error.NONE
    assert leader not in world.core(world.leader()).voters.ids
    assert "after it" in world.committed()


@pytest.mark.parametrize("seed", range(5))
def test_a_leader_that_ends_in_the_midst_of_removing_itself_is_elected_where_nobody_else_can_be(seed: int) -> None:
    """Of two voters one has the record by which the other is alone: without the log of the first nobody wins (SPEC D20)."""
    world = Quorum(seed, voters=2)
    leader, other = world.leader(), world.followers()[0]
    world.isolate(other)
    world.append("before it")
    world.ask(VoterChange.REMOVE, world.key(leader))
    world.run(100)
    world.crash(leader, lose_unsynced=False)
    world.heal()
    world.start(leader)

    world.run_until(lambda: world.leader() == other and world.is_quiet())
    world.append("after it")
    world.run(3000)

    assert [one.node_id for one in world.core(other).voters.members] == [other]
    assert not world.core(leader).is_voter
    assert {"before it", "after it"} <= set(world.committed())


def test_a_leader_that_removes_itself_resigns_also_where_it_was_answered_before_the_commit() -> None:
    world = Quorum(3)
    leader = world.leader()
    world.isolate(leader)
    world.outcome(VoterChange.REMOVE, world.key(leader), ack_when_committed=False)
    assert isinstance(world.core(leader).role, Leader)

    world.heal()
    world.run_until(lambda: world.leader() not in (leader, NO_NODE), limit_ms=10_000)

    assert leader not in world.core(world.leader()).voters.ids


def test_a_leader_that_has_removed_itself_resigns_where_the_only_voter_left_falls_silent() -> None:
    """Else it answers brokers for ever, and commits nothing, while that voter leads the next epoch (SPEC 1.8.5)."""
    world = Quorum(3, voters=2)
    leader, other = world.leader(), world.followers()[0]
    world.ask(VoterChange.REMOVE, world.key(leader))
    world.run_until(lambda: len(world.core(other).voters.members) == 1)
    world.isolate(other)

    world.run(2 * world.settings.check_quorum_timeout_ms)

    assert isinstance(world.core(other).role, Leader)
    assert not isinstance(world.core(leader).role, Leader)


@pytest.mark.parametrize(
    ("change", "fields", "error"),
    [
        pytest.param("add", {"of": "follower"}, Error.DUPLICATE_VOTER, id="votes already"),
        pytest.param("add", {"of": "stranger", "endpoint": None}, Error.INVALID_REQUEST, id="no listener"),
        pytest.param("add", {"of": "nameless"}, Error.INVALID_REQUEST, id="no directory"),
        pytest.param("add", {"of": "stranger"}, Error.REQUEST_TIMED_OUT, id="never fetched"),
        pytest.param("add", {"of": "no node"}, Error.INVALID_REQUEST, id="no node id"),
        pytest.param("remove", {"of": "stranger"}, Error.VOTER_NOT_FOUND, id="no voter"),
        pytest.param("remove", {"of": "wiped"}, Error.VOTER_NOT_FOUND, id="another directory"),
        pytest.param("remove", {"of": "follower", "cluster_id": "x"}, Error.INCONSISTENT_CLUSTER_ID, id="cluster"),
        pytest.param("update", {"of": "follower", "epoch": 0}, Error.FENCED_LEADER_EPOCH, id="old epoch"),
        pytest.param("update", {"of": "follower", "epoch": 99}, Error.UNKNOWN_LEADER_EPOCH, id="unknown epoch"),
        pytest.param("update", {"of": "follower"}, Error.NONE, id="update"),
    ],
)
def test_what_is_refused(change: str, fields: dict[str, Any], error: Error) -> None:
    world = Quorum(4)
    follower = world.key(world.followers()[0])
    voter = {
        "follower": follower,
        "wiped": ReplicaKey(follower.node_id, UUID(int=1)),
        "stranger": ReplicaKey(NodeId(109), UUID(int=2)),
        "nameless": ReplicaKey(NodeId(109)),
        "no node": ReplicaKey(NodeId(-2), UUID(int=2)),
    }[fields.pop("of")]
    before = world.core(world.leader()).voters

    assert world.outcome(VoterChange(change), voter, **({"epoch": world.epochs()[0]} | fields)) is error
    assert world.core(world.leader()).voters == before


def test_only_a_leader_is_asked_and_one_change_at_a_time() -> None:
    world = Quorum(5, voters=5)
    one, other = (world.key(node) for node in world.followers()[:2])

    elsewhere = world.outcome(VoterChange.REMOVE, one, at=one.node_id)
    world.ask(VoterChange.REMOVE, one)
    too_soon = world.outcome(VoterChange.REMOVE, other)
    world.run(2000)
    now = world.outcome(VoterChange.REMOVE, other)

    assert (elsewhere, too_soon, now) == (Error.NOT_LEADER_OR_FOLLOWER, Error.REQUEST_TIMED_OUT, Error.NONE)


def test_the_last_voter_stays() -> None:
    world = World(6, 1)
    world.start()
    world.run_until(lambda: world.leader() != NO_NODE)
    leader = world.leader()
    core = world.core(leader)

    effects = core.handle(
        events.Received(
            now_ms=world.now_ms,
            token=-1,
            request=VoterChangeRequest(change=VoterChange.REMOVE, voter=ReplicaKey(leader), timeout_ms=1000),
        )
    )

    assert [effect.answer.error for effect in effects if isinstance(effect, events.Answered)] == [Error.INVALID_REQUEST]


def test_waiting_requests_are_answered_when_leadership_ends() -> None:
    world = Quorum(7)
    leader = world.leader()
    world.isolate(leader)

    outcome = world.outcome(VoterChange.REMOVE, world.key(world.followers()[0]), timeout_ms=60_000)

    assert outcome is Error.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("seed", range(10))
def test_changes_under_crashes_lose_nothing(seed: int) -> None:
    world = Quorum(seed, voters=5)
    for number in range(8):
        if world.leader() == NO_NODE:
            world.run(3000)
            continue
        world.append(f"record {number}")
        core = world.core(world.leader())
        victim = world.random.choice(world.voters)
        if core.voters.find(victim) is None:
            world.ask(VoterChange.ADD, world.key(victim))
        elif len(core.voters.members) > 3:
            world.ask(VoterChange.REMOVE, world.key(victim))
        crashed = world.random.choice(world.voters)
        world.run(world.random.randint(1, 50))
        world.crash(crashed)
        world.run(4000)
        world.start(crashed)
        world.run(2000)

    world.run_until(lambda: world.leader() != NO_NODE)
    assert all(world.lost(voter) == [] for voter in world.core(world.leader()).voters.ids)


@pytest.mark.parametrize("seed", range(25))
def test_who_changes_voters_in_small_quorums_under_crashes_has_a_leader_in_the_end(seed: int) -> None:
    """Down to one voter, leaders removing themselves too; once all are up and reach each other somebody has to be elected."""
    world = Quorum(seed, voters=2 + seed % 3)
    for number in range(10):
        leader = world.leader()
        if leader == NO_NODE:
            world.run(3000)
            continue
        world.append(f"record {number}")
        voters = world.core(leader).voters
        victim = world.random.choice([*world.voters, leader])
        if world.random.random() < 0.4:
            world.isolate(world.random.choice(world.voters))
        acked = world.random.random() < 0.5
        if voters.find(victim) is None:
            world.ask(VoterChange.ADD, world.key(victim), ack_when_committed=acked)
        elif len(voters.members) > 1:
            world.ask(VoterChange.REMOVE, world.key(victim), ack_when_committed=acked)
        crashed = world.random.choice([*world.voters, leader])
        world.run(world.random.randint(1, 50))
        world.crash(crashed)
        world.heal()
        world.run(world.random.randint(1, 4000))
        world.start(crashed)
        world.run(world.random.randint(1, 3000))

    world.run_until(lambda: world.leader() != NO_NODE)
    world.run(8000)
    world.run_until(lambda: world.leader() != NO_NODE)
    core = world.core(world.leader())
    assert core.is_voter
    assert all(world.lost(voter) == [] for voter in core.voters.ids)
