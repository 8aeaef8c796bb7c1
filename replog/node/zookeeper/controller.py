"""A broker as candidate for controller: the campaign, the term, and its end (KIP-380; SPEC 3.12).

One task does it all in order: read, decide, write, send. A write is fenced by the version that the election gave
`/controller_epoch`; if it fails for whatever reason the term is over, because what is in ZooKeeper is no longer what this
controller believes. Whoever is elected next, perhaps the same node, reads everything anew.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from replog.config import Endpoint, NodeConfig
from replog.controller.events import Emit, Probe, Reply, Request
from replog.controller.policy import Settings
from replog.controller.served_api import AnyServedApi
from replog.errors import Error
from replog.metadata.state import BROKER_RESOURCE, CLUSTER_DEFAULT, TOPIC_RESOURCE
from replog.node.net.server import AnyRequest
from replog.node.tasks import Tasks
from replog.node.zookeeper.control_channel import ControlChannel
from replog.ports import World, ZooKeeper
from replog.types import NO_NODE, NodeId, TopicPartition
from replog.wire.messages import alter_partition
from replog.wire.translate import old_alter_partition
from replog.zookeeper import paths, znodes
from replog.zookeeper.controller import (
    BrokersChanged,
    CloseChannel,
    Command,
    ControlAnswered,
    Effect,
    Event,
    Loaded,
    OpenChannel,
    Tick,
    Write,
    ZooKeeperController,
)
from replog.zookeeper.operations import (
    Check,
    ConnectionLoss,
    Create,
    Delete,
    NoAuth,
    NodeExists,
    NoNode,
    Operation,
    SessionExpired,
    SetData,
    Stat,
    ZooKeeperError,
)
from replog.zookeeper.versions import ProtocolVersion
from replog.zookeeper.znodes import ControllerZnode, DamagedZnode, Registered, encoded

RETRY_MS: Final = 100
OPERATIONS_PER_TRANSACTION: Final = 400  # well below ZooKeeper's 1 MB a request
READS_AT_ONCE: Final = 64


class Deposed(Exception):
    """A write failed: somebody else is the controller, or nobody knows."""


class ControllerSeat:
    """What one broker does to be, or to know, the controller."""

    def __init__(self, world: World, config: NodeConfig, zookeeper: ZooKeeper, tasks: Tasks) -> None:
        self.world = world
        self.config = config
        self.zookeeper = zookeeper
        self.tasks = tasks
        self.protocol = ProtocolVersion.parse(config.zookeeper.inter_broker_protocol_version)
        self.controller_id = NO_NODE
        self.endpoint: Endpoint | None = None
        self.core: ZooKeeperController | None = None
        self.may_stand = False  # registered, and not on the way out
        self._fence = Check(path=paths.CONTROLLER_EPOCH, version=0)
        self._channels: dict[NodeId, ControlChannel] = {}
        self._events: deque[tuple[Event, AnyRequest | None]] = deque()
        self._waiting: dict[int, AnyRequest] = {}
        self._next_token = 0
        self._changed = asyncio.Event()
        self._is_doubtful = False  # whether the present term is still ours
        self._brokers_changed = False

    # --- what others call --------------------------------------------------------------------

    def look_again(self) -> None:
        """See who is the controller: a watch or the session said something."""
        self._is_doubtful = True
        self._changed.set()

    def brokers_changed(self) -> None:
        """Look at who is registered."""
        self._brokers_changed = True
        self._put(BrokersChanged({}), None)

    @staticmethod
    def decides(request: AnyRequest) -> AnyServedApi | None:
        """Return what is known of the API if this is a request for the controller."""
        return ZooKeeperController.decides(request.body)

    @property
    def is_active(self) -> bool:
        """Whether this node is the controller, as far as it knows."""
        return self.core is not None

    def handle(self, request: AnyRequest) -> None:
        """Take a request, or refuse it: NOT_CONTROLLER."""
        if self.core is None:
            self._refuse(request)
            return
        self._next_token += 1
        self._waiting[self._next_token] = request
        body = Request(token=self._next_token, body=request.body, received_ms=self.world.clock.now_ms())
        self._put(body, request)

    def _refuse(self, request: AnyRequest) -> None:
        served = self.decides(request)
        assert served is not None
        request.reply(served.refused(request.body, Error.NOT_CONTROLLER))

    def close(self) -> None:
        """Decide nothing any more."""
        self.may_stand = False
        self._end_term()

    def _put(self, event: Event, request: AnyRequest | None) -> None:
        if self.core is not None:
            self._events.append((event, request))
            self._changed.set()

    # --- campaign ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Stand for election again and again; serve a term when elected."""
        while True:
            try:
                await self._campaign()
            except Deposed as why:
                self.world.journal.log("info", f"no longer the controller: {why}")
            except (ConnectionLoss, SessionExpired):
                self.controller_id, self.endpoint = NO_NODE, None
                await asyncio.sleep(RETRY_MS / 1000)
            finally:
                self._end_term()

    async def _campaign(self) -> None:
        self._changed.clear()
        try:
            data, stat = await self.zookeeper.get(paths.CONTROLLER, watch=True)
        except NoNode:
            self.controller_id, self.endpoint = NO_NODE, None
            if self.may_stand:
                if (fence := await self._elected()) is not None:
                    await self._serve(*fence)
            elif await self.zookeeper.exists(paths.CONTROLLER, watch=True) is None:
                await self._changed.wait()  # whoever leaves has to know whom to ask
            return
        if stat.ephemeral_owner == self.zookeeper.session_id:
            # A term of ours that ended with a write of unknown outcome: somebody has to begin anew.
            with contextlib.suppress(NoNode):
                await self.zookeeper.transaction([Delete(path=paths.CONTROLLER, version=stat.version)])
            return
        await self._learn(znodes.decoded(ControllerZnode, paths.CONTROLLER, data))
        await self._changed.wait()

    async def _learn(self, controller: ControllerZnode) -> None:
        node = NodeId(controller.brokerid)
        try:
            data, stat = await self.zookeeper.get(paths.broker(node))
        except NoNode:
            self.controller_id, self.endpoint = NO_NODE, None
            await asyncio.sleep(RETRY_MS / 1000)
            self._changed.set()
            return
        registered = znodes.broker(node, data, stat.czxid)
        self.controller_id, self.endpoint = node, Endpoint(registered.znode.host, registered.znode.port)

    async def _elected(self) -> tuple[int, int] | None:
        """Try to become the controller; return the term's epoch and the version that fences its writes."""
        epoch, version = await self._controller_epoch()
        me = ControllerZnode(brokerid=self.config.node_id, timestamp=str(self.world.clock.wall_ms()))
        raised = SetData(path=paths.CONTROLLER_EPOCH, data=str(epoch + 1).encode(), version=version)
        try:
            results = await self.zookeeper.transaction(
                [Create(path=paths.CONTROLLER, data=encoded(me), ephemeral=True), raised]
            )
        except (NodeExists, NoNode):
            return None
        except (ConnectionLoss, SessionExpired, NoAuth):
            raise
        except ZooKeeperError:  # BadVersion: somebody was quicker
            return None
        stat = results[-1]
        assert isinstance(stat, Stat)
        return epoch + 1, stat.version

    async def _controller_epoch(self) -> tuple[int, int]:
        try:
            data, stat = await self.zookeeper.get(paths.CONTROLLER_EPOCH)
        except NoNode:
            with contextlib.suppress(NodeExists):
                await self.zookeeper.transaction([Create(path=paths.CONTROLLER_EPOCH, data=b"0")])
            data, stat = await self.zookeeper.get(paths.CONTROLLER_EPOCH)
        return znodes.controller_epoch(data), stat.version

    # --- term --------------------------------------------------------------------------------

    async def _serve(self, epoch: int, fence_version: int) -> None:
        self._fence = Check(path=paths.CONTROLLER_EPOCH, version=fence_version)
        self._brokers_changed = False
        await self._still_mine()  # and be notified when it is not
        loaded = await self._load()
        self._events.clear()
        self.core = ZooKeeperController(
            Settings.of(self.config),
            node_id=self.config.node_id,
            epoch=epoch,
            protocol=self.protocol,
            new_topic_id=self.world.entropy.uuid,
            random=self.world.entropy.random("replica placement"),
        )
        self.controller_id, self.endpoint = self.config.node_id, self.config.advertised
        self.world.journal.log("info", f"controller in epoch {epoch}")
        self.world.journal.event("controller_active", node=self.config.node_id, epoch=epoch)
        await self._perform(self.core.activate(loaded, self.world.clock.now_ms()))
        if self._brokers_changed:  # while it was being read
            self.brokers_changed()
        while self.may_stand:
            await self._next_event(self.core)

    async def _next_event(self, core: ZooKeeperController) -> None:
        if not self._events:
            delay_ms = max(1, core.next_deadline_ms - self.world.clock.now_ms())
            try:
                async with asyncio.timeout(delay_ms / 1000):
                    await self._changed.wait()
            except TimeoutError:
                self._events.append((Tick(), None))
            self._changed.clear()
        if self._is_doubtful:
            await self._still_mine()
        if not self._events:
            return
        event, request = self._events.popleft()
        if isinstance(event, BrokersChanged):
            event = BrokersChanged(await self._registered())
            # A broker that starts accepts the first controller that reaches it, and to start one may need no write, which
            # would be fenced. A read made after its registration shows who was elected before that.
            await self._still_mine()
        version = 0 if request is None else request.version
        await self._perform(core.handle(event, self.world.clock.now_ms(), version))

    async def _still_mine(self) -> None:
        """Look at `/controller`; `Deposed` when it is another's."""
        self._is_doubtful = False
        try:
            _, stat = await self.zookeeper.get(paths.CONTROLLER, watch=True)
        except NoNode:
            raise Deposed("its znode is gone") from None
        if stat.ephemeral_owner != self.zookeeper.session_id:
            raise Deposed("another is elected")

    async def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Write():
                    await self._write(effect.operations)
                case OpenChannel():
                    self._open(effect)
                case CloseChannel():
                    self._close_channel(effect.node)
                case Command():
                    self._channels[effect.node].put(effect.request)
                case Reply():
                    self._reply(effect)
                case Emit():
                    self.world.journal.event(effect.event, **effect.fields)
                case Probe():
                    self.world.journal.probe(effect.name)

    async def _write(self, operations: list[Operation]) -> None:
        for start in range(0, len(operations), OPERATIONS_PER_TRANSACTION):
            try:
                await self.zookeeper.transaction([self._fence, *operations[start : start + OPERATIONS_PER_TRANSACTION]])
            except NoAuth:
                raise  # whoever is elected next would be refused as well: an operator has to see to it
            except ZooKeeperError as problem:
                raise Deposed(f"a write failed: {type(problem).__name__} {problem}") from None

    def _open(self, effect: OpenChannel) -> None:
        broker = effect.broker
        self._close_channel(broker.broker_id)
        self._channels[broker.broker_id] = ControlChannel(
            self.world, self.config.node_id, broker, self.tasks, self._answered
        )

    def _answered(self, answered: ControlAnswered) -> None:
        self._put(answered, None)

    def _close_channel(self, node: NodeId) -> None:
        channel = self._channels.pop(node, None)
        if channel is not None:
            channel.close()

    def _reply(self, effect: Reply) -> None:
        request = self._waiting.pop(effect.token)
        body = effect.body
        if isinstance(body, alter_partition.AlterPartitionResponse):
            body = old_alter_partition(body, request.version)
        request.reply(body)

    def _end_term(self) -> None:
        if self.core is not None:
            self.world.journal.event("controller_resigned", node=self.config.node_id, epoch=self.core.epoch)
            self.controller_id, self.endpoint = NO_NODE, None
        self.core = None
        for node in list(self._channels):
            self._close_channel(node)
        undecided = {id(request): None for _, request in self._events if request is not None}
        self._events.clear()
        waiting, self._waiting = self._waiting, {}
        for request in waiting.values():
            if request.is_answered:
                continue  # its connection is gone, and its body with it
            if id(request) in undecided:
                self._refuse(request)
            else:
                request.close("the controller's term ended; whether this was done nobody knows")

    # --- reading -----------------------------------------------------------------------------

    async def _registered(self) -> dict[NodeId, Registered]:
        """Read who is registered, with their epochs (KIP-380, step 1)."""
        names = await self.zookeeper.children(paths.BROKER_IDS, watch=True)
        nodes = sorted(znodes.node_id(paths.BROKER_IDS, name) for name in names)
        found = await self._read([paths.broker(node) for node in nodes])
        return {
            node: znodes.broker(node, data, stat.czxid)
            for node in nodes
            if (read := found.get(paths.broker(node))) is not None
            for data, stat in [read]
        }

    async def _load(self) -> Loaded:
        registered = await self._registered()
        topics = await self.zookeeper.children(paths.TOPICS)
        assignments = await self._read([paths.topic(name) for name in topics])
        read = {
            name: znodes.topic(name, assignments[paths.topic(name)][0])
            for name in topics
            if paths.topic(name) in assignments
        }
        keys = [TopicPartition(name, index) for name, one in read.items() for index in sorted(map(int, one.partitions))]
        states = await self._read([paths.state(key) for key in keys])
        return Loaded(
            registered=registered,
            topics=read,
            states={
                key: (znodes.partition_state(key, found[0]), found[1])
                for key in keys
                if (found := states.get(paths.state(key))) is not None
            },
            configs=await read_configs(self.zookeeper),
            deletions=await self.zookeeper.children(paths.DELETE_TOPICS),
            next_producer_id=await self._next_producer_id(),
            left={
                topic: await self._left(topic)
                for topic in dict.fromkeys(key.topic for key in keys if paths.state(key) not in states)
            },
        )

    async def _left(self, topic: str) -> list[int] | None:
        try:
            names = await self.zookeeper.children(paths.partitions(topic))
        except NoNode:
            return None
        for name in names:
            if znodes.number(name) is None:
                raise DamagedZnode(f"{paths.partitions(topic)}/{name}", "no partition")
        return sorted(map(int, names))

    async def _next_producer_id(self) -> int | None:
        try:
            data, _ = await self.zookeeper.get(paths.PRODUCER_IDS)
        except NoNode:
            return None
        block = znodes.decoded(znodes.ProducerIdsZnode, paths.PRODUCER_IDS, data)
        if not block.block_end.isdecimal():
            raise DamagedZnode(paths.PRODUCER_IDS, f"block_end {block.block_end!r}")
        return int(block.block_end) + 1

    async def _read(self, wanted: list[str]) -> dict[str, tuple[bytes, Stat]]:
        return await read_all(self.zookeeper, wanted)


