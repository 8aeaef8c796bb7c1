"""Brokers and controllers of ZooKeeper mode: control requests of anybody who reaches the listener, and what clients ask the controller.

Not a test module.
"""

from itertools import count
from random import Random
from typing import Final
from uuid import UUID

from replog.broker.isr import PartitionState
from replog.broker.metadata import BrokerMetadata
from replog.broker.partition import Partition
from replog.controller.events import Client, Reply, Request
from replog.controller.policy import Settings
from replog.log.log import Log
from replog.log.settings import LogSettings
from replog.types import BrokerEpoch, NodeId, TopicPartition
from replog.wire.apis import ZOOKEEPER_BROKER_APIS, Api, known_versions, request_type
from replog.wire.codec import encode_request
from replog.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from replog.zookeeper.broker import Answer, Assign, ControlledBroker, Effect, GiveUp, KeepOnly, Rename, id_of_name
from replog.zookeeper.controller import (
    BrokersChanged,
    Command,
    ControlAnswered,
    Event,
    Loaded,
    Tick,
    ZooKeeperController,
)
from replog.zookeeper.controller import Effect as ControllerEffect
from replog.zookeeper.operations import Stat
from replog.zookeeper.requests import deleted_by
from replog.zookeeper.versions import ProtocolVersion
from replog.zookeeper.znodes import BrokerZnode, PartitionStateZnode, Registered, TopicZnode, id_text
from tests.fuzz.drawing import CLUSTER, TOPIC_IDS, WALL_MS, Asked, Drawing, Trail, Voice
from tests.identities import an_identity
from tribunal.clusters.simulated.disk import SimulatedDisk

NODES: Final = (1, 2, 3)
MINE: Final = NodeId(1)
CONTROL: Final = (Api.LEADER_AND_ISR, Api.STOP_REPLICA, Api.UPDATE_METADATA)
STORIES_OF_CONTROL: Final = (
    (Api.UPDATE_METADATA, Api.LEADER_AND_ISR, Api.LEADER_AND_ISR, Api.STOP_REPLICA),
    (Api.LEADER_AND_ISR, Api.UPDATE_METADATA, Api.UPDATE_METADATA),
)
STORIES: Final = (
    (Api.ALTER_PARTITION, Api.ALTER_PARTITION, Api.CONTROLLED_SHUTDOWN),
    (Api.CREATE_TOPICS, Api.CREATE_PARTITIONS, Api.ALTER_PARTITION_REASSIGNMENTS, Api.DELETE_TOPICS),
    (Api.ALTER_PARTITION_REASSIGNMENTS, Api.ALTER_PARTITION, Api.ELECT_LEADERS, Api.DELETE_TOPICS),
    (Api.INCREMENTAL_ALTER_CONFIGS, Api.ALTER_CONFIGS, Api.ALLOCATE_PRODUCER_IDS),
)


