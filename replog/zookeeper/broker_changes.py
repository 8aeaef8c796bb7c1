"""The controller's look at who is registered: new, dead and bounced brokers, distinguished by epoch (KIP-380).

An id alone does not distinguish a broker from its earlier registration: one that bounced between two looks would never be sent what it
hosts (the fourth broken assumption of KIP-380's motivation).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from replog.types import BrokerEpoch, NodeId


class Changes(NamedTuple):
    """Who came, went, or came back before anybody saw it go; ids ascending."""

    new: tuple[NodeId, ...]
    dead: tuple[NodeId, ...]
    bounced: tuple[NodeId, ...]

    @property
    def is_empty(self) -> bool:
        """Return whether nobody did."""
        return not (self.new or self.dead or self.bounced)


class Step(StrEnum):
    """What is done about a broker."""

    STARTUP = "startup"
    FAILURE = "failure"


def diff_brokers(known: Mapping[NodeId, BrokerEpoch], registered: Mapping[NodeId, BrokerEpoch]) -> Changes:
    """Compare the brokers that the controller knows with those that are registered (KIP-380, step 2)."""
    return Changes(
        new=tuple(sorted(node for node in registered if node not in known)),
        dead=tuple(sorted(node for node in known if node not in registered)),
        bounced=tuple(sorted(node for node in registered if node in known and registered[node] > known[node])),
    )


def steps(changes: Changes) -> list[tuple[Step, NodeId]]:
    """Return what is done, in the order of the KIP's text (D15): new, dead, then each bounced broker's two steps."""
    return [
        *((Step.STARTUP, node) for node in changes.new),
        *((Step.FAILURE, node) for node in changes.dead),
        *((Step.FAILURE, node) for node in changes.bounced),
        *((Step.STARTUP, node) for node in changes.bounced),
    ]
