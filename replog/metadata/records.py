"""Metadata records as the controller uses them: Kafka's layouts, and the few that need care to build.

The layouts themselves are in `replog/wire/records`. Absent lists in a change record mean "keep".
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from replog.metadata.client_quotas import Entity
from replog.metadata.state import Broker, Partition
from replog.security.acls import Acl
from replog.types import ZERO_UUID, BrokerEpoch, NodeId
from replog.wire.records.metadata import *  # noqa: F403 - all layouts: whoever writes or replays finds them here
from replog.wire.records.metadata import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    EntityData,
    PartitionRecord,
    RegisterBrokerRecord,
)

FENCE: Final = 1
UNFENCE: Final = -1

# More records than this are written as a transaction of several batches (SPEC 2.1.6).
BATCH_RECORDS_MAX: Final = 10_000
TRANSACTIONS_LEVEL: Final = 13  # metadata version 3.6-IV1 (KIP-868)

MetadataRecord = msgspec.Struct  # any of `METADATA_RECORDS`; others' kinds pass through unread
Records = Sequence[MetadataRecord]


def is_bracketed(count: int, metadata_version: int) -> bool:
    """Return whether a group of records is written as a transaction of several batches.

    Before there were transactions a group is one batch, however long: nobody may see half of it.
    """
    return count > BATCH_RECORDS_MAX and metadata_version >= TRANSACTIONS_LEVEL


def offset_in_group(next_offset: int, *, index: int, count: int, metadata_version: int) -> int:
    """Return the offset of record `index` of an atomic group of `count` written at `next_offset`."""
    return next_offset + index + is_bracketed(count, metadata_version)  # a long group begins with a marker


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
        cordoned_log_dirs=list(broker.cordoned_log_dirs) or None,
    )


def quota_record(entity: Entity, key: str, value: float | None) -> ClientQuotaRecord:
    """Return the record that sets a quota, or removes it."""
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    return ClientQuotaRecord(entity=parts, key=key, value=value or 0.0, remove=value is None)


def acl_record(acl_id: UUID, acl: Acl) -> AccessControlEntryRecord:
    """Return the record that adds an entry."""
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def fencing_record(broker_id: NodeId, epoch: BrokerEpoch, fenced: int) -> BrokerRegistrationChangeRecord:
    """Return the record that fences (`FENCE`) or unfences (`UNFENCE`) one incarnation of a broker."""
    return BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=fenced)


def controlled_shutdown_record(broker_id: NodeId, epoch: BrokerEpoch) -> BrokerRegistrationChangeRecord:
    """Return the record that puts one incarnation of a broker into controlled shutdown."""
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
