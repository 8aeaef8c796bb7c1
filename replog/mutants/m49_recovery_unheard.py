"""M49: followers take no notice of a recovery state that changes within a leader epoch.

Evidence: consumers that read from followers are refused for ever after an unclean election. KIP-704.
"""

from replog.broker.isr import PartitionState
from replog.broker.partition import Effect, Partition

SCENARIO = "rack-reads"


def install() -> None:
    """Look at new leader epochs only."""

    def _stay_follower(self: Partition, state: PartitionState) -> list[Effect]:
        return []

    Partition._stay_follower = _stay_follower  # type: ignore[method-assign]
