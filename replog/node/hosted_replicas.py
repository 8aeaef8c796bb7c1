"""A broker's hosted replicas: how one is created, given its role, its settings and what brokers of its partition do.

Both modes do this alike; they differ in who says which partitions there are: `replog.node.hosting` follows the committed
metadata, `replog.node.zookeeper.hosting` the controller's requests.
"""

from collections.abc import Callable
from uuid import UUID

from replog.broker.identity import BrokerIdentity
from replog.broker.metadata import Assigned, Change
from replog.broker.partition import Partition
from replog.broker.topic_settings import TopicSettings
from replog.config import NodeConfig
from replog.node.directories.log_directories import LogDirectories, StoredLog
from replog.node.replication.replicas import Replica, Replicas
from replog.types import TopicPartition


class HostedReplicas:
    """Creates the replicas of this broker and gives them their roles."""

    def __init__(
        self,
        config: NodeConfig,
        replicas: Replicas,
        directories: LogDirectories,
        identity: BrokerIdentity,
        *,
        is_topic_id: Callable[[UUID, TopicPartition], bool] = lambda topic_id, name: True,
        on_hosted: Callable[[Replica], None] | None = None,
    ) -> None:
        """Take the parts of a node.

        `is_topic_id` tells a topic's own id, which its log keeps, from one made for a topic whose id is not known yet;
        `on_hosted` is called with each replica whose metadata changed.
        """
        self.config = config
        self.replicas = replicas
        self.directories = directories
        self.identity = identity
        self.metadata = replicas.metadata
        self.settings = TopicSettings(config)
        self._clock = replicas.world.clock
        self._is_topic_id = is_topic_id
        self._on_hosted = on_hosted

    def assign(self, assigned: Assigned) -> None:
        """Give a replica the role that its partition's metadata says; one that is not there yet is created."""
        replica = self.replicas.find_by_id(*assigned.key)
        if replica is None:
            try:
                replica = self._host(assigned)
            except OSError as problem:
                self.directories.fail_directory_of(assigned.name, problem)
                return
        if replica.partition.log.missing_from is not None:
            replica.partition.make_whole(assigned.state.leader)
            if replica.partition.is_offline:
                return
            self.replicas.on_truncated()  # what is fetched again is not durable yet, whatever was checkpointed of it
        effects = replica.partition.on_metadata(
            assigned.state, identity=self.identity, now_ms=self._clock.now_ms(), wall_ms=self._clock.wall_ms()
        )
        self.replicas.perform(replica, effects)
        if self._on_hosted is not None:
            self._on_hosted(replica)

    def _host(self, assigned: Assigned) -> Replica:
        stored = self._stored(assigned)
        partition = Partition(
            name=assigned.name,
            topic_id=assigned.key.topic_id,
            node_id=self.replicas.node_id,
            log=stored.log,
            high_watermark=stored.high_watermark,
            brokers=self.metadata.brokers,
            lag_ms_max=self.config.replication.lag_ms_max,
            refuses_while_recovering=self.config.replication.leader_recovery != "off",
        )
        partition.disk_failed = lambda problem: self.directories.fail_directory_of(
            assigned.name, problem, partition.log
        )
        partition.verifies_transactions = self.config.transactions.partition_verification_enable
        partition.min_insync_replicas = self.settings.min_insync_replicas(self.metadata.image, assigned.name.topic)
        replica = Replica(assigned.key, partition)
        self.replicas.add(replica)
        return replica

    def _stored(self, assigned: Assigned) -> StoredLog:
        settings = self.settings.of_log(self.metadata.image, assigned.name.topic)
        stored = self.directories.find(assigned.name)
        if stored is None:
            stored = self.directories.create(assigned.name, settings)
        stored.log.settings = settings
        if stored.log.topic_id is None and self._is_topic_id(assigned.key.topic_id, assigned.name):
            stored.log.assign_topic_id(assigned.key.topic_id)
        return stored

    def apply_settings(self, change: Change) -> None:
        """Give the replicas of changed topics their settings; every replica where the defaults changed."""
        now_ms = self._clock.now_ms()
        for topic in list(self.replicas.by_topic) if change.topics is None else change.topics:
            if topic not in self.metadata.image.topics_by_name:
                continue
            for replica in list(self.replicas.by_topic.get(topic, {}).values()):
                minimum = self.settings.min_insync_replicas(self.metadata.image, topic)
                self.replicas.perform(replica, replica.partition.on_min_insync_replicas(minimum, now_ms))
                replica.partition.log.settings = self.settings.of_log(self.metadata.image, topic)
                self.replicas.flushed(replica)  # perhaps less has to be durable now
                self.replicas.grew(replica)  # perhaps more

    def apply_brokers(self, change: Change) -> None:
        """Tell the leaders among the replicas that brokers came, went or changed."""
        if not change.brokers:
            return
        now_ms = self._clock.now_ms()
        for replica in self.replicas:
            if replica.partition.leadership is not None:
                self.replicas.perform(replica, list(replica.partition.leadership.on_brokers(now_ms)))
