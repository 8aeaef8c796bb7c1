"""What a partition remembers of its producers, against duplicates and dirty reads (SPEC 4.1, 4.2).

Per producer id: epoch, last sequence, the last five batches, the last coordinator epoch, and where its open
transaction began. `check` decides, only on the leader; `update` notes what was appended, everywhere. The state
is a function of the batches in the log: after truncation or a crash it is taken from the last snapshot before
the end and the batches behind that, never guessed. A snapshot (`<20 digits>.snapshot`, Kafka's layout) keeps
only the last batch of each producer, as Kafka's does.
"""

from collections import deque
from collections.abc import Iterator
from struct import Struct as Layout
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from replog.errors import Error
from replog.log.batch import SEQUENCE_MODULUS, BatchHeader, ControlType, EndTransaction
from replog.log.segment import AbortedTransaction

WINDOW: Final = 5  # batches a producer may have in flight with idempotence
NO_TRANSACTION: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEADER: Final = Layout(">hI")
_COUNT: Final = Layout(">i")
_ENTRY: Final = Layout(">qhiqiqiq")


class CorruptSnapshot(Exception):
    """A producer snapshot's checksum or layout is wrong; an earlier one, or the whole log, has to do."""


class KnownBatch(NamedTuple):
    """A batch that a producer's retry is compared with."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def base_offset(self) -> int:
        """Offset of the first record."""
        return self.last_offset - self.offset_delta


class Append(msgspec.Struct, frozen=True):
    """The batch is new and in order: append it."""


class Duplicate(msgspec.Struct, frozen=True):
    """The batch is in the log already: answer with this one's offsets, append nothing."""

    batch: KnownBatch


APPEND: Final = Append()
Verdict = Append | Duplicate | Error


class OpenTransaction(NamedTuple):
    """A transaction without end marker: what a recovering leader has to abort (KIP-704)."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    coordinator_epoch: int


class Producer:
    """One producer's state on one partition.

    last_update_ms:     when it was last seen here, by this node's clock or by its own records' if they are later: silence is counted from it.
    last_timestamp_ms:  of its last batch or marker, the same on every replica; of what a snapshot brought, `last_update_ms`.
    """

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.last_sequence = -1
        self.recent: deque[KnownBatch] = deque(maxlen=WINDOW)
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.transaction_first_offset = NO_TRANSACTION
        self.last_update_ms = -1
        self.last_timestamp_ms = -1

    def check(self, epoch: int, first_sequence: int, last_sequence: int) -> Verdict:
        """Judge a batch of this producer (SPEC 4.1.2 to 4.1.4)."""
        if epoch < self.epoch:
            return Error.INVALID_PRODUCER_EPOCH
        if epoch > self.epoch:
            return APPEND if first_sequence == 0 else Error.OUT_OF_ORDER_SEQUENCE_NUMBER
        if first_sequence == (self.last_sequence + 1) % SEQUENCE_MODULUS:
            return APPEND
        for batch in self.recent:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return Duplicate(batch)
        return Error.OUT_OF_ORDER_SEQUENCE_NUMBER

    def advance_epoch(self, epoch: int) -> None:
        """Begin a new epoch: sequences start again, older batches are no duplicates any more."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.recent.clear()
            self.last_sequence = -1

    def entry(self) -> tuple[int, ...]:
        """Return what a snapshot keeps, in its order."""
        last = self.recent[-1] if self.recent else None
        return (
            self.producer_id,
            self.epoch,
            self.last_sequence,
            last.last_offset if last else -1,
            last.offset_delta if last else 0,
            self.last_update_ms,
            self.coordinator_epoch,
            self.transaction_first_offset,
        )


