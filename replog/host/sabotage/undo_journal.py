"""What a disk would have lost by a power failure: an undo journal of everything that is not synced yet.

Kill -9 loses nothing that was written: it lies in the page cache. To lose it as a power failure does, the node's disk
(`undo_disk.py`) writes down before each change what the change undoes, and strikes it out once an fsync has made the
change durable. `roll_back` then puts every file and name of a dead node back to where its last fsync left it.

Contents are kept by inode: the size at the last fsync of a file that has changed since, and bytes that were
overwritten or cut off below it. Names are kept by directory and name: what the name meant when the directory was last
synced. A file whose durable name was taken away keeps a second link in `kept/` until the directory is synced.

The journal itself is not synced: it has to outlive the process, not the machine.
"""

import contextlib
import os
import shutil
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, assert_never

import msgspec

JOURNAL: Final = "journal"
KEPT: Final = "kept"
COMPACT_BYTES: Final = 1 << 20
LENGTH: Final = struct.Struct("<I")


class Patch(msgspec.Struct, frozen=True, array_like=True):
    """Bytes as they were before a change."""

    number: int
    position: int
    old: bytes


class Changed(msgspec.Struct, frozen=True, array_like=True, tag="size"):
    """A file changes for the first time since its last fsync, at which it had this size."""

    inode: int
    size: int


class Overwritten(msgspec.Struct, frozen=True, array_like=True, tag="patch"):
    """Bytes that were durable are overwritten or cut off."""

    inode: int
    number: int
    position: int
    old: bytes


class Synced(msgspec.Struct, frozen=True, array_like=True, tag="synced"):
    """What came up to this number is durable, and so is this size; there are later changes."""

    inode: int
    number: int
    size: int


class Clean(msgspec.Struct, frozen=True, array_like=True, tag="clean"):
    """Everything of a file is durable, or nothing is known of it any more."""

    inode: int


class Renamed(msgspec.Struct, frozen=True, array_like=True, tag="name"):
    """A name changes for the first time since its directory was synced; it meant this inode then, 0: none."""

    directory: int
    name: str
    inode: int


class NamesSynced(msgspec.Struct, frozen=True, array_like=True, tag="directory"):
    """All names of a directory are durable."""

    directory: int


Entry = Changed | Overwritten | Synced | Clean | Renamed | NamesSynced


