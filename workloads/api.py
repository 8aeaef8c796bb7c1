"""What a workload is: users of the log, written as what they do. Read this first.

A workload is one module of `tribunal.workloads.kinds`; the module's name is its name on the command line. It exports one value,
`WORKLOAD = Workload(options=Options, chosen=Plan, plan=plan, ...)`. `Options` is a msgspec Struct of what a scenario may say,
`plan(options, random)` draws everything random beforehand, `run(stage, plan)` starts workers and readers on a `Stage`. A
workload never sees sockets, containers or the simulator; the stage gives it clients, the clock and the recording, and tells it
when to stop. What several workloads share lies beside this page.

Every record's value is `(process << 40) | sequence`: it says who sent it and which it was.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from random import Random
from typing import Annotated, Final, Generic, Literal, Protocol, TypeVar

import msgspec

from tribunal.clusters.api import (
    Acks,
    Admin,
    ClientFactory,
    Delivery,
    Offsets,
    Order,
    PartitionPoll,
    Producer,
    ProducerSettings,
    TopicPartition,
)
from tribunal.clusters.clock import ago_ns
from tribunal.clusters.objects import ObjectOperation
from tribunal.clusters.orders import Orders, admin_row
from tribunal.clusters.spec import Settings
from tribunal.results.admin_apis import AdminApi
from tribunal.results.topic_names import TopicNames
from tribunal.results.values import VALUE_BYTES, value_in, value_of
from tribunal.workloads.sent import SentRecords

CREATE_TIMEOUT_MS: Final = 15_000
PROCESSES: Final = 1_000  # that a workload has at most
USERS_MAX: Final = 800  # those of a group have numbers from 101 on
READERS_MAX: Final = 50
STATEMENT_POLLS: Final = 20  # until the producer must have reported its epochs again
STATEMENT_POLL_MS: Final = 50
OF_ANOTHER_TOPIC: Final = "a deleted topic of that name answered, or a later one"
IN_FLIGHT_MAX: Final = 2_000  # a worker's: while nothing gets through it waits instead of piling up

# What options are made of: a scenario that says otherwise is refused before anything starts.
Count = Annotated[int, msgspec.Meta(ge=1)]
Number = Annotated[int, msgspec.Meta(ge=0)]
# Of what there is one of each at once, drawn and held in memory: partitions, processes, keys. Their products are as well.
Several = Annotated[int, msgspec.Meta(ge=1, le=PROCESSES)]
# Who has a process number: behind these come readers from 901 on, who asks for offsets (951), and the final readers (998, 999).
Users = Annotated[int, msgspec.Meta(ge=1, le=USERS_MAX)]
Readers = Annotated[int, msgspec.Meta(ge=0, le=READERS_MAX)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]


class Sink(Protocol):
    """The recording, as far as a workload writes it."""

    def row(self, table: str, **columns: object) -> None:
        """Record one fact."""


class Operators:
    """Who orders what operators order, and the sign to put things back: then the cluster alone is asked for progress."""

    def __init__(self) -> None:
        self.ending = asyncio.Event()  # no new orders from now on
        self._at_work = 0

    @property
    def are_done(self) -> bool:
        """Whether nobody orders anything any more."""
        return self._at_work == 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Be somebody who orders."""
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1


