"""Operators order what operators order, beside any other workload: topics, partitions, records, settings, replicas, leaders, groups, producers.

The workload has topics of its own that come and go by the same names, with writers and a reader that take them as they are. All else is
ordered of every topic, group and transactional id that the cluster names, so that it happens to the other workloads of the run. Each order goes
into the table `admin`. Before the cluster is asked for progress the operators put settings back and create the topics that are missing.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from enum import StrEnum
from random import Random
from typing import Annotated, Final, TypeVar
from uuid import UUID

import msgspec

from tribunal.clusters.api import Acks, ClusterError, Operator, Order, OrderSeen, Refused, TopicPartition, TopicSeen
from tribunal.clusters.endings import side_by_side
from tribunal.clusters.orders import AGAIN, Orders, admin_row, named
from tribunal.results.admin_apis import PREFERRED, UNCLEAN, AdminApi
from tribunal.workloads.api import (
    Count,
    Reader,
    Several,
    Stage,
    WorkerPlan,
    Workload,
    create_topic,
    drawn_seed,
)
from tribunal.workloads.feeding import DELIVERY_TIMEOUT_MS, feed
from tribunal.workloads.kinds.produce_consume import OUT_OF_RANGE, POLL_MS, POLL_RECORDS, read_whole

# Of processes: a topic's users each time that it was created, then the operators.
FIRST_USER: Final = 1
USERS: Final = 3
FIRST_OPERATOR: Final = 801
WRITERS: Final[tuple[tuple[str, Acks, bool], ...]] = (("idempotent", -1, True), ("leader-only", 1, False))
ACTS_MAX: Final = 400  # of one operator: more than fit any run
OPERATORS_MAX: Final = 20  # each draws all of its acts beforehand
PARTITIONS_MAX: Final = 8
PUT_BACK_TRIES: Final = 5
PUT_BACK_MS: Final = 50_000  # then no further try begins: the run waits for twice as long
LOOKS: Final = 25  # for the newest topics, before the final read
LOOK_AGAIN_MS: Final = 200
Item = TypeVar("Item")
OFFSETS_MS: Final = 2_000


class Act(StrEnum):
    """What an operator does at a time."""

    CREATE_TOPIC = "create-topic"
    DELETE_TOPIC = "delete-topic"
    MAKE_ANEW = "make-anew"  # delete a topic and create it again at once
    ADD_PARTITIONS = "add-partitions"
    DELETE_RECORDS = "delete-records"
    CONFIGURE = "configure"
    REASSIGN = "reassign"
    CANCEL_REASSIGNMENT = "cancel-reassignment"
    ELECT_PREFERRED = "elect-preferred"
    ELECT_UNCLEAN = "elect-unclean"
    DELETE_GROUP = "delete-group"
    ALTER_OFFSET = "alter-offset"
    DELETE_OFFSET = "delete-offset"
    FENCE_PRODUCER = "fence-producer"
    DESCRIBE = "describe"


# How often each is done, in relation to the others.
SHARES: Final[Mapping[Act, int]] = {
    Act.CREATE_TOPIC: 6,
    Act.DELETE_TOPIC: 4,
    Act.MAKE_ANEW: 8,
    Act.ADD_PARTITIONS: 3,
    Act.DELETE_RECORDS: 14,
    Act.CONFIGURE: 16,
    Act.REASSIGN: 12,
    Act.CANCEL_REASSIGNMENT: 6,
    Act.ELECT_PREFERRED: 8,
    Act.ELECT_UNCLEAN: 6,
    Act.DELETE_GROUP: 3,
    Act.ALTER_OFFSET: 5,
    Act.DELETE_OFFSET: 3,
    Act.FENCE_PRODUCER: 4,
    Act.DESCRIBE: 3,
}
# Settings of topics, with values in both directions; None: back to the default.
SETTINGS: Final[tuple[tuple[str, tuple[str | None, ...]], ...]] = (
    ("min.insync.replicas", ("1", "2", "3", None)),
    ("unclean.leader.election.enable", ("true", "false", None)),
    ("retention.ms", ("1500", "600000", None)),
    ("segment.bytes", ("4096", "65536", None)),
)


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a scenario may say: topics of its own and their partitions, records per second, operators, what one rests between two orders."""

    topics: Several = 2
    partitions: Several = 2
    rate: Count = 40
    operators: Annotated[int, msgspec.Meta(ge=1, le=OPERATORS_MAX)] = (
        2  # it is they who see which topics there are to write to
    )
    pause_ms: Count = 500


