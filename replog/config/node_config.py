"""A node's configuration, checked before anything starts.

A file is TOML; `min.insync.replicas = 2` and `"min.insync.replicas" = 2` mean the same. Unknown names are refused with
the nearest known one, because a mistyped durability setting that is silently ignored makes a recording lie.
"""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar
from uuid import UUID

import msgspec

from replog.config.access import Access
from replog.config.areas import DEFINITIONS, definition_of
from replog.config.controller import ControllerConfig
from replog.config.endpoints import ConfigError, Endpoint, Voter, endpoint, voter
from replog.config.groups import GroupsConfig
from replog.config.hooks import HooksConfig
from replog.config.identity import CORDONED_LOG_DIRS, EVERY_DIRECTORY, IdentityConfig
from replog.config.jaas import PLAIN_MODULE, SCRAM_MODULE, secrets_of
from replog.config.listeners import Listeners, SecurityProtocol
from replog.config.log import LogConfig
from replog.config.network import NetworkConfig
from replog.config.quorum import QuorumConfig
from replog.config.replication import ReplicationConfig
from replog.config.security import SecurityConfig
from replog.config.setting import ConfigType, Value, as_text, definitions_of
from replog.config.topics import TopicsConfig
from replog.config.transactions import TransactionsConfig
from replog.config.zookeeper import ZooKeeperConfig
from replog.types import NodeId

PLAIN: Final = "PLAIN"
REQUIRED: Final = ("node.id", "cluster.id", "listeners", "log.dirs")
KRAFT_REQUIRED: Final = ("process.roles",)
VOTERS: Final = "controller.quorum.voters"
BOOTSTRAP: Final = "controller.quorum.bootstrap.servers"
NEEDED_IN_LISTS: Final = {"log.dirs": "directory", "group.consumer.assignors": "assignor"}
ROLES: Final = frozenset({"broker", "controller"})

Area = TypeVar("Area", bound=msgspec.Struct)


class NodeConfig:
    """All settings of one node by area, with what the shell needs parsed out.

    texts:    every setting by its name, as Kafka writes values: what DescribeConfigs shows of a node's file. Secrets that
              it has are empty, others are missing.
    stated:   names of the settings that the node's file has.
    ignored:  what a file of Kafka's names besides, and has no meaning here.
    """

    def __init__(self, settings: Mapping[str, object], *, ignored: tuple[str, ...] = ()) -> None:
        given = checked(settings)
        self.ignored = ignored
        self.identity = _area(IdentityConfig, given)
        self.network = _area(NetworkConfig, given)
        self.security = _area(SecurityConfig, given)
        self.topics = _area(TopicsConfig, given)
        self.log = _area(LogConfig, given)
        self.replication = _area(ReplicationConfig, given)
        self.controller = _area(ControllerConfig, given)
        self.quorum = _area(QuorumConfig, given)
        self.groups = _area(GroupsConfig, given)
        self.transactions = _area(TransactionsConfig, given)
        self.zookeeper = _area(ZooKeeperConfig, given)
        self.hooks = _area(HooksConfig, given)
        self.texts: Mapping[str, str] = _texts(given)
        self.stated = frozenset(given)

        self.node_id = NodeId(self.identity.node_id)
        self.cluster_id = self.identity.cluster_id
        self.roles = frozenset(self.identity.process_roles)
        self.is_zookeeper_mode = not self.roles
        self.log_dirs = list(self.identity.log_dirs)
        self.metadata_log_dir = self.identity.metadata_log_dir or self.log_dirs[0]
        self.voters: list[Voter] = [voter(text) for text in self.quorum.voters]
        self.bootstrap_servers: list[Endpoint] = [endpoint(BOOTSTRAP, text) for text in self.quorum.bootstrap_servers]
        self.listeners = Listeners.of(self.network, self.roles)
        self.secrets = secrets_of(self.security.jaas_config)
        first = (*self.listeners.brokers, *self.listeners.controllers)[0]
        self.listener, self.advertised = first.endpoint, first.advertised
        cordoned(self.identity.cordoned_log_dirs, self.log_dirs)
        _check_security(self)

    @property
    def broker_access(self) -> Access:
        """How this node gets in at other brokers."""
        return self._access(self.listeners.inter_broker_protocol, self.security.inter_broker_mechanism)

    @property
    def controller_access(self) -> Access:
        """How this node gets in at controllers."""
        return self._access(self.listeners.controller_protocol, self.security.controller_mechanism)

    def _access(self, protocol: SecurityProtocol, mechanism: str) -> Access:
        if not protocol.has_sasl:
            return Access(has_tls=protocol.has_tls)
        module = PLAIN_MODULE if mechanism == PLAIN else SCRAM_MODULE
        user, password = self.secrets.own.get(module, ("", ""))
        return Access(has_tls=protocol.has_tls, mechanism=mechanism, user=user, password=password)

    @property
    def is_secured(self) -> bool:
        """Return whether anything is asked of anybody: then users and their rights can be managed."""
        if self.security.authorizer_class:
            return True
        listeners = (*self.listeners.brokers, *self.listeners.controllers)
        protocols = {self.listeners.inter_broker_protocol, self.listeners.controller_protocol}
        protocols |= {one.protocol for one in listeners}
        protocols |= {SecurityProtocol(text.partition(":")[2]) for text in self.network.listener_protocols}
        return protocols != {SecurityProtocol.PLAINTEXT}

    @property
    def bind_host(self) -> str | None:
        """Source address of outgoing connections, or None for the system's choice."""
        return self.hooks.bind_host or None


