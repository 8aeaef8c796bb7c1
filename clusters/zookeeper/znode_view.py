"""The committed state of a cluster of ZooKeeper mode, read off its znodes and written as records of a metadata log.

Faults choose their targets by it, and what it says becomes the recording's table `metadata`: a registration is a
RegisterBrokerRecord, its end a fencing, a changed state a PartitionChangeRecord. So the same checkers judge both modes. Where
several writes of one partition were seen as one, records in between keep the count of epochs right.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from replog.metadata import records as r
from replog.metadata.state import BROKER_RESOURCE, CLUSTER_DEFAULT, TOPIC_RESOURCE
from replog.types import NodeId, TopicPartition
from replog.zookeeper import paths, znodes
from replog.zookeeper.controller import broker_of
from replog.zookeeper.operations import Stat
from replog.zookeeper.znodes import ConfigZnode, ControllerZnode, DamagedZnode, PartitionStateZnode, TopicZnode
from tribunal.clusters.committed_records import CommittedRecords
from tribunal.results.metadata import NO_CHANGE, NO_LEADER


class Assignment(NamedTuple):
    """Which brokers a partition is assigned to, and which of them are on their way in or out."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


class ZnodeView:
    """Makes of changed znodes the records that say the same, stamped with when ZooKeeper wrote them, as far as it says that.

    wall_start_ms:  the wall clock's time when the run's clock began.
    """

    def __init__(self, committed: CommittedRecords, now_ns: Callable[[], int], wall_start_ms: float = 0.0) -> None:
        self.state = committed.state
        self._committed = committed
        self._image = committed.image
        self._now_ns = now_ns
        self._wall_start_ms = wall_start_ms
        self._written_ms: int | None = None  # of what is being taken
        self._count = 0
        self._assignments: dict[str, TopicZnode] = {}
        self._states: dict[TopicPartition, tuple[PartitionStateZnode, int]] = {}

    def take(self, path: str, data: bytes, stat: Stat | None) -> None:
        """Take one changed znode; no stat: it is gone. What is no znode of a cluster's is none of ours."""
        parts = path.split("/")[1:]
        self._written_ms = None if stat is None else stat.written_ms
        try:
            match parts:
                case ["controller"]:
                    self._controller(data, stat)
                case ["controller_epoch"] if stat is not None and data:
                    self.state.quorum_epoch = int(data)
                case ["brokers", "ids", node]:
                    self._broker(NodeId(int(node)), data, stat)
                case ["brokers", "topics", topic]:
                    self._topic(topic, data, stat)
                case ["brokers", "topics", topic, "partitions", index, "state"] if stat is not None:
                    self._partition(TopicPartition(topic, int(index)), data, stat)
                case ["config", "topics", topic]:
                    self._config(TOPIC_RESOURCE, topic, path, data, stat)
                case ["config", "brokers", name]:
                    entity = CLUSTER_DEFAULT if name == paths.DEFAULT_ENTITY else name
                    self._config(BROKER_RESOURCE, entity, path, data, stat)
                case _:
                    return
        except (DamagedZnode, ValueError):
            return
        self._committed.refresh(self._count - 1)

    def _controller(self, data: bytes, stat: Stat | None) -> None:
        if stat is None:
            self.state.quorum_leader = -1
        else:
            self.state.quorum_leader = znodes.decoded(ControllerZnode, paths.CONTROLLER, data).brokerid

    def _broker(self, node: NodeId, data: bytes, stat: Stat | None) -> None:
        known = self._image.brokers.get(node)
        if stat is None:
            if known is not None and not known.fenced:
                self._say(r.fencing_record(node, known.epoch, r.FENCE))
        elif known is None or known.epoch != stat.czxid:
            self._say(r.registration_record(broker_of(znodes.broker(node, data, stat.czxid))))

    def _topic(self, name: str, data: bytes, stat: Stat | None) -> None:
        known = self._image.topics_by_name.get(name)
        if stat is None:
            self._assignments.pop(name, None)
            for key in [key for key in self._states if key.topic == name]:
                del self._states[key]
            if known is not None:
                self._say(r.RemoveTopicRecord(topic_id=known.topic_id), topic=name)
            return
        znode = self._assignments[name] = znodes.topic(name, data)
        if known is None:
            topic_id = znode.uuid if znode.topic_id else UUID(int=stat.czxid)
            self._say(r.TopicRecord(name=name, topic_id=topic_id), topic=name)

    def _partition(self, key: TopicPartition, data: bytes, stat: Stat) -> None:
        now, before = znodes.partition_state(key, data), self._states.get(key)
        topic = self._image.topics_by_name.get(key.topic)
        if topic is None or (before is not None and before[1] >= stat.version):
            return
        self._states[key] = (now, stat.version)
        if before is None:
            self._say(self._created(key, topic.topic_id, now, stat.version), key)
            return
        assignment = self._assignment(key)
        raised = now.leader_epoch - before[0].leader_epoch
        for number in range(stat.version - before[1] - 1):
            # Who led in a leader epoch that nobody saw is not known: it may be any of them.
            leader = NO_LEADER if number < raised - 1 else NO_CHANGE
            self._say(r.PartitionChangeRecord(partition_id=key.partition, topic_id=topic.topic_id, leader=leader), key)
        known = topic.partitions[key.partition]
        record = r.PartitionChangeRecord(
            partition_id=key.partition,
            topic_id=topic.topic_id,
            isr=_changed(known.isr, now.isr),
            leader=now.leader if raised > 0 else NO_CHANGE,
            leader_recovery_state=(
                now.leader_recovery_state if now.leader_recovery_state != before[0].leader_recovery_state else -1
            ),
            replicas=_changed(known.replicas, assignment.replicas),
            adding_replicas=_changed(known.adding_replicas, assignment.adding),
            removing_replicas=_changed(known.removing_replicas, assignment.removing),
        )
        self._say(record, key)

    def _created(
        self, key: TopicPartition, topic_id: UUID, now: PartitionStateZnode, version: int
    ) -> r.PartitionRecord:
        assignment = self._assignment(key)
        return r.PartitionRecord(
            partition_id=key.partition,
            topic_id=topic_id,
            isr=now.isr,
            leader=now.leader,
            leader_epoch=now.leader_epoch,
            partition_epoch=version,
            leader_recovery_state=now.leader_recovery_state,
            replicas=assignment.replicas,
            adding_replicas=assignment.adding,
            removing_replicas=assignment.removing,
        )

    def _assignment(self, key: TopicPartition) -> Assignment:
        znode, index = self._assignments[key.topic], str(key.partition)
        return Assignment(
            replicas=znode.partitions.get(index, []),
            adding=znode.adding_replicas.get(index, []),
            removing=znode.removing_replicas.get(index, []),
        )

    def _config(self, kind: int, name: str, path: str, data: bytes, stat: Stat | None) -> None:
        now = {} if stat is None else znodes.decoded(ConfigZnode, path, data).config
        before = dict(self._image.configs.get((kind, name), {}))
        for setting in sorted({*now, *before}):
            value = now.get(setting)
            if value != before.get(setting):
                self._say(r.ConfigRecord(resource_type=kind, resource_name=name, name=setting, value=value))

    def _say(self, record: r.MetadataRecord, key: TopicPartition | None = None, topic: str | None = None) -> None:
        self._committed.replay(record, self._count)
        self._committed.note(
            record,
            metadata_offset=self._count,
            quorum_epoch=max(0, self.state.quorum_epoch),
            at_ns=max(0, self._now_ns()),
            stamped_ns=(
                None if self._written_ms is None else round((self._written_ms - self._wall_start_ms) * 1_000_000)
            ),
            topic=topic if key is None else key.topic,
            partition=None if key is None else key.partition,
        )
        self._count += 1


def _changed(before: Sequence[int], now: list[int]) -> list[int] | None:
    """Return what a record says of a list: null where it is as it was."""
    return None if list(before) == now else now