class PlannedAct(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do, and the drawn fractions that choose of what there is at that moment: a topic or group, a partition, a value."""

    act: Act
    after_ms: int
    which: float
    partition: float
    value: float


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The workload with every choice made."""

    options: Options
    workers: tuple[WorkerPlan, ...]
    acts: tuple[tuple[PlannedAct, ...], ...]
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS


def plan(options: Options, random: Random) -> Plan:
    """Draw what operators do, and the workers' seeds."""
    workers = tuple(
        WorkerPlan(
            process=process,
            worker_class=worker_class,
            acks=acks,
            idempotent=idempotent,
            partitions=tuple(range(options.partitions)),
            rate_per_s=max(1, options.rate // (options.topics * len(WRITERS))),
            seed=drawn_seed(random),
        )
        for process, (worker_class, acks, idempotent) in enumerate(WRITERS * options.topics, start=1)
    )
    acts = tuple(_acts(options, random) for _ in range(options.operators))
    return Plan(options=options, workers=workers, acts=acts)


def _acts(options: Options, random: Random) -> tuple[PlannedAct, ...]:
    chosen = random.choices(list(SHARES), list(SHARES.values()), k=ACTS_MAX)
    return tuple(
        PlannedAct(
            act=act,
            after_ms=round(random.uniform(0.1, 1.9) * options.pause_ms),
            which=random.random(),
            partition=random.random(),
            value=random.random(),
        )
        for act in chosen
    )


def own_topics(chosen: Plan) -> list[str]:
    """Return the names of the topics that come and go."""
    return [f"operator-{number}" for number in range(chosen.options.topics)]


def partitions(chosen: Plan) -> list[TopicPartition]:
    """Return the partitions that its topics begin with."""
    return [
        TopicPartition(topic, number) for topic in own_topics(chosen) for number in range(chosen.options.partitions)
    ]


async def prepare(stage: Stage, chosen: Plan, replication_factor: int) -> None:
    """Create the topics."""
    admin = stage.clients.admin("topic-maker")
    try:
        for topic in own_topics(chosen):
            await create_topic(stage, admin, topic, chosen.options.partitions, replication_factor)
    finally:
        await admin.close()


async def run(stage: Stage, chosen: Plan) -> None:
    """Write, read and order until asked to stop."""
    own = {topic: _OwnTopic(stage, chosen, index) for index, topic in enumerate(own_topics(chosen))}
    operators = [_Operator(stage, chosen, number, own) for number in range(chosen.options.operators)]
    try:
        await side_by_side(operator.work() for operator in operators)
        await stage.stopping.wait()
        await asyncio.gather(*(topic.finish() for topic in own.values()))
    finally:
        for topic in own.values():
            await topic.leave()


class _OwnTopic:
    """A topic that comes and goes, and its users: each time others, so that it is known which topic of the name they meant.

    lock:  held by who orders something of it: an order is about the topic that there is.
    """

    def __init__(self, stage: Stage, chosen: Plan, index: int) -> None:
        self.name = own_topics(chosen)[index]
        self.lock = asyncio.Lock()
        self.topic_id: UUID | None = None
        self._former: dict[UUID, None] = {}
        self._stage = stage
        self._chosen = chosen
        self._index = index
        self._generation = 0
        self._writers: list[asyncio.Task[None]] = []
        self._reader: asyncio.Task[None] | None = None
        self._doubtful: list[OrderSeen] = []

    async def follow(self, topic_id: UUID) -> None:
        """Take note of what somebody says there is: perhaps still one that is gone."""
        if topic_id == self.topic_id or topic_id in self._former:
            return
        await self.close()
        self.topic_id = topic_id
        stage = self._stage.for_topic(self.name, str(topic_id))
        for seen in self._doubtful:  # they may be carried out yet, on this one
            again = msgspec.structs.replace(seen, topic_id=str(topic_id))
            stage.sink.row("admin", **admin_row(named(again, stage.names)))
        first = FIRST_USER + USERS * (self._generation * self._chosen.options.topics + self._index)
        if first + USERS <= FIRST_OPERATOR:
            self._begin(stage, first)
        self._generation += 1

    def _begin(self, stage: Stage, first: int) -> None:
        workers = self._chosen.workers[self._index * len(WRITERS) : (self._index + 1) * len(WRITERS)]
        for number, worker in enumerate(workers, start=first):
            again = msgspec.structs.replace(worker, process=number, seed=f"{worker.seed}/{self._generation}")
            self._writers.append(asyncio.create_task(feed(stage, self.name, again)))
        wanted = [TopicPartition(self.name, number) for number in range(self._chosen.options.partitions)]
        self._reader = asyncio.create_task(_follow(stage, first + len(WRITERS), wanted))

    def doubt(self, seen: OrderSeen) -> None:
        """Remember an order of which nobody knows whether and when it is carried out."""
        self._doubtful.append(seen)

    async def finish(self) -> None:
        """Let writers come to their ends, as they do when they are asked to stop."""
        await asyncio.gather(*self._writers)

    async def close(self) -> None:
        """End the users: the topic is gone, and what was acknowledged went with it."""
        await self.leave()
        for partition in [one for one in self._stage.acknowledged if one.topic == self.name]:
            del self._stage.acknowledged[partition]

    async def leave(self) -> None:
        """End the users; the topic stays, and the final read waits for what was acknowledged."""
        tasks = [*self._writers, *([] if self._reader is None else [self._reader])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._writers, self._reader = [], None
        if self.topic_id is not None:
            self._former[self.topic_id] = None
            self.topic_id = None
        for task in tasks:
            if not task.cancelled():
                task.result()  # what ended by itself with an error is a bug of ours


async def _follow(stage: Stage, process: int, wanted: list[TopicPartition]) -> None:
    """Read on as the log grows; from the log start on where it has not what comes next."""
    reader, admin = Reader(stage, process, "tail"), stage.clients.admin("operator-reader-offsets")
    try:
        reader.assign(dict.fromkeys(wanted, 0))
        while True:
            for poll in await reader.poll(POLL_RECORDS, POLL_MS):
                if poll.error in OUT_OF_RANGE and not poll.records:
                    (offsets,) = await admin.offsets([poll.partition], OFFSETS_MS)
                    if offsets.log_start_offset is not None:
                        reader.seek(poll.partition, offsets.log_start_offset)
    finally:
        await reader.close()
        await admin.close()


class _Operator:
    """One operator: does one thing at a time, and knows what it has to put back."""

    def __init__(self, stage: Stage, chosen: Plan, number: int, own: Mapping[str, _OwnTopic]) -> None:
        self._stage = stage
        self._chosen = chosen
        self._own = own
        self._acts = chosen.acts[number]
        self._process = stage.first_process + FIRST_OPERATOR + number
        self._operator = stage.clients.operator(f"operator-{number}")
        self._admin = stage.clients.admin(f"operator-{number}-offsets")
        self._topics: dict[str, TopicSeen] = {}
        self._orders = Orders(stage.now_ns, self._topic_ids)
        self._set: dict[tuple[str, str], None] = {}  # settings to put back
        self._replication_factor = 1

    def _topic_ids(self) -> dict[str, str]:
        """Return the ids of topics; of own ones as all operators know them, for another one may have made it anew meanwhile."""
        others = {name: str(seen.topic_id) for name, seen in self._topics.items() if name not in self._own}
        own = {name: str(one.topic_id) for name, one in self._own.items() if one.topic_id is not None}
        return others | own

    async def work(self) -> None:
        """Order one thing after another until it is time to put things back; do that."""
        ending = self._stage.operators.ending
        with self._stage.operators.at_work():
            try:
                for act in self._acts:
                    await _passed(ending, act.after_ms)
                    if ending.is_set():
                        break
                    await self._do(act)
                await ending.wait()
                await self._put_back()
            finally:
                await self._operator.close()
                await self._admin.close()

    async def _do(self, act: PlannedAct) -> None:
        try:
            await self._look()
            await self._act(act)
        except ClusterError as problem:
            self._stage.errors[f"{act.act}: {problem}"] += 1

    async def _look(self) -> None:
        """See what topics there are."""
        self._topics = await self._operator.topics()
        sizes = (len(replicas) for seen in self._topics.values() for replicas in seen.replicas.values())
        self._replication_factor = max(sizes, default=1)
        for name, own in self._own.items():
            async with own.lock:
                if name in self._topics:
                    await own.follow(self._topics[name].topic_id)

    async def _act(self, act: PlannedAct) -> None:
        match act.act:
            case Act.CREATE_TOPIC | Act.DELETE_TOPIC | Act.MAKE_ANEW:
                own = _picked(list(self._own.values()), act.which)
                async with own.lock:
                    await self._come_and_go(act, own)
            case Act.DELETE_GROUP | Act.ALTER_OFFSET | Act.DELETE_OFFSET:
                await self._act_on_group(act)
            case Act.FENCE_PRODUCER:
                await self._fence(act)
            case _:
                await self._act_on_topic(act)

    async def _come_and_go(self, act: PlannedAct, own: _OwnTopic) -> None:
        if act.act is not Act.CREATE_TOPIC:
            order = Order(api=AdminApi.DELETE_TOPIC, topic=own.name)
            await self._order(order, self._operator.delete_topic(own.name), own)
            await own.close()
        if act.act is not Act.DELETE_TOPIC and (own.topic_id is None or own.name not in self._topics):
            await self._create(own)

    async def _create(self, own: _OwnTopic) -> None:
        count, factor = self._chosen.options.partitions, self._replication_factor
        created: list[UUID] = []

        async def asked() -> None:
            created.append(await self._operator.create_topic(own.name, count, factor, {}))

        await self._order(Order(api=AdminApi.CREATE_TOPIC, topic=own.name), asked(), own, created)
        await own.follow(created[0])

    async def _act_on_topic(self, act: PlannedAct) -> None:
        topics = [name for name, seen in sorted(self._topics.items()) if self._is_there(name, seen)]
        if not topics:
            return
        topic = _picked(topics, act.which)
        partition = TopicPartition(topic, _picked(sorted(self._topics[topic].replicas), act.partition))
        own = self._own.get(topic)
        if own is None:
            await self._act_on_partition(act, partition, None)
            return
        async with own.lock:
            if self._is_there(topic, self._topics[topic]):
                await self._act_on_partition(act, partition, own)

    def _is_there(self, name: str, seen: TopicSeen) -> bool:
        """Whether a topic that was seen is there still, as far as operators know."""
        return name not in self._own or self._own[name].topic_id == seen.topic_id

    async def _act_on_partition(self, act: PlannedAct, partition: TopicPartition, own: _OwnTopic | None) -> None:
        (topic, number), operator = partition, self._operator
        match act.act:
            case Act.ADD_PARTITIONS:
                count = len(self._topics[topic].replicas) + 1
                order = Order(api=AdminApi.ADD_PARTITIONS, topic=topic, partition=count - 1)
                if count <= PARTITIONS_MAX:
                    await self._order(order, operator.add_partitions(topic, count), own)
            case Act.DELETE_RECORDS:
                offset = await self._offset_in(partition, act.value)
                order = Order(api=AdminApi.DELETE_RECORDS, topic=topic, partition=number, log_offset=offset)
                await self._order(order, operator.delete_records(partition, offset), own)
            case Act.CONFIGURE:
                name, values = _picked(SETTINGS, act.partition)
                await self._set_config(topic, name, _picked(values, act.value), own)
            case Act.REASSIGN | Act.CANCEL_REASSIGNMENT:
                replicas = self._other_replicas(partition, act.value) if act.act is Act.REASSIGN else []
                order = Order(api=AdminApi.REASSIGN, topic=topic, partition=number)
                await self._order(order, operator.reassign(partition, replicas), own)
            case Act.ELECT_PREFERRED:
                await self._order(_election(partition, PREFERRED), operator.elect(partition, "preferred"), own)
            case Act.ELECT_UNCLEAN:
                await self._order(_election(partition, UNCLEAN), operator.elect(partition, "unclean"), own)
            case _:
                await operator.describe_producers(partition)

    async def _set_config(self, topic: str, name: str, value: str | None, own: _OwnTopic | None) -> None:
        self._set[topic, name] = None
        order = Order(api=AdminApi.SET_CONFIG, topic=topic, setting=name, value=value)
        await self._order(order, self._operator.set_topic_config(topic, name, value), own)

    def _other_replicas(self, partition: TopicPartition, fraction: float) -> list[int]:
        """Return as many replicas as the partition has, others or the same in another order."""
        brokers = sorted({node for seen in self._topics.values() for one in seen.replicas.values() for node in one})
        own = self._topics[partition.topic].replicas[partition.partition]
        Random(f"{fraction}/{partition}").shuffle(brokers)
        return brokers[: len(own)]

    async def _offset_in(self, partition: TopicPartition, fraction: float) -> int:
        """Return an offset between log start and end."""
        (offsets,) = await self._admin.offsets([partition], OFFSETS_MS)
        if offsets.log_start_offset is None or offsets.latest_offset is None:
            raise Refused(f"{partition} has no offsets: {offsets.error}")
        return offsets.log_start_offset + round(fraction * (offsets.latest_offset - offsets.log_start_offset))

    async def _act_on_group(self, act: PlannedAct) -> None:
        groups = await self._operator.groups()
        topics = [name for name in sorted(self._topics) if name not in self._own]
        if not groups or not topics:
            return
        group, topic = _picked(groups, act.which), _picked(topics, act.partition)
        number = _picked(sorted(self._topics[topic].replicas), act.partition)
        partition = TopicPartition(topic, number)
        match act.act:
            case Act.DELETE_GROUP:
                order = Order(api=AdminApi.DELETE_GROUP, group=group)
                await self._order(order, self._operator.delete_group(group))
            case Act.ALTER_OFFSET:
                offset = await self._offset_in(partition, act.value)
                order = Order(api=AdminApi.ALTER_OFFSET, group=group, topic=topic, partition=number, log_offset=offset)
                await self._order(order, self._operator.alter_offset(group, partition, offset))
            case _:
                order = Order(api=AdminApi.DELETE_OFFSET, group=group, topic=topic, partition=number)
                await self._order(order, self._operator.delete_offset(group, partition))

    async def _fence(self, act: PlannedAct) -> None:
        known = await self._operator.transactional_ids()
        if not known:
            return
        transactional_id = _picked(known, act.which)
        await self._operator.describe_transaction(transactional_id)
        order = Order(api=AdminApi.FENCE_PRODUCER, value=transactional_id)
        await self._order(order, self._operator.fence_producer(transactional_id))

    async def _order(
        self, order: Order, asked: Awaitable[None], own: _OwnTopic | None = None, created: Sequence[UUID] = ()
    ) -> None:
        """Order something and write it down.

        own:      the own topic that it is about.
        created:  the id of the topic that it created, once it did.
        """
        try:
            async with self._orders.given(order):
                await asked
        finally:
            for seen in self._orders.drain():
                whole = msgspec.structs.replace(seen, topic_id=str(created[0])) if created else seen
                self._write(whole, own)
                if whole.outcome == "ok" and self._operator.left_in_doubt:
                    self._write(msgspec.structs.replace(whole, outcome="info", error=AGAIN, complete_ns=None), own)

    def _write(self, seen: OrderSeen, own: _OwnTopic | None) -> None:
        if own is not None and seen.outcome == "info":
            own.doubt(seen)
        self._stage.sink.row("admin", process=self._process, **admin_row(named(seen, self._stage.names)))

    async def _put_back(self) -> None:
        """Take settings back and create what is missing, so that the cluster owes what it owed at the beginning.

        What cannot be done keeps nothing else from it: a topic may be there, and the broker that was asked does not know it yet.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + PUT_BACK_MS / 1000
        for number in range(PUT_BACK_TRIES):
            if loop.time() > deadline_s:
                return
            if number:
                await asyncio.sleep(LOOK_AGAIN_MS / 1000)
            if not await self._is_done(self._look()):
                continue
            done = [await self._is_done(self._create_missing(name, own)) for name, own in self._own.items()]
            for topic, name in [one for one in self._set if one[0] in self._topics]:
                done.append(await self._is_done(self._set_config(topic, name, None, self._own.get(topic))))
            if all(done):
                return

    async def _create_missing(self, name: str, own: _OwnTopic) -> None:
        async with own.lock:
            if own.topic_id is None or name not in self._topics:
                await self._create(own)

    async def _is_done(self, work: Awaitable[None]) -> bool:
        """Do a part of putting things back; False where the cluster refuses it, or answers nothing."""
        try:
            await work
        except ClusterError as problem:
            self._stage.errors[f"put back: {problem}"] += 1
            return False
        return True


def _election(partition: TopicPartition, kind: str) -> Order:
    return Order(api=AdminApi.ELECT_LEADERS, topic=partition.topic, partition=partition.partition, value=kind)


def _picked(items: Sequence[Item], fraction: float) -> Item:
    return items[int(fraction * len(items))]


async def _passed(ending: asyncio.Event, duration_ms: int) -> None:
    """Let time pass, or the sign be given."""
    try:
        async with asyncio.timeout(duration_ms / 1000):
            await ending.wait()
    except TimeoutError:
        pass


async def read_to_end(stage: Stage, chosen: Plan, timeout_ms: int) -> list[TopicPartition]:
    """Read what there is of its topics."""
    operator = stage.clients.operator("operator-final-read")
    try:
        await _topics_are_known(operator, stage, own_topics(chosen))
    finally:
        await operator.close()
    for topic in own_topics(chosen):
        topic_id = stage.names.newest(topic)
        if topic_id is not None:
            stage = stage.for_topic(topic, topic_id)
    return await read_whole(stage, partitions(chosen), timeout_ms)


async def _topics_are_known(operator: Operator, stage: Stage, wanted: Sequence[str]) -> None:
    """Wait until a broker has what was decided of topics; one that was deleted for good is in no answer, and costs the wait.

    A broker that lags lacks a topic that was just made, or has a former one of its name.
    """
    for _ in range(LOOKS):
        try:
            topics = await operator.topics()
        except ClusterError as problem:
            stage.errors[f"look: {problem}"] += 1
        else:
            known = {name: str(seen.topic_id) for name, seen in topics.items()}
            if all(known.get(name) == stage.names.newest(name) for name in wanted):
                return
        await asyncio.sleep(LOOK_AGAIN_MS / 1000)


def written_throughout(chosen: Plan) -> list[TopicPartition]:
    """Return nothing: its topics may be gone."""
    return []


WORKLOAD: Final = Workload(
    options=Options,
    chosen=Plan,
    plan=plan,
    partitions=partitions,
    prepare=prepare,
    run=run,
    read_to_end=read_to_end,
    written_throughout=written_throughout,
)
