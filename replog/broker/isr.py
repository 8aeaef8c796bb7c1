"""What a leader knows of its followers, and how it changes the ISR (SPEC 3.2, 3.5, 3.6; KIP-903, KIP-966).

`LeaderState` is of one leader epoch of one partition. Its events are appends, replica fetches, ticks, answers
of the controller and metadata; its effects are a raised high watermark, a proposal for the controller, a
refusal for the peer. Only one proposal is in flight; between proposing and knowing the outcome every ISR that
might be in force is respected, which is what `maximal_isr` is for.

Time is monotonic milliseconds. It does not talk, does not read logs, and does not know of clients.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from replog.broker import watermark
from replog.broker.identity import BrokerIdentity
from replog.errors import Error
from replog.types import NO_BROKER_EPOCH, BrokerEpoch, LeaderEpoch, LeaderRecoveryState, NodeId, PartitionEpoch

UNKNOWN_OFFSET: Final = -1
NEVER_MS: Final = -(1 << 62)
RETRY_AFTER_MS: Final = 50

# The controller refused this very ISR: it is surely not in force (SPEC 3.6.5).
REVERTING: Final = frozenset({Error.INELIGIBLE_REPLICA, Error.OPERATION_NOT_ATTEMPTED})
# The controller knows better; what it knows comes with the metadata, until then the stricter set stays.
AWAITING_METADATA: Final = frozenset(
    {
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNKNOWN_TOPIC_ID,
        Error.FENCED_LEADER_EPOCH,
        Error.INVALID_UPDATE_VERSION,
        Error.INVALID_REQUEST,
        Error.NEW_LEADER_ELECTED,
    }
)


class BrokerView(msgspec.Struct, frozen=True, kw_only=True):
    """What the committed metadata says of a broker, as far as the ISR is concerned."""

    epoch: BrokerEpoch
    fenced: bool
    shutting_down: bool


class PartitionState(msgspec.Struct, frozen=True, kw_only=True):
    """A partition as the controller committed it."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    recovery: LeaderRecoveryState


