"""One replica of one partition on this broker: its role, its log, and what it answers (SPEC 3.1, 3.2, 3.7, 3.9, 3.10).

A partition is leader (it has a `LeaderState`), follower, or idle while nobody leads. Metadata moves it between the
roles; requests are checked here in the order of the specification and answered from the log. It does no network,
keeps no waiting requests and knows no other partition: what follows from an event comes back as effects.

`high_watermark` has one owner at a time: the `LeaderState` while leading, the partition itself otherwise.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from replog.broker import isr as leader
from replog.broker.fetcher import Restart, Truncation, after_out_of_range, truncation_point
from replog.broker.identity import BrokerIdentity
from replog.broker.isr import (
    Advance,
    BrokerView,
    CommitState,
    Contact,
    Follower,
    LeaderState,
    PartitionState,
    Propose,
    Refuse,
)
from replog.broker.recovery_state import abort_markers
from replog.broker.verification import Guard, Verifications, is_transactional
from replog.errors import Error
from replog.log.batch import BatchHeader, CorruptBatch, has_valid_crc, header_at
from replog.log.log import Appended, Log
from replog.log.segment import AbortedTransaction
from replog.log.validation import Checked, Origin
from replog.ports import Buffer
from replog.types import NO_LEADER_EPOCH, NO_NODE, BrokerEpoch, LeaderRecoveryState, NodeId, TopicPartition

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6
READ_COMMITTED: Final = 1


class StepDown(msgspec.Struct, frozen=True):
    """Leadership or leader epoch changed: waiting produces and fetches fail with NOT_LEADER_OR_FOLLOWER."""


class Follow(msgspec.Struct, frozen=True):
    """Fetch from this leader, with the partition's leader epoch."""

    source: NodeId


class Unfollow(msgspec.Struct, frozen=True):
    """Stop fetching."""


class Lead(msgspec.Struct, frozen=True):
    """The broker leads now, in a new leader epoch."""


class Truncated(msgspec.Struct, frozen=True, kw_only=True):
    """The log was cut."""

    from_offset: int
    to_offset: int


Effect = leader.Effect | StepDown | Follow | Unfollow | Lead | Truncated


class FetchAnswer(msgspec.Struct, frozen=True):
    """A partition's part of a Fetch answer.

    diverging:  (epoch, end offset), excludes records.
    is_news:    there is something to say although no records came: a follower learns a raised high watermark
                in one round trip instead of after its full wait.
    is_up_to_date: this reader is at the end of what it may see: nothing changes for it before the partition moves.
    """

    error: Error
    records: bytes = b""
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging: tuple[int, int] | None = None
    aborted: list[AbortedTransaction] | None = None
    is_news: bool = False
    is_up_to_date: bool = False


class OffsetAnswer(NamedTuple):
    """A partition's part of a ListOffsets answer."""

    error: Error
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class EpochAnswer(NamedTuple):
    """A partition's part of an OffsetForLeaderEpoch answer."""

    error: Error
    leader_epoch: int = -1
    end_offset: int = -1


