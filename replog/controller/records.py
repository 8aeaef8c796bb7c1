"""Metadata records as the controller uses them: Kafka's layouts, and the few that need care to build.

The layouts themselves are in `replog/wire/records`. Absent lists in a change record mean "keep".
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from replog.controller.state import Broker, Partition
from replog.types import ZERO_UUID, BrokerEpoch, NodeId

FENCE: Final = 1
UNFENCE: Final = -1


class BrokerEndpoint(msgspec.Struct, kw_only=True):
    name: str = ""
    host: str = ""
    port: int = 0
    security_protocol: int = 0


class BrokerFeature(msgspec.Struct, kw_only=True):
    name: str = ""
    min_supported_version: int = 0
    max_supported_version: int = 0


class RegisterBrokerRecord(msgspec.Struct, kw_only=True):
    broker_id: int = 0
    is_migrating_zk_broker: bool = False
    incarnation_id: UUID = ZERO_UUID
    broker_epoch: int = 0
    end_points: list[BrokerEndpoint] = []
    features: list[BrokerFeature] = []
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: list[UUID] = []


class BrokerRegistrationChangeRecord(msgspec.Struct, kw_only=True):
    broker_id: int = 0
    broker_epoch: int = 0
    fenced: int = 0
    in_controlled_shutdown: int = 0
    log_dirs: list[UUID] = []


class UnregisterBrokerRecord(msgspec.Struct, kw_only=True):
    broker_id: int = 0
    broker_epoch: int = 0


class TopicRecord(msgspec.Struct, kw_only=True):
    name: str = ""
    topic_id: UUID = ZERO_UUID


class ConfigRecord(msgspec.Struct, kw_only=True):
    resource_type: int = 0
    resource_name: str = ""
    name: str = ""
    value: str | None = None


class FeatureLevelRecord(msgspec.Struct, kw_only=True):
    name: str = ""
    feature_level: int = 0


class ProducerIdsRecord(msgspec.Struct, kw_only=True):
    broker_id: int = 0
    broker_epoch: int = -1
    next_producer_id: int = 0


class RemoveTopicRecord(msgspec.Struct, kw_only=True):
    topic_id: UUID = ZERO_UUID


class ClearElrRecord(msgspec.Struct, kw_only=True):
    topic_name: str = ""


class NoOpRecord(msgspec.Struct, kw_only=True):
    pass


class PartitionRecord(msgspec.Struct, kw_only=True):
    partition_id: int = -1
    topic_id: UUID = ZERO_UUID
    replicas: list[int] = []
    isr: list[int] = []
    removing_replicas: list[int] = []
    adding_replicas: list[int] = []
    leader: int = -1
    leader_recovery_state: int = 0
    leader_epoch: int = -1
    partition_epoch: int = -1
    directories: list[UUID] = []
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None


class PartitionChangeRecord(msgspec.Struct, kw_only=True):
    partition_id: int = -1
    topic_id: UUID = ZERO_UUID
    isr: list[int] | None = None
    leader: int = -2
    replicas: list[int] | None = None
    removing_replicas: list[int] | None = None
    adding_replicas: list[int] | None = None
    leader_recovery_state: int = -1
    directories: list[UUID] | None = None
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None


class RegisterControllerRecord(msgspec.Struct, kw_only=True):
    controller_id: int = 0
    incarnation_id: UUID = ZERO_UUID


class BeginTransactionRecord(msgspec.Struct, kw_only=True):
    name: str | None = None


class EndTransactionRecord(msgspec.Struct, kw_only=True):
    pass


class AbortTransactionRecord(msgspec.Struct, kw_only=True):
    reason: str | None = None


MetadataRecord = (
    RegisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | ConfigRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | RemoveTopicRecord
    | ClearElrRecord
    | NoOpRecord
    | PartitionRecord
    | PartitionChangeRecord
    | RegisterControllerRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
)


def registration_record(broker: Broker) -> RegisterBrokerRecord:
    """Return the record that registers a broker as it is."""
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker.endpoints
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=levels.lowest, max_supported_version=levels.highest)
            for name, levels in sorted(broker.features.items())
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
    )


def fencing_record(broker_id: NodeId, epoch: BrokerEpoch, fenced: int) -> BrokerRegistrationChangeRecord:
    """Return the record that fences (`FENCE`) or unfences (`UNFENCE`) one life of a broker."""
    return BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=fenced)


def controlled_shutdown_record(broker_id: NodeId, epoch: BrokerEpoch) -> BrokerRegistrationChangeRecord:
    """Return the record that puts one life of a broker into controlled shutdown."""
    return BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, in_controlled_shutdown=1)


def partition_record(topic_id: UUID, index: int, partition: Partition) -> PartitionRecord:
    """Return the record that creates a partition as it is."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=int(partition.leader_recovery_state),
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories) or [ZERO_UUID] * len(partition.replicas),
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


Records = Sequence[MetadataRecord]
