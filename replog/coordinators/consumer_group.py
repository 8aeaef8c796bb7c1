"""One consumer group of the new protocol (KIP-848): the fold of its records, and nothing else.

A group has three epochs that chase each other. The *group epoch* grows whenever somebody's subscription, or a topic
that is subscribed to, changes. The *assignment epoch* is the group epoch that the target assignment was computed for.
A *member epoch* is the assignment epoch that a member has moved to: it moves only after it gave up what the target takes
from it. A partition is held by one member until that member has let go of it.

Whoever changes a group does so by applying records; `apply` returns the record that takes the change back. So the
state that a coordinator works on and the state that its successor loads are made by the same few lines.
"""

from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import Final, TypeVar
from uuid import UUID

import msgspec

from replog.types import TopicIdPartition
from replog.wire.records import coordinator as r

Kind = TypeVar("Kind")
Partitions = frozenset[TopicIdPartition]
Fact = tuple[msgspec.Struct, msgspec.Struct | None]  # key and value of a record; no value: it is gone
NOTHING: Final[Partitions] = frozenset()
LEFT_FOR_A_WHILE: Final = -2  # member epoch of a static member that will be back (KIP-848)
CONSUMER_PROTOCOL: Final = 1  # member type in ConsumerGroupDescribe


class MemberState(IntEnum):
    """How far a member has followed the target; the numbers are stored."""

    STABLE = 0
    UNREVOKED = 1  # has to give up partitions first
    UNRELEASED = 2  # is in the target's epoch, but others still hold some of its partitions


class ConsumerGroupState(StrEnum):
    """Where a group stands; the words are those that ConsumerGroupDescribe answers with."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What a member holds now.

    revoking:  what it has to revoke and has not confirmed yet; still its own.
    """

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    revoking: Partitions = NOTHING


class ConsumerGroup:
    """Members, what they want, what they shall have and what they hold."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, r.ConsumerGroupMemberMetadataValue] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.places: dict[str, Place] = {}
        self.targets: dict[str, Partitions] = {}
        self.patterns: dict[str, r.ConsumerGroupRegularExpressionValue] = {}
        self.holders: dict[TopicIdPartition, str] = {}  # assigned or not yet given up
        # Of this leadership, not of the log:
        self.is_ending = False
        self.refreshed_ms = -1
        self.compared: dict[
            str, int
        ] = {}  # patterns, and the change of the topics' names that they were compared with last
        self.last_written = 0  # numbers of writes
        self.last_committed = 0

    # --- records -----------------------------------------------------------------------------

    def apply(self, key: msgspec.Struct, value: msgspec.Struct | None) -> Fact:
        """Take a record over; return the one that would undo it."""
        match key:
            case r.ConsumerGroupMetadataKey():
                return key, self._apply_group(value)  # type: ignore[arg-type]  # the key's type is the value's
            case r.ConsumerGroupTargetAssignmentMetadataKey():
                return key, self._apply_assignment_epoch(value)  # type: ignore[arg-type]
            case r.ConsumerGroupMemberMetadataKey():
                return key, self._apply_member(key.member_id, value)  # type: ignore[arg-type]
            case r.ConsumerGroupTargetAssignmentMemberKey():
                return key, self._apply_target(key.member_id, value)  # type: ignore[arg-type]
            case r.ConsumerGroupCurrentMemberAssignmentKey():
                return key, self._apply_place(key.member_id, value)  # type: ignore[arg-type]
            case r.ConsumerGroupRegularExpressionKey():
                before = _put(self.patterns, key.regular_expression, value)  # type: ignore[misc]
                return key, before
            case _:
                return key, None  # ConsumerGroupPartitionMetadata: written by older releases, said by the hash now

    def _apply_group(self, value: r.ConsumerGroupMetadataValue | None) -> msgspec.Struct | None:
        before = r.ConsumerGroupMetadataValue(epoch=self.epoch, metadata_hash=self.metadata_hash)
        self.epoch = value.epoch if value is not None else 0
        self.metadata_hash = value.metadata_hash if value is not None else 0
        return before if before.epoch else None

    def _apply_assignment_epoch(self, value: r.ConsumerGroupTargetAssignmentMetadataValue | None) -> msgspec.Struct:
        before = r.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=self.assignment_epoch)
        self.assignment_epoch = value.assignment_epoch if value is not None else 0
        return before

    def _apply_member(
        self, member_id: str, value: r.ConsumerGroupMemberMetadataValue | None
    ) -> r.ConsumerGroupMemberMetadataValue | None:
        before = _put(self.members, member_id, value)
        if before is not None and before.instance_id and self.static_members.get(before.instance_id) == member_id:
            del self.static_members[before.instance_id]
        if value is not None and value.instance_id:
            self.static_members[value.instance_id] = member_id
        return before

    def _apply_target(
        self, member_id: str, value: r.ConsumerGroupTargetAssignmentMemberValue | None
    ) -> msgspec.Struct | None:
        before = _put(self.targets, member_id, None if value is None else partitions_of(value.topic_partitions))
        return None if before is None else target_value(before)

    def _apply_place(
        self, member_id: str, value: r.ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> msgspec.Struct | None:
        before = self.places.get(member_id)
        for partition in sorted(before.assigned | before.revoking) if before is not None else ():
            if self.holders.get(partition) == member_id:
                del self.holders[partition]
        place = None if value is None else place_of(value)
        _put(self.places, member_id, place)
        for partition in sorted(place.assigned | place.revoking) if place is not None else ():
            self.holders[partition] = member_id
        return None if before is None else place_value(before)

    # --- what follows from them --------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        """Return where the group stands."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(self._has_arrived(self.place(member_id)) for member_id in self.members):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def _has_arrived(self, place: Place) -> bool:
        return place.state is MemberState.STABLE and place.epoch in (self.assignment_epoch, LEFT_FOR_A_WHILE)

    def place(self, member_id: str) -> Place:
        """Return what a member holds; a new one holds nothing."""
        return self.places.get(member_id) or Place()

    def topics_of(self, member_id: str) -> dict[str, None]:
        """Return the names of the topics that a member wants, by its list and by its pattern."""
        member = self.members[member_id]
        found = self.patterns.get(member.subscribed_topic_regex) if member.subscribed_topic_regex else None
        return dict.fromkeys([*member.subscribed_topic_names, *(found.topics if found is not None else ())])

    def subscribed_topics(self) -> dict[str, None]:
        """Return the names of the topics that anybody wants."""
        return {name: None for member_id in self.members for name in self.topics_of(member_id)}

    def is_used(self, pattern: str) -> bool:
        """Return whether any member subscribes by this pattern."""
        return any(member.subscribed_topic_regex == pattern for member in self.members.values())


