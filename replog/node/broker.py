"""A broker of KRaft mode: a data plane, an observer of the metadata quorum, and a lifecycle with the controller.

Everything is put together here and nothing is decided here: committed metadata goes to the hosting, time to the cores.
`start` returns when the broker is under way; `stop` asks the controller for leave and closes in order. Dropping a broker
without `stop` is what a crash is.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, TypeVar
from uuid import UUID

from replog.broker import lifecycle as broker_lifecycle
from replog.broker.lifecycle import Lifecycle, Phase
from replog.config import Endpoint, NodeConfig
from replog.controller.authorization import May, allow_all
from replog.errors import Error
from replog.log.log import Log
from replog.metadata.features import SUPPORTED
from replog.metadata.record_versions import RecordWriter
from replog.metadata.records import MetadataRecord
from replog.node.data_plane import REQUEST_TIMEOUT_MS, BrokerFailed, DataPlane, Mode
from replog.node.directories.assignments import DirectoryAssignments
from replog.node.hosted_replicas import HostedReplicas
from replog.node.hosting import Hosting
from replog.node.metrics import Metric, MetricsServer, exposition, node_metrics, scrub_metrics
from replog.node.net.controller_link import NoController
from replog.node.quorum.member import QuorumNode, SnapshotReader
from replog.node.quorum.metadata_log import open_metadata_log
from replog.ports import World
from replog.types import BrokerEpoch, NodeId, QuorumEpoch
from replog.wire.apis import BROKER_APIS
from replog.wire.exchange import Exchange, Q
from replog.wire.messages import broker_heartbeat as hb
from replog.wire.messages import broker_registration as reg
from replog.wire.records.metadata import decode_metadata_record

LIFECYCLE_RETRY_MS: Final = 200
KRAFT: Final = Mode(
    apis=BROKER_APIS, alter_partition_version=None, fetches_carry_epoch=True, needs_all_directories=False
)

Response = TypeVar("Response", reg.BrokerRegistrationResponse, hb.BrokerHeartbeatResponse)


class Broker:
    """One broker process, or one of many in a simulation."""

    def __init__(
        self, world: World, config: NodeConfig, *, quorum: QuorumNode | None = None, may: May = allow_all
    ) -> None:
        """Prepare; a combined node gives its `quorum`, and passes on what is committed."""
        self.world = world
        self.config = config
        plane = self.plane = DataPlane(
            world, config, KRAFT, self, may=may,
            voters_in_log=lambda: self.quorum is not None and self.quorum.has_voters_in_log,
        )  # fmt: skip
        self.identity = plane.identity
        self.assignments = DirectoryAssignments(
            plane.replicas, plane.directories, plane.link, plane.tasks, plane.identity
        )
        hosted = HostedReplicas(
            config,
            plane.replicas,
            plane.directories,
            plane.identity,
            on_hosted=self.assignments.hosted if len(config.log_dirs) == 1 else None,
        )
        self.hosting = Hosting(
            hosted, plane.tasks, on_deleted=plane.coordinators.topics_deleted, on_caught_up=self._acted
        )
        self.acted_offset = 0  # first metadata offset of which not all is carried out: roles, new logs
        self.is_serving = False
        self.metrics = MetricsServer(world, self._metrics)
        self.quorum: QuorumNode | None = quorum
        self._owns_quorum = False
        self._metadata_log: Log | None = None
        self.lifecycle: Lifecycle | None = None
        self._lifecycle_changed = asyncio.Event()
        self._stopped = asyncio.Event()

    def _metrics(self) -> str:
        return exposition([*node_metrics(self.world.journal), *self.own_metrics()])

    def own_metrics(self) -> Iterable[Metric]:
        """Return what only a broker counts."""
        return scrub_metrics(self.plane.scrubbing)

    # --- lifecycle ------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the logs, watch the metadata, register; serving begins once the metadata is caught up."""
        plane = self.plane
        plane.directories.open(plane.failures.on_failure)
        self.world.journal.event(
            "start", node=self.config.node_id, role="broker", incarnation=str(self.identity.incarnation)
        )
        self.lifecycle = Lifecycle(
            identity=self.identity,
            previous_broker_epoch=plane.directories.previous_broker_epoch,
            heartbeat_interval_ms=self.config.controller.heartbeat_interval_ms,
            registration_timeout_ms=self.config.controller.registration_timeout_ms,
            shutdown_timeout_ms=self.config.controller.controlled_shutdown_timeout_ms,
            retry_ms=LIFECYCLE_RETRY_MS,
            now_ms=self.world.clock.now_ms(),
        )
        if self.quorum is None:
            self._owns_quorum = True
            self._metadata_log = open_metadata_log(self.world, self.config)
            self.quorum = QuorumNode(self.world, self.config, self._metadata_log, self)
            self.quorum.start()
            if self.config.hooks.metrics_port:
                await self.metrics.start(self.config.listener.host, self.config.hooks.metrics_port)
        plane.start_periodic_work(look_at_directories=self._look_at_directories, after_checkpoint=self._trim_metadata)
        plane.tasks.start(self._live(self.lifecycle))

    async def stop(self) -> None:
        """Hand leaderships over, stop serving, close the logs in order (SPEC 3.11.4)."""
        assert self.lifecycle is not None
        for effect in self.lifecycle.begin_shutdown(self.world.clock.now_ms()):
            await self._perform(effect)
        self._lifecycle_changed.set()
        await self._stopped.wait()
        self.metrics.stop()
        self.plane.stop()
        if self._owns_quorum and self.quorum is not None:
            await self.quorum.stop()
            if self._metadata_log is not None:
                self._metadata_log.close()
        self.plane.close_logs()
        self.world.journal.event("stop", node=self.config.node_id, role="broker")

    async def _live(self, lifecycle: Lifecycle) -> None:
        """Do what the lifecycle wants when it wants it, one request at a time."""
        while lifecycle.phase is not Phase.STOPPED:
            self._note_metadata(lifecycle)
            for effect in lifecycle.on_tick(self.world.clock.now_ms()):
                await self._perform(effect)
            await self._rest(lifecycle)

    async def _rest(self, lifecycle: Lifecycle) -> None:
        if lifecycle.phase is Phase.STOPPED or self._lifecycle_changed.is_set():
            self._lifecycle_changed.clear()
            return
        next_ms = lifecycle.next_ms
        delay_ms = None if next_ms is None else max(0, next_ms - self.world.clock.now_ms())
        try:
            async with asyncio.timeout(None if delay_ms is None else delay_ms / 1000):
                await self._lifecycle_changed.wait()
        except TimeoutError:
            return
        self._lifecycle_changed.clear()

    async def _perform(self, effect: broker_lifecycle.Effect) -> None:
        match effect:
            case broker_lifecycle.Register():
                await self._register(effect)
            case broker_lifecycle.SendHeartbeat():
                await self._send_heartbeat(effect)
            case broker_lifecycle.Registered():
                self._registered(effect)
            case broker_lifecycle.Unfenced():
                self.world.journal.log("info", "unfenced")
            case broker_lifecycle.Fenced():
                self.world.journal.log("warning", "fenced by the controller")
                self.world.journal.probe("broker_fenced")
            case broker_lifecycle.Stop():
                self._stopped.set()
            case broker_lifecycle.Give():
                raise BrokerFailed(effect.reason)

    async def _register(self, effect: broker_lifecycle.Register) -> None:
        assert self.lifecycle is not None
        body = reg.BrokerRegistrationRequest(
            broker_id=self.config.node_id,
            cluster_id=self.config.cluster_id,
            incarnation_id=effect.incarnation,
            listeners=[
                reg.Listener(
                    name=one.name,
                    host=one.advertised.host,
                    port=one.advertised.port,
                    security_protocol=one.protocol.number,
                )
                for one in self.config.listeners.brokers
            ],
            features=_features(),
            rack=self.config.identity.broker_rack or None,
            log_dirs=self.plane.directories.online_ids,
            previous_broker_epoch=effect.previous_broker_epoch,
        )
        answer = await self._ask(reg.EXCHANGE, body)
        if answer is None:
            effects = self.lifecycle.on_no_answer(self.world.clock.now_ms())
        else:
            if answer.error_code not in (Error.NONE, Error.NOT_CONTROLLER):
                self.world.journal.log("warning", f"registration: {answer.error_code.name}")
            effects = self.lifecycle.on_registration_answer(
                answer.error_code, BrokerEpoch(answer.broker_epoch), self.world.clock.now_ms()
            )
        for following in effects:
            await self._perform(following)

    async def _send_heartbeat(self, effect: broker_lifecycle.SendHeartbeat) -> None:
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
            cordoned_log_dirs=self.plane.cordoned_ids,
        )
        answer = await self._ask(hb.EXCHANGE, body)
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

    async def _ask(self, exchange: Exchange[Q, Response], body: Q) -> Response | None:
        """Ask the active controller; None when it cannot be had or is no longer active."""
        timeout_ms = max(self.config.controller.heartbeat_interval_ms, 1000)
        try:
            answer = await self.plane.link.send(exchange, body, timeout_ms=min(timeout_ms, REQUEST_TIMEOUT_MS))
        except NoController:
            return None
        if answer.error_code is Error.NOT_CONTROLLER:
            self.plane.link.drop()
            return None
        return answer

    def _registered(self, effect: broker_lifecycle.Registered) -> None:
        self.world.journal.log("info", f"registered with broker epoch {effect.broker_epoch}")
        self.plane.registered()
        self.hosting.update()

    async def _serve(self) -> None:
        """Open the listener: not before the metadata is up to date, or clients would learn the past."""
        if not self.is_serving and self.hosting.has_begun:
            await self.plane.listen()
            self.is_serving = True

    # --- metadata ------------------------------------------------------------------------

    def on_committed(self, base_offset: int, epoch: int, records: list[tuple[int, bytes]]) -> None:
        """Apply one committed batch."""
        if records:
            self.plane.metadata.replay([(offset, _record(value)) for offset, value in records])
        self._applied()

    def on_snapshot(self, reader: SnapshotReader) -> None:
        """Start over from a snapshot."""
        self.plane.metadata.restore(reader.end_offset - 1, (_record(value) for value in reader))
        self._applied()

    def on_leading(self, epoch: QuorumEpoch, next_offset: int) -> None:
        """Take no notice: a combined node's controller acts."""

    def on_resigned(self, epoch: QuorumEpoch) -> None:
        """Take no notice."""

    def on_leader_changed(self, leader: NodeId, epoch: QuorumEpoch) -> None:
        """Ask the new leader at once what the old one may have left unanswered."""
        self._lifecycle_changed.set()

    def _applied(self) -> None:
        if self.plane.look_at_cordons() and self.lifecycle is not None:
            self.lifecycle.on_cordons_changed(self.world.clock.now_ms())
            self._lifecycle_changed.set()
        self.hosting.update()
        self._acted()

    def _acted(self) -> None:
        if self.lifecycle is not None:
            before = self.lifecycle.next_ms
            self._note_metadata(self.lifecycle)
            if self.lifecycle.next_ms != before:
                self._lifecycle_changed.set()

    def _note_metadata(self, lifecycle: Lifecycle) -> None:
        """Report as known what is carried out: who leaves waits until the others lead what it led, not until they have read of it."""
        if self.quorum is not None and not self.hosting.is_behind:
            self.acted_offset = self.quorum.applied_offset
            lifecycle.on_metadata(self.acted_offset - 1, self.world.clock.now_ms())

    # --- what the data plane asks ----------------------------------------------------------

    def leader(self) -> tuple[NodeId, Endpoint | None]:
        """Return who leads the quorum, and where."""
        if self.quorum is None:
            return NodeId(-1), None
        node, _, endpoint = self.quorum.leader
        if endpoint is None:
            endpoint = next((voter.endpoint for voter in self.config.voters if voter.node_id == node), None)
        return node, endpoint

    def on_directory_lost(self, directory_id: UUID) -> None:
        """Report it to the controller with the next heartbeat."""
        if self.lifecycle is not None:
            self.lifecycle.on_directory_failed(directory_id, self.world.clock.now_ms())
            self._lifecycle_changed.set()

    def on_replica_moved(self) -> None:
        """Look again which replica lies where."""
        self.assignments.moved()

    # --- time ----------------------------------------------------------------------------

    def _look_at_directories(self) -> None:
        self.assignments.look()
        self.plane.moves.look()

    def _trim_metadata(self) -> None:
        """Write a snapshot when much metadata has come since the last, so that the log of it can go."""
        if not self._owns_quorum or self.quorum is None or self.plane.metadata.image.in_transaction:
            return
        if self.quorum.bytes_since_snapshot > self.config.quorum.bytes_between_snapshots_max:
            image = self.plane.metadata.image
            self.quorum.take_snapshot(RecordWriter(image.metadata_version).encoded(image.snapshot()))


def _record(value: bytes) -> MetadataRecord:
    return decode_metadata_record(value)


def _features() -> list[reg.Feature]:
    return [
        reg.Feature(name=name, min_supported_version=levels.lowest, max_supported_version=levels.highest)
        for name, levels in SUPPORTED.items()
    ]
