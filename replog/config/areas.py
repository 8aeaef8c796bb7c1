"""All settings: by area, and by the names that stand in files, scenarios and requests."""

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from replog.config.controller import ControllerConfig
from replog.config.endpoints import ConfigError
from replog.config.groups import GroupsConfig
from replog.config.hooks import HooksConfig
from replog.config.identity import IdentityConfig
from replog.config.log import LogConfig
from replog.config.network import NetworkConfig
from replog.config.quorum import QuorumConfig
from replog.config.replication import ReplicationConfig
from replog.config.security import SecurityConfig
from replog.config.setting import Definition, definitions_of
from replog.config.topics import TopicsConfig
from replog.config.transactions import TransactionsConfig
from replog.config.zookeeper import ZooKeeperConfig

# By the title of the area in docs/configuration.md.
AREAS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "Identity": IdentityConfig,
    "Network": NetworkConfig,
    "Security": SecurityConfig,
    "Topics": TopicsConfig,
    "Log": LogConfig,
    "Replication": ReplicationConfig,
    "Controller": ControllerConfig,
    "Quorum": QuorumConfig,
    "Groups": GroupsConfig,
    "Transactions": TransactionsConfig,
    "ZooKeeper": ZooKeeperConfig,
    "Test hooks": HooksConfig,
}

DEFINITIONS: Final[Mapping[str, Definition]] = MappingProxyType(
    {definition.name: definition for area in AREAS.values() for definition in definitions_of(area)}
)


def definition_of(name: str) -> Definition:
    """Return a setting's definition; `ConfigError` names the nearest one when there is none of that name."""
    try:
        return DEFINITIONS[name]
    except KeyError:
        near = difflib.get_close_matches(name, DEFINITIONS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"unknown setting {name!r}{hint}") from None