def _put(known: dict[str, Kind], name: str, value: Kind | None) -> Kind | None:
    before = known.get(name)
    if value is None:
        known.pop(name, None)
    else:
        known[name] = value
    return before


def by_topic(partitions: Iterable[TopicIdPartition]) -> dict[UUID, list[int]]:
    """Return partitions by topic id, both in order."""
    found: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        found.setdefault(topic_id, []).append(partition)
    return found


def partitions_of(topics: Iterable[r.TopicPartition | r.TopicPartitions]) -> Partitions:
    """Return what a stored assignment names."""
    return frozenset(TopicIdPartition(one.topic_id, index) for one in topics for index in one.partitions)


def place_of(value: r.ConsumerGroupCurrentMemberAssignmentValue) -> Place:
    """Return the place that a record names; a state of a later release is found out anew by reconciling."""
    known = value.state in MemberState.__members__.values()
    return Place(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if known else MemberState.UNRELEASED,
        assigned=partitions_of(value.assigned_partitions),
        revoking=partitions_of(value.partitions_pending_revocation),
    )


def place_value(place: Place) -> r.ConsumerGroupCurrentMemberAssignmentValue:
    """Return a place as it is stored."""
    return r.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=place.epoch,
        previous_member_epoch=place.previous_epoch,
        state=place.state,
        assigned_partitions=_stored(place.assigned),
        partitions_pending_revocation=_stored(place.revoking),
    )


def target_value(target: Partitions) -> r.ConsumerGroupTargetAssignmentMemberValue:
    """Return a member's part of the target as it is stored."""
    topics = [r.TopicPartition(topic_id=one.topic_id, partitions=one.partitions) for one in _stored(target)]
    return r.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics)


def _stored(partitions: Partitions) -> list[r.TopicPartitions]:
    return [
        r.TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic(partitions).items()
    ]
