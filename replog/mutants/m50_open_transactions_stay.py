"""M50: a leader that was elected uncleanly leaves the transactions open that it finds.

Evidence: read_committed consumers stand still for ever where the end marker was lost. KIP-704, KAFKA-7408.
"""

from replog.broker.partition import Partition

SCENARIO = "unclean-transactions"


def install() -> None:
    """Abort nothing."""

    def _abort_open_transactions(self: Partition, leader_epoch: int, wall_ms: int) -> None:
        return

    Partition._abort_open_transactions = _abort_open_transactions  # type: ignore[method-assign]
