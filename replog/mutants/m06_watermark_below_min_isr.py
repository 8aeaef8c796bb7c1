"""M06: the high watermark moves although the ISR is smaller than min ISR.

Evidence: records are read from a lone leader and are gone after a clean election of an ELR member. KIP-966, "Additional High Watermark advancement requirement".
"""

from collections.abc import Collection, Mapping

from replog.broker import watermark
from replog.types import NodeId

SCENARIO = "elr-chain"


def install() -> None:
    """Let one replica suffice."""
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
            maximal_isr=maximal_isr,
            waiters=waiters,
            min_isr=1,
        )

    watermark.high_watermark = high_watermark
