"""Keys and values of `__consumer_offsets` and `__transaction_state`.

A key starts with an int16, the record's type (its `LAYOUT.key`); a value with an int16, its version. Layouts are those
of Apache Kafka's message schemas (Apache License 2.0).
"""

from struct import Struct
from typing import Annotated, ClassVar, Final, TypeVar
from uuid import UUID

import msgspec

from replog.ports import Buffer
from replog.types import ZERO_UUID
from replog.wire.codec import decode_struct, encode_struct
from replog.wire.decoder import MalformedMessage
from replog.wire.layout import Layout, Wire, layout_of

TYPE_OR_VERSION: Final = Struct(">h")

T = TypeVar("T", bound=msgspec.Struct)


class TransactionLogKey(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=0, kind="coordinator_key", versions="0-0", flexible="")
    transactional_id: Annotated[str, Wire("string", "0+")] = ""


class PartitionsSchema(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic: Annotated[str, Wire("string", "0+")] = ""
    partition_ids: Annotated[list[int], Wire("[]int32", "0+")] = []


class TransactionLogValue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=0, kind="coordinator_value", versions="0-1", flexible="1+")
    producer_id: Annotated[int, Wire("int64", "0+")] = 0
    previous_producer_id: Annotated[int, Wire("int64", "1+", tag=0, tagged="1+")] = -1
    next_producer_id: Annotated[int, Wire("int64", "1+", tag=1, tagged="1+")] = -1
    producer_epoch: Annotated[int, Wire("int16", "0+")] = 0
    next_producer_epoch: Annotated[int, Wire("int16", "1+", tag=3, tagged="1+")] = -1
    transaction_timeout_ms: Annotated[int, Wire("int32", "0+")] = 0
    transaction_status: Annotated[int, Wire("int8", "0+")] = 0
    transaction_partitions: Annotated[list[PartitionsSchema] | None, Wire("[]struct", "0+", nullable="0+")] = []
    transaction_last_update_timestamp_ms: Annotated[int, Wire("int64", "0+")] = 0
    transaction_start_timestamp_ms: Annotated[int, Wire("int64", "0+")] = 0
    client_transaction_version: Annotated[int, Wire("int16", "1+", tag=2, tagged="1+")] = 0


class OffsetCommitKey(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=1, kind="coordinator_key", versions="0-0", flexible="")
    group: Annotated[str, Wire("string", "0+")] = ""
    topic: Annotated[str, Wire("string", "0+")] = ""
    partition: Annotated[int, Wire("int32", "0+")] = 0


class OffsetCommitValue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=1, kind="coordinator_value", versions="0-4", flexible="4+")
    offset: Annotated[int, Wire("int64", "0+")] = 0
    leader_epoch: Annotated[int, Wire("int32", "3+")] = -1
    metadata: Annotated[str, Wire("string", "0+")] = ""
    commit_timestamp_ms: Annotated[int, Wire("int64", "0+")] = 0
    expire_timestamp_ms: Annotated[int, Wire("int64", "1")] = -1
    topic_id: Annotated[UUID, Wire("uuid", "4+", tag=0, tagged="4+")] = ZERO_UUID


class GroupMetadataKey(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=2, kind="coordinator_key", versions="0-0", flexible="")
    group: Annotated[str, Wire("string", "0+")] = ""


class MemberMetadata(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    member_id: Annotated[str, Wire("string", "0+")] = ""
    group_instance_id: Annotated[str | None, Wire("string", "3+", nullable="3+")] = None
    client_id: Annotated[str, Wire("string", "0+")] = ""
    client_host: Annotated[str, Wire("string", "0+")] = ""
    rebalance_timeout_ms: Annotated[int, Wire("int32", "1+")] = -1
    session_timeout_ms: Annotated[int, Wire("int32", "0+")] = 0
    subscription: Annotated[bytes, Wire("bytes", "0+")] = b""
    assignment: Annotated[bytes, Wire("bytes", "0+")] = b""


class GroupMetadataValue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=2, kind="coordinator_value", versions="0-4", flexible="4+")
    protocol_type: Annotated[str, Wire("string", "0+")] = ""
    generation: Annotated[int, Wire("int32", "0+")] = 0
    protocol: Annotated[str | None, Wire("string", "0+", nullable="0+")] = ""
    leader: Annotated[str | None, Wire("string", "0+", nullable="0+")] = ""
    current_state_timestamp_ms: Annotated[int, Wire("int64", "2+")] = -1
    members: Annotated[list[MemberMetadata], Wire("[]struct", "0+")] = []


