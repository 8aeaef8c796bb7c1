"""Whether a producer's transaction is known to include this partition before its first record gets in (KIP-890, M77).

A delayed batch may arrive when its transaction is over. Taken, it would open one that nobody ends. So the leader asks the
coordinator first, and takes the batch with the guard that it got before asking. An end marker voids the guard: what
the coordinator said before the marker does not hold after it.

It also knows what a producer, of which the partition knows nothing, has tried to begin with. A batch whose question failed is sent again, and one
behind it must not be taken before: it would be out of order for ever. In protocol version 2 a transaction begins with sequence 0 in each
partition, so a producer that goes on with another one has records that this leader does not know of, or not any more: those of a
transaction that a recovering leader has aborted (KIP-704), if the producer was silent for long enough since to be forgotten.
"""

from typing import Final

import msgspec

from replog.log.batch import TRANSACTIONAL, BatchHeader
from replog.ports import Buffer

Guard = int
ATTRIBUTES_AT: Final = 22  # low byte of a batch's attributes


def is_transactional(batch: Buffer) -> bool:
    """Return whether the first batch claims to be part of a transaction."""
    return len(batch) > ATTRIBUTES_AT and bool(batch[ATTRIBUTES_AT] & TRANSACTIONAL)


class Begun(msgspec.Struct):
    """What a producer has tried to begin a transaction with: its epoch and the lowest sequence in that epoch.

    is_of_protocol_2: sequences begin at 0 in each transaction.
    at_ms:            when it last tried.
    """

    guard: Guard
    at_ms: int
    epoch: int
    lowest_sequence: int
    is_of_protocol_2: bool


class Verifications:
    """The guards of one partition, by producer id; gone with the leadership."""

    def __init__(self) -> None:
        self._begun: dict[int, Begun] = {}
        self._last_guard = 0

    def begin(self, producer_id: int, now_ms: int) -> Guard:
        """Return the guard that holds until the next end marker."""
        return self._of(producer_id, -1, -1, now_ms).guard

    def begin_with(self, header: BatchHeader, now_ms: int, *, is_of_protocol_2: bool) -> Guard:
        """Return that guard for a batch, and remember what the producer begins with."""
        begun = self._of(header.producer_id, header.producer_epoch, header.base_sequence, now_ms)
        if header.producer_epoch > begun.epoch:
            begun.epoch, begun.lowest_sequence = header.producer_epoch, header.base_sequence
        elif header.producer_epoch == begun.epoch:
            begun.lowest_sequence = min(begun.lowest_sequence, header.base_sequence)
        begun.is_of_protocol_2 = is_of_protocol_2
        return begun.guard

    def _of(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> Begun:
        begun = self._begun.get(producer_id)
        if begun is None:
            self._last_guard += 1
            begun = Begun(self._last_guard, now_ms, epoch, sequence, is_of_protocol_2=False)
            self._begun[producer_id] = begun
        begun.at_ms = now_ms
        return begun

    def holds(self, producer_id: int, guard: Guard | None) -> bool:
        """Return whether nothing has come between."""
        begun = self._begun.get(producer_id)
        return begun is not None and begun.guard == guard

    def may_be_first(self, header: BatchHeader) -> bool:
        """Return whether a transaction may begin with this batch, as far as its producer's sequences go, of which the log knows nothing."""
        begun = self._begun[header.producer_id]
        first = 0 if begun.is_of_protocol_2 else begun.lowest_sequence
        return header.base_sequence <= first

    def end(self, producer_id: int) -> None:
        """Void the producer's guard: its transaction ended here, or began."""
        self._begun.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Void the guards of producers that have not tried for as long as producers are remembered: a coordinator may have refused them for ever."""
        for producer_id in [one for one, begun in self._begun.items() if now_ms - begun.at_ms >= expiration_ms]:
            del self._begun[producer_id]

    def clear(self) -> None:
        """Void all: another leader may have written markers."""
        self._begun.clear()
