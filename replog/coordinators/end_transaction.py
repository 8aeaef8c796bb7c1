"""What EndTxn may do in which state: two tables, one a protocol version (SPEC 4.2.3, KIP-890).

Pure: from what is known to the next `Transaction`, or the error to answer with. NONE stands for "it was done before".
"""

from collections.abc import Callable

from msgspec.structs import replace

from replog.coordinators.transaction import (
    COMPLETE,
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    NO_PRODUCER_ID,
    PREPARED,
    PROTOCOL_1,
    PROTOCOL_2,
    State,
    Transaction,
)
from replog.errors import Error


def end(known: Transaction, *, committed: bool, now_ms: int) -> Transaction | Error:
    """Return the decided transaction under version 1; the caller has checked id and epoch."""
    if known.state is State.ONGOING:
        # Its partitions may have been added the way of version 2; its markers do not raise the epoch for all that.
        return replace(known.prepared(now_ms, committed=committed), protocol=PROTOCOL_1)
    if known.state in (*PREPARED, *COMPLETE) and known.will_commit == committed:
        return Error.CONCURRENT_TRANSACTIONS if known.state in PREPARED else Error.NONE
    return Error.INVALID_TXN_STATE


def is_retry(known: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """Return whether the producer asks again for what raised its epoch, because the answer was lost."""
    if known.protocol < PROTOCOL_2:
        return False
    if producer_id == known.producer_id:
        return producer_epoch == known.producer_epoch - 1
    has_rotated = producer_id == known.previous_producer_id and known.producer_epoch == 0
    return has_rotated and producer_epoch >= EPOCH_EXHAUSTED


def end_with_bump(
    known: Transaction,
    *,
    committed: bool,
    repeated: bool,
    now_ms: int,
    new_producer_id: Callable[[], int | None],
) -> Transaction | Error:
    """Return the decided transaction under version 2, in the next epoch.

    repeated:         see `is_retry`.
    new_producer_id:  asked when epochs are used up.
    """
    if known.state in PREPARED:
        return Error.CONCURRENT_TRANSACTIONS if known.will_commit == committed else Error.INVALID_TXN_STATE
    if repeated:
        if known.state in (State.ONGOING, State.EMPTY):
            return Error.PRODUCER_FENCED  # the one who begun it is a transaction ahead, or has just taken over
        if known.producer_epoch == EPOCH_MAX:
            return Error.PRODUCER_FENCED  # it was fenced at the end of its epochs: this one is nobody's
        if known.state is State.COMPLETE_ABORT and committed:
            # It never asked for an abort: its time was over, or another producer took its place (KAFKA-20785).
            return Error.PRODUCER_FENCED
        return Error.NONE if known.state in COMPLETE and known.will_commit == committed else Error.INVALID_TXN_STATE
    if known.state is not State.ONGOING and committed:
        return Error.INVALID_TXN_STATE
    if known.producer_epoch < EPOCH_EXHAUSTED:
        return known.prepared_in_next_epoch(now_ms, NO_PRODUCER_ID, committed=committed)
    next_producer_id = new_producer_id()
    if next_producer_id is None:
        return Error.COORDINATOR_NOT_AVAILABLE
    return known.prepared_in_next_epoch(now_ms, next_producer_id, committed=committed)
