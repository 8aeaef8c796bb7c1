"""One partition's log: append, read, truncate, flush, and know what can be relied on.

The log is synchronous and belongs to the node's only thread. Offsets below `flushed_offset` (Kafka's recovery
point) survive a power loss; those up to `log_end_offset` survive the process. Batches are never taken apart:
`append` writes 16 new bytes in front of the producer's own, `read` is one positioned read of whole batches.

It does not know the high watermark: who calls `read` or `delete_old_segments` says how far is committed. Times
are wall-clock milliseconds (`Clock.wall_ms`), as record timestamps are.

After an `OSError` from any method the partition's directory can't be trusted by this process any more: stop
using it.
"""

import base64
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec import structs

from replog.errors import Error
from replog.log.batch import (
    NO_TIMESTAMP,
    OVERHEAD_BYTES,
    BatchHeader,
    CorruptBatch,
    EndTransaction,
    batches,
    has_valid_crc,
    records,
    stamped,
    with_append_time,
)
from replog.log.checkpoints import rendered
from replog.log.creation import PARTITION_METADATA_FILE, partition_metadata
from replog.log.epochs import EpochCache
from replog.log.producers import Duplicate, ProducerStates
from replog.log.recovery import (
    CLEANER_FILE,
    EPOCHS_FILE,
    SNAPSHOT_SUFFIX,
    Cut,
    Opened,
    Recovery,
    forget_cleanings,
    load_producers,
    snapshot_offsets,
    snapshot_path,
)
from replog.log.segment import RELATIVE_OFFSET_MAX, AbortedTransaction, Segment, file_name
from replog.log.settings import LogSettings
from replog.log.validation import Checked, Origin, UnexpectedGap, admitted, copied, first_gap, markers
from replog.ports import Buffer, Disk, File, NewFolder

CLOSED_TOGETHER: Final = 50  # logs: each has up to five small files open meanwhile


