"""Log compaction: of the records with one key, keep the last (topics with `cleanup.policy=compact`).

Sealed segments are cleaned one by one, up to what is committed, decided and durable: nothing at or above the
high watermark, the last stable offset or the flushed offset is touched, so that no replica and no transaction
can lose what it still needs. Offsets never change: batches shrink, and go when nothing of them is left. Records of
aborted transactions go, and never stand for their key. Some things stay though no reader wants them:

- the last batch of each producer (its sequence), without records if need be;
- the last batch of all while nothing stands behind it: readers are to reach the log's end;
- tombstones, and end markers of transactions whose records are all gone, until `tombstone_retention_ms` after the first
  cleaning that went over them: a consumer on its way through the log may have read what they end (KIP-534);
- the last end marker of each producer that is still known (its epoch);
- batches whose records can't be read: what a client has put there is its own business.

The work comes in steps, between which the caller may do other things: appends and reads go on, truncation ends it.

No more empty batches stay than these: a client that is sent nothing else, answer after answer, takes its limits for too small.

How far a log was cleaned, and when, stands in `cleaner-offset-checkpoint` in its directory, once that is done. The file's presence
also says that the log may have holes (see `Log.expects_gaps`), and what it says, up to where whole ends of segments may be
missing: that is there before a cleaning begins, under a time that never comes. What it did not come to is as it was, and is cleaned again.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from replog.log.batch import BatchHeader, CorruptBatch, Record, end_transaction, filtered, header_at, records
from replog.log.checkpoints import rendered
from replog.log.log import Log
from replog.log.recovery import CLEANER_FILE, Cleaning, cleanings
from replog.log.segment import SCAN_BYTES, Segment
from replog.ports import File

NOWHERE: Final = 0
STEP_BYTES: Final = 128 * 1024  # some milliseconds of work
NEVER_MS: Final = (1 << 63) - 1  # when a cleaning was that has begun, and did not come to its end
CLEANINGS_MAX: Final = 24  # of one retention time are remembered apart


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
        self.end_offset = NOWHERE
        self.segments = self._cleanable(high_watermark)
        self.last_offsets: dict[bytes, int] = {}
        self.last_markers: dict[int, int] = {}  # by producer id
        known = cleanings(log.disk, log.directory)
        self.cleanings = [one for one in known if one.at_ms != NEVER_MS]
        self._begun_to = max((one.end_offset for one in known), default=NOWHERE)
        # What lies below was cleaned so long ago that every consumer has passed what its end marker or tombstone ends.
        self.horizon = self._horizon()
        self._unended: dict[int, None] = {}  # producers of which records stay, since their last marker
        # Producers that are known now, with the last offsets of their last batches. Of one that is forgotten meanwhile a batch may have
        # been kept already: without its end marker that would be a transaction without an end.
        self._known = {p.producer_id: p.recent[-1].last_offset if p.recent else None for p in log.producers}
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
        end_offset = self.end_offset
        for segment in self.segments:
            yield from self._note_keys(segment)
        before = self.log.size
        self._begun_to = max(self._begun_to, end_offset)
        self._save(self.cleanings)  # first, so that holes are expected before there are any
        for segment in self.segments:
            yield from self._clean(segment)
        if self._truncation_count == self.log.truncation_count:
            self._save([*self._recent(), Cleaning(end_offset, self.now_ms)])
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
            self.end_offset = following.base_offset
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
        """Return whether the segment was deleted meanwhile, or the offsets seen mean something else now."""
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
            if header.is_control:
                self.last_markers[header.producer_id] = header.base_offset
            elif not self._is_aborted(header):
                self.last_offsets.update(self._keys(segment.batch_bytes(header)))

    def _keys(self, content: bytes) -> dict[bytes, int]:
        """Return the last offset of each key in a batch; none where the records can't be read."""
        try:
            return {r.key: r.offset for r in records(content, header_at(content, 0)) if r.key is not None}
        except CorruptBatch:
            return {}

    def _clean(self, segment: Segment) -> Iterator[File | None]:
        if self._is_void(segment):
            return
        file = segment.begin_replacement()
        dropped_markers: dict[int, None] = {}
        for header in segment.headers(chunk_bytes=SCAN_BYTES):
            if self._is_time(header):
                yield None
                if self._is_void(segment):
                    segment.drop_replacement(file)
                    return
            content = segment.batch_bytes(header)
            if header.is_control:
                kept = self._marker(segment, header, content)
                if not kept:
                    dropped_markers[header.base_offset] = None
            else:
                kept = self._shrunk(segment, header, content)
            if kept:
                file.append(kept)
        if file.size() < segment.size:
            yield file
            if not self._is_void(segment):
                segment.replace(file, dropped_markers)
                return
        segment.drop_replacement(file)

    def _shrunk(self, segment: Segment, header: BatchHeader, content: bytes) -> bytes:
        is_aborted = self._is_aborted(header)
        try:
            shrunk, count = filtered(
                content, header_at(content, 0), lambda record: not is_aborted and self._is_wanted(record)
            )
        except CorruptBatch:
            shrunk, count = content, header.count
        if count and header.is_transactional:
            self._unended[header.producer_id] = None
        if count == header.count and count:
            return content
        return shrunk if count or self._is_needed_empty(segment, header) else b""

    def _is_wanted(self, record: Record) -> bool:
        if record.key is None:
            return True
        if record.offset < self.last_offsets.get(record.key, record.offset):
            return False
        return record.value is not None or record.offset >= self.horizon

    def _marker(self, segment: Segment, header: BatchHeader, content: bytes) -> bytes:
        """Return a control batch if it stays: while its transaction's records do, and long enough after them."""
        if end_transaction(content, header_at(content, 0)) is None:
            return content
        has_records = self._unended.pop(header.producer_id, "no") is None
        is_last = self.last_markers[header.producer_id] == header.base_offset
        is_needed = is_last and header.producer_id in self._known
        if has_records or is_needed or header.base_offset >= self.horizon:
            return content
        return content if self._is_last_of_all(segment, header) else b""

    def _is_last_of_all(self, segment: Segment, header: BatchHeader) -> bool:
        active = self.log.segments[-1]
        is_last = segment is self.segments[-1] and header.next_offset == segment.next_offset
        return is_last and active.size == 0 and self.end_offset == active.base_offset

    def _is_needed_empty(self, segment: Segment, header: BatchHeader) -> bool:
        if self._is_last_of_all(segment, header):
            return True
        return self._known.get(header.producer_id) == header.last_offset

    def _is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return False
        return any(
            aborted.producer_id == header.producer_id and aborted.first_offset <= header.base_offset
            for aborted in self.log.aborted_transactions(header.base_offset, header.next_offset)
        )

    def _horizon(self) -> int:
        long_ago_ms = self.now_ms - self.log.settings.tombstone_retention_ms
        return max(
            (cleaning.end_offset for cleaning in self.cleanings if cleaning.at_ms < long_ago_ms), default=NOWHERE
        )

    def _recent(self) -> list[Cleaning]:
        """Return the cleanings that the horizon will still be taken from besides this one."""
        recent = [cleaning for cleaning in self.cleanings if cleaning.end_offset > self.horizon]
        # Between two of a log's cleanings that come close, the later one can stand for both: little stays longer for it.
        apart_ms = self.log.settings.tombstone_retention_ms // CLEANINGS_MAX
        if len(recent) > 1 and recent[-1].at_ms - recent[-2].at_ms < apart_ms:
            recent.pop()
        return [Cleaning(self.horizon, NOWHERE), *recent] if self.horizon else recent

    def _save(self, known: Sequence[Cleaning]) -> None:
        """Remember these cleanings, and that one may have begun behind them."""
        is_done = any(cleaning.end_offset >= self._begun_to for cleaning in known)
        begun = [] if is_done else [Cleaning(self._begun_to, NEVER_MS)]
        lines = [f"{cleaning.end_offset} {cleaning.at_ms}" for cleaning in (*known, *begun)]
        self.log.disk.replace_file(_path(self.log), rendered(lines))
        self.log.expects_gaps = True


def cleaned_to(log: Log) -> int:
    """Return the offset up to which a log was cleaned, 0 if never; truncation may have gone below it."""
    found = [one for one in cleanings(log.disk, log.directory) if one.at_ms != NEVER_MS]
    return min(max((cleaning.end_offset for cleaning in found), default=NOWHERE), log.log_end_offset)


def _path(log: Log) -> str:
    return f"{log.directory}/{CLEANER_FILE}"
