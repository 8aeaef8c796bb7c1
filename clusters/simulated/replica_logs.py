"""Every replica's log as its files say, followed batch by batch while they change.

The watch needs to know at any moment what each replica holds, without asking the code it watches. So it reads the log
files themselves: appended bytes are parsed once, a cut drops what lies behind it, and anything else (renames,
removals, power failures) makes that folder be read again from its beginning.

A batch is told apart by epoch, offsets and CRC; the CRC covers everything but base offset and leader epoch.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from clusters.simulated.disk import LOG_SUFFIX, SimulatedDisk
from replog.types import TopicPartition

HEADER: Final = Struct(">qiibIhiqqqhii")
LENGTH_FIELDS_BYTES: Final = 12  # base offset and length are not counted by the length
CONTROL: Final = 0x20


class BatchMark(NamedTuple):
    """What identifies a batch in a log."""

    base_offset: int
    last_offset: int
    epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    first_sequence: int
    is_control: bool


class ReplicaLog:
    """The batches of one replica, ascending."""

    def __init__(self) -> None:
        self.batches: list[BatchMark] = []
        self.ends: list[tuple[str, int]] = []  # file and end position of each batch
        self.lowest_change = 0  # index of the first batch that is new since somebody last set it

    @property
    def end_offset(self) -> int:
        """Return the offset behind the last record; 0 when there is none."""
        return self.batches[-1].last_offset + 1 if self.batches else 0

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
        low, high = 0, len(self.batches)
        while low < high:
            middle = (low + high) // 2
            if self.batches[middle].last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low


class ReplicaLogs:
    """All logs on one machine's disk; implements `disk.DiskWatcher`."""

    def __init__(self, disk: SimulatedDisk, data_directory: str) -> None:
        self.logs: dict[TopicPartition, ReplicaLog] = {}
        self._disk = disk
        self._data_directory = data_directory
        self._grown: dict[str, None] = {}
        self._read_again = True
        self.on_change: Callable[[], None] = lambda: None

    def grew(self, path: str) -> None:
        """Note that a file has more to read."""
        self._grown[path] = None
        self.on_change()

    def was_cut(self, path: str, size: int) -> None:
        """Drop what was cut away."""
        partition = self.partition_of(path)
        if partition in self.logs:
            self.logs[partition].cut(path, size)
            self._grown[path] = None
            self.on_change()

    def names_changed(self, path: str) -> None:
        """Read everything again."""
        self._read_again = True
        self.on_change()

    @property
    def changed(self) -> bool:
        """Tell whether there is something to read."""
        return self._read_again or bool(self._grown)

    def catch_up(self) -> list[TopicPartition]:
        """Read what changed; return the partitions concerned."""
        if self._read_again:
            return self._read_all()
        touched: dict[TopicPartition, None] = {}
        for path in sorted(self._grown):
            partition = self.partition_of(path)
            if partition is not None:
                self._read(self.logs.setdefault(partition, ReplicaLog()), path)
                touched[partition] = None
        self._grown.clear()
        return list(touched)

    def _read_all(self) -> list[TopicPartition]:
        self._read_again = False
        self._grown.clear()
        before = list(self.logs)
        self.logs.clear()
        for path in self._disk.files_below(self._data_directory):
            partition = self.partition_of(path)
            if partition is not None:
                self._read(self.logs.setdefault(partition, ReplicaLog()), path)
        return list(dict.fromkeys([*before, *self.logs]))

    def _read(self, log: ReplicaLog, path: str) -> None:
        content = self._disk.content(path)
        if content is None:
            return
        position = log.position_in(path)
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
                return  # torn or foreign: the log ends here until it is repaired
            is_control = bool(attributes & CONTROL)
            log.batches.append(
                BatchMark(base, base + last_delta, epoch, crc, producer_id, producer_epoch, sequence, is_control)
            )
            log.ends.append((path, end))
            position = end

    def partition_of(self, path: str) -> TopicPartition | None:
        """Return whose log file this is; None for files that are none, or of a log put aside."""
        folder, _, name = path.rpartition("/")
        parent, _, folder_name = folder.rpartition("/")
        topic, dash, number = folder_name.rpartition("-")
        if parent != self._data_directory or not name.endswith(LOG_SUFFIX) or not dash or not number.isdigit():
            return None
        return TopicPartition(topic, int(number))
