"""What a cluster is made of, before any of it exists: how many nodes, which settings, which known bugs.

A profile is a named set of settings. `ci` shortens Kafka's time-outs about five times, so that a session
expires within two seconds and a whole run fits a minute; `jvm` is for released software on a busy machine,
about three times slower; `kafka-defaults` changes nothing. The settings of
the profile, then those of the spec, overlay replog's defaults; names are checked by `replog.config` when a
node's file is written, so that a mistyped name is refused before anything starts.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from replog.metadata.record_versions import NEWEST as REPLOG_LEVEL
from tribunal.clusters.kafka.releases import release

# What a setting may be, by Kafka's name of it; `replog.config` knows which type each one has.
SettingValue = bool | int | float | str | Sequence[str]
Settings = Mapping[str, SettingValue]

CI: Final[Settings] = {
    "broker.heartbeat.interval.ms": 300,
    "broker.session.timeout.ms": 1800,
    "controller.quorum.election.timeout.ms": 300,
    "controller.quorum.election.backoff.max.ms": 300,
    "controller.quorum.fetch.timeout.ms": 600,
    "controller.quorum.request.timeout.ms": 600,
    "controlled.shutdown.timeout.ms": 3000,
    "replica.lag.time.max.ms": 2500,
    "replica.fetch.wait.max.ms": 200,
    "replica.fetch.backoff.ms": 100,
    "replica.high.watermark.checkpoint.interval.ms": 1000,
    "log.flush.offset.checkpoint.interval.ms": 2000,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
}

# For JVMs on a machine that has other things to do: a pause of theirs is no failure.
JVM: Final[Settings] = {
    **CI,
    "broker.heartbeat.interval.ms": 1000,
    "broker.session.timeout.ms": 6000,
    "controller.quorum.election.timeout.ms": 2000,
    "controller.quorum.election.backoff.max.ms": 1000,
    "controller.quorum.fetch.timeout.ms": 4000,
    "controller.quorum.request.timeout.ms": 4000,
    "controlled.shutdown.timeout.ms": 10000,
    "replica.lag.time.max.ms": 5000,
}

# What the time-outs of a profile mean in ZooKeeper mode.
IN_ZOOKEEPER_MODE: Final[Mapping[str, Settings]] = {
    "ci": {"zookeeper.session.timeout.ms": 1800, "zookeeper.connection.timeout.ms": 15000},
    "jvm": {"zookeeper.session.timeout.ms": 6000, "zookeeper.connection.timeout.ms": 30000},
    "kafka-defaults": {},
}
# KIP-966's lists are KRaft's alone, and of newer releases, whatever a scenario says: who judges a run must not count on them.
NO_ELR: Final[Settings] = {"eligible.leader.replicas.enable": False}
Mode = Literal["kraft", "zookeeper"]
KRAFT: Final = "kraft"
ZOOKEEPER: Final = "zookeeper"
MODES: Final[tuple[Mode, ...]] = (KRAFT, ZOOKEEPER)

PROFILES: Final[Mapping[str, Settings]] = {"ci": CI, "jvm": JVM, "kafka-defaults": {}}
SESSION: Final = "broker.session.timeout.ms"
SELECTOR: Final = "replica.selector.class"  # whom leaders send readers to (KIP-392)
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACKS: Final = 3
RECOVERY_MS_LEAST: Final = 20_000
FIRST_CONTROLLER: Final = 101
RECOVERY_SESSIONS: Final = 10  # of a profile whose sessions are long, nodes are slow


class ClusterSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The wanted cluster. Brokers are numbered 1.., controllers 101.. (docs/contract.md, names).

    mode:  in `zookeeper` mode every broker is a candidate for controller, and 101.. are the servers of the ensemble.
    """

    brokers: int = 3
    controllers: int = 3
    replication_factor: int = 3
    min_insync_replicas: int = 2
    profile: str = "ci"
    settings: dict[str, SettingValue] = {}
    mutants: tuple[str, ...] = ()
    log_directories: int = 1  # of each broker; several are for simulated ones
    base_port: int | None = None  # None: any that is free
    mode: str = "kraft"
    version: str = ""  # of Apache Kafka, for kinds that run it; none: the newest
    kafka: tuple[int, ...] = ()  # of the kind mixed: which nodes are Apache Kafka, ascending
    hosts: str = "hosts.toml"  # of the kind ssh
    isolation: Literal["auto", "namespaces", "proxies"] = "auto"  # of local processes: where packets can be stopped
    security: Literal["", "sasl_ssl"] = (
        ""  # of every listener: TLS, SASL and an authorizer; none: anybody may do anything
    )
    system: str = ""  # of the kind system: its system.toml
    file: str = ""  # of the kind existing: its cluster.toml
    own_broker_ids: tuple[int, ...] = ()  # of such a cluster, as its file has them; none: 1..
    own_controller_ids: tuple[int, ...] = ()  # of such a cluster, those that are no brokers
    protocol: Literal["", "kafka"] = (
        ""  # that clients of such a system speak; none: its own adapter calls operations on objects
    )
    timeouts_ms: dict[str, int] = {}  # of such a system, in its own terms
    promises: dict[str, bool | int | str] = {}  # of such a system, by their names in its file
    roles: tuple[str, ...] = ()  # of such a system, that its nodes may say they have

    @property
    def has_objects(self) -> bool:
        """Whether it is a described system whose clients call operations on objects: it has no records, and knows none of Kafka's settings."""
        return bool(self.system) and not self.protocol

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """Ids of the brokers, ascending."""
        return self.own_broker_ids or tuple(range(1, self.brokers + 1))

    @property
    def controller_ids(self) -> tuple[int, ...]:
        """Ids of the controllers, ascending."""
        return self.own_controller_ids or tuple(range(FIRST_CONTROLLER, FIRST_CONTROLLER + self.controllers))

    @property
    def kafka_brokers(self) -> tuple[int, ...]:
        """Ids of the brokers that are Apache Kafka, ascending; of a cluster whose size is drawn, those that it has to have."""
        return tuple(node for node in self.kafka if node < FIRST_CONTROLLER)

    @property
    def kafka_controllers(self) -> tuple[int, ...]:
        """Ids of the controllers that are Apache Kafka, ascending."""
        return tuple(node for node in self.kafka if node >= FIRST_CONTROLLER)

    @property
    def least_controllers(self) -> int:
        """How many controllers a cluster has to have, so that those are there which are to be Apache Kafka."""
        return max(self.kafka_controllers, default=FIRST_CONTROLLER - 1) - FIRST_CONTROLLER + 1

    @property
    def formatted_level(self) -> int:
        """The metadata.version that a cluster of releases begins with, or one of both systems: that of its release, or of replog's controllers.

        `ValueError` in one line when `version` is no number of a release.
        """
        return REPLOG_LEVEL if self.kafka else release(self.version).metadata_version

    @property
    def is_zookeeper_mode(self) -> bool:
        """Whether brokers are registered in ZooKeeper and controlled by requests (KIP-380)."""
        return self.mode == ZOOKEEPER

    @property
    def ensemble_ids(self) -> tuple[int, ...]:
        """Ids of the servers of ZooKeeper; none in KRaft mode."""
        return self.controller_ids if self.is_zookeeper_mode else ()

    @property
    def in_simulator(self) -> "ClusterSpec":
        """The same cluster as the simulator can have it: one server there, with the model, stands for an ensemble of ZooKeeper's."""
        return msgspec.structs.replace(self, controllers=1) if self.is_zookeeper_mode else self

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Every node, controllers first: the order in which they are started."""
        return self.controller_ids + self.broker_ids

    def role(self, node: int) -> str:
        """Return what a node is: broker or controller, of a described system without records just a node."""
        if self.has_objects:
            return "node"
        return "controller" if node in self.controller_ids else "broker"

    @property
    def racks(self) -> dict[int, str]:
        """Which rack each broker is in, where leaders send readers to a replica of theirs; none elsewhere."""
        if self.settings.get(SELECTOR) != RACK_AWARE:
            return {}
        return {node: f"rack-{node % RACKS}" for node in self.broker_ids}

    def node_settings(self) -> dict[str, SettingValue]:
        """Return what all nodes have in common, by Kafka's names; a described system without records knows none of them."""
        if self.has_objects:
            return {}
        return {
            "min.insync.replicas": self.min_insync_replicas,
            "default.replication.factor": self.replication_factor,
            "offsets.topic.replication.factor": min(self.replication_factor, self.brokers),
            "transaction.state.log.replication.factor": min(self.replication_factor, self.brokers),
            "transaction.state.log.min.isr": min(self.min_insync_replicas, self.brokers),
            "auto.create.topics.enable": False,
            **PROFILES[self.profile],
            **(IN_ZOOKEEPER_MODE[self.profile] if self.is_zookeeper_mode else {}),
            **self.settings,
            **(NO_ELR if self.is_zookeeper_mode or not release(self.version).has_elr else {}),
        }

    @property
    def recovery_timeout_ms(self) -> int:
        """How long all brokers may take after a fault to be in service, and every ISR to be full."""
        session_ms = max(self.timeouts_ms.values(), default=0) if self.has_objects else self.timeout_ms(SESSION)
        return max(RECOVERY_MS_LEAST, RECOVERY_SESSIONS * session_ms)

    def timeout_ms(self, setting: str) -> int:
        """Return one of the time-outs that faults and waits are measured in."""
        from replog.config import DEFINITIONS

        value = self.node_settings().get(setting, DEFINITIONS[setting].default)
        assert isinstance(value, int), setting
        return value
