"""A node's configuration: Kafka's names, Kafka's defaults, checked before anything starts.

A file is TOML; `min.insync.replicas = 2` and `"min.insync.replicas" = 2` mean the same. Names that
begin with `tribunal.` are ours: they exist for the harness (link addresses, mutants, event file).
Unknown names are refused with the nearest known one, because a mistyped durability setting that is
silently ignored makes a recording lie.
"""

import difflib
import tomllib
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from replog.types import NodeId


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the setting and what to do."""


class Endpoint(msgspec.Struct, frozen=True):
    """An address that can be connected to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Voter(msgspec.Struct, frozen=True):
    """A member of the initial quorum."""

    node_id: NodeId
    endpoint: Endpoint


DEFAULTS: Final[dict[str, Any]] = {
    "process.roles": None,
    "node.id": None,
    "cluster.id": None,
    "broker.rack": "",
    "listeners": None,  # host:port this node binds
    "advertised.listeners": "",  # host:port clients and brokers are told; default: listeners
    "controller.listeners": "",  # combined nodes only: where the controller role listens
    "controller.advertised.listeners": "",
    "controller.quorum.voters": None,  # id@host:port,...
    "log.dirs": None,  # comma separated
    "metadata.log.dir": "",  # default: first of log.dirs
    # quorum
    "controller.quorum.election.timeout.ms": 1000,
    "controller.quorum.fetch.timeout.ms": 2000,
    "controller.quorum.election.backoff.max.ms": 1000,
    "controller.quorum.request.timeout.ms": 2000,
    "controller.quorum.retry.backoff.ms": 20,
    "controller.quorum.append.linger.ms": 25,
    "metadata.log.max.record.bytes.between.snapshots": 20 * 1024 * 1024,
    "metadata.max.idle.interval.ms": 500,
    # ZooKeeper mode: where `process.roles` is absent
    "zookeeper.connect": "",  # host:port,host:port/chroot
    "zookeeper.session.timeout.ms": 18000,
    "zookeeper.connection.timeout.ms": 18000,
    "inter.broker.protocol.version": "3.4",
    # brokers
    "broker.session.timeout.ms": 9000,
    "broker.heartbeat.interval.ms": 2000,
    "controlled.shutdown.timeout.ms": 30000,
    "initial.broker.registration.timeout.ms": 60000,
    "replica.lag.time.max.ms": 30000,
    "replica.fetch.wait.max.ms": 500,
    "replica.fetch.backoff.ms": 1000,
    "replica.fetch.max.bytes": 1048576,
    "replica.fetch.response.max.bytes": 10485760,
    "replica.fetch.min.bytes": 1,
    "replica.high.watermark.checkpoint.interval.ms": 5000,
    "fetch.max.bytes": 57671680,
    "max.incremental.fetch.session.cache.slots": 1000,
    "replica.selector.class": "",  # Kafka's RackAwareReplicaSelector sends consumers to replicas of their own rack
    "leader.imbalance.check.interval.seconds": 300,
    "auto.leader.rebalance.enable": True,
    "unclean.leader.election.interval.ms": 300000,
    "unclean.leader.election.enable": False,
    "unclean.recovery.timeout.ms": 300000,
    "unclean.recovery.strategy": "Balanced",
    "unclean.recovery.manager.enabled": False,
    "leader.recovery": "on",  # "off" mimics the released software (SPEC D3)
    "eligible.leader.replicas.enable": True,
    "max.request.partition.size.limit": 2000,
    # topics and logs
    "auto.create.topics.enable": True,
    "num.partitions": 1,
    "default.replication.factor": 1,
    "min.insync.replicas": 1,
    "message.max.bytes": 1048588,
    "log.segment.bytes": 1073741824,
    "log.roll.ms": 604800000,
    "log.index.interval.bytes": 4096,
    "log.index.size.max.bytes": 10485760,
    "log.flush.interval.messages": 9223372036854775807,
    "log.flush.interval.ms": 9223372036854775807,
    "log.flush.offset.checkpoint.interval.ms": 60000,
    "log.retention.ms": 604800000,
    "log.retention.bytes": -1,
    "log.retention.check.interval.ms": 300000,
    "log.cleanup.policy": "delete",
    "log.message.timestamp.type": "CreateTime",
    "log.message.timestamp.before.max.ms": 9223372036854775807,
    "log.message.timestamp.after.max.ms": 3600000,
    "log.segment.delete.delay.ms": 60000,
    "log.cleaner.enable": True,
    "log.cleaner.backoff.ms": 15000,
    "producer.id.expiration.ms": 86400000,
    "transactional.id.expiration.ms": 604800000,
    "transaction.max.timeout.ms": 900000,
    "offsets.topic.num.partitions": 50,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 50,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.partition.verification.enable": True,
    "add.partitions.to.txn.retry.backoff.ms": 20,
    "add.partitions.to.txn.retry.backoff.max.ms": 100,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10000,
    "group.initial.rebalance.delay.ms": 3000,
    "group.min.session.timeout.ms": 6000,
    "group.max.session.timeout.ms": 1800000,
    "group.max.size": 2147483647,
    "group.consumer.session.timeout.ms": 45000,
    "group.consumer.heartbeat.interval.ms": 5000,
    "group.consumer.max.size": 2147483647,
    "group.consumer.assignors": "uniform,range",
    "offset.metadata.max.bytes": 4096,
    "offsets.retention.minutes": 10080,
    "offsets.retention.check.interval.ms": 600000,
    "offsets.topic.segment.bytes": 104857600,
    "transaction.state.log.segment.bytes": 104857600,
    # connections
    "socket.request.max.bytes": 104857600,
    "connections.max.idle.ms": 600000,
    "queued.max.request.bytes": 16 * 1024 * 1024,
    # ours
    "tribunal.bind.host": "",  # source address of outgoing connections (docs/contract.md, loopback)
    "tribunal.events.file": "",  # JSON lines: what happened, for the recording
    "tribunal.mutants": [],  # module names in replog.mutants
    "tribunal.undo.journal": "",  # folder: what a power failure would undo (on the file system of log.dirs)
    "tribunal.control.page": "",  # file shared with the harness: how clock and disk are to misbehave
    "tribunal.metrics.port": 0,
    "tribunal.points": False,  # the simulator makes named points in the code late or fail (replog/node/fault_injection_points.py)
    "tribunal.controller.joins": False,  # a controller outside controller.quorum.voters: observes until it is added
}