class ZooKeeperBrokerCore:
    """A broker that is sent control requests, and hosts what they say."""

    def __init__(self, seed: str) -> None:
        voices = [Voice(f"c{node}", own_of_controller(node)) for node in NODES]
        apis = {api: ZOOKEEPER_BROKER_APIS[api] for api in CONTROL}
        self.drawing = Drawing(seed, apis, voices, STORIES_OF_CONTROL)
        self.random: Random = self.drawing.random
        self.trail = Trail()
        self.disk = SimulatedDisk(Random(0))
        self.hosted: dict[TopicPartition, tuple[UUID, Partition]] = {}
        self.metadata = BrokerMetadata(MINE)
        self.identity = an_identity()
        self.core = ControlledBroker(self.metadata, self.identity, self._state_of, self._id_of)
        self.epoch = 50
        self.core.registered(BrokerEpoch(self.epoch))

    def step(self) -> None:
        """Let something happen."""
        random = self.random
        if random.random() < 0.05:
            self.epoch += random.choice((1, 10))
            self.core.registered(BrokerEpoch(self.epoch))
            return
        if random.random() < 0.05:
            self.core.topic_ids |= dict(random.sample([*TOPIC_IDS.items()], 1))
        known = self.core.known_epochs
        for voice in self.drawing.voices:
            voice.own["broker_epoch"] = random.choice((self.epoch, self.epoch, -1))
            voice.own["controller_epoch"] = max(0, known.controller_epoch) + (random.random() < 0.1)
        asked = self.drawing.asked()
        if asked is None:
            return
        self.trail.note(asked)
        for effect in self.core.handle(asked.body):
            self._do(effect, asked)
        change = self.metadata.take_change()
        if change is not None:
            for action in self.metadata.actions(change.partitions):
                self.metadata.action(action.key)
        self.metadata.assigned()

    def _do(self, effect: Effect, asked: Asked) -> None:
        match effect:
            case Assign():
                self._assign(effect)
            case Rename():
                made = id_of_name(effect.topic)
                for name, (topic_id, partition) in [*self.hosted.items()]:
                    if name.topic == effect.topic and topic_id == made:
                        self.hosted[name] = (effect.topic_id, partition)
            case GiveUp():
                self._give_up(effect.name)
            case KeepOnly():
                for name in [one for one in self.hosted if one not in effect.names]:
                    self._give_up(name)
            case Answer():
                self.drawing.learn(asked, effect.body)
            case _:
                pass

    def _assign(self, effect: Assign) -> None:
        topic_id, partition = self.hosted.get(effect.name, (None, None))
        if partition is None or topic_id != effect.key.topic_id:
            partition = self._opened(effect.name, effect.key.topic_id)
            self.hosted[effect.name] = (effect.key.topic_id, partition)
        partition.on_metadata(effect.state, identity=self.identity, now_ms=0, wall_ms=WALL_MS)

    def _opened(self, name: TopicPartition, topic_id: UUID) -> Partition:
        log = Log.open(
            self.disk,
            f"data/{name.topic}-{name.partition}-{topic_id}",
            LogSettings(),
            recover=True,
            recovery_point=0,
            log_start_offset=0,
            now_ms=WALL_MS,
        )
        return Partition(
            name=name,
            topic_id=topic_id,
            node_id=MINE,
            log=log,
            high_watermark=0,
            brokers=self.metadata.brokers,
            lag_ms_max=30_000,
            refuses_while_recovering=True,
        )

    def _give_up(self, name: TopicPartition) -> None:
        found = self.hosted.pop(name, None)
        if found is not None:
            found[1].resign()

    def _state_of(self, name: TopicPartition) -> PartitionState | None:
        found = self.hosted.get(name)
        return None if found is None else found[1].state

    def _id_of(self, name: TopicPartition) -> UUID | None:
        found = self.hosted.get(name)
        return None if found is None else found[0]


def own_of_controller(node: int) -> dict[str, object]:
    """Return what a controller says."""
    return {
        "controller_id": node,
        "is_k_raft_controller": False,
        **{key: [1, 2] for key in ("replicas", "isr")},
        "leader": node,
        "leader_recovery_state": 0,
        "STOP_REPLICA.leader_epoch": node - 2,
    }


