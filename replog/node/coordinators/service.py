"""A broker's part in coordinating groups and transactions: which requests go where, and who is notified of elections."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from replog.broker.identity import BrokerIdentity
from replog.config import NodeConfig
from replog.controller.describe import INTERNAL_TOPICS
from replog.coordinators.classic_group import GroupSettings
from replog.coordinators.consumer_group_coordinator import ConsumerGroupSettings, TopicView
from replog.coordinators.events import SendMarkers
from replog.coordinators.group_coordinator import GroupCoordinator
from replog.coordinators.placement import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from replog.coordinators.transaction_coordinator import TransactionCoordinator, TransactionSettings
from replog.metadata.features import GROUP_VERSION
from replog.metadata.state import GROUP_RESOURCE
from replog.node.coordinators.internal_topics import InternalTopics
from replog.node.coordinators.markers import MarkerSender
from replog.node.coordinators.producer_ids import ProducerIds
from replog.node.coordinators.runtime import CoordinatorRuntime, CoordinatorShard
from replog.node.coordinators.verifier import Verifier
from replog.node.net.broker_links import BrokerLinks
from replog.node.net.controller_link import ControllerLink
from replog.node.replication.replicas import Replica, Replicas
from replog.node.tasks import Tasks
from replog.types import TopicPartition


class ImageTopics:
    """What cores want to know of topics, from the broker's image."""

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas

    def has_partition(self, partition: TopicPartition) -> bool:
        """Return whether there is such a partition."""
        topic = self.replicas.metadata.image.topics_by_name.get(partition.topic)
        return topic is not None and partition.partition in topic.partitions

    def name_of(self, topic_id: UUID) -> str | None:
        """Return a topic's name."""
        topic = self.replicas.metadata.image.topics.get(topic_id)
        return topic.name if topic is not None else None

    def view_of(self, name: str) -> TopicView | None:
        """Return a topic, None when there is no such one."""
        topic = self.replicas.metadata.image.topics_by_name.get(name)
        return TopicView(topic.topic_id, len(topic.partitions)) if topic is not None else None

    def names(self) -> list[str]:
        """Return the names of all topics that are not internal, in order."""
        return [name for name in sorted(self.replicas.metadata.image.topics_by_name) if name not in INTERNAL_TOPICS]


class CoordinatorService:
    """Both kinds of coordinators of one broker."""

    def __init__(
        self,
        config: NodeConfig,
        replicas: Replicas,
        link: ControllerLink,
        tasks: Tasks,
        identity: BrokerIdentity,
    ) -> None:
        self.config = config
        self.replicas = replicas
        self.topics = ImageTopics(replicas)
        self.internal_topics = InternalTopics(config, replicas, link, tasks)
        self.links = BrokerLinks(replicas.world, replicas.metadata, config.broker_access)
        # Of their own, as in Apache Kafka: a marker waits for replicas, and answers come in the order of the requests.
        self.marker_links = BrokerLinks(replicas.world, replicas.metadata, config.broker_access)
        self.producer_ids = ProducerIds(link, tasks, identity)
        self.groups = CoordinatorRuntime(
            OFFSETS_TOPIC, replicas, tasks, self._new_group_core, _no_markers, gathers=False
        )
        sender = MarkerSender(replicas, self.marker_links, self.internal_topics, tasks)
        self.transactions = CoordinatorRuntime(
            TRANSACTIONS_TOPIC, replicas, tasks, self._new_transaction_core, sender.send, gathers=True
        )
        self.verifier = Verifier(
            self.links,
            self.internal_topics,
            tasks,
            retry_ms=config.transactions.verification_backoff_ms,
            timeout_ms=config.transactions.verification_backoff_ms_max,
        )
        self.by_topic: dict[str, CoordinatorRuntime[GroupCoordinator] | CoordinatorRuntime[TransactionCoordinator]] = {
            OFFSETS_TOPIC: self.groups,
            TRANSACTIONS_TOPIC: self.transactions,
        }

    def elected(self, replica: Replica) -> None:
        """Coordinate what this partition is for."""
        runtime = self.by_topic.get(replica.name.topic)
        if runtime is not None:
            runtime.elected(replica)

    def resigned(self, replica: Replica) -> None:
        """Leave it to the next leader."""
        runtime = self.by_topic.get(replica.name.topic)
        if runtime is not None:
            runtime.resigned(replica)

    def topics_deleted(self, names: Iterable[str]) -> None:
        """Forget what groups have read of topics that are gone: others of these names begin anew."""
        self.groups.topics_deleted(dict.fromkeys(names))

    def stop(self) -> None:
        """Stop all of it."""
        for runtime in self.by_topic.values():
            runtime.stop()
        self.links.close()
        self.marker_links.close()

    def _new_group_core(self, partition: int, leader_epoch: int) -> GroupCoordinator:
        config = self.config.groups
        return GroupCoordinator(
            GroupSettings.of(config),
            self.topics,
            self.replicas.world.entropy.uuid,
            expiry_interval_ms=config.offsets_retention_check_interval_ms,
            consumer_settings=ConsumerGroupSettings.of(config),
            own_settings=self._own_settings,
        )

    def _own_settings(self, group_id: str) -> Mapping[str, str]:
        return self.replicas.metadata.image.configs.get((GROUP_RESOURCE, group_id), {})

    @property
    def permits_consumer_groups(self) -> bool:
        """Return whether the cluster has finalized the new group protocol (KIP-848)."""
        return self.replicas.metadata.image.features.get(GROUP_VERSION, 0) >= 1

    def _new_transaction_core(self, partition: int, leader_epoch: int) -> TransactionCoordinator:
        return TransactionCoordinator(TransactionSettings.of(self.config.transactions), self.producer_ids.take)


def _no_markers(_: CoordinatorShard[GroupCoordinator], effect: SendMarkers) -> None:
    raise AssertionError(f"groups send no markers: {effect}")
