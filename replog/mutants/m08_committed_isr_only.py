"""M08: the high watermark waits for the committed ISR only, not for a proposed newcomer.

Evidence: the controller has committed the larger ISR, its answer is under way, and what the newcomer lacks is acknowledged.
"""

from collections.abc import Collection, Mapping

from replog.broker import watermark
from replog.types import NodeId

SCENARIO = "unheard-proposal"


def install() -> None:
    """Wait for nobody who is not a member yet."""
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
            isr=isr,
            maximal_isr=isr,
            waiters=(),
            min_isr=min_isr,
        )

    watermark.high_watermark = high_watermark
