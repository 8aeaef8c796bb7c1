"""KIP-996 (Pre-Vote), sentence by sentence: the conformance table of the quorum.

The text is an early draft; where it says "todo" or left the choice open, SPEC 0.1 (D1, D2, D20, D21) and 1.12 decide.
A docstring quotes the sentence; tests about one member call it directly, tests about a cluster run `World`, which
also checks after every event that epochs never fall and no epoch has two leaders.
"""

from typing import Any
from uuid import UUID

import pytest

from replog.errors import Error
from replog.quorum import events
from replog.quorum.events import Effect, Failure
from replog.quorum.log_shape import LogShape
from replog.quorum.messages import FetchAnswer, VoteAnswer, VoteRequest
from replog.quorum.quorum import Quorum
from replog.quorum.quorum_state import Settings
from replog.quorum.roles import Candidate, Follower, Leader, Prospective, ResignedLeader, Unattached
from replog.quorum.state_file import StoredQuorumState
from replog.quorum.translate import from_wire, to_wire
from replog.quorum.voters import ReplicaKey, voter_set
from replog.types import NO_NODE, NodeId, QuorumEpoch
from replog.wire.apis import Api, known_versions
from replog.wire.codec import decode_request, encode_request
from tests.quorum.quorum_world import World

A, B, C, NOT_A_VOTER = NodeId(101), NodeId(102), NodeId(103), NodeId(109)
ELECTION_MS, FETCH_MS = 1000, 2000
TEN_MINUTES_MS = 600_000


# --- one member


def a_voter(
    *,
    epoch: int = 5,
    leader: NodeId = NO_NODE,
    voted: NodeId | None = None,
    log: tuple[int, int] = (4, 10),
    directory: UUID | None = None,
) -> Quorum:
    """B of the voters A, B, C, started at time 0."""
    voter = Quorum(
        me=ReplicaKey(B, directory or UUID(int=0)),
        cluster_id="C",
        voters=voter_set(ReplicaKey(one) for one in (A, B, C)),
        endpoints=dict.fromkeys((A, B, C)),  # type: ignore[arg-type]
        settings=Settings(),
        log=LogShape(end_offset=log[1], epochs=[(log[0], 0)]),
        stored=StoredQuorumState(
            epoch=QuorumEpoch(epoch), leader_id=leader, voted=None if voted is None else ReplicaKey(voted)
        ),
        draw=lambda below: below // 2,
    )
    for node in (A, B, C):
        voter._state._learned_endpoints[node] = _SOMEWHERE
    voter.handle(events.Started(now_ms=0))
    return voter


_SOMEWHERE: Any = object()


def tick(voter: Quorum, now_ms: int) -> list[Effect]:
    return voter.handle(events.Tick(now_ms=now_ms))


def votes(effects: list[Effect]) -> list[VoteRequest]:
    requests = [effect.request for effect in effects if isinstance(effect, events.Send)]
    return [request for request in requests if isinstance(request, VoteRequest)]


def request_ids(effects: list[Effect]) -> dict[NodeId, int]:
    return {effect.to: effect.request_id for effect in effects if isinstance(effect, events.Send)}


def ask(
    voter: Quorum,
    *,
    epoch: int,
    log: tuple[int, int] = (4, 10),
    candidate: NodeId = A,
    pre_vote: bool = True,
    to: ReplicaKey | None = None,
) -> VoteAnswer:
    request = VoteRequest(
        epoch=epoch,
        candidate=ReplicaKey(candidate),
        voter=to,
        last_epoch=log[0],
        last_offset=log[1],
        pre_vote=pre_vote,
    )
    effects = voter.handle(events.Received(now_ms=1, token=1, request=request))
    (answer,) = [effect.answer for effect in effects if isinstance(effect, events.Answered)]
    assert isinstance(answer, VoteAnswer)
    return answer


