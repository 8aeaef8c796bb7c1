"""DescribeTopicPartitions: topics in pages, with ELR and last known ELR (KIP-966, SPEC 5).

Pure over an image: brokers answer it from their metadata cache. Topics come sorted, a page ends
after so many partitions, the cursor names the first partition that was not sent.
"""

from collections.abc import Callable, Sequence
from typing import Final

from replog.config import Voter
from replog.controller.topics import LEGAL_NAME
from replog.errors import Error
from replog.metadata.image import Image
from replog.metadata.state import Partition, Topic
from replog.types import NO_NODE, NodeId
from replog.wire.messages import describe_cluster as dc
from replog.wire.messages import describe_topic_partitions as m

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})

CONTROLLERS: Final = 2  # DescribeCluster's endpoint type

MayDescribe = Callable[[str], bool]  # topic name; the authorizer's hook (D17)


class InvalidCursor(ValueError):
    """A cursor that cannot be continued from: INVALID_REQUEST."""


def page(
    image: Image, request: m.DescribeTopicPartitionsRequest, server_limit: int, may_describe: MayDescribe
) -> m.DescribeTopicPartitionsResponse:
    """Return one page; `InvalidCursor` when the cursor makes no sense."""
    cursor = request.cursor
    named = sorted({topic.name for topic in request.topics})
    if cursor is not None and (cursor.partition_index < 0 or (named and cursor.topic_name not in named)):
        raise InvalidCursor(f"cursor {cursor.topic_name}-{cursor.partition_index}")
    names = named or sorted(image.topics_by_name)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    described = [name for name in names if may_describe(name)]
    hidden = [name for name in names if not may_describe(name)] if named else []
    limit = max(1, min(request.response_partition_limit, server_limit))
    topics, next_cursor = _fill(image, described, cursor, limit, all_topics=not named)
    return m.DescribeTopicPartitionsResponse(
        topics=topics + [_without_partitions(name, Error.TOPIC_AUTHORIZATION_FAILED) for name in hidden],
        next_cursor=next_cursor,
    )


def _fill(
    image: Image,
    names: list[str],
    cursor: m.DescribeTopicPartitionsRequestCursor | None,
    limit: int,
    *,
    all_topics: bool,
) -> tuple[list[m.DescribeTopicPartitionsResponseTopic], m.DescribeTopicPartitionsResponseCursor | None]:
    topics: list[m.DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        topic = image.topics_by_name.get(name)
        if topic is None:
            if not all_topics:
                topics.append(_without_partitions(name, _why_missing(name)))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if limit == 0:
            return topics, m.DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=first)
        # In ZooKeeper mode a broker may have been told of some partitions only.
        known = sorted(index for index in topic.partitions if index >= first)
        topics.append(_described(image, topic, known[:limit]))
        if len(known) > limit:
            return topics, m.DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=known[limit])
        limit -= len(known)
    return topics, None


def _why_missing(name: str) -> Error:
    legal = LEGAL_NAME.fullmatch(name) and name not in (".", "..")
    return Error.UNKNOWN_TOPIC_OR_PARTITION if legal else Error.INVALID_TOPIC_EXCEPTION


def _without_partitions(name: str, error: Error) -> m.DescribeTopicPartitionsResponseTopic:
    return m.DescribeTopicPartitionsResponseTopic(error_code=error, name=name)


def _described(image: Image, topic: Topic, indices: list[int]) -> m.DescribeTopicPartitionsResponseTopic:
    return m.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(image, index, topic.partitions[index]) for index in indices],
    )


def _partition(image: Image, index: int, partition: Partition) -> m.DescribeTopicPartitionsResponsePartition:
    alive = image.is_alive(partition.leader)
    return m.DescribeTopicPartitionsResponsePartition(
        error_code=Error.NONE if alive else Error.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=partition.leader if alive else NO_NODE,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=[node for node in partition.replicas if not image.is_online(partition, node)],
    )


def describe_controllers(
    request: dc.DescribeClusterRequest, cluster_id: str, voters: Sequence[Voter], leader: NodeId
) -> dc.DescribeClusterResponse:
    """Answer DescribeCluster on a controller's listener: the voters, and who leads them (KIP-919)."""
    if request.endpoint_type != CONTROLLERS:
        return dc.DescribeClusterResponse(
            error_code=Error.MISMATCHED_ENDPOINT_TYPE,
            error_message="This is a controller; ask brokers about brokers.",
            endpoint_type=CONTROLLERS,
        )
    return dc.DescribeClusterResponse(
        error_message=None,
        endpoint_type=CONTROLLERS,
        cluster_id=cluster_id,
        controller_id=leader,
        brokers=[
            dc.DescribeClusterBroker(broker_id=voter.node_id, host=voter.endpoint.host, port=voter.endpoint.port)
            for voter in voters
        ],
    )
