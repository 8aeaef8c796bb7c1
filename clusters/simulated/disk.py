"""A simulated disk: what the processes see, and what a power failure leaves of it.

Every file has its *content* (the page cache, which survives kill -9) and its *durable image*. Writes mark extents
dirty; a sync copies them to the image once its time has passed. Directories likewise have entries as seen and
durable entries, with the changes in between kept in order until `sync_directory`.

At a power failure each dirty 4 KiB page survives by coin, some torn at a 512-byte sector; each unsynced change of a
name survives by coin; what was synced stays. The coin's bias is drawn per failure, so that some failures lose
everything unsynced and some nothing; disks that lose it at the same moment have it in common. What faults can do to a running disk is in `Faults`; one part of it, as one of
several disks, fails by `break_below`.

The disk knows no event loop: it asks its owner for the time and tells it how long a blocking call took (`DiskTime`).
Without one it keeps its own time, so that a log can be crash-tested without a simulation (`crash_at` fails the power in
the middle of the n-th operation; `PowerLost` then runs through whoever called).
"""

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Final, Protocol

import msgspec

from replog.ports import Buffer, File, NewFolder, Space

LOG_SUFFIX: Final = ".log"
PAGE_BYTES: Final = 4096
CAPACITY_BYTES: Final = 1 << 40  # of a disk that nobody made smaller
SECTOR_BYTES: Final = 512
SURVIVAL_BIASES: Final = (0.0, 0.5, 0.5, 0.9, 1.0)
TORN_SHARE: Final = 0.2


class PowerLost(BaseException):
    """The machine is off: what ran on it stops here. Not an `Exception`: nothing on the machine may catch it."""


class DiskWatcher(Protocol):
    """Who is notified at once of what happens to log files; it sees, and changes nothing."""

    def grew(self, path: str) -> None:
        """A log file has more bytes."""

    def was_cut(self, path: str, size: int) -> None:
        """A log file was truncated."""

    def names_changed(self, path: str) -> None:
        """Log files at or below this path may be gone, new, or have other bytes."""


class DiskTime(Protocol):
    """Whose time the disk takes."""

    def now_ns(self) -> int:
        """Return the time for what runs on the machine, blocking calls included."""

    def charge(self, duration_ns: int) -> None:
        """Let a blocking call take this long."""

    async def sleep_ns(self, duration_ns: int) -> None:
        """Return after this long, while others go on."""


class OwnTime:
    """The time of a disk outside of any simulation: only its own calls take any."""

    def __init__(self) -> None:
        self._now_ns = 0

    def now_ns(self) -> int:
        """Return the time that all calls took."""
        return self._now_ns

    def charge(self, duration_ns: int) -> None:
        """Let time pass."""
        self._now_ns += duration_ns

    async def sleep_ns(self, duration_ns: int) -> None:
        """Let time pass."""
        self._now_ns += duration_ns


class Faults(msgspec.Struct, kw_only=True):
    """What is wrong with the disk now, and how fast it is. Shares are probabilities."""

    sync_ns_min: int = 100_000
    sync_ns_max: int = 2_000_000
    slowdown: int = 1
    sync_delay_ns: int = 0
    read_only: bool = False  # EROFS
    lying_share: float = 0.0  # a sync that says yes and does nothing
    sync_error_share: float = 0.0  # EIO; as on Linux, the pages count as clean afterwards
    read_error_share: float = 0.0
    write_error_share: float = 0.0
    capacity_bytes: int | None = None  # ENOSPC beyond it
    tears: bool = False  # the append that meets the capacity leaves what still fits