class Stage:
    """What a workload stands on during one run: clients, clock, recording, and the sign to stop.

    log_append_time:  brokers stamp its topics' records (message.timestamp.type).
    """

    def __init__(
        self,
        *,
        clients: ClientFactory,
        sink: Sink,
        now_ns: Callable[[], int],
        log_append_time: bool = False,
        names: TopicNames | None = None,
    ) -> None:
        self.clients = clients
        self.sink = sink
        self.now_ns = now_ns
        self.sent = SentRecords(log_append_time=log_append_time)
        self.stopping = asyncio.Event()  # no new records from now on
        self.tally: Counter[tuple[int, str]] = Counter()  # completed sends by (acks, outcome)
        self.errors: Counter[str] = Counter()
        self.reads: Counter[TopicPartition] = Counter()
        self.operators = Operators()
        self.first_process = 0
        self.names = names if names is not None else TopicNames()
        self._topics: Mapping[
            str, str
        ] = {}  # ids of those that its users mean, where they mean one of several of a name
        # The last offset that anybody's send was acknowledged at, by partition.
        self.acknowledged: dict[TopicPartition, int] = {}

    def beside(self, index: int) -> "Stage":
        """Return the same stage for the workload of that index: processes with numbers of their own, all else in common."""
        stage = copy(self)
        stage.first_process = PROCESSES * index
        return stage

    def for_topic(self, topic: str, topic_id: str) -> "Stage":
        """Return the same stage for users of this topic alone, whatever other ones of its name there were or will be."""
        stage = copy(self)
        stage._topics = {**self._topics, topic: topic_id}
        stage.names.of(topic, topic_id)
        return stage

    def asked_ns(self, moment_s: float | None) -> int | None:
        """Return, by the run's clock, when something was asked for that the event loop's clock has a time of."""
        return None if moment_s is None else self.now_ns() - ago_ns(moment_s)

    def answered_ns(self, offsets: Offsets) -> int:
        """Return, by the run's clock, when an answer had come."""
        age_ns = offsets.age_ns()  # before the clock is read: it must never seem to have come earlier than it did
        return self.now_ns() - age_ns

    def is_of_another(self, topic: str, topic_id: str | None) -> bool:
        """Whether who answered did so for another topic than the one of this name that its users mean; None: nobody knows."""
        return topic_id is not None and self._topics.get(topic, topic_id) != topic_id

    def recorded(self, topic: str, topic_id: str | None = None) -> str:
        """Return the name under which the recording has a topic: the one that was answered for, else the one that its users mean."""
        if self.is_of_another(topic, topic_id):
            return self.names.of(topic, topic_id)
        return self.names.of(topic, self._topics.get(topic))


async def create_topic(stage: Stage, admin: Admin, topic: str, partitions: int, replication_factor: int) -> None:
    """Create a topic and write the order down; the metadata has its id."""
    orders = Orders(stage.now_ns, dict)
    try:
        async with orders.given(Order(api=AdminApi.CREATE_TOPIC, topic=topic)):
            await admin.create_topic(topic, partitions, replication_factor, CREATE_TIMEOUT_MS)
    finally:
        for seen in orders.drain():
            stage.sink.row("admin", **admin_row(seen))


class LoadOptions(Protocol):
    """What every workload's options have."""

    @property
    def partitions(self) -> int:
        """How many partitions its first topic has: targets of faults name them."""


class LoadPlan(Protocol):
    """What every workload's plan has."""

    @property
    def delivery_timeout_ms(self) -> int:
        """How long its last sends may take once it is asked to stop."""


Options = TypeVar("Options", bound=LoadOptions)
Chosen = TypeVar("Chosen", bound=LoadPlan)


