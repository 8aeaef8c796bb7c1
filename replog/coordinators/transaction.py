"""What is stored of one transactional id, and how it may change (SPEC 4.2.2).

A `Transaction` is a value; a transition returns the next one and asserts that the edge exists. Under protocol version 2
(KIP-890) the epoch grows with every transaction, so that a producer's delayed writes can't get into its next one; when
epochs run out, the next transaction begins with a new producer id.
"""

from enum import IntEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from replog.coordinators.events import Entry
from replog.ports import Buffer
from replog.types import TopicPartition
from replog.wire.records.coordinator import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
EPOCH_MAX: Final = (1 << 15) - 1
EPOCH_EXHAUSTED: Final = EPOCH_MAX - 1  # the last one is kept for fencing
NO_TIME: Final = -1
PROTOCOL_1: Final = 0
PROTOCOL_2: Final = 2  # the number is that of the feature transaction.version


class State(IntEnum):
    """Where a transaction stands, by the numbers that are stored."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def words(self) -> str:
        """The name that tools show: PrepareCommit."""
        return "".join(word.capitalize() for word in self.name.split("_"))


COMPLETE: Final = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
PREPARED: Final = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
BEFORE: Final[dict[State, tuple[State, ...]]] = {
    State.EMPTY: (State.EMPTY, *COMPLETE),
    State.ONGOING: (State.ONGOING, State.EMPTY, *COMPLETE),
    State.PREPARE_COMMIT: (State.ONGOING,),
    # KIP-890: a producer may abort what the coordinator does not know of yet, to get the next epoch.
    State.PREPARE_ABORT: (State.ONGOING, State.PREPARE_EPOCH_FENCE, State.EMPTY, *COMPLETE),
    State.COMPLETE_COMMIT: (State.PREPARE_COMMIT,),
    State.COMPLETE_ABORT: (State.PREPARE_ABORT,),
    State.DEAD: (State.EMPTY, *COMPLETE),
    State.PREPARE_EPOCH_FENCE: (State.ONGOING,),
}


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """One transactional id with its latest transaction; times are wall clock."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State
    last_update_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    partitions: tuple[TopicPartition, ...] = ()
    start_ms: int = NO_TIME
    protocol: int = PROTOCOL_1

    @property
    def is_epoch_exhausted(self) -> bool:
        """Return whether a new producer id is needed before the next epoch."""
        return self.producer_epoch >= EPOCH_EXHAUSTED

    @property
    def will_commit(self) -> bool:
        """Return which way it was decided."""
        assert self.state in (*PREPARED, *COMPLETE), self.state
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    # --- transitions -------------------------------------------------------------------------

    def _to(self, state: State, now_ms: int) -> "Transaction":
        assert self.state in BEFORE[state], f"{self.transactional_id}: {self.state.words} to {state.words}"
        return replace(self, state=state, last_update_ms=now_ms)

    def initialized(self, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> "Transaction":
        """Return it ready for the producer's next incarnation, in this epoch."""
        return replace(
            self._to(State.EMPTY, now_ms),
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=(),
            start_ms=NO_TIME,
        )

    def rotated(self, producer_id: int, timeout_ms: int, now_ms: int, *, keeps_epoch: bool) -> "Transaction":
        """Return it under a new producer id, in epoch 0; `keeps_epoch`: a retry may name the old one."""
        last_epoch = self.producer_epoch if keeps_epoch else NO_PRODUCER_EPOCH
        fresh = self.initialized(0, last_epoch, timeout_ms, now_ms)
        return replace(fresh, producer_id=producer_id, previous_producer_id=self.producer_id)

    def extended(self, partitions: tuple[TopicPartition, ...], protocol: int, now_ms: int) -> "Transaction":
        """Return it with these partitions in it too; the first ones begin it."""
        is_new = self.state is not State.ONGOING
        return replace(
            self._to(State.ONGOING, now_ms),
            partitions=tuple(sorted({*self.partitions, *partitions})),
            start_ms=now_ms if is_new else self.start_ms,
            protocol=protocol,
        )

    def fenced(self, now_ms: int) -> "Transaction":
        """Return it out of its producer's reach: the next epoch belongs to nobody (M80)."""
        epoch = min(self.producer_epoch + 1, EPOCH_MAX)
        return replace(
            self._to(State.PREPARE_EPOCH_FENCE, now_ms), producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH
        )

    def prepared(self, now_ms: int, *, committed: bool) -> "Transaction":
        """Return it decided."""
        return self._to(State.PREPARE_COMMIT if committed else State.PREPARE_ABORT, now_ms)

    def prepared_in_next_epoch(self, now_ms: int, next_producer_id: int, *, committed: bool) -> "Transaction":
        """Return it decided, with the epoch that its markers raise (protocol version 2).

        next_producer_id:  where the producer goes on when epochs are used up, -1 otherwise.
        """
        start_ms = self.start_ms if self.state is State.ONGOING else now_ms
        return replace(
            self.prepared(now_ms, committed=committed),
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch,
            next_producer_id=next_producer_id,
            start_ms=start_ms,
            protocol=PROTOCOL_2,
        )

    def completed(self, now_ms: int) -> "Transaction":
        """Return it over: every partition has its marker."""
        done = replace(
            self._to(State.COMPLETE_COMMIT if self.will_commit else State.COMPLETE_ABORT, now_ms), partitions=()
        )
        if self.next_producer_id == NO_PRODUCER_ID:
            return done
        return replace(
            done,
            producer_id=self.next_producer_id,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            producer_epoch=0,
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )

    def forgotten(self, now_ms: int) -> "Transaction":
        """Return it expired; its tombstone is all that is written."""
        return self._to(State.DEAD, now_ms)


# --- as a record -------------------------------------------------------------------------------


def transaction_entry(transaction: Transaction) -> Entry:
    """Return the record of a transactional id."""
    topics: dict[str, list[int]] = {}
    for partition in transaction.partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        # Kafka: an id without a transaction has no list at all.
        transaction_partitions=None
        if transaction.state is State.EMPTY
        else [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()],
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.protocol,
    )
    return Entry(_key(transaction.transactional_id), encode_value(value))


def transaction_tombstone(transactional_id: str) -> Entry:
    """Return the record that forgets a transactional id."""
    return Entry(_key(transactional_id), None)


def _key(transactional_id: str) -> bytes:
    return encode_key(TransactionLogKey(transactional_id=transactional_id))


def decode(key: Buffer, value: Buffer | None) -> tuple[str, Transaction | None] | None:
    """Return id and newest state (None: forgotten) of a record; None for records of other kinds.

    The last epoch before the present one is not stored: a retry across a fail-over is answered that it is fenced.
    """
    read = decode_key(TransactionLogKey, key)
    if read is None:
        return None
    if value is None:
        return read.transactional_id, None
    stored = decode_value(TransactionLogValue, value)
    partitions = tuple(
        TopicPartition(topic.topic, index)
        for topic in stored.transaction_partitions or []
        for index in topic.partition_ids
    )
    return read.transactional_id, Transaction(
        transactional_id=read.transactional_id,
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        timeout_ms=stored.transaction_timeout_ms,
        state=State(stored.transaction_status),
        last_update_ms=stored.transaction_last_update_timestamp_ms,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        partitions=partitions,
        start_ms=stored.transaction_start_timestamp_ms,
        protocol=stored.client_transaction_version,
    )
