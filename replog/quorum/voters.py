"""The arithmetic of a quorum: who belongs to it, what a majority is, what a majority holds.

Pure functions and values. A voter is named by its id and, since KIP-853, by the id of its log directory:
a voter that comes back with another directory has lost what it had promised to remember, so it is not the
voter of the set any more (KIP-996, "Disk Loss Scenario"). ZERO_UUID means that the directory is not known.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from replog.types import NO_NODE, NO_OFFSET, ZERO_UUID, NodeId


def bootstrap_server(position: int) -> NodeId:
    """Return the id by which a node asks one of its bootstrap servers, whose own id it does not know; as Apache Kafka's."""
    return NodeId(-2 - position)


def is_bootstrap_server(node_id: NodeId) -> bool:
    """Return whether an id is of a bootstrap server."""
    return node_id < NO_NODE


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: node id and directory id (ZERO_UUID = not given)."""

    node_id: NodeId
    directory_id: UUID = ZERO_UUID

    def names(self, other: "ReplicaKey") -> bool:
        """Return whether this key, taken as a demand, is met by a replica: an unknown directory demands nothing."""
        return self.node_id == other.node_id and self.directory_id in (ZERO_UUID, other.directory_id)


class VoterSet(msgspec.Struct, frozen=True):
    """The members of the quorum, ascending by id."""

    members: tuple[ReplicaKey, ...]

    @property
    def ids(self) -> tuple[NodeId, ...]:
        """The node ids of the members, ascending."""
        return tuple(member.node_id for member in self.members)

    @property
    def majority(self) -> int:
        """How many members decide."""
        return majority(len(self.members))

    def find(self, node_id: NodeId) -> ReplicaKey | None:
        """Return the member with this node id, whatever its directory."""
        return next((member for member in self.members if member.node_id == node_id), None)

    def contains(self, replica: ReplicaKey) -> bool:
        """Return whether a replica is a member: same id, and same directory where the set knows one."""
        member = self.find(replica.node_id)
        return member is not None and member.names(replica)

    def with_directory(self, replica: ReplicaKey) -> "VoterSet":
        """Return the set with this member's directory written down."""
        members = (replica if member.node_id == replica.node_id else member for member in self.members)
        return VoterSet(tuple(members))


def voter_set(members: Iterable[ReplicaKey]) -> VoterSet:
    """Return the set of these members in order of their ids."""
    return VoterSet(tuple(sorted(members)))


def majority(count: int) -> int:
    """Return how many of `count` members are more than half."""
    return count // 2 + 1


def majority_offset(end_offsets: Sequence[int]) -> int:
    """Return the largest offset up to which a majority holds the log; NO_OFFSET where a member's is unknown."""
    assert end_offsets, "a quorum has members"
    return sorted(end_offsets, reverse=True)[len(end_offsets) // 2]


def high_watermark(end_offsets: Sequence[int], epoch_start_offset: int, current: int | None) -> int | None:
    """Return the leader's high watermark after its voters' end offsets changed.

    end_offsets:        one per voter, NO_OFFSET where unknown; the leader's own is what it has flushed.
    epoch_start_offset: offset of the leader's first batch. Older batches count as committed only once one of
                        this epoch is (Raft's figure 8), hence strictly above.
    current:            None until the leader has established one; never lowered, also not by a voter that lost data.
    source:             SPEC 1.8.2, KAFKA-12619.
    """
    held = majority_offset(end_offsets)
    if held == NO_OFFSET or held <= epoch_start_offset or (current is not None and held <= current):
        return current
    return held


def hand_over_delay_ms(position: int | None, count: int, backoff_max_ms: int) -> int:
    """Return how long a follower waits before it stands for election after its leader said goodbye.

    position: index in the leader's list of preferred successors; None when not listed.
    source:   SPEC 1.9.2: the first starts at once, the others later the further back they stand.
    """
    if position is None:
        return backoff_max_ms
    if position == 0:
        return 0
    return min(backoff_max_ms, backoff_max_ms >> (count - 1) << (position - 1))
