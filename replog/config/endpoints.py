"""Addresses as they stand in a configuration."""

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


def endpoint(name: str, text: str) -> Endpoint:
    """Parse `host:port`, with or without a listener name in front (`PLAINTEXT://host:port`)."""
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{name!r}: {text!r} is not host:port")
    return Endpoint(host.strip("[]"), int(port))


def voter(text: str) -> Voter:
    """Parse one of `controller.quorum.voters`: `id@host:port`."""
    node_id, at, address = text.partition("@")
    if not at or not node_id.isdigit():
        raise ConfigError(f"'controller.quorum.voters': {text!r} is not id@host:port")
    return Voter(NodeId(int(node_id)), endpoint("controller.quorum.voters", address))
