"""A broker's part in coordinating groups and transactions: which requests go where, and who is told of elections."""

from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from replog.config import NodeConfig
from replog.controller.describe import INTERNAL_TOPICS
from replog.coordinators.classic_group import GroupSettings
from replog.coordinators.consumer_group_coordinator import ConsumerGroupSettings, TopicView
from replog.coordinators.events import SendMarkers
from replog.coordinators.group_coordinator import GroupCoordinator
from replog.coordinators.placement import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from replog.coordinators.transaction_coordinator import TransactionCoordinator, TransactionSettings
from replog.metadata.features import GROUP_VERSION
from replog.node.api.groups import GroupApi
from replog.node.api.transactions import TransactionApi
from replog.node.coordinators.internal_topics import InternalTopics
from replog.node.coordinators.markers import MarkerApi, MarkerSender
from replog.node.coordinators.producer_ids import ProducerIds
from replog.node.coordinators.runtime import Coordinator, Shards
from replog.node.coordinators.verifier import Verifier
from replog.node.net.broker_links import BrokerLinks
from replog.node.net.controller_link import ControllerLink
from replog.node.net.server import ServerRequest
from replog.node.replication.replicas import Replica, Replicas
from replog.node.tasks import Tasks
from replog.types import BrokerEpoch, TopicPartition
from replog.wire.apis import Api

Handle = Callable[[ServerRequest], None]
MINUTE_MS: Final = 60_000


class ImageTopics:
    """What cores want to know of topics, from the broker's image."""

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas

    def has_partition(self, partition: TopicPartition) -> bool:
        """Tell whether there is such a partition."""
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


class Coordinators:
    """Both kinds of coordinators of one broker."""

    def __init__(
        self,
        config: NodeConfig,
        replicas: Replicas,
        link: ControllerLink,
        tasks: Tasks,
        broker_epoch: Callable[[], BrokerEpoch],
    ) -> None:
        self.config = config
        self.replicas = replicas
        self.topics = ImageTopics(replicas)
        self.internal_topics = InternalTopics(config, replicas, link, tasks)
        self.links = BrokerLinks(replicas)
        self.producer_ids = ProducerIds(link, tasks, config.node_id, broker_epoch)
        self.groups = Shards(OFFSETS_TOPIC, replicas, tasks, self._new_group_core, _no_markers, gathers=False)
        sender = MarkerSender(replicas, self.links, self.internal_topics, tasks)
        self.transactions = Shards(
            TRANSACTIONS_TOPIC, replicas, tasks, self._new_transaction_core, sender.send, gathers=True
        )
        self.transaction_api = TransactionApi(self.transactions, self.groups, self.producer_ids, tasks)
        self.verifier = Verifier(
            self.links,
            self.internal_topics,
            tasks,
            retry_ms=config.transactions.verification_backoff_ms,
            patience_ms=config.transactions.verification_backoff_ms_max,
        )
        self.by_topic = {OFFSETS_TOPIC: self.groups, TRANSACTIONS_TOPIC: self.transactions}
        replicas.coordination = self

    def handlers(self) -> dict[Api, Handle]:
        """Return who answers what."""
        groups = GroupApi(self.groups, self.verifier, lambda: self.permits_consumer_groups)
        transactions = self.transaction_api
        markers = MarkerApi(self.replicas, self.groups)
        self.links.own = {Api.WRITE_TXN_MARKERS: markers.write, Api.ADD_PARTITIONS_TO_TXN: transactions.add_partitions}
        return {
            Api.FIND_COORDINATOR: self.internal_topics.find_coordinator,
            Api.JOIN_GROUP: groups.join,
            Api.SYNC_GROUP: groups.sync,
            Api.HEARTBEAT: groups.heartbeat,
            Api.LEAVE_GROUP: groups.leave,
            Api.OFFSET_COMMIT: groups.commit,
            Api.OFFSET_FETCH: groups.fetch,
            Api.OFFSET_DELETE: groups.delete_offsets,
            Api.LIST_GROUPS: groups.list_groups,
            Api.DESCRIBE_GROUPS: groups.describe,
            Api.DELETE_GROUPS: groups.delete,
            Api.CONSUMER_GROUP_HEARTBEAT: groups.consumer_heartbeat,
            Api.CONSUMER_GROUP_DESCRIBE: groups.describe_consumer_groups,
            Api.INIT_PRODUCER_ID: transactions.init,
            Api.ADD_PARTITIONS_TO_TXN: transactions.add_partitions,
            Api.ADD_OFFSETS_TO_TXN: transactions.add_offsets,
            Api.END_TXN: transactions.end,
            Api.TXN_OFFSET_COMMIT: groups.commit_in_transaction,
            Api.WRITE_TXN_MARKERS: markers.write,
            Api.LIST_TRANSACTIONS: transactions.list_transactions,
            Api.DESCRIBE_TRANSACTIONS: transactions.describe_transactions,
            Api.DESCRIBE_PRODUCERS: transactions.describe_producers,
        }

    def elected(self, replica: Replica) -> None:
        """Coordinate what this partition is for."""
        shards = self.by_topic.get(replica.name.topic)
        if shards is not None:
            shards.elected(replica)

    def resigned(self, replica: Replica) -> None:
        """Leave it to the next leader."""
        shards = self.by_topic.get(replica.name.topic)
        if shards is not None:
            shards.resigned(replica)

    def topics_deleted(self, names: Iterable[str]) -> None:
        """Forget what groups have read of topics that are gone: others of these names begin anew."""
        self.groups.topics_deleted(dict.fromkeys(names))

    def stop(self) -> None:
        """Stop all of it."""
        for shards in self.by_topic.values():
            shards.stop()
        self.links.close()

    def _new_group_core(self, partition: int, leader_epoch: int) -> GroupCoordinator:
        config = self.config
        settings = GroupSettings(
            initial_rebalance_delay_ms=config.groups.initial_rebalance_delay_ms,
            session_timeout_ms_min=config.groups.session_timeout_ms_min,
            session_timeout_ms_max=config.groups.session_timeout_ms_max,
            member_count_max=config.groups.member_count_max,
            metadata_bytes_max=config.groups.offset_metadata_bytes_max,
            offsets_retention_ms=config.groups.offsets_retention_minutes * MINUTE_MS,
        )
        return GroupCoordinator(
            settings,
            self.topics,
            self.replicas.world.entropy.uuid,
            expiry_interval_ms=config.groups.offsets_retention_check_interval_ms,
            consumer_settings=ConsumerGroupSettings(
                session_timeout_ms=config.groups.consumer_session_timeout_ms,
                heartbeat_interval_ms=config.groups.consumer_heartbeat_interval_ms,
                member_count_max=config.groups.consumer_member_count_max,
                assignors=config.groups.consumer_assignors,
            ),
        )

    @property
    def permits_consumer_groups(self) -> bool:
        """Tell whether the cluster has finalized the new group protocol (KIP-848)."""
        return self.replicas.metadata.image.features.get(GROUP_VERSION, 0) >= 1

    def _new_transaction_core(self, partition: int, leader_epoch: int) -> TransactionCoordinator:
        config = self.config
        settings = TransactionSettings(
            timeout_ms_max=config.transactions.timeout_ms_max,
            expiration_ms=config.transactions.id_expiration_ms,
            scan_interval_ms=config.transactions.abort_scan_interval_ms,
        )
        return TransactionCoordinator(settings, self.producer_ids.take)


def _no_markers(_: Coordinator, effect: SendMarkers) -> None:
    raise AssertionError(f"groups send no markers: {effect}")