class OffsetOutOfRange(LookupError):
    """A read below the log's start or beyond its end: the protocol's OFFSET_OUT_OF_RANGE."""


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """What an append did.

    log_append_time_ms:  -1 unless the topic stamps records with the time of the append.
    duplicate:           nothing was written: the offsets are those of the first copy (SPEC 4.1.2).
    rolled:              a segment was finished before: a good moment to flush in the background.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int = -1
    duplicate: bool = False
    rolled: bool = False

    @property
    def next_offset(self) -> int:
        """The high watermark that an acks=all producer waits for."""
        return self.last_offset + 1


class Flush(msgspec.Struct, frozen=True):
    """A flush under way: `files` have to be synced, then the offsets below `end_offset` are durable."""

    files: list[File]
    end_offset: int
    truncation_count: int


class Found(NamedTuple):
    """A record found by its timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class Log:
    """The log of one partition in one directory."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        settings: LogSettings,
        opened: Opened,
        log_start_offset: int,
        *,
        expects_gaps: bool,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.settings = settings
        self.segments: list[Segment] = opened.segments
        self.epochs: EpochCache = opened.epochs
        self.producers: ProducerStates = opened.producers
        self.cut: Cut | None = opened.cut
        self.log_start_offset = log_start_offset
        self.log_end_offset = self.segments[-1].next_offset
        self._cold_end = self.log_end_offset  # what lies below it has lain on the disk for long, perhaps
        self._end_seen = self.log_end_offset
        self.flushed_offset = 0
        self.topic_id: UUID | None = None
        self.expects_gaps = expects_gaps  # it is, or was copied from, a compacted log
        self._refused_gap: tuple[int, str] | None = None
        self.missing_from: int | None = None  # where the log began, when its first segments are gone
        self.truncation_count = 0  # what was known of offsets before one may be wrong after it
        self._has_unsaved_epochs = False  # of batches in the active segment, which recovery scans
        self._latest_ms = -1  # the latest time that any caller passed in

    @staticmethod
    def open(  # noqa: PLR0913 - what checkpoints say of a log
        disk: Disk,
        directory: str,
        settings: LogSettings,
        *,
        recover: bool,
        recovery_point: int,
        log_start_offset: int,
        now_ms: int,
        was_closed_in_order: bool = False,
        high_watermark: int | None = None,
    ) -> "Log":
        """Open a log, or create an empty one at `log_start_offset`.

        recover:         the directory was not closed cleanly: scan what may have been torn.
        recovery_point:  offsets below it were durable when it was checkpointed; 0 if unknown.
        was_closed_in_order: both offsets are what a stop in order wrote: where the log disagrees with them, something was damaged.
        high_watermark:  what is known to be committed: transactions whose end markers are not are still unstable. None: all that is there.
        """
        recovery = Recovery(disk, directory, settings, now_ms)
        opened = recovery.run(
            recover=recover,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
        )
        if was_closed_in_order:
            log_start_offset = recovery.hold_to_checkpoints(opened, recovery_point, log_start_offset)
        log = Log(
            disk,
            directory,
            settings,
            opened,
            max(log_start_offset, opened.segments[0].base_offset),
            expects_gaps=disk.exists(f"{directory}/{CLEANER_FILE}"),
        )
        log._latest_ms = now_ms
        log._load_topic_id()
        if log.log_start_offset > log.log_end_offset:
            log.restart_at(log.log_start_offset)  # what was not durable when the power failed had been deleted already
        log._look_for_missing_start(log_start_offset)
        if log.missing_from is None:
            log.epochs.truncate_from_start(log.log_start_offset)
        log._save_epochs()
        log._remove_stray_snapshots()
        log.flushed_offset = min(recovery_point, log.log_end_offset)
        return log

    @staticmethod
    def begin(
        disk: Disk, directory: str, settings: LogSettings, *, topic_id: UUID, leader_epoch: int | None, now_ms: int
    ) -> "Log":
        """Open a log that this process has laid down itself, durably (`files_of_new_log`): there is nothing to be found out.

        leader_epoch:  that it was laid down with.
        """
        segment = Segment(disk, directory, 0, index_interval_bytes=settings.index_interval_bytes, now_ms=now_ms)
        assert segment.size == 0, f"{directory} is new, and has {segment.size} bytes"
        epochs = EpochCache() if leader_epoch is None else EpochCache([(leader_epoch, 0)])
        log = Log(disk, directory, settings, Opened([segment], epochs, ProducerStates(), None), 0, expects_gaps=False)
        log._latest_ms = now_ms
        log.topic_id = topic_id
        return log

    def _look_for_missing_start(self, checkpointed: int) -> None:
        """Note when the first segments are gone that nobody deleted.

        The epochs begin where the log begins, and are saved before a segment goes. A checkpoint of log starts that is
        further on wins: it says what others deleted.
        """
        began_at = max(checkpointed, self.epochs.earliest_start)
        if self.epochs.earliest_start >= 0 and began_at < self.segments[0].base_offset:
            self.missing_from = began_at

    def begin_again(self) -> None:
        """Drop what is left of a log whose beginning is missing, so that all of it is fetched again."""
        assert self.missing_from is not None
        self.restart_at(self.missing_from)
        self.missing_from = None

    def go_on_without_start(self) -> None:
        """Begin where the first segment does: nobody else has what is missing."""
        self.missing_from = None
        if self.epochs.truncate_from_start(self.log_start_offset):
            self._save_epochs()

    # Appending.

    def checked(self, batch_buffer: Buffer, *, now_ms: int) -> Checked:
        """Look at a client's batches: most of the work of appending them, which may be done before, in another turn of the event loop."""
        return admitted(memoryview(batch_buffer), self.settings, origin=Origin.CLIENT, now_ms=now_ms)

    def append_as_leader(
        self,
        batch_buffer: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        checked: Checked | None = None,
    ) -> Appended | Error:
        """Check batches, give them the next offsets, write them in this leader epoch; or say why not.

        batch_buffer:  one or more batches; their offsets and epochs are overwritten.
        origin:        the default trusts nothing; our own coordinators and the quorum name themselves.
        checked:       what `checked` has said of the buffer already.
        returns:       the error for the producer, with nothing appended.
        """
        view = memoryview(batch_buffer)
        headers = admitted(view, self.settings, origin=origin, now_ms=now_ms) if checked is None else checked
        if isinstance(headers, Error):
            return headers
        found = {} if origin is Origin.CLIENT else markers(view, headers)  # clients may not send any
        refusal = self._refusal(headers, found, origin)
        if refusal is not None:
            return refusal
        if leader_epoch != self.epochs.latest:
            self.begin_epoch(leader_epoch)
        log_append_time_ms = -1
        if self.settings.log_append_time:
            log_append_time_ms = now_ms
            view, headers = _restamped(view, headers, now_ms)
        parts: list[Buffer] = []
        base_offsets: list[int] = []
        next_offset = self.log_end_offset
        for header in headers:
            base_offsets.append(next_offset)
            parts.extend(stamped(view, header, next_offset, leader_epoch))
            next_offset += header.last_offset_delta + 1
        return self._write(parts, len(view), headers, base_offsets, found, now_ms, log_append_time_ms)

    def append_as_follower(
        self, batch_buffer: Buffer, *, now_ms: int = -1, leader_epoch: int | None = None
    ) -> Appended:
        """Write batches as the leader has them: offsets and epochs stay.

        leader_epoch:  that they were fetched in: none of them can be of a later one (KAFKA-18723). None where that was looked at before.
        Raises `CorruptBatch` on the first damaged or misplaced batch, with nothing appended. What is behind the last whole
        batch comes again with the next fetch.
        """
        view = memoryview(batch_buffer)
        if not len(view):
            return Appended(base_offset=self.log_end_offset, last_offset=self.log_end_offset - 1)
        headers = self._copied(view, leader_epoch)
        view = view[: headers[-1].end]
        found = markers(view, headers)
        if headers[0].base_offset < self.log_end_offset:
            self._restart_inside_batch(headers[0].base_offset)
        changed = False
        for header in headers:
            if header.leader_epoch > self.epochs.latest:
                # Nothing below the log start is known, also where a batch holds it in its midst.
                changed |= self.epochs.assign(header.leader_epoch, max(header.base_offset, self.log_start_offset))
        # Not saved yet: an unclean start finds them in the batches of the active segment, which it never believes unread.
        self._has_unsaved_epochs |= changed
        base_offsets = [header.base_offset for header in headers]
        return self._write([view], len(view), headers, base_offsets, found, now_ms, -1)

    def _refusal(
        self, headers: list[BatchHeader], found: dict[int, EndTransaction], origin: Origin
    ) -> Appended | Error | None:
        header = headers[0]
        if origin is Origin.CLIENT and header.producer_id >= 0:
            verdict = self.producers.check(header)
            if isinstance(verdict, Duplicate):
                first_copy = verdict.batch
                return Appended(
                    base_offset=first_copy.base_offset,
                    last_offset=first_copy.last_offset,
                    log_append_time_ms=first_copy.timestamp_ms if self.settings.log_append_time else -1,
                    duplicate=True,
                )
            return verdict if isinstance(verdict, Error) else None
        if origin is Origin.COORDINATOR and header.producer_id >= 0 and not header.is_control:
            error = self.producers.check_epoch(header)  # offsets of a transaction have no sequences
            return error if error is not Error.NONE else None
        marker = found.get(header.position)
        if marker is None:
            return None
        error = self.producers.check_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch)
        return error if error is not Error.NONE else None

    def _copied(self, view: memoryview, leader_epoch: int | None) -> list[BatchHeader]:
        """Return the headers of a leader's batches that may be appended; with gaps only where they may be.

        A topic that was compacted once has gaps for ever, whatever its policy is now, and a follower may not have been
        there to see it. So a gap that the leader repeats is believed; one that came from damage on the way is not repeated.
        """
        first_offset = self._first_copied_offset(view)
        gaps_allowed = self.settings.compacts or self.expects_gaps or self._refused_gap is not None
        try:
            headers = copied(
                view,
                log_end_offset=first_offset,
                latest_epoch=self.epochs.latest,
                leader_epoch=leader_epoch,
                gaps_allowed=gaps_allowed,
            )
        except UnexpectedGap as problem:
            self._refused_gap = (self.log_end_offset, problem.reason)
            raise
        gap = first_gap(headers, first_offset)
        if gap is None:
            self._refused_gap = None
        elif not self.expects_gaps:
            if not self.settings.compacts and self._refused_gap != (self.log_end_offset, gap):
                self._refused_gap = (self.log_end_offset, gap)
                raise UnexpectedGap("fetched", 0, gap)
            self.expect_gaps()
        return headers

    def expect_gaps(self) -> None:
        """Note, durably and before there are any, that this log has gaps: recovery would end it at the first."""
        self.disk.replace_file(f"{self.directory}/{CLEANER_FILE}", rendered([]))
        self.expects_gaps = True

    def _first_copied_offset(self, view: memoryview) -> int:
        """Return where a follower's copy may begin: the log end, or inside the first batch of an empty log.

        The leader's log start may lie in the middle of a batch (DeleteRecords); the first fetch from there
        brings the whole batch.
        """
        if self.log_start_offset < self.log_end_offset or len(view) < 8:
            return self.log_end_offset
        base_offset = int.from_bytes(view[:8], "big", signed=True)
        last_offset = base_offset + int.from_bytes(view[23:27], "big", signed=True)
        return base_offset if 0 <= base_offset < self.log_end_offset <= last_offset else self.log_end_offset

    def _restart_inside_batch(self, base_offset: int) -> None:
        log_start_offset = self.log_start_offset
        self.restart_at(base_offset)
        self.log_start_offset = log_start_offset

    def _write(
        self,
        parts: Sequence[Buffer],
        size: int,
        headers: list[BatchHeader],
        base_offsets: list[int],
        found: dict[int, EndTransaction],
        now_ms: int,
        log_append_time_ms: int,
    ) -> Appended:
        self._latest_ms = max(self._latest_ms, now_ms)
        last_offset = base_offsets[-1] + headers[-1].last_offset_delta
        rolled = self._must_roll(size, last_offset, headers[-1].max_timestamp_ms, now_ms)
        if rolled:
            self.roll(now_ms)
        segment = self.segments[-1]
        position = segment.append(parts, size)
        for header, base_offset in zip(headers, base_offsets, strict=True):
            segment.note(header, base_offset, position)
            position += header.length + OVERHEAD_BYTES
            if header.producer_id >= 0:
                marker = found.get(header.position)
                aborted = self.producers.apply(header, base_offset, marker, now_ms)
                if aborted:
                    segment.aborted.append(aborted)
        self.log_end_offset = segment.next_offset
        return Appended(
            base_offset=base_offsets[0],
            last_offset=self.log_end_offset - 1,
            log_append_time_ms=log_append_time_ms,
            rolled=rolled,
        )

    def begin_epoch(self, leader_epoch: int) -> None:
        """Note, durably, that a leader epoch begins at the log end (SPEC 3.1.3: before any append)."""
        assert leader_epoch >= self.epochs.latest, f"{leader_epoch} after {self.epochs.latest}"
        if self.epochs.assign(leader_epoch, self.log_end_offset):
            self._save_epochs()

    @staticmethod
    def begin_epochs(elected: Sequence[tuple["Log", int]]) -> None:
        """Note in logs of one disk that these leader epochs begin, as `begin_epoch` does, with hardly more waiting than for one."""
        changed = []
        for log, leader_epoch in elected:
            assert leader_epoch >= log.epochs.latest, f"{leader_epoch} after {log.epochs.latest}"
            if log.epochs.assign(leader_epoch, log.log_end_offset):
                changed.append(log)
        if not changed:
            return
        elected[0][0].disk.write_together(
            [NewFolder(log.directory, {EPOCHS_FILE: log.epochs.to_checkpoint()}) for log in changed]
        )
        for log in changed:
            log._has_unsaved_epochs = False

    @property
    def last_epoch(self) -> int:
        """Epoch of the last batch (or of a leader that began at the log end), -1 when none is known."""
        return self.epochs.latest

    # Reading.

    def read(self, offset: int, *, max_bytes: int, end_offset: int, at_least_one: bool) -> bytes:
        """Return whole batches, the first one holding `offset`, none reaching to or beyond `end_offset`.

        max_bytes:     exceeded only by the first batch, and only if `at_least_one`.
        end_offset:    high watermark, last stable offset or log end: what the reader may see.
        Raises `OffsetOutOfRange` below the log start and behind the log end, and `CorruptBatch` where what a sealed segment,
        or the cold part of the active one (`count_as_cold`), holds is not what was written: it may have lain on the disk for long.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(f"{offset} outside of {self.log_start_offset} to {self.log_end_offset}")
        if offset == self.log_end_offset:
            return b""  # most looks find nothing new
        for segment in self.segments[self._segment_index(offset) :]:
            if segment.base_offset >= end_offset:
                break
            content = segment.read(offset, max_bytes=max_bytes, end_offset=end_offset, at_least_one=at_least_one)
            if content is not None:  # else compaction left a hole at the segment's end
                if segment is not self.segments[-1] or offset < self._cold_end:
                    self._check(content, offset, segment)
                return content
        return b""

    def count_as_cold(self) -> None:
        """Check from now on at reads what was there at the last call, or when the log was opened; called now and then."""
        self._cold_end, self._end_seen = self._end_seen, self.log_end_offset

    def _check(self, content: bytes, offset: int, segment: Segment) -> None:
        """Raise `CorruptBatch` unless these are the batches that were appended there, as far as the log itself can know.

        A batch's checksum covers neither its base offset, which is held to its neighbours, nor its leader epoch.
        """
        view, path, next_offset = memoryview(content), segment.file.path, -1
        gaps_allowed = self.settings.compacts or self.expects_gaps or self._refused_gap is not None
        for header in batches(view, path):
            if not has_valid_crc(view, header):
                raise CorruptBatch(path, header.position, "checksum")
            is_next = header.base_offset <= offset if next_offset < 0 else header.base_offset == next_offset
            if header.next_offset <= offset or not (is_next or (gaps_allowed and header.base_offset > next_offset)):
                raise CorruptBatch(path, header.position, f"base offset {header.base_offset}")
            next_offset = header.next_offset

    def lies_segments_behind(self, offset: int, end_offset: int) -> bool:
        """Return whether a read from `offset` ends with its segment, before `end_offset`."""
        return self._segment_index(offset) < self._segment_index(end_offset)

    def bytes_up_to(self, offset: int, end_offset: int) -> int:
        """Return how much a read from `offset` without a limit would bring, if that is in one segment."""
        segment = self.segments[self._segment_index(offset)]
        return segment.position_of(end_offset) - segment.position_of(offset)

    def end_of_read(self, offset: int, size_bytes: int) -> int:
        """Return an offset that a read of so many bytes from `offset` does not reach beyond: that of the next index entry."""
        for segment in self.segments[self._segment_index(offset) :]:
            position = segment.position_of(offset)
            if position < segment.size:
                return segment.offset_behind(position + size_bytes)
        return self.log_end_offset

    def _segment_index(self, offset: int) -> int:
        if offset >= self.segments[-1].base_offset:
            return len(self.segments) - 1
        return max(0, bisect_right(self.segments, offset, key=_base_offset) - 1)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return what read_committed readers may see up to (SPEC 4.2.9)."""
        unstable = self.producers.first_unstable_offset(high_watermark)
        if unstable is None:
            return high_watermark
        # As Apache Kafka: of what retention or DeleteRecords took nothing waits, and nobody can read from there.
        return min(max(unstable, self.log_start_offset), high_watermark)

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap a range, for a read_committed answer (SPEC 4.2.9)."""
        overlapping: list[AbortedTransaction] = []
        for segment in self.segments[self._segment_index(offset) :]:
            first = bisect_left(segment.aborted, offset, key=_marker_offset)  # in the order of their markers
            for aborted in segment.aborted[first:]:
                if aborted.first_offset < end_offset:
                    overlapping.append(aborted)
                if aborted.last_stable_offset >= end_offset:
                    return overlapping
        return overlapping

    def offset_for_timestamp(self, timestamp_ms: int) -> Found | None:
        """Return the first record that is not older, None when all are.

        Where a client's records can't be read, the batch's first offset stands for the record's.
        """
        for segment in self.segments:
            if segment.largest_timestamp_ms < timestamp_ms:
                continue
            for header in segment.first_at_or_after(timestamp_ms):
                found = self._first_in_batch(segment, header, timestamp_ms)
                if found is not None:
                    return found
        return None

    def offset_of_max_timestamp(self) -> Found | None:
        """Return the first record with the log's largest timestamp, None in an empty log."""
        largest = max(self.segments, key=lambda segment: segment.largest_timestamp_ms)
        if largest.largest_timestamp_ms < 0:
            return None
        found = self.offset_for_timestamp(largest.largest_timestamp_ms)
        if found is None:  # it was deleted: a segment's total counts what lies before the log start, too
            largest_ms = max(self._timestamps_from_log_start(), default=NO_TIMESTAMP)
            found = self.offset_for_timestamp(largest_ms) if largest_ms >= 0 else None
        return found

    def _timestamps_from_log_start(self) -> Iterator[int]:
        first, *others = self.segments[self._segment_index(self.log_start_offset) :]
        for header in first.headers(first.position_of(self.log_start_offset)):
            if header.base_offset >= self.log_start_offset:
                yield header.max_timestamp_ms
            else:  # in the middle of a batch
                with suppress(CorruptBatch):
                    content = records(first.batch_bytes(header))
                    yield from [record.timestamp_ms for record in content if record.offset >= self.log_start_offset]
        for segment in others:
            yield segment.largest_timestamp_ms

    def _first_in_batch(self, segment: Segment, header: BatchHeader, timestamp_ms: int) -> Found | None:
        if header.next_offset <= self.log_start_offset:
            return None
        content = segment.batch_bytes(header)
        try:
            for record in records(content):
                if record.timestamp_ms >= timestamp_ms and record.offset >= self.log_start_offset:
                    return Found(record.timestamp_ms, record.offset, header.leader_epoch)
        except CorruptBatch:
            offset = max(header.base_offset, self.log_start_offset)
            return Found(max(header.base_timestamp_ms, timestamp_ms), offset, header.leader_epoch)
        return None

    # Truncating.

    def truncate_to(self, offset: int) -> None:
        """Cut the log at the batch that holds `offset`, and all that is known of what goes (SPEC 3.4.2).

        Epochs that begin at or behind `offset` go even if no record does (KAFKA-10706).
        """
        epochs_changed = self.epochs.truncate_from_end(offset)
        if offset < self.log_end_offset:
            if offset <= self.segments[0].base_offset:
                self.restart_at(offset)
                return
            self._truncate_segments(offset)
            epochs_changed |= self.epochs.truncate_from_end(self.log_end_offset)
        if epochs_changed:
            self._save_epochs()

    def _truncate_segments(self, offset: int) -> None:
        self.truncation_count += 1
        if self.expects_gaps:
            forget_cleanings(self.disk, self.directory, offset)
        kept = self._segment_index(offset)
        for segment in reversed(self.segments[kept + 1 :]):  # newest first: what is left is always a prefix
            segment.remove()
        del self.segments[kept + 1 :]
        self.log_end_offset = self.segments[-1].truncate(offset)
        ended = self.producers.ended_before(self.log_end_offset)
        self.producers = load_producers(self.disk, self.directory, self.segments, self.log_end_offset, self._latest_ms)
        self.producers.remember_ended(ended)
        self.flushed_offset = min(self.flushed_offset, self.log_end_offset)
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)

    def restart_at(self, offset: int) -> None:
        """Drop everything; the log is empty and goes on at `offset`."""
        self.truncation_count += 1
        if self.expects_gaps:
            forget_cleanings(self.disk, self.directory, 0)
        for segment in reversed(self.segments):
            segment.remove()
        for snapshot in snapshot_offsets(self.disk, self.directory):
            self.disk.remove(snapshot_path(self.directory, snapshot))
        self.epochs.clear()
        self._save_epochs()
        self.producers = ProducerStates()
        self.segments = [self._new_segment(offset, self._latest_ms)]
        self.log_start_offset = self.log_end_offset = self.flushed_offset = offset

    # Segments.

    def roll(self, now_ms: int) -> None:
        """Seal the active segment and begin a new one at the log end; nothing to do when it is empty."""
        if self.segments[-1].size == 0:
            return
        self._save_followed_epochs()
        self._write_snapshot()
        self.segments.append(self._new_segment(self.log_end_offset, now_ms))

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        interval = self.settings.index_interval_bytes
        segment = Segment(self.disk, self.directory, base_offset, index_interval_bytes=interval, now_ms=now_ms)
        # The name must not be lost while later ones stay: recovery could not detect the gap.
        self.disk.sync_directory(self.directory)
        return segment

    def _must_roll(self, size: int, last_offset: int, latest_ms: int, now_ms: int) -> bool:
        segment = self.segments[-1]
        if segment.size == 0:
            return False
        if segment.size + size > self.settings.segment_bytes or segment.index_bytes >= self.settings.index_bytes_max:
            return True
        if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if segment.first_timestamp_ms is not None and segment.first_timestamp_ms >= 0 and latest_ms >= 0:
            return latest_ms - segment.first_timestamp_ms > self.settings.segment_ms
        return now_ms - segment.created_ms > self.settings.segment_ms

    def move_log_start(self, offset: int) -> None:
        """Forget records below `offset` (DeleteRecords, or the leader's log start); never goes back.

        Whole segments go with the next `delete_old_segments`. The broker checkpoints `log_start_offset`.
        """
        assert offset <= self.log_end_offset
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            if self.epochs.truncate_from_start(offset):
                self._save_epochs()

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Delete whole segments by age, size and log start, oldest first; return how many.

        Nothing at or above the high watermark goes (KAFKA-5634).
        """
        count = 0
        while self._first_may_go(now_ms, high_watermark):
            if len(self.segments) == 1:
                self.roll(now_ms)
            removed = self.segments.pop(0)
            self.move_log_start(self.segments[0].base_offset)  # first: a start that is missing is known by it
            removed.remove()
            snapshot = snapshot_path(self.directory, removed.base_offset)
            if self.disk.exists(snapshot):
                self.disk.remove(snapshot)
            count += 1
        return count

    def _first_may_go(self, now_ms: int, high_watermark: int) -> bool:
        first = self.segments[0]
        end = self.segments[1].base_offset if len(self.segments) > 1 else self.log_end_offset
        if end == first.base_offset or end > high_watermark:
            return False
        if end <= self.log_start_offset and len(self.segments) > 1:
            return True
        if not self.settings.deletes:
            return False
        newest_ms = first.largest_timestamp_ms if first.largest_timestamp_ms >= 0 else first.created_ms
        if 0 <= self.settings.retention_ms < now_ms - newest_ms:
            return True
        return 0 <= self.settings.retention_bytes <= self.size - first.size and len(self.segments) > 1

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    def expire_producers(self, now_ms: int) -> list[int]:
        """Forget producers silent for longer than the setting; return their ids."""
        return self.producers.expire(now_ms, self.settings.producer_expiration_ms)

    # Durability.

    @property
    def must_flush(self) -> bool:
        """Return whether more records are not durable than `flush.messages` allows."""
        return self.log_end_offset - self.flushed_offset >= self.settings.flush_messages

    @property
    def acknowledgeable_end_offset(self) -> int:
        """Return up to where records may be acknowledged by what the flush settings ask of this replica."""
        return self.flushed_offset if self.must_flush else self.log_end_offset

    def begin_flush(self) -> Flush:
        """Say which files have to be synced; call `complete_flush` once they are."""
        return Flush(self.files_to_sync(), self.log_end_offset, self.truncation_count)

    def files_to_sync(self) -> list[File]:
        """Return the files that hold batches not known to be durable."""
        return [segment.file for segment in self._unflushed() if segment.next_offset > self.flushed_offset]

    def complete_flush(self, flush: Flush) -> None:
        """Note that a flush is done: recovery may begin behind it. Truncation meanwhile makes it void."""
        if flush.truncation_count != self.truncation_count:
            return
        for segment in self._unflushed()[:-1]:
            if segment.next_offset <= flush.end_offset and not segment.has_durable_indexes:
                segment.write_indexes()
        self.flushed_offset = max(self.flushed_offset, flush.end_offset)

    def flush(self) -> None:
        """Make everything durable, now."""
        flush = self.begin_flush()
        for file in flush.files:
            file.sync()
        self.complete_flush(flush)

    def _unflushed(self) -> list[Segment]:
        """Return the segments that a flush has work with, the active one always among them."""
        index = len(self.segments) - 1
        while index > 0 and self._needs_flush(self.segments[index - 1]):
            index -= 1
        return self.segments[index:]

    def _needs_flush(self, sealed: Segment) -> bool:
        return sealed.next_offset > self.flushed_offset or not sealed.has_durable_indexes

    def close(self) -> None:
        """Make everything durable, so that a clean start needs no scan, and close the files."""
        close_logs([self])

    def files_at_close(self) -> dict[str, bytes]:
        """Return what a clean start reads instead of the batches, by name: to be written when those are durable.

        In any order: an unclean start looks at none of it.
        """
        files: dict[str, bytes] = {}
        if self._has_unsaved_epochs:
            files[EPOCHS_FILE] = self.epochs.to_checkpoint()
        if self.log_end_offset == 0:
            return files  # nothing was ever written: nothing to look up, no producer to remember
        active = self.segments[-1]
        if not active.has_durable_indexes:
            files |= active.index_files()
        # A snapshot does not say which ended transactions were not replicated yet: then let the start replay.
        if not self.producers.ended_before(self.log_end_offset):
            files[file_name(self.log_end_offset, SNAPSHOT_SUFFIX)] = self.producers.to_snapshot()
        return files

    def close_files(self) -> None:
        """Close without any promise: for deletion, and after errors."""
        for segment in self.segments:
            segment.file.close()

    def _write_snapshot(self) -> None:
        # A torn one is known by its checksum, and an older one does as well.
        file = self.disk.open(snapshot_path(self.directory, self.log_end_offset), create=True)
        file.truncate(0)
        file.append(self.producers.to_snapshot())
        file.close()

    def _remove_stray_snapshots(self) -> None:
        """Remove snapshots that belong to no segment, but keep the last one of all."""
        bases = {segment.base_offset for segment in self.segments}
        for offset in snapshot_offsets(self.disk, self.directory)[:-1]:
            if offset not in bases:
                self.disk.remove(snapshot_path(self.directory, offset))

    def _save_followed_epochs(self) -> None:
        """Save what a follower noted, before its segment is one that a start may believe unread."""
        if self._has_unsaved_epochs:
            self._save_epochs()

    def _save_epochs(self) -> None:
        path = f"{self.directory}/{EPOCHS_FILE}"
        content = self.epochs.to_checkpoint()
        if not self.disk.exists(path):
            # A new partition has no epochs yet; syncs are what creating many partitions takes its time for.
            if self.epochs.latest >= 0:
                self.disk.replace_file(path, content)
        elif self.disk.read_file(path) != content:
            self.disk.replace_file(path, content)
        self._has_unsaved_epochs = False

    # Whose log it is.

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Write down, durably, which topic of this name the log belongs to (`partition.metadata`)."""
        self.disk.replace_file(f"{self.directory}/{PARTITION_METADATA_FILE}", partition_metadata(topic_id))
        self.topic_id = topic_id

    def take_over(self, former: "Log") -> None:
        """Go on as a log in another directory that held the same: what it knew of producers and epochs is more than files say."""
        self.producers = former.producers
        self.epochs = former.epochs
        self._latest_ms = former._latest_ms
        self._save_epochs()

    def _load_topic_id(self) -> None:
        path = f"{self.directory}/{PARTITION_METADATA_FILE}"
        if self.disk.exists(path):
            try:
                fields = dict(line.split(": ", 1) for line in self.disk.read_file(path).decode().splitlines())
                self.topic_id = UUID(bytes=base64.urlsafe_b64decode(fields["topic_id"] + "=="))
            except (ValueError, KeyError) as problem:
                raise OSError(f"{path} is damaged: {problem}") from problem  # it is unknown whose log this is


def close_logs(logs: Sequence[Log]) -> None:
    """Make all of these logs, of one disk, durable, so that a clean start needs no scan, and close their files."""
    for first in range(0, len(logs), CLOSED_TOGETHER):
        together = logs[first : first + CLOSED_TOGETHER]
        for log in together:
            log.flush()
        together[0].disk.write_together([NewFolder(log.directory, log.files_at_close()) for log in together])
        for log in together:
            log.close_files()


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _marker_offset(aborted: AbortedTransaction) -> int:
    return aborted.last_offset


def _restamped(view: memoryview, headers: list[BatchHeader], now_ms: int) -> tuple[memoryview, list[BatchHeader]]:
    content = b"".join(with_append_time(view, header, now_ms) for header in headers)
    return memoryview(content), [structs.replace(header, max_timestamp_ms=now_ms) for header in headers]
