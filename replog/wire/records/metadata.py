"""The records of the metadata log: what controllers decide and every node replays.

Layouts are those of Apache Kafka's message schemas (Apache License 2.0). On the log a record is framed by three
unsigned varints: frame version (1), the record's key, and its version.
"""

from typing import Annotated, ClassVar, Final
from uuid import UUID

import msgspec

from replog.ports import Buffer
from replog.types import ZERO_UUID
from replog.wire.codec import decode_struct, encode_struct
from replog.wire.decoder import MalformedMessage, read_unsigned_varint
from replog.wire.encoder import unsigned_varint
from replog.wire.layout import Layout, Wire, layout_of

FRAME_VERSION: Final = b"\x01"


class BrokerEndpoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: Annotated[str, Wire("string", "0+")] = ""
    host: Annotated[str, Wire("string", "0+")] = ""
    port: Annotated[int, Wire("uint16", "0+")] = 0
    security_protocol: Annotated[int, Wire("int16", "0+")] = 0


class BrokerFeature(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: Annotated[str, Wire("string", "0+")] = ""
    min_supported_version: Annotated[int, Wire("int16", "0+")] = 0
    max_supported_version: Annotated[int, Wire("int16", "0+")] = 0


class RegisterBrokerRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(
        key=0, kind="metadata", versions="0-4", flexible="0+", levels=((30, 4), (17, 3), (8, 2), (7, 1))
    )
    broker_id: Annotated[int, Wire("int32", "0+")] = 0
    is_migrating_zk_broker: Annotated[bool, Wire("bool", "2+")] = False
    incarnation_id: Annotated[UUID, Wire("uuid", "0+")] = ZERO_UUID
    broker_epoch: Annotated[int, Wire("int64", "0+")] = 0
    end_points: Annotated[list[BrokerEndpoint], Wire("[]struct", "0+")] = []
    features: Annotated[list[BrokerFeature], Wire("[]struct", "0+")] = []
    rack: Annotated[str | None, Wire("string", "0+", nullable="0+")] = ""
    fenced: Annotated[bool, Wire("bool", "0+")] = True
    in_controlled_shutdown: Annotated[bool, Wire("bool", "1+")] = False
    log_dirs: Annotated[list[UUID], Wire("[]uuid", "3+", tag=0, tagged="3+")] = []
    cordoned_log_dirs: Annotated[list[UUID] | None, Wire("[]uuid", "4+", nullable="4+", tag=1, tagged="4+")] = None


class UnregisterBrokerRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=1, kind="metadata", versions="0-0", flexible="0+")
    broker_id: Annotated[int, Wire("int32", "0+")] = 0
    broker_epoch: Annotated[int, Wire("int64", "0+")] = 0


class TopicRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=2, kind="metadata", versions="0-0", flexible="0+")
    name: Annotated[str, Wire("string", "0+")] = ""
    topic_id: Annotated[UUID, Wire("uuid", "0+")] = ZERO_UUID


class PartitionRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=3, kind="metadata", versions="0-2", flexible="0+", levels=((23, 2), (17, 1), (0, 0)))
    partition_id: Annotated[int, Wire("int32", "0+")] = -1
    topic_id: Annotated[UUID, Wire("uuid", "0+")] = ZERO_UUID
    replicas: Annotated[list[int], Wire("[]int32", "0+")] = []
    isr: Annotated[list[int], Wire("[]int32", "0+")] = []
    removing_replicas: Annotated[list[int], Wire("[]int32", "0+")] = []
    adding_replicas: Annotated[list[int], Wire("[]int32", "0+")] = []
    leader: Annotated[int, Wire("int32", "0+")] = -1
    leader_recovery_state: Annotated[int, Wire("int8", "0+", tag=0, tagged="0+")] = 0
    leader_epoch: Annotated[int, Wire("int32", "0+")] = -1
    partition_epoch: Annotated[int, Wire("int32", "0+")] = -1
    directories: Annotated[list[UUID], Wire("[]uuid", "1+")] = []
    eligible_leader_replicas: Annotated[list[int] | None, Wire("[]int32", "2+", nullable="2+", tag=1, tagged="2+")] = (
        None
    )
    last_known_elr: Annotated[list[int] | None, Wire("[]int32", "2+", nullable="2+", tag=2, tagged="2+")] = None


class ConfigRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=4, kind="metadata", versions="0-0", flexible="0+")
    resource_type: Annotated[int, Wire("int8", "0+")] = 0
    resource_name: Annotated[str, Wire("string", "0+")] = ""
    name: Annotated[str, Wire("string", "0+")] = ""
    value: Annotated[str | None, Wire("string", "0+", nullable="0+")] = ""


class PartitionChangeRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=5, kind="metadata", versions="0-2", flexible="0+", levels=((23, 2), (17, 1), (0, 0)))
    partition_id: Annotated[int, Wire("int32", "0+")] = -1
    topic_id: Annotated[UUID, Wire("uuid", "0+")] = ZERO_UUID
    isr: Annotated[list[int] | None, Wire("[]int32", "0+", nullable="0+", tag=0, tagged="0+")] = None
    leader: Annotated[int, Wire("int32", "0+", tag=1, tagged="0+")] = -2
    replicas: Annotated[list[int] | None, Wire("[]int32", "0+", nullable="0+", tag=2, tagged="0+")] = None
    removing_replicas: Annotated[list[int] | None, Wire("[]int32", "0+", nullable="0+", tag=3, tagged="0+")] = None
    adding_replicas: Annotated[list[int] | None, Wire("[]int32", "0+", nullable="0+", tag=4, tagged="0+")] = None
    leader_recovery_state: Annotated[int, Wire("int8", "0+", tag=5, tagged="0+")] = -1
    directories: Annotated[list[UUID] | None, Wire("[]uuid", "1+", nullable="1+", tag=8, tagged="1+")] = None
    eligible_leader_replicas: Annotated[list[int] | None, Wire("[]int32", "2+", nullable="2+", tag=6, tagged="2+")] = (
        None
    )
    last_known_elr: Annotated[list[int] | None, Wire("[]int32", "2+", nullable="2+", tag=7, tagged="2+")] = None


class FenceBrokerRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=7, kind="metadata", versions="0-0", flexible="0+")
    id: Annotated[int, Wire("int32", "0+")] = 0
    epoch: Annotated[int, Wire("int64", "0+")] = 0


class UnfenceBrokerRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=8, kind="metadata", versions="0-0", flexible="0+")
    id: Annotated[int, Wire("int32", "0+")] = 0
    epoch: Annotated[int, Wire("int64", "0+")] = 0


class RemoveTopicRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=9, kind="metadata", versions="0-0", flexible="0+")
    topic_id: Annotated[UUID, Wire("uuid", "0+")] = ZERO_UUID


class DelegationTokenRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=10, kind="metadata", versions="0-0", flexible="0+")
    owner: Annotated[str, Wire("string", "0+")] = ""
    requester: Annotated[str, Wire("string", "0+")] = ""
    renewers: Annotated[list[str], Wire("[]string", "0+")] = []
    issue_timestamp_ms: Annotated[int, Wire("int64", "0+")] = 0
    max_timestamp_ms: Annotated[int, Wire("int64", "0+")] = 0
    expiration_timestamp_ms: Annotated[int, Wire("int64", "0+")] = 0
    token_id: Annotated[str, Wire("string", "0+")] = ""


class UserScramCredentialRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=11, kind="metadata", versions="0-0", flexible="0+")
    name: Annotated[str, Wire("string", "0+")] = ""
    mechanism: Annotated[int, Wire("int8", "0+")] = 0
    salt: Annotated[bytes, Wire("bytes", "0+")] = b""
    stored_key: Annotated[bytes, Wire("bytes", "0+")] = b""
    server_key: Annotated[bytes, Wire("bytes", "0+")] = b""
    iterations: Annotated[int, Wire("int32", "0+")] = 0


class FeatureLevelRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=12, kind="metadata", versions="0-0", flexible="0+")
    name: Annotated[str, Wire("string", "0+")] = ""
    feature_level: Annotated[int, Wire("int16", "0+")] = 0


class EntityData(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    entity_type: Annotated[str, Wire("string", "0+")] = ""
    entity_name: Annotated[str | None, Wire("string", "0+", nullable="0+")] = ""


class ClientQuotaRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=14, kind="metadata", versions="0-0", flexible="0+")
    entity: Annotated[list[EntityData], Wire("[]struct", "0+")] = []
    key: Annotated[str, Wire("string", "0+")] = ""
    value: Annotated[float, Wire("float64", "0+")] = 0.0
    remove: Annotated[bool, Wire("bool", "0+")] = False


class ProducerIdsRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=15, kind="metadata", versions="0-0", flexible="0+")
    broker_id: Annotated[int, Wire("int32", "0+")] = 0
    broker_epoch: Annotated[int, Wire("int64", "0+")] = -1
    next_producer_id: Annotated[int, Wire("int64", "0+")] = 0


class BrokerRegistrationChangeRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=17, kind="metadata", versions="0-3", flexible="0+", levels=((30, 3), (17, 2), (7, 1)))
    broker_id: Annotated[int, Wire("int32", "0+")] = 0
    broker_epoch: Annotated[int, Wire("int64", "0+")] = 0
    fenced: Annotated[int, Wire("int8", "0+", tag=0, tagged="0+")] = 0
    in_controlled_shutdown: Annotated[int, Wire("int8", "1+", tag=1, tagged="1+")] = 0
    log_dirs: Annotated[list[UUID], Wire("[]uuid", "2+", tag=2, tagged="2+")] = []
    cordoned_log_dirs: Annotated[list[UUID] | None, Wire("[]uuid", "3+", nullable="3+", tag=3, tagged="3+")] = None


class AccessControlEntryRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=18, kind="metadata", versions="0-0", flexible="0+")
    id: Annotated[UUID, Wire("uuid", "0+")] = ZERO_UUID
    resource_type: Annotated[int, Wire("int8", "0+")] = 0
    resource_name: Annotated[str, Wire("string", "0+")] = ""
    pattern_type: Annotated[int, Wire("int8", "0+")] = 0
    principal: Annotated[str, Wire("string", "0+")] = ""
    host: Annotated[str, Wire("string", "0+")] = ""
    operation: Annotated[int, Wire("int8", "0+")] = 0
    permission_type: Annotated[int, Wire("int8", "0+")] = 0


class RemoveAccessControlEntryRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=19, kind="metadata", versions="0-0", flexible="0+")
    id: Annotated[UUID, Wire("uuid", "0+")] = ZERO_UUID


class NoOpRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=20, kind="metadata", versions="0-0", flexible="0+")


class ZkMigrationStateRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=21, kind="metadata", versions="0-0", flexible="0+")
    zk_migration_state: Annotated[int, Wire("int8", "0+")] = 0


class RemoveUserScramCredentialRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=22, kind="metadata", versions="0-0", flexible="0+")
    name: Annotated[str, Wire("string", "0+")] = ""
    mechanism: Annotated[int, Wire("int8", "0+")] = 0


class BeginTransactionRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=23, kind="metadata", versions="0-0", flexible="0+")
    name: Annotated[str | None, Wire("string", "0+", nullable="0+", tag=0, tagged="0+")] = None


class EndTransactionRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=24, kind="metadata", versions="0-0", flexible="0+")


class AbortTransactionRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=25, kind="metadata", versions="0-0", flexible="0+")
    reason: Annotated[str | None, Wire("string", "0+", nullable="0+", tag=0, tagged="0+")] = None


class RemoveDelegationTokenRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=26, kind="metadata", versions="0-0", flexible="0+")
    token_id: Annotated[str, Wire("string", "0+")] = ""


class ControllerEndpoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: Annotated[str, Wire("string", "0+")] = ""
    host: Annotated[str, Wire("string", "0+")] = ""
    port: Annotated[int, Wire("uint16", "0+")] = 0
    security_protocol: Annotated[int, Wire("int16", "0+")] = 0


class ControllerFeature(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: Annotated[str, Wire("string", "0+")] = ""
    min_supported_version: Annotated[int, Wire("int16", "0+")] = 0
    max_supported_version: Annotated[int, Wire("int16", "0+")] = 0


class RegisterControllerRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=27, kind="metadata", versions="0-0", flexible="0+")
    controller_id: Annotated[int, Wire("int32", "0+")] = 0
    incarnation_id: Annotated[UUID, Wire("uuid", "0+")] = ZERO_UUID
    zk_migration_ready: Annotated[bool, Wire("bool", "0+")] = False
    end_points: Annotated[list[ControllerEndpoint], Wire("[]struct", "0+")] = []
    features: Annotated[list[ControllerFeature], Wire("[]struct", "0+")] = []


class ClearElrRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=28, kind="metadata", versions="0-0", flexible="0+")
    topic_name: Annotated[str, Wire("string", "0+")] = ""


METADATA_RECORDS: Final[dict[int, type[msgspec.Struct]]] = {
    record.LAYOUT.key: record
    for record in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        NoOpRecord,
        ZkMigrationStateRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RemoveDelegationTokenRecord,
        RegisterControllerRecord,
        ClearElrRecord,
    )
}


def encode_metadata_record(record: msgspec.Struct, version: int | None = None) -> bytes:
    """Return a record as it stands on the log: frame version, key, version, fields. Default: the newest version."""
    layout = layout_of(type(record))
    chosen = layout.versions.last if version is None else version
    return FRAME_VERSION + unsigned_varint(layout.key) + unsigned_varint(chosen) + encode_struct(record, chosen)


def key_of_record(data: Buffer) -> int:
    """Return the key of a record in the log, which says of what kind it is, without reading the rest."""
    _, position = read_unsigned_varint(data, 0)
    return read_unsigned_varint(data, position)[0]


def decode_metadata_record(data: Buffer) -> msgspec.Struct:
    """Read a record from the log; `MalformedMessage` when it is none that we know."""
    frame_version, position = read_unsigned_varint(data, 0)
    key, position = read_unsigned_varint(data, position)
    version, position = read_unsigned_varint(data, position)
    if frame_version != 1:
        raise MalformedMessage(f"metadata record has frame version {frame_version}")
    record = METADATA_RECORDS.get(key)
    if record is None or version not in layout_of(record).versions:
        raise MalformedMessage(f"unknown metadata record {key} version {version}")
    return decode_struct(record, version, memoryview(data)[position:])