REQUIRED: Final = ("node.id", "cluster.id", "listeners", "log.dirs")
KRAFT_REQUIRED: Final = ("process.roles", "controller.quorum.voters")
POSITIVE_SUFFIXES: Final = (".ms", ".bytes", ".seconds", ".partitions", ".factor", ".replicas")


class NodeConfig:
    """All settings of one node, by Kafka's names, with what the shell needs parsed out."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.values: dict[str, Any] = checked(settings)
        self.node_id = NodeId(self.values["node.id"])
        self.cluster_id: str = self.values["cluster.id"]
        self.roles = frozenset(_words(self.values["process.roles"] or ""))
        self.is_zookeeper_mode = not self.roles
        self.log_dirs: list[str] = _words(self.values["log.dirs"])
        self.metadata_log_dir: str = self.values["metadata.log.dir"] or self.log_dirs[0]
        self.voters: list[Voter] = [_voter(text) for text in _words(self.values["controller.quorum.voters"] or "")]
        self.listener = endpoint("listeners", self.values["listeners"])
        self.advertised = endpoint(
            "advertised.listeners", self.values["advertised.listeners"] or self.values["listeners"]
        )

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def integer(self, name: str) -> int:
        """Return a whole-number setting."""
        value = self.values[name]
        assert isinstance(value, int), name
        return value

    def text(self, name: str) -> str:
        """Return a textual setting."""
        value = self.values[name]
        assert isinstance(value, str), name
        return value

    def flag(self, name: str) -> bool:
        """Return a yes-or-no setting."""
        value = self.values[name]
        assert isinstance(value, bool), name
        return value

    @property
    def bind_host(self) -> str | None:
        """Source address of outgoing connections, or None for the system's choice."""
        return self.values["tribunal.bind.host"] or None


def load(content: bytes, origin: str) -> NodeConfig:
    """Parse a node.toml; `ConfigError` names the file and the setting."""
    try:
        parsed = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{origin}: not a TOML file: {problem}") from None
    try:
        return NodeConfig(flattened(parsed))
    except ConfigError as problem:
        raise ConfigError(f"{origin}: {problem}") from None


def flattened(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return dotted names for nested tables: TOML reads `a.b = 1` as a table a."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return defaults overlaid with the settings; refuse unknown names, wrong types, bad values."""
    for name in settings:
        if name not in DEFAULTS:
            near = difflib.get_close_matches(name, DEFAULTS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"unknown setting {name!r}{hint}")
    values = DEFAULTS | dict(settings)
    is_zookeeper_mode = values["process.roles"] is None and values["zookeeper.connect"] != ""
    for name in REQUIRED if is_zookeeper_mode else (*KRAFT_REQUIRED, *REQUIRED):
        if values[name] is None:
            raise ConfigError(f"setting {name!r} is missing")
    for name, value in values.items():
        if value is not None or not is_zookeeper_mode:
            _check_type(name, value)
    roles = set(_words(values["process.roles"] or ""))
    if not is_zookeeper_mode and (not roles or roles - {"broker", "controller"}):
        raise ConfigError(f"'process.roles' is {values['process.roles']!r}; use broker, controller or both")
    try:
        UUID(values["cluster.id"])
    except ValueError:
        if not 1 <= len(values["cluster.id"]) <= 64:
            raise ConfigError("'cluster.id' must have 1 to 64 characters") from None
    return values


def _check_type(name: str, value: Any) -> None:
    default = DEFAULTS[name]
    wanted = int if name == "node.id" else type(default) if default is not None else str
    if type(value) is not wanted:
        raise ConfigError(f"{name!r} must be {wanted.__name__}, not {value!r}")
    if isinstance(value, int) and value < 0 and name not in {"log.retention.bytes", "log.retention.ms"}:
        raise ConfigError(f"{name!r} must not be negative: {value}")
    if name == "min.insync.replicas" and int(value) < 1:
        raise ConfigError(f"{name!r} must be at least 1: {value}")


def endpoint(name: str, text: str) -> Endpoint:
    """Parse `host:port`, with or without a listener name in front (`PLAINTEXT://host:port`)."""
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{name!r}: {text!r} is not host:port")
    return Endpoint(host.strip("[]"), int(port))


def _voter(text: str) -> Voter:
    node_id, at, address = text.partition("@")
    if not at or not node_id.isdigit():
        raise ConfigError(f"'controller.quorum.voters': {text!r} is not id@host:port")
    return Voter(NodeId(int(node_id)), endpoint("controller.quorum.voters", address))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