class Inode:
    """A file's content, its durable image, and which extents differ."""

    __slots__ = ("content", "cut_at", "dirty", "image", "syncing")

    def __init__(self) -> None:
        self.content = bytearray()
        self.image = bytearray()
        self.dirty: list[tuple[int, int]] = []
        self.syncing: list[tuple[int, list[tuple[int, int]], int | None]] = []
        self.cut_at: int | None = None  # the lowest unsynced truncation

    def mark(self, start: int, end: int) -> None:
        """Remember an extent as dirty; one that continues the last is joined to it."""
        dirty = self.dirty
        if dirty and dirty[-1][1] == start:
            dirty[-1] = (dirty[-1][0], end)
        else:
            dirty.append((start, end))

    def cut(self, size: int) -> None:
        """Truncate the content."""
        del self.content[size:]
        self.dirty = [(start, min(end, size)) for start, end in self.dirty if start < size]
        self.cut_at = size if self.cut_at is None else min(self.cut_at, size)

    def begin_sync(self, done_at_ns: int) -> None:
        """Start to write all dirty extents; they are durable from `done_at_ns` on."""
        self.syncing.append((done_at_ns, self.dirty, self.cut_at))
        self.forget_dirty()

    def forget_dirty(self) -> None:
        """Count everything as clean."""
        self.dirty = []
        self.cut_at = None

    def finish_syncs(self, now_ns: int) -> None:
        """Move to the image what finished syncs have written."""
        while self.syncing and self.syncing[0][0] <= now_ns:
            _, extents, cut_at = self.syncing.pop(0)
            self._write_back(extents, cut_at)

    def _write_back(self, extents: Sequence[tuple[int, int]], cut_at: int | None) -> None:
        if cut_at is not None:
            del self.image[cut_at:]
        for start, end in extents:
            self.keep(start, min(end, len(self.content)))

    def keep(self, start: int, end: int) -> None:
        """Copy an extent of the content to the image; a hole before it reads as zeros."""
        if end <= start:
            return
        if len(self.image) < start:
            self.image.extend(bytes(start - len(self.image)))
        self.image[start:end] = self.content[start:end]


class Directory:
    """Names: as seen, as durable, and the changes in between in order."""

    __slots__ = ("changes", "durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}
        self.changes: list[Change] = []

    def bind(self, names: "Names") -> None:
        """Give names to entries, or (None) take them away: one change, whole or not at all."""
        bind_together({self: names})

    def clear(self) -> None:
        """Lose everything, durably."""
        self.entries, self.durable, self.changes = {}, {}, []

    def sync(self) -> None:
        """Make the names durable; what changed together with others' names makes those durable as well."""
        self.durable = dict(self.entries)
        changes, self.changes = self.changes, []
        for change in changes:
            change.be_durable_beside(self)

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self.entries)


Names = dict[str, Inode | Directory | None]


class Change:
    """Names that change together, in one directory or in two: a power failure leaves all of it or nothing."""

    __slots__ = ("_survives", "names")

    def __init__(self, names: Mapping[Directory, Names]) -> None:
        self.names = names
        self._survives: bool | None = None

    def survives(self, coin: Callable[[], bool]) -> bool:
        """Toss the coin once, for all directories."""
        if self._survives is None:
            self._survives = coin()
        return self._survives

    def be_durable_beside(self, synced: Directory) -> None:
        """Take over the change where it was made together with that in the directory that was synced."""
        for directory, names in self.names.items():
            if directory is not synced and self in directory.changes:
                directory.changes.remove(self)
                _apply(names, directory.durable)


def bind_together(names: Mapping[Directory, Names]) -> None:
    """Change names in several directories at once."""
    change = Change(names)
    for directory, changed in names.items():
        directory.changes.append(change)
        _apply(changed, directory.entries)


def _apply(names: Names, entries: dict[str, Inode | Directory]) -> None:
    for name, entry in names.items():
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry


