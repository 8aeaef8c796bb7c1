"""Whether a producer's transaction is known to include this partition before its first record gets in (KIP-890, M77).

A delayed batch may arrive when its transaction is over. Taken, it would open one that nobody ends. So the leader asks the
coordinator first, and takes the batch with the guard that it got before asking. An end marker voids the guard: what
the coordinator said before the marker does not hold after it.
"""

from typing import Final

from replog.log.batch import TRANSACTIONAL
from replog.ports import Buffer

Guard = int
ATTRIBUTES_AT: Final = 22  # low byte of a batch's attributes


def is_transactional(batch: Buffer) -> bool:
    """Return whether the first batch claims to be part of a transaction."""
    return len(batch) > ATTRIBUTES_AT and bool(batch[ATTRIBUTES_AT] & TRANSACTIONAL)


class Verifications:
    """The guards of one partition, by producer id; gone with the leadership."""

    def __init__(self) -> None:
        self._guards: dict[int, Guard] = {}
        self._last_guard = 0

    def begin(self, producer_id: int) -> Guard:
        """Return the guard that holds until the next end marker."""
        guard = self._guards.get(producer_id)
        if guard is None:
            self._last_guard += 1
            guard = self._guards[producer_id] = self._last_guard
        return guard

    def holds(self, producer_id: int, guard: Guard | None) -> bool:
        """Return whether nothing has come between."""
        return guard is not None and self._guards.get(producer_id) == guard

    def end(self, producer_id: int) -> None:
        """Void the producer's guard: its transaction ended here, or began."""
        self._guards.pop(producer_id, None)

    def clear(self) -> None:
        """Void all: another leader may have written markers."""
        self._guards.clear()
