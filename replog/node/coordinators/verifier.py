"""Asks transaction coordinators whether a partition is in a transaction, or puts it there (KIP-890, AddPartitionsToTxn v4)."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from replog.broker.verification import Guard
from replog.coordinators.placement import TRANSACTIONS_TOPIC
from replog.errors import Error
from replog.node.coordinators.internal_topics import InternalTopics
from replog.node.net.broker_links import BrokerLinks
from replog.node.tasks import Failed, Tasks
from replog.types import NO_NODE, TopicPartition
from replog.wire.messages import add_partitions_to_txn as apt

FIRST_PRODUCE_WITH_ABORTABLE: Final = 11
FIRST_PRODUCE_WITH_CONCURRENT: Final = 12
FIRST_COMMIT_WITH_ABORTABLE: Final = 4
FIRST_COMMIT_WITH_CONCURRENT: Final = 5
NOBODY_KNOWS: Final = (
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
    Error.CONCURRENT_TRANSACTIONS,
    Error.NETWORK_EXCEPTION,
    *(Error.UNKNOWN_TOPIC_OR_PARTITION, Error.OPERATION_NOT_ATTEMPTED),  # the coordinator does not know of it yet
)


class Unverified(NamedTuple):
    """A partition that a producer is about to begin a transaction on."""

    name: TopicPartition
    producer_id: int
    producer_epoch: int
    guard: Guard


class Verifier:
    """Questions under way, one after the other for a transactional id."""

    def __init__(
        self, links: BrokerLinks, topics: InternalTopics, tasks: Tasks, *, retry_ms: int, timeout_ms: int
    ) -> None:
        self.links = links
        self.topics = topics
        self.tasks = tasks
        self.retry_ms = retry_ms
        self.timeout_ms = timeout_ms
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}

    def start(self, work: Coroutine[object, object, None], *, failed: Failed) -> None:
        """Run what has to wait for an answer."""
        self.tasks.start(work, failed=failed)

    def is_asking(self, transactional_id: str) -> bool:
        """Return whether requests of this id wait: later ones have to wait behind them."""
        return transactional_id in self._turns

    @asynccontextmanager
    async def turn(self, transactional_id: str) -> AsyncIterator[None]:
        """Wait for one's turn among the requests of this id."""
        lock, waiting_count = self._turns.get(transactional_id, (asyncio.Lock(), 0))
        self._turns[transactional_id] = (lock, waiting_count + 1)
        try:
            async with lock:
                yield
        finally:
            _, waiting_count = self._turns[transactional_id]
            if waiting_count == 1:
                del self._turns[transactional_id]
            else:
                self._turns[transactional_id] = (lock, waiting_count - 1)

    async def ask(
        self, transactional_id: str, unverified: Sequence[Unverified], *, adds: bool
    ) -> dict[TopicPartition, Error]:
        """Return what the coordinator says of each partition.

        adds:  the producer relies on its writes to add partitions (transaction protocol version 2).
        """
        outcomes = dict.fromkeys((wanted.name for wanted in unverified), Error.COORDINATOR_NOT_AVAILABLE)
        coordinator = self.topics.coordinator_of(TRANSACTIONS_TOPIC, transactional_id)
        if not unverified or coordinator == NO_NODE:
            return outcomes
        producer = (unverified[0].producer_id, unverified[0].producer_epoch)
        # As Apache Kafka: an id has one producer, and what is said of that one holds for nobody else.
        strangers = {
            wanted.name: None for wanted in unverified if (wanted.producer_id, wanted.producer_epoch) != producer
        }
        by_topic: dict[str, list[int]] = {}
        for wanted in unverified:
            if wanted.name in strangers:
                continue
            by_topic.setdefault(wanted.name.topic, []).append(wanted.name.partition)
        transaction = apt.AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            verify_only=not adds,
            topics=[apt.AddPartitionsToTxnTopic(name=topic, partitions=found) for topic, found in by_topic.items()],
        )
        body = apt.AddPartitionsToTxnRequest(transactions=[transaction])
        answer = await self.links.send(coordinator, apt.EXCHANGE, body)
        for result in answer.results_by_transaction if answer is not None else ():
            for topic in result.topic_results:
                for one in topic.results_by_partition:
                    outcomes[TopicPartition(topic.name, one.partition_index)] = one.partition_error_code
        return outcomes | dict.fromkeys(strangers, Error.INVALID_PRODUCER_ID_MAPPING)


def produce_error(error: Error, version: int) -> Error:
    """Return what a producer of this Produce version understands."""
    if error is Error.CONCURRENT_TRANSACTIONS and version >= FIRST_PRODUCE_WITH_CONCURRENT:
        return error
    if error in NOBODY_KNOWS:
        return Error.NOT_ENOUGH_REPLICAS  # every producer tries that again (SPEC 6.2.7)
    if error is Error.TRANSACTION_ABORTABLE and version < FIRST_PRODUCE_WITH_ABORTABLE:
        return Error.INVALID_TXN_STATE
    return Error.INVALID_PRODUCER_EPOCH if error is Error.PRODUCER_FENCED else error


def offsets_error(error: Error, version: int) -> Error:
    """Return what a producer of this TxnOffsetCommit version understands."""
    if error is Error.CONCURRENT_TRANSACTIONS and version >= FIRST_COMMIT_WITH_CONCURRENT:
        return error
    if error in NOBODY_KNOWS:
        return Error.COORDINATOR_LOAD_IN_PROGRESS
    if error is Error.TRANSACTION_ABORTABLE and version < FIRST_COMMIT_WITH_ABORTABLE:
        return Error.INVALID_TXN_STATE
    return Error.INVALID_PRODUCER_EPOCH if error is Error.PRODUCER_FENCED else error
