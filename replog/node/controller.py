"""A controller: a voter of the quorum, the controller's core, and a listener for brokers.

The quorum notifies of what is committed and who leads; the core decides while this node leads. What the core appends is in its
image at once and in the log a moment later; answers wait until everything appended before them is committed, and
become NOT_CONTROLLER when leadership ends first (SPEC 2.14).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, cast
from uuid import UUID

import msgspec

from replog.client.attempts import Attempts
from replog.client.connection import Connection, ConnectionLost, UnsupportedVersion
from replog.config import Endpoint, NodeConfig, endpoint
from replog.config.listeners import ListenerConfig
from replog.controller import controller
from replog.controller.authorization import May, Operation, allow_all, of_cluster
from replog.controller.controller import Controller
from replog.controller.describe import describe_controllers
from replog.controller.events import (
    Append,
    AskLogInfo,
    BrokerRefuses,
    Effect,
    Emit,
    Event,
    LogInfoAnswered,
    Probe,
    Reply,
    Request,
    Tick,
)
from replog.controller.policy import RECOVERY_STRATEGY, UNCLEAN_ENABLE, Settings
from replog.controller.served_api import ServedApi, without_message
from replog.errors import Error
from replog.log.log import Log
from replog.metadata.committed_view import CommittedView
from replog.metadata.features import KRAFT_VERSION, SUPPORTED, finalized
from replog.metadata.record_versions import NEWEST, RecordWriter
from replog.metadata.state import CONTROLLERS_LEVEL
from replog.node.api.authorizer import Authorizer
from replog.node.api.standard_authorizer import hook_of
from replog.node.metrics import Metric, MetricsServer, exposition, metrics, node_metrics
from replog.node.net import envelopes
from replog.node.net.broker_links import OwnRequest
from replog.node.net.controller_link import ControllerLink
from replog.node.net.entrance import entrance_of
from replog.node.net.handlers import AnswersApi, HandledApi, Handlers, contained
from replog.node.net.server import AnyRequest, Server, ServerLimits, ServerRequest
from replog.node.quorum import member
from replog.node.quorum.controller_registration import ControllerRegistration
from replog.node.quorum.lost_brokers import LostBrokers
from replog.node.quorum.member import QuorumListener, QuorumNode, SnapshotReader
from replog.node.quorum.metadata_log import open_metadata_log
from replog.node.tasks import Tasks
from replog.ports import World
from replog.quorum.voter_changes import ChangeRequest, voter_change_refused
from replog.types import ZERO_UUID, BrokerEpoch, NodeId, QuorumEpoch
from replog.wire.apis import CONTROLLER_APIS, SECURITY_APIS, Api
from replog.wire.messages import (
    alter_partition,
    api_versions,
    controller_registration,
    describe_cluster,
    get_replica_log_info,
)
from replog.wire.messages.add_raft_voter import AddRaftVoterRequest
from replog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from replog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from replog.wire.records.metadata import decode_metadata_record
from replog.wire.translate import current_alter_partition, old_alter_partition

TICK_MS_MAX: Final = 500
LOG_INFO_TIMEOUT_MS: Final = 4000

Undecided = AnyRequest | OwnRequest[msgspec.Struct, msgspec.Struct]


class ControllerNode:
    """One controller process, or one of many in a simulation."""

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        *,
        also_notify: Callable[[], QuorumListener] | None = None,
        may: May = allow_all,
    ) -> None:
        """Prepare; a combined node's broker is notified by the quorum as well, before the controller."""
        self.world = world
        self.config = config
        self.controller = Controller(
            Settings.of(config), config.texts, world.entropy.uuid, world.entropy.random("replica placement")
        )
        self.committed = CommittedView()
        self.authorizer = Authorizer(
            hook_of(config.security, lambda: self.committed.image, may), lambda: self.controller.image
        )
        self.handlers = Handlers()  # those of the quorum come with it
        self.handlers.serve(APIS, self)
        for decided in controller.APIS.values():
            self.handlers.on(decided.any_served, self._decide_if_active)
        self.tasks = Tasks()
        offered = {**CONTROLLER_APIS, **SECURITY_APIS} if config.is_secured else CONTROLLER_APIS
        self.server = Server(world, offered, self._on_request, ServerLimits.of(config.network), features=self._features)
        self.metrics = MetricsServer(world, self._metrics)
        self.brokers_metrics: Callable[[], Iterable[Metric]] = (
            tuple  # of the broker in the same process, if there is one
        )
        self.quorum: QuorumNode | None = None
        self._also_notify = also_notify
        self._log: Log | None = None
        self._written_end = 0  # behind the last record of this controller's own
        self._committed_end = 0
        self._term = 0
        self._writer = RecordWriter(NEWEST)
        self._unanswered: dict[int, Undecided] = {}
        self._next_token = 0
        self._until_committed: deque[tuple[int, Reply | Emit]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._connections: dict[NodeId, Connection] = {}
        self._attempts: dict[NodeId, Attempts] = {}
        self.link = ControllerLink(
            world,
            f"controller-{config.node_id}",
            self._leader,
            config.controller_access,
            open_timeout_ms=LOG_INFO_TIMEOUT_MS,
        )
        self.registration: ControllerRegistration | None = None
        self.lost_brokers: LostBrokers | None = None
        if config.controller.early_fencing_enable:
            self.lost_brokers = LostBrokers(world, self.tasks, self._address_of, self._on_broker_refuses)
            self.server.on_connection_lost = self.lost_brokers.connection_lost

    # --- start and stop----------------------------------------------------------------------------

    def prepare(self) -> QuorumNode:
        """Open the metadata log and join the quorum, without sending anything yet."""
        self._log = open_metadata_log(self.world, self.config)
        self.quorum = QuorumNode(self.world, self.config, self._log, self)
        self.handlers.serve(member.APIS, self.quorum)
        return self.quorum

    async def start(self) -> None:
        """Listen and take part. `OSError` when the address is taken."""
        incarnation = self.world.entropy.uuid()
        self.world.journal.event("start", node=self.config.node_id, role="controller", incarnation=str(incarnation))
        quorum = self.quorum or self.prepare()
        self.registration = ControllerRegistration(
            self.world,
            self.tasks,
            self.link,
            node_id=self.config.node_id,
            incarnation=incarnation,
            listeners=advertised_by(self.config),
            image=lambda: self.controller.image,
            register_here=self._register_here,
        )
        for listener in self.config.listeners.controllers:
            entrance = entrance_of(
                self.world, listener, self.config, lambda *user: self.committed.image.scram_credential(*user)
            )
            await self.server.start(listener.endpoint, entrance)
        if self.config.hooks.metrics_port:
            await self.metrics.start(self.config.listeners.controllers[0].endpoint.host, self.config.hooks.metrics_port)
        quorum.start()

    async def stop(self) -> None:
        """Hand over leadership if there is anybody to take it, then close in order."""
        assert self.quorum is not None
        assert self._log is not None
        await self.quorum.stop()
        self._stop_acting()
        self.server.on_connection_lost = None
        self.server.stop()
        self.metrics.stop()
        self.tasks.cancel()
        self.link.close()
        for connection in self._connections.values():
            connection.close()
        self._log.close()
        self.world.journal.event("stop", node=self.config.node_id, role="controller")

    def _metrics(self) -> str:
        return exposition([*metrics(self.controller), *node_metrics(self.world.journal), *self.brokers_metrics()])

    # --- notifications of the quorum ---------------------------------------------------------------------

    def on_committed(self, base_offset: int, epoch: int, records: list[tuple[int, bytes]]) -> None:
        """Apply one committed batch; the active controller has applied its own already."""
        if self._also_notify:
            self._also_notify().on_committed(base_offset, epoch, records)
        last_offset = records[-1][0]
        for offset, value in records:
            self.committed.replay(offset, value)
        if self.controller.is_active:
            self.controller.committed(last_offset)
        else:
            for offset, value in records:
                self.controller.replay(offset, decode_metadata_record(value))
        self._committed_end = last_offset + 1
        self._finish_committed()
        self._snapshot_if_due()
        self._look_at_registration()

    def on_snapshot(self, reader: SnapshotReader) -> None:
        """Start over from a snapshot."""
        if self._also_notify:
            self._also_notify().on_snapshot(reader)
        self.committed.start_over()
        values = list(reader)
        for value in values:
            self.committed.replay(reader.end_offset - 1, value)
        self.controller.load_snapshot([decode_metadata_record(value) for value in values], reader.end_offset)
        self._committed_end = reader.end_offset
        self._look_at_registration()

    def on_leading(self, epoch: QuorumEpoch, next_offset: int) -> None:
        """Begin to act as the active controller."""
        if self._also_notify:
            self._also_notify().on_leading(epoch, next_offset)
        self._term += 1
        self._writer = RecordWriter(self.controller.image.metadata_version)
        self._written_end = self._committed_end = next_offset  # everything before the term is applied
        self.world.journal.log("info", f"active controller in epoch {epoch}, from offset {next_offset}")
        self.world.journal.event("controller_active", node=self.config.node_id, epoch=epoch)
        self._perform(self.controller.activate(self._now_ms, next_offset))
        if places := self.controller.policy.deprecated():
            words = f"{UNCLEAN_ENABLE} is deprecated in favour of {RECOVERY_STRATEGY}; set for {', '.join(places)}"
            self.world.journal.log("warning", words)
        self._arm()

    def on_resigned(self, epoch: QuorumEpoch) -> None:
        """Stop acting; waiting requests are answered NOT_CONTROLLER."""
        if self._also_notify:
            self._also_notify().on_resigned(epoch)
        self.world.journal.log("info", f"no longer the active controller of epoch {epoch}")
        self.world.journal.event("controller_resigned", node=self.config.node_id, epoch=epoch)
        self._stop_acting()

    def on_leader_changed(self, leader: NodeId, epoch: QuorumEpoch) -> None:
        """Register with the new leader if it does not know this node; brokers learn the leader from the quorum."""
        if self._also_notify:
            self._also_notify().on_leader_changed(leader, epoch)
        self._look_at_registration()

    def _look_at_registration(self) -> None:
        if self.registration is not None:
            self.registration.look()

    def _stop_acting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._until_committed.clear()
        if self.controller.is_active:
            self.controller.deactivate()
        waiting, self._unanswered = self._unanswered, {}
        for request in waiting.values():
            self._refuse(request)

    def _snapshot_if_due(self) -> None:
        assert self.quorum is not None
        if self.quorum.bytes_since_snapshot < self.config.quorum.bytes_between_snapshots_max:
            return
        image = self.controller.image
        # An active controller's image runs ahead of what is committed; it waits for a quiet moment.
        if image.last_offset < self.quorum.applied_offset and not image.in_transaction:
            self.quorum.take_snapshot(RecordWriter(image.metadata_version).encoded(image.snapshot()))

    # --- requests ------------------------------------------------------------------------------------

    def _on_request(self, request: AnyRequest) -> None:
        try:
            self._handle(request)
        except OSError as problem:
            # Within a protocol asyncio takes an OSError for a lost connection; after one of the disk
            # the metadata log cannot be trusted, so the node has to end.
            context = {"message": f"{request.api.name}: the disk failed", "exception": problem}
            asyncio.get_running_loop().call_exception_handler(context)
        except Exception as problem:  # noqa: BLE001  # the boundary of a request
            served = self.handlers.by_api[request.api].served
            contained(self.world.journal, request, served, request.body)(problem)

    def _handle(self, request: AnyRequest) -> None:
        handled = self.handlers.by_api.get(request.api)
        if handled is None:
            request.close(f"{request.api.name} is not answered by controllers")
            return
        if not self.authorizer.admits(request, handled.served):
            return
        if isinstance(request.body, ChangeRequest) and self._has_fixed_voters():
            words = f"Voters are those of the configuration until {KRAFT_VERSION} is 1."
            request.reply(voter_change_refused(request.body, Error.UNSUPPORTED_VERSION, words))
            return
        if isinstance(request.body, AddRaftVoterRequest) and (words := self._no_voter(NodeId(request.body.voter_id))):
            request.reply(voter_change_refused(request.body, Error.INVALID_REQUEST, words))
            return
        handled.handle(request)

    def _has_fixed_voters(self) -> bool:
        """Return whether voters cannot be changed yet.

        A quorum that began with Apache Kafka's controllers finalizes no feature for it: there the log says it, by naming the
        voters' directories.
        """
        if not self.controller.is_active or self.controller.image.features.get(KRAFT_VERSION):
            return False
        return self.quorum is None or not self.quorum.voter_directories_known

    def _no_voter(self, node: NodeId) -> str:
        """Return why a node cannot vote, empty where nothing speaks against it.

        Brokers fetch the metadata as controllers without a vote do, with a directory, but answer no candidate: with one among
        its voters a quorum of one controller has no majority any more. Apache Kafka's leader asks the address of the
        request what it supports; what controllers have registered says it of the node itself.
        """
        image = self.controller.image
        if not self.controller.is_active or image.metadata_version < CONTROLLERS_LEVEL or node in image.controllers:
            return ""
        if node in image.brokers:
            return f"Node {node} is a broker: only controllers vote."
        return f"Node {node} has not registered as a controller."

    def describe_cluster(self, request: ServerRequest[DescribeClusterRequest, DescribeClusterResponse]) -> None:
        """DescribeCluster: who the controllers are."""
        assert self.quorum is not None
        leader, _, _ = self.quorum.leader
        request.reply(describe_controllers(request.body, self.config.cluster_id, self.quorum.voters, leader))

    def open_envelope(self, request: envelopes.Envelope) -> None:
        """Envelope: handle what a client asked a broker, as the client's own request."""
        enclosed = envelopes.opened(request, self.server.apis)
        if enclosed is not None:
            self._on_request(enclosed)

    def _decide_if_active(self, request: AnyRequest) -> None:
        assert self.quorum is not None
        if self.quorum.is_leading and self.controller.is_active:
            if self.lost_brokers is not None and isinstance(request.body, BrokerHeartbeatRequest):
                sender = NodeId(request.body.broker_id), BrokerEpoch(request.body.broker_epoch)
                self.lost_brokers.heartbeat(request.connection_id, *sender)
            self._decide(request)
        else:
            self._refuse(request)

    def _register_here(
        self, body: controller_registration.ControllerRegistrationRequest
    ) -> "asyncio.Future[controller_registration.ControllerRegistrationResponse] | None":
        if self.quorum is None or not (self.quorum.is_leading and self.controller.is_active):
            return None
        request: OwnRequest[
            controller_registration.ControllerRegistrationRequest,
            controller_registration.ControllerRegistrationResponse,
        ] = OwnRequest(Api.CONTROLLER_REGISTRATION, 0, body, self.link.client_id)
        self._decide(cast("OwnRequest[msgspec.Struct, msgspec.Struct]", request))
        return request.answer

    def _leader(self) -> tuple[NodeId, Endpoint | None]:
        assert self.quorum is not None
        node, _, address = self.quorum.leader
        if address is None:
            address = next((voter.endpoint for voter in self.config.voters if voter.node_id == node), None)
        return node, address

    def _decide(self, request: Undecided) -> None:
        body = request.body
        if isinstance(body, alter_partition.AlterPartitionRequest):
            body = current_alter_partition(body, request.version, self._topic_id)
        self._next_token += 1
        self._unanswered[self._next_token] = request
        self._take(
            Request(token=self._next_token, body=body, received_ms=self._now_ms, client=envelopes.client_of(request))
        )

    def _topic_id(self, name: str) -> UUID:
        topic = self.controller.image.topics_by_name.get(name)
        return topic.topic_id if topic else ZERO_UUID

    def _refuse(self, request: Undecided) -> None:
        if request.is_answered:
            return
        served = controller.APIS[type(request.body)].any_served
        request.reply(served.refused(request.body, Error.NOT_CONTROLLER))

    # --- events and their effects ----------------------------------------------------------------------

    @property
    def _now_ms(self) -> int:
        return self.world.clock.now_ms()

    @property
    def _end_offset(self) -> int:
        """Behind all that is in the log: the quorum writes batches of its own there, too (who votes, who leads)."""
        assert self.quorum is not None
        return self.quorum.log_end_offset

    def _take(self, event: Event) -> None:
        self._perform(self.controller.handle(event, self._now_ms, self._end_offset))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append():
                    self._append(effect)
                    if not self.controller.is_active:
                        return  # the quorum resigned meanwhile, and whoever waited was refused
                case Reply() | Emit():
                    # Not the log's end: no records come of the quorum's own batches (who votes), so nobody notices their commit.
                    self._until_committed.append((self._written_end, effect))
                case Probe():
                    self.world.journal.probe(effect.name)
                case AskLogInfo():
                    self.tasks.start(self._ask_log_info(effect, self._term))
        self._finish_committed()

    def _append(self, effect: Append) -> None:
        assert self.quorum is not None
        records = list(self._writer.encoded(effect.records))
        self._written_end = self.quorum.append(records) + len(records)

    def _finish_committed(self) -> None:
        while self._until_committed and self._until_committed[0][0] <= self._committed_end:
            _, effect = self._until_committed.popleft()
            if isinstance(effect, Emit):
                self.world.journal.event(effect.event, **effect.fields)
            else:
                self._answer(effect)

    def _answer(self, effect: Reply) -> None:
        request = self._unanswered.pop(effect.token)
        if request.is_answered:
            return  # its connection is gone
        body = effect.body
        if isinstance(body, alter_partition.AlterPartitionResponse):
            body = old_alter_partition(body, request.version)
        request.reply(body)

    def _arm(self) -> None:
        delay_ms = self.controller.next_deadline_ms(self._now_ms) - self._now_ms
        delay_ms = max(1, min(delay_ms, TICK_MS_MAX))
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        assert self.quorum is not None
        self._timer = None
        if not self.controller.is_active:
            return
        if self.quorum.is_leading:
            self._take(Tick())
        if self.controller.is_active:
            self._arm()

    async def _ask_log_info(self, question: AskLogInfo, term: int) -> None:
        response = None
        try:
            connection = await self._connection_to(question.broker_id)
            response = await connection.send(
                get_replica_log_info.EXCHANGE, question.request, timeout_ms=LOG_INFO_TIMEOUT_MS
            )
        except (ConnectionLost, UnsupportedVersion, OSError) as problem:
            self.world.journal.log("info", f"no log info of broker {question.broker_id}: {problem}")
        assert self.quorum is not None
        if term == self._term and self.controller.is_active and self.quorum.is_leading:
            self._take(LogInfoAnswered(broker_id=question.broker_id, request=question.request, response=response))

    async def _connection_to(self, broker_id: NodeId) -> Connection:
        address = self._address_of(broker_id)
        if address is None:
            raise ConnectionLost(f"broker {broker_id} is not registered")
        async with self._attempts.setdefault(broker_id, Attempts()).turn() as turn:
            known = self._connections.get(broker_id)
            if known is not None and known.is_open and known.endpoint == address:
                return known
            if known is not None:
                known.close()
            connection = Connection(self.world, address, f"controller-{self.config.node_id}", self.config.broker_access)
            self._connections[broker_id] = connection
            await turn.open(connection, timeout_ms=LOG_INFO_TIMEOUT_MS)
            return connection

    def _address_of(self, broker_id: NodeId) -> Endpoint | None:
        broker = self.controller.image.brokers.get(broker_id)
        if broker is None or not broker.endpoints:
            return None
        first = broker.endpoints[0]
        return broker.endpoint(self.config.listeners.inter_broker) or Endpoint(first.host, first.port)

    def _on_broker_refuses(self, broker_id: NodeId, epoch: BrokerEpoch) -> None:
        assert self.quorum is not None
        if self.controller.is_active and self.quorum.is_leading:
            self.world.journal.log("info", f"broker {broker_id} refuses connections: its process is gone")
            self._take(BrokerRefuses(broker_id=broker_id, broker_epoch=epoch))

    def _features(self) -> api_versions.ApiVersionsResponse:
        return api_versions.ApiVersionsResponse(
            supported_features=[
                api_versions.SupportedFeatureKey(name=name, min_version=levels.lowest, max_version=levels.highest)
                for name, levels in sorted(SUPPORTED.items())
            ],
            finalized_features_epoch=self.committed.last_offset,
            finalized_features=[
                api_versions.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in finalized(
                    self.committed.image.features,
                    voters_in_log=self.quorum is not None and self.quorum.has_voters_in_log,
                ).items()
            ],
        )


DESCRIBE_CLUSTER: Final = HandledApi(
    ServedApi(  # as Kafka's controllers: who may not alter the cluster has no business with them
        describe_cluster.EXCHANGE,
        questions=(of_cluster(Operation.ALTER),),
        refuse=without_message(describe_cluster.EXCHANGE),
    ),
    ControllerNode.describe_cluster,
)
ENVELOPE: Final = HandledApi(envelopes.SERVED, ControllerNode.open_envelope)
APIS: Final[tuple[AnswersApi[ControllerNode], ...]] = (DESCRIBE_CLUSTER, ENVELOPE)


def advertised_by(config: NodeConfig) -> list[ListenerConfig]:
    """Return the listeners of the controller role, the first as others reach it by the quorum's voters."""
    first, *others = config.listeners.controllers
    text = config.network.controller_advertised_listeners
    known = next((voter.endpoint for voter in config.voters if voter.node_id == config.node_id), first.advertised)
    advertised = endpoint("controller.advertised.listeners", text) if text else known
    return [msgspec.structs.replace(first, advertised=advertised), *others]