def cordoned(named: Sequence[str], log_dirs: Sequence[str]) -> list[str]:
    """Return which log directories take no new replicas (KIP-1066).

    named:  paths of `log_dirs`, or `*` alone for all of them.
    Raises `ConfigError` for anything else.
    """
    if list(named) == [EVERY_DIRECTORY]:
        return list(log_dirs)
    for path in named:
        if path not in log_dirs:
            raise ConfigError(f"{CORDONED_LOG_DIRS}: {path!r} is not one of log.dirs; name these, or * alone for all")
    return [path for path in log_dirs if path in named]


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


def flattened(nested: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return dotted names for nested tables: TOML reads `a.b = 1` as a table a."""
    flat: dict[str, object] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def checked(settings: Mapping[str, object]) -> dict[str, Value]:
    """Return the settings as typed values; refuse unknown names, wrong types, bad values, and what is missing."""
    definitions = {name: definition_of(name) for name in settings}
    is_zookeeper_mode = "process.roles" not in settings and bool(settings.get("zookeeper.connect"))
    for name in REQUIRED if is_zookeeper_mode else (*KRAFT_REQUIRED, *REQUIRED):
        if name not in settings:
            raise ConfigError(f"setting {name!r} is missing")
    if not is_zookeeper_mode and not settings.keys() & {VOTERS, BOOTSTRAP}:
        raise ConfigError(f"setting {VOTERS!r} is missing, or {BOOTSTRAP!r} instead of it")
    values = {name: definition.checked(settings[name]) for name, definition in definitions.items()}
    if not is_zookeeper_mode:
        _check_roles(as_text(values["process.roles"]))
    for name, what in NEEDED_IN_LISTS.items():
        if not values.get(name, True):
            raise ConfigError(f"{name!r} names no {what}")
    _check_cluster_id(as_text(values["cluster.id"]))
    return values


def _check_roles(roles: str) -> None:
    named = frozenset(roles.split(","))
    if not named <= ROLES:
        raise ConfigError(f"'process.roles' is {roles!r}; use broker, controller or both")


def _check_cluster_id(cluster_id: str) -> None:
    try:
        UUID(cluster_id)
    except ValueError:
        if not 1 <= len(cluster_id) <= 64:
            raise ConfigError("'cluster.id' must have 1 to 64 characters") from None


def _check_security(config: NodeConfig) -> None:
    listeners, security = config.listeners, config.security
    served = (*listeners.brokers, *listeners.controllers)
    used = {one.protocol for one in served} | {listeners.inter_broker_protocol, listeners.controller_protocol}
    if config.is_zookeeper_mode and (len(served) != 1 or used != {SecurityProtocol.PLAINTEXT}):
        raise ConfigError("'listeners': in ZooKeeper mode a broker has one listener, and it is PLAINTEXT")
    if config.is_zookeeper_mode and security.authorizer_class:
        raise ConfigError("'authorizer.class.name': ACLs are in the metadata log, and ZooKeeper mode has none")
    if any(one.protocol.has_tls for one in served) and not (security.keystore_location or security.keystore_chain):
        raise ConfigError("a listener with TLS needs 'ssl.keystore.location' or 'ssl.keystore.certificate.chain'")
    if any(one.has_sasl for one in used):
        _check_sasl(config, used)
    if bool(security.keystore_chain) != bool(security.keystore_key):
        raise ConfigError("'ssl.keystore.certificate.chain' and 'ssl.keystore.key' are given together or not at all")


def _check_sasl(config: NodeConfig, used: set[SecurityProtocol]) -> None:
    security = config.security
    served = (*config.listeners.brokers, *config.listeners.controllers)
    if any(one.protocol.has_sasl for one in served) and not security.sasl_mechanisms:
        raise ConfigError("a listener with SASL needs 'sasl.enabled.mechanisms'")
    for access, protocol, name in (
        (config.broker_access, config.listeners.inter_broker_protocol, "sasl.mechanism.inter.broker.protocol"),
        (config.controller_access, config.listeners.controller_protocol, "sasl.mechanism.controller.protocol"),
    ):
        if protocol.has_sasl and not (access.mechanism and access.user):
            raise ConfigError(f"{name!r} needs a mechanism, and 'sasl.jaas.config' a name and a password for it")
    named = {*security.sasl_mechanisms, security.inter_broker_mechanism, security.controller_mechanism}
    if SecurityProtocol.SASL_PLAINTEXT in used and PLAIN in named and not security.plain_without_tls:
        raise ConfigError("PLAIN sends passwords as they are: use SASL_SSL, or set 'tribunal.sasl.plain.without.tls'")


def _area(kind: type[Area], given: Mapping[str, Value]) -> Area:
    known = definitions_of(kind)
    return msgspec.convert({each.field: given[each.name] for each in known if each.name in given}, kind)


def _texts(given: Mapping[str, Value]) -> dict[str, str]:
    values = {name: given.get(name, definition.default) for name, definition in DEFINITIONS.items()}
    return {
        name: "" if DEFINITIONS[name].type is ConfigType.PASSWORD else as_text(value)
        for name, value in values.items()
        if value is not None and (value or DEFINITIONS[name].type is not ConfigType.PASSWORD)
    }
