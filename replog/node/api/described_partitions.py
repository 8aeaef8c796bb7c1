"""Partitions as Metadata answers describe them.

Clients whose leaders moved ask for whole topics, each of them, again and again, and most partitions are as they were. So each is
described anew only when it, or a broker, has changed. Both are values: what is the same object says the same.
"""

from uuid import UUID

from replog.errors import Error
from replog.metadata.image import Image
from replog.metadata.state import Broker, Partition, Topic
from replog.types import NO_NODE
from replog.wire.messages.metadata import MetadataResponsePartition

Described = tuple[Partition, MetadataResponsePartition]


class DescribedPartitions:
    """What was last said of each partition."""

    def __init__(self) -> None:
        self._brokers: list[Broker] = []
        self._by_topic: dict[UUID, dict[int, Described]] = {}

    def of(self, image: Image, topic: Topic) -> list[MetadataResponsePartition]:
        """Return a topic's partitions, by index."""
        self._forget(image)
        known = self._by_topic.setdefault(topic.topic_id, {})
        found = []
        for index in sorted(topic.partitions):
            partition = topic.partitions[index]
            described = known.get(index)
            if described is None or described[0] is not partition:
                described = known[index] = (partition, _described(image, index, partition))
            found.append(described[1])
        return found

    def _forget(self, image: Image) -> None:
        brokers = list(image.brokers.values())
        if brokers != self._brokers:
            self._brokers = brokers
            self._by_topic.clear()
        elif len(self._by_topic) > len(image.topics):
            self._by_topic = {topic_id: known for topic_id, known in self._by_topic.items() if topic_id in image.topics}


def _described(image: Image, index: int, partition: Partition) -> MetadataResponsePartition:
    has_leader = partition.leader != NO_NODE and image.is_alive(partition.leader)
    return MetadataResponsePartition(
        error_code=Error.NONE if has_leader else Error.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=partition.leader if has_leader else NO_NODE,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[node for node in partition.replicas if not image.is_online(partition, node)],
    )
