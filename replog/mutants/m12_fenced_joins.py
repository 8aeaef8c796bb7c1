"""M12: a fenced replica that still fetches is taken into the ISR.

Evidence: the committed ISR names a fenced broker; it leaves and enters every few milliseconds. KIP-841, KAFKA-13916.
"""

from replog.broker.isr import Follower, LeaderState
from replog.controller import alter_partition
from replog.metadata.image import Image
from replog.metadata.state import Partition
from replog.types import NO_BROKER_EPOCH, NodeId

SCENARIO = "fenced-follower"


def install() -> None:
    """Look at the broker epoch only, on both sides."""

    def _may_be_in_isr(image: Image, partition: Partition, broker_id: NodeId, broker_epoch: int) -> bool:
        return broker_epoch in (NO_BROKER_EPOCH, image.broker_epoch(broker_id))

    def _is_eligible(self: LeaderState, replica: NodeId, follower: Follower) -> bool:
        return replica in self.brokers and follower.broker_epoch is not None

    alter_partition._may_be_in_isr = _may_be_in_isr
    LeaderState._is_eligible = _is_eligible  # type: ignore[method-assign]
