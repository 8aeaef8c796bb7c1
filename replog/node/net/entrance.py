"""What a listener asks of who connects to it."""

from typing import Final

import msgspec

from replog.config import NodeConfig
from replog.config.listeners import PLAIN_NAME, ListenerConfig
from replog.security.principals import Rule, rules_of


class Entrance(msgspec.Struct, frozen=True, kw_only=True):
    """One listener's name, and how it finds out who is there."""

    listener: str = PLAIN_NAME
    has_tls: bool = False
    rules: tuple[Rule, ...] = ()


OPEN: Final = Entrance()


def entrance_of(listener: ListenerConfig, config: NodeConfig) -> Entrance:
    """Return what the settings ask of who connects to a listener."""
    return Entrance(
        listener=listener.name,
        has_tls=listener.protocol.has_tls,
        rules=rules_of(config.security.principal_mapping_rules),
    )
