"""Addresses as they stand in a configuration."""

import re
from typing import Final

import msgspec

from replog.types import NodeId

NODE_ID_MAX: Final = 2**31 - 1
HOST_LETTERS_MAX: Final = 253
_LABEL: Final = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?")
_IPV6: Final = re.compile(r"[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9_.-]{1,15})?")


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the setting and what to do."""


class Endpoint(msgspec.Struct, frozen=True):
    """An address that can be connected to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_usable(self) -> bool:
        """Return whether anybody could ever connect to it: what others say of themselves is checked by this."""
        return 0 < self.port <= 65535 and is_host(self.host)


def is_host(text: str) -> bool:
    """Return whether this may be the name or the address of a machine (RFC 1123, with underscores; IPv6 with a zone)."""
    if len(text) > HOST_LETTERS_MAX:
        return False
    return bool(_IPV6.fullmatch(text) if ":" in text else _NAME.fullmatch(text))


class Voter(msgspec.Struct, frozen=True):
    """A member of the initial quorum."""

    node_id: NodeId
    endpoint: Endpoint


def endpoint(name: str, text: str) -> Endpoint:
    """Parse `host:port`, with or without a listener name in front (`PLAINTEXT://host:port`)."""
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{name!r}: {text!r} is not host:port")
    return Endpoint(host.strip("[]"), int(port))


def is_node_id(text: str) -> bool:
    """Return whether a text is the id of a node: a number that fits into 32 bits."""
    return text.isdecimal() and int(text) <= NODE_ID_MAX


def voter(text: str) -> Voter:
    """Parse one of `controller.quorum.voters`: `id@host:port`."""
    node_id, at, address = text.partition("@")
    if not at or not is_node_id(node_id):
        raise ConfigError(f"'controller.quorum.voters': {text!r} is not id@host:port")
    return Voter(NodeId(int(node_id)), endpoint("controller.quorum.voters", address))