class ProducerStates:
    """All producers of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}  # producer id -> first offset, in the order they began
        self._unreplicated: list[tuple[int, int]] = []  # (first offset, marker offset) of ended ones

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> Producer | None:
        """Return a producer's state, None when nothing (or nothing any more) is known of it."""
        return self._producers.get(producer_id)

    # Deciding, on the leader.

    def check(self, header: BatchHeader) -> Verdict:
        """Judge a data batch; batches without producer id are always new."""
        producer = self._producers.get(header.producer_id)
        if producer is None or header.base_sequence < 0:
            return APPEND
        if not header.is_transactional and header.producer_epoch >= producer.epoch and header.producer_id in self._open:
            return Error.INVALID_TXN_STATE  # it would become visible before the transaction's outcome is known
        return producer.check(header.producer_epoch, header.base_sequence, header.last_sequence)

    def check_epoch(self, header: BatchHeader) -> Error:
        """Judge a batch of a producer that has no sequences here: a fenced one is out."""
        producer = self._producers.get(header.producer_id)
        if producer is not None and header.producer_epoch < producer.epoch:
            return Error.INVALID_PRODUCER_EPOCH
        return Error.NONE

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> Error:
        """Judge an end marker (SPEC 4.2.7)."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return Error.NONE
        if producer_epoch < producer.epoch:
            return Error.INVALID_PRODUCER_EPOCH
        # A recovering leader aborts on its own and names no coordinator (KIP-704).
        if NO_COORDINATOR_EPOCH < coordinator_epoch < producer.coordinator_epoch:
            return Error.TRANSACTION_COORDINATOR_FENCED
        return Error.NONE

    # Noting what was appended, everywhere.

    def apply(
        self, header: BatchHeader, base_offset: int, marker: EndTransaction | None, now_ms: int
    ) -> AbortedTransaction | None:
        """Note a batch of any kind; return the entry for the aborted index if it ended a transaction so.

        marker:  what a control batch says (`batch.end_transaction`), None otherwise.
        """
        if marker is not None:
            return self.end_transaction(header, marker, base_offset, now_ms)
        if header.producer_id >= 0 and not header.is_control:
            self.update(header, base_offset, now_ms)
        return None

    def update(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Note a data batch that stands at `base_offset` in the log."""
        producer = self._of(header.producer_id, header.producer_epoch)
        producer.advance_epoch(header.producer_epoch)
        producer.last_timestamp_ms = header.max_timestamp_ms
        producer.last_update_ms = max(now_ms, header.max_timestamp_ms)
        last_offset = base_offset + header.last_offset_delta
        if header.base_sequence >= 0:
            last_sequence = producer.last_sequence = header.last_sequence
            producer.recent.append(
                KnownBatch(
                    header.base_sequence,
                    last_sequence,
                    last_offset,
                    header.last_offset_delta,
                    header.max_timestamp_ms,
                )
            )
        if header.is_transactional and producer.transaction_first_offset == NO_TRANSACTION:
            producer.transaction_first_offset = base_offset
            self._open[header.producer_id] = base_offset

    def end_transaction(
        self, header: BatchHeader, marker: EndTransaction, offset: int, now_ms: int
    ) -> AbortedTransaction | None:
        """Note an end marker at `offset`; return the entry for the aborted index if it aborted something."""
        producer = self._of(header.producer_id, header.producer_epoch)
        if header.producer_epoch > producer.epoch:
            producer.advance_epoch(header.producer_epoch)
        producer.coordinator_epoch = max(producer.coordinator_epoch, marker.coordinator_epoch)
        producer.last_timestamp_ms = header.max_timestamp_ms
        producer.last_update_ms = max(now_ms, header.max_timestamp_ms)
        first_offset = producer.transaction_first_offset
        if first_offset == NO_TRANSACTION:
            return None  # a repeated marker is harmless (SPEC 4.2.7)
        producer.transaction_first_offset = NO_TRANSACTION
        del self._open[header.producer_id]
        self._unreplicated.append((first_offset, offset))
        if marker.control_type != ControlType.ABORT:
            return None
        # Kafka's rule: first offset of the next-oldest open transaction, or behind the marker.
        last_stable_offset = next(iter(self._open.values()), offset + 1)
        return AbortedTransaction(header.producer_id, first_offset, offset, last_stable_offset)

    def _of(self, producer_id: int, epoch: int) -> Producer:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(producer_id, epoch)
        return producer

    # The last stable offset.

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of an open transaction, or of one whose end is not committed itself (M81)."""
        if not self._unreplicated:
            return next(iter(self._open.values())) if self._open else None
        # A follower's high watermark may go back with its leader's, as Apache Kafka's does: what it had passed is committed all the same. A
        # truncation builds this state again.
        self._unreplicated = [entry for entry in self._unreplicated if entry[1] >= high_watermark]
        oldest_open = next(iter(self._open.values()), None)
        oldest_ended = min((first for first, _ in self._unreplicated), default=None)
        if oldest_open is None or oldest_ended is None:
            return oldest_ended if oldest_open is None else oldest_open
        return min(oldest_open, oldest_ended)

    @property
    def open_transactions(self) -> list[OpenTransaction]:
        """Return transactions without end marker, oldest first."""
        return [
            OpenTransaction(p.producer_id, p.epoch, first_offset, p.coordinator_epoch)
            for producer_id, first_offset in self._open.items()
            for p in (self._producers[producer_id],)
        ]

    def has_open_transaction(self, producer_id: int) -> bool:
        """Return whether a producer's transaction is open here (KIP-890: otherwise ask the coordinator first)."""
        return producer_id in self._open

    def ended_before(self, offset: int) -> list[tuple[int, int]]:
        """Return (first, marker offset) of ended transactions not known to be replicated, markers below `offset`."""
        return [entry for entry in self._unreplicated if entry[1] < offset]

    def remember_ended(self, entries: list[tuple[int, int]]) -> None:
        """Take over what the state before a truncation knew and a snapshot cannot."""
        self._unreplicated = sorted({*entries, *self._unreplicated}, key=lambda entry: entry[1])

    # Expiration.

    def expire(self, now_ms: int, expiration_ms: int) -> list[int]:
        """Forget producers that were silent for too long and have nothing open; return their ids."""
        silent = [
            p.producer_id
            for p in self._producers.values()
            if p.transaction_first_offset == NO_TRANSACTION and now_ms - p.last_update_ms >= expiration_ms
        ]
        for producer_id in silent:
            del self._producers[producer_id]
        return silent

    def to_snapshot(self) -> bytes:
        """Return the content of a producer snapshot file, version 1."""
        entries = [_ENTRY.pack(*p.entry()) for p in self._producers.values()]
        content = _COUNT.pack(len(entries)) + b"".join(entries)
        return _SNAPSHOT_HEADER.pack(_SNAPSHOT_VERSION, crc32c(content)) + content

    @classmethod
    def from_snapshot(cls, content: bytes) -> "ProducerStates":
        """Parse a producer snapshot; `CorruptSnapshot` on anything else."""
        states = cls()
        for entry in _entries(content):
            states._restore(*entry)
        states._open = dict(sorted(states._open.items(), key=lambda item: item[1]))
        return states

    def _restore(
        self,
        producer_id: int,
        epoch: int,
        last_sequence: int,
        last_offset: int,
        offset_delta: int,
        timestamp_ms: int,
        coordinator_epoch: int,
        transaction_first_offset: int,
    ) -> None:
        producer = self._producers[producer_id] = Producer(producer_id, epoch)
        producer.last_sequence = last_sequence
        producer.last_update_ms = producer.last_timestamp_ms = timestamp_ms
        producer.coordinator_epoch = coordinator_epoch
        if last_offset >= 0:
            first_sequence = (last_sequence - offset_delta) % SEQUENCE_MODULUS
            batch = KnownBatch(first_sequence, last_sequence, last_offset, offset_delta, timestamp_ms)
            producer.recent.append(batch)
        producer.transaction_first_offset = transaction_first_offset
        if transaction_first_offset != NO_TRANSACTION:
            self._open[producer_id] = transaction_first_offset


def _entries(content: bytes) -> Iterator[tuple[int, ...]]:
    start = _SNAPSHOT_HEADER.size + _COUNT.size
    if len(content) < start:
        raise CorruptSnapshot("torn header")
    version, checksum = _SNAPSHOT_HEADER.unpack_from(content)
    (count,) = _COUNT.unpack_from(content, _SNAPSHOT_HEADER.size)
    if version != _SNAPSHOT_VERSION or crc32c(content[_SNAPSHOT_HEADER.size :]) != checksum:
        raise CorruptSnapshot(f"version {version} or checksum")
    if len(content) != start + count * _ENTRY.size:
        raise CorruptSnapshot(f"{count} entries in {len(content)} bytes")
    return _ENTRY.iter_unpack(content[start:])
