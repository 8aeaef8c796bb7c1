"""A controller in a box for adapters and unit tests: no network, no clock, every append commits at once."""

from random import Random
from typing import Any
from uuid import UUID

import msgspec

from replog.controller.controller import Controller
from replog.controller.events import Append, Client, Effect, LogInfoAnswered, Reply, Request, Tick
from replog.controller.policy import Settings
from replog.metadata import records as r
from replog.metadata.features import SUPPORTED
from replog.metadata.state import BROKER_RESOURCE, CLUSTER_DEFAULT, TOPIC_RESOURCE, Broker, FeatureRange, Partition
from replog.types import BrokerEpoch, NodeId
from replog.wire.messages import broker_registration as br
from tests.cases.partitions import TOPIC, TOPIC_ID

CLUSTER = "C"


def incarnation(text: str | int) -> UUID:
    return UUID(int=1000 + (text if isinstance(text, int) else ord(text)))


def log_dir(broker_id: int) -> UUID:
    return UUID(int=5000 + broker_id)


class Box:
    """An active controller; `offset` is the end of its metadata log."""

    def __init__(self, **settings: Any) -> None:
        values = {"cluster_id": CLUSTER, "min_insync_replicas": 1} | settings
        ids = iter(range(10_000, 10_000_000))
        self.controller = Controller(Settings(**values), {}, lambda: UUID(int=next(ids)), Random(7))
        self.now_ms = 1_000_000
        self.offset = 0
        self.records: list[r.MetadataRecord] = []  # of the last event
        self.effects: list[Effect] = []

    @property
    def image(self) -> Any:
        return self.controller.image

    def replay(self, *records: r.MetadataRecord) -> "Box":
        for record in records:
            self.controller.replay(self.offset, record)
            self.offset += 1
        return self

    def broker(self, broker_id: int, *, epoch: int | None = None, **fields: Any) -> "Box":
        """Make a broker known by its record; unfenced unless said otherwise."""
        defaults: dict[str, Any] = {
            "fenced": False,
            "incarnation_id": incarnation(broker_id),
            "log_dirs": (log_dir(broker_id),),
            "features": dict(SUPPORTED),
        }
        broker = Broker(
            broker_id=NodeId(broker_id),
            epoch=BrokerEpoch(100 + broker_id if epoch is None else epoch),
            **(defaults | fields),
        )
        return self.replay(r.registration_record(broker))

    def features(self, *, elr: bool = True, metadata_version: int = 25) -> "Box":
        self.replay(r.FeatureLevelRecord(name="metadata.version", feature_level=metadata_version))
        return self.replay(r.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=int(elr)))

    def topic(self, *partitions: Partition, name: str = TOPIC, topic_id: UUID = TOPIC_ID) -> "Box":
        self.replay(r.TopicRecord(name=name, topic_id=topic_id))
        for index, partition in enumerate(partitions):
            self.replay(r.partition_record(topic_id, index, partition))
        return self

    def config(self, name: str, value: str, topic: str = TOPIC) -> "Box":
        return self.replay(r.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic, name=name, value=value))

    def cluster_config(self, name: str, value: str) -> "Box":
        return self.replay(
            r.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=CLUSTER_DEFAULT, name=name, value=value)
        )

    def activate(self) -> "Box":
        self._carry_out(self.controller.activate(self.now_ms, self.offset))
        return self

    def send(self, body: msgspec.Struct, *, received_ms: int | None = None, client: Client | None = None) -> Any:
        """Return the reply to a request; its records are in `records`."""
        came_ms = self.now_ms if received_ms is None else received_ms
        event = Request(token=1, body=body, received_ms=came_ms, client=client)
        self._carry_out(self.controller.handle(event, self.now_ms, self.offset))
        return next(effect.body for effect in self.effects if isinstance(effect, Reply))

    def tick(self, after_ms: int = 0) -> list[Effect]:
        self.now_ms += after_ms
        self._carry_out(self.controller.handle(Tick(), self.now_ms, self.offset))
        return self.effects

    def log_info(self, event: LogInfoAnswered) -> list[Effect]:
        self._carry_out(self.controller.handle(event, self.now_ms, self.offset))
        return self.effects

    def stand_at(self, offset: int) -> None:
        """Let the next record lie at this offset: cases name registrations by other offsets than ours."""
        self.offset = offset
        self.image.last_offset = offset - 1

    def write(self, records: list[r.MetadataRecord]) -> "Box":
        """Carry out records that a pure function made, as the controller would."""
        turn = self.controller._turn(self.now_ms, self.offset)
        turn.append(records)
        self._carry_out(turn.effects())
        return self

    def _carry_out(self, effects: list[Effect]) -> None:
        self.effects = effects
        self.records = [record for effect in effects if isinstance(effect, Append) for record in effect.records]
        self.offset += len(self.records)
        self.controller.committed(self.offset - 1)

    def partition(self, index: int = 0, topic_id: UUID = TOPIC_ID) -> Partition:
        found = self.image.partition(topic_id, index)
        assert found is not None
        return found


def registration(
    broker_id: int,
    *,
    incarnation_id: UUID,
    previous_epoch: int = -1,
    cluster: str = CLUSTER,
    features: dict[str, FeatureRange] | None = None,
) -> br.BrokerRegistrationRequest:
    supported = dict(SUPPORTED) if features is None else features
    return br.BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster,
        incarnation_id=incarnation_id,
        previous_broker_epoch=previous_epoch,
        log_dirs=[log_dir(broker_id)],
        features=[
            br.Feature(name=name, min_supported_version=levels.lowest, max_supported_version=levels.highest)
            for name, levels in supported.items()
        ],
    )
