"""What a leader does about an unclean election before it serves anyone (KIP-704, SPEC 3.10).

The records that an unclean leader lacks may include the ends of transactions. A transaction without an end blocks
read_committed consumers for ever, so each one that is open in the local log is aborted, in the order of its first
offset. The coordinator is not asked: it may know an outcome whose records this log does not hold.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from replog.log.batch import end_transaction_marker

# Below every real coordinator epoch: a coordinator that comes later is not fenced by what we wrote.
NO_COORDINATOR_EPOCH: Final = -1


class OpenTransaction(NamedTuple):
    """A transaction without an end in the local log."""

    producer_id: int
    producer_epoch: int
    first_offset: int


def abort_markers(transactions: Iterable[OpenTransaction], *, leader_epoch: int, timestamp_ms: int) -> Iterator[bytes]:
    """Yield one abort marker for each open transaction, oldest first."""
    for transaction in sorted(transactions, key=lambda transaction: transaction.first_offset):
        yield end_transaction_marker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            committed=False,
            coordinator_epoch=NO_COORDINATOR_EPOCH,
            timestamp_ms=timestamp_ms,
            leader_epoch=leader_epoch,
        )