class SimulatedDisk:
    """The disk of one machine; implements `replog.ports.Disk` for whatever runs there."""

    def __init__(
        self,
        random: Random,
        time: DiskTime | None = None,
    ) -> None:
        self.faults = Faults()
        self.broken: dict[str, int] = {}  # paths at and below which nothing works, and the error
        self._tearing: dict[str, None] = {}  # of these: the first append to a log below leaves its first half
        self.powered = True
        self.operation_count = 0
        self.sync_count = 0
        self.used_bytes = 0
        self.watcher: DiskWatcher | None = None
        self.on_crash_point: Callable[[], object] = self.power_fail
        self._random = random
        self._time: DiskTime = time or OwnTime()
        self._crash_at: int | None = None
        self._root = Directory()

    # the port

    def open(self, path: str, *, create: bool = False) -> "SimulatedFile":
        """Open a file; `FileNotFoundError` unless it exists or `create`."""
        self._require_power()
        self.refuse(path)
        directory, name = self._parent(path)
        inode = directory.entries.get(name)
        if isinstance(inode, Directory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            self._step()
            inode = Inode()
            directory.bind({name: inode})
        return SimulatedFile(self, path, inode)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of this name exists."""
        return self._find(path) is not None

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        self.refuse(path)
        return self._directory(path).names()

    def make_directory(self, path: str) -> None:
        """Create it and its parents."""
        self.refuse(path)
        directory = self._root
        for name in _parts(path):
            entry = directory.entries.get(name)
            if isinstance(entry, Inode):
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
            if entry is None:
                self._step()
                entry = Directory()
                directory.bind({name: entry})
            directory = entry

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old`; the two changes of names are one, also at a power failure."""
        self.refuse(new)
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        entry = source.entries.get(old_name)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", old)
        if isinstance(target.entries.get(new_name), Directory) and target.entries[new_name] is not entry:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", new)
        self._step()
        self._release(target.entries.get(new_name) if target.entries.get(new_name) is not entry else None)
        if isinstance(entry, Directory) or new.endswith(LOG_SUFFIX):
            self._names_changed(old)
            self._names_changed(new)
        if source is target:
            target.bind({old_name: None, new_name: entry})
        else:
            bind_together({target: {new_name: entry}, source: {old_name: None}})

    def remove(self, path: str) -> None:
        """Remove a file."""
        self.refuse(path)
        directory, name = self._parent(path)
        entry = directory.entries.get(name)
        if not isinstance(entry, Inode):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        self._step()
        if path.endswith(LOG_SUFFIX):
            self._names_changed(path)
        self._release(entry)
        directory.bind({name: None})

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds, one after the other in any order: a power failure leaves some; a missing one is fine."""
        self.refuse(path)
        entry = self._find(path)
        if entry is None:
            return
        if isinstance(entry, Directory):
            for name in self._random.sample(entry.names(), len(entry.entries)):
                below = f"{path}/{name}"
                (self.remove_tree if isinstance(entry.entries[name], Directory) else self.remove)(below)
        self._step()
        self._names_changed(path)
        self._release(entry)
        directory, name = self._parent(path)
        directory.bind({name: None})

    def sync_directory(self, path: str) -> None:
        """Make the names in this directory durable."""
        self.refuse(path)
        directory = self._directory(path)
        self._step()
        self._time.charge(self._sync_duration_ns())
        self._may_fail(self.faults.sync_error_share)
        if not self._lies():
            directory.sync()

    def space(self, path: str) -> Space:
        """Return the size of the disk, and what is left of it."""
        self.refuse(path)
        self._directory(path)
        capacity_bytes = self.faults.capacity_bytes
        total_bytes = CAPACITY_BYTES if capacity_bytes is None else capacity_bytes
        return Space(total_bytes, max(0, total_bytes - self.used_bytes))

    def read_file(self, path: str) -> bytes:
        """Return a file's whole content."""
        file = self.open(path)
        return file.read_at(0, file.size())

    def replace_file(self, path: str, content: bytes) -> None:
        """Write a small file durably and atomically."""
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.append(content)
        file.sync()
        file.close()
        self.rename(temporary, path)
        self.sync_directory(path.rpartition("/")[0])

    def replace_in_background(
        self,
        files: Mapping[str, bytes],
        *,
        is_wanted: Callable[[str], bool],
        done: Callable[[OSError | None], None],
    ) -> None:
        """Write small files at once: what may come in between on a real disk is tested where a disk is held up."""
        try:
            for path, content in files.items():
                if is_wanted(path):
                    self.replace_file(path, content)
        except OSError as problem:
            done(problem)
        else:
            done(None)

    def write_together(self, folders: Sequence[NewFolder]) -> None:
        """Write files into directories; one sync after the other."""
        written: list[tuple[SimulatedFile, str]] = []
        for folder in folders:
            for name, content in folder.files.items():
                file = self.open(f"{folder.path}/{name}.tmp", create=True)
                written.append((file, f"{folder.path}/{name}"))
                if file.size():
                    file.truncate(0)
                if content:
                    file.append(content)
        for file, _ in written:
            if file.size():
                file.sync()
        for file, path in written:
            file.close()
            self.rename(file.path, path)
        for folder in folders:
            if folder.files:
                self.sync_directory(folder.path)

    async def sync_in_background(self, files: Sequence[File]) -> None:
        """Make files durable while the process goes on."""
        durations = [file.begin_sync() for file in files if isinstance(file, SimulatedFile)]
        if durations:
            await self._time.sleep_ns(max(durations))
        self._require_power()

    async def create_in_background(self, folders: Sequence[NewFolder]) -> None:
        """Make directories with their files while the process goes on; two syncs' time for all of them."""
        written: list[tuple[SimulatedFile, str]] = []
        for folder in folders:
            self.make_directory(folder.path)
            for name, content in folder.files.items():
                file = self.open(f"{folder.path}/{name}.tmp", create=True)
                file.truncate(0)
                file.append(content)
                written.append((file, f"{folder.path}/{name}"))
        await self.sync_in_background([file for file, _ in written if file.size()])
        for file, path in written:
            file.close()
            self.rename(file.path, path)
        await self._time.sleep_ns(self._sync_duration_ns())
        self._require_power()
        parents = dict.fromkeys(folder.path.rpartition("/")[0] for folder in folders)
        for path in (*(folder.path for folder in folders), *parents):
            self._step()
            self._may_fail(self.faults.sync_error_share)
            if not self._lies():
                self._directory(path).sync()

    # what files ask

    def refuse(self, path: str) -> None:
        """Fail what concerns a path in a part of the disk that does not work."""
        part = self._broken_part(path)
        if part is not None:
            number = self.broken[part]
            raise OSError(number, errno.errorcode[number], path)

    def is_broken(self, path: str) -> bool:
        """Return whether a path lies in a part of the disk that does not work."""
        return self._broken_part(path) is not None

    def _broken_part(self, path: str) -> str | None:
        for broken in self.broken:
            if path == broken or path.startswith(f"{broken}/"):
                return broken
        return None

    def room_bytes(self) -> int:
        """Return how many bytes a disk of limited capacity still takes."""
        assert self.faults.capacity_bytes is not None
        return max(0, self.faults.capacity_bytes - self.used_bytes)

    def grow(self, size_bytes: int) -> None:
        """Take space; ENOSPC when there is none."""
        capacity_bytes = self.faults.capacity_bytes
        if capacity_bytes is not None and size_bytes > 0 and self.used_bytes + size_bytes > capacity_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.used_bytes += size_bytes

    def before_write(self, inode: Inode, position: int, data: Buffer) -> None:
        """Fail a write if a fault says so; tear it if the power fails in it."""
        if not self.powered or self._crash_at is not None or self.faults.write_error_share or self.faults.read_only:
            self._require_power()
            if self._crash_at == self.operation_count:
                kept = bytes(data)[: self._random.randrange(len(data) + 1)]
                inode.content[position : position + len(kept)] = kept
                inode.mark(position, position + len(kept))
            self._step()
            self._may_fail(self.faults.write_error_share)
        else:
            self.operation_count += 1
        if inode.syncing and position < len(inode.content):
            inode.finish_syncs(self._time.now_ns())

    def before_read(self) -> None:
        """Fail a read if a fault says so."""
        if not self.powered or self.faults.read_error_share:
            self._require_power()
            self._may_fail(self.faults.read_error_share)

    def begin_sync(self, inode: Inode) -> int:
        """Start to write a file's dirty extents; return how long it takes, in ns. EIO loses them."""
        self._step()
        self.sync_count += 1
        duration_ns = self._sync_duration_ns()
        try:
            self._may_fail(self.faults.sync_error_share)
        except OSError:
            inode.forget_dirty()
            raise
        if not self._lies():
            now_ns = self._time.now_ns()
            inode.finish_syncs(now_ns)
            if inode.syncing:  # who syncs waits also for the pages that are on their way already
                duration_ns = max(duration_ns, inode.syncing[-1][0] - now_ns)
            inode.begin_sync(now_ns + duration_ns)
        return duration_ns

    def blocking_sync(self, inode: Inode) -> None:
        """Write a file's dirty extents while the process stands still."""
        self._time.charge(self.begin_sync(inode))

    # faults

    def break_below(self, path: str, number: int, *, tears: bool = False) -> None:
        """Fail every operation at or below a path with this error (`errno.EIO`), until `mend`; the first append to a log in its midst, if it `tears`."""
        self.broken[path] = number
        if tears:
            self._tearing[path] = None

    def mend(self, path: str) -> None:
        """Let it work again."""
        self.broken.pop(path, None)
        self._tearing.pop(path, None)

    def takes_half(self, path: str) -> bool:
        """Return whether an append to a log's file is the one in whose midst its directory fails."""
        part = self._broken_part(path)
        if part not in self._tearing or not path.endswith(LOG_SUFFIX):
            return False
        del self._tearing[part]
        return True

    def crash_at(self, operation: int | None) -> None:
        """Fail the power in the middle of the operation of this number, counted from 0 from now on."""
        self._crash_at = None if operation is None else self.operation_count + operation

    def power_fail(self, bias: float | None = None) -> float:
        """Turn into what the durable images and the coins leave, and switch off until `power_on`; return the coins' bias.

        bias:  of another disk that lost its power with this one; None: it is drawn.
        """
        self.powered = False
        self._crash_at = None
        drawn = self._random.choice(SURVIVAL_BIASES)
        bias = drawn if bias is None else bias
        now_ns = self._time.now_ns()
        kept = _Survival(self._random, bias, now_ns)
        kept.directory(self._root)
        self.used_bytes = kept.used_bytes
        self._names_changed("")
        return bias

    def power_on(self) -> None:
        """Serve again."""
        self.powered = True

    def wipe(self, path: str = "") -> None:
        """Lose a directory's content, durable or not; without a path, all of it."""
        directory = self._directory(path) if path else self._root
        self._release(directory)
        directory.clear()
        self._names_changed(path)

    def copied(self, path: str) -> Directory:
        """Return a copy of a directory as it is seen, all of it durable."""
        return _durable_copy(self._directory(path))

    def put_back(self, path: str, copy: Directory) -> None:
        """Replace a directory's content by a copy's, durably; the copy stays as it is."""
        self.wipe(path)
        directory, fresh = self._directory(path), _durable_copy(copy)
        directory.entries, directory.durable = fresh.entries, fresh.durable
        self.used_bytes += sum(_sizes(directory))
        self._names_changed(path)

    def make_everything_durable(self) -> None:
        """Make all that is there durable, as time would have done long ago."""
        for path in self.files_below():
            inode = self._find(path)
            assert isinstance(inode, Inode)
            inode.image = bytearray(inode.content)
            inode.syncing.clear()
            inode.forget_dirty()
        _make_names_durable(self._root)

    def flip_bit(self, path: str, bit: int) -> None:
        """Turn over one bit, in the cache and on the platter."""
        inode = self._find(path)
        assert isinstance(inode, Inode)
        for data in (inode.content, inode.image):
            if bit // 8 < len(data):
                data[bit // 8] ^= 1 << bit % 8
        self._names_changed(path)

    def cut_file(self, path: str, size: int) -> None:
        """Cut a file behind its owner's back, durably."""
        inode = self._find(path)
        assert isinstance(inode, Inode)
        self.used_bytes -= max(0, len(inode.content) - size)
        inode.cut(size)
        del inode.image[size:]
        self._names_changed(path)

    def content(self, path: str) -> bytearray | None:
        """Return a file's bytes as processes see them, for who watches; None when there is no such file."""
        inode = self.inode(path)
        return None if inode is None else inode.content

    def inode(self, path: str) -> Inode | None:
        """Return a file, for who watches; None when there is no such one."""
        inode = self._find(path)
        return inode if isinstance(inode, Inode) else None

    def is_durable(self, path: str) -> bool:
        """Return whether all bytes of a file, and no others, are on the disk, for who watches."""
        inode = self._find(path)
        assert isinstance(inode, Inode)
        inode.finish_syncs(self._time.now_ns())
        return inode.image == inode.content

    def files_below(self, path: str = "") -> list[str]:
        """Return the paths of all files below a directory, sorted, for who watches."""
        entry = self._find(path)
        if not isinstance(entry, Directory):
            return []
        prefix = f"{path}/" if path else ""
        found: list[str] = []
        for name in entry.names():
            child = entry.entries[name]
            found += [prefix + name] if isinstance(child, Inode) else self.files_below(prefix + name)
        return found

    # inside

    def _step(self) -> None:
        """Count an operation; the power may fail before it has any effect."""
        self._require_power()
        if self.operation_count == self._crash_at:
            self.on_crash_point()
            raise PowerLost
        self.operation_count += 1
        if self.faults.read_only:
            raise OSError(errno.EROFS, "Read-only file system")

    def _require_power(self) -> None:
        if not self.powered:
            raise PowerLost

    def _may_fail(self, share: float) -> None:
        if share and self._random.random() < share:
            raise OSError(errno.EIO, "Input/output error")

    def _lies(self) -> bool:
        return bool(self.faults.lying_share) and self._random.random() < self.faults.lying_share

    def _sync_duration_ns(self) -> int:
        faults = self.faults
        return self._random.randrange(faults.sync_ns_min, faults.sync_ns_max) * faults.slowdown + faults.sync_delay_ns

    def _names_changed(self, path: str) -> None:
        if self.watcher is not None:
            self.watcher.names_changed(path)

    def _release(self, entry: "Inode | Directory | None") -> None:
        if isinstance(entry, Inode):
            self.used_bytes -= len(entry.content)
        elif isinstance(entry, Directory):
            for child in entry.entries.values():
                self._release(child)

    def _find(self, path: str) -> "Inode | Directory | None":
        entry: Inode | Directory | None = self._root
        for name in _parts(path):
            if not isinstance(entry, Directory):
                return None
            entry = entry.entries.get(name)
        return entry

    def _directory(self, path: str) -> Directory:
        entry = self._find(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if isinstance(entry, Inode):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        return entry

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name


class SimulatedFile:
    """An open file; implements `replog.ports.File`."""

    __slots__ = ("disk", "inode", "path", "watcher")

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode) -> None:
        self.disk = disk
        self.path = path
        self.inode = inode
        self.watcher = disk.watcher if path.endswith(LOG_SUFFIX) else None

    def size(self) -> int:
        """Length in bytes."""
        return len(self.inode.content)

    def append(self, *parts: Buffer) -> int:
        """Write the parts at the end; return the position of the first byte."""
        inode = self.inode
        position = len(inode.content)
        disk = self.disk
        if disk.broken:
            if parts and disk.takes_half(self.path):
                self._tear(parts[0], len(parts[0]) // 2)
            disk.refuse(self.path)
        start = position
        for part in parts:
            disk.before_write(inode, start, part)
            size = len(part)
            if disk.faults.tears and (room := disk.room_bytes()) < size:
                self._tear(part, room)
            disk.grow(size)
            inode.content += part
            inode.mark(start, start + size)
            start += size
        if self.watcher is not None:
            self.watcher.grew(self.path)
        return position

    def _tear(self, part: Buffer, size: int) -> None:
        """Write the first bytes of a part: how a disk that gets full or fails leaves an append."""
        inode = self.inode
        start = len(inode.content)
        self.disk.grow(size)
        inode.content += memoryview(part)[:size]
        inode.mark(start, start + size)
        if self.watcher is not None:
            self.watcher.grew(self.path)

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite in place; may extend the file."""
        inode = self.inode
        self.disk.refuse(self.path)
        self.disk.before_write(inode, position, data)
        end = position + len(data)
        is_other = position < len(inode.content)
        self.disk.grow(max(0, end - len(inode.content)))
        if len(inode.content) < position:
            inode.content.extend(bytes(position - len(inode.content)))
        inode.content[position:end] = data
        inode.mark(position, end)
        if self.watcher is not None:
            if is_other:
                self.watcher.names_changed(self.path)
            self.watcher.grew(self.path)

    def read_at(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes."""
        if self.disk.broken:
            self.disk.refuse(self.path)
        self.disk.before_read()
        return bytes(memoryview(self.inode.content)[position : position + length])

    def truncate(self, size: int) -> None:
        """Cut to `size` bytes; a longer size extends with zeros."""
        self.disk.refuse(self.path)
        inode = self.inode
        length = len(inode.content)
        if size >= length:
            if size > length:
                self.write_at(length, bytes(size - length))
            return
        self.disk.before_write(inode, size, b"")
        self.disk.grow(size - length)
        inode.cut(size)
        if self.watcher is not None:
            self.watcher.was_cut(self.path, size)

    def sync(self) -> None:
        """Block until content and size are durable."""
        self.disk.refuse(self.path)
        self.disk.blocking_sync(self.inode)

    def forget_cached(self, position: int, length: int) -> None:
        """Do nothing: a flipped bit is in the cache, too."""

    def write_again(self, position: int) -> None:
        """Count as dirty what is there: the content stays as it is."""
        end = len(self.inode.content)
        if position < end:
            self.disk.refuse(self.path)
            self.disk.before_write(self.inode, position, memoryview(self.inode.content)[position:])
            self.inode.mark(position, end)

    def begin_sync(self) -> int:
        """Start to write what is dirty; return how long it takes, in ns."""
        self.disk.refuse(self.path)
        return self.disk.begin_sync(self.inode)

    def close(self) -> None:
        """Close; the cache keeps what is unsynced."""


class _Survival:
    """One power failure's coins, applied to a tree."""

    def __init__(self, random: Random, bias: float, now_ns: int) -> None:
        self.used_bytes = 0
        self._random = random
        self._bias = bias
        self._now_ns = now_ns
        self._seen: dict[int, None] = {}

    def directory(self, directory: Directory) -> None:
        """Leave the durable names and those of the changed ones that a coin kept."""
        entries = dict(directory.durable)
        for change in directory.changes:
            if change.survives(self._survives):
                _apply(change.names[directory], entries)
        directory.entries, directory.durable = entries, dict(entries)
        directory.changes.clear()
        for name in directory.names():
            entry = entries[name]
            if isinstance(entry, Directory):
                self.directory(entry)
            else:
                self._file(entry)

    def _file(self, inode: Inode) -> None:
        """Leave the image and the dirty pages that a coin kept; the content is then what the image says."""
        inode.finish_syncs(self._now_ns)
        for _, extents, cut_at in inode.syncing:
            self._pages(inode, extents, cut_at)
        self._pages(inode, inode.dirty, inode.cut_at)
        inode.content = bytearray(inode.image)
        inode.syncing.clear()
        inode.forget_dirty()
        self.used_bytes += len(inode.content)

    def _pages(self, inode: Inode, extents: Sequence[tuple[int, int]], cut_at: int | None) -> None:
        if cut_at is not None and self._survives():
            del inode.image[cut_at:]
        for start, extent_end in extents:
            end = min(extent_end, len(inode.content))
            page_start = start
            while page_start < end:
                page_end = min(end, page_start - page_start % PAGE_BYTES + PAGE_BYTES)
                if self._survives():
                    inode.keep(page_start, self._perhaps_torn(page_start, page_end))
                page_start = page_end

    def _perhaps_torn(self, start: int, end: int) -> int:
        """Return where the surviving part of a page ends: mostly its end, else a sector's."""
        if self._bias in (0.0, 1.0) or self._random.random() >= TORN_SHARE:
            return end
        sector = start - start % SECTOR_BYTES + SECTOR_BYTES * self._random.randrange(1, 8)
        return min(end, sector)

    def _survives(self) -> bool:
        return self._random.random() < self._bias


def _durable_copy(directory: Directory) -> Directory:
    copy = Directory()
    for name, entry in directory.entries.items():
        if isinstance(entry, Directory):
            copy.entries[name] = _durable_copy(entry)
        else:
            file = copy.entries[name] = Inode()
            file.content, file.image = bytearray(entry.content), bytearray(entry.content)
    copy.sync()
    return copy


def _sizes(directory: Directory) -> Iterator[int]:
    for entry in directory.entries.values():
        if isinstance(entry, Directory):
            yield from _sizes(entry)
        else:
            yield len(entry.content)


def _make_names_durable(directory: Directory) -> None:
    directory.sync()
    for entry in directory.entries.values():
        if isinstance(entry, Directory):
            _make_names_durable(entry)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]
