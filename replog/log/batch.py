"""Record batches, version 2: what producers send, logs store and replicas copy, as views of their bytes.

A batch is a fixed header of 61 bytes and records behind it. Nearly all of the system needs the header only:
offsets, sizes, timestamps and the producer's fields stand there, and the CRC-32C covers everything from the
attributes on. The three fields a leader sets (base offset, length, leader epoch) lie before the checksum, so a
batch travels from socket to disk to socket as it is; that its records are any was seen when it was produced
(`replog/log/client_records.py`). Records are read (`records`) only where their content is the point: control markers, time look-ups inside one batch, compaction, internal topics.

Words: `position` is where a batch starts in its buffer or file; `size` is header and records in bytes;
`next_offset` is the offset behind the batch. Unknown producer ids, epochs and sequences are -1.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from operator import itemgetter
from struct import Struct as Layout
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from replog.log.compression import BadCompression, Codec, packed, unpacked
from replog.ports import Buffer

HEADER: Final = Layout(">qiibIhiqqqhii")
PREFIX: Final = Layout(">qii")  # base offset, length, leader epoch: what a leader stamps, outside the CRC
HEADER_BYTES: Final = HEADER.size
PREFIX_BYTES: Final = PREFIX.size
OVERHEAD_BYTES: Final = 12  # base offset and length itself are not counted by the length field
CRC_START: Final = 21  # the attributes: first byte the CRC covers
MAGIC: Final = 2

CODEC_MASK: Final = 0b111
LOG_APPEND_TIME: Final = 0b1000
TRANSACTIONAL: Final = 0b10000
CONTROL: Final = 0b100000

SEQUENCE_MODULUS: Final = 1 << 31
NO_TIMESTAMP: Final = -1

_CRC_AND_REST: Final = Layout(">hiqqqhii")
_CONTROL_KEY: Final = Layout(">hh")
_END_TXN_VALUE: Final = Layout(">hi")
_SHORT: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(128))  # what a varint of one byte says
_RECORD: Final = itemgetter(0)  # without the position behind it


class ControlType(IntEnum):
    """What a control batch says: the second number of its record's key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class CorruptBatch(Exception):
    """Bytes that should be a record batch are not one.

    origin:    the file, or what else the bytes came from.
    position:  where the batch starts in it.
    """

    def __init__(self, origin: str, position: int, reason: str) -> None:
        super().__init__(f"{origin or 'batch'} at {position}: {reason}")
        self.origin = origin
        self.position = position
        self.reason = reason


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """The fixed fields of one batch and where it stands in its buffer."""

    position: int
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def size(self) -> int:
        """Bytes of header and records."""
        return self.length + OVERHEAD_BYTES

    @property
    def end(self) -> int:
        """Position behind the batch."""
        return self.position + self.length + OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """Offset of the last record (also when compaction removed it)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset behind the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapped at 2^31; -1 without sequences."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS

    @property
    def codec(self) -> int:
        """Number of the compression codec; may be one we do not know."""
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        """Return whether the batch belongs to a transaction (data or marker)."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Return whether the batch is a marker for brokers rather than data for consumers."""
        return bool(self.attributes & CONTROL)

    @property
    def is_log_append_time(self) -> bool:
        """Return whether `max_timestamp_ms` is the time of the append, for every record."""
        return bool(self.attributes & LOG_APPEND_TIME)


