"""A transactional producer: protocol version 2 (KIP-890), one batch under way a partition.

Partitions and offsets join the transaction with their first write. A commit is known to have failed only if no attempt to commit
could have been written down: after `NOT_COORDINATOR`, `UNKNOWN_SERVER_ERROR` or silence nobody knows, whatever the next coordinator says.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Final, Generic

from replog.client.client import NO_ANSWER, Client, Unreachable
from replog.client.coordinator import GROUP, SAYS_NOTHING, TRANSACTION, TRY_AGAIN, WITHOUT_EFFECT, CoordinatorLink
from replog.client.group_member import GroupMember
from replog.client.outcomes import GIVEN_UP, CommitEnd, Outcome, TransactionEnd, TransactionOutcome
from replog.client.produce_attempt import NO_ATTEMPT, TOO_LARGE, Attempt, attempt_produce, batch_end, error_of
from replog.client.producer import OnEnd, Token
from replog.errors import Error
from replog.log import batch
from replog.ports import Clock
from replog.types import TopicPartition
from replog.wire.messages import end_txn, init_producer_id, txn_offset_commit
from replog.wire.messages.end_txn import EndTxnRequest
from replog.wire.messages.init_producer_id import InitProducerIdRequest
from replog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

RETRY_MS: Final = 50
POLL_MS: Final = 5
REQUEST_TIMEOUT_MS: Final = 2_000
ABORT_TIMEOUT_MS: Final = 3_000


class TransactionalProducer(Generic[Token]):
    """Sends records in transactions, one at a time; fenced, it begins again as a new producer."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        transactional_id: str,
        transaction_timeout_ms: int,
        on_end: OnEnd[Token],
    ) -> None:
        self._client = client
        self._clock = clock
        self._transactional_id = transactional_id
        self._timeout_ms = transaction_timeout_ms
        self._on_end = on_end
        self._link = CoordinatorLink(client, transactional_id, TRANSACTION)
        self._groups: dict[str, CoordinatorLink] = {}
        self._identity: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._queues: dict[TopicPartition, deque[tuple[batch.NewRecord, Token]]] = {}
        self._records_max: dict[TopicPartition, int] = {}  # of a batch, where larger ones were refused
        self._senders: dict[TopicPartition, asyncio.Task[None]] = {}
        self._deadline_ms = 0
        self._broken: str | None = None  # why the transaction can only be aborted

    @property
    def identity(self) -> tuple[int, int] | None:
        """Producer id and epoch."""
        return self._identity

    async def begin(self, timeout_ms: int) -> bool:
        """Get an identity if there is none; that fences whoever had the id before."""
        deadline_ms = self._clock.now_ms() + timeout_ms
        while self._identity is None and self._clock.now_ms() < deadline_ms:
            if not await self._initialize():
                await asyncio.sleep(RETRY_MS / 1000)
        self._broken = None
        self._deadline_ms = self._clock.now_ms() + self._timeout_ms
        return self._identity is not None

    async def _initialize(self) -> bool:
        body = InitProducerIdRequest(transactional_id=self._transactional_id, transaction_timeout_ms=self._timeout_ms)
        try:
            answer = await self._link.ask(init_producer_id.EXCHANGE, body)
        except NO_ANSWER:
            return False
        if answer.error_code is not Error.NONE:
            return False
        self._identity = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        return True

    # records

    def send(self, partition: TopicPartition, key: bytes | None, value: bytes, token: Token) -> int | None:
        """Offer one record of the transaction; return its timestamp. `on_end` gets its token once."""
        record = batch.NewRecord(key, value, timestamp_ms=self._clock.wall_ms())
        self._queues.setdefault(partition, deque()).append((record, token))
        if partition not in self._senders:
            sender = self._deliver_all(partition)
            self._senders[partition] = asyncio.create_task(sender, name=f"{self._transactional_id} to {partition}")
        return record.timestamp_ms

    async def _deliver_all(self, partition: TopicPartition) -> None:
        queue = self._queues[partition]
        try:
            while queue:
                current = list(islice(queue, self._records_max.get(partition, len(queue))))
                identity = self._identity
                delivered = await self._deliver(partition, [record for record, _ in current])
                if delivered is None:
                    self._records_max[partition] = len(current) // 2
                    continue
                attempt, may_have_left = delivered
                for _ in current:
                    queue.popleft()
                end = batch_end(attempt, acks=-1, may_have_left=may_have_left, attempts=None, producer=identity)
                self._on_end([token for _, token in current], end)
        finally:
            if self._senders.get(partition) is asyncio.current_task():
                del self._senders[partition]

    async def _deliver(self, partition: TopicPartition, records: list[batch.NewRecord]) -> tuple[Attempt, bool] | None:
        """Send a batch until there is an answer that stands; return the last attempt and whether any left.

        None: it is too large, nothing of it was written, and fewer records may fit.
        """
        assert self._identity is not None
        sequence = self._sequences.get(partition, 0)
        content = batch.build(
            records,
            timestamp_ms=self._clock.wall_ms(),
            producer=(*self._identity, sequence),
            attributes=batch.TRANSACTIONAL,
        )
        attempt, may_have_left = NO_ATTEMPT, False
        while self._broken is None and self._clock.now_ms() < self._deadline_ms:
            attempt = await self._attempt(partition, content)
            error = error_of(attempt)
            if error in TOO_LARGE and len(records) > 1 and not may_have_left:
                return None
            may_have_left = may_have_left or attempt.sent
            if error is Error.NONE:
                self._sequences[partition] = (sequence + len(records)) % batch.SEQUENCE_MODULUS
                return attempt, True
            if error is not None and error not in TRY_AGAIN:
                break
            await asyncio.sleep(RETRY_MS / 1000)
        self._break(attempt.answer.error_code.name if attempt.answer else attempt.error or "")
        return attempt, may_have_left

    async def _attempt(self, partition: TopicPartition, content: bytes) -> Attempt:
        return await attempt_produce(
            self._client,
            partition,
            content,
            acks=-1,
            timeout_ms=REQUEST_TIMEOUT_MS,
            transactional_id=self._transactional_id,
        )

    def _break(self, why: str) -> None:
        self._broken = self._broken or why

    async def flush(self, timeout_ms: int) -> int:
        """Wait until nothing is under way."""
        deadline_ms = self._clock.now_ms() + timeout_ms
        while self._senders and self._clock.now_ms() < deadline_ms:  # noqa: ASYNC110 - of many senders
            await asyncio.sleep(POLL_MS / 1000)
        return sum(map(len, self._queues.values()))

    # offsets

    async def send_offsets(
        self, member: GroupMember, offsets: Mapping[TopicPartition, int], timeout_ms: int
    ) -> CommitEnd:
        """Commit offsets in the transaction, as the group's member (KIP-447)."""
        assert self._identity is not None
        body = self._offsets_request(member, offsets)
        link = self._groups.setdefault(member.group, CoordinatorLink(self._client, member.group, GROUP))
        deadline_ms = self._clock.now_ms() + timeout_ms
        last, doubt = "_TIMED_OUT", False
        while self._broken is None and self._clock.now_ms() < deadline_ms:
            try:
                answer, node = await link.ask_and_name(txn_offset_commit.EXCHANGE, body)
            except NO_ANSWER as problem:
                last, doubt = type(problem).__name__, doubt or not isinstance(problem, Unreachable)
            else:
                codes = [part.error_code for topic in answer.topics for part in topic.partitions]
                error = next((code for code in codes if code is not Error.NONE), Error.NONE)
                if error is Error.NONE:
                    return CommitEnd(Outcome.DONE, None, node)
                last, doubt = error.name, doubt or error in (TRY_AGAIN | SAYS_NOTHING) - WITHOUT_EFFECT
                if error not in TRY_AGAIN:
                    break
                link.forget()
            await asyncio.sleep(RETRY_MS / 1000)
        self._break(last)
        return CommitEnd(Outcome.UNKNOWN if doubt else Outcome.WITHOUT_EFFECT, last)

    def _offsets_request(self, member: GroupMember, offsets: Mapping[TopicPartition, int]) -> TxnOffsetCommitRequest:
        assert self._identity is not None
        parts = [
            TxnOffsetCommitRequestPartition(partition_index=name.partition, committed_offset=offset)
            for name, offset in offsets.items()
        ]
        producer_id, producer_epoch = self._identity
        return TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=member.group,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id=member.generation,
            member_id=member.member_id,
            topics=[TxnOffsetCommitRequestTopic(name=member.topic, partitions=parts)],
        )

    # the end

    async def end(self, *, commit: bool, timeout_ms: int) -> TransactionEnd:
        """Commit, or abort where asked to or nothing else is left."""
        undelivered = await self.flush(max(0, self._deadline_ms - self._clock.now_ms()))
        if undelivered:
            self._give_up()
        if commit and self._broken is None:
            return await self._end(commit=True, timeout_ms=timeout_ms)
        why = self._broken
        ended = await self._end(commit=False, timeout_ms=min(timeout_ms, ABORT_TIMEOUT_MS))
        return TransactionEnd(TransactionOutcome.ABORTED, answered=ended.answered, error=why or ended.error)

    async def _end(self, *, commit: bool, timeout_ms: int) -> TransactionEnd:
        assert self._identity is not None
        producer_id, producer_epoch = self._identity
        body = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=commit,
        )
        deadline_ms = self._clock.now_ms() + timeout_ms
        last, doubt = "_TIMED_OUT", False
        while self._clock.now_ms() < deadline_ms:
            try:
                answer = await self._link.ask(end_txn.EXCHANGE, body)
            except NO_ANSWER as problem:
                last, doubt = type(problem).__name__, doubt or not isinstance(problem, Unreachable)
            else:
                if answer.error_code is Error.NONE:
                    self._continue(answer.producer_id, answer.producer_epoch)
                    outcome = TransactionOutcome.COMMITTED if commit else TransactionOutcome.ABORTED
                    return TransactionEnd(outcome, answered=True, error=None)
                last = answer.error_code.name
                if answer.error_code not in TRY_AGAIN:
                    # Somebody else ended it: another producer of this id, or its time-out.
                    self._identity = None
                    doubt = doubt or answer.error_code in SAYS_NOTHING
                    return TransactionEnd(_unconfirmed(in_doubt=commit and doubt), answered=not doubt, error=last)
                doubt = doubt or answer.error_code not in WITHOUT_EFFECT
            await asyncio.sleep(RETRY_MS / 1000)
        self._identity = None
        return TransactionEnd(_unconfirmed(in_doubt=commit and doubt), answered=False, error=last)

    def _continue(self, producer_id: int, producer_epoch: int) -> None:
        if producer_id >= 0 and (producer_id, producer_epoch) != self._identity:
            self._identity = producer_id, producer_epoch
            self._sequences.clear()

    def _give_up(self) -> None:
        """Stop sending; what may have left nobody knows."""
        self._break("_TIMED_OUT")
        for task in self._senders.values():
            task.cancel()
        self._senders.clear()
        for queue in self._queues.values():
            tokens = [token for _, token in queue]
            queue.clear()
            self._on_end(tokens, GIVEN_UP)

    async def close(self) -> None:
        """Give up what is under way and release everything."""
        self._give_up()
        await self._client.close()


def _unconfirmed(*, in_doubt: bool) -> TransactionOutcome:
    """Say what became of a transaction whose commit nobody confirmed."""
    return TransactionOutcome.UNKNOWN if in_doubt else TransactionOutcome.ABORTED
