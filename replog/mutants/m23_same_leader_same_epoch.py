"""M23: the leader epoch is not raised when the broker that led before leads again.

Evidence: followers take it for the leadership that they know, and neither cut their logs nor begin to fetch. KAFKA-7164 is the
follower's half.
"""

from msgspec.structs import replace

from replog.metadata import image
from replog.metadata.records import PartitionChangeRecord
from replog.metadata.state import Partition
from replog.types import NO_NODE, LeaderEpoch

SCENARIO = "leaderless"


def install() -> None:
    """Keep the epoch where nobody led between a broker and itself."""
    strict = image.merged

    def merged(partition: Partition, change: PartitionChangeRecord) -> Partition:
        after = strict(partition, change)
        if partition.leader == NO_NODE and after.leader in (*partition.isr, *partition.last_known_elr):
            return replace(after, leader_epoch=LeaderEpoch(partition.leader_epoch))
        return after

    image.merged = merged
