"""The coordinator of all transactional ids of one `__transaction_state` partition (SPEC 4.2).

Every step is a record first: while one is on its way to being committed the id takes no other step
(CONCURRENT_TRANSACTIONS). Only when the decision is committed do end markers go out, and they go out again after a
fail-over, because a loaded decision looks the same as one just made (M78). The producer is answered when the decision is
committed, not when the markers are written: until they are its next transaction has to wait.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from replog.config.transactions import TransactionsConfig
from replog.coordinators.end_transaction import end, end_with_bump, is_retry
from replog.coordinators.events import (
    AnyRequest,
    Effect,
    MarkersWritten,
    NotWritten,
    Now,
    Reply,
    Request,
    SendMarkers,
    Token,
    Write,
    Written,
    asks,
)
from replog.coordinators.timers import Timers
from replog.coordinators.transaction import (
    COMPLETE,
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    PROTOCOL_1,
    PROTOCOL_2,
    State,
    Transaction,
    decode,
    transaction_entry,
    transaction_tombstone,
)
from replog.errors import Error
from replog.ports import Buffer
from replog.types import TopicPartition
from replog.wire.messages import add_partitions_to_txn as apt
from replog.wire.messages.describe_transactions import TopicData
from replog.wire.messages.describe_transactions import TransactionState as Described
from replog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from replog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from replog.wire.messages.list_transactions import TransactionState as Listed

FIRST_INIT_WITH_FENCED: Final = 4  # versions that know PRODUCER_FENCED
FIRST_END_WITH_FENCED: Final = 2
FIRST_END_WITH_BUMP: Final = 5  # protocol version 2
FIRST_ADD_BY_BROKERS: Final = 4
COMPLETION_RETRY_MS: Final = 500
_TRANSACTIONS: Final = TransactionsConfig()

Timer = tuple[str, str]  # kind (scan, complete), transactional id
SCAN: Final[Timer] = ("scan", "")


class TransactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What of the broker's configuration concerns transactions."""

    timeout_ms_max: int = _TRANSACTIONS.timeout_ms_max
    expiration_ms: int = _TRANSACTIONS.id_expiration_ms
    scan_interval_ms: int = _TRANSACTIONS.abort_scan_interval_ms

    @classmethod
    def of(cls, config: TransactionsConfig) -> "TransactionSettings":
        """Return what a broker's configuration says of them."""
        return cls(
            timeout_ms_max=config.timeout_ms_max,
            expiration_ms=config.id_expiration_ms,
            scan_interval_ms=config.abort_scan_interval_ms,
        )


class TransactionStored(msgspec.Struct, frozen=True):
    """Ticket: the id's next state; the answer is for whoever asked for it."""

    transactional_id: str
    token: Token | None
    answer: msgspec.Struct | None


class TransactionForgotten(msgspec.Struct, frozen=True):
    """Ticket: the id's tombstone."""

    transactional_id: str


Ticket = TransactionStored | TransactionForgotten


class Slot:
    """A transactional id: what is committed of it, and the step that is on its way to the log."""

    __slots__ = ("deadline_ms", "known", "next")

    def __init__(self, known: Transaction | None) -> None:
        self.known = known
        self.next: Transaction | None = None
        self.deadline_ms: int | None = None  # monotonic; of an ongoing transaction


