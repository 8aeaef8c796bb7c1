"""From control requests to hosted replicas: who appears, changes role, goes (SPEC 3.12).

The logs, roles and settings are those of KRaft mode; only the reason differs: there a committed image, here what the
controller says to this very broker.
"""

from collections.abc import Callable, Iterable
from uuid import UUID

from replog.broker.metadata import Assigned
from replog.node.hosted_replicas import HostedReplicas
from replog.node.replication.replicas import Replica
from replog.types import TopicIdPartition, TopicPartition
from replog.zookeeper.broker import Assign, GiveUp, KeepOnly, Rename, id_of_name


def is_topic_id(topic_id: UUID, name: TopicPartition) -> bool:
    """Return whether an id is the topic's own, not the one made of its name until the true one is known."""
    return topic_id != id_of_name(name.topic)


class AssignedHosting:
    """Keeps the hosted replicas as control requests want them."""

    def __init__(self, hosted: HostedReplicas, *, on_deleted: Callable[[Iterable[str]], None]) -> None:
        """`on_deleted` is called with topics that are gone, before anything is done."""
        self.hosted = hosted
        self.replicas = hosted.replicas
        self.directories = hosted.directories
        self.metadata = hosted.metadata
        self.on_deleted = on_deleted

    def update(self) -> None:
        """Act upon settings and brokers that changed since the last call; partitions are assigned one by one."""
        change = self.metadata.take_change()
        if change is None:
            return
        # One that is there again was given its true id, or is named again: what groups read of it counts.
        gone = [name for name in change.deleted.values() if name not in self.metadata.image.topics_by_name]
        if gone:
            self.on_deleted(gone)
        self.hosted.apply_settings(change)
        self.hosted.apply_brokers(change)

    def assign(self, assigned: Assign) -> None:
        """Host a partition, or move it to another role."""
        hosted = self.replicas.find(assigned.name)
        if hosted is not None and hosted.key != assigned.key:
            self.give_up(GiveUp(assigned.name, delete=False))  # a topic of this name that is gone
        if hosted is None or hosted.key != assigned.key:
            self._put_foreign_aside(assigned)
        self.hosted.assign(Assigned(assigned.key, assigned.name, assigned.state))

    def give_up(self, given: GiveUp) -> None:
        """Host a partition no more; its log and its high watermark stay unless they are to be deleted."""
        replica = self.replicas.find(given.name)
        if replica is not None:
            self.directories.note_high_watermark(given.name, replica.partition.high_watermark)
            self.replicas.remove(replica)
        if given.delete and self.directories.find(given.name) is not None:
            self.directories.delete(given.name)

    def keep_only(self, kept: KeepOnly) -> None:
        """Put logs aside that no partition claims, and with them their checkpoints.

        What was hosted in an earlier registration of this process, and was moved away meanwhile, is hosted no more.
        """
        wanted = dict.fromkeys(kept.names)
        moved = [replica.name for replica in self.replicas if replica.name not in wanted]
        for name in moved:
            self.give_up(GiveUp(name, delete=False))  # its log may be about to be deleted
        for name in list(self.directories.logs):
            if name not in wanted and name not in moved:
                self.directories.choose(name, None)
                self.directories.put_aside(name)

    def rename(self, renamed: Rename) -> None:
        """Take a topic's true id: what was hosted under the made one is hosted again, logs as they are."""
        made = id_of_name(renamed.topic)
        for replica in [one for one in self.replicas if one.name.topic == renamed.topic and one.key.topic_id == made]:
            self._host_again(replica, TopicIdPartition(renamed.topic_id, replica.key.partition))

    def _host_again(self, replica: Replica, key: TopicIdPartition) -> None:
        state = replica.partition.state
        self.give_up(GiveUp(replica.name, delete=False))
        if state is not None:
            self.hosted.assign(Assigned(key, replica.name, state))

    def _put_foreign_aside(self, assigned: Assign) -> None:
        self.directories.choose(assigned.name, assigned.key.topic_id)
        stored = self.directories.find(assigned.name)
        if stored is None or assigned.key.topic_id == id_of_name(assigned.name.topic):
            return
        if stored.log.topic_id not in (None, assigned.key.topic_id):
            self.directories.put_aside(assigned.name)
