"""Who a broker is to its cluster: its id, the incarnation of its process, and the broker epoch that the controller gave this incarnation.

The broker epoch is what KIP-903 compares: it distinguishes the incarnation of a broker that may be in an ISR from one that has lost its disk
since. It is kept here, once. Who registers writes it; who leads, proposes, fetches, hosts or answers reads it here, so that no
two parts of a broker can speak for different incarnations.
"""

from uuid import UUID

from replog.types import NO_BROKER_EPOCH, BrokerEpoch, NodeId


class BrokerIdentity:
    """One broker process."""

    __slots__ = ("broker_epoch", "incarnation", "node_id")

    def __init__(self, node_id: NodeId, incarnation: UUID, broker_epoch: BrokerEpoch = NO_BROKER_EPOCH) -> None:
        self.node_id = node_id
        self.incarnation = incarnation
        self.broker_epoch = broker_epoch

    @property
    def is_registered(self) -> bool:
        """Return whether the controller has registered this incarnation."""
        return self.broker_epoch != NO_BROKER_EPOCH
