"""Whether batches may enter a log: what producers sent, and what a leader sent (SPEC 3.7.1, 6.2.6).

A leader answers a producer with an error code and appends nothing. A follower that is sent nonsense raises
`CorruptBatch`: its leader's bytes were damaged on the way or on a disk, and asking again may help.
"""

from enum import Enum, auto
from typing import Final

from replog.errors import Error
from replog.log.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    OVERHEAD_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    EndTransaction,
    batches,
    end_transaction,
    fetched_batches,
    has_valid_crc,
)
from replog.log.client_records import BadRecords, examined
from replog.log.compression import BadCompression, Codec, TooLarge, check_framing, unpacked
from replog.log.segment import RELATIVE_OFFSET_MAX
from replog.log.settings import LogSettings

LAST_CODEC: Final = max(Codec)
EXPANSION_MAX: Final = 32  # times `max.message.bytes`: what the records of one batch may be when they are unpacked


Checked = list[BatchHeader] | Error  # what was found of batches: their headers, or what to answer


class Origin(Enum):
    """Who made the batches that a leader appends."""

    CLIENT = auto()  # anybody: everything is checked
    COORDINATOR = auto()  # our own broker: markers, offsets, transaction states
    QUORUM = auto()  # our own controller: metadata records, leader changes


def admitted(view: memoryview, settings: LogSettings, *, origin: Origin, now_ms: int) -> Checked:
    """Return the headers of batches that a leader may append, or the error to answer with."""
    headers: list[BatchHeader] = []
    try:
        for header in batches(view):
            if not has_valid_crc(view, header):
                return Error.CORRUPT_MESSAGE
            if origin is Origin.CLIENT:
                error = _client_error(header, settings, now_ms) or _records_error(view, header, settings, now_ms)
                if error:
                    return error
            headers.append(header)
    except CorruptBatch:
        return Error.INVALID_RECORD if is_old_format(view) else Error.CORRUPT_MESSAGE
    if not headers or (len(headers) > 1 and any(header.producer_id >= 0 for header in headers)):
        return Error.INVALID_RECORD  # SPEC 4.1.7: one batch with sequences a partition
    if sum(header.last_offset_delta for header in headers) + len(headers) > RELATIVE_OFFSET_MAX:
        return Error.INVALID_RECORD  # the index of one segment could not name them all
    # What a controller decides at once is one batch, and has to be written, however large: such a segment has this batch alone.
    is_too_large = len(view) > settings.segment_bytes and origin is not Origin.QUORUM
    return Error.RECORD_LIST_TOO_LARGE if is_too_large else headers


def is_old_format(view: memoryview) -> bool:
    """Return whether this is a message set of magic 0 or 1: refused, but not damaged."""
    return len(view) > 16 and view[16] < MAGIC


def _client_error(header: BatchHeader, settings: LogSettings, now_ms: int) -> Error:
    attributes = header.attributes
    if header.length + OVERHEAD_BYTES > settings.message_bytes_max:
        return Error.MESSAGE_TOO_LARGE
    if attributes & CONTROL or header.count <= 0 or header.count != header.last_offset_delta + 1:
        return Error.INVALID_RECORD
    if attributes & CODEC_MASK > LAST_CODEC:
        return Error.UNSUPPORTED_COMPRESSION_TYPE
    if header.producer_id >= 0:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            return Error.INVALID_RECORD
    elif attributes & TRANSACTIONAL:
        return Error.INVALID_RECORD
    return Error.NONE if settings.log_append_time else _timestamp_error(header, settings, now_ms)


def _timestamp_error(header: BatchHeader, settings: LogSettings, now_ms: int) -> Error:
    if header.attributes & LOG_APPEND_TIME:
        return Error.INVALID_TIMESTAMP  # only brokers stamp so
    latest_ms = header.max_timestamp_ms
    if latest_ms == NO_TIMESTAMP:
        return Error.NONE
    if latest_ms < header.base_timestamp_ms or latest_ms - now_ms > settings.timestamp_after_ms_max:
        return Error.INVALID_TIMESTAMP
    if now_ms - header.base_timestamp_ms > settings.timestamp_before_ms_max:
        return Error.INVALID_TIMESTAMP
    return Error.NONE


