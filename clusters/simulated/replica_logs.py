"""Every replica's log as its files say, followed batch by batch while they change.

The watch needs to know at any moment what each replica holds, without asking the code it watches. So it reads the log
files themselves: appended bytes are parsed once, a cut drops what lies behind it, and anything else (renames,
removals, power failures) makes that folder be read again from its beginning.

A batch is identified by epoch, offsets and CRC; the CRC covers everything but base offset and leader epoch.
What is read again is read as recovery reads it: a power failure leaves pages of zeros in the midst of what looks
like a batch by its first bytes, and takes the end of a segment whose successor it spares; so a log ends before the
first batch whose CRC is wrong or that does not follow. Only what was compacted once has gaps.
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from struct import Struct
from typing import Final

import msgspec
from crc32c import crc32c

from replog.log.creation import PARTITION_METADATA_FILE
from replog.log.recovery import CLEANER_FILE
from replog.types import TopicPartition
from tribunal.clusters.simulated.disk import LOG_SUFFIX, Inode, SimulatedDisk

HEADER: Final = Struct(">qiibIhiqqqhii")
LENGTH_FIELDS_BYTES: Final = 12  # base offset and length are not counted by the length
CRC_START: Final = 21  # the CRC covers what is behind itself
CONTROL: Final = 0x20
TRANSACTIONAL: Final = 0x10
LAST_OFFSET: Final = attrgetter("last_offset")


class BatchMark(msgspec.Struct, frozen=True, gc=False):
    """What identifies a batch in a log."""

    base_offset: int
    last_offset: int
    epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    first_sequence: int
    is_control: bool
    is_transactional: bool = False


def index_reaching(batches: list[BatchMark], offset: int) -> int:
    """Return the index of the first batch that ends at or behind an offset."""
    return bisect_left(batches, offset, key=LAST_OFFSET)


class ReplicaLog:
    """The batches of one replica, ascending."""

    def __init__(self) -> None:
        self.batches: list[BatchMark] = []
        self.ends: list[tuple[str, int]] = []  # file and end position of each batch
        self.lowest_change = 0  # index of the first batch that is new since somebody last set it
        self.start_offset: int | None = None  # where it begins, if it was read from its beginning
        self.is_compacted = False  # it is, or was copied from, a log that compaction has taken records out of
        self.owner = b""  # whose log it is: what `partition.metadata` says, empty until it says something

    @property
    def end_offset(self) -> int:
        """Return the offset behind the last record; where there is none, the one at which the log begins."""
        return self.batches[-1].last_offset + 1 if self.batches else self.start_offset or 0

    def follows(self, base_offset: int, *, gaps_allowed: bool) -> bool:
        """Return whether a batch with this base offset may be the next."""
        expected = self.end_offset if self.batches else self.start_offset
        return expected is None or base_offset == expected or (gaps_allowed and base_offset > expected)

    def position_in(self, path: str) -> int:
        """Return up to where a file, the last one of the log, has been read."""
        return self.ends[-1][1] if self.ends and self.ends[-1][0] == path else 0

    def cut(self, path: str, size: int) -> None:
        """Drop the batches that do not lie before `size` in this file, and those in later files."""
        while self.ends and (self.ends[-1][0] > path or (self.ends[-1][0] == path and self.ends[-1][1] > size)):
            self.ends.pop()
            self.batches.pop()
        self.lowest_change = min(self.lowest_change, len(self.batches))

    def index_of(self, offset: int) -> int:
        """Return the index of the first batch that ends at or behind an offset."""
        return index_reaching(self.batches, offset)


class ReplicaLogs:
    """All logs on one machine's disk; implements `disk.DiskWatcher`."""

    def __init__(self, disk: SimulatedDisk, data_directory: str) -> None:
        self.logs: dict[TopicPartition, ReplicaLog] = {}
        self.owners: dict[TopicPartition, bytes] = {}  # as last seen, also of logs that are gone
        self._disk = disk
        self._data_directory = data_directory
        self._grown: dict[str, None] = {}
        self._inodes: dict[str, Inode] = {}  # of files that grew, as long as no name changes
        self._folders: dict[TopicPartition, str] = {}  # where each log lies that is followed
        self._read_again = True
        self.changed = True  # there is something to read
        self.is_damaged = False  # bytes were altered where recovery does not look: CRCs say nothing of where a log ends
        self.on_change: Callable[[], None] = lambda: None

    def grew(self, path: str) -> None:
        """Note that a file has more to read."""
        self._grown[path] = None
        self._note_change()

    def was_cut(self, path: str, size: int) -> None:
        """Drop what was cut away."""
        partition = self.partition_of(path)
        if partition in self.logs and self._is_followed(partition, path):
            self.logs[partition].cut(path, size)
            self._grown[path] = None
            self._note_change()

    def names_changed(self, path: str) -> None:
        """Read everything again."""
        self._read_again = True
        self._inodes.clear()
        self._note_change()

    def _note_change(self) -> None:
        self.changed = True
        self.on_change()

    def catch_up(self) -> list[TopicPartition]:
        """Read what changed; return the partitions concerned."""
        self.changed = False
        if self._read_again:
            return self._read_all()
        touched: dict[TopicPartition, None] = {}
        for path in sorted(self._grown):
            partition = self.partition_of(path)
            if partition is not None and self._is_followed(partition, path):
                log = self.logs.setdefault(partition, ReplicaLog())
                self._read(log, path)
                self._identify(partition, log, path)
                touched[partition] = None
        self._grown.clear()
        return list(touched)

    def _read_all(self) -> list[TopicPartition]:
        self._read_again = False
        self._grown.clear()
        before = list(self.logs)
        self.logs.clear()
        ended: dict[TopicPartition, None] = {}  # nothing counts behind a batch that is not complete
        paths = self._disk.files_below(self._data_directory)
        self._folders = self._chosen(paths)
        for path in paths:
            partition = self.partition_of(path)
            if partition is not None and self._is_followed(partition, path):
                log = self.logs.setdefault(partition, ReplicaLog())
                if log.start_offset is None:
                    log.start_offset = first_offset_of(path)
                    log.is_compacted = self._disk.exists(f"{path.rpartition('/')[0]}/{CLEANER_FILE}")
                    self._identify(partition, log, path)
                if partition not in ended and not self._read(log, path, suspicious=not self.is_damaged):
                    ended[partition] = None
        return list(dict.fromkeys([*before, *self.logs]))

    def _is_followed(self, partition: TopicPartition, path: str) -> bool:
        folder = path.rpartition("/")[0]
        return self._folders.setdefault(partition, folder) == folder

    def _chosen(self, paths: list[str]) -> dict[TopicPartition, str]:
        """Choose where each log lies: a directory that fails may keep one whose topic is gone, beside that of a topic of the same name in another directory.

        One in a directory that works counts before one in a directory that does not, then the one that was followed.
        """
        found: dict[TopicPartition, dict[str, None]] = {}
        for path in paths:
            if (partition := self.partition_of(path)) is not None:
                found.setdefault(partition, {})[path.rpartition("/")[0]] = None
        return {
            partition: min(
                folders, key=lambda folder: (self._disk.is_broken(folder), folder != self._folders.get(partition))
            )
            for partition, folders in found.items()
        }

    def _identify(self, partition: TopicPartition, log: ReplicaLog, path: str) -> None:
        if not log.owner:
            log.owner = bytes(self._disk.content(f"{path.rpartition('/')[0]}/{PARTITION_METADATA_FILE}") or b"")
            self.owners[partition] = log.owner

    def _read(self, log: ReplicaLog, path: str, *, suspicious: bool = False) -> bool:
        """Read what a file has more; return whether that is complete batches to its end.

        suspicious:  check CRCs and the order of offsets.
        """
        inode = self._inodes.get(path)
        if inode is None:
            inode = self._disk.inode(path)
            if inode is None:
                return True
            self._inodes[path] = inode
        content = inode.content
        position = log.position_in(path)
        gaps_allowed = suspicious and self._disk.exists(f"{path.rpartition('/')[0]}/{CLEANER_FILE}")
        while position + HEADER.size <= len(content):
            (
                base,
                length,
                epoch,
                magic,
                crc,
                attributes,
                last_delta,
                _,
                _,
                producer_id,
                producer_epoch,
                sequence,
                _,
            ) = HEADER.unpack_from(content, position)
            end = position + LENGTH_FIELDS_BYTES + length
            if magic != 2 or end > len(content) or length < HEADER.size - LENGTH_FIELDS_BYTES:
                return False  # torn or foreign: the log ends here until it is repaired
            if suspicious and (
                crc32c(memoryview(content)[position + CRC_START : end]) != crc
                or not log.follows(base, gaps_allowed=gaps_allowed)
            ):
                return False
            if not log.is_compacted and log.batches and base > log.end_offset:
                # A follower notes, before it copies the first gap, that its leader's log was compacted.
                log.is_compacted = self._disk.exists(f"{path.rpartition('/')[0]}/{CLEANER_FILE}")
            is_control, is_transactional = bool(attributes & CONTROL), bool(attributes & TRANSACTIONAL)
            last = base + last_delta
            log.batches.append(
                BatchMark(base, last, epoch, crc, producer_id, producer_epoch, sequence, is_control, is_transactional)
            )
            log.ends.append((path, end))
            position = end
        return position == len(content)

    def partition_of(self, path: str) -> TopicPartition | None:
        """Return whose log file this is; None for files that are none, or of a log put aside."""
        return partition_of(self._data_directory, path)


@lru_cache(maxsize=1 << 10)  # asked with each append
def partition_of(data_directory: str, path: str) -> TopicPartition | None:
    """Return whose log file this is, on a machine whose log directories are here."""
    folder, _, name = path.rpartition("/")
    parent, _, folder_name = folder.rpartition("/")
    topic, dash, number = folder_name.rpartition("-")
    # A node has one log directory, or several next to each other in this one.
    is_log_directory = data_directory in (parent, parent.rpartition("/")[0])
    if not is_log_directory or not name.endswith(LOG_SUFFIX) or not dash or not number.isdecimal():
        return None
    return TopicPartition(topic, int(number))


def first_offset_of(path: str) -> int | None:
    """Return the offset that a segment is named after."""
    stem = path.rpartition("/")[2].removesuffix(LOG_SUFFIX)
    return int(stem) if stem.isdecimal() else None
