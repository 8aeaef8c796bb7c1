"""One event's work in ZooKeeper mode: the records of the shared rules, turned into operations on znodes.

The rules of elections, reassignments and topics are those of `replog.controller`; they speak in records. Here a record takes
effect on the image at once and becomes what ZooKeeper has to write. What changes a partition by the controller's own will
raises its leader epoch, because replicas ignore a LeaderAndIsr of the epoch they live in (SPEC 3.12.7); what a leader asked
for (AlterPartition) does not.
"""

from typing import Final

import msgspec

from replog.controller.policy import Policy
from replog.controller.turn import Turn
from replog.metadata import records as r
from replog.metadata.state import BROKER_RESOURCE, TOPIC_RESOURCE, Partition, Topic
from replog.types import LeaderRecoveryState, NodeId, TopicIdPartition, TopicPartition
from replog.zookeeper import paths
from replog.zookeeper.operations import ANY_VERSION, Create, Operation, SetData
from replog.zookeeper.versions import RECOVERY, ProtocolVersion
from replog.zookeeper.znodes import (
    ConfigChangeZnode,
    ConfigZnode,
    PartitionStateZnode,
    ProducerIdsZnode,
    TopicZnode,
    encoded,
    id_text,
)

PRODUCER_IDS_PER_BLOCK: Final = 1000
LEADER_UNCHANGED: Final = -2
RECOVERY_UNCHANGED: Final = -1


class Znodes:
    """Which optional znodes exist: a create and a write are different operations."""

    def __init__(self) -> None:
        self.configs: dict[str, None] = {}
        self.has_producer_ids = False