class NewRecord(NamedTuple):
    """A record to be put into a batch; `timestamp_ms` None means the batch's."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record read out of a batch, with absolute offset and timestamp."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class EndTransaction(NamedTuple):
    """What an end marker of a transaction says."""

    control_type: ControlType
    coordinator_epoch: int


def header_at(buffer: Buffer, position: int, origin: str = "", buffer_start: int = 0) -> BatchHeader:
    """Return the header that starts at `position`; the batch may reach beyond the buffer.

    buffer_start:  where the buffer begins in its file; the header's position is given in the file.
    Raises `CorruptBatch` when fewer than 61 bytes are left or what stands there cannot be a batch.
    """
    if len(buffer) - position < HEADER_BYTES:
        raise CorruptBatch(origin, buffer_start + position, "torn header")
    header = BatchHeader(buffer_start + position, *HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise CorruptBatch(origin, header.position, f"magic {header.magic}")
    if header.length < HEADER_BYTES - OVERHEAD_BYTES:
        raise CorruptBatch(origin, header.position, f"length {header.length}")
    if header.last_offset_delta < 0 or header.base_offset < 0:
        raise CorruptBatch(origin, header.position, "negative offset")
    return header


def batches(buffer: Buffer, origin: str = "", position: int = 0) -> Iterator[BatchHeader]:
    """Yield the header of every batch in the buffer, without looking at checksums.

    Raises `CorruptBatch` when the buffer does not end with a whole batch.
    """
    end = len(buffer)
    while position < end:
        header = header_at(buffer, position, origin)
        position = header.end
        if position > end:
            raise CorruptBatch(origin, header.position, "torn batch")
        yield header


def fetched_batches(buffer: Buffer, origin: str = "") -> Iterator[BatchHeader]:
    """Yield the header of every whole batch of a fetched buffer, which may end within one more.

    Brokers of Apache Kafka answer with a piece of a file, as long as they were asked for, or as its first batch.
    Raises `CorruptBatch` when not even the first one is whole.
    """
    end, position = len(buffer), 0
    while position < end:
        if position and end - position < HEADER_BYTES:
            return
        header = header_at(buffer, position, origin)
        if header.end > end:
            if position:
                return
            raise CorruptBatch(origin, position, "torn batch")
        yield header
        position = header.end


def has_valid_crc(view: memoryview, header: BatchHeader) -> bool:
    """Return whether the batch's bytes are those that were written."""
    checksum: int = crc32c(view[header.position + CRC_START : header.end])
    return checksum == header.crc


def stamped(view: memoryview, header: BatchHeader, base_offset: int, leader_epoch: int) -> tuple[bytes, memoryview]:
    """Return the batch with offset and epoch set, in two parts: 16 new bytes and the rest untouched."""
    prefix = PREFIX.pack(base_offset, header.length, leader_epoch)
    return prefix, view[header.position + PREFIX_BYTES : header.end]


def with_append_time(view: memoryview, header: BatchHeader, now_ms: int) -> bytes:
    """Return the batch with all timestamps replaced by the time of the append, and a new CRC."""
    records_view = view[header.position + HEADER_BYTES : header.end]
    covered = _CRC_AND_REST.pack(
        header.attributes | LOG_APPEND_TIME,
        header.last_offset_delta,
        header.base_timestamp_ms,
        now_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.count,
    )
    checksum = crc32c(records_view, crc32c(covered))
    prefix = PREFIX.pack(header.base_offset, header.length, header.leader_epoch)
    return b"".join((prefix, bytes((MAGIC,)), checksum.to_bytes(4, "big"), covered, records_view))


# Building: for tests, internal topics, the metadata log and the simulated client.


def build(
    entries: Sequence[NewRecord],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
) -> bytes:
    """Return one batch of these records.

    producer:    (producer id, producer epoch, base sequence).
    attributes:  `TRANSACTIONAL`, `CONTROL`, `LOG_APPEND_TIME` and a codec or-ed together.
    """
    assert entries, "an empty batch has no last offset"
    base_timestamp_ms = timestamp_ms if entries[0].timestamp_ms is None else entries[0].timestamp_ms
    max_timestamp_ms = base_timestamp_ms
    content = bytearray()
    for offset_delta, entry in enumerate(entries):
        stamp = timestamp_ms if entry.timestamp_ms is None else entry.timestamp_ms
        max_timestamp_ms = max(max_timestamp_ms, stamp)
        _put_record(content, entry, stamp - base_timestamp_ms, offset_delta)
    return sealed(
        packed(content, attributes & CODEC_MASK),
        count=len(entries),
        last_offset_delta=len(entries) - 1,
        timestamps_ms=(base_timestamp_ms, max_timestamp_ms),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer=producer,
        attributes=attributes,
    )


