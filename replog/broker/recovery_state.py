"""What a leader does about an unclean election before it serves anyone (KIP-704, SPEC 3.10).

The records that an unclean leader lacks may include the ends of transactions. A transaction without an end blocks
read_committed consumers for ever, so each one that is open in the local log is aborted, in the order of its first
offset. The coordinator is not asked: it may know an outcome whose records this log does not hold.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from replog.log.batch import end_transaction_marker
from replog.log.producers import OpenTransaction

PRODUCER_EPOCH_MAX: Final = (1 << 15) - 1


def abort_markers(transactions: Iterable[OpenTransaction], *, leader_epoch: int, timestamp_ms: int) -> Iterator[bytes]:
    """Yield one abort marker for each open transaction, oldest first."""
    for transaction in sorted(transactions, key=lambda transaction: transaction.first_offset):
        yield end_transaction_marker(
            producer_id=transaction.producer_id,
            # SPEC 8.5: the next epoch, so that the producer's next write fails instead of silently going on with
            # the second half of a transaction whose first half is gone.
            producer_epoch=min(transaction.producer_epoch + 1, PRODUCER_EPOCH_MAX),
            committed=False,
            coordinator_epoch=transaction.coordinator_epoch,
            timestamp_ms=timestamp_ms,
            leader_epoch=leader_epoch,
        )
