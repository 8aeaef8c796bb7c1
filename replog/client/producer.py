"""A producer: records go out in batches, and each batch's end is reported once.

One sender a partition. An idempotent producer retries a batch unchanged until its delivery time-out, with a producer id of
its own for every partition; when it gives a batch up, whose fate nobody knows, it begins again with a fresh id. It may have
several batches under way at once: they are sent together in their order, and what was not written is sent again one by one. The
others have one batch under way and make one attempt a record. A batch that is refused as too large is sent in halves.
What an end proves is decided by `batch_end`: in doubt it is unknown.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from replog.client.client import NO_ANSWER, Client
from replog.client.outcomes import GIVEN_UP, NEVER_LEFT, NO_ROOM, BatchEnd
from replog.client.produce_attempt import (
    NO_ATTEMPT,
    NOTHING_WRITTEN,
    TOO_LARGE,
    Attempt,
    attempt_produce,
    batch_end,
    error_of,
)
from replog.errors import Error
from replog.log import batch
from replog.ports import Clock
from replog.types import TopicPartition
from replog.wire.messages.init_producer_id import EXCHANGE, InitProducerIdRequest

BATCH_RECORDS_MAX: Final = 500
RETRY_BACKOFF_MS: Final = 50
QUEUE_RECORDS_MAX: Final = 100_000
CLOSE_POLL_MS: Final = 5

PRODUCER_EPOCH_MAX: Final = (1 << 15) - 1
# The broker and the producer disagree about what was written: only a fresh producer id goes on.
FATAL: Final = frozenset(
    {
        Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
        Error.DUPLICATE_SEQUENCE_NUMBER,
        Error.UNKNOWN_PRODUCER_ID,
        Error.INVALID_PRODUCER_EPOCH,
        Error.INVALID_PRODUCER_ID_MAPPING,
    }
)

Token = TypeVar("Token")
OnEnd = Callable[[list[Token], BatchEnd], None]  # whose records a batch held, in their order, and how it ended


class ProducerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A producer's behaviour."""

    acks: int
    idempotent: bool
    delivery_timeout_ms: int
    request_timeout_ms: int
    linger_ms: int
    batches_in_flight: int  # of an idempotent producer to one partition; brokers remember the last 5


class Offered(NamedTuple, Generic[Token]):
    """A record that waits to be sent."""

    record: batch.NewRecord
    token: Token
    deadline_ms: int


class Sent(NamedTuple, Generic[Token]):
    """A batch that was sent beside others, and how that went."""

    batch: list[Offered[Token]]
    content: bytes
    attempt: Attempt


class Producer(Generic[Token]):
    """Sends records; each is known to its user by a token."""

    def __init__(self, client: Client, clock: Clock, settings: ProducerSettings, on_end: OnEnd[Token]) -> None:
        self.client = client
        self.clock = clock
        self.settings = settings
        self.on_end = on_end
        self._senders: dict[TopicPartition, PartitionSender[Token]] = {}

    def send(self, partition: TopicPartition, key: bytes | None, value: bytes, token: Token) -> int | None:
        """Offer one record; return its timestamp, None where there is no room for it.

        `on_end` gets its token once, possibly before this returns.
        """
        sender = self._senders.get(partition)
        if sender is None:
            sender = self._senders[partition] = PartitionSender(self, partition)
        return sender.offer(key, value, token)

    async def flush(self, timeout_ms: int) -> int:
        """Wait until nothing is under way; return how many still are."""
        deadline_ms = self.clock.now_ms() + timeout_ms
        while self._under_way() and self.clock.now_ms() < deadline_ms:  # noqa: ASYNC110  # of many senders
            await asyncio.sleep(CLOSE_POLL_MS / 1000)
        return self._under_way()

    async def close(self) -> None:
        """Give up what is under way and release everything."""
        for sender in self._senders.values():
            sender.stop()
        await self.client.close()

    def _under_way(self) -> int:
        return sum(sender.under_way_count for sender in self._senders.values())