class Proposal(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One AlterPartition of one partition. Compared by identity: an answer belongs to this very proposal."""

    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[tuple[NodeId, BrokerEpoch], ...]
    recovery: LeaderRecoveryState


class AlterPartitionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller said to a proposal; fields beside the error count only with `Error.NONE`."""

    error: Error
    top_level: bool = False
    leader: NodeId = NodeId(-1)
    leader_epoch: LeaderEpoch = LeaderEpoch(-1)
    partition_epoch: PartitionEpoch = PartitionEpoch(-1)
    isr: tuple[NodeId, ...] = ()
    recovery: LeaderRecoveryState = LeaderRecoveryState.RECOVERED


class Refuse(msgspec.Struct, frozen=True):
    """Answer the peer with an error; nothing was changed."""

    error: Error


class Propose(msgspec.Struct, frozen=True):
    """Send the proposal to the active controller, not before `after_ms` from now."""

    proposal: Proposal
    after_ms: int = 0


class Advance(msgspec.Struct, frozen=True):
    """The high watermark is now here: waiting produces and fetches may be complete."""

    high_watermark: int


class CommitState(msgspec.Struct, frozen=True):
    """The committed ISR, partition epoch or recovery state changed."""

    state: PartitionState


Effect = Refuse | Propose | Advance | CommitState


class Contact:
    """When a replica last fetched in a session: a fetch that does not name a partition repeats its last position there."""

    __slots__ = ("last_ms",)

    def __init__(self, last_ms: int) -> None:
        self.last_ms = last_ms


class Follower:
    """A replica as seen by its leader in one leader epoch."""

    __slots__ = (
        "broker_epoch",
        "contact",
        "last_caught_up_ms",
        "last_fetch_leader_log_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, last_caught_up_ms: int) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = last_caught_up_ms
        self.last_fetch_ms = NEVER_MS
        self.last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
        self.broker_epoch: BrokerEpoch | None = None
        self.contact: Contact | None = None

    def repeat_position(self, leader_log_end_offset: int) -> None:
        """Take what its session repeated for it, before the log grows: until then it was at the end."""
        if self.contact is not None and self.log_end_offset == leader_log_end_offset:
            self.fetched(self.log_end_offset, leader_log_end_offset, max(self.contact.last_ms, self.last_fetch_ms))

    def fetched(self, offset: int, leader_log_end_offset: int, now_ms: int) -> None:
        """Note a fetch position; reaching the end that the previous fetch saw counts as of that fetch (3.2.4)."""
        if offset >= leader_log_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_log_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.last_fetch_ms = now_ms
        self.last_fetch_leader_log_end_offset = leader_log_end_offset

    def is_caught_up(self, leader_log_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        """Return whether it is at the end, or was less than the allowed lag ago."""
        return self.log_end_offset == leader_log_end_offset or now_ms - self.last_caught_up_ms <= lag_ms_max


class LeaderState:
    """The leader's part in one leader epoch of one partition."""

    def __init__(  # noqa: PLR0913 - what a leadership begins with
        self,
        *,
        state: PartitionState,
        identity: BrokerIdentity,
        brokers: Mapping[NodeId, BrokerView],
        min_insync_replicas: int,
        log_end_offset: int,
        high_watermark: int,
        epoch_start_offset: int,
        lag_ms_max: int,
        now_ms: int,
        acknowledgeable_end_offset: int | None = None,
    ) -> None:
        assert high_watermark <= log_end_offset
        self.node_id = state.leader
        self.state = state
        self.identity = identity
        self.brokers = brokers
        self.min_insync_replicas = min_insync_replicas
        self.log_end_offset = log_end_offset
        self.acknowledgeable_end_offset = (
            log_end_offset if acknowledgeable_end_offset is None else acknowledgeable_end_offset
        )
        self.high_watermark = high_watermark
        self.epoch_start_offset = epoch_start_offset
        self.lag_ms_max = lag_ms_max
        self.pending: Proposal | None = None
        self.maximal_isr: tuple[NodeId, ...] = state.isr
        # SPEC 3.1.3: positions of an earlier leadership say nothing about what the replicas hold now (M37).
        self.followers: dict[NodeId, Follower] = {
            replica: Follower(now_ms if replica in state.isr else NEVER_MS) for replica in self._others(state)
        }

    @property
    def isr(self) -> tuple[NodeId, ...]:
        """The committed ISR."""
        return self.state.isr

    @property
    def min_isr(self) -> int:
        """The effective minimum of this partition."""
        return watermark.effective_min_isr(self.min_insync_replicas, len(self.state.replicas))

    @property
    def has_enough_replicas(self) -> bool:
        """Return whether acks=all may be appended: the committed ISR counts, not the hoped-for one (SPEC 3.7.1)."""
        return len(self.state.isr) >= self.min_isr

    def on_leadership(self, now_ms: int) -> Sequence[Effect]:
        """Begin: an ISR of one may advance at once, without any append (SPEC 3.1.3, KAFKA-9491)."""
        return self._advance(now_ms)

    def on_append(
        self, log_end_offset: int, now_ms: int, acknowledgeable_end_offset: int | None = None
    ) -> Sequence[Effect]:
        """Take note of records appended locally.

        acknowledgeable_end_offset:  up to where this leader's own copy counts; less than the log end while a flush is due.
        """
        assert log_end_offset >= self.log_end_offset
        for follower in self.followers.values():
            follower.repeat_position(self.log_end_offset)
        self.log_end_offset = log_end_offset
        self.acknowledgeable_end_offset = (
            log_end_offset if acknowledgeable_end_offset is None else acknowledgeable_end_offset
        )
        return self._advance(now_ms)

    def on_flush(self, acknowledgeable_end_offset: int, now_ms: int) -> Sequence[Effect]:
        """Take note of records made durable, or of another demand for it."""
        self.acknowledgeable_end_offset = acknowledgeable_end_offset
        return self._advance(now_ms)

    def replica_error(self, replica: NodeId, *, with_leader_epoch: bool) -> Error:
        """Return the error for a replica that is not assigned here; with an epoch the peer can find out whose metadata is old."""
        if replica in self.followers:
            return Error.NONE
        return Error.UNKNOWN_LEADER_EPOCH if with_leader_epoch else Error.NOT_LEADER_OR_FOLLOWER

    def on_fetch(
        self,
        *,
        replica: NodeId,
        fetch_offset: int,
        log_start_offset: int,
        broker_epoch: BrokerEpoch,
        now_ms: int,
        contact: Contact | None = None,
    ) -> Sequence[Effect]:
        """Take the fetch position of an assigned replica; refuse fetches of its earlier incarnations.

        contact:  of the session that will repeat this position without naming it.
        source: SPEC 3.2.2 to 3.2.4, 3.6.1; KIP-903, "Proposed Changes".
        """
        follower = self.followers[replica]
        known = self.brokers.get(replica)
        if broker_epoch != NO_BROKER_EPOCH and known is not None and broker_epoch < known.epoch:
            # KIP-903: this fetch comes from before the replica's restart; its disk may have been lost since.
            return [Refuse(Error.NOT_LEADER_OR_FOLLOWER)]
        moved = follower.log_end_offset != fetch_offset
        follower.fetched(fetch_offset, self.log_end_offset, now_ms)
        follower.log_start_offset = log_start_offset
        follower.broker_epoch = broker_epoch
        follower.contact = contact
        effects = self._expand(replica, follower)
        if moved:
            effects.extend(self._advance(now_ms))
        return effects

    def on_forgotten(self, replica: NodeId, contact: Contact) -> None:
        """Take note that a session repeats the replica's position no more; another one of it may have begun since, and does."""
        follower = self.followers.get(replica)
        if follower is not None and follower.contact is contact:
            follower.repeat_position(self.log_end_offset)
            follower.contact = None

    def is_up_to_date(self, replica: NodeId) -> bool:
        """Return whether another fetch from the log's end could change nothing."""
        follower = self.followers.get(replica)
        return (
            follower is not None
            and follower.log_end_offset == self.log_end_offset
            and replica in self.state.isr
            and self.state.recovery is LeaderRecoveryState.RECOVERED
        )

    def on_brokers(self, now_ms: int) -> Sequence[Effect]:
        """Look again after brokers were fenced or unfenced: whoever is not eligible is waited for no more."""
        return self._advance(now_ms)

    def on_tick(self, now_ms: int) -> Sequence[Effect]:
        """Propose to drop all members that lag; one change in flight (SPEC 3.6.2)."""
        if self.state.recovery is LeaderRecoveryState.RECOVERING:
            return self.propose_recovered()
        effects: list[Effect] = list(self._advance(now_ms))
        if self.pending is not None:
            return effects
        remaining = tuple(member for member in self.state.isr if not self._lags(member, now_ms))
        if len(remaining) < len(self.state.isr):
            # A shrink leaves the maximal ISR as it is: until the controller agrees, the laggards are electable.
            effects.append(self._propose(remaining, self.state.recovery, maximal_isr=self.state.isr))
        return effects

    def propose_recovered(self) -> Sequence[Effect]:
        """Propose to the controller that recovery from an unclean election is done (KIP-704, SPEC 3.10.3)."""
        if self.pending is not None or self.state.recovery is LeaderRecoveryState.RECOVERED:
            return []
        return [self._propose(self.state.isr, LeaderRecoveryState.RECOVERED, maximal_isr=self.state.isr)]

    def on_alter_partition_answer(
        self, proposal: Proposal, answer: AlterPartitionAnswer, now_ms: int
    ) -> Sequence[Effect]:
        """Close the proposal in flight, or keep waiting, by the kind of answer (SPEC 3.6.5)."""
        if proposal is not self.pending:
            return []  # 3.6.6: metadata overtook it
        if answer.top_level or (
            answer.error is not Error.NONE and answer.error not in REVERTING and answer.error not in AWAITING_METADATA
        ):
            return [Propose(proposal, RETRY_AFTER_MS)]
        if answer.error in REVERTING:
            # KIP-903: back to the last ISR surely committed; a replica that died while joining would hold the high watermark back for ever (M26).
            self.pending = None
            self.maximal_isr = self.state.isr
            return self._advance(now_ms)
        if answer.error in AWAITING_METADATA:
            return []
        if answer.leader_epoch != self.state.leader_epoch or answer.partition_epoch < self.state.partition_epoch:
            return []
        committed = msgspec.structs.replace(
            self.state,
            isr=answer.isr,
            partition_epoch=answer.partition_epoch,
            recovery=self._answered_recovery(answer),
        )
        return self._commit_state(committed, now_ms)

    def on_metadata(self, state: PartitionState, now_ms: int) -> Sequence[Effect]:
        """Take over committed metadata of the same leader epoch; an older state is ignored (SPEC 3.1.2, 3.1.4)."""
        assert state.leader_epoch == self.state.leader_epoch
        assert state.leader == self.node_id
        if state.partition_epoch < self.state.partition_epoch:
            return []
        self._assign(state, now_ms)
        if state.partition_epoch == self.state.partition_epoch and self.pending is not None:
            # An AlterPartition answer was ahead of the log and the next proposal already rests on it: forgetting
            # that one now would let the high watermark pass a replica that the controller may be accepting (M08).
            self.state = state
            return []
        return self._commit_state(state, now_ms)

    def on_min_insync_replicas(self, min_insync_replicas: int, now_ms: int) -> Sequence[Effect]:
        """Take a changed topic setting."""
        self.min_insync_replicas = min_insync_replicas
        return self._advance(now_ms)

    def produce_outcome(self, last_offset: int) -> Error | None:
        """Return how a waiting acks=all append ended, or None while it has to wait (SPEC 3.7.3)."""
        if self.high_watermark <= last_offset:
            return None
        if len(self.maximal_isr) >= self.min_isr:
            return Error.NONE
        return Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def flush_outcome(self, last_offset: int) -> Error | None:
        """Return how a waiting acks=1 append ended: it waits for this leader's own disk, if for anything."""
        return Error.NONE if self.acknowledgeable_end_offset > last_offset else None

    def _answered_recovery(self, answer: AlterPartitionAnswer) -> LeaderRecoveryState:
        # KIP-704: the field may end our recovery, it never starts one (SPEC 3.10.5).
        if answer.recovery is LeaderRecoveryState.RECOVERED:
            return LeaderRecoveryState.RECOVERED
        return self.state.recovery

    def _assign(self, state: PartitionState, now_ms: int) -> None:
        """Keep the positions of replicas that stay, forget those that left, start the new ones unknown."""
        self.followers = {
            replica: self.followers.get(replica) or Follower(now_ms if replica in state.isr else NEVER_MS)
            for replica in self._others(state)
        }

    def _others(self, state: PartitionState) -> list[NodeId]:
        return [replica for replica in state.replicas if replica != self.node_id]

    def _commit_state(self, state: PartitionState, now_ms: int) -> Sequence[Effect]:
        self.state = state
        self.pending = None
        self.maximal_isr = state.isr
        # KAFKA-13091: an idle partition has no append or fetch that would raise the watermark after a shrink.
        return [CommitState(state), *self._advance(now_ms)]

    def _propose(
        self, isr: tuple[NodeId, ...], recovery: LeaderRecoveryState, *, maximal_isr: tuple[NodeId, ...]
    ) -> Propose:
        assert self.pending is None
        self.pending = Proposal(
            leader_epoch=self.state.leader_epoch,
            partition_epoch=self.state.partition_epoch,
            isr=tuple((member, self._epoch_of(member)) for member in isr),
            recovery=recovery,
        )
        self.maximal_isr = maximal_isr
        return Propose(self.pending)

    def _epoch_of(self, member: NodeId) -> BrokerEpoch:
        if member == self.node_id:
            return self.identity.broker_epoch
        follower = self.followers.get(member)
        if follower is None or follower.broker_epoch is None:
            return NO_BROKER_EPOCH
        return follower.broker_epoch

    def _expand(self, replica: NodeId, follower: Follower) -> list[Effect]:
        if (
            self.pending is not None
            or replica in self.state.isr
            or self.state.recovery is LeaderRecoveryState.RECOVERING
            or follower.log_end_offset < self.high_watermark
            # KAFKA-7128: below the epoch's start lie records acknowledged under the last leader that this replica
            # may lack, although our inherited watermark does not show them yet.
            or follower.log_end_offset < self.epoch_start_offset
            or not self._is_eligible(replica, follower)
        ):
            return []
        expanded = (*self.state.isr, replica)
        return [self._propose(expanded, self.state.recovery, maximal_isr=expanded)]

    def _is_eligible(self, replica: NodeId, follower: Follower) -> bool:
        """Return whether the controller would accept the replica in an ISR (KIP-841, KIP-903)."""
        known = self.brokers.get(replica)
        if known is None or known.fenced or known.shutting_down or follower.broker_epoch is None:
            return False
        return follower.broker_epoch in (NO_BROKER_EPOCH, known.epoch)

    def _lags(self, member: NodeId, now_ms: int) -> bool:
        follower = self.followers.get(member)
        return follower is not None and not follower.is_caught_up(self.log_end_offset, now_ms, self.lag_ms_max)

    def _advance(self, now_ms: int) -> list[Effect]:
        advanced = watermark.high_watermark(
            current=self.high_watermark,
            leader_log_end_offset=min(self.log_end_offset, self.acknowledgeable_end_offset),
            follower_log_end_offsets={replica: follower.log_end_offset for replica, follower in self.followers.items()},
            isr=self.state.isr,
            maximal_isr=self.maximal_isr,
            waiters=self._waiters(now_ms),
            min_isr=self.min_isr,
        )
        if advanced == self.high_watermark:
            return []
        self.high_watermark = advanced
        return [Advance(advanced)]

    def _waiters(self, now_ms: int) -> list[NodeId]:
        return [
            replica
            for replica, follower in self.followers.items()
            if replica not in self.maximal_isr
            and follower.is_caught_up(self.log_end_offset, now_ms, self.lag_ms_max)
            and self._is_eligible(replica, follower)
        ]