class ZooKeeperControllerCore:
    """The controller of two topics on three brokers that come and go."""

    def __init__(self, seed: str) -> None:
        decided = [api for api in ZOOKEEPER_BROKER_APIS if ZooKeeperController.decides(request_type(api)()) is not None]
        voices = [Voice(f"b{node}", own_of_broker(node)) for node in NODES]
        self.drawing = Drawing(seed, {api: ZOOKEEPER_BROKER_APIS[api] for api in decided}, voices, STORIES)
        self.random: Random = self.drawing.random
        self.trail = Trail()
        self.now_ms = 0
        self.epochs = {node: 50 + node for node in NODES}
        self.sent: list[Command] = []
        self.waiting: dict[int, Asked] = {}
        self._tokens = count(1)
        ids = count(1000)
        self.core = ZooKeeperController(
            Settings(cluster_id=CLUSTER, min_insync_replicas=self.random.choice((1, 2))),
            node_id=MINE,
            epoch=7,
            protocol=ProtocolVersion.parse(self.random.choice(("2.1", "2.8", "3.4"))),
            new_topic_id=lambda: UUID(int=next(ids)),
            random=Random(7),
        )
        state = PartitionStateZnode(controller_epoch=6, leader=1, leader_epoch=4, isr=[1, 2, 3])
        names = [TopicPartition(name, index) for name in TOPIC_IDS for index in range(2)]
        loaded = Loaded(
            registered=self._registered(),
            topics={
                name: TopicZnode(partitions={"0": [1, 2, 3], "1": [2, 3, 1]}, topic_id=id_text(topic_id))
                for name, topic_id in TOPIC_IDS.items()
            },
            states={name: (state, Stat(czxid=1, mzxid=100, version=5)) for name in names},
            configs={},
            deletions=self.random.choice(([], ["u"], ["gone"])),
            next_producer_id=self.random.choice((None, 1000)),
        )
        self._perform(self.core.activate(loaded, 0))

    def _registered(self) -> dict[NodeId, Registered]:
        return {
            NodeId(node): Registered(
                node=NodeId(node), epoch=BrokerEpoch(epoch), znode=BrokerZnode(host="h", port=node)
            )
            for node, epoch in self.epochs.items()
        }

    def step(self) -> None:
        """Let something happen."""
        match self.random.choices(("ask", "brokers", "answer", "tick"), (60, 8, 25, 5))[0]:
            case "ask":
                self._ask()
            case "brokers":
                self._change_brokers()
            case "answer":
                self._answer()
            case _:
                self.now_ms += self.random.choice((0, 1000, 400_000))
                self._take(Tick())

    def _ask(self) -> None:
        image = self.core.image
        for voice, node in zip(self.drawing.voices, NODES, strict=True):
            keys = [*image.partitions()]
            if keys:
                key, partition = self.random.choice(keys)
                voice.own |= {
                    "leader_epoch": partition.leader_epoch,
                    "partition_epoch": partition.partition_epoch,
                    "ALTER_PARTITION.topic_name": image.topics[key.topic_id].name,
                    "partition_index": key.partition,
                }
            voice.own["broker_epoch"] = self.epochs.get(node, -1)
        asked = self.drawing.asked()
        if asked is None:
            return
        self.trail.note(asked)
        token = next(self._tokens)
        self.waiting[token] = asked
        client = self.random.choice((None, Client("alice", asked.client_id, asked.version)))
        event = Request(token=token, body=asked.body, received_ms=self.now_ms, client=client)
        self._take(event, asked.version)

    def _change_brokers(self) -> None:
        node = self.random.choice(NODES)
        newest = max(self.epochs.values(), default=60)
        if node in self.epochs and self.random.random() < 0.5:
            del self.epochs[node]
        else:
            self.epochs[node] = newest + 1
        self.trail.note("brokers", self.epochs)
        self._take(BrokersChanged(self._registered()))

    def _answer(self) -> None:
        """Let a broker answer a control request, perhaps not for the first time, perhaps something else."""
        if not self.sent:
            return
        command = self.random.choice(self.sent)
        response = self.drawing.answer_to(StopReplicaResponse, 3)
        if isinstance(command.request.body, StopReplicaRequest) and self.random.random() < 0.8:
            response = _carried_out(command.request.body)
        self.trail.note("answer", command.node, response)
        self._take(ControlAnswered(node=command.node, request=command.request, response=response))

    def _take(self, event: Event, version: int = 0) -> None:
        self._perform(self.core.handle(event, self.now_ms, version))

    def _perform(self, effects: list[ControllerEffect]) -> None:
        for effect in effects:
            match effect:
                case Command():
                    body, version = effect.request.body, effect.request.version
                    api = next(one for one in CONTROL if request_type(one) is type(body))
                    assert version in known_versions(api)
                    encode_request(api, version, 1, "controller", body)
                    self.sent = [*self.sent[-20:], effect]
                case Reply():
                    self.drawing.learn(self.waiting.pop(effect.token), effect.body)
                case _:
                    pass


def _carried_out(request: StopReplicaRequest) -> StopReplicaResponse:
    """Return the answer of a broker that did all of it."""
    return StopReplicaResponse(
        partition_errors=[
            StopReplicaPartitionError(topic_name=topic, partition_index=index) for topic, index in deleted_by(request)
        ]
    )


def own_of_broker(node: int) -> dict[str, object]:
    """Return what a broker says of itself."""
    return {"broker_id": node, "new_isr": [node, 1 + node % 3], "leader_recovery_state": 0}