class TransactionCoordinator:
    """Transactional ids and their transactions."""

    def __init__(self, settings: TransactionSettings, new_producer_id: Callable[[], int | None]) -> None:
        """Coordinate; `new_producer_id` answers None while the controller has not given us any."""
        self.settings = settings
        self.new_producer_id = new_producer_id
        self.slots: dict[str, Slot] = {}
        self.timers: Timers[Timer] = Timers()

    @property
    def next_ms(self) -> int | None:
        """When `on_tick` is worth calling next."""
        return self.timers.next_ms

    # --- loading -----------------------------------------------------------------------------

    def replay(self, key: Buffer, value: Buffer | None, log_offset: int, producer_id: int | None) -> None:
        """Take over a record of the log."""
        assert producer_id is None, f"offset {log_offset} is part of a transaction"
        record = decode(key, value)
        if record is None:
            return
        transactional_id, known = record
        if known is None:
            self.slots.pop(transactional_id, None)
        else:
            self.slots[transactional_id] = Slot(known)

    def on_marker(self, producer_id: int, *, committed: bool) -> None:
        """Never: this topic is in nobody's transaction."""

    def on_topics_deleted(self, names: Mapping[str, None]) -> list[Effect]:
        """Nothing: a marker for a topic that is gone is not sent (`MarkerSender`)."""
        return []

    def on_loaded(self, now: Now) -> list[Effect]:
        """Finish what was decided; watch what is ongoing."""
        self.timers.set(SCAN, now.now_ms + self.settings.scan_interval_ms)
        effects: list[Effect] = []
        for slot in self.slots.values():
            assert slot.known is not None
            self._watch(slot, now)
            if slot.known.state in PREPARED:
                effects += self._finish(slot.known, now)
        return effects

    # --- events ------------------------------------------------------------------------------

    def handle(self, request: AnyRequest, now: Now) -> list[Effect]:
        """Answer a request that concerns one transactional id."""
        if asks(request, InitProducerIdRequest):
            return self._init(request, now)
        if asks(request, apt.AddPartitionsToTxnTransaction):
            return self._add_partitions(request, now)
        if asks(request, EndTxnRequest):
            return self._end(request, now)
        raise AssertionError(f"{type(request.body).__name__} is not for a transaction coordinator")

    def on_tick(self, now: Now) -> list[Effect]:
        """Act on what is due."""
        effects: list[Effect] = []
        for kind, transactional_id in self.timers.due(now.now_ms):
            if kind == SCAN[0]:
                effects += self._scan(now)
                self.timers.set(SCAN, now.now_ms + self.settings.scan_interval_ms)
            else:
                effects += self._complete(transactional_id, now)
        return effects

    def on_written(self, written: Written, now: Now) -> list[Effect]:
        """Take the step that is committed now."""
        ticket: Ticket = written.ticket  # type: ignore[assignment]  # we made it
        match ticket:
            case TransactionForgotten():
                self.slots.pop(ticket.transactional_id, None)
                return []
            case TransactionStored():
                slot = self.slots[ticket.transactional_id]
                assert slot.next is not None
                slot.known, slot.next = slot.next, None
                self._watch(slot, now)
                effects: list[Effect] = []
                if ticket.token is not None and ticket.answer is not None:
                    effects.append(Reply(ticket.token, ticket.answer))
                return effects + (self._finish(slot.known, now) if slot.known.state in PREPARED else [])
            case _:
                assert_never(ticket)

    def on_not_written(self, refused: NotWritten, now: Now) -> list[Effect]:
        """Stay where we are."""
        ticket: Ticket = refused.ticket  # type: ignore[assignment]  # we made it
        slot = self.slots[ticket.transactional_id]
        slot.next = None
        if isinstance(ticket, TransactionForgotten):
            return []
        if slot.known is None:
            del self.slots[ticket.transactional_id]
        elif slot.known.state in PREPARED:
            self.timers.set(("complete", ticket.transactional_id), now.now_ms + COMPLETION_RETRY_MS)
        if ticket.token is None or ticket.answer is None:
            return []
        return [Reply(ticket.token, _refused(ticket.answer, CLIENT_ERRORS.get(refused.error, refused.error)))]

    def on_markers_written(self, done: MarkersWritten, now: Now) -> list[Effect]:
        """Close the transaction whose markers are all committed."""
        slot = self.slots.get(done.transactional_id)
        known = slot.known if slot is not None else None
        if known is None or (known.producer_id, known.producer_epoch) != (done.producer_id, done.producer_epoch):
            return []
        return self._complete(done.transactional_id, now)

    # --- InitProducerId ----------------------------------------------------------------------

    def _init(self, request: Request[InitProducerIdRequest], now: Now) -> list[Effect]:
        body = request.body
        outcome = self._initialized(body, now)
        if isinstance(outcome, Error):
            return [Reply(request.token, InitProducerIdResponse(error_code=_init_error(outcome, request.version)))]
        if outcome.state is State.PREPARE_ABORT:
            # The earlier producer's transaction has to end first; the client retries.
            answer = InitProducerIdResponse(error_code=Error.CONCURRENT_TRANSACTIONS)
        else:
            answer = InitProducerIdResponse(producer_id=outcome.producer_id, producer_epoch=outcome.producer_epoch)
        return self._store(outcome, request.token, answer)

    def _initialized(self, body: InitProducerIdRequest, now: Now) -> Transaction | Error:
        if not body.transactional_id or names_half_a_producer(body):
            return Error.INVALID_REQUEST
        if body.enable2_pc or body.keep_prepared_txn:
            return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED  # KIP-939 is not for everybody, here for nobody
        if not 0 < body.transaction_timeout_ms <= self.settings.timeout_ms_max:
            return Error.INVALID_TRANSACTION_TIMEOUT
        slot = self.slots.get(body.transactional_id)
        if slot is None:
            return self._new(body, now)
        if slot.next is not None or slot.known is None:
            return Error.CONCURRENT_TRANSACTIONS
        known = slot.known
        names_producer = body.producer_id != NO_PRODUCER_ID
        if names_producer and _is_early(known, body.producer_id, body.producer_epoch):
            return Error.CONCURRENT_TRANSACTIONS
        if names_producer and not _may_recover(known, body.producer_id, body.producer_epoch):
            return Error.PRODUCER_FENCED
        if known.state in PREPARED:
            return Error.CONCURRENT_TRANSACTIONS
        if known.state is State.ONGOING:
            if names_producer and body.producer_epoch != known.producer_epoch:
                return Error.PRODUCER_FENCED
            return known.fenced(now.wall_ms).prepared(now.wall_ms, committed=False)
        return self._next_epoch(known, body, now)

    def _new(self, body: InitProducerIdRequest, now: Now) -> Transaction | Error:
        producer_id = self.new_producer_id()
        if producer_id is None:
            return Error.COORDINATOR_LOAD_IN_PROGRESS
        assert body.transactional_id is not None
        return Transaction(
            transactional_id=body.transactional_id,
            producer_id=producer_id,
            producer_epoch=0,
            timeout_ms=body.transaction_timeout_ms,
            state=State.EMPTY,
            last_update_ms=now.wall_ms,
        )

    def _next_epoch(self, known: Transaction, body: InitProducerIdRequest, now: Now) -> Transaction | Error:
        """Return the id in an epoch of its own: whoever had it before is fenced (SPEC 4.2.5)."""
        timeout_ms = body.transaction_timeout_ms
        names_epoch = body.producer_epoch != NO_PRODUCER_EPOCH
        if known.is_epoch_exhausted and (not names_epoch or body.producer_epoch == known.producer_epoch):
            producer_id = self.new_producer_id()
            if producer_id is None:
                return Error.COORDINATOR_LOAD_IN_PROGRESS
            return known.rotated(producer_id, timeout_ms, now.wall_ms, keeps_epoch=names_epoch)
        if not names_epoch:
            return known.initialized(known.producer_epoch + 1, NO_PRODUCER_EPOCH, timeout_ms, now.wall_ms)
        if body.producer_epoch == known.producer_epoch:
            return known.initialized(known.producer_epoch + 1, known.producer_epoch, timeout_ms, now.wall_ms)
        if body.producer_epoch == known.last_producer_epoch:  # the answer to the first try was lost
            return known.initialized(known.producer_epoch, known.last_producer_epoch, timeout_ms, now.wall_ms)
        return Error.PRODUCER_FENCED

    # --- AddPartitionsToTxn ------------------------------------------------------------------

    def _add_partitions(self, request: Request[apt.AddPartitionsToTxnTransaction], now: Now) -> list[Effect]:
        body = request.body
        asked = tuple(TopicPartition(topic.name, index) for topic in body.topics for index in topic.partitions)
        known = self._of_producer(body.transactional_id, body.producer_id, body.producer_epoch)
        if not isinstance(known, Error) and known.state in PREPARED:
            known = Error.CONCURRENT_TRANSACTIONS
        if isinstance(known, Error):
            return [Reply(request.token, added(body, known))]
        has = dict.fromkeys(known.partitions) if known.state is State.ONGOING else {}
        if body.verify_only:
            missing = {partition: None for partition in asked if partition not in has}
            return [Reply(request.token, added(body, Error.NONE, missing))]
        if all(partition in has for partition in asked):
            return [Reply(request.token, added(body, Error.NONE))]
        protocol = PROTOCOL_2 if request.version >= FIRST_ADD_BY_BROKERS else PROTOCOL_1
        return self._store(known.extended(asked, protocol, now.wall_ms), request.token, added(body, Error.NONE))

    def _of_producer(self, transactional_id: str, producer_id: int, producer_epoch: int) -> Transaction | Error:
        """Return what is known of an id if this producer has it and no step is under way."""
        if not transactional_id:
            return Error.INVALID_REQUEST
        slot = self.slots.get(transactional_id)
        if slot is not None and slot.known is not None and _is_early(slot.known, producer_id, producer_epoch):
            return Error.CONCURRENT_TRANSACTIONS
        if slot is None or slot.known is None or slot.known.producer_id != producer_id:
            return Error.INVALID_PRODUCER_ID_MAPPING
        if slot.known.producer_epoch != producer_epoch or producer_epoch == EPOCH_MAX:
            return Error.PRODUCER_FENCED  # the last epoch is for fencing: nobody has it, and none follows
        return slot.known if slot.next is None else Error.CONCURRENT_TRANSACTIONS

    # --- EndTxn ------------------------------------------------------------------------------

    def has_used_up_epochs(self, transactional_id: str) -> bool:
        """Return whether the end of an id's transaction takes a producer id (KIP-890)."""
        slot = self.slots.get(transactional_id)
        return slot is not None and slot.known is not None and slot.known.is_epoch_exhausted

    def _end(self, request: Request[EndTxnRequest], now: Now) -> list[Effect]:
        body = request.body
        if request.version >= FIRST_END_WITH_BUMP:
            return self._end_with_bump(request, now)
        known = self._of_producer(body.transactional_id, body.producer_id, body.producer_epoch)
        if not isinstance(known, Error):
            outcome = end(known, committed=body.committed, now_ms=now.wall_ms)
            if isinstance(outcome, Transaction):
                return self._store(outcome, request.token, EndTxnResponse())
            known = outcome
        fenced = known is Error.PRODUCER_FENCED and request.version < FIRST_END_WITH_FENCED
        return [Reply(request.token, EndTxnResponse(error_code=Error.INVALID_PRODUCER_EPOCH if fenced else known))]

    def _end_with_bump(self, request: Request[EndTxnRequest], now: Now) -> list[Effect]:
        body = request.body
        slot = self.slots.get(body.transactional_id)
        repeated = (
            slot is not None and slot.known is not None and is_retry(slot.known, body.producer_id, body.producer_epoch)
        )
        if repeated:
            assert slot is not None
            known = slot.known if slot.next is None and slot.known is not None else Error.CONCURRENT_TRANSACTIONS
        else:
            known = self._of_producer(body.transactional_id, body.producer_id, body.producer_epoch)
        if isinstance(known, Error):
            return [Reply(request.token, EndTxnResponse(error_code=known))]
        outcome = end_with_bump(
            known,
            committed=body.committed,
            repeated=repeated,
            now_ms=now.wall_ms,
            new_producer_id=self.new_producer_id,
        )
        if isinstance(outcome, Transaction):
            return self._store(outcome, request.token, _ended(outcome))
        return [Reply(request.token, _ended(known) if outcome is Error.NONE else EndTxnResponse(error_code=outcome))]

    # --- to the end --------------------------------------------------------------------------

    def _finish(self, known: Transaction, now: Now) -> list[Effect]:
        """Send the markers of a decided transaction."""
        if not known.partitions:
            return self._complete(known.transactional_id, now)
        return [
            SendMarkers(
                transactional_id=known.transactional_id,
                producer_id=known.producer_id,
                producer_epoch=known.producer_epoch,
                committed=known.will_commit,
                partitions=known.partitions,
                transaction_version=known.protocol,
            )
        ]

    def _complete(self, transactional_id: str, now: Now) -> list[Effect]:
        slot = self.slots.get(transactional_id)
        if slot is None or slot.known is None or slot.next is not None or slot.known.state not in PREPARED:
            return []
        return self._store(slot.known.completed(now.wall_ms), None, None)

    def _store(self, following: Transaction, token: Token | None, answer: msgspec.Struct | None) -> list[Effect]:
        entry = transaction_entry(following)  # first: a step that cannot be written is not under way
        slot = self.slots.setdefault(following.transactional_id, Slot(None))
        assert slot.next is None, f"{following.transactional_id}: two steps at once"
        slot.next = following
        return [Write(entries=[entry], ticket=TransactionStored(following.transactional_id, token, answer))]

    # --- time --------------------------------------------------------------------------------

    def _watch(self, slot: Slot, now: Now) -> None:
        """Remember when an ongoing transaction has to be over; the clock on the wall may have jumped meanwhile."""
        known = slot.known
        if known is None or known.state is not State.ONGOING:
            slot.deadline_ms = None
        elif slot.deadline_ms is None:
            age_ms = min(max(0, now.wall_ms - known.start_ms), known.timeout_ms)
            slot.deadline_ms = now.now_ms + known.timeout_ms - age_ms

    def _scan(self, now: Now) -> list[Effect]:
        """Abort transactions that take too long (SPEC 4.2.6), forget ids that nobody uses."""
        effects: list[Effect] = []
        for slot in list(self.slots.values()):
            known = slot.known
            if known is None or slot.next is not None:
                continue
            if slot.deadline_ms is not None and now.now_ms > slot.deadline_ms:
                aborted = known.fenced(now.wall_ms).prepared(now.wall_ms, committed=False)
                effects += self._store(aborted, None, None)
            elif known.state in (State.EMPTY, *COMPLETE) and self._is_expired(known, now):
                slot.next = known.forgotten(now.wall_ms)
                ticket = TransactionForgotten(known.transactional_id)
                effects.append(Write(entries=[transaction_tombstone(known.transactional_id)], ticket=ticket))
        return effects

    def _is_expired(self, known: Transaction, now: Now) -> bool:
        return now.wall_ms - known.last_update_ms >= self.settings.expiration_ms

    # --- describing --------------------------------------------------------------------------

    def listed(
        self,
        states: Iterable[str],
        producer_ids: Iterable[int],
        now: Now,
        *,
        duration_ms: int,
        wanted: Callable[[str], bool],
    ) -> list[Listed]:
        """Return the ids in these states and of these producers (none named: all), running at least so long."""
        by_state, by_producer = dict.fromkeys(states), dict.fromkeys(producer_ids)
        return [
            Listed(
                transactional_id=transactional_id,
                producer_id=known.producer_id,
                transaction_state=known.state.words,
            )
            for transactional_id, slot in sorted(self.slots.items())
            if (known := slot.known) is not None
            and (not by_state or known.state.words in by_state)
            and (not by_producer or known.producer_id in by_producer)
            and (duration_ms < 0 or (known.start_ms >= 0 and now.wall_ms - known.start_ms > duration_ms))
            and wanted(transactional_id)
        ]

    def describe(self, transactional_id: str) -> Described:
        """Return what is known of an id."""
        slot = self.slots.get(transactional_id)
        if slot is None or slot.known is None:
            return Described(error_code=Error.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id)
        known = slot.known
        topics: dict[str, list[int]] = {}
        for partition in known.partitions:
            topics.setdefault(partition.topic, []).append(partition.partition)
        return Described(
            transactional_id=transactional_id,
            transaction_state=known.state.words,
            transaction_timeout_ms=known.timeout_ms,
            transaction_start_time_ms=known.start_ms,
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
            topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
        )