class Unsynced:
    """What is not durable, as the journal's entries say one after the other."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}  # inode -> size at its last fsync
        self.patches: dict[int, list[Patch]] = {}
        self.names: dict[int, dict[str, int]] = {}  # directory's inode -> name -> inode then, 0: none

    def apply(self, entry: Entry) -> None:
        """Take one entry of the journal."""
        match entry:
            case Changed(inode, size):
                self.sizes[inode] = size
            case Overwritten(inode, number, position, old):
                self.patches.setdefault(inode, []).append(Patch(number, position, old))
            case Synced(inode, number, size):
                self.sizes[inode] = size
                self.patches[inode] = [patch for patch in self.patches.get(inode, []) if patch.number > number]
            case Clean(inode):
                self.sizes.pop(inode, None)
                self.patches.pop(inode, None)
            case Renamed(directory, name, inode):
                self.names.setdefault(directory, {}).setdefault(name, inode)
            case NamesSynced(directory):
                self.names.pop(directory, None)
            case _:
                assert_never(entry)

    def entries(self) -> Iterator[Entry]:
        """Yield entries that say the same."""
        for inode, size in self.sizes.items():
            yield Changed(inode, size)
        for inode, patches in self.patches.items():
            for patch in patches:
                yield Overwritten(inode, patch.number, patch.position, patch.old)
        for directory, names in self.names.items():
            for name, inode in names.items():
                yield Renamed(directory, name, inode)

    def referenced(self) -> set[int]:
        """Return the inodes that durable names mean."""
        return {inode for names in self.names.values() for inode in names.values() if inode}


class UndoJournal:
    """The journal of a running node; also used from the thread that syncs."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)
        self.kept = self.directory / KEPT
        self.kept.mkdir(parents=True, exist_ok=True)
        self.lock = threading.RLock()
        self.state = load(self.directory)
        self._number = max((patch.number for patches in self.state.patches.values() for patch in patches), default=0)
        self._floors: dict[int, int] = {}  # inode being synced -> least size meanwhile
        self._descriptor = self._open()
        self._until_compaction = COMPACT_BYTES - os.fstat(self._descriptor).st_size

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(self.directory / JOURNAL, flags, 0o644)

    def _write(self, entry: Entry) -> None:
        """Write an entry down, then apply it."""
        self._until_compaction -= os.write(self._descriptor, framed(entry))
        self.state.apply(entry)
        if self._until_compaction < 0:
            self._compact()

    def _compact(self) -> None:
        """Replace the journal by one that says the same; not again before it has doubled."""
        fresh = self.directory / f"{JOURNAL}.new"
        fresh.write_bytes(b"".join(map(framed, self.state.entries())))
        fresh.replace(self.directory / JOURNAL)
        os.close(self._descriptor)
        self._descriptor = self._open()
        self._until_compaction = max(COMPACT_BYTES, os.fstat(self._descriptor).st_size)

    # --- contents --------------------------------------------------------------------------

    def will_write(self, descriptor: int, inode: int, size: int, position: int, length: int) -> None:
        """Note a write before it happens; `size` is the file's now."""
        durable = self._mark(inode, size)
        overlap_end = min(position + length, size, durable)
        if position < overlap_end:
            self._save(descriptor, inode, position, overlap_end)

    def will_truncate(self, descriptor: int, inode: int, size: int, new_size: int) -> None:
        """Note a truncation (or extension) before it happens."""
        durable = self._mark(inode, size)
        if new_size < min(size, durable):
            self._save(descriptor, inode, new_size, min(size, durable))
        if inode in self._floors:
            self._floors[inode] = min(self._floors[inode], new_size)

    def _mark(self, inode: int, size: int) -> int:
        if inode not in self.state.sizes:
            self._write(Changed(inode, size))
        return self.state.sizes[inode]

    def _save(self, descriptor: int, inode: int, start: int, end: int) -> None:
        self._number += 1
        self._write(Overwritten(inode, self._number, start, os.pread(descriptor, end - start, start)))

    def begin_sync(self, inode: int, size: int) -> int:
        """Note that an fsync begins; return what to hand to `end_sync`."""
        self._floors[inode] = size
        return self._number

    def end_sync(self, inode: int, number: int, size: int) -> None:
        """Note that it is over: what was written before it began is durable."""
        durable = self._floors.pop(inode)
        if inode not in self.state.sizes:
            return
        later = any(patch.number > number for patch in self.state.patches.get(inode, []))
        if durable == size and not later:
            self._write(Clean(inode))
        else:
            self._write(Synced(inode, number, durable))

    def forget(self, inode: int) -> None:
        """Know nothing of a file: it is new, or gone for good."""
        if inode in self.state.sizes or inode in self.state.patches:
            self._write(Clean(inode))

    # --- names -----------------------------------------------------------------------------

    def will_name(self, path: str) -> None:
        """Note that a name will mean something else, or nothing, or come into being."""
        parent, name = os.path.split(path)
        directory = Path(parent).stat().st_ino
        if name not in self.state.names.get(directory, {}):
            with contextlib.suppress(FileNotFoundError):
                self._write(Renamed(directory, name, os.lstat(path).st_ino))
                return
            self._write(Renamed(directory, name, 0))

    def keep(self, path: str) -> None:
        """Keep a file that is about to lose a name, if some durable name means it."""
        inode = os.lstat(path).st_ino
        if inode in self.state.referenced():
            with contextlib.suppress(FileExistsError):
                os.link(path, self.kept / str(inode))
        elif os.lstat(path).st_nlink == 1:
            self.forget(inode)

    def keep_tree(self, path: str) -> bool:
        """Take a directory away into what is kept; False if no durable name means it."""
        inode = os.lstat(path).st_ino
        if inode not in self.state.referenced():
            return False
        Path(path).rename(self.kept / str(inode))
        return True

    def forget_tree(self, path: str) -> None:
        """Know nothing of a directory that is about to be removed for good: its inodes will be used again."""
        for child in [*Path(path).rglob("*"), Path(path)]:
            self._gone(child.lstat().st_ino)

    def synced_directory(self, path: str) -> None:
        """Note that the names in a directory are durable."""
        self._names_done(Path(path).stat().st_ino)

    def _names_done(self, directory: int) -> None:
        names = self.state.names.get(directory)
        if not names:
            return
        self._write(NamesSynced(directory))
        still = self.state.referenced()
        for inode in sorted({inode for inode in names.values() if inode} - still):
            self._let_go(inode)

    def _let_go(self, inode: int) -> None:
        path = self.kept / str(inode)
        if path.is_dir():
            self.forget_tree(str(path))
            shutil.rmtree(path)
        elif path.exists():
            if path.lstat().st_nlink == 1:
                self.forget(inode)
            path.unlink()

    def _gone(self, inode: int) -> None:
        self.forget(inode)
        self._names_done(inode)

    def close(self) -> None:
        """Let go of the journal's file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def framed(entry: Entry) -> bytes:
    """Return an entry as the journal holds it."""
    content = msgspec.msgpack.encode(entry)
    return LENGTH.pack(len(content)) + content


def load(directory: Path) -> Unsynced:
    """Read a journal; an entry half written by a process that died changed nothing yet."""
    state = Unsynced()
    try:
        content = (directory / JOURNAL).read_bytes()
    except FileNotFoundError:
        return state
    position = 0
    while position + LENGTH.size <= len(content):
        (length,) = LENGTH.unpack_from(content, position)
        position += LENGTH.size
        if position + length > len(content):
            break
        state.apply(msgspec.msgpack.decode(content[position : position + length], type=Entry))
        position += length
    return state
