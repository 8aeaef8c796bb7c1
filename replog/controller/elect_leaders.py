"""ElectLeaders, and our form of it in which an operator names the leader (SPEC 2.9, D9)."""

from typing import Final, NamedTuple

from replog.controller.election import Election, Wish, partition_change
from replog.controller.policy import Policy
from replog.errors import Error
from replog.metadata.records import PartitionChangeRecord
from replog.metadata.state import Partition
from replog.types import NO_NODE, NodeId, TopicIdPartition

PREFERRED: Final = 0
UNCLEAN: Final = 1

_UNAVAILABLE: Final = {
    Election.PREFERRED: Error.PREFERRED_LEADER_NOT_AVAILABLE,
    Election.UNCLEAN: Error.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    Election.DESIGNATED: Error.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


class Elected(NamedTuple):
    """Outcome for one partition."""

    error: Error
    record: PartitionChangeRecord | None


def elect(policy: Policy, topic: str, index: int, election: Election, designated_leader: NodeId = NO_NODE) -> Elected:
    """Hold one election that somebody asked for."""
    known = policy.image.topics_by_name.get(topic)
    partition = known.partitions.get(index) if known else None
    if known is None or partition is None:
        return Elected(Error.UNKNOWN_TOPIC_OR_PARTITION, None)
    refusal = _refusal(policy, partition, election, designated_leader)
    if refusal is not Error.NONE:
        return Elected(refusal, None)
    record = partition_change(
        TopicIdPartition(known.topic_id, index),
        partition,
        Wish(election=election, designated_leader=designated_leader),
        policy.rules(topic),
        policy.image.fit(partition, policy.image.is_active),
    )
    if record is None:
        return Elected(_UNAVAILABLE[election], None)
    return Elected(Error.NONE, record)


def _refusal(policy: Policy, partition: Partition, election: Election, designated_leader: NodeId) -> Error:
    match election:
        case Election.PREFERRED if partition.leader == partition.preferred_leader:
            return Error.ELECTION_NOT_NEEDED
        case Election.UNCLEAN if partition.leader != NO_NODE:
            return Error.ELECTION_NOT_NEEDED
        case Election.DESIGNATED if designated_leader not in partition.replicas:
            return Error.INVALID_REQUEST
        case Election.DESIGNATED if not policy.image.fit(partition, policy.image.is_active)(designated_leader):
            return Error.ELIGIBLE_LEADERS_NOT_AVAILABLE
        case Election.DESIGNATED if designated_leader == partition.leader:
            return Error.ELECTION_NOT_NEEDED
        case _:
            return Error.NONE
