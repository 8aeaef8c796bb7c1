"""M90: an EndTxn of the transaction before ends the one that its producer is in now.

Evidence: a late request to commit commits what the application aborts afterwards. KAFKA-17754, KIP-890.
"""

from collections.abc import Callable

from replog.coordinators import transaction_coordinator
from replog.coordinators.end_transaction import end_with_bump as strict
from replog.coordinators.transaction import State, Transaction
from replog.errors import Error

SCENARIO = "late-end-txn"


def install() -> None:
    """Take it for the end of whatever is open, as where an epoch lasts for more than one transaction."""

    def end_with_bump(
        known: Transaction,
        *,
        committed: bool,
        repeated: bool,
        now_ms: int,
        new_producer_id: Callable[[], int | None],
    ) -> Transaction | Error:
        late = repeated and known.state is State.ONGOING
        return strict(
            known,
            committed=committed,
            repeated=repeated and not late,
            now_ms=now_ms,
            new_producer_id=new_producer_id,
        )

    transaction_coordinator.end_with_bump = end_with_bump  # type: ignore[attr-defined]
