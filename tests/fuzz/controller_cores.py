"""Controllers' cores under any sequence of requests, time-outs, answers about logs and changes of the active controller.

Not a test module. What the active controller writes is encoded, and a standby applies it: a record that nobody can read would end all of them.
"""

from itertools import count
from random import Random
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from replog.config.security import STANDARD_AUTHORIZER
from replog.controller.controller import APIS, Controller
from replog.controller.events import (
    Append,
    AskLogInfo,
    BrokerRefuses,
    Client,
    Effect,
    Event,
    LogInfoAnswered,
    Reply,
    Request,
    Tick,
)
from replog.controller.policy import Settings, Strategy
from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.features import SUPPORTED
from replog.metadata.record_versions import RecordWriter
from replog.metadata.state import BROKER_RESOURCE, CLUSTER_DEFAULT, GROUP_RESOURCE, TOPIC_RESOURCE, Broker
from replog.types import BrokerEpoch, NodeId
from replog.wire.apis import CONTROLLER_APIS, SECURITY_APIS, Api
from replog.wire.messages import broker_registration as br
from replog.wire.messages import controller_registration as cr
from replog.wire.messages import get_replica_log_info as gli
from replog.wire.messages.alter_partition import AlterPartitionRequest
from replog.wire.records.metadata import decode_metadata_record
from replog.wire.translate import current_alter_partition
from tests.fuzz.drawing import CLUSTER, TOPIC_IDS, Asked, Drawing, Trail, Voice

SECURED: Final = {"authorizer.class.name": STANDARD_AUTHORIZER}
NODES: Final = (1, 2, 3)
RESOURCES: Final = {1: (TOPIC_RESOURCE, "t"), 2: (BROKER_RESOURCE, CLUSTER_DEFAULT), 3: (GROUP_RESOURCE, "g")}
RESTARTS: Final = 0.01
STORIES: Final = (
    (Api.BROKER_HEARTBEAT, Api.ALTER_PARTITION, Api.BROKER_HEARTBEAT, Api.ALTER_PARTITION),
    (Api.BROKER_REGISTRATION, Api.BROKER_HEARTBEAT, Api.BROKER_HEARTBEAT, Api.ASSIGN_REPLICAS_TO_DIRS),
    (Api.CREATE_TOPICS, Api.CREATE_PARTITIONS, Api.ALTER_PARTITION_REASSIGNMENTS, Api.DELETE_TOPICS),
    (Api.ALTER_PARTITION_REASSIGNMENTS, Api.ALTER_PARTITION, Api.ELECT_LEADERS, Api.LIST_PARTITION_REASSIGNMENTS),
    (Api.ELECT_DESIGNATED_LEADERS, Api.ELECT_LEADERS, Api.ELECT_DESIGNATED_LEADERS),
    (Api.INCREMENTAL_ALTER_CONFIGS, Api.ALTER_CONFIGS, Api.CREATE_TOPICS),
    (Api.CREATE_ACLS, Api.DESCRIBE_ACLS, Api.CREATE_ACLS, Api.DELETE_ACLS),
    (Api.ALTER_CLIENT_QUOTAS, Api.CREATE_TOPICS, Api.CREATE_PARTITIONS, Api.DESCRIBE_CLIENT_QUOTAS),
    (Api.ALTER_USER_SCRAM_CREDENTIALS, Api.DESCRIBE_USER_SCRAM_CREDENTIALS, Api.ALTER_USER_SCRAM_CREDENTIALS),
    (Api.UPDATE_FEATURES, Api.CONTROLLER_REGISTRATION, Api.ALLOCATE_PRODUCER_IDS),
)
STEPS_MS: Final = (*(0, 1, 100, 1000) * 3, 10_000, 400_000)


def own_of(node: int) -> dict[str, object]:
    """Return what a broker says of itself."""
    supported = [
        br.Feature(name=name, min_supported_version=of.lowest, max_supported_version=of.highest)
        for name, of in SUPPORTED.items()
    ]
    of_controllers = [
        cr.Feature(name=name, min_supported_version=of.lowest, max_supported_version=of.highest)
        for name, of in SUPPORTED.items()
    ]
    resource = RESOURCES[node]
    of_configs = {
        f"{api}.{field}": value
        for api in ("INCREMENTAL_ALTER_CONFIGS", "ALTER_CONFIGS", "DESCRIBE_CONFIGS")
        for field, value in zip(("resource_type", "resource_name"), resource, strict=True)
    }
    return of_configs | {
        "broker_id": node,
        "controller_id": 100 + node,
        "CONTROLLER_REGISTRATION.features": of_controllers,
        "CONTROLLER_REGISTRATION.zk_migration_ready": False,
        "incarnation_id": UUID(int=1000 + node),
        "BROKER_REGISTRATION.features": supported,
        "BROKER_REGISTRATION.log_dirs": [UUID(int=5000 + node)],
        "BROKER_HEARTBEAT.want_shut_down": False,
        "BROKER_HEARTBEAT.want_fence": False,
        "BROKER_HEARTBEAT.current_metadata_offset": 10**6,
        "BROKER_REGISTRATION.is_migrating_zk_broker": False,
        "ASSIGN_REPLICAS_TO_DIRS.id_": UUID(int=5000 + node),
        "CREATE_ACLS.resource_pattern_type": 3,
        "CREATE_ACLS.principal": "User:alice",
        "CREATE_ACLS.host": "*",
        "CREATE_ACLS.operation": 3,
        "CREATE_ACLS.permission_type": 3,
        "ALTER_USER_SCRAM_CREDENTIALS.mechanism": 1,
        "ALTER_USER_SCRAM_CREDENTIALS.iterations": 4096,
        "ALTER_USER_SCRAM_CREDENTIALS.salted_password": b"p" * 32,
        "cordoned_log_dirs": None,
        "offline_log_dirs": [],
    }