class Workload(msgspec.Struct, Generic[Options, Chosen], frozen=True, kw_only=True):
    """One workload: what a scenario may say of it, how it is drawn, what it does.

    options:             what a scenario may say.
    chosen:              the workload with every choice made; it goes into plan.json.
    plan:                draws all that is random.
    partitions:          all its partitions, those of the topic that targets of faults mean first.
    prepare:             creates topics, with this replication factor.
    run:                 goes on until `stage.stopping` is set; returns when every send's fate is written down.
    read_to_end:         reads everything within so many ms, after all is quiet; returns the partitions not read to their ends.
    operations:          what it calls on objects, by its options; None: it is a workload of a log's records.
    refused:             says why nodes with these settings refuse what the options ask for; None: they grant all of it.
    promised:            tables of the recording that it fills whatever happens, besides those of every run.
    sends:               which of the messages of `clusters/requested.py`, that only some clients send, are sent because of it; None: it does not say.
    written_throughout:  partitions written as long as the run lasts by somebody who gets answers; None: all of them.
    """

    options: type[Options]
    chosen: type[Chosen]
    plan: Callable[[Options, Random], Chosen]
    partitions: Callable[[Chosen], list[TopicPartition]]
    prepare: Callable[[Stage, Chosen, int], Awaitable[None]]
    run: Callable[[Stage, Chosen], Coroutine[object, None, None]]
    read_to_end: Callable[[Stage, Chosen, int], Awaitable[list[TopicPartition]]]
    operations: Callable[[Options], frozenset[ObjectOperation]] | None = None
    refused: Callable[[Options, Settings], str | None] | None = None
    promised: tuple[str, ...] = ()
    sends: frozenset[str] | None = None
    written_throughout: Callable[[Chosen], list[TopicPartition]] | None = None

    def refused_by(self, given: Mapping[str, object], settings: Settings) -> str | None:
        """Say why nodes with these settings refuse what these options ask for; None: they grant all of it."""
        return None if self.refused is None else self.refused(msgspec.convert(given, self.options), settings)

    def called(self, given: Mapping[str, object]) -> frozenset[ObjectOperation] | None:
        """Return what it calls on objects with these options; None: it sends and reads records."""
        return None if self.operations is None else self.operations(msgspec.convert(given, self.options))

    def drawn(self, given: Mapping[str, object], random: Random) -> dict[str, object]:
        """Return the workload with every choice made, from options as a scenario has them, as plan.json has it."""
        plan: dict[str, object] = msgspec.to_builtins(self.plan(msgspec.convert(given, self.options), random))
        return plan

    def load(self, plan: Mapping[str, object]) -> "Load":
        """Return what a plan of plan.json means."""
        return _Chosen(self, msgspec.convert(plan, self.chosen))


class AnyWorkload(Protocol):
    """A workload, whatever its options and its plan are."""

    @property
    def options(self) -> type[LoadOptions]:
        """What a scenario may say."""

    @property
    def promised(self) -> tuple[str, ...]:
        """Tables of the recording that it fills whatever happens."""

    @property
    def sends(self) -> frozenset[str] | None:
        """Which of the messages that only some clients send are sent because of it; None: it does not say."""

    def refused_by(self, given: Mapping[str, object], settings: Settings) -> str | None:
        """Say why nodes with these settings refuse what these options ask for; None: they grant all of it."""

    def called(self, given: Mapping[str, object]) -> frozenset[ObjectOperation] | None:
        """Return what it calls on objects with these options; None: it sends and reads records."""

    def drawn(self, given: Mapping[str, object], random: Random) -> dict[str, object]:
        """Return the workload with every choice made, from options as a scenario has them, as plan.json has it."""

    def load(self, plan: Mapping[str, object]) -> "Load":
        """Return what a plan of plan.json means."""


class Load(Protocol):
    """A workload with its plan; see `Workload`."""

    @property
    def delivery_timeout_ms(self) -> int:
        """How long its last sends may take once it is asked to stop."""

    def partitions(self) -> list[TopicPartition]:
        """Return all its partitions."""

    def written_throughout(self) -> list[TopicPartition]:
        """Return the partitions that have to make progress."""

    def prepare(self, stage: Stage, replication_factor: int) -> Awaitable[None]:
        """Create topics."""

    def run(self, stage: Stage) -> Coroutine[object, None, None]:
        """Go on until asked to stop."""

    def read_to_end(self, stage: Stage, timeout_ms: int) -> Awaitable[list[TopicPartition]]:
        """Read everything; return what was not read to its end."""


class _Chosen(Generic[Options, Chosen]):
    """A workload and its plan."""

    def __init__(self, workload: Workload[Options, Chosen], plan: Chosen) -> None:
        self._workload = workload
        self._plan = plan

    @property
    def delivery_timeout_ms(self) -> int:
        return self._plan.delivery_timeout_ms

    def partitions(self) -> list[TopicPartition]:
        return self._workload.partitions(self._plan)

    def written_throughout(self) -> list[TopicPartition]:
        return (self._workload.written_throughout or self._workload.partitions)(self._plan)

    def prepare(self, stage: Stage, replication_factor: int) -> Awaitable[None]:
        return self._workload.prepare(stage, self._plan, replication_factor)

    def run(self, stage: Stage) -> Coroutine[object, None, None]:
        return self._workload.run(stage, self._plan)

    def read_to_end(self, stage: Stage, timeout_ms: int) -> Awaitable[list[TopicPartition]]:
        return self._workload.read_to_end(stage, self._plan, timeout_ms)


class WorkerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One producing process, drawn beforehand.

    records_max:  how many it produces, then it rests until the end; None: as long as the run lasts.
    """

    process: Number
    worker_class: str
    acks: Acks
    idempotent: bool
    partitions: Annotated[tuple[Number, ...], msgspec.Meta(min_length=1)]
    rate_per_s: Count
    seed: str
    records_max: Number | None = None
    batches_in_flight: Count = 1


def drawn_seed(random: Random) -> str:
    """Draw a seed for somebody of a plan, as 16 hexadecimal digits."""
    return f"{random.getrandbits(64):016x}"


def idempotent_workers(count: int, partition_count: int, rate_per_s: int, random: Random) -> tuple[WorkerPlan, ...]:
    """Draw idempotent workers that share a rate and write to all partitions."""
    return tuple(
        WorkerPlan(
            process=process,
            worker_class="idempotent",
            acks=-1,
            idempotent=True,
            partitions=tuple(range(partition_count)),
            rate_per_s=max(1, rate_per_s // count),
            seed=drawn_seed(random),
        )
        for process in range(1, count + 1)
    )


class _Sent(msgspec.Struct, frozen=True):
    """A record under way."""

    partition: TopicPartition
    value: int
    key: str
    invoke_ns: int


class Worker:
    """A producing process: writes down each send once its fate is known, and at the end what is still open."""

    def __init__(self, stage: Stage, plan: WorkerPlan, *, delivery_timeout_ms: int, request_timeout_ms: int) -> None:
        self.stage = stage
        self.plan = plan
        settings = ProducerSettings(
            acks=plan.acks,
            idempotent=plan.idempotent,
            delivery_timeout_ms=delivery_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            batches_in_flight=plan.batches_in_flight,
        )
        self.process = stage.first_process + plan.process
        self._producer: Producer = stage.clients.producer(settings, f"worker-{self.process}")
        self._sequence = 0
        self._open: dict[int, _Sent] = {}
        self._undecided: list[tuple[_Sent, Delivery, int]] = []
        self._epochs = 1
        self._begun_ns = -1  # when the last epoch but the first was reported
        self._statements = 0
        if self._states_epochs:
            self._producer.on_epochs = self._record_decided  # type: ignore[attr-defined]

    @property
    def in_flight(self) -> int:
        """How many sends have no known fate yet."""
        return len(self._open)

    def produce(self, partition: TopicPartition, key: str) -> None:
        """Offer the next value."""
        value = value_of(self.process, self._sequence)
        self._sequence += 1
        self._open[value] = _Sent(partition, value, key, self.stage.now_ns())
        timestamp_ms = self._producer.send(
            partition, key.encode(), value.to_bytes(VALUE_BYTES), lambda delivery: self._completed(value, delivery)
        )
        self.stage.sent.note(value, key.encode(), timestamp_ms)

    def _completed(self, value: int, delivery: Delivery) -> None:
        sent = self._open.pop(value, None)
        if sent is None:
            return
        if self._states_epochs:
            self._undecided.append((sent, delivery, self.stage.now_ns()))
        else:
            self._record(sent, delivery, self.stage.now_ns())

    @property
    def _states_epochs(self) -> bool:
        return bool(getattr(self._producer, "states_epochs", False))

    def _record_decided(self, epochs: int, identity: tuple[int, int] | None = None) -> None:
        """Write down what completed since the producer last said how many epochs it has had.

        librdkafka begins a new epoch by itself when a batch was refused behind one that had failed, or when a record
        timed out; then it sends again what was in doubt anywhere, with sequences that no broker can know. Such a record may
        stand twice by the client's own doing: its class says so. It was sent before the new epoch was reported.

        identity:  producer id and epoch now; which of two it was in between is not known.
        """
        self._statements += 1
        if epochs > self._epochs:
            self._epochs, self._begun_ns, identity = epochs, self.stage.now_ns(), None
        decided, self._undecided = self._undecided, []
        for sent, delivery, complete_ns in decided:
            was_in_doubt = sent.invoke_ns <= self._begun_ns
            worker_class = f"reset-{self.plan.worker_class}" if was_in_doubt else None
            self._record(sent, delivery._replace(producer=delivery.producer or identity), complete_ns, worker_class)

    def _record(
        self, sent: _Sent, delivery: Delivery, complete_ns: int | None, worker_class: str | None = None
    ) -> None:
        self.stage.tally[self.plan.acks, delivery.outcome] += 1
        if delivery.error is not None:
            self.stage.errors[delivery.error] += 1
        is_of_another = self.stage.is_of_another(sent.partition.topic, delivery.topic_id)
        if delivery.outcome == "ok" and delivery.log_offset is not None and not is_of_another:
            known = self.stage.acknowledged.get(sent.partition, -1)
            self.stage.acknowledged[sent.partition] = max(known, delivery.log_offset)
        self.stage.sink.row(
            "sends",
            process=self.process,
            worker_class=worker_class or self.plan.worker_class,
            topic=self.stage.recorded(sent.partition.topic, delivery.topic_id),
            partition=sent.partition.partition,
            value=sent.value,
            key=sent.key,
            acks=self.plan.acks,
            invoke_ns=sent.invoke_ns,
            complete_ns=complete_ns,
            outcome=delivery.outcome,
            error=delivery.error,
            log_offset=delivery.log_offset,
            leader_epoch=delivery.leader_epoch,
            attempts=delivery.attempts,
            **answer_of(delivery),
        )

    async def finish(self, timeout_ms: int) -> None:
        """Let what is under way arrive, then give up the rest; every send has its row afterwards."""
        await self._producer.flush(timeout_ms)
        reported = self._statements
        for _ in range(STATEMENT_POLLS if self._states_epochs else 0):
            if self._statements > reported:
                break
            await asyncio.sleep(STATEMENT_POLL_MS / 1000)
        await self.close()

    async def close(self) -> None:
        """Give up what is under way: nobody will ever know, so it is `info` without a completion."""
        await self._producer.close()
        # The producer can have begun a new epoch that it did not report before it was closed.
        self._record_decided(self._epochs + 1 if self._undecided else self._epochs)
        while self._open:
            _, sent = self._open.popitem()
            self._record(sent, Delivery("info", "unknown at the end", None, None, None), None)


def answer_of(delivery: Delivery) -> dict[str, int | None]:
    """Return the columns of `sends` that say who answered and which producer it was."""
    producer_id, producer_epoch = delivery.producer or (None, None)
    return {"answered_by": delivery.answered_by, "producer_id": producer_id, "producer_epoch": producer_epoch}


Phase = Literal["tail", "final"]
STRAY: Final = "stray"  # the phase of a poll that another topic of the name answered
Isolation = Literal["read_uncommitted", "read_committed"]


class PollLog:
    """Writes down a reading process's polls, every record and the watermarks that came along."""

    def __init__(self, stage: Stage, process: int, phase: Phase, isolation: Isolation) -> None:
        self.stage = stage
        self.process = stage.first_process + process
        self.phase = phase
        self.isolation = isolation
        self._poll_index = 0

    def record(self, poll: PartitionPoll, invoke_ns: int) -> None:
        """Record one partition's part of a poll, and the watermarks that came with it."""
        now_ns = self.stage.now_ns()
        self._record_poll(poll, invoke_ns, now_ns)
        if poll.high_watermark is not None:
            self._record_watermark(poll, now_ns)

    def record_closing(self, poll: PartitionPoll, invoke_ns: int) -> None:
        """Record the poll that closes a final read: what it says of the end was heard, and recorded, before."""
        self._record_poll(poll, invoke_ns, self.stage.now_ns())

    def _record_poll(self, poll: PartitionPoll, invoke_ns: int, now_ns: int) -> None:
        is_stray = self.stage.is_of_another(poll.partition.topic, poll.topic_id)
        topic, partition = self.stage.recorded(poll.partition.topic, poll.topic_id), poll.partition.partition
        phase = STRAY if is_stray else self.phase
        self.stage.reads[poll.partition] += 0 if is_stray else len(poll.records)
        self.stage.sink.row(
            "polls",
            process=self.process,
            poll_index=self._poll_index,
            topic=topic,
            partition=partition,
            isolation=self.isolation,
            phase=phase,
            position=poll.position,
            invoke_ns=invoke_ns,
            complete_ns=now_ns,
            outcome="fail" if poll.error else "ok",
            error=poll.error,
            record_count=len(poll.records),
            high_watermark=None if self._is_hearsay(poll) else poll.high_watermark,
            last_stable_offset=poll.last_stable_offset,
            log_start_offset=poll.log_start_offset,
            answered_by=poll.answered_by,
            leader_epoch=poll.leader_epoch,
        )
        for record in poll.records:
            value = value_in(record.value)
            self.stage.sink.row(
                "reads",
                process=self.process,
                poll_index=self._poll_index,
                topic=topic,
                partition=partition,
                log_offset=record.log_offset,
                value=value,
                leader_epoch=record.leader_epoch,
                phase=phase,
                content=self.stage.sent.difference(value, record),
            )
        self._poll_index += 1

    def _is_hearsay(self, poll: PartitionPoll) -> bool:
        """Return whether only a client says that this is the end.

        It says so of what its broker shows, and a new leader may show an old end, below min ISR for long (KIP-207). A final
        read has come to the end where the leader states that: its workload says so with a poll of its own.
        """
        known_by_client = self.phase == "final" and not poll.records and poll.next_position is not None
        return known_by_client and poll.position >= (poll.high_watermark or 0)

    def _record_watermark(self, poll: PartitionPoll, at_ns: int) -> None:
        self.stage.sink.row(
            "watermarks",
            observer=f"client-{self.process}",
            source="fetch",
            topic=self.stage.recorded(poll.partition.topic, poll.topic_id),
            partition=poll.partition.partition,
            leader_epoch=poll.leader_epoch,
            answered_by=poll.answered_by,
            high_watermark=poll.high_watermark,
            last_stable_offset=poll.last_stable_offset,
            log_start_offset=poll.log_start_offset,
            at_ns=at_ns,
            asked_ns=self.stage.asked_ns(poll.asked_s),
        )


