"""What an operator asks of a cluster, as requests and as the errors in their answers; who asks, and how often, is elsewhere."""

from collections.abc import Sequence
from typing import Final

from replog.errors import Error
from replog.wire.messages import alter_partition_reassignments as apr
from replog.wire.messages import elect_leaders as el
from replog.wire.messages import incremental_alter_configs as iac
from tribunal.clusters.api import TopicPartition

TOPIC_RESOURCE: Final = 2
SET: Final = 0
DELETE: Final = 1
PREFERRED: Final = 0


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
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    wanted = [el.TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
    return el.ElectLeadersRequest(election_type=PREFERRED, topic_partitions=wanted, timeout_ms=timeout_ms)


def election_errors(answer: el.ElectLeadersResponse) -> list[Error]:
    """Return all error codes; that a partition is led by its first replica already is none."""
    inner = (each.error_code for topic in answer.replica_election_results for each in topic.partition_result)
    return [error for error in (answer.error_code, *inner) if error is not Error.ELECTION_NOT_NEEDED]