def _records_error(view: memoryview, header: BatchHeader, settings: LogSettings, now_ms: int) -> Error:
    """Look at the records themselves, as Kafka's validator does: no checksum says that they are any."""
    try:
        packed, codec = view[header.position + HEADER_BYTES : header.end], header.attributes & CODEC_MASK
        content = unpacked(packed, codec, size_max=EXPANSION_MAX * settings.message_bytes_max)
        check_framing(packed, codec)
        found = examined(content, header.count)
    except TooLarge:
        return Error.MESSAGE_TOO_LARGE  # clients split such a batch
    except BadCompression:
        return Error.CORRUPT_MESSAGE
    except BadRecords:
        return Error.INVALID_RECORD
    if settings.compacts and found.has_null_key:
        return Error.INVALID_RECORD
    if settings.log_append_time:
        return Error.NONE
    base_ms = header.base_timestamp_ms
    if base_ms + found.highest_delta_ms != header.max_timestamp_ms:
        return Error.INVALID_TIMESTAMP  # look-ups by time, and retention, go by the batch's
    is_too_old = now_ms - base_ms - found.lowest_delta_ms > settings.timestamp_before_ms_max
    return Error.INVALID_TIMESTAMP if is_too_old and header.max_timestamp_ms != NO_TIMESTAMP else Error.NONE


class UnexpectedGap(CorruptBatch):
    """A batch is whole but not the next one: its leader's log was compacted, or its offset is damaged."""


def copied(
    view: memoryview, *, log_end_offset: int, latest_epoch: int, leader_epoch: int | None, gaps_allowed: bool
) -> list[BatchHeader]:
    """Return the headers of batches that a follower may append as they are; the view may end within another one.

    leader_epoch:  the leader's; no batch of it is of a later one. None where nobody says.
    gaps_allowed:  compaction leaves holes between batches; elsewhere a hole is a damaged base offset,
                   which no checksum covers (`UnexpectedGap`).
    Raises `CorruptBatch` on the first one that is damaged or out of order.
    """
    headers: list[BatchHeader] = []
    for header in fetched_batches(view, "fetched"):
        if not has_valid_crc(view, header):
            raise CorruptBatch("fetched", header.position, "checksum")
        if header.base_offset != log_end_offset and (header.base_offset < log_end_offset or not gaps_allowed):
            reason = f"offset {header.base_offset} where {log_end_offset} comes next"
            kind = CorruptBatch if header.base_offset < log_end_offset else UnexpectedGap
            raise kind("fetched", header.position, reason)
        if header.leader_epoch < latest_epoch:
            raise CorruptBatch("fetched", header.position, f"epoch {header.leader_epoch} after {latest_epoch}")
        if leader_epoch is not None and header.leader_epoch > leader_epoch:
            raise CorruptBatch("fetched", header.position, f"epoch {header.leader_epoch} of a leader in {leader_epoch}")
        log_end_offset = header.next_offset
        latest_epoch = header.leader_epoch
        headers.append(header)
    return headers


def first_gap(headers: list[BatchHeader], next_offset: int) -> str | None:
    """Describe the first hole in front of or between batches, None when there is none."""
    for header in headers:
        if header.base_offset != next_offset:
            return f"offset {header.base_offset} where {next_offset} comes next"
        next_offset = header.next_offset
    return None


def markers(view: memoryview, headers: list[BatchHeader]) -> dict[int, EndTransaction]:
    """Return what the end markers among the batches say, by position; `CorruptBatch` if one says nothing."""
    found: dict[int, EndTransaction] = {}
    for header in headers:
        marker = end_transaction(view, header) if header.attributes & CONTROL else None
        if marker is not None:
            found[header.position] = marker
    return found