class Reader:
    """A reading process of partitions given by hand: writes down what it gets."""

    def __init__(
        self,
        stage: Stage,
        process: int,
        phase: Phase,
        isolation: Isolation = "read_uncommitted",
        *,
        finds_end: bool = False,
    ) -> None:
        self.stage = stage
        self._log = PollLog(stage, process, phase, isolation)
        self._consumer = stage.clients.consumer(f"reader-{self._log.process}", isolation, finds_end=finds_end)
        self._positions: dict[TopicPartition, int] = {}

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on."""
        self._positions = dict(positions)
        self._consumer.assign(positions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read one partition from another offset on, and the others from where they are."""
        self._positions[partition] = offset
        self._consumer.assign(self._positions)

    async def poll(self, max_records: int, timeout_ms: int) -> list[PartitionPoll]:
        """Poll once and record it; what another topic of the name answered is recorded as that one's, and asked for again.

        A broker that has not heard of a topic's deletion serves it on, and offsets of the one are none of the other.
        """
        invoke_ns = self.stage.now_ns()
        polls = await self._consumer.poll(max_records, timeout_ms)
        for poll in polls:
            self._log.record(poll, invoke_ns)
        own = [poll for poll in polls if not self.stage.is_of_another(poll.partition.topic, poll.topic_id)]
        for poll in own:
            self._positions[poll.partition] = _read_on(poll)
        if len(own) < len(polls):
            self.stage.errors[OF_ANOTHER_TOPIC] += 1
            self._consumer.assign(self._positions)
            await asyncio.sleep(timeout_ms / 1000)
        return own

    def record_closing(self, poll: PartitionPoll, invoke_ns: int) -> None:
        """Record the poll that brought nothing, at the end that the leader stated."""
        self._log.record_closing(poll, invoke_ns)

    async def close(self) -> None:
        """Release everything."""
        await self._consumer.close()


def _read_on(poll: PartitionPoll) -> int:
    """Return from where its reader goes on."""
    behind = poll.records[-1].log_offset + 1 if poll.records else poll.position
    return max(behind, poll.next_position or 0)
