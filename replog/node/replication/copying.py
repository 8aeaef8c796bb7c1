"""Copying from leaders: one loop per leader broker, many partitions per request (SPEC 3.1.6, 3.2.6, 3.3, 3.4).

A loop asks for all partitions that are due, waits for the one answer, applies it, and asks again; the wait for data happens
at the leader. In a fetch session only what changed is named again, so an idle partition costs nothing. Metadata may change what is followed while an answer is under way: an answer counts only for
partitions that are still followed in the leader epoch that was asked with (SPEC 3.4.6).
"""

import asyncio
from typing import Final
from uuid import UUID

from replog.broker.fetch_sessions import Key
from replog.broker.fetcher import FetchSource, FetchState, Question, Remedy
from replog.broker.identity import BrokerIdentity
from replog.client.connection import Connection, ConnectionLost, UnsupportedVersion
from replog.config.access import Access
from replog.errors import Error
from replog.log.batch import CorruptBatch
from replog.node.boundary import contain
from replog.node.fault_injection_points import linger, strikes
from replog.node.replication.flushing import Flushing
from replog.node.replication.replicas import Replica, Replicas
from replog.node.tasks import Tasks
from replog.types import NO_BROKER_EPOCH, BrokerEpoch, LeaderEpoch, NodeId
from replog.wire.messages import fetch, list_offsets
from replog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
GRACE_MS: Final = 10_000  # for an answer to come, beyond what the leader may wait for data


class FetchLimits:
    """How a replica fetches."""

    def __init__(
        self, *, wait_ms_max: int, backoff_ms: int, bytes_min: int, partition_bytes_max: int, bytes_max: int
    ) -> None:
        self.wait_ms_max = wait_ms_max
        self.backoff_ms = backoff_ms
        self.bytes_min = bytes_min
        self.partition_bytes_max = partition_bytes_max
        self.bytes_max = bytes_max


