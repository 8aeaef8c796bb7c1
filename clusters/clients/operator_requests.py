"""What an operator asks of a cluster, as requests and as the errors in their answers; who asks, and how often, is elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from replog.errors import Error
from replog.wire.messages import alter_partition_reassignments as apr
from replog.wire.messages import create_partitions as cp
from replog.wire.messages import create_topics as ct
from replog.wire.messages import delete_groups as dg
from replog.wire.messages import delete_records as dr
from replog.wire.messages import delete_topics as dt
from replog.wire.messages import elect_leaders as el
from replog.wire.messages import incremental_alter_configs as iac
from replog.wire.messages import offset_commit as oc
from replog.wire.messages import offset_delete as od
from tribunal.clusters.api import TopicPartition

# Who answers so may have written the order down before it was deposed, or is carrying it out: whoever is asked next
# has it or never will, so nothing is done later; but who is refused then may be refused because it is done.
OUTLIVED: Final = frozenset(
    {
        Error.NOT_CONTROLLER,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.NOT_COORDINATOR,
        Error.CONCURRENT_TRANSACTIONS,
    }
)
# A broker repeats by itself what a controller that was deposed meanwhile left unanswered: the deletion may be done.
DELETED_ALREADY: Final = frozenset({Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID})
TOPIC_RESOURCE: Final = 2
SET: Final = 0
DELETE: Final = 1
PREFERRED: Final = 0
UNCLEAN: Final = 1


def reassignment(
    partition: TopicPartition, replicas: Sequence[int], timeout_ms: int
) -> apr.AlterPartitionReassignmentsRequest:
    """Ask for these replicas; none: give up a reassignment under way."""
    wanted = apr.ReassignablePartition(partition_index=partition.partition, replicas=list(replicas) or None)
    topics = [apr.ReassignableTopic(name=partition.topic, partitions=[wanted])]
    return apr.AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=timeout_ms)


def reassignment_errors(answer: apr.AlterPartitionReassignmentsResponse) -> list[Error]:
    """Return all error codes."""
    return [answer.error_code, *(each.error_code for topic in answer.responses for each in topic.partitions)]


def topic_setting(topic: str, name: str, value: str | None) -> iac.IncrementalAlterConfigsRequest:
    """Set one of a topic's settings; None: back to the default."""
    config = iac.AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
    resource = iac.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[config])
    return iac.IncrementalAlterConfigsRequest(resources=[resource])


def setting_errors(answer: iac.IncrementalAlterConfigsResponse) -> list[Error]:
    """Return all error codes."""
    return [each.error_code for each in answer.responses]


def preferred_election(partitions: Sequence[TopicPartition], timeout_ms: int) -> el.ElectLeadersRequest:
    """Give each partition's lead to its first replica."""
    return election(partitions, PREFERRED, timeout_ms)


def election(partitions: Sequence[TopicPartition], election_type: int, timeout_ms: int) -> el.ElectLeadersRequest:
    """Elect each partition's leader, `PREFERRED` or `UNCLEAN`."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    wanted = [el.TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
    return el.ElectLeadersRequest(election_type=election_type, topic_partitions=wanted, timeout_ms=timeout_ms)


def election_errors(answer: el.ElectLeadersResponse) -> list[Error]:
    """Return all error codes; that a partition is led by its first replica already is none."""
    inner = (each.error_code for topic in answer.replica_election_results for each in topic.partition_result)
    return [error for error in (answer.error_code, *inner) if error is not Error.ELECTION_NOT_NEEDED]


def creation(
    topic: str, partitions: int, replication_factor: int, settings: Mapping[str, str], timeout_ms: int
) -> ct.CreateTopicsRequest:
    """Create a topic."""
    wanted = ct.CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[ct.CreatableTopicConfig(name=name, value=value) for name, value in settings.items()],
    )
    return ct.CreateTopicsRequest(topics=[wanted], timeout_ms=timeout_ms)


def creation_errors(answer: ct.CreateTopicsResponse) -> list[Error]:
    """Return all error codes."""
    return [topic.error_code for topic in answer.topics]


def deletion(topic: str, timeout_ms: int) -> dt.DeleteTopicsRequest:
    """Delete the topic of this name."""
    return dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name=topic)], timeout_ms=timeout_ms)


def deletion_errors(answer: dt.DeleteTopicsResponse) -> list[Error]:
    """Return all error codes."""
    return [topic.error_code for topic in answer.responses]


def more_partitions(topic: str, count: int, timeout_ms: int) -> cp.CreatePartitionsRequest:
    """Let a topic have so many partitions."""
    wanted = cp.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    return cp.CreatePartitionsRequest(topics=[wanted], timeout_ms=timeout_ms)


def partition_errors(answer: cp.CreatePartitionsResponse) -> list[Error]:
    """Return all error codes."""
    return [topic.error_code for topic in answer.results]


def record_deletion(partition: TopicPartition, offset: int, timeout_ms: int) -> dr.DeleteRecordsRequest:
    """Delete all records of a partition before an offset."""
    wanted = dr.DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
    topics = [dr.DeleteRecordsTopic(name=partition.topic, partitions=[wanted])]
    return dr.DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)


def record_deletion_errors(answer: dr.DeleteRecordsResponse) -> list[Error]:
    """Return all error codes."""
    return [each.error_code for topic in answer.topics for each in topic.partitions]


def group_deletion(group: str) -> dg.DeleteGroupsRequest:
    """Delete a group."""
    return dg.DeleteGroupsRequest(groups_names=[group])


def group_deletion_errors(answer: dg.DeleteGroupsResponse) -> list[Error]:
    """Return all error codes."""
    return [group.error_code for group in answer.results]


def position(group: str, partition: TopicPartition, topic_id: UUID, offset: int) -> oc.OffsetCommitRequest:
    """Set a group's position, as somebody who is no member."""
    wanted = oc.OffsetCommitRequestPartition(partition_index=partition.partition, committed_offset=offset)
    topic = oc.OffsetCommitRequestTopic(name=partition.topic, topic_id=topic_id, partitions=[wanted])
    return oc.OffsetCommitRequest(group_id=group, topics=[topic])


def position_errors(answer: oc.OffsetCommitResponse) -> list[Error]:
    """Return all error codes."""
    return [each.error_code for topic in answer.topics for each in topic.partitions]


def position_deletion(group: str, partition: TopicPartition) -> od.OffsetDeleteRequest:
    """Delete a group's position."""
    wanted = od.OffsetDeleteRequestPartition(partition_index=partition.partition)
    topic = od.OffsetDeleteRequestTopic(name=partition.topic, partitions=[wanted])
    return od.OffsetDeleteRequest(group_id=group, topics=[topic])


def position_deletion_errors(answer: od.OffsetDeleteResponse) -> list[Error]:
    """Return all error codes."""
    return [answer.error_code, *(each.error_code for topic in answer.topics for each in topic.partitions)]
