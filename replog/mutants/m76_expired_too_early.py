"""M76: a partition forgets a producer by the age of its last record, also while its transaction is open.

Evidence: the last stable offset passes a transaction that is not over; a producer that was fenced is taken for a new one. KAFKA-9144.
"""

from replog.log.producers import ProducerStates

SCENARIO = "expired-producers"


def install() -> None:
    """Look at the time only."""

    def expire(self: ProducerStates, now_ms: int, expiration_ms: int) -> list[int]:
        silent = [one.producer_id for one in self if now_ms - one.last_update_ms >= expiration_ms]
        for producer_id in silent:
            del self._producers[producer_id]
            self._open.pop(producer_id, None)
        return silent

    ProducerStates.expire = expire  # type: ignore[method-assign]
