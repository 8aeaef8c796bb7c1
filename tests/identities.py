"""Brokers as the controller knows them."""

from uuid import UUID

from replog.broker.identity import BrokerIdentity
from replog.types import NO_BROKER_EPOCH, BrokerEpoch, NodeId


def an_identity(broker_epoch: int = NO_BROKER_EPOCH, *, node_id: int = 1, incarnation: int = 0) -> BrokerIdentity:
    """Return a broker that got this epoch; without one it has yet to register."""
    return BrokerIdentity(NodeId(node_id), UUID(int=incarnation), BrokerEpoch(broker_epoch))
