"""One member of the metadata quorum, voter or observer: one event in, ordered effects out.

`Quorum` is the door; behind it `state.py` holds epoch, vote, role and log outline and makes the transitions,
`election.py` votes, `replication.py` copies. After every event the member makes whatever transition is due and asks
whatever has to be asked; so nothing depends on an event being delivered at the right moment.
"""

from collections.abc import Callable, Mapping
from typing import assert_never

import msgspec

from replog.config import Endpoint
from replog.quorum.election import Election
from replog.quorum.events import (
    Answered,
    AppendAsked,
    Effect,
    Event,
    Failure,
    LeaderChanged,
    Received,
    Replied,
    ResignAsked,
    ShutDownAsked,
    SnapshotTaken,
    SnapshotVoters,
    Started,
    Synced,
    Tick,
    Unanswered,
)
from replog.quorum.log_shape import LogShape
from replog.quorum.membership import Membership
from replog.quorum.messages import (
    BeginQuorumEpochAnswer,
    BeginQuorumEpochRequest,
    EndQuorumEpochAnswer,
    EndQuorumEpochRequest,
    FetchAnswer,
    FetchRequest,
    FetchSnapshotAnswer,
    FetchSnapshotRequest,
    VoteAnswer,
    VoterChangeRequest,
    VoteRequest,
)
from replog.quorum.quorum_state import QuorumState, Settings
from replog.quorum.replication import Replication
from replog.quorum.roles import Candidate, Follower, Leader, Progress, Prospective, ResignedLeader, Role, Unattached
from replog.quorum.state_file import StoredQuorumState
from replog.quorum.voters import ReplicaKey, VoterSet
from replog.types import NO_NODE, NodeId, QuorumEpoch


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a leader knows of a replica; times in milliseconds of the leader's clock, -1 for never."""

    replica: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What DescribeQuorum shows."""

    leader_id: NodeId
    epoch: QuorumEpoch
    high_watermark: int
    voters: tuple[ReplicaStatus, ...]
    observers: tuple[ReplicaStatus, ...]


class Quorum:
    """One member of the quorum."""

    def __init__(
        self,
        *,
        me: ReplicaKey,
        cluster_id: str,
        voters: VoterSet,
        endpoints: Mapping[NodeId, Endpoint],
        settings: Settings,
        log: LogShape,
        stored: StoredQuorumState | None,
        draw: Callable[[int], int],
    ) -> None:
        """Take the member's past.

        voters:    the configured quorum; a voter set in the log overrides it.
        endpoints: how this node reaches the voters (its own links, perhaps).
        log:       the outline of the log on disk; the core owns it from now on.
        stored:    what the quorum-state file says, None when it is missing or unreadable.
        draw:      returns a random int from 0 up to below its argument.
        """
        self._state = QuorumState(
            me=me, cluster_id=cluster_id, voters=voters, endpoints=endpoints, settings=settings, log=log, draw=draw
        )
        self._stored = stored
        self._election = Election(self._state)
        self._replication = Replication(self._state, self._election)
        self._membership = Membership(self._state, self._replication)
        self._announced: tuple[NodeId, QuorumEpoch] | None = None

    # --- the door

    def handle(self, event: Event) -> list[Effect]:
        """Advance by one event; return what the world has to do about it, in order."""
        state = self._state
        state.peers.expire(event.now_ms)
        self._take(event)
        self._election.advance(event.now_ms)
        self._membership.advance(event.now_ms)
        self._replication.sync_due()
        self._replication.answer_parked(event.now_ms)
        self._announce_leader()
        self._election.send_due(event.now_ms)
        self._replication.send_due(event.now_ms)
        effects, state.outbox = state.outbox, []
        return effects

    def _take(self, event: Event) -> None:
        now_ms = event.now_ms
        match event:
            case Tick():
                pass
            case Received():
                self._on_request(event, now_ms)
            case Replied():
                self._on_answer(event, now_ms)
            case Unanswered():
                self._on_unanswered(event, now_ms)
            case AppendAsked():
                self._replication.on_append(event.count, event.records)
            case Synced():
                self._replication.on_synced(event.sync_id)
            case SnapshotTaken():
                self._replication.on_snapshot_taken(event.snapshot, event.size)
            case SnapshotVoters():
                self._state.log.note_voters(event.snapshot.offset, event.voters, event.endpoints)
            case ResignAsked() | ShutDownAsked():
                self._on_asked_to_go(event, now_ms)
            case Started():
                self._state.start(self._stored, now_ms)
            case _:
                assert_never(event)

    def _on_asked_to_go(self, event: ResignAsked | ShutDownAsked, now_ms: int) -> None:
        state = self._state
        state.shutting_down |= isinstance(event, ShutDownAsked)
        if isinstance(state.role, Leader):
            state.become_resigned(now_ms, "shutting down" if state.shutting_down else "asked to")

    def _on_request(self, event: Received, now_ms: int) -> None:
        request = event.request
        match request:
            case FetchRequest():
                self._replication.on_fetch_request(event.token, request, now_ms)
            case VoteRequest():
                self._answer(event.token, self._election.on_vote_request(request, now_ms))
            case BeginQuorumEpochRequest():
                self._answer(event.token, self._election.on_begin_request(request, now_ms))
            case EndQuorumEpochRequest():
                self._answer(event.token, self._election.on_end_request(request, now_ms))
            case FetchSnapshotRequest():
                self._replication.on_fetch_snapshot_request(event.token, request, now_ms)
            case VoterChangeRequest():
                self._membership.on_request(event.token, request, now_ms)
                self._membership.advance(now_ms)
            case _:
                assert_never(request)

    def _answer(self, token: int, answer: VoteAnswer | BeginQuorumEpochAnswer | EndQuorumEpochAnswer) -> None:
        self._state.outbox.append(Answered(token=token, answer=answer))

    def _on_answer(self, event: Replied, now_ms: int) -> None:
        peer = self._state.peers.finish(event.request_id)
        if peer is None:
            return  # of an earlier round, or too late
        answer = event.answer
        match answer:
            case FetchAnswer():
                self._replication.on_fetch_answer(peer, answer, now_ms)
            case VoteAnswer():
                self._election.on_vote_answer(peer, answer, now_ms)
            case BeginQuorumEpochAnswer():
                self._election.on_begin_answer(peer, answer, now_ms)
            case EndQuorumEpochAnswer():
                self._election.on_end_answer(peer, answer, now_ms)
            case FetchSnapshotAnswer():
                self._replication.on_fetch_snapshot_answer(peer, answer, now_ms)
            case _:
                assert_never(answer)

    def _on_unanswered(self, event: Unanswered, now_ms: int) -> None:
        peer = self._state.peers.finish(event.request_id)
        if peer is None:
            return
        self._state.peers.failed(peer, now_ms)
        if event.failure is Failure.UNSUPPORTED_VERSION:
            self._election.on_unsupported_version()

    def _announce_leader(self) -> None:
        leader = (self.leader_id, self.epoch)
        if leader != self._announced:
            self._announced = leader
            self._state.outbox.append(LeaderChanged(leader_id=leader[0], epoch=leader[1]))

    # --- questions

    @property
    def role(self) -> Role:
        """The present role; to look at, not to change."""
        return self._state.role

    @property
    def is_leading(self) -> bool:
        """Whether this node leads, and its state machine has caught up with what was before."""
        return isinstance(self.role, Leader) and self.role.high_watermark is not None

    @property
    def epoch(self) -> QuorumEpoch:
        """The latest epoch this node knows."""
        return self._state.epoch

    @property
    def voted(self) -> ReplicaKey | None:
        """Who got this node's vote in this epoch."""
        return self._state.voted

    @property
    def leader_id(self) -> NodeId:
        """Who leads; NO_NODE when unknown, or when it is this node and it has resigned."""
        return NO_NODE if isinstance(self.role, ResignedLeader) else self._state.leader_id

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """How this node reaches the leader."""
        return self._state.endpoint_of(self.leader_id)

    def endpoint_of(self, node_id: NodeId) -> Endpoint | None:
        """How this node reaches another member, None when nobody has said."""
        return self._state.endpoint_of(node_id)

    @property
    def high_watermark(self) -> int:
        """Up to where the log is known to be committed; never goes back."""
        return self._state.high_watermark

    @property
    def log(self) -> LogShape:
        """The log's outline; to look at, not to change."""
        return self._state.log

    @property
    def voters(self) -> VoterSet:
        """The voter set in force."""
        return self._state.voters

    @property
    def is_voter(self) -> bool:
        """Whether this node is a member of the quorum."""
        return self._state.is_voter

    @property
    def has_left(self) -> bool:
        """Whether a node that shuts down has nothing left to say."""
        return not isinstance(self.role, ResignedLeader) or not self.role.unacknowledged

    @property
    def next_deadline_ms(self) -> int | None:
        """When a `Tick` is due at the latest; None for never."""
        deadlines = [self._state.peers.next_deadline_ms, *self._role_deadlines()]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _role_deadlines(self) -> list[int]:
        role = self.role
        match role:
            case Unattached():
                return [role.election_deadline_ms] if self._state.may_stand else []
            case Prospective() | Candidate():
                return [role.election_deadline_ms]
            case ResignedLeader():
                return [] if self._state.shutting_down else [role.election_deadline_ms]
            case Follower():
                return [role.fetch_deadline_ms]
            case Leader():
                parked = [one.deadline_ms for one in role.parked.values()]
                if role.voter_change is not None:
                    parked.append(role.voter_change.deadline_ms)
                if not self._state.other_voters:
                    return parked
                return [role.check_quorum_deadline_ms, role.begin_deadline_ms, *parked]

    def status(self) -> QuorumStatus | None:
        """Return what a leader knows of its replicas; None unless leading."""
        role = self.role
        if not isinstance(role, Leader):
            return None
        return QuorumStatus(
            leader_id=role.leader_id,
            epoch=role.epoch,
            high_watermark=-1 if role.high_watermark is None else role.high_watermark,
            voters=tuple(_status(progress) for progress in role.progress.values()),
            observers=tuple(_status(progress) for progress in role.observers.values()),
        )


def _status(progress: Progress) -> ReplicaStatus:
    return ReplicaStatus(
        replica=progress.replica,
        log_end_offset=progress.end_offset,
        last_fetch_ms=progress.last_fetch_ms,
        last_caught_up_ms=progress.last_caught_up_ms,
    )
