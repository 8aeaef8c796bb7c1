"""Producers for simulated workloads: replog's own, in the words of `tribunal.clusters.api` (VERDICTS, facts)."""

from collections.abc import Callable, Mapping
from typing import Final, Literal

from replog.client import producer, transactions
from replog.client.client import Client
from replog.client.outcomes import BatchEnd, Outcome, TransactionOutcome
from replog.ports import Clock
from tribunal.clusters.api import Answered, Delivery, Ended, GroupConsumer, ProducerSettings, TopicPartition
from tribunal.clusters.simulated.consumers import SimulatedMember, answered
from tribunal.clusters.simulated.writers import Writer

Done = Callable[[Delivery], None]

DELIVERED: Final[Mapping[Outcome, Literal["ok", "fail", "info", "sent"]]] = {
    Outcome.DONE: "ok",
    Outcome.UNACKNOWLEDGED: "sent",
    Outcome.WITHOUT_EFFECT: "fail",
    Outcome.UNKNOWN: "info",
}
ENDED: Final[Mapping[TransactionOutcome, Literal["committed", "aborted", "info"]]] = {
    TransactionOutcome.COMMITTED: "committed",
    TransactionOutcome.ABORTED: "aborted",
    TransactionOutcome.UNKNOWN: "info",
}


def deliver(waiting: list[Done], end: BatchEnd) -> None:
    """Hand each record's sender the fate of its batch."""
    outcome, base_offset = DELIVERED[end.outcome], end.base_offset
    topic_id = None if end.topic_id is None else str(end.topic_id)
    for position, done in enumerate(waiting):
        log_offset = None if base_offset is None else base_offset + position
        done(Delivery(outcome, end.error, log_offset, None, end.attempts, end.answered_by, end.producer, topic_id))


class SimulatedProducer:
    """Implements `tribunal.clusters.api.Producer`."""

    def __init__(self, client: Client, clock: Clock, settings: ProducerSettings, writer: Writer) -> None:
        own = producer.ProducerSettings(
            acks=settings.acks,
            idempotent=settings.idempotent,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            request_timeout_ms=settings.request_timeout_ms,
            linger_ms=settings.linger_ms,
            batches_in_flight=settings.batches_in_flight,
        )
        self._producer: producer.Producer[Done] = producer.Producer(client, clock, own, deliver)
        self._writer = writer

    def send(self, partition: TopicPartition, key: bytes | None, value: bytes, done: Done) -> int | None:
        """Offer one record."""
        self._writer.sends_to(partition)
        return self._producer.send(partition, key, value, done)

    async def flush(self, timeout_ms: int) -> int:
        """Wait until nothing is under way; return how many still are."""
        return await self._producer.flush(timeout_ms)

    async def close(self) -> None:
        """Give up what is under way and release everything."""
        await self._producer.close()


class SimulatedTransactions:
    """Implements `tribunal.clusters.api.TransactionalProducer`."""

    def __init__(
        self, client: Client, clock: Clock, transactional_id: str, transaction_timeout_ms: int, writer: Writer
    ) -> None:
        self._producer: transactions.TransactionalProducer[Done] = transactions.TransactionalProducer(
            client, clock, transactional_id, transaction_timeout_ms, deliver
        )
        self._writer = writer

    @property
    def identity(self) -> tuple[int, int] | None:
        """Producer id and epoch."""
        return self._producer.identity

    async def begin(self, timeout_ms: int) -> bool:
        """Begin a transaction; False when none can be begun in this time."""
        return await self._producer.begin(timeout_ms)

    def send(self, partition: TopicPartition, key: bytes | None, value: bytes, done: Done) -> int | None:
        """Offer one record of the transaction."""
        self._writer.sends_to(partition)
        return self._producer.send(partition, key, value, done)

    async def flush(self, timeout_ms: int) -> int:
        """Wait until nothing is under way; return how many still are."""
        return await self._producer.flush(timeout_ms)

    async def send_offsets(
        self, consumer: GroupConsumer, offsets: Mapping[TopicPartition, int], timeout_ms: int
    ) -> Answered:
        """Commit a group's offsets as part of the transaction."""
        assert isinstance(consumer, SimulatedMember)
        self._writer.groups.add(consumer.group)
        return answered(await self._producer.send_offsets(consumer.member, offsets, timeout_ms))

    async def end(self, *, commit: bool, timeout_ms: int) -> Ended:
        """Commit or abort; a transaction that cannot be committed is aborted."""
        end = await self._producer.end(commit=commit, timeout_ms=timeout_ms)
        return Ended(ENDED[end.outcome], answered=end.answered, error=end.error)

    async def close(self) -> None:
        """Give up what is under way and release everything."""
        await self._producer.close()