class Partition:
    """A replica hosted by this broker."""

    def __init__(
        self,
        *,
        name: TopicPartition,
        topic_id: UUID,
        node_id: NodeId,
        log: Log,
        high_watermark: int,
        brokers: Mapping[NodeId, BrokerView],
        lag_ms_max: int,
        refuses_while_recovering: bool,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.node_id = node_id
        self.log = log
        self.brokers = brokers
        self.lag_ms_max = lag_ms_max
        # SPEC D3: "off" mimics the released software, which serves while it recovers.
        self.refuses_while_recovering = refuses_while_recovering
        self.min_insync_replicas = 1
        self.verifies_transactions = False
        self.verifications = Verifications()
        self.leadership: LeaderState | None = None
        self.is_offline = False
        self.disk_failed: Callable[[OSError], None] | None = None  # whoever hosts takes the directory offline
        self._state: PartitionState | None = None
        self._committed_elsewhere = 0  # the last leader's high watermark: it may lie beyond our log's end
        self._high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)

    # --- what is -------------------------------------------------------------------------

    @property
    def state(self) -> PartitionState | None:
        """The latest committed state known, from metadata or from an AlterPartition answer."""
        return self.leadership.state if self.leadership is not None else self._state

    @property
    def leader_epoch(self) -> int:
        """The current leader epoch, -1 before any metadata."""
        return self._state.leader_epoch if self._state is not None else NO_LEADER_EPOCH

    @property
    def high_watermark(self) -> int:
        """First offset not known to be committed."""
        return self.leadership.high_watermark if self.leadership is not None else self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """First offset that a read_committed consumer may not see yet (SPEC 4.2.9)."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def is_recovering(self) -> bool:
        """Return whether requests are to be refused until the unclean election is dealt with (KIP-704)."""
        state = self.state
        return self.refuses_while_recovering and state is not None and state.recovery is LeaderRecoveryState.RECOVERING

    # --- metadata ------------------------------------------------------------------------

    def on_metadata(
        self, state: PartitionState, *, identity: BrokerIdentity, now_ms: int, wall_ms: int
    ) -> list[Effect]:
        """Take the role that committed metadata gives this broker (SPEC 3.1)."""
        known = self.state
        if known is not None and state.partition_epoch < known.partition_epoch:
            return []
        is_new_epoch = self._state is None or state.leader_epoch > self._state.leader_epoch
        if state.leader != self.node_id:
            return self._become_follower(state) if is_new_epoch else self._stay_follower(state)
        if is_new_epoch or self.leadership is None:
            try:
                return self._become_leader(state, identity=identity, now_ms=now_ms, wall_ms=wall_ms)
            except OSError as problem:
                self.go_offline(problem)
                return []
        self._state = state
        effects: list[Effect] = list(self.leadership.on_metadata(state, now_ms))
        effects.extend(self.leadership.propose_recovered())
        return effects

    def will_begin_to_lead(self, state: PartitionState) -> bool:
        """Return whether `on_metadata` of a state in which this broker leads notes a new leader epoch in the log, whole as it is."""
        known = self.state
        is_newer = known is None or (
            state.partition_epoch >= known.partition_epoch and state.leader_epoch > known.leader_epoch
        )
        return is_newer and self.log.missing_from is None and not self.is_offline

    def make_whole(self, leader: NodeId) -> None:
        """Have a log whose beginning is missing fetched again once somebody leads; who leads itself begins where it can."""
        try:
            if leader == self.node_id:
                self.log.go_on_without_start()
            elif leader != NO_NODE:
                self.log.begin_again()
                self._high_watermark = self.log.log_end_offset
        except OSError as problem:
            self.go_offline(problem)

    def on_min_insync_replicas(self, min_insync_replicas: int, now_ms: int) -> list[Effect]:
        """Take the topic's current minimum."""
        self.min_insync_replicas = min_insync_replicas
        if self.leadership is None:
            return []
        return list(self.leadership.on_min_insync_replicas(min_insync_replicas, now_ms))

    def resign(self) -> list[Effect]:
        """Leave all roles: the replica is deleted, moved away, or its disk failed."""
        self._give_up_leadership()
        return [Unfollow(), StepDown()]

    def _become_leader(
        self, state: PartitionState, *, identity: BrokerIdentity, now_ms: int, wall_ms: int
    ) -> list[Effect]:
        high_watermark = self.high_watermark
        self._state = state
        # KAFKA-7415: followers ask for the end of our epoch before we appended anything in it; it is durable first.
        self.log.begin_epoch(state.leader_epoch)
        epoch_start_offset = self.log.log_end_offset
        if state.recovery is LeaderRecoveryState.RECOVERING:
            self._abort_open_transactions(state.leader_epoch, wall_ms)
        self.leadership = LeaderState(
            state=state,
            identity=identity,
            brokers=self.brokers,
            min_insync_replicas=self.min_insync_replicas,
            log_end_offset=self.log.log_end_offset,
            high_watermark=high_watermark,
            epoch_start_offset=epoch_start_offset,
            lag_ms_max=self.lag_ms_max,
            now_ms=now_ms,
            acknowledgeable_end_offset=self.log.acknowledgeable_end_offset,
        )
        return [
            Unfollow(),
            StepDown(),
            Lead(),
            *self.leadership.propose_recovered(),
            *self.leadership.on_leadership(now_ms),
        ]

    def _abort_open_transactions(self, leader_epoch: int, wall_ms: int) -> None:
        """Complete what the lost leader left open, before anyone may read (KIP-704, SPEC 3.10.2)."""
        transactions = self.log.producers.open_transactions
        for marker in abort_markers(transactions, leader_epoch=leader_epoch, timestamp_ms=wall_ms):
            appended = self.log.append_as_leader(
                marker, leader_epoch=leader_epoch, now_ms=wall_ms, origin=Origin.COORDINATOR
            )
            assert isinstance(appended, Appended), f"{self.name}: {appended}"

    def _become_follower(self, state: PartitionState) -> list[Effect]:
        self._give_up_leadership()
        self._state = state
        # SPEC 3.1.5: every new leader epoch restarts the fetcher, also under the same leader (M23).
        return [StepDown(), Unfollow() if state.leader == NO_NODE else Follow(state.leader)]

    def _stay_follower(self, state: PartitionState) -> list[Effect]:
        # KIP-704: same leader epoch, but the recovery state may have changed (M49).
        assert self.leadership is None
        self._state = state
        return []

    def _give_up_leadership(self) -> None:
        self.verifications.clear()
        if self.leadership is not None:
            self._high_watermark = self.leadership.high_watermark
            self.leadership = None

    def go_offline(self, problem: OSError) -> Error:
        """Serve nothing more: what this process still holds of the log may not be what its disk holds.

        returns:  what to answer; without a host that could act, the error itself is raised.
        """
        if self.disk_failed is None:
            raise problem
        if not self.is_offline:
            self.is_offline = True
            self.disk_failed(problem)
        return Error.KAFKA_STORAGE_ERROR

    # --- checks --------------------------------------------------------------------------

    def epoch_error(self, current_leader_epoch: int) -> Error:
        """Compare the peer's idea of the leader epoch with ours; -1 stands for none."""
        leader_epoch = self.leader_epoch
        if current_leader_epoch in (NO_LEADER_EPOCH, leader_epoch):
            return Error.NONE
        if current_leader_epoch < leader_epoch:
            return Error.FENCED_LEADER_EPOCH
        return Error.UNKNOWN_LEADER_EPOCH

    def leader_error(self, current_leader_epoch: int) -> Error:
        """Return whether this replica may answer for the partition (SPEC 3.2, first three tests)."""
        if self.is_offline:
            return Error.KAFKA_STORAGE_ERROR
        error = self.epoch_error(current_leader_epoch)
        if error is not Error.NONE:
            return error
        if self.leadership is None or self.is_recovering:
            return Error.NOT_LEADER_OR_FOLLOWER
        return Error.NONE

    def reader_error(self, current_leader_epoch: int, *, leader_only: bool) -> Error:
        """Return whether this replica may serve a consumer; followers may, within KIP-392 (SPEC 3.9.5)."""
        if leader_only or self.leadership is not None:
            return self.leader_error(current_leader_epoch)
        if self.is_offline:
            return Error.KAFKA_STORAGE_ERROR
        error = self.epoch_error(current_leader_epoch)
        if error is Error.NONE and (self.is_recovering or self._state is None):
            return Error.NOT_LEADER_OR_FOLLOWER
        return error

    # --- produce -------------------------------------------------------------------------

    def append_error(self, acks: int) -> Error:
        """Return whether a produce may be appended now; nothing is written otherwise (SPEC 3.7.1)."""
        if acks not in (-1, 0, 1):
            return Error.INVALID_REQUIRED_ACKS
        error = self.leader_error(NO_LEADER_EPOCH)
        if error is not Error.NONE:
            return error
        assert self.leadership is not None
        if acks == -1 and not self.leadership.has_enough_replicas:
            return Error.NOT_ENOUGH_REPLICAS
        return Error.NONE

    def append(
        self,
        records: Buffer,
        *,
        acks: int,
        now_ms: int,
        wall_ms: int,
        origin: Origin = Origin.CLIENT,
        guard: Guard | None = None,
        checked: Checked | None = None,
    ) -> tuple[Appended | Error, list[Effect]]:
        """Append a producer's batches; a duplicate answers with its first offsets and appends nothing (SPEC 4.1.2).

        guard:    from `unverified`, when the coordinator has said since that the transaction is open.
        checked:  what the log has said of these batches already.
        """
        error = self.append_error(acks)
        if error is not Error.NONE:
            return error, []
        assert self.leadership is not None
        header = self._first_of_transaction(records, origin)
        if header is not None and not self.verifications.holds(header.producer_id, guard):
            return Error.INVALID_TXN_STATE, []
        if header is not None and self._is_ahead(header):
            return Error.OUT_OF_ORDER_SEQUENCE_NUMBER, []
        try:
            appended = self.log.append_as_leader(
                records, leader_epoch=self.leader_epoch, now_ms=wall_ms, origin=origin, checked=checked
            )
        except OSError as problem:
            return self.go_offline(problem), []
        if isinstance(appended, Error):
            return appended, []
        self._end_verification(records, origin)
        log = self.log
        return appended, list(self.leadership.on_append(log.log_end_offset, now_ms, log.acknowledgeable_end_offset))

    def on_flushed(self, now_ms: int) -> list[Effect]:
        """Look again at what is durable, or has to be: records wait for the leader's own disk as for a follower."""
        return (
            []
            if self.leadership is None
            else list(self.leadership.on_flush(self.log.acknowledgeable_end_offset, now_ms))
        )

    def unverified(
        self, records: Buffer, *, now_ms: int, is_of_protocol_2: bool = False
    ) -> tuple[BatchHeader, Guard] | None:
        """Return the batch that would begin a transaction here, if its coordinator has to be asked first (SPEC 4.2.8).

        The guard must come before the question; `append` takes it with the answer.
        """
        header = self._first_of_transaction(records, Origin.CLIENT, adds=is_of_protocol_2)
        if header is None:
            return None
        return header, self.verifications.begin_with(header, now_ms, is_of_protocol_2=is_of_protocol_2)

    def expire_producers(self, *, now_ms: int, wall_ms: int) -> None:
        """Forget producers that were silent for too long (`producer.id.expiration.ms`)."""
        self.log.expire_producers(wall_ms)
        self.verifications.expire(now_ms, self.log.settings.producer_expiration_ms)

    def _is_ahead(self, first: BatchHeader) -> bool:
        """Return whether a producer of which nothing is known would begin a transaction with a batch that is not its first (SPEC 4.1.4)."""
        is_unknown = self.log.producers.get(first.producer_id) is None
        return is_unknown and not self.verifications.may_be_first(first)

    def needs_verification(self, producer_id: int, producer_epoch: int, *, adds: bool = False) -> bool:
        """Return whether the coordinator has to be asked first: a write of this producer would begin a transaction here.

        adds:  asking puts the partition into the transaction (protocol version 2), so it is not left out by any setting.
        """
        producer = self.log.producers.get(producer_id)
        is_known = producer is not None and producer.epoch == producer_epoch
        is_wanted = self.verifies_transactions or adds
        return is_wanted and not (is_known and self.log.producers.has_open_transaction(producer_id))

    def _first_of_transaction(self, records: Buffer, origin: Origin, *, adds: bool = False) -> BatchHeader | None:
        is_wanted = self.verifies_transactions or adds
        if not is_wanted or origin is not Origin.CLIENT or not is_transactional(records):
            return None
        try:
            header = header_at(records, 0)
        except CorruptBatch:
            return None  # the log will say so
        if not self.needs_verification(header.producer_id, header.producer_epoch, adds=adds):
            return None
        return header if has_valid_crc(memoryview(records), header) else None  # likewise

    def _end_verification(self, records: Buffer, origin: Origin) -> None:
        """Void the guard when a transaction begins or ends: both kinds of batches are transactional."""
        if origin is not Origin.QUORUM and is_transactional(records):
            self.verifications.end(header_at(records, 0).producer_id)

    # --- fetch ---------------------------------------------------------------------------

    def fetch_as_replica(  # noqa: PLR0913 - the fields of the request
        self,
        *,
        replica: NodeId,
        broker_epoch: BrokerEpoch,
        current_leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        log_start_offset: int,
        known_high_watermark: int,
        max_bytes: int,
        at_least_one: bool,
        takes_position: bool,
        now_ms: int,
        contact: Contact | None = None,
    ) -> tuple[FetchAnswer, list[Effect]]:
        """Answer a replica's fetch, in the order of SPEC 3.2.

        takes_position:  false for another look at a fetch that waits: the position was taken when it came.
        """
        error = self.leader_error(current_leader_epoch)
        if error is not Error.NONE:
            return FetchAnswer(error), []
        assert self.leadership is not None
        with_leader_epoch = current_leader_epoch != NO_LEADER_EPOCH
        error = self.leadership.replica_error(replica, with_leader_epoch=with_leader_epoch)
        if error is not Error.NONE:
            return FetchAnswer(error), []
        error, diverging = self._position_check(fetch_offset, last_fetched_epoch)
        if error is not Error.NONE or diverging is not None:
            return self._answer(error, diverging=diverging), []
        effects: list[Effect] = []
        if takes_position:
            effects.extend(
                self.leadership.on_fetch(
                    replica=replica,
                    fetch_offset=fetch_offset,
                    log_start_offset=log_start_offset,
                    broker_epoch=broker_epoch,
                    now_ms=now_ms,
                    contact=contact,
                )
            )
            if effects and isinstance(effects[0], Refuse):
                return FetchAnswer(effects[0].error), []
        error, records = self._read(fetch_offset, max_bytes, self.log.log_end_offset, at_least_one=at_least_one)
        if error is not Error.NONE:
            return FetchAnswer(error), effects
        is_news = known_high_watermark < self.high_watermark
        is_up_to_date = fetch_offset == self.log.log_end_offset and self.leadership.is_up_to_date(replica)
        return self._answer(Error.NONE, records=records, is_news=is_news, is_up_to_date=is_up_to_date), effects

    def on_forgotten(self, replica: NodeId, contact: Contact) -> None:
        """Take note that a replica's session repeats its position here no more."""
        if self.leadership is not None:
            self.leadership.on_forgotten(replica, contact)

    def readable_followers(self, *, current_leader_epoch: int, fetch_offset: int) -> list[tuple[NodeId, Follower]]:
        """Return the followers in sync that hold what a consumer asks for; none unless we are to answer (KIP-392)."""
        if self.leadership is None or self.leader_error(current_leader_epoch) is not Error.NONE:
            return []
        return [
            (replica, follower)
            for replica, follower in self.leadership.followers.items()
            if replica in self.leadership.isr
            and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
            and (known := self.brokers.get(replica)) is not None
            and not known.fenced
        ]

    def fetch_as_consumer(
        self,
        *,
        current_leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        isolation: int,
        leader_only: bool,
        max_bytes: int,
        at_least_one: bool,
    ) -> FetchAnswer:
        """Answer a consumer's fetch: nothing at or above the high watermark or last stable offset (SPEC 3.9.1)."""
        error = self.reader_error(current_leader_epoch, leader_only=leader_only)
        if error is not Error.NONE:
            return FetchAnswer(error)
        if self.leadership is None and self.log.log_end_offset < fetch_offset <= self._committed_elsewhere:
            # KIP-392: committed, but not here yet. Out of range it is not, and nobody has to start over.
            return self._answer(Error.OFFSET_NOT_AVAILABLE)
        error, diverging = self._position_check(fetch_offset, last_fetched_epoch)
        if error is not Error.NONE or diverging is not None:
            return self._answer(error, diverging=diverging)
        limit = self.last_stable_offset if isolation == READ_COMMITTED else self.high_watermark
        if fetch_offset >= limit:
            return self._answer(Error.NONE, is_up_to_date=True)
        # KAFKA-9807, KAFKA-9835: the limit is taken once; no record beyond it leaves, even within a batch (M35).
        error, records = self._read(fetch_offset, max_bytes, limit, at_least_one=at_least_one)
        if error is not Error.NONE:
            return FetchAnswer(error)
        aborted = self._aborted_within(fetch_offset, records, limit) if isolation == READ_COMMITTED else None
        return self._answer(Error.NONE, records=records, aborted=aborted)

    def _aborted_within(self, fetch_offset: int, records: bytes, limit: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that a reader of these records has to know of; those behind come with their records.

        Who is a million aborted transactions behind would be sent all of them with each answer.
        """
        end_offset = min(limit, self.log.end_of_read(fetch_offset, len(records)))
        return self.log.aborted_transactions(fetch_offset, end_offset)

    def _read(self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool) -> tuple[Error, bytes]:
        try:
            return Error.NONE, self.log.read(
                offset, max_bytes=max_bytes, end_offset=end_offset, at_least_one=at_least_one
            )
        except OSError as problem:
            return self.go_offline(problem), b""
        except CorruptBatch:
            return Error.CORRUPT_MESSAGE, b""  # this batch's bytes went bad; others may be fine

    def _position_check(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[Error, tuple[int, int] | None]:
        """Return an error, or where the peer's log parts from ours (SPEC 3.2.1)."""
        log = self.log
        if last_fetched_epoch != NO_LEADER_EPOCH:
            epoch, end_offset = log.epochs.end_offset_for(last_fetched_epoch, log.log_end_offset)
            if epoch == NO_LEADER_EPOCH or fetch_offset < log.log_start_offset:
                return Error.OFFSET_OUT_OF_RANGE, None
            if epoch < last_fetched_epoch or end_offset < fetch_offset:
                return Error.NONE, (epoch, end_offset)
        if not log.log_start_offset <= fetch_offset <= log.log_end_offset:
            return Error.OFFSET_OUT_OF_RANGE, None
        return Error.NONE, None

    def _answer(
        self,
        error: Error,
        *,
        records: bytes = b"",
        diverging: tuple[int, int] | None = None,
        aborted: list[AbortedTransaction] | None = None,
        is_news: bool = False,
        is_up_to_date: bool = False,
    ) -> FetchAnswer:
        high_watermark = self.high_watermark
        return FetchAnswer(
            error=error,
            records=records,
            high_watermark=high_watermark,
            last_stable_offset=self.log.last_stable_offset(high_watermark),
            log_start_offset=self.log.log_start_offset,
            diverging=diverging,
            aborted=aborted,
            is_news=is_news,
            is_up_to_date=is_up_to_date,
        )

    def bytes_kept_back(self, offset: int, end_offset: int) -> int | None:
        """Return how much there is to read from `offset`; None when a read ends with a segment before (as in DelayedFetch of Kafka)."""
        if self.log.lies_segments_behind(offset, end_offset):
            return None
        try:
            return self.log.bytes_up_to(offset, end_offset)
        except (OSError, CorruptBatch):
            return None  # the next read will say so

    # --- offsets -------------------------------------------------------------------------

    def list_offset(
        self, *, current_leader_epoch: int, timestamp: int, isolation: int, is_replica: bool, leader_only: bool
    ) -> OffsetAnswer:
        """Answer ListOffsets; a lagging high watermark of a new leader is not shown (KIP-207, SPEC 3.9.2)."""
        error = self.reader_error(current_leader_epoch, leader_only=leader_only)
        if error is not Error.NONE:
            return OffsetAnswer(error)
        log = self.log
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            return OffsetAnswer(Error.NONE, -1, log.log_start_offset, log.epochs.epoch_for_offset(log.log_start_offset))
        if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
            return OffsetAnswer(Error.NONE)  # KIP-1005, KIP-1023: there is no other tier
        # KIP-207: below our epoch's start lies what the last leader may have shown as committed already (M34).
        leadership = self.leadership
        lags = not is_replica and leadership is not None and leadership.epoch_start_offset > self.high_watermark
        end = self._visible_end(isolation, is_replica=is_replica)
        if timestamp == LATEST_TIMESTAMP:
            if lags:
                return OffsetAnswer(Error.OFFSET_NOT_AVAILABLE)
            return OffsetAnswer(Error.NONE, -1, end, self.leader_epoch)
        try:
            found = log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        except OSError as problem:
            return OffsetAnswer(self.go_offline(problem))
        except CorruptBatch:
            return OffsetAnswer(Error.CORRUPT_MESSAGE)
        if found is not None and found.offset < end:
            return OffsetAnswer(Error.NONE, found.timestamp_ms, found.offset, found.leader_epoch)
        return OffsetAnswer(Error.OFFSET_NOT_AVAILABLE if lags else Error.NONE)

    def end_of_epoch(self, *, current_leader_epoch: int, leader_epoch: int) -> EpochAnswer:
        """Answer OffsetForLeaderEpoch (SPEC 3.9.3)."""
        error = self.leader_error(current_leader_epoch)
        if error is not Error.NONE:
            return EpochAnswer(error)
        return EpochAnswer(Error.NONE, *self.log.epochs.end_offset_for(leader_epoch, self.log.log_end_offset))

    def delete_records(self, before_offset: int) -> Error:
        """Raise the log start, never beyond the high watermark (M40); -1 means up to it (SPEC 3.9.6)."""
        error = self.leader_error(NO_LEADER_EPOCH)
        if error is not Error.NONE:
            return error
        if self.log.settings.compacts and not self.log.settings.deletes:
            return Error.POLICY_VIOLATION  # as Kafka: who compacts only wants the last record of each key
        target = self.high_watermark if before_offset == -1 else before_offset
        if not 0 <= target <= self.high_watermark:
            return Error.OFFSET_OUT_OF_RANGE
        if target > self.log.log_start_offset:
            try:
                self.log.move_log_start(target)
            except OSError as problem:
                return self.go_offline(problem)
        return Error.NONE

    def low_watermark(self) -> int:
        """Return the lowest log start offset of all live replicas, as known to the leader; -1 unknown."""
        assert self.leadership is not None
        starts = [self.log.log_start_offset]
        for replica, follower in self.leadership.followers.items():
            known = self.brokers.get(replica)
            if known is not None and not known.fenced:
                starts.append(follower.log_start_offset)
        return min(starts)

    def _visible_end(self, isolation: int, *, is_replica: bool) -> int:
        if is_replica:
            return self.log.log_end_offset
        return self.last_stable_offset if isolation == READ_COMMITTED else self.high_watermark

    # --- following -----------------------------------------------------------------------

    def on_divergence(self, leader_epoch: int, leader_end_offset: int, *, leader_log_start_offset: int) -> list[Effect]:
        """Cut to where the leader says that our histories part (SPEC 3.4.1).

        Where the leader has deleted all of that epoch it can only name its first offset behind it: what we hold below may be another
        history. It goes, and with it what its producers are remembered by (decision 0011).
        """
        assert self.leadership is None
        if 0 < leader_end_offset <= leader_log_start_offset:
            return self._cut(Restart(offset=leader_log_start_offset))
        point = truncation_point(
            self.log.epochs,
            log_end_offset=self.log.log_end_offset,
            high_watermark=self._high_watermark,
            leader_epoch=leader_epoch,
            leader_end_offset=leader_end_offset,
        )
        # The leader names an epoch before all of ours: nothing that we show is of its history.
        is_all_ours = point.offset == self.log.log_start_offset and leader_epoch < self.log.epochs.earliest
        is_before_start = point.offset < self.log.log_start_offset or is_all_ours
        if point.done and is_before_start and leader_end_offset >= leader_log_start_offset:
            # The mirror of it: what the leader still has of the common history we have deleted, and what lies on our disk before
            # our log start cannot be compared. It would come to light again below what the leader sends. Where we show no record at all
            # none is of another history: our end stays, for what is committed before it may be in nobody's log but the leader's.
            shows_nothing = point.offset == self.log.log_start_offset == self.log.log_end_offset
            return self._cut(Restart(offset=point.offset if shows_nothing else leader_log_start_offset))
        return self._cut(point)

    def on_leader_range(self, *, log_start_offset: int, log_end_offset: int) -> list[Effect]:
        """Come back into the leader's range after OFFSET_OUT_OF_RANGE (SPEC 3.3)."""
        assert self.leadership is None
        step = after_out_of_range(
            log_end_offset=self.log.log_end_offset,
            leader_log_start_offset=log_start_offset,
            leader_log_end_offset=log_end_offset,
        )
        return [] if step is None else self._cut(step)

    def on_fetched(self, records: Buffer, *, high_watermark: int, log_start_offset: int, wall_ms: int) -> list[Effect]:
        """Append what the leader sent, then take its high watermark and log start (SPEC 3.2.6)."""
        assert self.leadership is None
        try:
            if log_start_offset == self.log.log_end_offset:
                # The leader deleted whatever we hold. Its first batch may begin before: it is taken into an empty log only.
                self.log.move_log_start(log_start_offset)
            if len(records):
                self.log.append_as_follower(records, now_ms=wall_ms, leader_epoch=self.leader_epoch)
            if log_start_offset > self.log.log_start_offset:
                self.log.move_log_start(min(log_start_offset, self.log.log_end_offset))
        except OSError as problem:
            self.go_offline(problem)
            return []
        before = self._high_watermark
        self._committed_elsewhere = high_watermark
        self._high_watermark = max(min(high_watermark, self.log.log_end_offset), self.log.log_start_offset)
        return [Advance(self._high_watermark)] if self._high_watermark != before else []

    def _cut(self, step: Truncation | Restart) -> list[Effect]:
        try:
            return self._cut_log(step)
        except OSError as problem:
            self.go_offline(problem)
            return []

    def _cut_log(self, step: Truncation | Restart) -> list[Effect]:
        log = self.log
        from_offset = log.log_end_offset
        if isinstance(step, Restart):
            log.restart_at(step.offset)
            self._high_watermark = step.offset
            return [Truncated(from_offset=from_offset, to_offset=step.offset)]
        # KAFKA-10706: an epoch entry can stand at the log end without a record; it has to go as well (M31).
        log.truncate_to(step.offset)
        self._high_watermark = max(min(self._high_watermark, log.log_end_offset), log.log_start_offset)
        if log.log_end_offset == from_offset:
            return []
        return [Truncated(from_offset=from_offset, to_offset=log.log_end_offset)]


__all__ = [
    "Advance",
    "CommitState",
    "Effect",
    "EpochAnswer",
    "FetchAnswer",
    "Follow",
    "Lead",
    "OffsetAnswer",
    "Partition",
    "Propose",
    "Refuse",
    "StepDown",
    "Truncated",
    "Unfollow",
]
