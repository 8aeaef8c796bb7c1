"""A process that works in transactions, and a member of a group: both write down all that they do."""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple, TypedDict

from tribunal.clusters.api import (
    Admin,
    Answered,
    Delivery,
    Ended,
    GroupConsumer,
    GroupSettings,
    PartitionPoll,
    TopicPartition,
    TransactionalProducer,
)
from tribunal.results.values import VALUE_BYTES, value_in, value_of
from tribunal.workloads.api import PollLog, Stage, answer_of
from tribunal.workloads.committed_read import OUT_OF_RANGE

BEGIN_MS: Final = 2_000
END_MS: Final = 8_000
OFFSETS_MS: Final = 2_000
RETRY_MS: Final = 200


class Step(TypedDict):
    """One operation of a transaction, as it is recorded; a send's offset is known later."""

    kind: str
    topic: str
    partition: int
    log_offset: int | None
    value: int | None


class OpenSend(NamedTuple):
    """A send whose fate is not known yet."""

    key: str
    invoke_ns: int
    step: Step


class Transactor:
    """One transaction at a time under a transactional id, which another process may have, too."""

    def __init__(
        self, stage: Stage, process: int, transactional_id: str, worker_class: str, transaction_timeout_ms: int
    ) -> None:
        self.stage = stage
        self.process = stage.first_process + process
        self.transactional_id = transactional_id
        self.worker_class = worker_class
        self._timeout_ms = transaction_timeout_ms
        self.producer = self._producer()
        self._sequence = 0
        self._begin_ns = 0
        self._operations: list[Step] = []
        self._open: dict[int, OpenSend] = {}  # sends without a known fate, by value
        self._in_transaction = False
        self._identities: dict[tuple[int, int], None] = {}  # that its records were acknowledged under

    async def become(self, transactional_id: str) -> None:
        """Go on between two transactions as another producer under another id; the former one is given up."""
        await self.close()
        self.transactional_id = transactional_id
        self.producer = self._producer()

    def _producer(self) -> TransactionalProducer:
        return self.stage.clients.transactional_producer(
            self.transactional_id, self._timeout_ms, f"worker-{self.process}"
        )

    async def begin(self) -> bool:
        """Begin a transaction; False when it cannot be done now."""
        began = await self.producer.begin(BEGIN_MS)
        self._begin_ns, self._operations, self._in_transaction = self.stage.now_ns(), [], began
        self._identities = {}
        return began

    def send(self, partition: TopicPartition, key: str, kind: str = "send") -> int:
        """Offer the next value; return it."""
        value = value_of(self.process, self._sequence)
        self._sequence += 1
        step = self.step(kind, partition, None, value)
        self._open[value] = OpenSend(key, self.stage.now_ns(), step)
        timestamp_ms = self.producer.send(
            partition, key.encode(), value.to_bytes(VALUE_BYTES), lambda delivery: self._completed(value, delivery)
        )
        self.stage.sent.note(value, key.encode(), timestamp_ms)
        return value

    def step(self, kind: str, partition: TopicPartition, log_offset: int | None, value: int | None) -> Step:
        """Add a step to the transaction, as it will be recorded."""
        topic, number = partition
        step: Step = {"kind": kind, "topic": topic, "partition": number, "log_offset": log_offset, "value": value}
        self._operations.append(step)
        return step

    def polled(self, polls: list[PartitionPoll]) -> None:
        """Take what was polled as part of the transaction."""
        for poll in polls:
            for record in poll.records:
                self.step("poll", poll.partition, record.log_offset, value_in(record.value))

    async def send_offsets(self, member: "Member", offsets: Mapping[TopicPartition, int]) -> Answered:
        """Commit the group's offsets with the transaction."""
        invoke_ns = self.stage.now_ns()
        answered = await self.producer.send_offsets(member.consumer, offsets, OFFSETS_MS)
        member.record("commit", offsets, invoke_ns, answered)
        return answered

    async def end(self, *, commit: bool) -> Ended:
        """Commit or abort, and write the transaction down."""
        identity = self.producer.identity
        ended = await self.producer.end(commit=commit, timeout_ms=END_MS)
        self._write(ended, identity)
        return ended

    def _write(self, ended: Ended, identity: tuple[int, int] | None) -> None:
        self._in_transaction = False
        if identity is None and len(self._identities) == 1:  # its client does not tell, but its answers do
            (identity,) = self._identities
        producer_id, producer_epoch = identity or (None, None)
        self.stage.errors[ended.error or "none"] += 1
        self.stage.sink.row(
            "txns",
            process=self.process,
            txn_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            begin_ns=self._begin_ns,
            end_ns=self.stage.now_ns() if ended.answered and ended.outcome != "info" else None,
            outcome=ended.outcome,
            operations=self._operations,
            timeout_ms=self._timeout_ms,
        )

    def _completed(self, value: int, delivery: Delivery) -> None:
        sent = self._open.pop(value, None)
        if sent is None:
            return
        if delivery.producer is not None:
            self._identities[delivery.producer] = None
        step = sent.step
        step["log_offset"] = delivery.log_offset
        self.stage.tally[-1, delivery.outcome] += 1
        self.stage.sink.row(
            "sends",
            process=self.process,
            worker_class=self.worker_class,
            topic=step["topic"],
            partition=step["partition"],
            value=value,
            key=sent.key,
            acks=-1,
            txn_id=self.transactional_id,
            invoke_ns=sent.invoke_ns,
            complete_ns=None if delivery.error == "unknown at the end" else self.stage.now_ns(),
            outcome=delivery.outcome,
            error=delivery.error,
            log_offset=delivery.log_offset,
            leader_epoch=delivery.leader_epoch,
            attempts=delivery.attempts,
            **answer_of(delivery),
        )

    async def close(self) -> None:
        """Give up what is under way, writing down that nobody knows."""
        await self.producer.close()
        for value in list(self._open):
            self._completed(value, Delivery("info", "unknown at the end", None, None, None))
        if self._in_transaction:
            self._write(Ended("info", answered=False, error="unknown at the end"), self.producer.identity)


