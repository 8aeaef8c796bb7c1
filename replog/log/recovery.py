"""Open a log's files and find out what of them is true (SPEC 3.8.4, 3.11.2).

After a clean stop the index files and the last producer snapshot are believed, and only the end of the last
segment is looked at. Otherwise every segment is scanned that holds offsets above the recovery point or lacks
its `.index` (segment.py says what that means): each batch's checksum and place are checked, the first bad one
ends the log, and indexes, epochs and producers are built again from the batches. Nothing that was flushed can
be cut, unless the disk damaged it: then the log ends there all the same, because the broker comes back as one
that shut down uncleanly, and KIP-966 lets nobody trust it before it has caught up.

What is scanned is what the system's cache holds, and that need not be on the disk. When a disk refuses to write a page, the
fsync fails once; then the page counts as clean, every later fsync says yes, and reading still gives what was never
written ("fsyncgate", 2018). The process that saw the error has ended with its directory, without trying again; but this process
would find whole batches, flush them without effect, and promise them. So everything above the recovery point is written
again: the same bytes, which no tear can hurt, and which the next flush really writes. It costs little beside the scan.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from replog.log import batch
from replog.log.batch import BatchHeader, CorruptBatch, end_transaction, has_valid_crc, header_at
from replog.log.checkpoints import CorruptCheckpoint, parsed_lines, rendered
from replog.log.epochs import EpochCache
from replog.log.producers import CorruptSnapshot, ProducerStates
from replog.log.segment import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SCAN_BYTES,
    CorruptIndex,
    Segment,
    file_name,
    offsets_named,
)
from replog.log.settings import LogSettings
from replog.ports import Disk

EPOCHS_FILE: Final = "leader-epoch-checkpoint"
SNAPSHOT_SUFFIX: Final = ".snapshot"
CLEANER_FILE: Final = "cleaner-offset-checkpoint"
TEMPORARY_SUFFIXES: Final = (CLEANED_SUFFIX, ".deleted", ".swap", ".tmp")


class Cut(msgspec.Struct, frozen=True):
    """Where recovery ended a log, and why; the bytes from there on are gone."""

    offset: int
    reason: str


class Cleaning(NamedTuple):
    """One compaction of the past: up to where, and when."""

    end_offset: int
    at_ms: int


class Opened:
    """What recovery found: the parts a log is made of."""

    def __init__(self, segments: list[Segment], epochs: EpochCache, producers: ProducerStates, cut: Cut | None) -> None:
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.cut = cut


class Recovery:
    """The opening of one log."""

    def __init__(self, disk: Disk, directory: str, settings: LogSettings, now_ms: int) -> None:
        self.disk = disk
        self.directory = directory
        self.settings = settings
        self.now_ms = now_ms
        self.cut: Cut | None = None
        self.gaps_allowed = settings.compacts
        self._checkpointed: EpochCache = EpochCache()  # as the checkpoint says; empty without one
        self._misstamped: Cut | None = None  # before the first batch whose leader epoch is damaged

    def run(
        self, *, recover: bool, recovery_point: int, log_start_offset: int, high_watermark: int | None = None
    ) -> Opened:
        """Open all segments; scan those that cannot be believed."""
        make_durable_directory(self.disk, self.directory)
        self._remove_temporaries()
        # What was compacted once keeps its holes, whatever the topic's policy is now.
        self.gaps_allowed |= self.disk.exists(f"{self.directory}/{CLEANER_FILE}")
        segments = [self._segment(base_offset) for base_offset in self._base_offsets()]
        if not segments:
            segments = [self._segment(log_start_offset)]
            self.disk.sync_directory(self.directory)  # a flush makes content durable, not names
        first_scanned = self._load_trusted(segments, recover=recover, recovery_point=recovery_point)
        first_scanned = self._drop_what_does_not_follow(segments, first_scanned)
        epochs = self._epochs(segments[:first_scanned])
        scan_from = segments[first_scanned].base_offset if first_scanned < len(segments) else segments[-1].next_offset
        producers = load_producers(
            self.disk, self.directory, segments[:first_scanned], scan_from, self.now_ms, high_watermark
        )
        if first_scanned < len(segments):
            checkpointed = dict(epochs)
            epochs.truncate_from_end(scan_from)
            try:
                segments = self._scan(segments, first_scanned, epochs, producers)
            except _Misstamped as problem:
                self._misstamped = problem.cut
                return self.run(
                    recover=recover,
                    recovery_point=recovery_point,
                    log_start_offset=log_start_offset,
                    high_watermark=high_watermark,
                )
            self._distrust_cache(segments[first_scanned:], recovery_point)
            if self.gaps_allowed:
                epochs = with_known_starts(epochs, checkpointed)
        epochs.truncate_from_end(segments[-1].next_offset)
        return Opened(segments, epochs, producers, self.cut)

    def hold_to_checkpoints(self, opened: Opened, recovery_point: int, log_start_offset: int) -> int:
        """Compare a log that was closed in order with what its directory's checkpoints say of it; return where it begins.

        A stop in order leaves them in agreement: the log is durable to its end, and begins within, where its first epoch does. What disagrees
        was damaged, the log or the checkpoint. Nobody knows which; so it counts as cut (nobody takes it for whole), and nothing more is dropped.
        """
        end, first, began_at = (
            opened.segments[-1].next_offset,
            opened.segments[0].base_offset,
            opened.epochs.earliest_start,
        )
        problem = None
        if recovery_point > end:
            problem = f"it ends here, and was durable up to {recovery_point}"
        if log_start_offset > end or 0 <= began_at < log_start_offset:
            problem = f"it is said to begin at {log_start_offset}, and its first epoch at {began_at}"
            log_start_offset = max(first, began_at)
        if problem is not None and opened.cut is None:
            opened.cut = Cut(end, problem)
        return log_start_offset

    def _distrust_cache(self, segments: list[Segment], recovery_point: int) -> None:
        """Have what is not known to be durable written by the next flush, whatever the system believes of it."""
        for segment in segments:
            segment.file.write_again(segment.position_of(recovery_point) if recovery_point > segment.base_offset else 0)
        if not any(segment.size for segment in segments):
            # A process that ended between the making of this log and the sync of its name left a name that may vanish.
            self.disk.sync_directory(self.directory)
            self.disk.sync_directory(self.directory.rpartition("/")[0] or ".")

    def _remove_temporaries(self) -> None:
        for name in self.disk.list_directory(self.directory):
            if name.endswith(TEMPORARY_SUFFIXES):
                self.disk.remove(f"{self.directory}/{name}")

    def _base_offsets(self) -> list[int]:
        return offsets_named(self.disk, self.directory, LOG_SUFFIX)

    def _segment(self, base_offset: int) -> Segment:
        interval = self.settings.index_interval_bytes
        return Segment(self.disk, self.directory, base_offset, index_interval_bytes=interval, now_ms=self.now_ms)

    def _load_trusted(self, segments: list[Segment], *, recover: bool, recovery_point: int) -> int:
        """Load indexes as far as they can be believed; return the index of the first segment to be scanned."""
        for index, segment in enumerate(segments):
            is_last = index == len(segments) - 1
            if recover and (is_last or segments[index + 1].base_offset > recovery_point):
                return index
            if not self.disk.exists(segment.path(INDEX_SUFFIX)):
                return index
            try:
                segment.load_indexes()
            except (CorruptIndex, CorruptBatch, FileNotFoundError):
                return index
        return len(segments)

    def _drop_what_does_not_follow(self, segments: list[Segment], trusted: int) -> int:
        """Cut the log where a trusted segment, or the first behind them, is not its neighbour's: one between is missing, or it is of another log.

        returns:  how many are trusted. What is scanned is held to the same by the scan.
        """
        cleaned_to = max((cleaning.end_offset for cleaning in cleanings(self.disk, self.directory)), default=-1)
        for index, segment in enumerate(segments[: trusted + 1]):
            ends_at = segments[index - 1].next_offset if index else segment.base_offset
            follows = segment.base_offset == ends_at or ends_at <= segment.base_offset <= cleaned_to
            is_its_own = (
                index == trusted  # the scan will say
                or segment.first_batch_offset == segment.base_offset
                or (self.gaps_allowed and segment.first_batch_offset > segment.base_offset)
            )
            if not follows or not is_its_own:
                what = f"segment {segment.base_offset}, which begins with {segment.first_batch_offset}"
                self.cut = Cut(ends_at, f"{what}, comes after {ends_at}")
                segments[:] = self._without(segments, index) or [self._segment(ends_at)]
                return index
        return trusted

    def _epochs(self, trusted: list[Segment]) -> EpochCache:
        """Return the checkpointed epochs, or those of the trusted segments' batches without a checkpoint."""
        path = f"{self.directory}/{EPOCHS_FILE}"
        if self.disk.exists(path):
            try:
                content = self.disk.read_file(path)
                self._checkpointed = EpochCache.from_checkpoint(content)
                return EpochCache.from_checkpoint(content)
            except (CorruptCheckpoint, AssertionError):
                self.disk.remove(path)
        epochs = EpochCache()
        for segment in trusted:
            for header in segment.headers(chunk_bytes=SCAN_BYTES):
                assign(epochs, header)
        return epochs

    def _scan(
        self, segments: list[Segment], first: int, epochs: EpochCache, producers: ProducerStates
    ) -> list[Segment]:
        """Rebuild what is known of the segments from `first` on; drop everything behind the first bad batch."""
        next_offset = segments[first].base_offset
        stamps = _Stamps(self._checkpointed)
        cleaned_to = max((cleaning.end_offset for cleaning in cleanings(self.disk, self.directory)), default=-1)
        for index in range(first, len(segments)):
            segment = segments[index]
            if segment.base_offset != next_offset and not next_offset <= segment.base_offset <= cleaned_to:
                # A new segment begins where the last one ended: something before it is lost. But compaction, which
                # touches durable segments only, may have taken the end.
                self.cut = Cut(next_offset, f"segment {segment.base_offset} comes after {next_offset}")
                return self._without(segments, index)
            self._scan_segment(segment, epochs, producers, stamps)
            next_offset = segment.next_offset
            if self.cut:
                return self._without(segments, index + 1)
        return segments

    def _scan_segment(self, segment: Segment, epochs: EpochCache, producers: ProducerStates, stamps: "_Stamps") -> None:
        segment.reset()
        end = 0
        damaged = self._misstamped
        try:
            for header, view in verified(segment, gaps_allowed=self.gaps_allowed):
                if damaged is not None and header.base_offset >= damaged.offset:
                    raise CorruptBatch(segment.file.path, end, damaged.reason)
                stamps.follow(header)
                marker = end_transaction(view, header) if header.is_control else None
                position = end
                end += header.size
                assign(epochs, header)
                segment.note(header, header.base_offset, position)
                aborted = producers.apply(header, header.base_offset, marker, self.now_ms)
                if aborted:
                    segment.aborted.append(aborted)
        except CorruptBatch as problem:
            self.cut = Cut(segment.next_offset, f"{problem}")
        segment.cut(end)

    def _without(self, segments: list[Segment], index: int) -> list[Segment]:
        for segment in reversed(segments[index:]):
            segment.remove()
        return segments[:index]


