"""One segment of a log: a file of batches, and sparse indexes over it, in Kafka's file layout.

`<20 digits>.log` holds batches from that offset on. The indexes live in memory as arrays and are searched by
bisection; their files `.index` (relative last offset int32, position int32), `.timeindex` (timestamp int64,
relative offset int32) and `.txnindex` (aborted transactions) are written when the segment's content is durable,
`.index` last. So an `.index` beside a sealed segment says: what the log file held then was on the platter.
Without it an unclean start does not trust the segment (recovery.py).

An index entry is made for the batch that follows every `index_interval_bytes`, holding the batch's last offset:
the greatest entry <= a wanted offset therefore never lies behind it.
"""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator, Sequence
from itertools import pairwise
from struct import Struct as Layout
from typing import Final, NamedTuple

from replog.config.setting import LONG_MAX
from replog.log.batch import HEADER_BYTES, OVERHEAD_BYTES, BatchHeader, CorruptBatch, header_at
from replog.ports import Buffer, Disk, File

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
CLEANED_SUFFIX: Final = ".cleaned"
INDEX_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)  # `.index` goes first, comes last
NAMED: Final = re.compile(r"[0-9]{20}")  # as `file_name` does
RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1
SCAN_BYTES: Final = 1 << 20
KNOWN_MAX: Final = 256

_INDEX_ENTRY: Final = Layout(">ii")
_TIME_ENTRY: Final = Layout(">qi")
_TRANSACTION_ENTRY: Final = Layout(">hqqqq")


class AbortedTransaction(NamedTuple):
    """An aborted transaction as the index keeps it (SPEC 4.2.10); `last_offset` is its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class CorruptIndex(Exception):
    """An index file does not fit its segment: it has to be built again from the batches."""


def file_name(base_offset: int, suffix: str) -> str:
    """Return the name of one of a segment's files."""
    return f"{base_offset:020d}{suffix}"


def offsets_named(disk: Disk, directory: str, suffix: str) -> list[int]:
    """Return the offsets that name a directory's files of a kind, ascending; files that somebody else named are none of these.

    A copy called `5.log` is one of those: a segment that began at 5 would be another file, and all behind it would not fit.
    """
    names = disk.list_directory(directory)
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if NAMED.fullmatch(stem) and int(stem) <= LONG_MAX)