async def read_all(zookeeper: ZooKeeper, wanted: list[str]) -> dict[str, tuple[bytes, Stat]]:
    """Read many znodes, a bunch at a time; those that don't exist are left out."""
    found: dict[str, tuple[bytes, Stat]] = {}
    for start in range(0, len(wanted), READS_AT_ONCE):
        bunch = wanted[start : start + READS_AT_ONCE]
        answers = await asyncio.gather(*(_or_none(zookeeper, path) for path in bunch))
        found |= {path: read for path, read in zip(bunch, answers, strict=True) if read is not None}
    return found


async def _or_none(zookeeper: ZooKeeper, path: str) -> tuple[bytes, Stat] | None:
    try:
        return await zookeeper.get(path)
    except NoNode:
        return None


async def read_configs(zookeeper: ZooKeeper) -> dict[tuple[int, str], dict[str, str]]:
    """Read all configurations of topics and of the cluster."""
    wanted: dict[str, tuple[int, str]] = {}
    for name in await zookeeper.children(paths.TOPIC_CONFIGS):
        wanted[paths.topic_config(name)] = (TOPIC_RESOURCE, name)
    for name in await zookeeper.children(paths.BROKER_CONFIGS):
        entity = CLUSTER_DEFAULT if name == paths.DEFAULT_ENTITY else name
        wanted[paths.broker_config(entity)] = (BROKER_RESOURCE, entity)
    found = await read_all(zookeeper, list(wanted))
    return {
        resource: (znodes.topic_config if resource[0] == TOPIC_RESOURCE else znodes.broker_config)(
            resource[1], found[path][0]
        )
        for path, resource in wanted.items()
        if path in found
    }


def persistent_nodes() -> Iterator[Create]:
    """Yield what makes an empty ensemble a cluster's."""
    for path in paths.PERSISTENT:
        yield Create(path=path)