CLIENT_ERRORS: Final = {
    Error.NOT_ENOUGH_REPLICAS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR,
    Error.KAFKA_STORAGE_ERROR: Error.NOT_COORDINATOR,
    Error.MESSAGE_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
    Error.RECORD_LIST_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
}


def added(
    body: apt.AddPartitionsToTxnTransaction, error: Error, missing: Iterable[TopicPartition] = ()
) -> apt.AddPartitionsToTxnResult:
    """Return the answer for every partition asked for; `missing` are those not in the transaction (KIP-890)."""
    not_there = dict.fromkeys(missing)
    topics = [
        apt.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                apt.AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=Error.TRANSACTION_ABORTABLE
                    if TopicPartition(topic.name, index) in not_there
                    else error,
                )
                for index in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return apt.AddPartitionsToTxnResult(transactional_id=body.transactional_id, topic_results=topics)


def names_half_a_producer(body: InitProducerIdRequest) -> bool:
    """Return whether a producer names its id or its epoch alone (KIP-360): as Apache Kafka's brokers, ours take both or none."""
    return (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH)


def _may_recover(known: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """Return whether a producer that names itself may go on under this id (KIP-360)."""
    if producer_id == known.producer_id:
        return True
    return producer_id == known.previous_producer_id and producer_epoch >= EPOCH_EXHAUSTED


def _is_early(known: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """Return whether a producer comes with the id that it was given with the decision, before that is carried out."""
    return (
        known.state in PREPARED
        and known.next_producer_id != NO_PRODUCER_ID
        and (producer_id, producer_epoch) == (known.next_producer_id, 0)
    )


def _init_error(error: Error, version: int) -> Error:
    if error is Error.PRODUCER_FENCED and version < FIRST_INIT_WITH_FENCED:
        return Error.INVALID_PRODUCER_EPOCH
    return error


def _ended(known: Transaction) -> EndTxnResponse:
    """Return id and epoch that the producer goes on with."""
    if known.next_producer_id != NO_PRODUCER_ID:
        return EndTxnResponse(producer_id=known.next_producer_id, producer_epoch=0)
    return EndTxnResponse(producer_id=known.producer_id, producer_epoch=known.producer_epoch)


def _refused(answer: msgspec.Struct, error: Error) -> msgspec.Struct:
    match answer:
        case apt.AddPartitionsToTxnResult():
            topics = [
                replace(
                    topic,
                    results_by_partition=[
                        replace(result, partition_error_code=error) for result in topic.results_by_partition
                    ],
                )
                for topic in answer.topic_results
            ]
            return replace(answer, topic_results=topics)
        case EndTxnResponse():
            return EndTxnResponse(error_code=error)
        case _:
            return InitProducerIdResponse(error_code=error)
