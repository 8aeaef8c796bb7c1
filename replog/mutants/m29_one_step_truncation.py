"""M29: a follower cuts where the leader's answer says, without asking again for an epoch of its own.

Evidence: one offset has different batches on two replicas. KIP-279, KAFKA-6361.
"""

from replog.broker import partition
from replog.broker.fetcher import Epochs, Truncation

SCENARIO = "unclean-recovery"


def install() -> None:
    """Take the leader's end offset as it is, whatever epoch it belongs to."""

    def truncation_point(
        epochs: Epochs, *, log_end_offset: int, high_watermark: int, leader_epoch: int, leader_end_offset: int
    ) -> Truncation:
        return Truncation(offset=min(max(leader_end_offset, 0), log_end_offset), done=True)

    partition.truncation_point = truncation_point  # type: ignore[attr-defined]
