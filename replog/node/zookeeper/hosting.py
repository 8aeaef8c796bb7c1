"""From control requests to hosted replicas: who appears, changes role, goes (SPEC 3.12).

The logs, roles and settings are those of KRaft mode; only the reason differs: there a committed image, here what the
controller says to this very broker.
"""

from replog.broker.metadata import Assigned
from replog.node.directories.log_directories import StoredLog
from replog.node.hosting import Hosting
from replog.node.replication.replicas import Replica
from replog.types import TopicIdPartition
from replog.zookeeper.broker import Assign, GiveUp, KeepOnly, Rename, id_of_name


class AssignedHosting(Hosting):
    """Keeps the hosted replicas as control requests want them."""

    def update(self) -> None:
        """Act upon settings and brokers that changed since the last call; partitions are assigned one by one."""
        change = self.metadata.take_change()
        if change is None:
            return
        # One that is there again was given its true id, or is named again: what groups read of it counts.
        gone = [name for name in change.deleted.values() if name not in self.metadata.image.topics_by_name]
        if gone:
            self.on_deleted(gone)
        self._apply_settings(change)
        if change.brokers:
            now_ms = self.world.clock.now_ms()
            for replica in self.replicas:
                if replica.partition.leadership is not None:
                    self.replicas.perform(replica, list(replica.partition.leadership.on_brokers(now_ms)))

    def assign(self, assigned: Assign) -> None:
        """Host a partition, or move it to another role."""
        hosted = self.replicas.find(assigned.name)
        if hosted is not None and hosted.key != assigned.key:
            self.give_up(GiveUp(assigned.name, delete=False))  # a topic of this name that is gone
        if hosted is None or hosted.key != assigned.key:
            self._put_foreign_aside(assigned)
        self._assign(Assigned(assigned.key, assigned.name, assigned.state))

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
            self._assign(Assigned(key, replica.name, state))

    def _put_foreign_aside(self, assigned: Assign) -> None:
        self.directories.choose(assigned.name, assigned.key.topic_id)
        stored = self.directories.find(assigned.name)
        if stored is None or assigned.key.topic_id == id_of_name(assigned.name.topic):
            return
        if stored.log.topic_id not in (None, assigned.key.topic_id):
            self.directories.put_aside(assigned.name)

    def _stored(self, assigned: Assigned) -> StoredLog:
        settings = self.settings.of_log(self.metadata.image, assigned.name.topic)
        stored = self.directories.find(assigned.name)
        if stored is None:
            stored = self.directories.create(assigned.name, settings)
        stored.log.settings = settings
        if stored.log.topic_id is None and assigned.key.topic_id != id_of_name(assigned.name.topic):
            stored.log.assign_topic_id(assigned.key.topic_id)
        return stored
