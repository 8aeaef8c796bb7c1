"""M07: a proposed ISR counts towards min ISR before the controller has committed it.

Evidence: as M06; needs a leader whose proposal does not reach the controller. KIP-966, PartitionTest.
"""

from collections.abc import Collection, Mapping

from replog.broker import watermark
from replog.types import NodeId

SCENARIO = "unsent-proposal"


def install() -> None:
    """Count the hoped-for ISR."""
    strict = watermark.high_watermark

    def high_watermark(
        *,
        current: int,
        leader_log_end_offset: int,
        follower_log_end_offsets: Mapping[NodeId, int],
        isr: Collection[NodeId],
        maximal_isr: Collection[NodeId],
        waiters: Collection[NodeId],
        min_isr: int,
    ) -> int:
        return strict(
            current=current,
            leader_log_end_offset=leader_log_end_offset,
            follower_log_end_offsets=follower_log_end_offsets,
            isr=maximal_isr,
            maximal_isr=maximal_isr,
            waiters=waiters,
            min_isr=min_isr,
        )

    watermark.high_watermark = high_watermark