def sealed(
    content: Buffer,
    *,
    count: int,
    last_offset_delta: int,
    timestamps_ms: tuple[int, int],
    base_offset: int,
    leader_epoch: int,
    producer: tuple[int, int, int],
    attributes: int,
) -> bytes:
    """Return header, checksum and the encoded records as one batch."""
    covered = _CRC_AND_REST.pack(attributes, last_offset_delta, *timestamps_ms, *producer, count)
    checksum = crc32c(content, crc32c(covered))
    prefix = PREFIX.pack(base_offset, HEADER_BYTES - OVERHEAD_BYTES + len(content), leader_epoch)
    return b"".join((prefix, bytes((MAGIC,)), checksum.to_bytes(4, "big"), covered, content))


def control_batch(
    control_type: ControlType,
    value: bytes,
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer: tuple[int, int] = (-1, -1),
    attributes: int = 0,
) -> bytes:
    """Return a control batch of one record: leader change and snapshot records of the metadata log."""
    return build(
        [NewRecord(_CONTROL_KEY.pack(0, control_type), value)],
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer=(*producer, -1),
        attributes=attributes | CONTROL,
    )


def control_batch_of(
    entries: Sequence[tuple[ControlType, bytes]], *, timestamp_ms: int, base_offset: int = 0, leader_epoch: int = -1
) -> bytes:
    """Return a control batch of several records; the first says what the batch is (`control_type`)."""
    return build(
        [NewRecord(_CONTROL_KEY.pack(0, kind), value) for kind, value in entries],
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=CONTROL,
    )


def end_transaction_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Return the marker that ends a producer's transaction on a partition."""
    return control_batch(
        ControlType.COMMIT if committed else ControlType.ABORT,
        _END_TXN_VALUE.pack(0, coordinator_epoch),
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer=(producer_id, producer_epoch),
        attributes=TRANSACTIONAL,
    )


# Reading records.


def records(view: Buffer, header: BatchHeader | None = None) -> Iterator[Record]:
    """Yield the records of one batch (the first of the buffer unless a header is given).

    Raises `CorruptBatch` on anything that is not what the header says: nobody has looked at the records before.
    """
    header = header or header_at(view, 0)
    content = _unpacked(view, header)
    return map(_RECORD, _records_in(content, header))


def _records_in(content: bytes, header: BatchHeader) -> Iterator[tuple[Record, int]]:
    """Yield each record with the position behind it."""
    position, next_offset = 0, header.base_offset
    last_offset = header.last_offset
    try:
        for _ in range(header.count):
            record, position = _record_at(content, position, header)
            offset = record.offset
            if not next_offset <= offset <= last_offset:
                raise ValueError(f"record of offset {offset}")
            next_offset = offset + 1
            yield record, position
    except (IndexError, ValueError) as problem:
        raise CorruptBatch("records", header.position, str(problem)) from None


def filtered(view: Buffer, header: BatchHeader, keep: Callable[[Record], bool]) -> tuple[bytes, int]:
    """Return the batch with only the records to keep, and how many those are: what compaction does.

    Offsets, sequences and the extent of the batch stay; a batch may become empty. Raises as `records` does.
    """
    content = _unpacked(view, header)
    kept = bytearray()
    start = count = 0
    max_timestamp_ms = NO_TIMESTAMP
    for record, end in _records_in(content, header):
        if keep(record):
            kept += content[start:end]
            count += 1
            max_timestamp_ms = max(max_timestamp_ms, record.timestamp_ms)
        start = end
    if count == 0 or header.is_log_append_time:
        max_timestamp_ms = header.max_timestamp_ms
    codec = header.codec if count else Codec.NONE
    batch = sealed(
        packed(kept, codec),
        count=count,
        last_offset_delta=header.last_offset_delta,
        timestamps_ms=(header.base_timestamp_ms, max_timestamp_ms),
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer=(header.producer_id, header.producer_epoch, header.base_sequence),
        attributes=header.attributes & ~CODEC_MASK | codec,
    )
    return batch, count


def control_type(view: Buffer, header: BatchHeader) -> int:
    """Return what the first record of a control batch is; see `ControlType` for those known."""
    return next(control_records(view, header))[0]


