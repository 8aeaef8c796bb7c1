"""M80: InitProducerId of a known transactional id fences nobody.

Evidence: two producers with one transactional id both commit; their transactions are interleaved.
"""

from msgspec.structs import replace

from replog.coordinators.events import Now
from replog.coordinators.transaction import PREPARED, Transaction
from replog.coordinators.transaction_coordinator import TransactionCoordinator
from replog.errors import Error
from replog.wire.messages.init_producer_id import InitProducerIdRequest

SCENARIO = "bank"


def install() -> None:
    """Give out id and epoch as they are."""
    initialized = TransactionCoordinator._initialized

    def without_fence(self: TransactionCoordinator, body: InitProducerIdRequest, now: Now) -> Transaction | Error:
        slot = self.slots.get(body.transactional_id or "")
        if slot is None or slot.known is None or slot.next is not None or slot.known.state in PREPARED:
            return initialized(self, body, now)
        return replace(slot.known, last_update_ms=now.wall_ms)

    TransactionCoordinator._initialized = without_fence  # type: ignore[method-assign]