class _Misstamped(Exception):
    """A batch was scanned, or the one behind it, whose leader epoch is damaged; the log ends before it."""

    def __init__(self, cut: Cut) -> None:
        super().__init__(cut.reason)
        self.cut = cut


class _Stamps:
    """The leader epochs of batches that follow each other: none is below the one before.

    checkpointed:  epochs that are known to have begun.
    """

    def __init__(self, checkpointed: EpochCache) -> None:
        self._known = {epoch for epoch, _ in checkpointed}
        self._before = (-1, -1)  # epoch and offset of the last batch
        self._epoch_before_that = -1

    def follow(self, header: BatchHeader) -> None:
        """Take the next batch; `_Misstamped` says which of two is damaged where the epoch falls.

        The next one is where the one before it is of an epoch that is known, or is above one that already was; else the one before, whose
        epoch nobody else has.
        """
        epoch, offset = self._before
        if header.leader_epoch < epoch:
            is_known = epoch in self._known or header.leader_epoch < self._epoch_before_that
            raise _Misstamped(
                Cut(header.base_offset if is_known else offset, f"epoch {epoch} before epoch {header.leader_epoch}")
            )
        self._epoch_before_that, self._before = epoch, (header.leader_epoch, header.base_offset)


def make_durable_directory(disk: Disk, path: str) -> None:
    """Create a directory whose name survives a power loss: a log is no safer than its directory's name."""
    if not disk.exists(path):
        disk.make_directory(path)
        disk.sync_directory(path.rpartition("/")[0] or ".")


