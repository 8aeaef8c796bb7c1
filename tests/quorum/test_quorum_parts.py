"""The quorum's small parts: arithmetic, the state file, the log's outline, requests on their way."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.config import Endpoint
from replog.quorum import events
from replog.quorum.log_shape import LogShape
from replog.quorum.messages import BatchSpan, OffsetAndEpoch, VoteRequest
from replog.quorum.peers import Peers
from replog.quorum.quorum_state import QuorumState, Settings
from replog.quorum.state_file import StoredQuorumState, decode, encode
from replog.quorum.voters import ReplicaKey, hand_over_delay_ms, high_watermark, majority_offset, voter_set
from replog.types import NO_NODE, NodeId, QuorumEpoch
from tests.quorum.quorum_world import World


@pytest.mark.parametrize(
    ("ends", "start", "current", "expected"),
    [
        pytest.param([30, 25, 10], 20, None, 25, id="two of three hold 25"),
        pytest.param([30, 20, 20], 20, None, None, id="nothing of this epoch is held by a majority (figure 8)"),
        pytest.param([30, 21, 20], 20, None, 21, id="the epoch's first record is"),
        pytest.param([30, 25, 25], 20, 28, 28, id="never back"),
        pytest.param([30, -1, -1], 20, None, None, id="unknown"),
        pytest.param([40, 39, 30, 10], 20, None, 30, id="three of four"),
        pytest.param([7], 6, None, 7, id="alone"),
    ],
)
def test_high_watermark(ends: list[int], start: int, current: int | None, expected: int | None) -> None:
    assert high_watermark(ends, start, current) == expected


@given(st.lists(st.integers(-1, 50), min_size=1, max_size=7))
def test_a_majority_holds_the_majority_offset_and_none_holds_more(ends: list[int]) -> None:
    offset = majority_offset(ends)

    assert sum(end >= offset for end in ends) > len(ends) / 2
    assert not sum(end > offset for end in ends) > len(ends) / 2


@pytest.mark.parametrize(
    ("position", "count", "delay_ms"),
    [(0, 2, 0), (1, 2, 500), (1, 3, 250), (2, 3, 500), (3, 4, 500), (None, 2, 1000)],
)
def test_successors_start_one_after_the_other(position: int | None, count: int, delay_ms: int) -> None:
    assert hand_over_delay_ms(position, count, 1000) == delay_ms


@given(st.integers(0, 2**31 - 1), st.integers(-1, 200), st.none() | st.tuples(st.integers(0, 200), st.uuids()))
def test_the_state_file_says_what_was_written(epoch: int, leader: int, voted: tuple[int, object] | None) -> None:
    key = None if voted is None else ReplicaKey(NodeId(voted[0]), voted[1])  # type: ignore[arg-type]
    state = StoredQuorumState(epoch=QuorumEpoch(epoch), leader_id=NodeId(leader), voted=key)

    assert decode(encode(state)) == state


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"leaderEpoch":"x"}', b"\xff", b'{"data_version":9}'])
def test_an_unreadable_state_file_counts_as_missing(content: bytes) -> None:
    assert decode(content) is None


def test_a_state_file_of_version_0_is_read() -> None:
    content = b'{"clusterId":"c","leaderId":2,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,"currentVoters":[],"data_version":0}'

    assert decode(content) == StoredQuorumState(epoch=QuorumEpoch(5), leader_id=NodeId(2))


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=12), st.integers(0, 40))
def test_cutting_an_outline_forgets_exactly_what_went(batches: list[tuple[int, int]], at: int) -> None:
    """The same outline comes out whether records were cut or never written."""
    whole, prefix, epoch = LogShape(), LogShape(), 1
    for count, step in batches:
        epoch += step
        span = BatchSpan(whole.end_offset, whole.end_offset + count, epoch)
        whole.append(span)
        if span.end_offset <= at:
            prefix.append(span)

    whole.truncate(prefix.end_offset)

    assert (whole.end, whole.epochs) == (prefix.end, prefix.epochs)


def test_divergence_goes_epoch_by_epoch() -> None:
    """SPEC 8.7 (KIP-279): the follower cuts at its own end of the largest epoch that both know."""
    leader = LogShape(end_offset=13, epochs=[(1, 0), (3, 12)])
    follower = LogShape(end_offset=11, epochs=[(1, 0), (2, 10)])

    position = leader.position_of(11, 2)

    assert position.diverging == OffsetAndEpoch(12, 1)
    assert follower.truncation_point(OffsetAndEpoch(12, 1)) == 10


def test_an_answer_that_comes_too_late_finds_nobody() -> None:
    peers = Peers(request_timeout_ms=100, retry_backoff_ms=20)
    request_id = peers.start(NodeId(1), 0)

    peers.expire(100)

    assert peers.finish(request_id) is None
    assert not peers.is_ready(NodeId(1), 119)
    assert peers.is_ready(NodeId(1), 120)


def test_a_vote_survives_the_power_failure_right_after_it() -> None:
    """M64: whoever forgets its vote may give two in one epoch."""
    world = World(1)
    world.start(world.voters[0])
    member = world.members[world.voters[0]]

    def ask(candidate: int) -> bool:
        request = VoteRequest(
            epoch=6, candidate=ReplicaKey(NodeId(candidate)), last_epoch=0, last_offset=0, pre_vote=False
        )
        assert member.core is not None
        effects = member.core.handle(events.Received(now_ms=world.now_ms, token=1, request=request))
        for effect in effects:
            if isinstance(effect, events.Answered):
                return bool(effect.answer.granted)  # type: ignore[union-attr]
            if isinstance(effect, events.Persist):
                member.disk.state_file = encode(effect.state)
        raise AssertionError("no answer")

    assert ask(102)
    world.crash(member.node_id)
    world.start(member.node_id)

    assert not ask(103)
    assert ask(102)


def test_who_stored_both_its_own_vote_and_another_leader_follows_the_leader() -> None:
    """As a candidate of that epoch it would name a log epoch that no candidate can have (found by seed 15)."""
    world = World(1)
    member = world.members[world.voters[0]]
    voted = ReplicaKey(member.node_id, member.disk.directory_id)
    stored = StoredQuorumState(epoch=QuorumEpoch(3), leader_id=world.voters[1], voted=voted)
    member.disk.state_file = encode(stored)

    world.start(member.node_id)

    assert world.core(member.node_id).leader_id == world.voters[1] != NO_NODE


def test_the_leader_is_looked_for_also_where_only_the_log_says() -> None:
    """All configured voters were removed: they know no leader, and ask only each other unless the log helps."""
    configured = {NodeId(node): Endpoint("configured", node) for node in (101, 102)}
    newcomer = ReplicaKey(NodeId(104), UUID(int=4))
    written = LogShape(
        voters=[(7, (newcomer, ReplicaKey(NodeId(105))))], endpoints={newcomer.node_id: Endpoint("log", 4)}
    )

    standing = QuorumState(
        me=ReplicaKey(NodeId(101)),
        cluster_id="c",
        voters=voter_set(ReplicaKey(node) for node in configured),
        endpoints=configured,
        settings=Settings(),
        log=written,
        draw=lambda below: 0,
    )

    assert standing.bootstrap == (102, 104)  # nobody knows where 105 listens
