"""A broker's view of the committed metadata, and what each batch of it changes here (SPEC 3.1).

Records are replayed into an image in offset order. Which partitions to look at afterwards is read off the
records, so the work is proportional to the change. An atomic group of records shows only at its end.

Before the broker's own registration is visible nothing is acted upon: the log of earlier times would make this replica
leader of epochs long past, and its epoch cache would forget what it knows.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from replog.broker.isr import BrokerView, PartitionState
from replog.config import Endpoint
from replog.metadata import records as r
from replog.metadata.image import Image
from replog.metadata.state import BROKER_RESOURCE, TOPIC_RESOURCE, Partition
from replog.types import NodeId, TopicIdPartition, TopicPartition

ALL_TOPICS: Final = None


class Change(msgspec.Struct, kw_only=True):
    """What is to be looked at again after a batch of records.

    partitions:  created, changed or gone, in the order of the records, each once.
    topics:      whose settings changed; None for those of all topics.
    deleted:     ids of topics that were deleted, with their names; others of these names may be there by now.
    """

    partitions: dict[TopicIdPartition, None]
    topics: dict[str, None] | None
    brokers: bool
    deleted: dict[UUID, str] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether nothing of interest changed."""
        return not self.partitions and self.topics == {} and not self.brokers


class Assigned(NamedTuple):
    """The broker has a replica of the partition, in this state."""

    key: TopicIdPartition
    name: TopicPartition
    state: PartitionState


class Removed(NamedTuple):
    """The broker has no replica of the partition any more: the data is to be deleted."""

    key: TopicIdPartition


Action = Assigned | Removed


class BrokerMetadata:
    """The image and what follows from its changes for one broker."""

    def __init__(self, node_id: NodeId, listener: str = "PLAINTEXT") -> None:
        """`listener`: the name of that by which brokers reach each other."""
        self.node_id = node_id
        self.listener = listener
        self.image = Image()
        self.brokers: dict[NodeId, BrokerView] = {}
        self._change = Change(partitions={}, topics={}, brokers=False)

    def replay(self, records: Iterable[tuple[int, r.MetadataRecord]]) -> None:
        """Apply committed records and note what they touch."""
        for offset, record in records:
            self._note(record)
            self.image.replay(record, offset)
        self._note_brokers()

    def restore(self, last_offset: int, records: Iterable[r.MetadataRecord]) -> None:
        """Begin anew from a snapshot: everything there is, and everything there was, is to be looked at."""
        before = self.image
        self.image = Image()
        for record in records:
            self.image.replay(record, last_offset)
        for image in (before, self.image):
            self._change.partitions.update(dict.fromkeys(key for key, _ in image.partitions()))
        self._change.deleted.update((topic.topic_id, topic.name) for topic in before.topics.values())
        self._change.topics = ALL_TOPICS
        self._note_brokers()

    def take_change(self) -> Change | None:
        """Return what changed since the last call; None in the middle of an atomic group or when nothing did."""
        if self.image.in_transaction or self._change.is_empty:
            return None
        change, self._change = self._change, Change(partitions={}, topics={}, brokers=False)
        change.deleted = {key: name for key, name in change.deleted.items() if key not in self.image.topics}
        return change

    def actions(self, keys: Iterable[TopicIdPartition]) -> Iterator[Action]:
        """Return what is to be done for these partitions, in their order."""
        return map(self.action, keys)

    def action(self, key: TopicIdPartition) -> Action:
        """Return what is to be done for a partition, as the image is now."""
        partition = self.image.partition(key.topic_id, key.partition)
        if partition is None or self.node_id not in partition.replicas:
            return Removed(key)
        return Assigned(key, self._name(key), state_of(partition))

    def endpoint_of(self, node: NodeId, listener: str = "") -> Endpoint | None:
        """Return where a registered broker can be reached by peers, or by the clients of a listener."""
        broker = self.image.brokers.get(node)
        return None if broker is None else broker.endpoint(listener or self.listener)

    def assigned(self) -> list[TopicIdPartition]:
        """Return all partitions this broker has a replica of, in order."""
        return [key for key, partition in self.image.partitions() if self.node_id in partition.replicas]

    def _name(self, key: TopicIdPartition) -> TopicPartition:
        return TopicPartition(self.image.topics[key.topic_id].name, key.partition)

    def _note(self, record: r.MetadataRecord) -> None:
        match record:
            case r.PartitionRecord() | r.PartitionChangeRecord():
                self._change.partitions[TopicIdPartition(record.topic_id, record.partition_id)] = None
            case r.RemoveTopicRecord():
                self._note_topic(record.topic_id)
            case r.ConfigRecord():
                self._note_config(record)
            case _:
                pass

    def _note_topic(self, topic_id: UUID) -> None:
        topic = self.image.topics.get(topic_id)
        if topic is None:
            return
        self._change.deleted[topic_id] = topic.name
        for index in sorted(topic.partitions):
            self._change.partitions[TopicIdPartition(topic_id, index)] = None

    def _note_config(self, record: r.ConfigRecord) -> None:
        if record.resource_type == BROKER_RESOURCE:
            self._change.topics = ALL_TOPICS  # defaults of topics live there
        elif record.resource_type == TOPIC_RESOURCE and self._change.topics is not ALL_TOPICS:
            self._change.topics[record.resource_name] = None

    def _note_brokers(self) -> None:
        if self.image.in_transaction:
            return
        brokers = {
            node: BrokerView(epoch=broker.epoch, fenced=broker.fenced, shutting_down=broker.in_controlled_shutdown)
            for node, broker in sorted(self.image.brokers.items())
        }
        if brokers != self.brokers:
            # Partitions hold this very mapping.
            self.brokers.clear()
            self.brokers.update(brokers)
            self._change.brokers = True


def state_of(partition: Partition) -> PartitionState:
    """Return what a replica needs to know of its partition."""
    return PartitionState(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=partition.replicas,
        isr=partition.isr,
        recovery=partition.leader_recovery_state,
    )