class ZooKeeperTurn(Turn):
    """Collects the operations of one event."""

    def __init__(
        self, policy: Policy, *, now_ms: int, controller_epoch: int, protocol: ProtocolVersion, znodes: Znodes
    ) -> None:
        super().__init__(policy, now_ms=now_ms, next_offset=policy.image.last_offset + 1)
        self.controller_epoch = controller_epoch
        self.protocol = protocol
        self.znodes = znodes
        self.by_leader = False  # an AlterPartition is being decided
        self.before: dict[TopicIdPartition, Partition | None] = {}  # partitions that change, as they were
        self._new_topics: dict[str, Topic] = {}
        self._assignments: dict[str, Topic] = {}
        self._grown: dict[str, None] = {}  # topics with new partitions
        self._left: dict[str, None] = {}  # znodes of partitions that have no state
        self._states: list[Operation] = []
        self._configs: dict[str, tuple[int, str]] = {}
        self._last: list[Operation] = []

    def append(self, records: r.Records) -> None:
        """Let records take effect, in the image and on the znodes that say the same."""
        for record in records:
            self._append(self._adapted(record))

    def give_id(self, topic: Topic) -> None:
        """Write a topic's id, which its znode lacks: it is of a version before ids."""
        self._assignments[topic.name] = topic

    def complete(self, name: str, left: list[int] | None) -> None:
        """Go on with a topic whose creation ended midway: `left` as in `Loaded`."""
        if left is None:
            self._states.append(Create(path=paths.partitions(name)))
        else:
            self._left |= {paths.partition(TopicPartition(name, index)): None for index in left}

    def also(self, operation: Operation) -> None:
        """Do this too, after everything else."""
        self._last.append(operation)

    @property
    def operations(self) -> list[Operation]:
        """Everything that has to be written, parents before children; a topic's settings before the topic.

        What is many operations may end midway: a topic that the next controller completes has them. So it does with
        partitions that are assigned and have no state yet; a replica that goes is out of the ISR before it is out of
        the assignment, for a leader that is no replica would get no LeaderAndIsr.
        """
        found = self._config_operations()
        for name, topic in self._new_topics.items():
            found.append(Create(path=paths.topic(name), data=encoded(_topic_znode(topic))))
            found.append(Create(path=paths.partitions(name)))
        before = [topic for name, topic in self._assignments.items() if name in self._grown]
        behind = [topic for name, topic in self._assignments.items() if name not in self._grown]
        return [*found, *self._assigned(before), *self._states, *self._assigned(behind), *self._last]

    def _assigned(self, topics: list[Topic]) -> list[Operation]:
        return [
            SetData(path=paths.topic(topic.name), data=encoded(_topic_znode(topic)), version=ANY_VERSION)
            for topic in topics
            if topic.name not in self._new_topics
        ]

    def _adapted(self, record: r.MetadataRecord) -> r.MetadataRecord:
        if not isinstance(record, r.PartitionChangeRecord):
            return record
        if not self.protocol.has(RECOVERY) and record.leader_recovery_state == LeaderRecoveryState.RECOVERING:
            # KIP-704, "Compatibility": before its protocol version the state is not written, nor sent. That a leader
            # has recovered is: a controller of the new version may have written RECOVERING during an upgrade.
            record = msgspec.structs.replace(record, leader_recovery_state=RECOVERY_UNCHANGED)
        if record.leader == LEADER_UNCHANGED and not self.by_leader:
            partition = self.image.partition(record.topic_id, record.partition_id)
            assert partition is not None
            record = msgspec.structs.replace(record, leader=partition.leader)
        return record

    def _append(self, record: r.MetadataRecord) -> None:
        self._notice(record)
        if isinstance(record, r.PartitionRecord | r.PartitionChangeRecord):
            key = TopicIdPartition(record.topic_id, record.partition_id)
            self.before.setdefault(key, self.image.partition(*key))
        self.image.replay(record, self.next_offset)
        self.records.append(record)
        match record:
            case r.TopicRecord():
                topic = self.image.topics[record.topic_id]
                self._new_topics[topic.name] = topic
                self._configs.setdefault(paths.topic_config(topic.name), (TOPIC_RESOURCE, topic.name))
            case r.PartitionRecord():
                self._create(TopicIdPartition(record.topic_id, record.partition_id))
            case r.PartitionChangeRecord():
                self._change(TopicIdPartition(record.topic_id, record.partition_id), record)
            case r.ConfigRecord():
                self._note_config(record)
            case r.ProducerIdsRecord():
                self._last.append(self._producer_ids(record))
            case _:
                pass  # who is registered stands in the brokers' own znodes

    def _create(self, key: TopicIdPartition) -> None:
        topic = self.image.topics[key.topic_id]
        name = TopicPartition(topic.name, key.partition)
        self._assignments[topic.name] = topic
        self._grown[topic.name] = None
        if paths.partition(name) not in self._left:
            self._states.append(Create(path=paths.partition(name)))
        self._states.append(Create(path=paths.state(name), data=self._state(key)))

    def _change(self, key: TopicIdPartition, record: r.PartitionChangeRecord) -> None:
        topic = self.image.topics[key.topic_id]
        # A partition epoch is its znode's version: each write raises both by one.
        version = topic.partitions[key.partition].partition_epoch - 1
        path = paths.state(TopicPartition(topic.name, key.partition))
        self._states.append(SetData(path=path, data=self._state(key), version=version))
        if record.replicas is not None or record.adding_replicas is not None or record.removing_replicas is not None:
            self._assignments[topic.name] = topic

    def _state(self, key: TopicIdPartition) -> bytes:
        partition = self.image.topics[key.topic_id].partitions[key.partition]
        return encoded(
            PartitionStateZnode(
                controller_epoch=self.controller_epoch,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                isr=list(partition.isr),
                leader_recovery_state=int(partition.leader_recovery_state),
            )
        )

    def _note_config(self, record: r.ConfigRecord) -> None:
        if record.resource_type == TOPIC_RESOURCE:
            self._configs[paths.topic_config(record.resource_name)] = (TOPIC_RESOURCE, record.resource_name)
        elif record.resource_type == BROKER_RESOURCE:
            self._configs[paths.broker_config(record.resource_name)] = (BROKER_RESOURCE, record.resource_name)

    def _config_operations(self) -> list[Operation]:
        found: list[Operation] = []
        for path, resource in self._configs.items():
            data = encoded(ConfigZnode(config=dict(sorted(self.image.configs.get(resource, {}).items()))))
            if path in self.znodes.configs:
                found.append(SetData(path=path, data=data, version=ANY_VERSION))
            else:
                self.znodes.configs[path] = None
                found.append(Create(path=path, data=data))
            change = ConfigChangeZnode(entity_path=path.removeprefix("/config/"))
            found.append(Create(path=paths.CONFIG_CHANGE, data=encoded(change), sequential=True))
        return found

    def _producer_ids(self, record: r.ProducerIdsRecord) -> Operation:
        end = record.next_producer_id
        start = end - PRODUCER_IDS_PER_BLOCK
        block = ProducerIdsZnode(broker=record.broker_id, block_start=str(start), block_end=str(end - 1))
        if self.znodes.has_producer_ids:
            return SetData(path=paths.PRODUCER_IDS, data=encoded(block), version=ANY_VERSION)
        self.znodes.has_producer_ids = True
        return Create(path=paths.PRODUCER_IDS, data=encoded(block))


def _topic_znode(topic: Topic) -> TopicZnode:
    def lists(of: dict[int, tuple[NodeId, ...]]) -> dict[str, list[int]]:
        return {str(index): list(nodes) for index, nodes in sorted(of.items()) if nodes}

    partitions = topic.partitions
    return TopicZnode(
        topic_id=id_text(topic.topic_id),
        partitions=lists({index: partition.replicas for index, partition in partitions.items()}),
        adding_replicas=lists({index: partition.adding_replicas for index, partition in partitions.items()}),
        removing_replicas=lists({index: partition.removing_replicas for index, partition in partitions.items()}),
    )