def control_records(view: Buffer, header: BatchHeader) -> Iterator[tuple[int, bytes]]:
    """Yield what each record of a control batch is, and its value.

    Apache Kafka's quorum writes several of different types into one batch: who leads, and who votes.
    """
    assert header.is_control
    count = 0
    for record in () if header.codec else records(view, header):
        if record.key is None or len(record.key) < _CONTROL_KEY.size:
            break
        count += 1
        yield int(_CONTROL_KEY.unpack_from(record.key)[1]), record.value or b""
    if count == 0 or count < header.count:
        raise CorruptBatch("control batch", header.position, "no key")


def end_transaction(view: Buffer, header: BatchHeader) -> EndTransaction | None:
    """Return what an end marker says; None for control batches of other kinds."""
    if header.attributes & (CONTROL | TRANSACTIONAL) != CONTROL | TRANSACTIONAL:
        return None
    kind = control_type(view, header)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    value = next(records(view, header)).value
    if value is None or len(value) < _END_TXN_VALUE.size:
        raise CorruptBatch("end marker", header.position, "no value")
    return EndTransaction(ControlType(kind), _END_TXN_VALUE.unpack_from(value)[1])


def _unpacked(view: Buffer, header: BatchHeader) -> bytes:
    try:
        return unpacked(memoryview(view)[header.position + HEADER_BYTES : header.end], header.codec)
    except BadCompression as problem:
        raise CorruptBatch("records", header.position, str(problem)) from None


def _put_record(content: bytearray, entry: NewRecord, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(1)  # attributes of a record: none are defined
    _put_varint(body, timestamp_delta)
    _put_varint(body, offset_delta)
    _put_bytes(body, entry.key)
    _put_bytes(body, entry.value)
    _put_varint(body, len(entry.headers))
    for name, value in entry.headers:
        _put_bytes(body, name.encode())
        _put_bytes(body, value)
    _put_varint(content, len(body))
    content += body


def _put_varint(content: bytearray, number: int) -> None:
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    while zigzag > 127:
        content.append(zigzag & 127 | 128)
        zigzag >>= 7
    content.append(zigzag)


def _put_bytes(content: bytearray, value: bytes | None) -> None:
    if value is None:
        content.append(1)  # zigzag of -1
    else:
        _put_varint(content, len(value))
        content += value


def _varint_at(content: bytes, position: int) -> tuple[int, int]:
    zigzag = shift = 0
    while True:
        byte = content[position]
        position += 1
        zigzag |= (byte & 127) << shift
        if byte < 128:
            return (zigzag >> 1) ^ -(zigzag & 1), position
        shift += 7
        if shift > 63:
            raise ValueError("varint longer than 64 bits")


def _bytes_at(content: bytes, position: int) -> tuple[bytes | None, int]:
    byte = content[position]
    if byte < 128:
        length, position = _SHORT[byte], position + 1
    else:
        length, position = _varint_at(content, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(content):
        raise ValueError("torn record")
    return content[position:end], end


def _record_at(content: bytes, position: int, header: BatchHeader) -> tuple[Record, int]:
    length, position = _varint_at(content, position)
    end = position + length
    if length < 0 or end > len(content):
        raise ValueError("torn record")
    numbers = content[position + 1 : position + 3]
    if len(numbers) == 2 and numbers.isascii():  # nearly always of one byte each
        timestamp_delta, offset_delta = _SHORT[numbers[0]], _SHORT[numbers[1]]
        position += 3
    else:
        timestamp_delta, position = _varint_at(content, position + 1)
        offset_delta, position = _varint_at(content, position)
    key, position = _bytes_at(content, position)
    value, position = _bytes_at(content, position)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if content[position]:  # one byte 0: no headers
        headers = _headers_at(content, position)
    timestamp_ms = (
        header.max_timestamp_ms if header.attributes & LOG_APPEND_TIME else header.base_timestamp_ms + timestamp_delta
    )
    return Record(header.base_offset + offset_delta, timestamp_ms, key, value, headers), end


def _headers_at(content: bytes, position: int) -> tuple[tuple[str, bytes | None], ...]:
    count, position = _varint_at(content, position)
    headers = []
    for _ in range(count):
        name, position = _bytes_at(content, position)
        value, position = _bytes_at(content, position)
        headers.append(((name or b"").decode(errors="replace"), value))
    return tuple(headers)
