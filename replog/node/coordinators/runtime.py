"""Coordinators at work: each leads one partition of an internal topic, is loaded from it and writes to it.

A core says what to write and what to answer; here the batch is appended with acks=all, and the core is notified when
the high watermark has passed it, in the order of the log. When leadership ends, everybody who waits is sent to look for
the next coordinator, and the core is dropped: what becomes of its unfinished writes only the next leader knows.

Loading reads the log up to its end at the election and waits for the high watermark to get there: a record that is not
committed may not be shown to anyone.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Generic, Protocol, TypeVar, cast

import msgspec

from replog.broker.purgatory import DelayedProduce, ProduceResult
from replog.coordinators.coordinated_partitions import CoordinatedPartition, CoordinatedPartitions
from replog.coordinators.events import (
    AnyRequest,
    Effect,
    NotWritten,
    Now,
    Reply,
    Request,
    SendMarkers,
    Token,
    Write,
    Written,
)
from replog.coordinators.placement import partition_for
from replog.errors import Error
from replog.log.batch import (
    TRANSACTIONAL,
    BatchHeader,
    ControlType,
    NewRecord,
    batches,
    build,
    end_transaction,
    records,
)
from replog.log.log import Appended
from replog.log.validation import Origin
from replog.node.fault_injection_points import linger
from replog.node.net.server import AwaitedRequest, Caller, Q, R
from replog.node.replication.replicas import Replica, Replicas
from replog.node.tasks import Tasks
from replog.ports import Buffer
from replog.wire.decoder import MalformedMessage
from replog.wire.error_codes import errors_in
from replog.wire.messages.produce import TopicProduceData

LOAD_BYTES: Final = 1 << 20
RECOVERY_POLL_MS: Final = 50
GATHERED_BYTES_MAX: Final = 256 * 1024  # well below what a batch may have
NEVER_MS: Final = 1 << 50  # nobody looks: what a coordinator waits for has no deadline
NO_TOPIC: Final = TopicProduceData()

# Errors that well-behaved clients meet all the time; others are worth a line.
ROUTINE: Final = (
    *(Error.NONE, Error.MEMBER_ID_REQUIRED, Error.REBALANCE_IN_PROGRESS, Error.CONCURRENT_TRANSACTIONS),
    *(Error.UNSTABLE_OFFSET_COMMIT, Error.COORDINATOR_LOAD_IN_PROGRESS),
)
NAMED: Final = (
    *("group_id", "member_id", "group_instance_id", "generation_id", "generation_id_or_member_epoch"),
    *("instance_id", "member_epoch", "transactional_id", "producer_id", "producer_epoch"),
)

Asked = TypeVar("Asked", bound=msgspec.Struct | str)  # a request, a part of one, or the name of a group


class Core(Protocol):
    """What groups' and transactions' coordinators have in common."""

    @property
    def next_ms(self) -> int | None:
        """When `on_tick` is worth calling next."""

    def replay(self, key: Buffer, value: Buffer | None, log_offset: int, producer_id: int | None) -> None:
        """Take over a record of the log."""

    def on_marker(self, producer_id: int, *, committed: bool) -> None:
        """Take over the end of a transaction on this partition."""

    def on_loaded(self, now: Now) -> list[Effect]:
        """Begin."""

    def handle(self, request: AnyRequest, now: Now) -> list[Effect]:
        """Answer a request."""

    def on_tick(self, now: Now) -> list[Effect]:
        """Act on time-outs."""

    def on_written(self, written: Written, now: Now) -> list[Effect]:
        """Go on after a write."""

    def on_not_written(self, refused: NotWritten, now: Now) -> list[Effect]:
        """Go on without it."""

    def on_topics_deleted(self, names: Mapping[str, None]) -> list[Effect]:
        """Forget what is known of these topics."""


AnyCore = TypeVar("AnyCore", bound=Core)


class Waiting(Generic[Asked, R]):
    """Who waits for a reply, and what to say when there will be none."""

    __slots__ = ("body", "failed", "respond", "who")

    def __init__(
        self, body: Asked, respond: Callable[[R], None], failed: Callable[[Asked, Error], R], who: str
    ) -> None:
        self.body = body
        self.respond = respond
        self.failed = failed
        self.who = who

    def fail(self, error: Error) -> None:
        """Answer with this error."""
        self.respond(self.failed(self.body, error))


class CoordinatorShard(Generic[AnyCore]):
    """One core on its partition."""

    def __init__(self, runtime: "CoordinatorRuntime[AnyCore]", replica: Replica, core: AnyCore) -> None:
        self.runtime = runtime
        self.replica = replica
        self.core = core
        self.leader_epoch = replica.partition.leader_epoch
        self.is_ended = False
        self.deleted: dict[str, None] = {}  # topics, while this is being loaded
        self.waiting: dict[Token, Waiting[msgspec.Struct | str, msgspec.Struct]] = {}
        self._gathered: list[Write] = []  # of this turn of the loop
        self._last_token = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    # --- requests ----------------------------------------------------------------------------

    def ask(self, request: AwaitedRequest[Q, R], failed: Callable[[Q, Error], R]) -> None:
        """Let the core answer a request."""
        self.ask_as(request.body, version=request.version, caller=request, respond=request.reply, failed=failed)

    def ask_as(
        self,
        body: Q,
        *,
        version: int,
        caller: Caller,
        respond: Callable[[R], None],
        failed: Callable[[Q, Error], R],
    ) -> None:
        """Let the core answer something else in a request's name: its part for one id, or what it comes down to."""
        asked: AnyRequest = Request(
            token=self.expect(body, respond, failed, who=f"{caller.client_id} at {caller.peer_host}"),
            version=version,
            client_id=caller.client_id or "",
            client_host=f"/{caller.peer_host}",
            body=body,
        )
        self.perform(self.core.handle(asked, self.now()))

    def expect(
        self, body: Asked, respond: Callable[[R], None], failed: Callable[[Asked, Error], R], *, who: str
    ) -> Token:
        """Return a token for a reply to come."""
        self._last_token += 1
        waiting = Waiting(body, respond, failed, who)
        self.waiting[self._last_token] = cast("Waiting[msgspec.Struct | str, msgspec.Struct]", waiting)
        return self._last_token

    def now(self) -> Now:
        """Return the time of an event."""
        clock = self.runtime.replicas.world.clock
        return Now(clock.now_ms(), clock.wall_ms())

    def end(self) -> None:
        """Coordinate no more."""
        self.is_ended = True
        if self._timer is not None:
            self._timer.cancel()
        waiting, self.waiting = self.waiting, {}
        for one in waiting.values():
            one.fail(Error.NOT_COORDINATOR)

    # --- effects -----------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        """Carry out what the core said, in order; then see when it wants to be called again."""
        for effect in effects:
            if self.is_ended:
                return
            match effect:
                case Reply():
                    self._reply(self.waiting.pop(effect.token), effect.body)
                case Write() if self.runtime.gathers:
                    self._gather(effect)
                case Write():
                    self._append([effect])
                case SendMarkers():
                    self.runtime.send_markers(self, effect)
        self._arm()

    def _reply(self, waiting: Waiting[msgspec.Struct | str, msgspec.Struct], answer: msgspec.Struct) -> None:
        error = next((error for error in errors_in(answer) if error not in ROUTINE), None)
        if error is not None:
            what = f"{self.replica.name}: {waiting.who}: {asked(waiting.body)}"
            self.runtime.replicas.world.journal.log("info", f"{what}: {error.name}")
        waiting.respond(answer)

    def _gather(self, write: Write) -> None:
        """Let all that is written in one turn of the loop go to the log together."""
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._append_gathered)
        self._gathered.append(write)

    def _append_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        writes: list[Write] = []
        size_bytes = 0
        for write in gathered:
            more_bytes = sum(len(entry.key) + len(entry.value or b"") for entry in write.entries)
            if writes and size_bytes + more_bytes > GATHERED_BYTES_MAX:
                self._append(writes)
                writes, size_bytes = [], 0
            writes.append(write)
            size_bytes += more_bytes
        self._append(writes)

    def _append(self, writes: list[Write]) -> None:
        """Append the entries of these writes, of one producer or of none, as one batch."""
        if self.is_ended:
            return
        now = self.now()
        partition = self.replica.partition
        producer = writes[0].producer
        batch = build(
            [NewRecord(entry.key, entry.value) for write in writes for entry in write.entries],
            timestamp_ms=now.wall_ms,
            producer=(-1, -1, -1) if producer is None else (*producer, -1),
            attributes=0 if producer is None else TRANSACTIONAL,
        )
        appended, effects = partition.append(
            batch, acks=-1, now_ms=now.now_ms, wall_ms=now.wall_ms, origin=Origin.COORDINATOR
        )
        if not isinstance(appended, Appended):
            world = self.runtime.replicas.world
            world.journal.log("warning", f"{self.replica.name}: a coordinator's write was refused: {appended.name}")
            for write in writes:
                self.perform(self.core.on_not_written(NotWritten(write.ticket, appended), now))
            return
        base_offset = appended.base_offset
        self.runtime.when_committed(self.replica, appended.last_offset, lambda: self._written(writes, base_offset))
        self.runtime.replicas.grew(self.replica)
        self.runtime.replicas.perform(self.replica, effects)

    def _written(self, writes: list[Write], base_offset: int) -> None:
        for write in writes:
            if self.is_ended:
                return
            self.perform(self.core.on_written(Written(write.ticket, base_offset), self.now()))
            base_offset += len(write.entries)

    def _go_on(self, act: Callable[[Now], list[Effect]]) -> None:
        if not self.is_ended:
            self.perform(act(self.now()))

    def _arm(self) -> None:
        next_ms = self.core.next_ms
        if self.is_ended or next_ms is None or (self._timer is not None and self._timer_ms <= next_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = next_ms
        delay_ms = max(0, next_ms - self.now().now_ms)
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._go_on(self.core.on_tick)

    # --- loading -----------------------------------------------------------------------------

    async def load(self) -> bool:
        """Read the log from its start to its end; return whether this coordinator is still wanted."""
        partition = self.replica.partition
        while partition.is_recovering and not self.is_ended:  # noqa: ASYNC110 - rare, and no event reports its end
            await asyncio.sleep(RECOVERY_POLL_MS / 1000)
        await linger(
            self.runtime.replicas.world, "coordinator is loaded late"
        )  # a long log: requests meet one that loads
        offset = partition.log.log_start_offset
        while not self.is_ended:
            # Nobody but a transaction's end marker can have come behind us meanwhile; it is part of the past, too.
            if offset < partition.log.log_end_offset:
                offset = await self._replay_from(offset)
            elif partition.high_watermark < offset:
                await self._committed(offset)
            else:
                return True
        return False

    async def _replay_from(self, offset: int) -> int:
        """Replay up to the end of the log; return where that was."""
        log = self.replica.partition.log
        while offset < log.log_end_offset and not self.is_ended:
            try:
                content = log.read(offset, max_bytes=LOAD_BYTES, end_offset=log.log_end_offset, at_least_one=True)
            except OSError as problem:
                self.replica.partition.go_offline(problem)
                await asyncio.sleep(0)  # the leadership, and with it this coordinator, ends now
                return offset
            if not content:  # compaction took the last records
                return log.log_end_offset
            for header in batches(content):
                self._replay(content, header)
                offset = header.next_offset
            await asyncio.sleep(0)
        return offset

    async def _committed(self, end_offset: int) -> None:
        """Wait for the high watermark, or for the end of the leadership."""
        passed = asyncio.Event()
        self.runtime.when_committed(self.replica, end_offset - 1, passed.set, passed.set)
        await passed.wait()

    def _replay(self, content: bytes, header: BatchHeader) -> None:
        if header.is_control:
            marker = end_transaction(content, header)
            if marker is not None:
                self.core.on_marker(header.producer_id, committed=marker.control_type == ControlType.COMMIT)
            return
        producer_id = header.producer_id if header.is_transactional else None
        for record in records(content, header):
            try:
                self.core.replay(record.key or b"", record.value, record.offset, producer_id)
            except MalformedMessage as problem:
                where = f"{self.replica.name} at {record.offset}"
                self.runtime.replicas.world.journal.log("error", f"{where}: not a coordinator's record: {problem}")


class CoordinatorRuntime(Generic[AnyCore]):
    """The coordinators of one internal topic's partitions that are led here."""

    def __init__(
        self,
        topic: str,
        replicas: Replicas,
        tasks: Tasks,
        new_core: Callable[[int, int], AnyCore],
        send_markers: Callable[[CoordinatorShard[AnyCore], SendMarkers], None],
        *,
        gathers: bool,
    ) -> None:
        """Coordinate `topic`; `new_core(partition, leader_epoch)` makes an empty core.

        gathers:  writes of one turn of the loop become one batch; a refusal comes later than at once then, and no
                  write may be a producer's.
        """
        self.gathers = gathers
        self.topic = topic
        self.replicas = replicas
        self.tasks = tasks
        self.new_core = new_core
        self.send_markers = send_markers
        self.partitions: CoordinatedPartitions[CoordinatorShard[AnyCore]] = CoordinatedPartitions()

    def partition_of(self, key: str) -> int | None:
        """Return the partition that a key belongs to, None while the topic is not there."""
        topic = self.replicas.metadata.image.topics_by_name.get(self.topic)
        return partition_for(key, len(topic.partitions)) if topic is not None else None

    def find(self, key: str) -> CoordinatorShard[AnyCore] | Error:
        """Return the coordinator of a group or transactional id, if that is here."""
        partition = self.partition_of(key)
        if partition is None:
            return Error.NOT_COORDINATOR
        coordinated = self.partitions.find(partition)
        return coordinated if isinstance(coordinated, Error) else coordinated.core

    def ask(self, key: str, request: AwaitedRequest[Q, R], failed: Callable[[Q, Error], R]) -> None:
        """Let the key's coordinator answer, or say why it cannot."""
        coordinator = self.find(key)
        if isinstance(coordinator, Error):
            request.reply(failed(request.body, coordinator))
        else:
            coordinator.ask(request, failed)

    def elected(self, replica: Replica) -> None:
        """Load the partition in its new leader epoch."""
        partition = replica.name.partition
        leader_epoch = replica.partition.leader_epoch
        coordinator = CoordinatorShard(self, replica, self.new_core(partition, leader_epoch))
        coordinated = CoordinatedPartition(partition, leader_epoch, coordinator)
        self.partitions.take(coordinated)
        self.tasks.start(self._load(coordinated))

    def resigned(self, replica: Replica) -> None:
        """Let go of it."""
        coordinated = self.partitions.leave(replica.name.partition)
        if coordinated is not None:
            coordinated.core.end()
            self.replicas.world.journal.log("info", f"no longer coordinates {replica.name}")

    async def _load(self, coordinated: CoordinatedPartition[CoordinatorShard[AnyCore]]) -> None:
        coordinator = coordinated.core
        try:
            is_wanted = await coordinator.load()
        except Exception as problem:  # no core acts yet: what cannot be replayed is this partition's loss
            if isinstance(problem, AssertionError | OSError):
                raise
            coordinated.is_offline = True
            where = f"{coordinator.replica.name} cannot be replayed and is not coordinated here"
            self.replicas.world.journal.unforeseen(where, problem)
            return
        if is_wanted:
            coordinated.is_loaded = True
            self.replicas.world.journal.log("info", f"coordinates {coordinator.replica.name}")
            coordinator.perform(coordinator.core.on_loaded(coordinator.now()))
            if coordinator.deleted:
                coordinator.perform(coordinator.core.on_topics_deleted(coordinator.deleted))

    def topics_deleted(self, names: dict[str, None]) -> None:
        """Notify the coordinators that these topics are gone; those that are being loaded, once they are."""
        for _, coordinated in sorted(self.partitions.by_partition.items()):
            if coordinated.is_loaded:
                coordinated.core.perform(coordinated.core.core.on_topics_deleted(names))
            else:
                coordinated.core.deleted.update(names)

    def on_marker(self, replica: Replica, producer_id: int, *, committed: bool) -> None:
        """Notify the coordinator of this partition that an end marker on it is committed."""
        coordinated = self.partitions.by_partition.get(replica.name.partition)
        if coordinated is not None and coordinated.is_loaded:  # else it finds the marker in the log
            coordinated.core.core.on_marker(producer_id, committed=committed)

    def stop(self) -> None:
        """Coordinate nothing any more."""
        for coordinated in self.partitions.loaded():
            coordinated.core.end()

    def when_committed(
        self, replica: Replica, last_offset: int, act: Callable[[], None], fail: Callable[[], None] | None = None
    ) -> None:
        """Act when the high watermark has passed an offset, in the order of offsets; `fail` if leadership ends before."""
        result = ProduceResult(NO_TOPIC, replica.name.partition, None, last_offset=last_offset)

        def respond(results: list[ProduceResult]) -> None:
            # NOT_ENOUGH_REPLICAS_AFTER_APPEND: committed, if thinly; the state has to follow the log.
            if results[0].error in (Error.NONE, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
                act()
            elif fail is not None:
                fail()

        replica.produces.add(DelayedProduce([result], NEVER_MS, respond), result)


def asked(body: msgspec.Struct | str) -> str:
    """Return what was asked, and in whose name, for people."""
    if isinstance(body, str):  # a group, of several that one request is about
        return f"group {body!r}"
    found = {name: getattr(body, name) for name in NAMED if hasattr(body, name)}
    return f"{type(body).__name__} {found}" if found else type(body).__name__
