"""A broker of ZooKeeper mode: registered by an ephemeral znode, directed by a controller (KIP-380; SPEC 3.12).

Logs, partitions, fetchers, coordinators and everything clients see are those of KRaft mode (`DataPlane`). What differs is how
a broker stays registered: a session instead of heartbeats, control requests instead of a metadata log. Every broker also stands for
election as controller (`ControllerSeat`).

Control requests are carried out one after another in the order they came. Clients are answered once the controller has said
what the cluster looks like: before that, this broker would answer with the past.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar, cast
from uuid import UUID

from replog.broker.isr import PartitionState
from replog.config import Endpoint, NodeConfig
from replog.controller.authorization import BY_NODES, May, allow_all
from replog.controller.events import Probe
from replog.controller.served_api import ServedApi
from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.state import TOPIC_RESOURCE
from replog.node.data_plane import BrokerFailed, DataPlane, Mode
from replog.node.directories.log_directories import NoDirectory
from replog.node.hosted_replicas import HostedReplicas
from replog.node.net.controller_link import NoController
from replog.node.net.handlers import AnswersApi, HandledApi, Handlers
from replog.node.net.server import AnyRequest, ServerRequest
from replog.node.zookeeper.controller import ControllerSeat, persistent_nodes, read_all, read_configs
from replog.node.zookeeper.hosting import AssignedHosting, is_topic_id
from replog.ports import World, ZooKeeper, ZooKeeperListener
from replog.types import BrokerEpoch, NodeId, TopicPartition
from replog.wire.apis import ZOOKEEPER_BROKER_APIS, Api
from replog.wire.exchange import R
from replog.wire.messages import controlled_shutdown as cs
from replog.wire.messages import leader_and_isr as li
from replog.wire.messages import stop_replica as sr
from replog.wire.messages import update_metadata as um
from replog.zookeeper import paths, registration, znodes
from replog.zookeeper.acceptance import is_stale_incarnation
from replog.zookeeper.broker import (
    Answer,
    Assign,
    ControlledBroker,
    Effect,
    GiveUp,
    KeepOnly,
    Rename,
    refusal,
    topics_without_id,
)
from replog.zookeeper.operations import (
    ConnectionLoss,
    Create,
    Delete,
    NodeExists,
    NoNode,
    SessionExpired,
    SessionState,
    Unreachable,
    Watched,
    ZooKeeperError,
)
from replog.zookeeper.registration import Found
from replog.zookeeper.versions import ProtocolVersion
from replog.zookeeper.znodes import BrokerZnode, ClusterIdZnode, encoded

OpenZooKeeper = Callable[[World, NodeConfig, ZooKeeperListener], ZooKeeper]

RETRY_MS: Final = 100
ANNOUNCED_MAX: Final = 1_000  # changes of settings, of which every broker lists all
ANNOUNCED_KEPT: Final = 100  # for who has not looked yet
FORGOTTEN_TOGETHER: Final = 500
SLICE_MS: Final = 10  # of control requests: so long nobody else is served
ControlRequest = li.LeaderAndIsrRequest | sr.StopReplicaRequest | um.UpdateMetadataRequest
ControlQ = TypeVar("ControlQ", li.LeaderAndIsrRequest, sr.StopReplicaRequest, um.UpdateMetadataRequest)
CONTROLLER_APIS: Final = frozenset({Api.ALTER_PARTITION, Api.CONTROLLED_SHUTDOWN, Api.ALLOCATE_PRODUCER_IDS})
PEERS: Final = ("broker-", "controller-")  # how nodes call themselves
LOST_SESSIONS_OF_OTHERS: Final = 2  # session time-outs that an earlier process's registration may outlive it


class ZooKeeperUnusable(BrokerFailed):
    """There is no ZooKeeper to work with, or not ours; the message says which and why."""


class ZooKeeperUnreachable(ZooKeeperUnusable):
    """No server answered in time."""


class ZooKeeperBroker:
    """One broker process in ZooKeeper mode."""

    def __init__(
        self, world: World, config: NodeConfig, open_zookeeper: OpenZooKeeper, *, may: May = allow_all
    ) -> None:
        self.world = world
        self.config = config
        plane = self.plane = DataPlane(world, config, mode_of(config), self, may=may, handler=self._handle)
        self.identity = plane.identity
        self.zookeeper = open_zookeeper(world, config, self)
        self.controller_role = ControllerSeat(world, config, self.zookeeper, plane.tasks)
        hosted = HostedReplicas(config, plane.replicas, plane.directories, plane.identity, is_topic_id=is_topic_id)
        self.hosting = AssignedHosting(hosted, on_deleted=plane.coordinators.topics_deleted)
        self.control = ControlledBroker(plane.metadata, plane.identity, self._state_of, self._topic_id_of)
        self.is_serving = False
        self._control_handlers = Handlers()
        self._control_handlers.serve(APIS, self)
        self._early: list[AnyRequest] = []
        self._control_requests: deque[tuple[AnyRequest, ControlRequest]] = deque()
        self._control_came = asyncio.Event()
        self._configured: dict[str, None] = {}
        self._configs_changed = False
        self._session = asyncio.Event()
        self._registered_session = 0
        self._is_registered = asyncio.Event()
        self._is_stopping = False

    # --- start and stop ------------------------------------------------------------------

    async def start(self) -> None:
        """Reach ZooKeeper, open the logs, register; what is hosted comes with the first control requests.

        `ZooKeeperUnusable` (or `DamagedZnode`) says in one line why that cannot be.
        """
        await self._reach_zookeeper()
        self._open_directories()
        self.world.journal.event(
            "start", node=self.config.node_id, role="broker", incarnation=str(self.identity.incarnation)
        )
        await self._connected(self._read_configs)  # before anybody is served
        await self.plane.listen()
        self.is_serving = True
        self.plane.start_periodic_work(look_at_directories=self.plane.moves.look, after_checkpoint=_nothing)
        self.plane.tasks.start(self._carry_out_control_requests())
        self.plane.tasks.start(self.controller_role.run())
        await self._be_registered()
        self.plane.tasks.start(self._keep_registered())

    def _open_directories(self) -> None:
        """Open the logs; from now on the broker ends with the first directory that fails.

        No heartbeat reports to the controller which replicas are lost, as in KRaft mode (nor is there Kafka's
        `/log_dir_event_notification` here): only a session that ends moves leaderships. A broker that went on without the
        directory would begin its replicas with empty logs that count as in sync. `NoDirectory` says which one failed.
        """
        directories = self.plane.directories
        directories.open(self.plane.failures.on_failure)
        for path, problem in directories.offline.items():
            raise NoDirectory(f"{path}: {problem}; in ZooKeeper mode all log directories are needed")

    async def stop(self) -> None:
        """Hand leaderships over, stop serving, close the logs in order, end the session last (SPEC 3.11.4)."""
        self._is_stopping = True
        await self._take_leave()
        self.controller_role.close()
        self.plane.stop()
        self.plane.close_logs()
        await self.zookeeper.close()
        self.world.journal.event("stop", node=self.config.node_id, role="broker")

    async def _take_leave(self) -> None:
        """Ask the controller to be relieved; by whatever epoch is registered when it is asked (KIP-380)."""
        deadline_ms = self.world.clock.now_ms() + self.config.controller.controlled_shutdown_timeout_ms
        version = self.controller_role.protocol.of(Api.CONTROLLED_SHUTDOWN)
        while (left_ms := deadline_ms - self.world.clock.now_ms()) > 0:
            body = cs.ControlledShutdownRequest(broker_id=self.config.node_id, broker_epoch=self.identity.broker_epoch)
            with contextlib.suppress(NoController):
                timeout_ms = min(left_ms, max(1_000, self.config.controller.controlled_shutdown_timeout_ms // 3))
                answer = await self.plane.link.send(cs.EXCHANGE, body, version=version, timeout_ms=timeout_ms)
                if answer.error_code is Error.NONE and not answer.remaining_partitions:
                    return
                if answer.error_code is Error.NOT_CONTROLLER:
                    self.plane.link.drop()
            await asyncio.sleep(RETRY_MS / 1000)

    # --- ZooKeeper -----------------------------------------------------------------------

    async def _reach_zookeeper(self) -> None:
        """Have a session, and see that what is there is a cluster's and this one's."""
        where = self.config.zookeeper.connect
        timeout_ms = self.config.zookeeper.connection_timeout_ms
        try:
            await self.zookeeper.connect(timeout_ms)
            await self._connected(self._prepare_znodes, within_ms=timeout_ms)
        except Unreachable:
            raise ZooKeeperUnreachable(f"no ZooKeeper server of {where} answered within {timeout_ms} ms") from None
        except (ConnectionLoss, SessionExpired) as problem:
            raise ZooKeeperUnreachable(f"ZooKeeper at {where} was lost again: {type(problem).__name__}") from None
        except NoNode:
            chroot = "".join(where.partition("/")[1:]) or "/"
            message = f"the chroot {chroot} of zookeeper.connect={where} does not exist: create it"
            raise ZooKeeperUnusable(message) from None
        except ZooKeeperError as problem:
            message = f"ZooKeeper at {where} does not let us in: {type(problem).__name__} {problem}"
            raise ZooKeeperUnusable(message) from None

    async def _connected(self, act: Callable[[], Awaitable[None]], *, within_ms: int | None = None) -> None:
        """Do something, again where the servers go away meanwhile: what was done before is found done. None: without end."""
        began_ms = self.world.clock.now_ms()
        while True:
            try:
                return await act()
            except (ConnectionLoss, SessionExpired):
                if within_ms is not None and self.world.clock.now_ms() >= began_ms + within_ms:
                    raise
            await asyncio.sleep(RETRY_MS / 1000)

    async def _prepare_znodes(self) -> None:
        """Make an empty ensemble a cluster's; refuse another cluster's."""
        for create in persistent_nodes():
            with contextlib.suppress(NodeExists):
                await self.zookeeper.transaction([create])
        data, _ = await self._cluster_id()
        found = znodes.decoded(ClusterIdZnode, paths.CLUSTER_ID, data)
        if found.id != self.config.cluster_id:
            where = self.config.zookeeper.connect
            message = f"ZooKeeper at {where} is of cluster {found.id}, this node of {self.config.cluster_id}"
            raise ZooKeeperUnusable(message)

    async def _cluster_id(self) -> tuple[bytes, object]:
        data = encoded(ClusterIdZnode(id=self.config.cluster_id))
        with contextlib.suppress(NodeExists):
            await self.zookeeper.transaction([Create(path=paths.CLUSTER_ID, data=data)])
        return await self.zookeeper.get(paths.CLUSTER_ID)

    def on_session(self, state: SessionState) -> None:
        """Register again in a new session; the znode of the old one is gone."""
        self.world.journal.log("info", f"ZooKeeper session {state.value}: {self.zookeeper.session_id:#x}")
        if state is SessionState.EXPIRED:
            self.world.journal.probe("zookeeper_session_expired")
        self._session.set()
        self._configs_changed = True
        self._control_came.set()
        self.controller_role.look_again()
        self.controller_role.brokers_changed()

    def on_watch(self, path: str, what: Watched) -> None:
        """Look at what changed."""
        if path == paths.CONTROLLER:
            self.controller_role.look_again()
        elif path == paths.BROKER_IDS:
            self.controller_role.brokers_changed()
        elif path == paths.CONFIG_CHANGES:
            self._configs_changed = True
            self._control_came.set()

    async def _keep_registered(self) -> None:
        """Be registered in every session, until the end."""
        while True:
            await self._session.wait()
            self._session.clear()
            await self._be_registered()

    async def _be_registered(self) -> None:
        while self._registered_session != self.zookeeper.session_id:
            try:
                await self._register_here()
            except (ConnectionLoss, SessionExpired):
                await asyncio.sleep(RETRY_MS / 1000)

    async def _register_here(self) -> None:
        znode = registration.broker_znode(
            self.config.advertised,
            rack=self.config.identity.broker_rack or None,
            incarnation=str(self.identity.incarnation),
            wall_ms=self.world.clock.wall_ms(),
        )
        session_id = self.zookeeper.session_id
        timeout_ms = LOST_SESSIONS_OF_OTHERS * self.config.zookeeper.session_timeout_ms
        deadline_ms = self.world.clock.now_ms() + timeout_ms
        while (epoch := await self._try_to_register(znode)) is None:
            if self.world.clock.now_ms() > deadline_ms:
                self.world.journal.probe("duplicate_registration_refused")
                raise ZooKeeperUnusable(
                    f"broker id {self.config.node_id} is registered by another living broker "
                    f"({paths.broker(self.config.node_id)} is still there after {timeout_ms} ms)"
                )
            await asyncio.sleep(RETRY_MS / 1000)
        if session_id == self.zookeeper.session_id:
            self._registered_as(epoch, session_id)

    async def _try_to_register(self, znode: BrokerZnode) -> BrokerEpoch | None:
        try:
            return registration.epoch_of(
                await self.zookeeper.transaction(registration.transaction(self.config.node_id, znode))
            )
        except NodeExists:
            stat = await self.zookeeper.exists(paths.broker(self.config.node_id))
        if stat is None or registration.whose(stat, self.zookeeper.session_id) is not Found.OURS:
            return None
        return BrokerEpoch(stat.czxid)  # we did, and the answer was lost

    def _registered_as(self, epoch: BrokerEpoch, session_id: int) -> None:
        previous = self.identity.broker_epoch
        self._registered_session = session_id
        self._is_registered.set()
        self.control.registered(epoch)
        self.plane.registered()
        self.world.journal.log("info", f"registered with broker epoch {epoch}")
        self.world.journal.event(
            "registered",
            node=self.config.node_id,
            broker_epoch=epoch,
            previous_broker_epoch=previous if previous >= 0 else self.plane.directories.previous_broker_epoch,
            incarnation=str(self.identity.incarnation),
        )
        self.controller_role.may_stand = not self._is_stopping
        self.controller_role.look_again()

    # --- what the data plane asks ----------------------------------------------------------

    def leader(self) -> tuple[NodeId, Endpoint | None]:
        """Return who the controller is, and where."""
        return self.controller_role.controller_id, self.controller_role.endpoint

    def on_directory_lost(self, directory_id: UUID) -> None:
        """Never: the broker ends with the first directory that fails."""
        raise AssertionError(f"went on without {directory_id}")

    def on_replica_moved(self) -> None:
        """Take no notice: controllers of ZooKeeper mode know of no directories."""

    # --- configuration -------------------------------------------------------------------

    async def _read_configs(self) -> None:
        """Take all dynamic configurations there are, and watch for the next change."""
        self._configs_changed = False
        try:
            announced = await self.zookeeper.children(paths.CONFIG_CHANGES, watch=True)
            found = await read_configs(self.zookeeper)
            await self._forget_changes(announced)
        except (ConnectionLoss, SessionExpired):
            self._configs_changed = True
            raise
        image = self.plane.metadata.image
        records: list[r.MetadataRecord] = []
        for resource, values in image.configs.items():
            gone = [name for name in values if name not in found.get(resource, {})]
            records += [_config(resource, name, None) for name in gone]
        for resource, values in found.items():
            if resource[0] == TOPIC_RESOURCE:
                self._configured[resource[1]] = None
            for name, value in values.items():
                if image.configs.get(resource, {}).get(name) != value:
                    records.append(_config(resource, name, value))
        self.plane.metadata.replay(list(enumerate(records, start=image.last_offset + 1)))
        self.hosting.update()

    async def _forget_changes(self, announced: Sequence[str]) -> None:
        """Remove what everybody has seen, once it is much, as Apache Kafka's brokers do: a list of znodes has to fit into one answer."""
        if len(announced) <= ANNOUNCED_MAX:
            return
        old = announced[:-ANNOUNCED_KEPT]
        for first in range(0, len(old), FORGOTTEN_TOGETHER):
            together = old[first : first + FORGOTTEN_TOGETHER]
            with contextlib.suppress(NoNode):  # another broker is at it, too
                await self.zookeeper.transaction([Delete(path=f"{paths.CONFIG_CHANGES}/{name}") for name in together])

    async def _configure(self, body: ControlRequest) -> None:
        """Know the settings of topics before the first of their partitions is hosted."""
        topics: list[str] = []
        if isinstance(body, li.LeaderAndIsrRequest):
            topics = [each.topic_name for each in body.ungrouped_partition_states]
            topics += [each.topic_name for each in body.topic_states]
        while self._configs_changed or any(topic not in self._configured for topic in topics):
            try:
                await self._read_configs()
            except (ConnectionLoss, SessionExpired):
                if all(topic in self._configured for topic in topics):
                    break  # what is known is in force until ZooKeeper is back
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            self._configured |= dict.fromkeys(topics)
        known = self.control.known_epochs
        if body.controller_epoch > known.controller_epoch or body.broker_epoch > known.broker_epoch:
            self.control.topic_ids.clear()  # requests may have been missed: deletions
        await self._learn_ids(topics_without_id(body))

    async def _learn_ids(self, topics: list[str]) -> None:
        """Read the ids of topics that a request of an old version does not name."""
        known = self.control.topic_ids
        missing = [topic for topic in topics if topic not in known]
        while missing:
            try:
                found = await read_all(self.zookeeper, [paths.topic(topic) for topic in missing])
            except (ConnectionLoss, SessionExpired):
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            for topic in missing:
                read = found.get(paths.topic(topic))
                if read is not None and (znode := znodes.topic(topic, read[0])).topic_id:
                    known[topic] = znode.uuid
            return

    # --- requests ------------------------------------------------------------------------

    def _handle(self, request: AnyRequest) -> None:
        control = self._control_handlers.by_api.get(request.api)
        decided = self.controller_role.decides(request)
        if control is not None:
            if self.plane.authorizer.admits(request, control.served):
                control.handle(request)
        elif decided is not None and self._is_for_controller(request):
            if self.plane.authorizer.admits(request, decided):
                self.controller_role.handle(request)
        elif not self.control.has_metadata and not (request.client_id or "").startswith(PEERS):
            self._early.append(request)
        else:
            self.plane.handle(request)

    def queue_control(self, request: ServerRequest[ControlQ, R]) -> None:
        """Let a control request be carried out after those before it."""
        self._control_requests.append((cast(AnyRequest, request), request.body))
        self._control_came.set()

    def _is_for_controller(self, request: AnyRequest) -> bool:
        """Return who decides here: the controller itself; others pass on what clients ask, never what brokers do."""
        from_peer = (request.client_id or "").startswith(PEERS)
        return self.controller_role.is_active or from_peer or request.api in CONTROLLER_APIS

    async def _carry_out_control_requests(self) -> None:
        """Do what controllers say, from the first registration on: before it the registration that they are meant for is unknown."""
        await self._is_registered.wait()
        while True:
            self._control_came.clear()
            while self._control_requests:
                request, body = self._control_requests.popleft()
                if not request.is_answered:  # its connection may be gone
                    await self._configure(body)
                if not request.is_answered:
                    await self._carry_out(request, body)
            if self._configs_changed:
                with contextlib.suppress(ConnectionLoss, SessionExpired):
                    await self._read_configs()
                if self._configs_changed:
                    await asyncio.sleep(RETRY_MS / 1000)
                    continue
            await self._control_came.wait()

    def _forget_deleted_topics(self) -> None:
        """Whoever is created by such a name later has an id and settings of its own, which may have been read too early."""
        known = self.plane.metadata.image.topics_by_name
        for of_topics in (self.control.topic_ids, self._configured):
            for topic in [topic for topic in of_topics if topic not in known]:
                del of_topics[topic]

    async def _carry_out(self, request: AnyRequest, body: ControlRequest) -> None:
        """Do what a request says, thousands of logs perhaps; whoever else waits for the event loop has a turn in between."""
        clock = self.world.clock
        until_ms = clock.now_ms() + SLICE_MS
        for effect in self.control.handle(body):
            if clock.now_ms() >= until_ms:
                await asyncio.sleep(0)
                until_ms = clock.now_ms() + SLICE_MS
                if is_stale_incarnation(body.broker_epoch, self.identity.broker_epoch):
                    self.hosting.update()
                    request.reply(refusal(body, Error.STALE_BROKER_EPOCH))  # registered anew meanwhile (KIP-380)
                    return
            self._do(effect, request)
        if isinstance(body, um.UpdateMetadataRequest):
            self._forget_deleted_topics()
        if self.control.has_metadata and self._early:
            early, self._early = self._early, []
            for waiting in early:
                if not waiting.is_answered:  # its connection may be gone
                    self._handle(waiting)

    def _do(self, effect: Effect, request: AnyRequest) -> None:
        match effect:
            case Assign():
                self.hosting.assign(effect)
            case Rename():
                self.hosting.rename(effect)
            case GiveUp():
                self.hosting.give_up(effect)
            case KeepOnly():
                self.hosting.keep_only(effect)
            case Probe():
                self.world.journal.probe(effect.name)
            case Answer():
                self.hosting.update()
                request.reply(effect.body)

    def _state_of(self, name: TopicPartition) -> PartitionState | None:
        replica = self.plane.replicas.find(name)
        return None if replica is None else replica.partition.state

    def _topic_id_of(self, name: TopicPartition) -> UUID | None:
        replica = self.plane.replicas.find(name)
        return None if replica is None else replica.key.topic_id


def mode_of(config: NodeConfig) -> Mode:
    """Return how a data plane differs in ZooKeeper mode."""
    protocol = ProtocolVersion.parse(config.zookeeper.inter_broker_protocol_version)
    return Mode(
        apis=ZOOKEEPER_BROKER_APIS,
        alter_partition_version=protocol.of(Api.ALTER_PARTITION),
        fetches_carry_epoch=False,
        needs_all_directories=True,
    )


def _nothing() -> None:
    """Do nothing: there is no metadata log to be trimmed."""


def _config(resource: tuple[int, str], name: str, value: str | None) -> r.ConfigRecord:
    return r.ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=value)


LEADER_AND_ISR: Final = HandledApi(ServedApi(li.EXCHANGE, questions=BY_NODES), ZooKeeperBroker.queue_control)
STOP_REPLICA: Final = HandledApi(ServedApi(sr.EXCHANGE, questions=BY_NODES), ZooKeeperBroker.queue_control)
UPDATE_METADATA: Final = HandledApi(ServedApi(um.EXCHANGE, questions=BY_NODES), ZooKeeperBroker.queue_control)
APIS: Final[tuple[AnswersApi[ZooKeeperBroker], ...]] = (LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA)
