"""Looking for bytes that went bad in a segment, and putting back what another replica still has of them.

What is committed is the same batch, byte by byte, on every replica. So a damaged batch is overwritten in its place by the one that somebody else holds at
its offset: nothing is truncated, and a member of the ISR never holds less than it said. A crash in between leaves the damage, or no damage; nothing
but damaged bytes is written over.

Compaction makes replicas differ. There a batch is put back only when what is left of ours proves that it is the one that stood here: its checksum, or all
that the checksum covers. Another's, compacted further or less, could bring back a key that was deleted.

Of the active segment only what is committed is looked at: what stands behind that may be another replica's batch in the end.
"""

from typing import Final

from replog.log.batch import HEADER_BYTES, BatchHeader, CorruptBatch, fetched_batches, has_valid_crc, header_at
from replog.log.log import Log
from replog.log.segment import Segment

STEP_BYTES: Final = 256 * 1024
CRC_AT: Final = slice(17, 21)
CHECKED_FROM: Final = 21  # of a batch: where that begins what its checksum covers


class Scrub:
    """One look through a segment, some batches at a time.

    position, offset:  of the batch that comes next; where that is damaged they say what has to be there.
    """

    def __init__(self, log: Log, segment: Segment, end_offset: int | None = None) -> None:
        """`end_offset`: of an active segment, which offset is not committed any more; None: the segment is sealed."""
        self.end_offset = end_offset
        self.log = log
        self.segment = segment
        self.file = segment.file
        self.position = 0
        self.offset = segment.base_offset
        self._is_first = True  # whether `offset` is the batch's first, or just one that it holds
        self._has_gaps = log.settings.compacts or log.expects_gaps
        self._truncation_count = log.truncation_count

    @property
    def is_current(self) -> bool:
        """Return whether the segment is what it was: not deleted, cut or compacted since."""
        log, segment = self.log, self.segment
        return (
            segment.file is self.file
            and log.truncation_count == self._truncation_count
            and (self.end_offset is not None or segment is not log.segments[-1])
            and segment in log.segments
        )

    @property
    def _is_at_end(self) -> bool:
        return self.position >= self.segment.size or (self.end_offset is not None and self.offset >= self.end_offset)

    def step(self, limit_bytes: int = STEP_BYTES) -> int:
        """Check the next batches, at least one; return how many bytes they have, 0 at the end. Raises `CorruptBatch`."""
        begin = self.position
        left_bytes = self.segment.size - begin
        if self._is_at_end:
            return 0
        self.file.forget_cached(begin, min(limit_bytes, left_bytes))
        view = memoryview(self.file.read_at(begin, min(max(limit_bytes, HEADER_BYTES), left_bytes)))
        while (inside := self.position - begin) + HEADER_BYTES <= len(view) and not self._is_at_end:
            header = header_at(view, inside, self.file.path)
            if header.end > len(view):
                if inside:
                    break  # it is the next step's
                view = memoryview(self._whole(header))
            self._check(view, header)
            self._pass(header)
        if self.position == begin:
            raise CorruptBatch(self.file.path, begin, "torn header")
        return self.position - begin

    def skip(self) -> bool:
        """Go on behind a damaged batch, where the index knows of another; return whether it does."""
        for last_offset, position in self.segment.index_entries:
            if position > self.position:
                self.position, self.offset, self._is_first = position, last_offset, False
                return True
        return False

    def put_back(self, content: bytes) -> int:
        """Overwrite damaged batches, from the next one to the first that is sound, by those that another replica has; return how many.

        The caller syncs the file. Raises `CorruptBatch` when these are not the batches that stood here.
        """
        view = memoryview(content)
        count = 0
        for header in fetched_batches(view, "fetched"):
            if count and self._is_sound():
                break
            try:
                self._admit(view, header)
            except CorruptBatch:
                if count:
                    break  # another replica may have more
                raise
            self.file.write_at(self.position, view[header.position : header.end])
            self._pass(header)
            count += 1
        return count

    def _whole(self, header: BatchHeader) -> bytes:
        if self.position + header.size > self.segment.size:
            raise CorruptBatch(self.file.path, self.position, "torn batch")
        content = self.file.read_at(self.position, header.size)
        if len(content) < header.size:
            raise CorruptBatch(self.file.path, self.position, "the file is shorter than its batches")
        return content

    def _is_sound(self) -> bool:
        """Return whether nothing is wrong with our own next batch, the end included."""
        if self._is_at_end:
            return True
        try:
            header = header_at(self.file.read_at(self.position, HEADER_BYTES), 0, self.file.path)
            self._check(memoryview(self._whole(header)), header)
        except CorruptBatch:
            return False
        return True

    def _check(self, view: memoryview, header: BatchHeader) -> None:
        """Raise `CorruptBatch` unless this is a batch that may stand next."""
        path = self.file.path
        if not has_valid_crc(view, header):
            raise CorruptBatch(path, self.position, "checksum")
        holds = header.base_offset <= self.offset < header.next_offset
        follows = header.base_offset == self.offset or (self._has_gaps and header.base_offset > self.offset)
        if not (follows if self._is_first else holds) or header.next_offset > self.segment.next_offset:
            raise CorruptBatch(path, self.position, f"base offset {header.base_offset} where {self.offset} has to be")
        # The checksum does not cover the leader epoch: what the log knows of its epochs says which it has to be.
        epoch = self.log.epochs.epoch_for_offset(header.base_offset)
        if header.base_offset >= self.log.log_start_offset and epoch not in (-1, header.leader_epoch):
            raise CorruptBatch(path, self.position, f"of leader epoch {header.leader_epoch}, not {epoch}")

    def _admit(self, view: memoryview, header: BatchHeader) -> None:
        """Raise `CorruptBatch` unless another's batch is the one that stood here."""
        self._check(view, header)
        if self.position + header.size > self.segment.size:
            raise CorruptBatch("fetched", header.position, "larger than what stood here")
        if self._has_gaps and not self._was_here(view, header):
            raise CorruptBatch("fetched", header.position, "it may not be the batch that stood here")

    def _was_here(self, view: memoryview, header: BatchHeader) -> bool:
        theirs = view[header.position : header.end]
        ours = memoryview(self.file.read_at(self.position, header.size))
        return ours[CRC_AT] == theirs[CRC_AT] or ours[CHECKED_FROM:] == theirs[CHECKED_FROM:]

    def _pass(self, header: BatchHeader) -> None:
        self.position += header.size
        self.offset = header.next_offset
        self._is_first = True
