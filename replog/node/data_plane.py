"""What every broker does with records, whoever decides what it hosts.

Replicas and their log directories, copying from leaders, proposals to the controller, coordinators, and the listener with all that
clients and other brokers ask. A driver owns it: `replog.node.broker` follows a metadata log and sends heartbeats (KRaft),
`replog.node.zookeeper.broker` by a session and control requests. The driver registers (it writes the identity's broker epoch),
decides what is hosted, and starts and stops the parts in its order.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol
from uuid import UUID

import msgspec

from replog.broker.identity import BrokerIdentity
from replog.broker.metadata import BrokerMetadata
from replog.config import ConfigError, Endpoint, NodeConfig
from replog.config.identity import CORDONED_LOG_DIRS
from replog.config.node_config import cordoned
from replog.config.setting import words
from replog.controller.authorization import May
from replog.log.settings import LogSettings
from replog.metadata.state import CORDONED_LEVEL
from replog.node.api import cluster, fetch, groups, log_directories, offsets, produce, transactions
from replog.node.api.cluster import ClusterApi
from replog.node.api.fetch import FetchApi
from replog.node.api.forwarding import Forwarding
from replog.node.api.groups import GroupApi
from replog.node.api.log_directories import DirectoryApi
from replog.node.api.offsets import OffsetsApi
from replog.node.api.produce import ProduceApi
from replog.node.api.transactions import TransactionApi
from replog.node.coordinators import internal_topics, markers
from replog.node.coordinators.markers import MarkerApi
from replog.node.coordinators.service import CoordinatorService
from replog.node.directories.assignments import LOOK_MS
from replog.node.directories.failures import DirectoryFailures
from replog.node.directories.log_directories import LogDirectories
from replog.node.directories.moves import DirectoryMoves
from replog.node.net.controller_link import ControllerLink
from replog.node.net.entrance import entrance_of
from replog.node.net.handlers import Handlers, contained
from replog.node.net.metering import Metering
from replog.node.net.server import AnyRequest, Handler, Server, ServerLimits
from replog.node.periodic import PeriodicWork
from replog.node.replication.compaction import Compaction
from replog.node.replication.copying import FetchLimits, ReplicaFetching
from replog.node.replication.flushing import Flushing
from replog.node.replication.proposals import ProposalChannel
from replog.node.replication.replicas import ReplicaPorts, Replicas
from replog.node.replication.scrubbing import Scrubbing
from replog.node.tasks import Tasks
from replog.ports import World
from replog.types import NodeId
from replog.wire.apis import SECURITY_APIS, Api
from replog.wire.layout import VersionRange

REQUEST_TIMEOUT_MS: Final = 5_000


class BrokerFailed(Exception):
    """The broker cannot go on; the message says why."""


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """How the two ways to live differ for those who handle records.

    alter_partition_version:  None is the highest that the controller offers.
    fetches_carry_epoch:       KIP-903 needs metadata that name everybody's broker epoch.
    needs_all_directories:    it could not be reported which replicas are lost with one of them.
    """

    apis: dict[Api, VersionRange]
    alter_partition_version: int | None
    fetches_carry_epoch: bool
    needs_all_directories: bool


class Driver(Protocol):
    """What is asked of whoever drives a data plane."""

    def leader(self) -> tuple[NodeId, Endpoint | None]:
        """Return who the controller is, and where, as far as that is known."""

    def on_directory_lost(self, directory_id: UUID) -> None:
        """Report a failed log directory to the controller."""

    def on_replica_moved(self) -> None:
        """Look again which replica lies in which directory."""


class DataPlane:
    """The parts of one broker that handle records."""

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        mode: Mode,
        driver: Driver,
        *,
        may: May,
        handler: Handler | None = None,
        voters_in_log: Callable[[], bool] = lambda: False,
    ) -> None:
        """`handler` gets the requests instead, and hands on to `handle` what is not the driver's.

        voters_in_log:  whether the metadata quorum's log says who votes.
        """
        self.world = world
        self.config = config
        self.identity = BrokerIdentity(config.node_id, world.entropy.uuid())
        self.tasks = Tasks()
        self.metadata = BrokerMetadata(config.node_id, config.listeners.inter_broker)
        self.directories = LogDirectories(world, config.log_dirs, LogSettings.of(config.log))
        self.link = ControllerLink(
            world,
            f"broker-{config.node_id}",
            driver.leader,
            config.controller_access,
            open_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        self._mode = mode
        self.replicas = Replicas(world, self.metadata, self._replica_ports)
        self.failures = DirectoryFailures(
            self.replicas,
            self.directories,
            metadata_path=config.metadata_log_dir,
            report=driver.on_directory_lost,
            needs_all=mode.needs_all_directories,
        )
        self.moves = DirectoryMoves(self.replicas, self.directories, driver.on_replica_moved, self.tasks)
        self.compaction = Compaction(self.replicas, self.flushing, self.tasks)
        self.scrubbing = Scrubbing(self.replicas, self.tasks, config.broker_access, config.log.scrub_bytes_per_second)
        self.cluster = ClusterApi(config, self.replicas, self.link, self.tasks, may=may, voters_in_log=voters_in_log)
        self.authorizer = self.cluster.authorizer
        self.metering = Metering(world.clock, lambda: self.metadata.image.client_quotas)
        self.handlers = self._handlers()
        offered = {**mode.apis, **SECURITY_APIS} if config.is_secured else mode.apis
        self.server = Server(
            world,
            offered,
            handler or self.handle,
            ServerLimits.of(config.network),
            features=self.cluster.features,
            may_come=self.metering.may_come,
        )
        self.periodic = PeriodicWork()
        self._checkpoint_is_due = False
        self._cordons_said: tuple[str | None, bool] = (None, False)

    def _replica_ports(self, replicas: Replicas) -> ReplicaPorts:
        """Make those who act on what becomes of replicas, and act on them in turn."""
        config, mode = self.config, self._mode
        self.flushing = Flushing(replicas, self.tasks)
        self.proposals = ProposalChannel(
            replicas, self.link, self.tasks, self.identity, version=mode.alter_partition_version
        )
        self.fetching = ReplicaFetching(
            replicas,
            self.flushing,
            _limits(config),
            self.tasks,
            self.identity,
            config.broker_access,
            carries_epoch=mode.fetches_carry_epoch,
        )
        self.coordinators = CoordinatorService(config, replicas, self.link, self.tasks, self.identity)
        return ReplicaPorts(
            replication=self.fetching,
            proposals=self.proposals,
            coordination=self.coordinators,
            flushing=self.flushing,
            on_truncated=self._checkpoint_soon,
        )

    # --- start and stop ------------------------------------------------------------------

    def start_periodic_work(
        self, *, look_at_directories: Callable[[], None], after_checkpoint: Callable[[], None]
    ) -> None:
        """Begin what is done again and again."""
        config, every = self.config, self.periodic.every

        def checkpoint() -> None:
            self.note_high_watermarks()
            self.directories.begin_high_watermarks()
            after_checkpoint()

        # SPEC 0.2: the ISR is looked at every half of the allowed lag.
        every("isr", max(1, config.replication.lag_ms_max // 2), self._tick_leaders)
        every("checkpoint", config.replication.high_watermark_checkpoint_interval_ms, checkpoint)
        every("flush", config.log.flush_checkpoint_interval_ms, self._flush)
        if config.log.cleaner_enable:
            every("compaction", config.log.cleaner_backoff_ms, self.compaction.begin)
        if len(self.directories.paths) > 1:
            every("directories", LOOK_MS, look_at_directories)
        if config.log.scrub_bytes_per_second:
            self.scrubbing.begin()
        every("retention", config.log.retention_check_interval_ms, self._retain)
        every("producers", config.log.producer_expiration_check_interval_ms, self._expire_producers)

    async def listen(self) -> None:
        """Let clients and brokers in. `OSError` when an address is taken."""
        for listener in self.config.listeners.brokers:
            entrance = entrance_of(
                self.world, listener, self.config, lambda *user: self.metadata.image.scram_credential(*user)
            )
            await self.server.start(listener.endpoint, entrance)

    def look_at_cordons(self) -> bool:
        """Take from the metadata which log directories take no new replicas (KIP-1066): what this broker has of its own, or its file.

        Returns whether controllers have to know of a change. What nobody could obey changes nothing, and is said once, as in Kafka.
        """
        image = self.metadata.image
        own = image.broker_config(self.config.node_id, CORDONED_LOG_DIRS)
        said = (own, image.metadata_version >= CORDONED_LEVEL)
        if said == self._cordons_said:
            return False
        self._cordons_said = said
        before = self.directories.cordoned
        named = self.config.identity.cordoned_log_dirs if own is None else words(own)
        try:
            self.directories.cordoned = cordoned(named, self.config.log_dirs) if said[1] else []
        except ConfigError as problem:
            self.world.journal.log("warning", f"{problem}; what was cordoned before still is")
        return self.directories.cordoned != before

    @property
    def cordoned_ids(self) -> list[UUID] | None:
        """Return the ids of the directories that take no new replicas; None where the metadata version has no room for them."""
        is_known = self.metadata.image.metadata_version >= CORDONED_LEVEL
        return self.directories.cordoned_ids if is_known else None

    def registered(self) -> None:
        """Act under the identity's new broker epoch."""
        self.fetching.registered()

    def stop(self) -> None:
        """Serve and copy nothing more."""
        self.periodic.stop()
        self.fetching.stop()
        self.flushing.stop()
        self.server.stop()
        self.coordinators.stop()
        self.replicas.close()
        self.tasks.cancel()
        self.link.close()

    def close_logs(self) -> None:
        """Close all logs in order, after everything else."""
        self.note_high_watermarks()
        self.directories.close_in_order(self.identity.broker_epoch)

    # --- requests ------------------------------------------------------------------------

    def _handlers(self) -> Handlers:
        """Return who answers what: each module's `APIS` says which."""
        replicas, coordinators = self.replicas, self.coordinators
        consumer_groups = GroupApi(
            coordinators.groups, coordinators.verifier, lambda: coordinators.permits_consumer_groups
        )
        producers = TransactionApi(
            coordinators.transactions, coordinators.groups, coordinators.producer_ids, self.tasks
        )
        end_markers = MarkerApi(replicas, coordinators.groups, self.tasks)
        handlers = Handlers()
        handlers.serve(produce.APIS, ProduceApi(replicas, coordinators.verifier))
        handlers.serve(fetch.APIS, FetchApi(replicas, self.config, lambda: self.server.unsent_bytes, self.authorizer))
        handlers.serve(offsets.APIS, OffsetsApi(replicas, self.tasks, self.identity))
        handlers.serve(cluster.APIS, self.cluster)
        handlers.serve(log_directories.APIS, DirectoryApi(replicas, self.directories, self.moves))
        handlers.serve(internal_topics.APIS, coordinators.internal_topics)
        handlers.serve(groups.APIS, consumer_groups)
        handlers.serve(transactions.APIS, producers)
        handlers.serve(markers.APIS, end_markers)
        Forwarding(self.world, self.link, self.tasks, lambda: self.metadata.image.client_quotas).answer(handlers)
        coordinators.marker_links.answer_ourselves(markers.WRITE_TXN_MARKERS.served.exchange, end_markers.write)
        coordinators.links.answer_ourselves(
            transactions.ADD_PARTITIONS_TO_TXN.served.exchange, producers.add_partitions
        )
        return handlers

    def handle(self, request: AnyRequest) -> None:
        """Let the handler of its API answer a request."""
        handled = self.handlers.by_api.get(request.api)
        if handled is None:
            request.close(f"{request.api.name} is not answered by brokers")
            return
        try:
            if self.authorizer.is_open or self.authorizer.admits(request, handled.served):
                meter = self.metering.watch(request, handled.served)
                handled.handle(request)
                if meter is not None:
                    meter.handled()
        except OSError as problem:
            # asyncio takes an OSError within a protocol for a lost connection and goes on; after one from the disk
            # no log can be trusted.
            request.close("the disk failed")
            context = {"message": f"{request.api.name}: the disk failed", "exception": problem}
            asyncio.get_running_loop().call_exception_handler(context)
        except Exception as problem:  # noqa: BLE001  # the boundary of a request
            contained(self.world.journal, request, handled.served, request.body)(problem)

    # --- time ----------------------------------------------------------------------------

    def note_high_watermarks(self) -> None:
        """Let the directories know what to write down."""
        for replica in self.replicas:
            self.directories.note_high_watermark(replica.name, replica.partition.high_watermark)

    def _tick_leaders(self) -> None:
        now_ms = self.world.clock.now_ms()
        for replica in self.replicas:
            leadership = replica.partition.leadership
            if leadership is not None:
                self.replicas.perform(replica, list(leadership.on_tick(now_ms)))

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
                log.count_as_cold()
            except OSError as problem:
                replica.partition.go_offline(problem)

    def _expire_producers(self) -> None:
        clock = self.world.clock
        now_ms, wall_ms = clock.now_ms(), clock.wall_ms()
        for replica in self.replicas:
            replica.partition.expire_producers(now_ms=now_ms, wall_ms=wall_ms)


def _limits(config: NodeConfig) -> FetchLimits:
    return FetchLimits(
        wait_ms_max=config.replication.fetch_wait_ms_max,
        backoff_ms=config.replication.fetch_backoff_ms,
        bytes_min=config.replication.fetch_bytes_min,
        partition_bytes_max=config.replication.fetch_partition_bytes_max,
        bytes_max=config.replication.fetch_bytes_max,
    )
