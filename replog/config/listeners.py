"""Where a node listens, under which names, and how each listener is secured.

A listener has a name; `listener.security.protocol.map` says which of Kafka's four security protocols it speaks. Clients and brokers may
connect to different ones, and controllers have their own. An address without a name is that of the only listener: PLAINTEXT, or
CONTROLLER on a node that is a controller only.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from replog.config.endpoints import ConfigError, Endpoint, endpoint
from replog.config.network import NetworkConfig
from replog.config.setting import words

PLAIN_NAME: Final = "PLAINTEXT"
CONTROLLER_NAME: Final = "CONTROLLER"


class SecurityProtocol(StrEnum):
    """How a listener is secured, in Kafka's words."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def number(self) -> int:
        """Its number in registrations."""
        return list(SecurityProtocol).index(self)

    @property
    def has_tls(self) -> bool:
        """Return whether bytes are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Return whether who connects says who he is by SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class ListenerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One listener: where it is bound, and where others reach it."""

    name: str
    protocol: SecurityProtocol
    endpoint: Endpoint
    advertised: Endpoint


class Listeners(msgspec.Struct, frozen=True, kw_only=True):
    """All listeners of one node, and how it connects to others.

    inter_broker:  the name of the listener by which brokers reach each other.
    """

    brokers: tuple[ListenerConfig, ...]
    controllers: tuple[ListenerConfig, ...]
    inter_broker: str
    inter_broker_protocol: SecurityProtocol
    controller_protocol: SecurityProtocol

    @staticmethod
    def of(network: NetworkConfig, roles: frozenset[str]) -> "Listeners":
        """Read them from the settings; `ConfigError` names what does not fit."""
        controller_names = network.controller_listener_names
        protocols = _protocols(network, controller_names)
        is_controller_only = roles == {"controller"}
        otherwise = (*controller_names, CONTROLLER_NAME)[0] if is_controller_only else PLAIN_NAME
        bound = _addresses("listeners", network.listeners, otherwise)
        stated = _addresses("advertised.listeners", network.advertised_listeners, next(iter(bound)))
        for name in stated:
            if name not in bound:
                raise ConfigError(f"'advertised.listeners' names {name!r}, and 'listeners' does not")
        listeners = [
            ListenerConfig(
                name=name, protocol=_protocol(protocols, name), endpoint=address, advertised=stated.get(name, address)
            )
            for name, address in bound.items()
        ]
        own = [one for one in listeners if is_controller_only or one.name in controller_names]
        others = [one for one in listeners if one not in own]
        controllers = own or _separate(network, roles, protocols, (*controller_names, CONTROLLER_NAME)[0])
        if not others and not is_controller_only:
            raise ConfigError("'listeners' names none that is for brokers and clients")
        inter_broker = network.inter_broker_listener_name or (others[0].name if others else PLAIN_NAME)
        if others and inter_broker not in {one.name for one in others}:
            raise ConfigError(f"'inter.broker.listener.name': 'listeners' names no {inter_broker!r}")
        controller_name = (*controller_names, *(one.name for one in controllers), CONTROLLER_NAME)[0]
        return Listeners(
            brokers=tuple(others),
            controllers=tuple(controllers),
            inter_broker=inter_broker,
            inter_broker_protocol=_protocol(protocols, inter_broker),
            controller_protocol=_protocol(protocols, controller_name),
        )


def _separate(
    network: NetworkConfig, roles: frozenset[str], protocols: Mapping[str, SecurityProtocol], otherwise: str
) -> list[ListenerConfig]:
    """Return the listener that `controller.listeners` gives a node of both roles."""
    if "controller" not in roles or not network.controller_listeners:
        return []
    ((name, address),) = _addresses("controller.listeners", words(network.controller_listeners), otherwise).items()
    return [ListenerConfig(name=name, protocol=_protocol(protocols, name), endpoint=address, advertised=address)]


def _addresses(setting: str, texts: Sequence[str], otherwise: str) -> dict[str, Endpoint]:
    """Parse `NAME://host:port, ...`; where there is but one the name may be missing."""
    if not texts and setting == "listeners":
        raise ConfigError("'listeners' names no address")
    found: dict[str, Endpoint] = {}
    for one in texts:
        name = one.partition("://")[0] if "://" in one else ""
        if not name and len(texts) > 1:
            raise ConfigError(f"{setting!r}: of several addresses each needs a name, {one!r} has none")
        if (name or otherwise) in found:
            raise ConfigError(f"{setting!r} names {name!r} twice")
        found[name or otherwise] = endpoint(setting, one)
    return found


def _protocols(network: NetworkConfig, controller_names: tuple[str, ...]) -> dict[str, SecurityProtocol]:
    mapped: dict[str, SecurityProtocol] = {}
    for text in network.listener_protocols:
        name, _, protocol = text.partition(":")
        if protocol not in list(SecurityProtocol):
            choices = ", ".join(SecurityProtocol)
            raise ConfigError(f"'listener.security.protocol.map': {text!r} is not NAME:PROTOCOL with one of {choices}")
        mapped[name] = SecurityProtocol(protocol)
    if not mapped:
        plain = dict.fromkeys((*controller_names, CONTROLLER_NAME), SecurityProtocol.PLAINTEXT)
        return plain | {protocol.value: protocol for protocol in SecurityProtocol}
    return mapped


def _protocol(protocols: Mapping[str, SecurityProtocol], name: str) -> SecurityProtocol:
    known = protocols.get(name)
    if known is not None:
        return known
    if name in list(SecurityProtocol):
        return SecurityProtocol(name)
    if name == CONTROLLER_NAME:
        return SecurityProtocol.PLAINTEXT
    raise ConfigError(f"'listener.security.protocol.map' does not say how listener {name!r} is secured")
