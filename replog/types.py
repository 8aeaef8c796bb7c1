"""The words of the protocol as types: ids, epochs, and the few values every room shares.

Ids and epochs are `NewType`s so that mypy refuses to mix two epochs up: mistaking one epoch for
another is the very bug that KIP-903 repairs. Offsets are plain `int`, because they are calculated
with. Absent ids and epochs are -1, as on the wire.
"""

from enum import IntEnum
from typing import Final, NamedTuple, NewType
from uuid import UUID

NodeId = NewType("NodeId", int)
BrokerEpoch = NewType("BrokerEpoch", int)
LeaderEpoch = NewType("LeaderEpoch", int)
PartitionEpoch = NewType("PartitionEpoch", int)
QuorumEpoch = NewType("QuorumEpoch", int)
ProducerId = NewType("ProducerId", int)

NO_NODE: Final = NodeId(-1)
DEBUGGING_CONSUMER: Final = NodeId(-2)  # who fetches under this id is no replica, and is answered by followers, too
NO_BROKER_EPOCH: Final = BrokerEpoch(-1)
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
NO_OFFSET: Final = -1
ZERO_UUID: Final = UUID(int=0)

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = UUID(int=1)  # Kafka's own constant for the metadata topic


class TopicPartition(NamedTuple):
    """A partition by name: hashable, sortable, printed as `topic-p`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition by topic id: what survives deletion and re-creation of a name."""

    topic_id: UUID
    partition: int


class LeaderRecoveryState(IntEnum):
    """Whether the leader was elected uncleanly and still has to recover (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1