def assign(epochs: EpochCache, header: BatchHeader) -> bool:
    """Note a stored batch's epoch; return whether it is a new one."""
    return (
        header.leader_epoch >= 0
        and header.leader_epoch != epochs.latest
        and epochs.assign(header.leader_epoch, header.base_offset)
    )


def with_known_starts(scanned: EpochCache, checkpointed: Mapping[int, int]) -> EpochCache:
    """Return the scanned epochs, beginning where the checkpoint says: compaction may have taken their first batches."""
    epochs = EpochCache()
    for epoch, start in scanned:
        known = checkpointed.get(epoch, start)
        epochs.assign(epoch, known if epochs.latest_start < known < start else start)
    return epochs


def verified(segment: Segment, *, gaps_allowed: bool) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield every batch of a segment with the buffer it stands in; raise `CorruptBatch` at the first bad one.

    The header's position is that in the buffer.
    """
    position = 0
    next_offset = segment.base_offset
    while position < segment.size:
        view = memoryview(segment.file.read_at(position, SCAN_BYTES))
        header = header_at(view, 0, segment.file.path)
        if header.size > len(view):
            if position + header.size > segment.size:
                raise CorruptBatch(segment.file.path, position, "torn batch")
            view = memoryview(segment.file.read_at(position, header.size))
        inside = 0
        while len(view) - inside >= batch.HEADER_BYTES:
            header = header_at(view, inside, segment.file.path)
            if header.end > len(view):
                break
            if not has_valid_crc(view, header):
                raise CorruptBatch(segment.file.path, position + inside, "checksum")
            if header.base_offset != next_offset and (header.base_offset < next_offset or not gaps_allowed):
                raise CorruptBatch(segment.file.path, position + inside, f"{header.base_offset} follows {next_offset}")
            next_offset = header.next_offset
            inside = header.end
            yield header, view
        position += inside


def cleanings(disk: Disk, directory: str) -> list[Cleaning]:
    """Return the compactions that are remembered, oldest first."""
    path = f"{directory}/{CLEANER_FILE}"
    if not disk.exists(path):
        return []
    try:
        lines = parsed_lines(disk.read_file(path), fields=2, numbers=(0, 1))
    except CorruptCheckpoint:
        return []
    return [Cleaning(int(end_offset), int(at_ms)) for end_offset, at_ms in lines]


def forget_cleanings(disk: Disk, directory: str, offset: int) -> None:
    """Remember of compactions only what concerns offsets below this one: those above will mean something else."""
    known = cleanings(disk, directory)
    kept = [f"{min(cleaning.end_offset, offset)} {cleaning.at_ms}" for cleaning in known]
    if any(cleaning.end_offset > offset for cleaning in known):
        disk.replace_file(f"{directory}/{CLEANER_FILE}", rendered(kept))


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """Return the offsets at which producer snapshots exist, ascending."""
    return offsets_named(disk, directory, SNAPSHOT_SUFFIX)


def snapshot_path(directory: str, offset: int) -> str:
    """Return the path of the producer snapshot that covers the log up to `offset`."""
    return f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"


def load_producers(
    disk: Disk,
    directory: str,
    segments: list[Segment],
    end_offset: int,
    now_ms: int,
    high_watermark: int | None = None,
) -> ProducerStates:
    """Return the producers' state at `end_offset`: the last good snapshot and the batches behind it.

    Snapshots behind `end_offset` describe a history that is not this log's any more: they are removed, durably.

    high_watermark:  end markers at or above it are found among the batches, for no snapshot names them (SPEC 4.2.9): one that
                     was written with a segment's end is used only up to there. None: whoever asks knows of them.
    """
    is_whole = bool(segments) and segments[0].base_offset == 0
    producers, start = _latest_snapshot(disk, directory, end_offset, high_watermark, is_whole=is_whole)
    for segment in segments:
        if segment.next_offset <= start:
            continue
        for header in segment.headers(segment.position_of(start), chunk_bytes=SCAN_BYTES):
            if header.base_offset >= end_offset:
                break
            if header.base_offset < start:
                continue
            marker = None
            if header.is_control:
                content = segment.batch_bytes(header)
                marker = end_transaction(content, header_at(content, 0))
            producers.apply(header, header.base_offset, marker, now_ms)
    return producers


def _latest_snapshot(
    disk: Disk, directory: str, end_offset: int, high_watermark: int | None, *, is_whole: bool
) -> tuple[ProducerStates, int]:
    """Return the snapshot to begin with; where none is old enough the oldest, or nothing if the batches are there from the first on."""
    removed = False
    none = found = (ProducerStates(), 0)
    # What a stop in order leaves lies in the midst of a segment, and was written only if all ends were committed.
    rolled = offsets_named(disk, directory, LOG_SUFFIX)
    for offset in reversed(snapshot_offsets(disk, directory)):
        path = snapshot_path(directory, offset)
        if offset <= end_offset:
            try:
                found = (ProducerStates.from_snapshot(disk.read_file(path)), offset)
                if high_watermark is None or offset <= high_watermark or offset not in rolled:
                    break
                if is_whole:
                    found = none
                continue
            except CorruptSnapshot:
                pass
        disk.remove(path)
        removed = True
    if removed:
        disk.sync_directory(directory)
    return found