class ControllerCore:
    """An active controller, and a standby that reads what it writes."""

    def __init__(self, seed: str) -> None:
        decided = {one.any_served.api for one in APIS.values()}
        offered = {api: versions for api, versions in (CONTROLLER_APIS | SECURITY_APIS).items() if api in decided}
        voices = [Voice(f"b{node}", own_of(node)) for node in NODES]
        self.drawing = Drawing(seed, offered, voices, STORIES)
        self.random: Random = self.drawing.random
        self.trail = Trail()
        self.now_ms = 1_000_000
        self.offset = 0
        self.settings = Settings(
            cluster_id=CLUSTER,
            min_insync_replicas=self.random.choice((1, 2)),
            unclean_recovery_manager=self.random.random() < 0.7,
            unclean_recovery_strategy=self.random.choice((*Strategy,)),
            partition_creation_rate=self.random.choice((1, 10_000)),
            max_idle_interval_ms=self.random.choice((0, 500)),
        )
        self._ids = count(10_000)
        self.controllers = [self._new(), self._new()]
        self.written: list[tuple[int, list[bytes]]] = []  # by the active one; not committed
        self.asked: list[AskLogInfo] = []
        self.waiting: dict[int, Asked] = {}
        self.writer = RecordWriter(0)
        self._tokens = 0
        self._begin()

    @property
    def active(self) -> Controller:
        """The one that decides."""
        return self.controllers[0]

    def _new(self) -> Controller:
        return Controller(self.settings, SECURED, lambda: UUID(int=next(self._ids)), Random(7))

    def _begin(self) -> None:
        """Let three brokers be registered, and two topics be there."""
        level = self.random.choice((14, 20, 25, SUPPORTED["metadata.version"].highest))
        records: list[r.MetadataRecord] = [
            r.FeatureLevelRecord(name="metadata.version", feature_level=level),
            r.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=self.random.choice((0, 1))),
        ]
        for voice, node in zip(self.drawing.voices, NODES, strict=True):
            broker = Broker(
                broker_id=NodeId(node),
                epoch=BrokerEpoch(100 + node),
                fenced=False,
                incarnation_id=UUID(int=1000 + node),
                log_dirs=(UUID(int=5000 + node),),
                features=dict(SUPPORTED),
            )
            records.append(r.registration_record(broker))
            voice.remembered["broker_epoch"] = [100 + node]
        for name, topic_id in TOPIC_IDS.items():
            records.append(r.TopicRecord(name=name, topic_id=topic_id))
            records += [
                r.PartitionRecord(
                    partition_id=index, topic_id=topic_id, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1 + index
                )
                for index in range(2)
            ]
        for controller in self.controllers:
            for offset, record in enumerate(records):
                controller.replay(offset, record)
        self.offset = 1000
        for controller in self.controllers:
            controller.image.last_offset = self.offset - 1
        self._activate()

    # --- steps -------------------------------------------------------------------------------

    def step(self) -> None:
        """Let something happen."""
        match self.random.choices(
            ("ask", "tick", "commit", "log info", "refuses", "fail over", "snapshot"), (60, 10, 15, 10, 2, 2, 1)
        )[0]:
            case "ask":
                self._ask()
            case "tick":
                self.now_ms += self.random.choice(STEPS_MS)
                self.trail.note("tick", self.now_ms)
                self._take(Tick())
            case "commit":
                for _ in range(self.random.randint(1, 3)):
                    self._commit_one()
            case "log info":
                self._answer_log_info()
            case "refuses":
                epoch = self.active.image.broker_epoch(NodeId(1)) + self.random.choice((0, 0, 1))
                self._take(BrokerRefuses(broker_id=NodeId(1), broker_epoch=BrokerEpoch(epoch)))
            case "snapshot":
                self._start_over()
            case _:
                self._fail_over()
        self.active.next_deadline_ms(self.now_ms)
        self.active.recovery_counts  # noqa: B018 - whoever scrapes metrics asks for them at any time

    def _ask(self) -> None:
        self._remember_a_partition()
        asked = self.drawing.asked()
        if asked is None:
            return
        self.trail.note(asked)
        body = asked.body
        if isinstance(body, AlterPartitionRequest):
            body = current_alter_partition(body, asked.version, lambda name: TOPIC_IDS.get(name, UUID(int=0)))
        self._tokens += 1
        self.waiting[self._tokens] = asked
        client = self.random.choice((None, Client("alice", asked.client_id, asked.version)))
        received_ms = self.now_ms - self.random.choice((0, 0, 5000))
        self._take(Request(token=self._tokens, body=body, received_ms=received_ms, client=client))

    def _remember_a_partition(self) -> None:
        """Let a broker know the state of a partition, and its own epoch; sometimes it has been started again."""
        image = self.active.image
        keys = [*image.partitions()]
        for voice, node in zip(self.drawing.voices, NODES, strict=True):
            if keys:
                key, partition = self.random.choice(keys)
                voice.remembered["leader_epoch"] = [partition.leader_epoch]
                voice.remembered["partition_epoch"] = [partition.partition_epoch]
                voice.remembered["topic_id"] = [key.topic_id]
            if NodeId(node) in image.brokers:
                voice.remembered["broker_epoch"] = [image.broker_epoch(NodeId(node))]
            if self.random.random() < RESTARTS:
                voice.own["incarnation_id"] = UUID(int=self.random.getrandbits(100))
                voice.own["previous_broker_epoch"] = image.broker_epoch(NodeId(node))
                voice.next.extendleft((Api.BROKER_HEARTBEAT, Api.BROKER_REGISTRATION))

    def _answer_log_info(self) -> None:
        if not self.asked:
            return
        asked = self.random.choice(self.asked)  # perhaps not for the first time
        drawn = self.drawing.answer_to(gli.GetReplicaLogInfoResponse, 0)
        response = self.random.choice((None, drawn, self._fitting(drawn, asked), self._fitting(drawn, asked)))
        self.trail.note("log info", asked.broker_id, response)
        self._take(LogInfoAnswered(broker_id=asked.broker_id, request=asked.request, response=response))

    def _fitting(self, drawn: gli.GetReplicaLogInfoResponse, asked: AskLogInfo) -> gli.GetReplicaLogInfoResponse:
        """Return an answer of this incarnation, about what was asked."""
        image = self.active.image
        log_info = (drawn.topic_partition_log_info_list or [gli.TopicPartitionLogInfo()])[0].partition_log_info
        said = (log_info or [gli.PartitionLogInfo()])[0]
        topics = []
        for topic in asked.request.topic_partitions:
            known = image.topics.get(topic.topic_id)
            parts = [
                replace(
                    said,
                    partition=index,
                    current_leader_epoch=known.partitions[index].leader_epoch,
                    error_code=Error.NONE,
                )
                for index in topic.partitions
                if known is not None and index in known.partitions
            ]
            topics.append(gli.TopicPartitionLogInfo(topic_id=topic.topic_id, partition_log_info=parts))
        epoch = image.broker_epoch(asked.broker_id)
        return replace(drawn, error_code=Error.NONE, broker_epoch=epoch, topic_partition_log_info_list=topics)

    # --- effects -----------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        self._perform(self.active.handle(event, self.now_ms, self.offset))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append():
                    self.written.append((self.offset, [*self.writer.encoded(effect.records)]))
                    self.offset += len(effect.records)
                case Reply():
                    self.drawing.learn(self.waiting.pop(effect.token), effect.body)
                case AskLogInfo():
                    self.asked.append(effect)
                case _:
                    pass

    def _commit_one(self) -> None:
        if not self.written:
            return
        offset, values = self.written.pop(0)
        self.active.committed(offset + len(values) - 1)
        for index, value in enumerate(values):
            self.controllers[1].replay(offset + index, decode_metadata_record(value))

    def _fail_over(self) -> None:
        """Let the standby decide; what was not committed is gone, or is not."""
        self.trail.note("fail over", len(self.written))
        while self.written and self.random.random() < 0.5:
            self._commit_one()
        if self.written:
            self.offset = self.written[0][0]
        self.written.clear()
        self.waiting.clear()
        self.asked.clear()
        self.active.deactivate()
        self.controllers.reverse()
        self._activate()

    def _start_over(self) -> None:
        """Let the standby be another one, that knows a snapshot only."""
        image = self.controllers[1].image
        if image.in_transaction:
            return
        values = [*RecordWriter(image.metadata_version).encoded(image.snapshot())]
        self.controllers[1] = self._new()
        self.controllers[1].load_snapshot([decode_metadata_record(one) for one in values], image.last_offset + 1)

    def _activate(self) -> None:
        self.writer = RecordWriter(self.active.image.metadata_version)
        self._perform(self.active.activate(self.now_ms, self.offset))
