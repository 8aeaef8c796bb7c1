"""Log compaction: of the records with one key, keep the last (topics with `cleanup.policy=compact`).

Sealed segments are cleaned one by one, up to what is committed, decided and durable: nothing at or above the
high watermark, the last stable offset or the flushed offset is touched, so that no replica and no transaction
can lose what it still needs. Offsets never change: batches shrink, and go when nothing of them is left. Four
things stay though no reader wants them: a segment's last batch (it says where the segment ends, recovery.py),
the last batch of each producer (its sequence), end markers, and tombstones until `tombstone_retention_ms` have
passed, so that consumers on their way through the log hear of the deletion. Records of aborted transactions go,
and never stand for their key. Batches whose codec can't be read here stay as they are: nothing wrong, only
larger.

How far a log was cleaned stands in `cleaner-offset-checkpoint` in its directory. Its presence also says that
the log has holes.
"""

from typing import Final

import msgspec

from replog.log.batch import BatchHeader, Record, UnsupportedCodec, filtered, header_at, records
from replog.log.checkpoints import CorruptCheckpoint, parsed_lines, rendered
from replog.log.log import Log
from replog.log.recovery import CLEANER_FILE
from replog.log.segment import SCAN_BYTES, Segment

NOWHERE: Final = 0


class Cleaned(msgspec.Struct, frozen=True):
    """What one cleaning did."""

    end_offset: int
    bytes_before: int
    bytes_after: int


class Cleaner:
    """One cleaning of one log."""

    def __init__(self, log: Log, *, high_watermark: int, now_ms: int) -> None:
        self.log = log
        self.now_ms = now_ms
        limit = min(log.last_stable_offset(high_watermark), log.flushed_offset)
        sealed = zip(log.segments, log.segments[1:], strict=False)
        self.segments = [segment for segment, following in sealed if following.base_offset <= limit]
        self.last_offsets: dict[bytes, int] = {}

    def run(self) -> Cleaned | None:
        """Clean if enough has come since the last time; None when there was nothing to do."""
        if not self.log.settings.compacts or not self._is_worth_it():
            return None
        end_offset = self.segments[-1].next_offset
        for segment in self.segments:
            self._note_keys(segment)
        before = self.log.size
        self._save_checkpoint(end_offset)  # first, so that holes are expected before there are any
        for segment in self.segments:
            self._clean(segment)
        return Cleaned(end_offset, before, self.log.size)

    def _is_worth_it(self) -> bool:
        first_dirty_offset = cleaned_to(self.log)
        dirty = sum(segment.size for segment in self.segments if segment.next_offset > first_dirty_offset)
        total = sum(segment.size for segment in self.segments)
        return dirty > 0 and dirty >= self.log.settings.cleanable_share_min * total

    def _note_keys(self, segment: Segment) -> None:
        for header in segment.headers(chunk_bytes=SCAN_BYTES):
            if header.is_control or self._is_aborted(header):
                continue
            content = segment.batch_bytes(header)
            try:
                for record in records(content, header_at(content, 0)):
                    if record.key is not None:
                        self.last_offsets[record.key] = record.offset
            except UnsupportedCodec:
                continue

    def _clean(self, segment: Segment) -> None:
        kept: list[bytes] = []
        for header in segment.headers(chunk_bytes=SCAN_BYTES):
            content = segment.batch_bytes(header)
            kept.append(content if header.is_control else self._shrunk(segment, header, content))
        if sum(map(len, kept)) < segment.size:
            segment.replace_content(b"".join(kept))

    def _shrunk(self, segment: Segment, header: BatchHeader, content: bytes) -> bytes:
        is_aborted = self._is_aborted(header)
        try:
            shrunk, count = filtered(
                content, header_at(content, 0), lambda record: not is_aborted and self._is_wanted(record)
            )
        except UnsupportedCodec:
            return content
        if count == header.count:
            return content
        return shrunk if count or self._is_needed_empty(segment, header) else b""

    def _is_wanted(self, record: Record) -> bool:
        if record.key is None:
            return True
        if record.offset < self.last_offsets.get(record.key, record.offset):
            return False
        return record.value is not None or self.now_ms - record.timestamp_ms <= self.log.settings.tombstone_retention_ms

    def _is_needed_empty(self, segment: Segment, header: BatchHeader) -> bool:
        if header.next_offset == segment.next_offset:
            return True
        producer = self.log.producers.get(header.producer_id)
        return bool(producer and producer.recent and producer.recent[-1].last_offset == header.last_offset)

    def _is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return False
        return any(
            aborted.producer_id == header.producer_id and aborted.first_offset <= header.base_offset
            for aborted in self.log.aborted_transactions(header.base_offset, header.next_offset)
        )

    def _save_checkpoint(self, end_offset: int) -> None:
        self.log.disk.replace_file(_path(self.log), rendered([str(end_offset)]))


def cleaned_to(log: Log) -> int:
    """Return the offset up to which a log was cleaned, 0 if never; truncation may have gone below it."""
    if not log.disk.exists(_path(log)):
        return NOWHERE
    try:
        lines = parsed_lines(log.disk.read_file(_path(log)), fields=1, numbers=(0,))
    except CorruptCheckpoint:
        return NOWHERE
    return min(int(lines[0][0]), log.log_end_offset) if lines else NOWHERE


def _path(log: Log) -> str:
    return f"{log.directory}/{CLEANER_FILE}"