class Segment:
    """Batches from `base_offset` on; the last segment of a log is appended to, the others are sealed."""

    def __init__(self, disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int, now_ms: int) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.index_interval_bytes = index_interval_bytes
        self.created_ms = now_ms
        self.file: File = disk.open(self.path(LOG_SUFFIX), create=True)
        self.size = self.file.size()
        self.has_durable_indexes = False
        self.reset()

    def reset(self) -> None:
        """Forget what is known of the content, before it is scanned again."""
        self.next_offset = self.base_offset
        self.first_batch_offset = self.base_offset
        self.first_timestamp_ms: int | None = None
        self.largest_timestamp_ms = -1
        self.largest_timestamp_offset = -1
        self.aborted: list[AbortedTransaction] = []
        self._offsets = array("q")
        self._positions = array("q")
        self._timestamps = array("q")
        self._timestamp_offsets = array("q")
        self._unindexed_bytes = 0
        self._known: dict[int, int] = {}

    def path(self, suffix: str) -> str:
        """Return the path of one of the segment's files."""
        return f"{self.directory}/{file_name(self.base_offset, suffix)}"

    # Writing.

    def append(self, parts: Sequence[Buffer], size: int) -> int:
        """Write `size` bytes behind the last batch; return the position. The caller notes the batches then.

        After an error the file is as before, or the error came from cutting it back: then it is lost to us.
        """
        position = self.size
        try:
            written_at = self.file.append(*parts)
        except OSError:
            self.file.truncate(position)
            raise
        assert written_at == position, f"{self.file.path}: {written_at} instead of {position}"
        self.size = position + size
        self.has_durable_indexes = False
        self._remember(self.next_offset, position)
        return position

    def cut(self, position: int) -> None:
        """Drop everything from a batch boundary on, durably, and what the indexes say about it.

        Durable at once: bytes that come back after a power loss, behind or between newer ones, would be
        valid batches of a history that was given up.
        """
        self.forget_durable_indexes()
        if position < self.size:
            self.file.truncate(position)
            self.file.sync()
            self.size = position

    def forget_durable_indexes(self) -> None:
        """Remove the index files: from now on the segment's content is not known to be durable."""
        existing = [path for path in map(self.path, INDEX_SUFFIXES) if self.disk.exists(path)]
        for path in existing:
            self.disk.remove(path)
        # An earlier process may have removed them and died before its sync: only a new segment has none to forget.
        if existing or self.size:
            self.disk.sync_directory(self.directory)
        self.has_durable_indexes = False

    def begin_replacement(self) -> File:
        """Return an empty file for other batches of the same extent; a crash leaves it to be removed."""
        file = self.disk.open(self.path(LOG_SUFFIX) + CLEANED_SUFFIX, create=True)
        file.truncate(0)
        return file

    def drop_replacement(self, file: File) -> None:
        """Keep the content as it is."""
        file.close()
        self.disk.remove(file.path)

    def replace(self, file: File, dropped_markers: Container[int] = ()) -> None:
        """Take a replacement that is durable; aborted transactions stay, unless their end markers went.

        Without its marker a transaction would have no end for a consumer, and all that the producer did since be aborted.
        A crash leaves the old file or the new one, perhaps without indexes: then it is scanned.
        """
        self.forget_durable_indexes()
        self.file.close()
        self.disk.rename(file.path, self.path(LOG_SUFFIX))
        self.disk.sync_directory(self.directory)
        file.close()
        self.file = self.disk.open(self.path(LOG_SUFFIX))
        self.size = self.file.size()
        aborted = [aborted for aborted in self.aborted if aborted.last_offset not in dropped_markers]
        self.reset()
        self.aborted = aborted
        for header in self.headers(chunk_bytes=SCAN_BYTES):
            self.note(header, header.base_offset, header.position)
        self.write_indexes()

    def remove(self) -> None:
        """Remove all files of the segment, durably."""
        self.file.close()
        for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
            if self.disk.exists(self.path(suffix)):
                self.disk.remove(self.path(suffix))
        self.disk.sync_directory(self.directory)

    @property
    def index_bytes(self) -> int:
        """Size that the larger index's file could have."""
        return len(self._offsets) * _TIME_ENTRY.size  # the time index has at most as many entries, larger ones

    def note(self, header: BatchHeader, base_offset: int, position: int) -> None:
        """Take a batch that stands at `position` of the file into the indexes and totals."""
        last_offset = base_offset + header.last_offset_delta
        timestamp_ms = header.max_timestamp_ms
        size = header.length + OVERHEAD_BYTES
        if timestamp_ms > self.largest_timestamp_ms:
            self.largest_timestamp_ms = timestamp_ms
            self.largest_timestamp_offset = last_offset
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = timestamp_ms
        if self._unindexed_bytes > self.index_interval_bytes:
            self._offsets.append(last_offset)
            self._positions.append(position)
            self._index_timestamp()
            self._unindexed_bytes = 0
        self._unindexed_bytes += size
        self.next_offset = last_offset + 1

    def _index_timestamp(self) -> None:
        if self.largest_timestamp_ms > (self._timestamps[-1] if self._timestamps else -1):
            self._timestamps.append(self.largest_timestamp_ms)
            self._timestamp_offsets.append(self.largest_timestamp_offset)

    # Looking up.

    def read(self, offset: int, *, max_bytes: int, end_offset: int, at_least_one: bool) -> bytes | None:
        """Return whole batches from the one that holds `offset`; None when all batches here end before it.

        No batch reaches to or beyond `end_offset` (SPEC 3.9.1: not even the middle of one may be shown).
        """
        begin = self.position_of(offset)
        if begin >= self.size:
            return None
        end = self.size if end_offset >= self.next_offset else self.position_of(end_offset)
        if end - begin > max_bytes:
            end = self._boundary_within(begin, max_bytes, at_least_one=at_least_one)
        if end <= begin:
            return b""
        content = self.file.read_at(begin, end - begin)
        if len(content) != end - begin:
            raise CorruptBatch(self.file.path, begin, "the file is shorter than its batches")
        return content

    def position_of(self, offset: int) -> int:
        """Return where the batch that holds `offset` starts (or the next one, if it is in a gap); else the size."""
        if offset >= self.next_offset:
            return self.size
        known = self._known.get(offset)
        if known is not None:
            return known
        index = bisect_right(self._offsets, offset) - 1
        for header in self.headers(self._positions[index] if index >= 0 else 0):
            if header.next_offset > offset:
                if header.base_offset == offset:
                    self._remember(offset, header.position)
                return header.position
        return self.size

    def offset_behind(self, position: int) -> int:
        """Return an offset that no batch before a position of the file reaches beyond; by the index alone."""
        index = bisect_left(self._positions, position)
        return self._offsets[index] + 1 if index < len(self._offsets) else self.next_offset

    def _boundary_within(self, begin: int, max_bytes: int, *, at_least_one: bool) -> int:
        """Return the last batch boundary at most `max_bytes` behind `begin`, or that of the first batch."""
        limit = begin + max_bytes
        index = bisect_right(self._positions, limit) - 1
        boundary = max(begin, self._positions[index] if index >= 0 else 0)
        for header in self.headers(boundary):
            if header.end > limit and (boundary > begin or not at_least_one):
                break
            boundary = header.end
            self._remember(header.next_offset, boundary)
            if boundary >= limit:
                break
        return boundary

    def _remember(self, offset: int, position: int) -> None:
        # Readers go on where they stopped, and the high watermark sits between two appends: most
        # look-ups ask for a boundary that was seen a moment ago.
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[offset] = position

    def headers(self, position: int = 0, *, chunk_bytes: int = 0) -> Iterator[BatchHeader]:
        """Yield the headers from a batch boundary to the end, with positions in the file."""
        chunk_bytes = chunk_bytes or self.index_interval_bytes + HEADER_BYTES
        while position < self.size:
            content = self.file.read_at(position, chunk_bytes)
            inside = 0
            while len(content) - inside >= HEADER_BYTES:
                header = header_at(content, inside, self.file.path, position)
                inside = header.end - position
                yield header
            if inside == 0:
                raise CorruptBatch(self.file.path, position, "torn header")
            position += inside

    def first_at_or_after(self, timestamp_ms: int) -> Iterator[BatchHeader]:
        """Yield batches, in offset order, whose largest timestamp is at least this one."""
        index = bisect_left(self._timestamps, timestamp_ms) - 1
        # The time index entry before the wanted one: all batches up to its offset are older.
        start = self.position_of(self._timestamp_offsets[index]) if index >= 0 else 0
        return (header for header in self.headers(start) if header.max_timestamp_ms >= timestamp_ms)

    def batch_bytes(self, header: BatchHeader) -> bytes:
        """Return a whole batch, given its header."""
        return self.file.read_at(header.position, header.size)

    # Index files.

    @property
    def index_entries(self) -> list[tuple[int, int]]:
        """Return (last offset, position) of the indexed batches."""
        return list(zip(self._offsets, self._positions, strict=True))

    def write_indexes(self) -> None:
        """Write the index files; call it only when the batches are durable."""
        files = self.index_files()
        for suffix in reversed(INDEX_SUFFIXES):
            self.disk.replace_file(self.path(suffix), files[file_name(self.base_offset, suffix)])
        self.has_durable_indexes = True

    def index_files(self) -> dict[str, bytes]:
        """Return the content of the index files by name."""
        offsets = (
            _INDEX_ENTRY.pack(o - self.base_offset, p) for o, p in zip(self._offsets, self._positions, strict=True)
        )
        transactions = (_TRANSACTION_ENTRY.pack(0, *aborted) for aborted in self.aborted)
        contents = (b"".join(offsets), b"".join(self._time_entries()), b"".join(transactions))
        names = (file_name(self.base_offset, suffix) for suffix in INDEX_SUFFIXES)
        return dict(zip(names, contents, strict=True))

    def _time_entries(self) -> Iterator[bytes]:
        for timestamp_ms, offset in zip(self._timestamps, self._timestamp_offsets, strict=True):
            yield _TIME_ENTRY.pack(timestamp_ms, offset - self.base_offset)
        # A sealed segment's last entry names its largest timestamp: retention asks for it without a scan.
        if self.largest_timestamp_ms > (self._timestamps[-1] if self._timestamps else -1):
            yield _TIME_ENTRY.pack(self.largest_timestamp_ms, self.largest_timestamp_offset - self.base_offset)

    def load_indexes(self) -> None:
        """Read the index files instead of the batches; the end is found from the last entry on.

        Raises `CorruptIndex`, `CorruptBatch` or `FileNotFoundError`: scan the segment then.
        """
        self.reset()
        for offset, position in _INDEX_ENTRY.iter_unpack(self._index_content(INDEX_SUFFIX, _INDEX_ENTRY)):
            self._offsets.append(self.base_offset + offset)
            self._positions.append(position)
        for timestamp_ms, offset in _TIME_ENTRY.iter_unpack(self._index_content(TIME_INDEX_SUFFIX, _TIME_ENTRY)):
            self._timestamps.append(timestamp_ms)
            self._timestamp_offsets.append(self.base_offset + offset)
        content = self._index_content(TRANSACTION_INDEX_SUFFIX, _TRANSACTION_ENTRY)
        self.aborted = [AbortedTransaction(*entry[1:]) for entry in _TRANSACTION_ENTRY.iter_unpack(content)]
        if not (_ascends(self._offsets) and _ascends(self._positions) and _ascends(self._timestamps)):
            raise CorruptIndex(self.path(INDEX_SUFFIX))
        if self._positions and not 0 <= self._positions[0] <= self._positions[-1] < self.size:
            raise CorruptIndex(self.path(INDEX_SUFFIX))  # a negative one no disk can read, which would take it offline
        self._load_end()
        self.has_durable_indexes = True

    def _index_content(self, suffix: str, layout: Layout) -> bytes:
        content = self.disk.read_file(self.path(suffix))
        if len(content) % layout.size:
            raise CorruptIndex(self.path(suffix))
        return content

    def truncate(self, offset: int) -> int:
        """Cut at the batch that holds `offset`, durably; return the offset that comes next then."""
        position = self.position_of(offset)
        following = next(self.headers(position), None)
        next_offset = offset if following is None else min(offset, following.base_offset)
        self.cut(position)
        while self._positions and self._positions[-1] >= position:
            self._positions.pop()
            self._offsets.pop()
        while self._timestamp_offsets and self._timestamp_offsets[-1] >= next_offset:
            self._timestamp_offsets.pop()
            self._timestamps.pop()
        self.aborted = [aborted for aborted in self.aborted if aborted.last_offset < next_offset]
        self._known.clear()
        self._load_end()
        self.next_offset = next_offset
        return next_offset

    def _load_end(self) -> None:
        self.largest_timestamp_ms = self._timestamps[-1] if self._timestamps else -1
        self.largest_timestamp_offset = self._timestamp_offsets[-1] if self._timestamp_offsets else -1
        first = next(self.headers(), None)
        self.first_timestamp_ms = first.max_timestamp_ms if first else None
        self.first_batch_offset = first.base_offset if first else self.base_offset
        start = self._positions[-1] if self._positions else 0
        self.next_offset = self.base_offset
        for header in self.headers(start):
            if header.end > self.size:
                raise CorruptBatch(self.file.path, header.position, "torn batch")
            self.next_offset = header.next_offset
            if header.max_timestamp_ms > self.largest_timestamp_ms:
                self.largest_timestamp_ms = header.max_timestamp_ms
                self.largest_timestamp_offset = header.last_offset
        self._unindexed_bytes = self.size - start


def _ascends(numbers: Sequence[int]) -> bool:
    return all(a < b for a, b in pairwise(numbers))
