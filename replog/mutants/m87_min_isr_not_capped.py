"""M87: min ISR is not capped at the number of replicas.

Evidence: a topic of two replicas with min.insync.replicas 3 never moves its high watermark, and refuses acks=all for ever. KIP-966.
"""

from replog.broker import watermark

SCENARIO = "min-isr-above-replicas"


def install() -> None:
    """Take the setting as it is."""

    def effective_min_isr(min_insync_replicas: int, replication_factor: int) -> int:
        return min_insync_replicas

    watermark.effective_min_isr = effective_min_isr
