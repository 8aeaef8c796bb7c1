"""Distinguishing damage of the metadata log from what a crash leaves behind.

A crash tears what was not synced yet: that end is cut off and fetched again. What was synced counts towards majorities, so a
voter that lost some of it may not go on as if it had never had it: a record that was answered could be outvoted. Where
the synced end is stands in a small file, written after every sync and not synced itself: after a power failure it may say
less than was synced, never more. Damage below it, a snapshot or a quorum-state file that cannot be read, and a log that
begins where no snapshot ends stop the node, which says which file, where, and what is wrong with it.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from crc32c import crc32c

from replog.log.batch import CorruptBatch, batches, has_valid_crc
from replog.log.segment import LOG_SUFFIX, offsets_named
from replog.ports import Disk
from replog.wire.codec import MalformedMessage

FILE_NAME: Final = "synced-end"
LAYOUT: Final = struct.Struct(">qI")  # offset, CRC-32C of the offset's bytes
OFFSET: Final = struct.Struct(">q")


class DamagedMetadata(Exception):
    """A file of the metadata log is not what was written: the node must not go on with the rest."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} is damaged at {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Name the file in which reading finds damage."""
    try:
        yield
    except CorruptBatch as problem:
        raise DamagedMetadata(path, problem.position, problem.reason) from problem
    except MalformedMessage as problem:
        raise DamagedMetadata(path, 0, str(problem)) from problem


class SyncedEnd:
    """The first offset that is not known to be on the disk for good, as the file has it."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._path = f"{directory}/{FILE_NAME}"
        self._disk = disk
        self.offset = _read(disk, self._path)

    def raise_to(self, offset: int) -> None:
        """Note that everything below is synced. Cheap: what a power failure takes of the note is missed by nobody."""
        if offset <= self.offset:
            return
        self.offset = offset
        file = self._disk.open(self._path, create=True)
        try:
            file.write_at(0, _content(offset))
        finally:
            file.close()

    def lower_to(self, offset: int) -> None:
        """Take back what is about to be cut off; durable before it is."""
        if offset < self.offset:
            self.offset = offset
            self._disk.replace_file(self._path, _content(offset))


def _content(offset: int) -> bytes:
    return LAYOUT.pack(offset, crc32c(OFFSET.pack(offset)))


def _read(disk: Disk, path: str) -> int:
    content = disk.read_file(path) if disk.exists(path) else b""
    if len(content) != LAYOUT.size:
        return 0
    offset, checksum = LAYOUT.unpack(content)
    # A torn note says nothing: then nothing is known to be synced, as before there were notes.
    return int(offset) if checksum == crc32c(OFFSET.pack(offset)) else 0


def check_synced(disk: Disk, directory: str, *, start: int, end: int) -> None:
    """Read what has to be there, from `start` up to `end`, and change nothing; `DamagedMetadata` where it is not."""
    if start >= end:
        return
    bases = offsets_named(disk, directory, LOG_SUFFIX)
    first = max((base for base in bases if base <= start), default=-1)
    if first < 0:
        raise DamagedMetadata(f"{directory}/{start:020d}.log", 0, f"missing; records below {end} were synced")
    reached = first
    path = ""
    for base in (base for base in bases if base >= first):
        path = f"{directory}/{base:020d}.log"
        if base != reached:
            raise DamagedMetadata(path, 0, f"begins at {base}, where offset {reached} has to follow")
        reached = _end_of(disk, path, base, end)
        if reached >= end:
            return
    raise DamagedMetadata(path, len(disk.read_file(path)), f"ends at offset {reached}, was synced up to {end}")


def _end_of(disk: Disk, path: str, base: int, end: int) -> int:
    """Return where a segment's whole batches end, or the first batch end behind `end`."""
    content = memoryview(disk.read_file(path))
    reached = base
    with reading(path):
        for header in batches(content, path):
            if header.base_offset != reached:
                raise CorruptBatch(path, header.position, f"offset {header.base_offset} where {reached} has to follow")
            if not has_valid_crc(content, header):
                raise CorruptBatch(path, header.position, "checksum")
            reached = header.next_offset
            if reached >= end:
                return reached
    return reached


def check_beginning(directory: str, log_start_offset: int, snapshot_end: int) -> None:
    """Refuse a log that begins behind its snapshots: what is missing was committed."""
    if snapshot_end < log_start_offset:
        found = f"the newest reaches {snapshot_end}" if snapshot_end else "there is none"
        raise DamagedMetadata(
            directory, 0, f"the log begins at offset {log_start_offset}, and no snapshot reaches it: {found}"
        )
