"""A broker: its listener, its logs, its seat as observer of the metadata quorum, its life with the controller.

Everything is put together here and nothing is decided here: requests go to the API that answers them, committed
metadata to the hosting, time to the cores. `start` returns when the broker is under way; `stop` asks the controller for
leave and closes in order. Dropping a broker without `stop` is what a crash is.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from replog.broker import lifecycle as life
from replog.broker.lifecycle import Lifecycle, Phase
from replog.broker.metadata import BrokerMetadata
from replog.config import Endpoint, NodeConfig
from replog.controller.authorization import May, allow_all
from replog.errors import Error
from replog.log.log import Log
from replog.log.settings import LogSettings
from replog.metadata.features import SUPPORTED
from replog.metadata.record_versions import RecordWriter
from replog.metadata.records import MetadataRecord
from replog.node.api.cluster import ClusterApi
from replog.node.api.fetch import FetchApi
from replog.node.api.forwarding import FAILED, Forwarding
from replog.node.api.log_directories import DirectoryApi
from replog.node.api.offsets import OffsetsApi
from replog.node.api.produce import ProduceApi
from replog.node.coordinators.service import Coordinators
from replog.node.directories.assignments import LOOK_MS, DirectoryAssignments
from replog.node.directories.failures import DirectoryFailures
from replog.node.directories.log_directories import LogDirectories
from replog.node.directories.moves import DirectoryMoves
from replog.node.net.controller_link import ControllerLink, NoController
from replog.node.net.server import Server, ServerLimits, ServerRequest
from replog.node.quorum.member import QuorumNode, SnapshotReader
from replog.node.quorum.metadata_log import open_metadata_log
from replog.node.replication.compaction import Compaction
from replog.node.replication.copying import FetchLimits, ReplicaFetching
from replog.node.replication.flushing import Flushing
from replog.node.replication.hosting import Hosting
from replog.node.replication.proposals import ProposalChannel
from replog.node.replication.replicas import Replicas
from replog.node.tasks import Tasks
from replog.ports import World
from replog.types import NodeId, QuorumEpoch
from replog.wire.apis import BROKER_APIS, Api
from replog.wire.messages import broker_heartbeat as hb
from replog.wire.messages import broker_registration as reg
from replog.wire.records.metadata import decode_metadata_record

LISTENER: Final = "PLAINTEXT"
LIFE_RETRY_MS: Final = 200
REQUEST_TIMEOUT_MS: Final = 5_000

Handle = Callable[[ServerRequest], None]


class BrokerFailed(Exception):
    """The broker cannot go on; the message says why."""


class Broker:
    """One broker process, or one of many in a simulation."""

    def __init__(
        self, world: World, config: NodeConfig, *, quorum: QuorumNode | None = None, may: May = allow_all
    ) -> None:
        """Prepare; a combined node sets `quorum`, here or before `start`, and tells what is committed."""
        self.world = world
        self.config = config
        self.tasks = Tasks()
        self.incarnation = world.entropy.uuid()
        self.metadata = BrokerMetadata(config.node_id)
        self.directories = LogDirectories(world, config.log_dirs, LogSettings.of(config.log))
        self.replicas = Replicas(world, self.metadata)
        self.hosting = Hosting(config, self.replicas, self.directories, self.tasks)
        self.link = ControllerLink(world, f"broker-{config.node_id}", self._leader, open_timeout_ms=REQUEST_TIMEOUT_MS)
        self.failures = DirectoryFailures(
            self.replicas, self.directories, metadata_path=config.metadata_log_dir, tell=self._tell_failure
        )
        self.assignments = DirectoryAssignments(self.replicas, self.directories, self.link, self.tasks)
        if len(config.log_dirs) == 1:
            self.hosting.on_hosted = self.assignments.hosted
        self.moves = DirectoryMoves(self.replicas, self.directories, self.assignments, self.tasks)
        self.proposals = ProposalChannel(self.replicas, self.link, self.tasks)
        self.flushing = Flushing(self.replicas, self.tasks)
        self.compaction = Compaction(self.replicas, self.flushing, self.tasks)
        self.fetching = ReplicaFetching(self.replicas, self.flushing, _limits(config), self.tasks)
        self.replicas.flushing = self.flushing
        self.replicas.proposals = self.proposals
        self.replicas.on_truncated = self._checkpoint_soon
        self.replicas.replication = self.fetching
        self.coordinators = Coordinators(
            config, self.replicas, self.link, self.tasks, lambda: self.hosting.broker_epoch
        )
        self.hosting.on_deleted = self.coordinators.topics_deleted
        cluster = ClusterApi(config, self.replicas, self.link, self.tasks, may=may)
        self.gate = cluster.gate
        self.handlers = self._handlers(cluster)
        self.server = Server(world, BROKER_APIS, self._handle, ServerLimits.of(config), features=cluster.features)
        self.is_serving = False
        self.quorum: QuorumNode | None = quorum
        self._owns_quorum = False
        self._metadata_log: Log | None = None
        self.lifecycle: Lifecycle | None = None
        self._life_changed = asyncio.Event()
        self._stopped = asyncio.Event()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._checkpoint_is_due = False

    # --- life ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the logs, watch the metadata, register; serving begins once the metadata is caught up."""
        self.directories.open()
        self.directories.on_failure = self.failures.on_failure
        self.world.journal.event("start", node=self.config.node_id, role="broker", incarnation=str(self.incarnation))
        self.lifecycle = Lifecycle(
            incarnation=self.incarnation,
            previous_broker_epoch=self.directories.previous_broker_epoch,
            heartbeat_interval_ms=self.config.controller.heartbeat_interval_ms,
            registration_timeout_ms=self.config.controller.registration_timeout_ms,
            shutdown_timeout_ms=self.config.controller.controlled_shutdown_timeout_ms,
            retry_ms=LIFE_RETRY_MS,
            now_ms=self.world.clock.now_ms(),
        )
        if self.quorum is None:
            self._owns_quorum = True
            self._metadata_log = open_metadata_log(self.world, self.config)
            self.quorum = QuorumNode(self.world, self.config, self._metadata_log, self)
            self.quorum.start()
        self._start_timers()
        self.tasks.start(self._live(self.lifecycle))

    async def stop(self) -> None:
        """Hand leaderships over, stop serving, close the logs in order (SPEC 3.11.4)."""
        assert self.lifecycle is not None
        for effect in self.lifecycle.begin_shutdown(self.world.clock.now_ms()):
            await self._perform(effect)
        self._life_changed.set()
        await self._stopped.wait()
        for timer in self._timers.values():
            timer.cancel()
        self.fetching.stop()
        self.flushing.stop()
        self.server.stop()
        self.coordinators.stop()
        self.replicas.close()
        self.tasks.cancel()
        self.link.drop()
        if self._owns_quorum and self.quorum is not None:
            await self.quorum.stop()
            if self._metadata_log is not None:
                self._metadata_log.close()
        self._note_high_watermarks()
        self.directories.close_in_order(self.hosting.broker_epoch)
        self.world.journal.event("stop", node=self.config.node_id, role="broker")

    async def _live(self, lifecycle: Lifecycle) -> None:
        """Do what the life cycle wants when it wants it, one request at a time."""
        while lifecycle.phase is not Phase.STOPPED:
            if self.quorum is not None:
                lifecycle.on_metadata(self.quorum.applied_offset - 1, self.world.clock.now_ms())
            for effect in lifecycle.on_tick(self.world.clock.now_ms()):
                await self._perform(effect)
            await self._rest(lifecycle)

    async def _rest(self, lifecycle: Lifecycle) -> None:
        if lifecycle.phase is Phase.STOPPED or self._life_changed.is_set():
            self._life_changed.clear()
            return
        next_ms = lifecycle.next_ms
        delay_ms = None if next_ms is None else max(0, next_ms - self.world.clock.now_ms())
        try:
            async with asyncio.timeout(None if delay_ms is None else delay_ms / 1000):
                await self._life_changed.wait()
        except TimeoutError:
            return
        self._life_changed.clear()

    async def _perform(self, effect: life.Effect) -> None:
        match effect:
            case life.Register():
                await self._register(effect)
            case life.Beat():
                await self._beat(effect)
            case life.Registered():
                self._registered(effect)
            case life.Unfenced():
                self.world.journal.log("info", "unfenced")
            case life.Fenced():
                self.world.journal.log("warning", "fenced by the controller")
                self.world.journal.probe("broker_fenced")
            case life.Stop():
                self._stopped.set()
            case life.Give():
                raise BrokerFailed(effect.reason)

    async def _register(self, effect: life.Register) -> None:
        assert self.lifecycle is not None
        body = reg.BrokerRegistrationRequest(
            broker_id=self.config.node_id,
            cluster_id=self.config.cluster_id,
            incarnation_id=effect.incarnation,
            listeners=[reg.Listener(name=LISTENER, host=self.config.advertised.host, port=self.config.advertised.port)],
            features=_features(),
            rack=self.config.identity.broker_rack or None,
            log_dirs=self.directories.online_ids,
            previous_broker_epoch=effect.previous_broker_epoch,
        )
        answer = await self._ask(Api.BROKER_REGISTRATION, body)
        if answer is None:
            effects = self.lifecycle.on_no_answer(self.world.clock.now_ms())
        else:
            if answer.error_code not in (Error.NONE, Error.NOT_CONTROLLER):
                self.world.journal.log("warning", f"registration: {answer.error_code.name}")
            effects = self.lifecycle.on_registration_answer(
                answer.error_code, answer.broker_epoch, self.world.clock.now_ms()
            )
        for following in effects:
            await self._perform(following)

    async def _beat(self, effect: life.Beat) -> None:
        assert self.lifecycle is not None
        if not effect.want_fence:
            await self._serve()
        body = hb.BrokerHeartbeatRequest(
            broker_id=self.config.node_id,
            broker_epoch=effect.broker_epoch,
            current_metadata_offset=effect.metadata_offset,
            want_fence=effect.want_fence,
            want_shut_down=effect.want_shutdown,
            offline_log_dirs=list(effect.offline_directories),
        )
        answer = await self._ask(Api.BROKER_HEARTBEAT, body)
        if answer is None:
            effects = self.lifecycle.on_no_answer(self.world.clock.now_ms())
        else:
            effects = self.lifecycle.on_heartbeat_answer(
                answer.error_code,
                is_caught_up=answer.is_caught_up,
                is_fenced=answer.is_fenced,
                should_shut_down=answer.should_shut_down,
                now_ms=self.world.clock.now_ms(),
            )
        for following in effects:
            await self._perform(following)

    async def _ask(self, api: Api, body: Any) -> Any | None:
        """Ask the active controller; None when it cannot be had or is no longer active."""
        timeout_ms = max(self.config.controller.heartbeat_interval_ms, 1000)
        try:
            answer = await self.link.send(api, body, timeout_ms=min(timeout_ms, REQUEST_TIMEOUT_MS))
        except NoController:
            return None
        if answer.error_code is Error.NOT_CONTROLLER:
            self.link.drop()
            return None
        return answer

    def _registered(self, effect: life.Registered) -> None:
        self.world.journal.log("info", f"registered with broker epoch {effect.broker_epoch}")
        self.hosting.broker_epoch = effect.broker_epoch
        self.proposals.broker_epoch = effect.broker_epoch
        self.assignments.broker_epoch = effect.broker_epoch
        for replica in self.replicas:
            if replica.partition.leadership is not None:
                replica.partition.leadership.broker_epoch = effect.broker_epoch
        self.fetching.registered(effect.broker_epoch)
        self.hosting.update()

    def _tell_failure(self, directory_id: UUID) -> None:
        if self.lifecycle is not None:
            self.lifecycle.on_directory_failed(directory_id, self.world.clock.now_ms())
            self._life_changed.set()

    async def _serve(self) -> None:
        """Open the listener: not before the metadata tells of the present, or clients would learn the past."""
        if not self.is_serving and self.hosting.has_begun:
            await self.server.start(self.config.listener)
            self.is_serving = True

    # --- metadata ------------------------------------------------------------------------

    def on_committed(self, base_offset: int, epoch: int, records: list[tuple[int, bytes]]) -> None:
        """Apply one committed batch."""
        if records:
            self.metadata.replay([(offset, _record(value)) for offset, value in records])
        self._applied(base_offset + len(records) - 1)

    def on_snapshot(self, reader: SnapshotReader) -> None:
        """Start over from a snapshot."""
        self.metadata.restore(reader.end_offset - 1, (_record(value) for value in reader))
        self._applied(reader.end_offset - 1)

    def on_leading(self, epoch: QuorumEpoch, next_offset: int) -> None:
        """Take no notice: a combined node's controller acts."""

    def on_resigned(self, epoch: QuorumEpoch) -> None:
        """Take no notice."""

    def on_leader_changed(self, leader: NodeId, epoch: QuorumEpoch) -> None:
        """Ask the new leader at once what the old one may have left unanswered."""
        self._life_changed.set()

    def _applied(self, last_offset: int) -> None:
        self.hosting.update()
        if self.lifecycle is not None:
            before = self.lifecycle.next_ms
            self.lifecycle.on_metadata(last_offset, self.world.clock.now_ms())
            if self.lifecycle.next_ms != before:
                self._life_changed.set()

    def _leader(self) -> tuple[NodeId, Endpoint | None]:
        if self.quorum is None:
            return NodeId(-1), None
        node, _, endpoint = self.quorum.leader
        if endpoint is None:
            endpoint = next((voter.endpoint for voter in self.config.voters if voter.node_id == node), None)
        return node, endpoint

    # --- requests ------------------------------------------------------------------------

    def _handlers(self, cluster: ClusterApi) -> dict[Api, Handle]:
        fetch = FetchApi(self.replicas, self.config, lambda: self.server.unsent_bytes, cluster.gate)
        offsets = OffsetsApi(self.replicas, self.tasks, lambda: self.hosting.broker_epoch)
        forwarding = Forwarding(self.world, self.link, self.tasks)
        directories = DirectoryApi(self.replicas, self.directories, self.moves)
        return {
            **dict.fromkeys(FAILED, forwarding.handle),
            Api.PRODUCE: ProduceApi(self.replicas, self.coordinators.verifier).handle,
            Api.FETCH: fetch.handle,
            Api.LIST_OFFSETS: offsets.list_offsets,
            Api.OFFSET_FOR_LEADER_EPOCH: offsets.end_of_epochs,
            Api.DELETE_RECORDS: offsets.delete_records,
            Api.GET_REPLICA_LOG_INFO: offsets.log_info,
            Api.METADATA: cluster.metadata,
            Api.DESCRIBE_CLUSTER: cluster.describe_cluster,
            Api.DESCRIBE_TOPIC_PARTITIONS: cluster.describe_topic_partitions,
            Api.DESCRIBE_CONFIGS: cluster.describe_configs,
            Api.ALTER_REPLICA_LOG_DIRS: directories.alter,
            Api.DESCRIBE_LOG_DIRS: directories.describe,
            **self.coordinators.handlers(),
        }

    def _handle(self, request: ServerRequest) -> None:
        handler = self.handlers.get(request.api)
        if handler is None:
            request.close(f"{request.api.name} is not answered by brokers")
            return
        try:
            if self.gate.is_open or self.gate.admits(request):
                handler(request)
        except OSError as problem:
            # asyncio takes an OSError within a protocol for a lost connection and goes on; after one from the disk
            # no log can be trusted.
            request.close("the disk failed")
            context = {"message": f"{request.api.name}: the disk failed", "exception": problem}
            asyncio.get_running_loop().call_exception_handler(context)

    # --- time ----------------------------------------------------------------------------

    def _start_timers(self) -> None:
        config = self.config
        # SPEC 0.2: the ISR is looked at every half of the allowed lag.
        self._every("isr", max(1, config.replication.lag_ms_max // 2), self._tick_leaders)
        checkpoint_ms = config.replication.high_watermark_checkpoint_interval_ms
        self._every("checkpoint", checkpoint_ms, self._checkpoint)
        self._every("flush", config.log.flush_checkpoint_interval_ms, self._flush)
        if config.log.cleaner_enable:
            self._every("compaction", config.log.cleaner_backoff_ms, self.compaction.begin)
        if len(self.directories.paths) > 1:
            self._every("directories", LOOK_MS, self._look_at_directories)
        self._every("retention", config.log.retention_check_interval_ms, self._retain)

    def _every(self, name: str, interval_ms: int, action: Callable[[], None]) -> None:
        def fire() -> None:
            self._timers[name] = asyncio.get_running_loop().call_later(interval_ms / 1000, fire)
            action()

        self._timers[name] = asyncio.get_running_loop().call_later(interval_ms / 1000, fire)

    def _look_at_directories(self) -> None:
        self.assignments.look()
        self.moves.look()

    def _tick_leaders(self) -> None:
        now_ms = self.world.clock.now_ms()
        for replica in self.replicas:
            leadership = replica.partition.leadership
            if leadership is not None:
                self.replicas.perform(replica, list(leadership.on_tick(now_ms)))

    def _note_high_watermarks(self) -> None:
        for replica in self.replicas:
            self.directories.note_high_watermark(replica.name, replica.partition.high_watermark)

    def _checkpoint(self) -> None:
        self._note_high_watermarks()
        self.directories.write_high_watermarks()
        self._trim_metadata()

    def _checkpoint_soon(self) -> None:
        """Lower the checkpointed recovery points before anything new is written where something was cut."""
        if not self._checkpoint_is_due:
            self._checkpoint_is_due = True
            asyncio.get_running_loop().call_soon(self._checkpoint_recovery)

    def _checkpoint_recovery(self) -> None:
        self._checkpoint_is_due = False
        self.directories.write_recovery_points()

    def _flush(self) -> None:
        self.tasks.start(self.directories.flush())

    def _retain(self) -> None:
        wall_ms = self.world.clock.wall_ms()
        for replica in self.replicas:
            try:
                log = replica.partition.log
                if log.delete_old_segments(wall_ms, replica.partition.high_watermark):
                    self.replicas.log_start_moved(replica)
                log.expire_producers(wall_ms)
            except OSError as problem:
                replica.partition.go_offline(problem)

    def _trim_metadata(self) -> None:
        """Write a snapshot when much metadata has come since the last, so that the log of it can go."""
        if not self._owns_quorum or self.quorum is None or self.metadata.image.in_transaction:
            return
        if self.quorum.bytes_since_snapshot > self.config.quorum.bytes_between_snapshots_max:
            image = self.metadata.image
            self.quorum.take_snapshot(RecordWriter(image.metadata_version).encoded(image.snapshot()))


def _record(value: bytes) -> MetadataRecord:
    return decode_metadata_record(value)


def _limits(config: NodeConfig) -> FetchLimits:
    return FetchLimits(
        wait_ms_max=config.replication.fetch_wait_ms_max,
        backoff_ms=config.replication.fetch_backoff_ms,
        bytes_min=config.replication.fetch_bytes_min,
        partition_bytes_max=config.replication.fetch_partition_bytes_max,
        bytes_max=config.replication.fetch_bytes_max,
    )


def _features() -> list[reg.Feature]:
    return [
        reg.Feature(name=name, min_supported_version=levels.lowest, max_supported_version=levels.highest)
        for name, levels in SUPPORTED.items()
    ]