class ConsumerGroupMetadataKey(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=3, kind="coordinator_key", versions="0-0", flexible="")
    group_id: Annotated[str, Wire("string", "0+")] = ""


class ConsumerGroupMetadataValue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=3, kind="coordinator_value", versions="0-0", flexible="0+")
    epoch: Annotated[int, Wire("int32", "0+")] = 0
    metadata_hash: Annotated[int, Wire("int64", "0+", tag=0, tagged="0+")] = 0


class ConsumerGroupPartitionMetadataKey(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=4, kind="coordinator_key", versions="0-0", flexible="")
    group_id: Annotated[str, Wire("string", "0+")] = ""


class PartitionMetadata(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    partition: Annotated[int, Wire("int32", "0+")] = 0
    racks: Annotated[list[str], Wire("[]string", "0+")] = []


class TopicMetadata(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_id: Annotated[UUID, Wire("uuid", "0+")] = ZERO_UUID
    topic_name: Annotated[str, Wire("string", "0+")] = ""
    num_partitions: Annotated[int, Wire("int32", "0+")] = 0
    partition_metadata: Annotated[list[PartitionMetadata], Wire("[]struct", "0+")] = []


class ConsumerGroupPartitionMetadataValue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=4, kind="coordinator_value", versions="0-0", flexible="0+")
    topics: Annotated[list[TopicMetadata], Wire("[]struct", "0+")] = []


class ConsumerGroupMemberMetadataKey(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=5, kind="coordinator_key", versions="0-0", flexible="")
    group_id: Annotated[str, Wire("string", "0+")] = ""
    member_id: Annotated[str, Wire("string", "0+")] = ""


class ClassicProtocol(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: Annotated[str, Wire("string", "0+")] = ""
    metadata: Annotated[bytes, Wire("bytes", "0+")] = b""


class ClassicMemberMetadata(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    session_timeout_ms: Annotated[int, Wire("int32", "0+")] = 0
    supported_protocols: Annotated[list[ClassicProtocol], Wire("[]struct", "0+")] = []


class ConsumerGroupMemberMetadataValue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=5, kind="coordinator_value", versions="0-0", flexible="0+")
    instance_id: Annotated[str | None, Wire("string", "0+", nullable="0+")] = ""
    rack_id: Annotated[str | None, Wire("string", "0+", nullable="0+")] = ""
    client_id: Annotated[str, Wire("string", "0+")] = ""
    client_host: Annotated[str, Wire("string", "0+")] = ""
    subscribed_topic_names: Annotated[list[str], Wire("[]string", "0+")] = []
    subscribed_topic_regex: Annotated[str | None, Wire("string", "0+", nullable="0+")] = ""
    rebalance_timeout_ms: Annotated[int, Wire("int32", "0+")] = -1
    server_assignor: Annotated[str | None, Wire("string", "0+", nullable="0+")] = ""
    classic_member_metadata: Annotated[
        ClassicMemberMetadata | None, Wire("struct", "0+", nullable="0+", tag=0, tagged="0+")
    ] = None


class ConsumerGroupTargetAssignmentMetadataKey(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=6, kind="coordinator_key", versions="0-0", flexible="")
    group_id: Annotated[str, Wire("string", "0+")] = ""


class ConsumerGroupTargetAssignmentMetadataValue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=6, kind="coordinator_value", versions="0-0", flexible="0+")
    assignment_epoch: Annotated[int, Wire("int32", "0+")] = 0
    assignment_timestamp_ms: Annotated[int, Wire("int64", "0+", tag=0, tagged="0+")] = 0


class ConsumerGroupTargetAssignmentMemberKey(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=7, kind="coordinator_key", versions="0-0", flexible="")
    group_id: Annotated[str, Wire("string", "0+")] = ""
    member_id: Annotated[str, Wire("string", "0+")] = ""


class TopicPartition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_id: Annotated[UUID, Wire("uuid", "0+")] = ZERO_UUID
    partitions: Annotated[list[int], Wire("[]int32", "0+")] = []


class ConsumerGroupTargetAssignmentMemberValue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=7, kind="coordinator_value", versions="0-0", flexible="0+")
    topic_partitions: Annotated[list[TopicPartition], Wire("[]struct", "0+")] = []


