"""What the settings say about a topic at this moment: how its partitions may change.

A topic's own config wins over the cluster-wide one, that over the controller's file. Broker-level
values have no say: leaders and controller would disagree about min ISR (SPEC 2.8).
"""

from enum import StrEnum
from typing import Final

import msgspec

from replog.config import NodeConfig
from replog.config.controller import ControllerConfig
from replog.config.groups import GroupsConfig
from replog.config.topics import TopicsConfig
from replog.controller.election import Election, Rules
from replog.controller.elr import LastKnownMode, effective_min_isr
from replog.metadata.image import Image
from replog.metadata.state import Partition

ELR_FEATURE: Final = "eligible.leader.replicas.version"
MIN_ISR: Final = "min.insync.replicas"
UNCLEAN_ENABLE: Final = "unclean.leader.election.enable"
RECOVERY_STRATEGY: Final = "unclean.recovery.strategy"
_CONTROLLER: Final = ControllerConfig()
_GROUPS: Final = GroupsConfig()
_TOPICS: Final = TopicsConfig()


class Strategy(StrEnum):
    """How far to go for availability when all who surely hold the data are gone (KIP-966)."""

    AGGRESSIVE = "Aggressive"
    BALANCED = "Balanced"
    NONE = "None"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a controller's file that its decisions need; Kafka's names and defaults."""

    cluster_id: str
    session_timeout_ms: int = _CONTROLLER.session_timeout_ms
    heartbeat_interval_ms: int = _CONTROLLER.heartbeat_interval_ms
    min_insync_replicas: int = _TOPICS.insync_replicas_min
    default_replication_factor: int = _TOPICS.replication_factor
    num_partitions: int = _TOPICS.partition_count
    topic_deletion: bool = _TOPICS.delete_enable
    unclean_leader_election: bool = _CONTROLLER.unclean_election_enable
    unclean_leader_election_interval_ms: int = _CONTROLLER.unclean_election_interval_ms
    unclean_recovery_strategy: Strategy = Strategy(_CONTROLLER.unclean_recovery_strategy)
    unclean_recovery_manager: bool = _CONTROLLER.unclean_recovery_manager_enabled
    unclean_recovery_timeout_ms: int = _CONTROLLER.unclean_recovery_timeout_ms
    leader_rebalance: bool = _CONTROLLER.leader_rebalance_enable
    leader_imbalance_check_interval_ms: int = 1000 * _CONTROLLER.leader_imbalance_check_interval_seconds
    eligible_leader_replicas: bool = _CONTROLLER.eligible_leader_replicas_enable
    partition_creation_rate: int = _CONTROLLER.partition_creation_rate
    groups: GroupsConfig = _GROUPS  # the bounds of what single groups may be given
    max_idle_interval_ms: int = 0  # 0: an idle log stays as it is

    @classmethod
    def of(cls, config: NodeConfig) -> "Settings":
        """Return what a controller's decisions need of a node's configuration."""
        controller, topics = config.controller, config.topics
        return cls(
            cluster_id=config.cluster_id,
            session_timeout_ms=controller.session_timeout_ms,
            heartbeat_interval_ms=controller.heartbeat_interval_ms,
            min_insync_replicas=topics.insync_replicas_min,
            default_replication_factor=topics.replication_factor,
            num_partitions=topics.partition_count,
            topic_deletion=topics.delete_enable,
            unclean_leader_election=controller.unclean_election_enable,
            unclean_leader_election_interval_ms=controller.unclean_election_interval_ms,
            unclean_recovery_strategy=Strategy(controller.unclean_recovery_strategy),
            unclean_recovery_manager=controller.unclean_recovery_manager_enabled,
            unclean_recovery_timeout_ms=controller.unclean_recovery_timeout_ms,
            leader_rebalance=controller.leader_rebalance_enable,
            leader_imbalance_check_interval_ms=1000 * controller.leader_imbalance_check_interval_seconds,
            eligible_leader_replicas=controller.eligible_leader_replicas_enable,
            partition_creation_rate=controller.partition_creation_rate,
            groups=config.groups,
            max_idle_interval_ms=config.quorum.idle_interval_ms_max,
        )


class Policy:
    """Answers for one topic, from an image and the controller's own settings."""

    def __init__(self, image: Image, settings: Settings) -> None:
        self.image = image
        self.settings = settings

    @property
    def elr_enabled(self) -> bool:
        """Whether eligible leader replicas are finalized for this cluster."""
        return self.image.features.get(ELR_FEATURE, 0) >= 1

    @property
    def last_known_mode(self) -> LastKnownMode:
        """What last known ELR means: more than the last leader only where a manager makes use of it."""
        return LastKnownMode.ELR_MEMBERS if self.settings.unclean_recovery_manager else LastKnownMode.LEADER

    def min_insync_replicas(self, topic: str) -> int:
        """Return min.insync.replicas as configured, not yet capped by the replication factor."""
        text = self._most_specific(topic, MIN_ISR)
        return self.settings.min_insync_replicas if text is None else int(text)

    def effective_min_isr(self, topic: str, partition: Partition) -> int:
        """Return min(min.insync.replicas, assigned replicas)."""
        return effective_min_isr(self.min_insync_replicas(topic), len(partition.replicas))

    def global_under_min_isr_partition_count(self) -> int:
        """Count partitions whose ISR is below min ISR (KIP-966, "Metrics"); looks at all of them."""
        return sum(
            len(partition.isr) < self.effective_min_isr(topic.name, partition)
            for topic in self.image.topics.values()
            for partition in topic.partitions.values()
        )

    def rules(self, topic: str) -> Rules:
        """Return the rules by which the topic's partitions change."""
        return Rules(
            min_insync_replicas=self.min_insync_replicas(topic),
            elr_enabled=self.elr_enabled,
            last_known_mode=self.last_known_mode,
            default_directory=self.image.default_directory,
        )

    def unclean_enabled(self, topic: str) -> bool:
        """Return whether any replica may lead when nobody else can (SPEC 2.6.6)."""
        text = self._most_specific(topic, UNCLEAN_ENABLE)
        return self.settings.unclean_leader_election if text is None else text == "true"

    def election(self, topic: str) -> Election:
        """Return which election fencing, unfencing, registration, AlterPartition and cancel may do.

        With the recovery manager on nobody is elected uncleanly without its having asked the logs.
        """
        unclean = not self.settings.unclean_recovery_manager and self.unclean_enabled(topic)
        return Election.UNCLEAN if unclean else Election.ONLINE

    def strategy(self, topic: str) -> Strategy:
        """Return the unclean recovery strategy (D19): at each level it wins over the old option."""
        for strategy, unclean in (
            (self.image.topic_config(topic, RECOVERY_STRATEGY), self.image.topic_config(topic, UNCLEAN_ENABLE)),
            (self.image.cluster_config(RECOVERY_STRATEGY), self.image.cluster_config(UNCLEAN_ENABLE)),
        ):
            if strategy is not None:
                return Strategy(strategy)
            if unclean is not None:
                return strategy_of_old_option(enabled=unclean == "true")
        if self.settings.unclean_recovery_strategy is not Strategy.BALANCED:
            return self.settings.unclean_recovery_strategy
        return strategy_of_old_option(enabled=self.settings.unclean_leader_election)

    def deprecated(self) -> list[str]:
        """Name where the old option still decides: KIP-966 marks it as deprecated (D19)."""
        levels = [
            ("the cluster", self.image.cluster_config(UNCLEAN_ENABLE), self.image.cluster_config(RECOVERY_STRATEGY))
        ]
        for name in sorted(self.image.topics_by_name):
            if not name.startswith("__"):  # those of the coordinators are ours, and have it from the released software
                own = self.image.topic_config
                levels.append((f"topic {name}", own(name, UNCLEAN_ENABLE), own(name, RECOVERY_STRATEGY)))
        found = [where for where, old, strategy in levels if old is not None and strategy is None]
        if self.settings.unclean_leader_election and self.settings.unclean_recovery_strategy is Strategy.BALANCED:
            found.insert(0, "the controller's file")
        return found

    def _most_specific(self, topic: str, name: str) -> str | None:
        own = self.image.topic_config(topic, name)
        return self.image.cluster_config(name) if own is None else own


def strategy_of_old_option(*, enabled: bool) -> Strategy:
    """Map unclean.leader.election.enable (KIP-966, "Config changes")."""
    return Strategy.AGGRESSIVE if enabled else Strategy.BALANCED