def a_prospective_voter(leader: NodeId = NO_NODE) -> tuple[Quorum, dict[NodeId, int]]:
    voter = a_voter(leader=leader)
    asked = request_ids(tick(voter, FETCH_MS))
    assert isinstance(voter.role, Prospective)
    return voter, asked


def on_vote_answer(voter: Quorum, request_id: int, *, granted: bool, epoch: int = 5) -> list[Effect]:
    answer = VoteAnswer(epoch=epoch, granted=granted)
    return voter.handle(events.Replied(now_ms=FETCH_MS + 1, request_id=request_id, answer=answer))


# --- a cluster


def a_cluster(seed: int = 1, **options: Any) -> World:
    world = World(seed, **options)
    world.start()
    world.run_until(world.agrees)
    return world


def others(world: World, node: NodeId) -> list[NodeId]:
    return [voter for voter in world.voters if voter != node]


class TestDisruptiveServers:
    """The section "Disruptive server scenarios"."""

    @pytest.mark.parametrize("seed", range(3))
    def test_a_partitioned_follower_never_raises_its_epoch(self, seed: int) -> None:
        """ "When a follower becomes partitioned [...] it will continuously increase its epoch to start elections" """
        world = a_cluster(seed)
        epoch, follower = world.epochs()[0], others(world, world.leader())[0]

        world.isolate(follower)
        world.run(TEN_MINUTES_MS)

        assert world.core(follower).epoch == epoch

    @pytest.mark.parametrize("seed", range(3))
    def test_a_follower_that_comes_back_unseats_nobody(self, seed: int) -> None:
        """ "When the follower regains connectivity, it will disturb the rest of the quorum" """
        world = a_cluster(seed)
        leader, epoch = world.leader(), world.epochs()[0]
        follower, votes_before = others(world, leader)[0], world.standard_votes
        world.isolate(follower)
        world.run(TEN_MINUTES_MS)

        world.heal()
        world.run(10_000)

        assert world.agrees()
        assert (world.leader(), set(world.epochs())) == (leader, {epoch})
        assert world.standard_votes == votes_before

    def test_a_partitioned_leader_becomes_aware_that_it_should_step_down(self) -> None:
        """ "When a leader becomes partitioned [...] it becomes aware that it should step down" """
        world = a_cluster()
        leader = world.leader()

        world.isolate(leader)
        world.run(FETCH_MS * 3 // 2 + 500)

        assert not isinstance(world.core(leader).role, Leader)

    def test_an_old_leader_adopts_a_higher_epoch_and_drops_its_tail(self) -> None:
        """ "it will start receiving messages w/ a different epoch. If higher than its own, the node will [adopt it]" """
        world = a_cluster()
        old = world.leader()
        world.isolate(old)
        world.append("never committed")
        world.run_until(lambda: world.leader() not in (old, NO_NODE))
        world.append("committed")

        world.heal()
        world.run_until(world.agrees)

        assert world.members[old].probes["quorum_truncated"] == 1
        assert "never committed" not in world.committed()
        assert "committed" in world.committed()

    def test_a_lower_epoch_is_answered_with_the_higher_one(self) -> None:
        """ "[...] if lower than its own, the node will [refuse, naming its epoch]" """
        voter = a_voter(epoch=5, leader=C)

        answer = ask(voter, epoch=4, log=(3, 99))

        assert (answer.error, answer.epoch, answer.leader_id) == (Error.FENCED_LEADER_EPOCH, 5, C)

    def test_fetches_that_time_out_now_and_then_cause_no_election(self) -> None:
        """ "a bug which causes fetch requests to periodically timeout [...] could trigger disruptive election behavior" """
        world = a_cluster()
        leader, epoch = world.leader(), world.epochs()[0]
        follower = others(world, leader)[0]

        for _ in range(20):
            world.cut([follower], [leader])
            world.run(FETCH_MS + 300)
            world.heal()
            world.run(1500)

        assert (world.leader(), set(world.epochs())) == (leader, {epoch})

    def test_a_fetch_timeout_set_too_low_on_one_node_raises_no_epoch(self) -> None:
        """ "a user setting controller.quorum.fetch.timeout.ms and other related configs too low" """
        world = World(1)
        hasty = Settings(fetch_timeout_ms=2, election_timeout_ms=20)
        world.start(A, B)
        world.run_until(lambda: world.leader() != NO_NODE)
        leader, epoch = world.leader(), world.core(A).epoch
        world.settings = hasty
        world.start(C)

        world.run(15_000)

        assert world.members[C].probes["prevote_lost"] > 10
        assert (world.leader(), set(world.epochs())) == (leader, {epoch})

    def test_a_server_of_an_old_configuration_gets_no_vote(self) -> None:
        """ "servers in the old configuration [...] starting new elections and forcing the current leader to step down" """
        voter = a_voter(leader=C)
        fetched = FetchAnswer(epoch=5, leader_id=C, high_watermark=10)
        (request_id,) = request_ids(tick(voter, 1)).values() or [1]
        voter.handle(events.Replied(now_ms=2, request_id=request_id, answer=fetched))

        answer = ask(voter, epoch=5, log=(5, 1000), candidate=NOT_A_VOTER)

        assert not answer.granted
        assert voter.epoch == 5

    def test_a_new_node_with_a_short_log_is_rejected_with_no_consequence(self) -> None:
        """ "If new nodes are sending pre-vote requests, we can easily reject them with no consequence (increase in epoch)" """
        voter = a_voter(log=(4, 10))

        answer = ask(voter, epoch=5, log=(0, 0), candidate=NOT_A_VOTER)

        assert not answer.granted
        assert (voter.epoch, voter.voted) == (5, None)

    def test_a_wiped_voter_elects_no_lagging_node(self) -> None:
        """ "Disk Loss Scenario": Node 3 loses its disk, Node 2 lags; without help "Elected as leader leading to data loss" """
        world = a_cluster()
        leader = world.leader()
        lagging, wiped = others(world, leader)
        world.cut([lagging], [leader, wiped])
        world.append("committed by two")
        world.run(100)
        assert "committed by two" in world.committed()

        world.crash(wiped)
        world.wipe(wiped)
        world.crash(leader)
        world.heal()
        world.start(wiped)
        world.run(60_000)
        assert world.leader() == NO_NODE
        assert world.members[wiped].probes["vote_refused_wrong_voter"] > 0

        world.start(leader)
        world.run_until(world.agrees)
        assert all(world.lost(voter) == [] for voter in world.voters)


class TestPreVote:
    """The section "Public Interfaces", "Pre-Vote"."""

    def test_a_majority_of_pre_votes_leads_to_a_vote_in_the_next_epoch(self) -> None:
        """ "check if it would receive a majority of votes - if yes it increases its epoch and sends a disruptive vote request" """
        voter, asked = a_prospective_voter()

        effects = on_vote_answer(voter, asked[A], granted=True)

        assert isinstance(voter.role, Candidate)
        assert [(request.epoch, request.pre_vote) for request in votes(effects)] == [(6, False)] * 2
        kinds = [type(effect) for effect in effects]
        assert kinds.index(events.Persist) < kinds.index(events.Send)

    def test_without_a_majority_the_epoch_stays_and_no_vote_is_sent(self) -> None:
        """ "If not, it does not increase its epoch and does not send a vote request." """
        voter, asked = a_prospective_voter()

        effects = on_vote_answer(voter, asked[A], granted=False) + on_vote_answer(voter, asked[C], granted=False)

        assert isinstance(voter.role, Unattached)
        assert voter.epoch == 5
        assert votes(effects) == []

    def test_a_round_nobody_answers_ends_without_a_vote(self) -> None:
        """ "If not, it does not increase its epoch" """
        voter, _ = a_prospective_voter(leader=C)

        effects = tick(voter, FETCH_MS + 2 * ELECTION_MS)

        assert isinstance(voter.role, Follower)
        assert voter.epoch == 5
        assert votes(effects) == []

    def test_the_canvassing_is_a_vote_request_with_pre_vote_set(self) -> None:
        """ "The canvasing is done via a VoteRequest with a new field PreVote set to true." """
        voter = a_voter(leader=C)

        requests = votes(tick(voter, FETCH_MS))

        assert [request.pre_vote for request in requests] == [True, True]

    def test_the_epoch_is_not_increased_before_the_request(self) -> None:
        """ "The candidate does not increase its epoch prior to sending the request out." """
        voter = a_voter(leader=C)

        effects = tick(voter, FETCH_MS)

        assert [request.epoch for request in votes(effects)] == [5, 5]
        assert voter.epoch == 5
        assert not [effect for effect in effects if isinstance(effect, events.Persist)]

    def test_the_request_carries_the_end_of_the_log(self) -> None:
        """ "LastOffsetEpoch": "The epoch of the last record written to the metadata log"; "LastOffset" likewise"""
        voter = a_voter(leader=C, log=(4, 10))

        requests = votes(tick(voter, FETCH_MS))

        assert {(request.last_epoch, request.last_offset) for request in requests} == {(4, 10)}

    def test_the_schema_has_a_version_for_it_and_older_ones_have_not(self) -> None:
        """ "VoteRequest [...] PreVote, versions [2+, SPEC D1]"; "VoteResponse [...] still needs a version bump" """
        _, body = to_wire(votes(tick(a_voter(leader=C), FETCH_MS))[0])

        assert known_versions(Api.VOTE).last == 2
        for version, carried in [(0, False), (1, False), (2, True)]:
            frame = encode_request(Api.VOTE, version, 1, "test", body)
            read = from_wire(version, decode_request(frame[4:]).body)
            assert isinstance(read, VoteRequest)
            assert read.pre_vote is carried

    @pytest.mark.parametrize(
        "role", ["unattached", "prospective", "follower that has not fetched", "candidate", "resigned"]
    )
    def test_a_granted_pre_vote_changes_nothing(self, role: str) -> None:
        """ "canvasing": a pre-vote is no vote; it is not recorded and any number may be granted"""
        voter = {
            "unattached": lambda: a_voter(),
            "prospective": lambda: a_prospective_voter()[0],
            "follower that has not fetched": lambda: a_voter(leader=C),
            "candidate": lambda: a_voter(voted=B),
            "resigned": lambda: a_voter(leader=B, voted=B),
        }[role]()
        before = (type(voter.role), voter.epoch, voter.voted)

        answers = [ask(voter, epoch=5, candidate=A), ask(voter, epoch=5, candidate=C)]

        assert [answer.granted for answer in answers] == [True, True]
        assert (type(voter.role), voter.epoch, voter.voted) == before

    def test_a_voter_that_cannot_be_asked_is_done_without(self) -> None:
        """ "Compatibility" (SPEC 1.7): a voter of an older release knows no pre-vote; the vote is then asked for at once"""
        voter, asked = a_prospective_voter()

        effects = voter.handle(
            events.Unanswered(now_ms=FETCH_MS + 1, request_id=asked[A], failure=Failure.UNSUPPORTED_VERSION)
        )

        assert isinstance(voter.role, Candidate)
        assert {request.pre_vote for request in votes(effects)} == {False}


class TestUnnecessaryElections:
    """ "How does this prevent unnecessary elections?" """

    def test_a_node_of_an_old_configuration_asks_for_no_votes(self) -> None:
        """ "A node in an old configuration [...] could be denied votes in the pre-vote phase"; it asks for none (SPEC D20)"""
        removed = Quorum(
            me=ReplicaKey(NOT_A_VOTER),
            cluster_id="C",
            voters=voter_set(ReplicaKey(one) for one in (A, B, C)),
            endpoints={},
            settings=Settings(),
            log=LogShape(),
            stored=None,
            draw=lambda below: 0,
        )
        effects = removed.handle(events.Started(now_ms=0))

        for now_ms in range(1000, 60_000, 1000):
            effects += tick(removed, now_ms)

        assert votes(effects) == []

    def test_a_voter_that_came_back_with_another_disk_is_not_the_voter_asked_for(self) -> None:
        """ "For a node w/ new disk/data loss [...] could be denied [...] This would be handled by KIP-853." """
        voter = a_voter(directory=UUID(int=2))

        answer = ask(voter, epoch=6, pre_vote=False, to=ReplicaKey(B, UUID(int=1)))

        assert (answer.error, answer.granted) == (Error.INVALID_VOTER_KEY, False)
        assert voter.voted is None

    def test_an_older_epoch_is_rejected(self) -> None:
        """ "all nodes reject the pre-vote request from the disruptive follower if its epoch is the same/older" """
        for voter in (a_voter(), a_voter(leader=C), a_voter(voted=B), a_prospective_voter()[0]):
            assert ask(voter, epoch=4, log=(4, 1000)).error is Error.FENCED_LEADER_EPOCH

    def test_the_same_epoch_is_rejected_by_whoever_has_a_live_leader(self) -> None:
        """ "the same/older": SPEC D21, the same epoch may be granted where no leader is alive"""
        follower = a_voter(leader=C)
        fetch = request_ids(tick(follower, 1)) or {C: 1}

        assert ask(follower, epoch=5).granted
        fetched = FetchAnswer(epoch=5, leader_id=C, high_watermark=10)
        follower.handle(events.Replied(now_ms=2, request_id=fetch[C], answer=fetched))

        assert not ask(follower, epoch=5).granted

    def test_the_disruptive_follower_rejoins_at_the_next_valid_election(self) -> None:
        """ "It should rejoin the quorum when it discovers the higher epoch on the next valid election by another node" """
        world = a_cluster()
        leader = world.leader()
        follower = others(world, leader)[0]
        world.isolate(follower)
        world.run(20_000)
        world.cuts.clear()
        world.cut([follower], [leader])

        world.crash(leader)
        world.run_until(lambda: world.leader() not in (NO_NODE, leader))

        world.run(1000)
        assert len(set(world.epochs())) == 1
        assert {core.leader_id for core in (world.core(one) for one in others(world, leader))} == {world.leader()}

    def test_it_rejoins_without_any_election_when_the_link_heals(self) -> None:
        """ "(todo: [...] there should be other ways for the node to become follower earlier)" """
        world = a_cluster()
        leader = world.leader()
        follower = others(world, leader)[0]
        world.isolate(follower)
        world.run(20_000)

        world.heal()
        world.run(2 * ELECTION_MS + FETCH_MS)

        role = world.core(follower).role
        assert isinstance(role, Follower)
        assert role.has_fetched


class TestNecessaryElections:
    """ "Could this prevent necessary elections?" """

    @pytest.mark.parametrize("seed", range(5))
    def test_a_majority_without_leader_elects_one(self, seed: int) -> None:
        """ "Yes, see 'Check Quorum' for why we would need an additional safeguard": none is prevented"""
        world = a_cluster(seed)
        leader = world.leader()

        world.crash(leader)
        world.run_until(lambda: world.leader() not in (NO_NODE, leader), limit_ms=20_000)

        assert world.core(world.leader()).epoch > 0

    def test_check_quorum_frees_followers_of_a_leader_that_a_majority_cannot_reach(self) -> None:
        """ "Check Quorum": a leader that hears no majority resigns, so that nobody goes on fetching from it"""
        world = a_cluster(voters=5)
        leader = world.leader()
        loyal, *cut_off = others(world, leader)
        world.cut(cut_off, [leader, loyal])

        # One fetch from before the cut and one from the loyal follower may still make up a majority.
        world.run(FETCH_MS * 3 // 2 + 1000)

        assert isinstance(world.core(leader).role, ResignedLeader | Unattached | Prospective | Follower)
        world.run_until(lambda: world.leader() in cut_off, limit_ms=20_000)

    def test_an_observer_is_no_proof_of_a_quorum(self) -> None:
        """ "Check Quorum" counts voters only (SPEC 1.8.5)"""
        world = a_cluster(observers=3)
        leader = world.leader()
        world.cut(others(world, leader), [leader])

        world.run(FETCH_MS * 3 // 2 + 500)

        assert not world.core(leader).is_leading


class TestRejectingWithinFetchTimeout:
    """ "Do we still need to reject VoteRequests received within fetch timeout if we have implemented Pre-Vote?" """

    def test_pre_votes_are_rejected_from_the_first_fetch_to_the_fetch_timeout(self) -> None:
        """ "Yes, except we would modify the logic to 'Rejecting Pre-Vote requests received within fetch timeout'." """
        follower = a_voter(leader=C)
        fetch = request_ids(tick(follower, 1)) or {C: 1}
        fetched = FetchAnswer(epoch=5, leader_id=C, high_watermark=10)
        follower.handle(events.Replied(now_ms=100, request_id=fetch[C], answer=fetched))

        assert not ask(follower, epoch=5).granted
        tick(follower, 100 + FETCH_MS)

        assert ask(follower, epoch=5).granted

    def test_no_epoch_grows_without_a_new_leader_as_long_as_a_leader_is_alive(self) -> None:
        """ "We need to avoid bumping epochs without a new leader being elected" """
        world = a_cluster(voters=5)
        leader, epoch = world.leader(), world.epochs()[0]

        for victim in others(world, leader) * 3:
            world.isolate(victim)
            world.run(7_000)
            world.cuts.clear()
            world.run(1_000)

        assert (world.leader(), set(world.epochs())) == (leader, {epoch})

    def test_a_server_of_an_old_configuration_with_a_full_log_is_rejected(self) -> None:
        """ "A node in an old configuration (e.g. S1 [...]) starts a 'pre-vote' [...] and is elected because it is as up-to-date" """
        world = a_cluster()
        leader = world.leader()
        follower = world.members[others(world, leader)[0]]
        assert follower.core is not None
        log = follower.core.log

        answer = ask(
            follower.core, epoch=follower.core.epoch, log=(log.last_epoch, log.end_offset), candidate=NOT_A_VOTER
        )

        assert not answer.granted

    @pytest.mark.parametrize("seed", range(3))
    def test_two_nodes_that_cannot_talk_do_not_take_turns_in_leading(self, seed: int) -> None:
        """ "two nodes, one of which is the leader, are simply unable to communicate [...] This could continue in a cycle." """
        world = a_cluster(seed)
        leader, epoch = world.leader(), world.epochs()[0]

        world.cut([leader], [others(world, leader)[0]])
        world.run(TEN_MINUTES_MS)

        assert (world.leader(), set(world.epochs())) == (leader, {epoch})

    @pytest.mark.parametrize("towards_leader", [True, False])
    def test_nor_do_they_when_only_one_direction_is_cut(self, towards_leader: bool) -> None:
        """SPEC 8.6, the same with a one-way cut."""
        world = a_cluster()
        leader, epoch = world.leader(), world.epochs()[0]
        leader_side, follower = ([leader], [others(world, leader)[0]])

        here, there = (follower, leader_side) if towards_leader else (leader_side, follower)
        world.cut(here, there, both_ways=False)
        world.run(TEN_MINUTES_MS)

        assert (world.leader(), set(world.epochs())) == (leader, {epoch})

    def test_two_prospective_members_may_grant_each_other(self) -> None:
        """SPEC 1.12: random timeouts break ties, and the epoch grows only in real elections."""
        voter, _ = a_prospective_voter()

        assert ask(voter, epoch=5, candidate=A).granted
        assert voter.epoch == 5