class ConsumerGroupCurrentMemberAssignmentKey(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=8, kind="coordinator_key", versions="0-0", flexible="")
    group_id: Annotated[str, Wire("string", "0+")] = ""
    member_id: Annotated[str, Wire("string", "0+")] = ""


class TopicPartitions(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_id: Annotated[UUID, Wire("uuid", "0+")] = ZERO_UUID
    partitions: Annotated[list[int], Wire("[]int32", "0+")] = []
    assignment_epochs: Annotated[list[int] | None, Wire("[]int32", "0+", nullable="0+", tag=0, tagged="0+")] = None


class ConsumerGroupCurrentMemberAssignmentValue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=8, kind="coordinator_value", versions="0-0", flexible="0+")
    member_epoch: Annotated[int, Wire("int32", "0+")] = 0
    previous_member_epoch: Annotated[int, Wire("int32", "0+")] = 0
    state: Annotated[int, Wire("int8", "0+")] = 0
    assigned_partitions: Annotated[list[TopicPartitions], Wire("[]struct", "0+")] = []
    partitions_pending_revocation: Annotated[list[TopicPartitions], Wire("[]struct", "0+")] = []


class ConsumerGroupRegularExpressionKey(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=16, kind="coordinator_key", versions="0-0", flexible="")
    group_id: Annotated[str, Wire("string", "0+")] = ""
    regular_expression: Annotated[str, Wire("string", "0+")] = ""


class ConsumerGroupRegularExpressionValue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=16, kind="coordinator_value", versions="0-0", flexible="0+")
    topics: Annotated[list[str], Wire("[]string", "0+")] = []
    version: Annotated[int, Wire("int64", "0+")] = 0
    timestamp_ms: Annotated[int, Wire("int64", "0+")] = 0


def encode_key(key: msgspec.Struct) -> bytes:
    """Return a key as it stands on the log: its type, then its fields."""
    return TYPE_OR_VERSION.pack(layout_of(type(key)).key) + encode_struct(key, 0)


def encode_value(value: msgspec.Struct, version: int | None = None) -> bytes:
    """Return a value as it stands on the log: its version, then its fields. Default: the newest version."""
    chosen = layout_of(type(value)).versions.last if version is None else version
    return TYPE_OR_VERSION.pack(chosen) + encode_struct(value, chosen)


def decode_key(of: type[T], data: Buffer) -> T | None:
    """Read a key of this type; None when it is of another type. `MalformedMessage` when it is none at all.

    The types of the two topics overlap in numbers: the reader knows the topic, and so what to ask for.
    """
    found, rest = _split(data)
    return decode_struct(of, 0, rest) if found == layout_of(of).key else None


def decode_value(of: type[T], data: Buffer) -> T:
    """Read a value; `MalformedMessage` when it is not of this type in a version that we know."""
    version, rest = _split(data)
    return decode_struct(of, version, rest)


def _split(data: Buffer) -> tuple[int, memoryview]:
    if len(data) < TYPE_OR_VERSION.size:
        raise MalformedMessage(f"a coordinator's record of {len(data)} bytes")
    number: int = TYPE_OR_VERSION.unpack_from(data)[0]
    return number, memoryview(data)[TYPE_OR_VERSION.size :]
