"""What DescribeQuorum answers: how far each replica of the metadata log is, as its leader sees it."""

from collections.abc import Sequence
from typing import Final

from replog.config import Voter
from replog.errors import Error
from replog.quorum.quorum import Quorum, ReplicaStatus
from replog.types import METADATA_TOPIC
from replog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)

OBSERVER_SILENT_MS_MAX: Final = 300_000  # the released software forgets an observer that has not fetched for so long


def description(
    body: DescribeQuorumRequest, quorum: Quorum, voters: Sequence[Voter], now_ms: int, wall_ms_of_zero: int
) -> DescribeQuorumResponse:
    """Return the answer; only a leader knows more than who leads.

    wall_ms_of_zero: what the wall clock showed when the node's own clock showed 0.
    """
    named = [(topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in body.topics]
    if named != [(METADATA_TOPIC, [0])]:
        return DescribeQuorumResponse(error_code=Error.INVALID_REQUEST, error_message=None)
    partition = _partition(quorum, now_ms, wall_ms_of_zero)
    topic = DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return DescribeQuorumResponse(error_message=None, topics=[topic], nodes=[_node(voter) for voter in voters])


def _node(voter: Voter) -> Node:
    listener = Listener(name="CONTROLLER", host=voter.endpoint.host, port=voter.endpoint.port)
    return Node(node_id=voter.node_id, listeners=[listener])


def _partition(quorum: Quorum, now_ms: int, wall_ms_of_zero: int) -> DescribeQuorumResponsePartitionData:
    status = quorum.status()
    if status is None:
        return DescribeQuorumResponsePartitionData(
            error_code=Error.NOT_LEADER_OR_FOLLOWER,
            error_message=None,
            leader_id=quorum.leader_id,
            leader_epoch=quorum.epoch,
        )

    def state(one: ReplicaStatus) -> ReplicaState:
        is_leader = one.replica.node_id == status.leader_id
        fetch_ms = now_ms if is_leader else one.last_fetch_ms
        caught_up_ms = now_ms if is_leader else one.last_caught_up_ms
        return ReplicaState(
            replica_id=one.replica.node_id,
            replica_directory_id=one.replica.directory_id,
            log_end_offset=quorum.log.end_offset if is_leader else one.log_end_offset,
            last_fetch_timestamp=-1 if fetch_ms < 0 else wall_ms_of_zero + fetch_ms,
            last_caught_up_timestamp=-1 if caught_up_ms < 0 else wall_ms_of_zero + caught_up_ms,
        )

    observers = [one for one in status.observers if now_ms - one.last_fetch_ms < OBSERVER_SILENT_MS_MAX]
    return DescribeQuorumResponsePartitionData(
        error_message=None,
        leader_id=status.leader_id,
        leader_epoch=status.epoch,
        high_watermark=status.high_watermark,
        current_voters=[state(one) for one in status.voters],
        observers=[state(one) for one in sorted(observers, key=lambda one: one.replica.node_id)],
    )
