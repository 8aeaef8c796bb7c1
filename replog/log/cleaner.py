"""Log compaction: of the records with one key, keep the last (topics with `cleanup.policy=compact`).

Sealed segments are cleaned one by one, up to what is committed, decided and durable: nothing at or above the
high watermark, the last stable offset or the flushed offset is touched, so that no replica and no transaction
can lose what it still needs. Offsets never change: batches shrink, and go when nothing of them is left. Four
things stay though no reader wants them: a segment's last batch (it says where the segment ends, recovery.py),
the last batch of each producer (its sequence), end markers, and tombstones until `tombstone_retention_ms` have
passed, so that consumers on their way through the log hear of the deletion. Records of aborted transactions go,
and never stand for their key. Batches whose codec can't be read here stay as they are: nothing wrong, only
larger.

The work comes in steps, between which the caller may do other things: appends and reads go on, truncation ends it.

How far a log was cleaned stands in `cleaner-offset-checkpoint` in its directory. Its presence also says that
the log has holes.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from replog.log.batch import BatchHeader, Record, UnsupportedCodec, filtered, header_at, records
from replog.log.checkpoints import CorruptCheckpoint, parsed_lines, rendered
from replog.log.log import Log
from replog.log.recovery import CLEANER_FILE
from replog.log.segment import SCAN_BYTES, Segment
from replog.ports import File

NOWHERE: Final = 0
STEP_BYTES: Final = 128 * 1024  # some milliseconds of work


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
        self.segments = self._cleanable(high_watermark)
        self.last_offsets: dict[bytes, int] = {}
        self.cleaned: Cleaned | None = None
        self._truncation_count = log.truncation_count
        self._step_bytes = 0

    def run(self) -> Cleaned | None:
        """Clean if enough has come since the last time; None when there was nothing to do."""
        for file in self.steps():
            if file is not None:
                file.sync()
        return self.cleaned

    def steps(self) -> Iterator[File | None]:
        """Clean step by step; a file that comes out has to be synced before the next step.

        Whoever gives up in between leaves nothing wrong behind.
        """
        if not self.log.settings.compacts or not self._is_worth_it():
            return
        end_offset = self.segments[-1].next_offset
        for segment in self.segments:
            yield from self._note_keys(segment)
        before = self.log.size
        self._save_checkpoint(end_offset)  # first, so that holes are expected before there are any
        for segment in self.segments:
            yield from self._clean(segment)
        self.cleaned = Cleaned(end_offset, before, self.log.size)

    def _cleanable(self, high_watermark: int) -> list[Segment]:
        log = self.log
        limit = min(log.last_stable_offset(high_watermark), log.flushed_offset)
        segments: list[Segment] = []
        for segment, following in zip(log.segments, log.segments[1:], strict=False):
            lag_ms_min = log.settings.compaction_lag_ms_min
            is_young = lag_ms_min > 0 and self.now_ms - segment.largest_timestamp_ms < lag_ms_min
            if following.base_offset > limit or is_young:
                break
            segments.append(segment)
        return segments

    def _is_worth_it(self) -> bool:
        if not self.segments:
            return False
        first_dirty_offset = cleaned_to(self.log)
        dirty = [segment for segment in self.segments if segment.next_offset > first_dirty_offset]
        if not dirty:
            return False
        first_ms = dirty[0].first_timestamp_ms
        if first_ms is not None and self.now_ms - first_ms > self.log.settings.compaction_lag_ms_max:
            return True
        total = sum(segment.size for segment in self.segments)
        return sum(segment.size for segment in dirty) >= self.log.settings.cleanable_share_min * total

    def _is_void(self, segment: Segment) -> bool:
        """Tell whether the segment was deleted meanwhile, or the offsets seen mean something else now."""
        return self._truncation_count != self.log.truncation_count or segment not in self.log.segments

    def _is_time(self, header: BatchHeader) -> bool:
        self._step_bytes += header.size
        if self._step_bytes < STEP_BYTES:
            return False
        self._step_bytes = 0
        return True

    def _note_keys(self, segment: Segment) -> Iterator[None]:
        if self._is_void(segment):
            return
        for header in segment.headers(chunk_bytes=SCAN_BYTES):
            if self._is_time(header):
                yield
                if self._is_void(segment):
                    return
            if header.is_control or self._is_aborted(header):
                continue
            content = segment.batch_bytes(header)
            try:
                for record in records(content, header_at(content, 0)):
                    if record.key is not None:
                        self.last_offsets[record.key] = record.offset
            except UnsupportedCodec:
                continue

    def _clean(self, segment: Segment) -> Iterator[File | None]:
        if self._is_void(segment):
            return
        file = segment.begin_replacement()
        for header in segment.headers(chunk_bytes=SCAN_BYTES):
            if self._is_time(header):
                yield None
                if self._is_void(segment):
                    segment.drop_replacement(file)
                    return
            content = segment.batch_bytes(header)
            kept = content if header.is_control else self._shrunk(segment, header, content)
            if kept:
                file.append(kept)
        if file.size() < segment.size:
            yield file
            if not self._is_void(segment):
                segment.replace(file)
                return
        segment.drop_replacement(file)

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
