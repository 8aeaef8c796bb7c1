"""Groups and committed offsets as records of `__consumer_offsets`, in Kafka's layouts.

Values are written in version 3, which every Kafka since 2.1 reads; the newer ones only add what we do not store. An offset whose commit says how
long it is kept is of version 1, as Apache Kafka's.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from replog.coordinators.classic_member import Member
from replog.coordinators.events import Entry
from replog.ports import Buffer
from replog.types import TopicPartition
from replog.wire.records.coordinator import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

if TYPE_CHECKING:
    from replog.coordinators.classic_group import ClassicGroup

VALUE_VERSION: Final = 3
EXPIRING_VALUE_VERSION: Final = 1  # of offsets: the only one that says when they expire, and that has no leader epoch
NO_EXPIRY: Final = -1


class CommittedOffset(NamedTuple):
    """Where a group stands in a partition.

    log_offset:           of the record that says so; orders transactional commits among others.
    expire_timestamp_ms:  wall clock; -1 where its commit did not say how long it is kept, and the broker's setting holds.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    log_offset: int
    expire_timestamp_ms: int


class GroupRecord(NamedTuple):
    """The newest record of a group; None: the group is gone."""

    group_id: str
    value: GroupMetadataValue | None


class OffsetRecord(NamedTuple):
    """A partition's newest committed offset; None: it is gone."""

    group_id: str
    partition: TopicPartition
    value: CommittedOffset | None


def group_entry(group: "ClassicGroup", assignments: Mapping[str, bytes]) -> Entry:
    """Return the record of a generation with its assignments."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp_ms=group.state_since_ms,
        members=[_stored(member, group.protocol, assignments) for member in group.members.values()],
    )
    return Entry(encode_key(GroupMetadataKey(group=group.group_id)), encode_value(value, VALUE_VERSION))


def _stored(member: Member, protocol: str | None, assignments: Mapping[str, bytes]) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
        subscription=member.protocols.get(protocol or "", b""),
        assignment=assignments.get(member.member_id, b""),
    )


def restored_members(value: GroupMetadataValue) -> list[Member]:
    """Return the members that a record names."""
    members: list[Member] = []
    for stored in value.members:
        member = Member(
            stored.member_id,
            instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout_ms,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            protocols={value.protocol or "": stored.subscription},
        )
        member.assignment = stored.assignment
        members.append(member)
    return members


def group_tombstone(group_id: str) -> Entry:
    """Return the record that ends a group."""
    return Entry(encode_key(GroupMetadataKey(group=group_id)), None)


def offset_entry(group_id: str, partition: TopicPartition, committed: CommittedOffset) -> Entry:
    """Return the record of a committed offset."""
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp_ms=committed.commit_timestamp_ms,
        expire_timestamp_ms=committed.expire_timestamp_ms,
    )
    version = VALUE_VERSION if committed.expire_timestamp_ms == NO_EXPIRY else EXPIRING_VALUE_VERSION
    return Entry(_offset_key(group_id, partition), encode_value(value, version))


def offset_tombstone(group_id: str, partition: TopicPartition) -> Entry:
    """Return the record that forgets a committed offset."""
    return Entry(_offset_key(group_id, partition), None)


def _offset_key(group_id: str, partition: TopicPartition) -> bytes:
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return encode_key(key)


def decode(key: Buffer, value: Buffer | None, log_offset: int) -> GroupRecord | OffsetRecord | None:
    """Return what a record of the topic says; None for kinds that this coordinator does not keep.

    Raises `MalformedMessage` when it is none of ours.
    """
    offset_key = decode_key(OffsetCommitKey, key)
    if offset_key is None:
        group_key = decode_key(GroupMetadataKey, key)
        if group_key is None:
            return None
        return GroupRecord(group_key.group, None if value is None else decode_value(GroupMetadataValue, value))
    partition = TopicPartition(offset_key.topic, offset_key.partition)
    if value is None:
        return OffsetRecord(offset_key.group, partition, None)
    stored = decode_value(OffsetCommitValue, value)
    committed = CommittedOffset(
        offset=stored.offset,
        leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
        commit_timestamp_ms=stored.commit_timestamp_ms,
        log_offset=log_offset,
        expire_timestamp_ms=stored.expire_timestamp_ms,
    )
    return OffsetRecord(offset_key.group, partition, committed)
