"""M77: a leader takes the first batch of a transaction without asking the coordinator.

Evidence: a produce that was delayed beyond its transaction's end opens one that nobody ends; the last stable offset
stands still. KIP-890, KAFKA-14402.
"""

from replog.broker.partition import Partition

SCENARIO = "transactions"


def install() -> None:
    """Let no write need verification."""

    def needs_verification(self: Partition, producer_id: int, producer_epoch: int, *, adds: bool = False) -> bool:
        return False

    Partition.needs_verification = needs_verification  # type: ignore[method-assign]
