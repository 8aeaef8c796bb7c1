"""M10: an AlterPartition from before a follower's restart lets the restarted one in.

Evidence: a replica that lost records is in the ISR and leads without them. KIP-903, KAFKA-14139. (One with a new disk is
noticed in any case: the id of its directory raises the partition epoch.)
"""

from replog.controller import alter_partition
from replog.metadata.image import Image
from replog.metadata.state import Partition
from replog.types import NodeId

SCENARIO = "stale-epoch-join"


def install() -> None:
    """Look at who a proposed member is, not at which of its incarnations was meant."""

    def _may_be_in_isr(image: Image, partition: Partition, broker_id: NodeId, broker_epoch: int) -> bool:
        return image.is_active(broker_id)

    alter_partition._may_be_in_isr = _may_be_in_isr