class Member:
    """A consumer in a group: begins where the group's offsets say, commits as it goes."""

    def __init__(self, stage: Stage, process: int, settings: GroupSettings) -> None:
        self.stage = stage
        self.process = stage.first_process + process
        self.settings = settings
        self.consumer: GroupConsumer = self._join()
        self._log = PollLog(stage, process, "tail", settings.isolation)
        self._admin: Admin | None = None  # only who needs it asks for more than a group's own

    async def poll(self, max_records: int, timeout_ms: int) -> list[PartitionPoll]:
        """Stay in the group, begin with what was gained, and read."""
        invoke_ns = self.stage.now_ns()
        polls = await self.consumer.poll(max_records, timeout_ms)
        for poll in polls:
            self._log.record(poll, invoke_ns)
            if poll.error in OUT_OF_RANGE and not poll.records:
                await self._go_on_at_log_start(poll)
        if gained := self.consumer.gained():
            await self.begin(gained)
        return polls

    async def _go_on_at_log_start(self, poll: PartitionPoll) -> None:
        """Pass over what was deleted: no group says where reading goes on, neither before its first commit nor behind one.

        Who stands behind the end stays there: what it had read was lost, and the log may grow again.
        """
        if self._admin is None:
            self._admin = self.stage.clients.admin(f"member-{self.process}-offsets")
        (offsets,) = await self._admin.offsets([poll.partition], OFFSETS_MS)
        if offsets.log_start_offset is not None and offsets.log_start_offset > poll.position:
            self.consumer.start({poll.partition: offsets.log_start_offset})

    async def go_back(self, partitions: list[TopicPartition]) -> None:
        """Read these from the group's offsets on again, and nothing else before: what comes next lies behind."""
        while not await self.begin(partitions) and not self.stage.stopping.is_set():  # noqa: ASYNC110 - each look asks
            await asyncio.sleep(RETRY_MS / 1000)

    async def begin(self, partitions: list[TopicPartition]) -> bool:
        """Read these from the group's offsets on, or from the beginning; False when nobody says from where."""
        invoke_ns = self.stage.now_ns()
        answer = await self.consumer.committed(partitions, OFFSETS_MS)
        if answer.error is not None:
            self.record("fetch", dict.fromkeys(partitions), invoke_ns, Answered("info", answer.error))
            return False
        self.record("fetch", answer.offsets, invoke_ns, Answered("ok", None, answer.answered_by))
        self.consumer.start({partition: offset or 0 for partition, offset in answer.offsets.items()})
        return True

    async def commit(self, polls: list[PartitionPoll]) -> Answered:
        """Commit that these polls are done with."""
        offsets = ends(polls)
        if not offsets:
            return Answered("ok", None)
        invoke_ns = self.stage.now_ns()
        answered = await self.consumer.commit(offsets, OFFSETS_MS)
        self.record("commit", offsets, invoke_ns, answered)
        return answered

    def record(
        self, kind: str, offsets: Mapping[TopicPartition, int | None], invoke_ns: int, answered: Answered
    ) -> None:
        """Write a commit or a fetch down."""
        generation, member = self.consumer.membership
        for partition, offset in offsets.items():
            self.stage.sink.row(
                "commits",
                process=self.process,
                group=self.settings.group,
                generation=generation,
                member=member,
                topic=partition.topic,
                partition=partition.partition,
                kind=kind,
                committed_offset=offset,
                invoke_ns=invoke_ns,
                complete_ns=self.stage.now_ns(),
                outcome=answered.outcome,
                error=answered.error,
                answered_by=answered.answered_by,
            )

    def _join(self) -> GroupConsumer:
        return self.stage.clients.group_consumer(self.settings, f"member-{self.process}")

    async def leave(self) -> None:
        """Leave, and come back as a new member."""
        await self.consumer.close()
        self.consumer = self._join()

    async def close(self) -> None:
        """Leave."""
        await self.consumer.close()
        if self._admin is not None:
            await self._admin.close()


def ends(polls: list[PartitionPoll]) -> dict[TopicPartition, int]:
    """Return where polls that brought records end, by partition."""
    return {poll.partition: poll.records[-1].log_offset + 1 for poll in polls if poll.records}