class SourceLoop:
    """The loop for one leader broker."""

    def __init__(self, fetching: "ReplicaFetching", source: NodeId) -> None:
        self.fetching = fetching
        self.replicas = fetching.replicas
        self.world = fetching.replicas.world
        self.limits = fetching.limits
        self.source_id = source
        self.source = FetchSource(fetching.limits.backoff_ms)
        self._changed = asyncio.Event()
        self._connection: Connection | None = None
        self._source_epoch = NO_BROKER_EPOCH  # the source's, when the connection was made
        self._is_running = False
        self._stopped = False

    def follow(self, replica: Replica) -> None:
        """Begin, or begin again in a new leader epoch."""
        assert replica.partition.state is not None
        if self._source_epoch != self._source_epoch_now():
            self._disconnect()  # a source that lost power said nothing: what was asked of its earlier incarnation stays unanswered
        self.source.follow(replica.name, replica.key.topic_id, replica.partition.state.leader_epoch)
        self._changed.set()
        if not self._is_running:
            self._is_running = True
            self.fetching.tasks.start(self._run())

    def forget(self, replica: Replica) -> None:
        """Follow no more here."""
        self.source.forget(replica.name)
        self._changed.set()

    def begin_anew(self) -> None:
        """State everything again, as a broker that was registered anew."""
        self.source.session.begin_anew()
        self._changed.set()

    def stop(self) -> None:
        """End the loop."""
        self._stopped = True
        self._changed.set()
        self._disconnect()

    async def _run(self) -> None:
        while not self._stopped:
            if not self.fetching.may_fetch or not self.source.is_due(self.world.clock.now_ms()):
                await self._idle()
                continue
            try:
                await self._fetch()
            except (ConnectionLost, UnsupportedVersion) as problem:
                self.world.journal.log("debug", f"fetching from {self.source_id}: {problem}")
                self._disconnect()
                self.source.on_lost(self.world.clock.now_ms())
            except Exception as problem:  # noqa: BLE001  # the boundary of a link
                contain(self.world.journal, f"fetching from broker {self.source_id}", problem)
                self._disconnect()
                self.source.on_lost(self.world.clock.now_ms())

    async def _idle(self) -> None:
        """Wait until something is due or what is followed changes."""
        next_ms = self.source.next_due_ms() if self.fetching.may_fetch else None
        delay_ms = None if next_ms is None else max(1, next_ms - self.world.clock.now_ms())
        self._changed.clear()
        waiting = self._changed.wait()
        try:
            async with asyncio.timeout(None if delay_ms is None else delay_ms / 1000):
                await waiting
        except TimeoutError:
            pass

    async def _connect(self) -> Connection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        endpoint = self.replicas.metadata.endpoint_of(self.source_id)
        if endpoint is None:
            raise ConnectionLost(f"broker {self.source_id} is not registered")
        self._source_epoch = self._source_epoch_now()
        connection = Connection(self.world, endpoint, f"broker-{self.replicas.node_id}-fetcher", self.fetching.access)
        await connection.open(timeout_ms=GRACE_MS)
        self._connection = connection
        return connection

    def _source_epoch_now(self) -> BrokerEpoch:
        return self.replicas.metadata.image.broker_epoch(self.source_id)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _fetch(self) -> None:
        source = self.source
        connection = await self._connect()
        # The position asked for is a claim: the leader counts all below it as held by this replica.
        await self.fetching.flushing.make_durable(filter(None, map(self._replica, source.candidates())))
        question = source.question(self._position)
        if source.session.is_new and not question.wanted:
            source.on_lost(self.world.clock.now_ms())  # there is nothing that could be asked for now
            return
        asked = source.session.asked
        timeout_ms = self.limits.wait_ms_max + GRACE_MS
        response = await connection.send(fetch.EXCHANGE, self._request(question), timeout_ms=timeout_ms)
        await linger(self.world, "fetched records are applied late")
        source.session.answered(asked, response.error_code, response.session_id)
        if response.error_code is not Error.NONE:
            self.world.journal.probe("fetch_session_lost")
            return
        for replica, leader_epoch in self._apply(response):
            await self._find_range(connection, replica, leader_epoch)

    def _request(self, question: Question) -> FetchRequest:
        topics: dict[UUID, list[FetchPartition]] = {}
        for state, partition in question.wanted:
            topics.setdefault(state.topic_id, []).append(partition)
        session = self.source.session
        return FetchRequest(
            max_wait_ms=self.limits.wait_ms_max,
            min_bytes=self.limits.bytes_min,
            max_bytes=self.limits.bytes_max,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=[FetchTopic(topic_id=topic_id, partitions=wanted) for topic_id, wanted in topics.items()],
            forgotten_topics_data=_forgotten(question.forgotten),
            # KIP-903: the epoch of this very incarnation, so that a fetch of an earlier one is recognised.
            replica_state=ReplicaState(replica_id=self.replicas.node_id, replica_epoch=self.fetching.sent_epoch),
        )

    def _replica(self, state: FetchState) -> Replica | None:
        replica: Replica | None = state.hosted
        if replica is None or not replica.is_hosted:
            replica = state.hosted = self.replicas.find_by_id(state.topic_id, state.name.partition)
        return replica

    def _position(self, state: FetchState) -> FetchPartition | None:
        replica = self._replica(state)
        if replica is None or replica.partition.leadership is not None or replica.partition.log.must_flush:
            return None
        return self._wanted(replica, state)

    def _wanted(self, replica: Replica, state: FetchState) -> FetchPartition:
        log = replica.partition.log
        return FetchPartition(
            partition=replica.name.partition,
            current_leader_epoch=state.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.last_epoch,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=self.limits.partition_bytes_max,
            high_watermark=replica.partition.high_watermark,
        )

    def _apply(self, response: FetchResponse) -> list[tuple[Replica, LeaderEpoch]]:
        """Apply an answer; return what the leader has no data for at our position."""
        out_of_range: list[tuple[Replica, LeaderEpoch]] = []
        for topic in response.responses:
            for answer in topic.partitions:
                key = (topic.topic_id, answer.partition_index)
                replica = self.replicas.find_by_id(*key)
                state = None if replica is None else self.source.state_of(key, replica.name)
                if replica is None or state is None:
                    continue
                self.source.changed(replica.name)
                if self._apply_partition(replica, answer, state.leader_epoch) is Remedy.FIND_RANGE:
                    out_of_range.append((replica, state.leader_epoch))
        return out_of_range

    def _apply_partition(self, replica: Replica, answer: PartitionData, leader_epoch: LeaderEpoch) -> Remedy | None:
        if answer.error_code is not Error.NONE:
            now_ms = self.world.clock.now_ms()
            return self.source.on_error(replica.name, leader_epoch, answer.error_code, now_ms)
        partition = replica.partition
        diverging = answer.diverging_epoch
        if diverging.epoch != -1 or diverging.end_offset != -1:
            self.world.journal.probe("log_diverged")
            # KAFKA-14704: cut first; the high watermark of this answer belongs to data that did not come.
            effects = partition.on_divergence(
                diverging.epoch, diverging.end_offset, leader_log_start_offset=answer.log_start_offset
            )
            self.replicas.perform(replica, effects)
            return None
        if strikes(self.world, "segment is rolled early"):
            try:
                partition.log.roll(self.world.clock.wall_ms())
            except OSError as problem:
                partition.go_offline(problem)
                return None
        records = answer.records or b""
        log_start_offset = partition.log.log_start_offset
        try:
            effects = partition.on_fetched(
                records,
                high_watermark=answer.high_watermark,
                log_start_offset=answer.log_start_offset,
                wall_ms=self.world.clock.wall_ms(),
            )
        except CorruptBatch as problem:
            self.world.journal.log("warning", f"{replica.name}: from broker {self.source_id}: {problem}")
            self.world.journal.probe("corrupt_batch_fetched")
            self.source.back_off(replica.name, self.world.clock.now_ms())
            return Remedy.BACK_OFF
        if len(records):
            self.source.served(replica.name)
            self.replicas.grew(replica)
        if partition.log.log_start_offset != log_start_offset:
            self.replicas.log_start_moved(replica)
        self.replicas.perform(replica, effects)
        return None

    async def _find_range(self, connection: Connection, replica: Replica, leader_epoch: LeaderEpoch) -> None:
        """Ask for the leader's offsets and come back into its range (SPEC 3.3)."""
        latest = await self._list_offset(connection, replica, leader_epoch, LATEST_TIMESTAMP)
        earliest = await self._list_offset(connection, replica, leader_epoch, EARLIEST_TIMESTAMP)
        if not replica.is_hosted or replica.partition.leadership is not None:
            return
        if not self.source.is_current(replica.name, leader_epoch):
            return
        if latest is None or earliest is None:
            self.source.back_off(replica.name, self.world.clock.now_ms())
            return
        self.world.journal.probe("fetch_offset_out_of_range")
        effects = replica.partition.on_leader_range(log_start_offset=earliest, log_end_offset=latest)
        if not effects:
            self.source.back_off(replica.name, self.world.clock.now_ms())
        self.replicas.perform(replica, effects)

    async def _list_offset(
        self, connection: Connection, replica: Replica, leader_epoch: LeaderEpoch, timestamp: int
    ) -> int | None:
        body = list_offsets.ListOffsetsRequest(
            replica_id=self.replicas.node_id,
            topics=[
                list_offsets.ListOffsetsTopic(
                    name=replica.name.topic,
                    partitions=[
                        list_offsets.ListOffsetsPartition(
                            partition_index=replica.name.partition,
                            current_leader_epoch=leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )
        response = await connection.send(list_offsets.EXCHANGE, body, timeout_ms=GRACE_MS)
        answers = [partition for topic in response.topics for partition in topic.partitions]
        if len(answers) != 1 or answers[0].error_code is not Error.NONE:
            return None
        return int(answers[0].offset)


class ReplicaFetching:
    """All loops of a broker."""

    def __init__(
        self,
        replicas: Replicas,
        flushing: Flushing,
        limits: FetchLimits,
        tasks: Tasks,
        identity: BrokerIdentity,
        access: Access,
        *,
        carries_epoch: bool,
    ) -> None:
        """`carries_epoch`: KIP-903 needs metadata that name everybody's broker epoch; where they don't, fetches don't."""
        self.replicas = replicas
        self.flushing = flushing
        self.tasks = tasks
        self.limits = limits
        self.identity = identity
        self.access = access
        self.carries_epoch = carries_epoch
        self._loops: dict[NodeId, SourceLoop] = {}
        self._followed: dict[Replica, SourceLoop] = {}

    @property
    def may_fetch(self) -> bool:
        """Before registration there is no epoch to fetch with (SPEC 3.1.7)."""
        return self.identity.is_registered

    def follow(self, replica: Replica, source: NodeId) -> None:
        """Fetch from this broker in the partition's current leader epoch."""
        loop = self._loops.get(source)
        if loop is None:
            loop = self._loops[source] = SourceLoop(self, source)
        before = self._followed.get(replica)
        if before is not None and before is not loop:
            before.forget(replica)
        self._followed[replica] = loop
        loop.follow(replica)

    def unfollow(self, replica: Replica) -> None:
        """Stop fetching."""
        loop = self._followed.pop(replica, None)
        if loop is not None:
            loop.forget(replica)

    @property
    def sent_epoch(self) -> BrokerEpoch:
        """What fetches say of our broker epoch."""
        return self.identity.broker_epoch if self.carries_epoch else NO_BROKER_EPOCH

    def moved(self, replica: Replica) -> None:
        """Report to the leader, if we follow one, with the next fetch where our log begins now."""
        loop = self._followed.get(replica)
        if loop is not None:
            loop.source.changed(replica.name)

    def registered(self) -> None:
        """Fetch with the new broker epoch from now on."""
        for loop in self._loops.values():
            loop.begin_anew()

    def stop(self) -> None:
        """End all loops."""
        for loop in self._loops.values():
            loop.stop()


def _forgotten(keys: list[Key]) -> list[ForgottenTopic]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in keys:
        assert isinstance(topic_id, UUID)
        topics.setdefault(topic_id, []).append(index)
    return [ForgottenTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()]