class PartitionSender(Generic[Token]):
    """What a producer has to send to one partition."""

    def __init__(self, producer: Producer[Token], partition: TopicPartition) -> None:
        self._client = producer.client
        self._clock = producer.clock
        self._settings = producer.settings
        self._on_end = producer.on_end
        self._partition = partition
        self._queue: deque[Offered[Token]] = deque()
        self._current: list[Offered[Token]] = []
        self._beside: deque[list[Offered[Token]]] = deque()  # batches behind it that were sent with it
        self._records_max = BATCH_RECORDS_MAX
        self._work = asyncio.Event()
        self._identity: tuple[int, int] | None = None  # producer id and epoch
        self._sequence = 0
        self._task = asyncio.create_task(self._run(), name=f"sender of {partition}")

    @property
    def under_way_count(self) -> int:
        """How many records have no known fate yet."""
        return len(self._queue) + len(self._current) + sum(map(len, self._beside))

    def offer(self, key: bytes | None, value: bytes, token: Token) -> int | None:
        """Take a record; return its timestamp, None where there is no room for it."""
        if len(self._queue) >= QUEUE_RECORDS_MAX:
            self._on_end([token], NO_ROOM)
            return None
        deadline_ms = self._clock.now_ms() + self._settings.delivery_timeout_ms
        record = batch.NewRecord(key, value, timestamp_ms=self._clock.wall_ms())
        self._queue.append(Offered(record, token, deadline_ms))
        self._work.set()
        return record.timestamp_ms

    def stop(self) -> None:
        """Give up: what never left surely wrote nothing, what is under way nobody knows."""
        self._task.cancel()
        current, self._current = self._current, []
        beside, self._beside = self._beside, deque()
        queue, self._queue = self._queue, deque()
        for given_up in (current, *beside):
            self._on_end([offered.token for offered in given_up], GIVEN_UP)
        self._on_end([offered.token for offered in queue], NEVER_LEFT)

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            await asyncio.sleep(self._settings.linger_ms / 1000)
            while self._queue:
                if self._settings.batches_in_flight > 1 and self._identity is not None:
                    await self._deliver_several()
                    continue
                self._current = self._next_batch()
                await (self._deliver_with_retries() if self._settings.idempotent else self._deliver_once())
            self._work.clear()

    def _next_batch(self) -> list[Offered[Token]]:
        return [self._queue.popleft() for _ in range(min(len(self._queue), self._records_max))]

    def _splits(self, error: Error | None) -> bool:
        """Keep the first half of a batch that was refused as too large, and put the rest back; False where nothing can be halved.

        Nothing of it was written, so nothing behind it can have been: that goes back, too.
        """
        if error not in TOO_LARGE or len(self._current) == 1:
            return False
        half = self._records_max = len(self._current) // 2
        behind = [*self._current[half:], *(offered for one in self._beside for offered in one)]
        self._current = self._current[:half]
        self._beside.clear()
        self._queue.extendleft(reversed(behind))
        return True

    # one attempt a record

    async def _deliver_once(self) -> None:
        while True:
            content = batch.build([offered.record for offered in self._current], timestamp_ms=self._clock.wall_ms())
            attempt = await self._attempt(content)
            if not self._splits(error_of(attempt)):
                break
        self._complete(batch_end(attempt, acks=self._settings.acks, may_have_left=attempt.sent, attempts=1))

    # idempotent

    async def _deliver_several(self) -> None:
        """Send several batches at once, in their order; what was not written is sent again one by one."""
        identity, sequence = self._identity, self._sequence
        batches: list[tuple[list[Offered[Token]], bytes]] = []
        while self._queue and len(batches) < self._settings.batches_in_flight:
            records = self._next_batch()
            batches.append((records, self._numbered(records, sequence)))
            sequence = (sequence + len(records)) % batch.SEQUENCE_MODULUS
        self._beside = deque(records for records, _ in batches)
        attempts = await asyncio.gather(*(self._attempt(content) for _, content in batches))
        for (records, content), attempt in zip(batches, attempts, strict=True):
            if not self._beside:  # the one before was split, and this one put back
                return
            self._current = self._beside.popleft()
            sent = Sent(records, content, attempt)
            if self._identity == identity:
                await self._deliver_with_retries(sent)
            else:  # the one before was given up: nobody knows whether this one stands behind it
                self._complete(batch_end(attempt, acks=-1, may_have_left=True, attempts=None, producer=identity))

    async def _deliver_with_retries(self, sent: Sent[Token] | None = None) -> None:
        """Deliver the current batch; `sent` is how it went beside others, whose fate may have been its own."""
        deadline_ms = self._current[-1].deadline_ms
        attempt, may_have_left = NO_ATTEMPT, False
        content, identity = b"", None
        if sent is not None:
            content, identity, attempt, may_have_left = sent.content, self._identity, sent.attempt, True
        while error_of(attempt) is not Error.NONE and self._clock.now_ms() < deadline_ms:
            if self._identity is None and not await self._identify():
                await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
                continue
            content, identity = content or self._numbered(self._current, self._sequence), self._identity
            attempt = await self._attempt(content)
            may_have_left = may_have_left or attempt.sent
            error = error_of(attempt)
            if self._splits(error):
                content, deadline_ms = b"", self._current[-1].deadline_ms
                continue
            if error is Error.NONE or error in FATAL or error in NOTHING_WRITTEN - {Error.NOT_ENOUGH_REPLICAS}:
                break
            await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
        if attempt.answer is not None and attempt.answer.error_code is Error.NONE:
            self._sequence = (self._sequence + len(self._current)) % batch.SEQUENCE_MODULUS
        else:
            self._begin_anew(attempt)
        self._complete(
            batch_end(attempt, acks=self._settings.acks, may_have_left=may_have_left, attempts=None, producer=identity)
        )

    def _begin_anew(self, attempt: Attempt) -> None:
        """Number from 0 in the next producer epoch, so that what is still on its way is fenced where a newer record stands.

        Without a transactional id producers raise the epoch by themselves (KIP-360); one that was refused needs another id.
        """
        refused = attempt.answer is not None and attempt.answer.error_code in FATAL
        if self._identity is None or refused or self._identity[1] == PRODUCER_EPOCH_MAX:
            self._identity = None
        else:
            producer_id, epoch = self._identity
            self._identity, self._sequence = (producer_id, epoch + 1), 0

    def _numbered(self, records: list[Offered[Token]], sequence: int) -> bytes:
        assert self._identity is not None
        return batch.build(
            [offered.record for offered in records],
            timestamp_ms=self._clock.wall_ms(),
            producer=(*self._identity, sequence),
        )

    async def _identify(self) -> bool:
        """Get a producer id; False when nobody gives one now."""
        try:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = await self._client.ask(EXCHANGE, request)
        except NO_ANSWER:
            return False
        if answer.error_code is not Error.NONE:
            return False
        self._identity, self._sequence = (answer.producer_id, answer.producer_epoch), 0
        return True

    async def _attempt(self, content: bytes) -> Attempt:
        settings = self._settings
        return await attempt_produce(
            self._client, self._partition, content, acks=settings.acks, timeout_ms=settings.request_timeout_ms
        )

    def _complete(self, end: BatchEnd) -> None:
        current, self._current = self._current, []
        self._on_end([offered.token for offered in current], end)
