"""A file system that remembers what was synced, and forgets the rest on command; run as a script, standard library only.

    python -I -S forgetful_disk.py FOLDER RUN_DIR

It is mounted on FOLDER by the kernel's FUSE protocol, spoken here over /dev/fuse (linux/fuse.h), so that it needs no library and
inside a user namespace no root. All that it holds is in memory: pages as the system reads them, and pages as they were last synced.

What a sync makes last: `fsync`, `fdatasync` and writes to files opened with O_SYNC or O_DSYNC keep that file's bytes and length, and
with them every name that was made, moved or removed until then in any folder, as a file system with one journal does (ext4, xfs);
a sync of a folder keeps the names alone. That is more than POSIX promises: who loses something here has not synced it anywhere.
`sync` and `syncfs`, and what the kernel would write by itself after some seconds, keep nothing.

Commands come on stdin, one word a line, each answered by one line of JSON on stdout:

    forget    everything that was not synced is gone; {"bytes": N, "lengths": N, "names": N, "files": N, "kept": N} of what that was. With
              {"files": PATTERN, "kept": W, "seed": N} behind it all bytes of files whose paths do not match had reached the disk, and of those
              that do (N matching, or some others where none does) a part: `torn`, the first of them in their order; `reordered`, some pages;
              `nothing`. With a pattern that does not mean all (`**/*`) the names are there: the journal was written, and data were not
    wipe      everything is gone; {"bytes": N} of what there was
    trouble   how it misbehaves from now on, as JSON behind the word: {"writes": W, "failing": F, "sync_delay_ms": N}; {} ends it
    met       nothing is changed; {"full": N, "read-only": N, "failing": N, "delayed": N} of how many requests it has refused so, or held up to
              their end
    opened    nothing is changed; {"open": N, "held": N} of how many files and folders are open, and how many there are

What a loss takes is counted of files that have a name when it comes: bytes that were written (or made zeros by a cut) and not synced, each
once; apart from them how many files were longer or shorter than at their sync, for room that was made in advance holds nothing.

Misbehaving, it refuses with ENOSPC what needs room (`writes` "full": names, and bytes behind a file's end), with EROFS every change ("read-only"),
with EIO every change, read or sync (`failing` "writes", "reads", "syncs"); a sync takes `sync_delay_ms` longer, and makes last what there is
at its end. What a refused sync should have kept is not tried again by a later one, as on ext4: only a loss of power shows it.

It ends when stdin ends. RUN_DIR stands on the command line so that `tribunal heal` finds it.
"""

import ctypes
import errno
import fnmatch
import heapq
import json
import os
import selectors
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

PAGE: Final = 4096
ALL: Final = ["**", "*"]
OTHERS: Final = 10  # files that are named where none matches
SECTOR: Final = 512  # what a disk writes whole or not at all
ZEROS: Final = bytes(PAGE)
ROOT: Final = 1
WRITE_BYTES_MAX: Final = 1 << 17
REQUEST_BYTES_MAX: Final = WRITE_BYTES_MAX + (1 << 16)
HEAD: Final = struct.Struct("<IIQQIIII")  # length, opcode, unique, node, uid, gid, pid, extensions
REPLY: Final = struct.Struct("<IiQ")
LET_GO, LET_GO_MANY = 2, 42  # FORGET, BATCH_FORGET: the kernel no longer knows a node
NO_REPLY: Final = frozenset({LET_GO, 36, LET_GO_MANY})  # and INTERRUPT
OF_NO_NODE: Final = frozenset({17, 18, 26, 29, 38})  # STATFS, INIT, DESTROY; and closing what a wiped disk had
BIG_WRITES: Final = 1 << 5
MINOR: Final = 31
WRITE, FALLOCATE = 16, 43
READS: Final = frozenset({15})
CHANGES: Final = frozenset({4, 6, 8, 9, 10, 11, 12, 13, WRITE, 35, FALLOCATE, 45})
NEW_NAMES: Final = frozenset({6, 8, 9, 13, 35})
SYNCS: Final = frozenset({20, 30})
HALF: Final = 0.5
NS_PER_MS: Final = 1_000_000
WITH_SYNC: Final = os.O_DSYNC | os.O_SYNC
SET_MODE, SET_UID, SET_GID, SET_SIZE = 1, 2, 4, 8
NO_REPLACE: Final = 1
KEEP_SIZE: Final = 1  # of fallocate
STATIC: Final = 6  # MS_NOSUID | MS_NODEV


class Lost(NamedTuple):
    """What a file no longer has: how many bytes, and whether its length is another one, or anything at all."""

    bytes: int
    has_other_length: bool
    is_changed: bool


class Inode:
    """A file, a folder or a symbolic link, as it is and as it was last synced."""

    def __init__(self, number: int, mode: int, uid: int, gid: int) -> None:
        self.number = number
        self.mode = mode
        self.uid = uid
        self.gid = gid
        self.link = b""
        self.changed_ns = time.time_ns()
        self.size = 0
        self.pages: dict[int, bytes] = {}  # those that are missing are zeros
        self.dirty: dict[int, int] = {}  # pages that changed since the last sync: which of their bytes, each a bit
        self.forsaken: dict[int, int] = {}  # those that a sync was refused for, which no later one tries again
        self.synced_size = 0
        self.synced_pages: dict[int, bytes] = {}
        self.names: dict[bytes, int] = {}
        self.synced_names: dict[bytes, int] = {}
        self.links = 0  # names that it has, and those that it had at the last sync
        self.synced_links = 0
        self.lookups = 0  # how often the kernel was given it, and has not let go of it

    @property
    def is_folder(self) -> bool:
        """Whether it has names."""
        return stat.S_ISDIR(self.mode)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes, fewer at the end."""
        end = min(offset + size, self.size)
        if offset >= end:
            return b""
        first = offset // PAGE
        found = b"".join(self.pages.get(page, ZEROS) for page in range(first, (end - 1) // PAGE + 1))
        return found[offset - first * PAGE : end - first * PAGE]

    def write(self, offset: int, data: bytes) -> None:
        """Put bytes in their place."""
        done = 0
        while done < len(data):
            page, begin = divmod(offset + done, PAGE)
            piece = data[done : done + PAGE - begin]
            old = self.pages.get(page, ZEROS)
            self.pages[page] = old[:begin] + piece + old[begin + len(piece) :]
            self._mark(page, begin, begin + len(piece))
            done += len(piece)
        self.size = max(self.size, offset + len(data))
        self.changed_ns = time.time_ns()

    def resize(self, size: int) -> None:
        """Cut it, or make it longer by zeros."""
        for page in [page for page in self.pages if (page + 1) * PAGE > size]:
            first = page * PAGE
            begin, end = max(0, size - first), min(PAGE, self.size - first)
            if begin < end:
                self._mark(page, begin, end)
                if begin:
                    self.pages[page] = self.pages[page][:begin] + bytes(PAGE - begin)
                else:
                    del self.pages[page]
        self.size = size
        self.changed_ns = time.time_ns()

    def _mark(self, page: int, begin: int, end: int) -> None:
        self.dirty[page] = self.dirty.get(page, self.forsaken.pop(page, 0)) | ((1 << end) - (1 << begin))

    def _held(self, page: int) -> int:
        """Return which bytes of a page have changed; what lies behind the end is gone already."""
        return self.dirty[page] & ((1 << max(0, min(PAGE, self.size - page * PAGE))) - 1)

    def sync(self) -> None:
        """Remember its bytes and its length."""
        _copy(self.dirty, self.pages, self.synced_pages)
        self.dirty.clear()
        self.synced_size = self.size

    def forsake(self) -> None:
        """Never sync what has changed until now, unless it changes again."""
        self.forsaken |= self.dirty
        self.dirty.clear()

    def keep_all(self) -> int:
        """Let all that was not synced reach the disk, but for what a sync was refused for; return how many bytes."""
        kept = sum(self._held(page).bit_count() for page in self.dirty)
        self.sync()
        return kept

    def keep_part(self, how: str, random: Random) -> int:
        """Let a part of what was not synced reach the disk; return how many bytes.

        A cut that was not synced takes effect as a whole or not at all; here not at all.
        """
        changed = [page for page in sorted(self.dirty) if page in self.pages and self._held(page)]
        if not changed or self.size < self.synced_size:
            return 0
        if how == "torn":
            count = random.randrange(len(changed))
            whole, torn = changed[:count], changed[count : count + 1]
        else:
            whole, torn = [page for page in changed if random.random() < HALF], []
        kept = sum(self._held(page).bit_count() for page in whole)
        for page in whole:
            del self.dirty[page]
        _copy(whole, self.pages, self.synced_pages)
        reached = (whole[-1] + 1) * PAGE if whole else 0
        for page in torn:
            bits = self._held(page)
            end = random.randrange((bits & -bits).bit_length() - 1, bits.bit_length())
            if page * PAGE + end < self.synced_size:  # behind the old end the file's length may be any
                end = end // SECTOR * SECTOR
            self.synced_pages[page] = self.pages[page][:end] + self.synced_pages.get(page, ZEROS)[end:]
            before = bits & ((1 << end) - 1)
            self.dirty[page], kept, reached = bits ^ before, kept + before.bit_count(), page * PAGE + end
        # A byte that reached the disk behind the old end took the length with it.
        self.synced_size = max(self.synced_size, min(self.size, reached))
        return kept

    def forget(self) -> Lost:
        """Be as it was last synced; return what that takes."""
        self.dirty |= self.forsaken
        self.forsaken.clear()
        has_other_length = self.size != self.synced_size
        lost = Lost(
            sum(self._held(page).bit_count() for page in self.dirty),
            has_other_length,
            has_other_length or bool(self.dirty),
        )
        _copy(self.dirty, self.synced_pages, self.pages)
        self.dirty.clear()
        self.size = self.synced_size
        return lost


def _copy(which: Iterable[int], source: dict[int, bytes], target: dict[int, bytes]) -> None:
    for page in which:
        if page in source:
            target[page] = source[page]
        else:
            target.pop(page, None)


def matches(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether a path is meant by a pattern, name by name; `**` stands for any folders, also none."""
    if not pattern or not path:
        return not pattern and not path
    if pattern[0] == "**":
        return matches(path, pattern[1:]) or matches(path[1:], pattern)
    return fnmatch.fnmatchcase(path[0], pattern[0]) and matches(path[1:], pattern[1:])


class Trouble(NamedTuple):
    """How a disk misbehaves (see above)."""

    writes: str = "fine"
    failing: str = "nothing"
    sync_delay_ms: int = 0


class Disk:
    """The file system: answers the kernel's requests, each a method that returns what follows the reply's head."""

    def __init__(self) -> None:
        self.inodes: dict[int, Inode] = {}
        self._next = ROOT
        self._unsynced: set[int] = set()  # folders whose names changed
        self._handles: dict[int, list[tuple[bytes, int]]] = {}  # what is open; of a folder its names as they were then
        self._next_handle = 1
        self.trouble = Trouble()
        self.met = dict.fromkeys(("full", "read-only", "failing", "delayed"), 0)
        self._new(stat.S_IFDIR | 0o755, 0, 0)
        self.answers: dict[int, Callable[[int, bytes, tuple[int, int]], bytes]] = {
            1: self._lookup,
            3: lambda node, _body, _who: self._attr_out(self.inodes[node]),
            4: self._setattr,
            5: lambda node, _body, _who: self.inodes[node].link,
            6: self._symlink,
            8: self._mknod,
            9: self._mkdir,
            10: self._unlink,
            11: self._rmdir,
            12: lambda node, body, _who: self._rename(node, body[8:], struct.unpack_from("<Q", body)[0], 0),
            13: self._hard_link,
            14: self._open,
            15: self._read,
            16: self._write,
            17: lambda _node, _body, _who: STATFS,
            18: self._release,
            20: self._fsync,
            25: lambda _node, _body, _who: b"",
            26: self._init,
            27: self._open,
            28: self._readdir,
            29: self._release,
            30: self._fsync_folder,
            35: self._create,
            38: lambda _node, _body, _who: b"",
            43: self._fallocate,
            45: lambda node, body, _who: self._rename(node, body[16:], *struct.unpack_from("<QI", body)),
        }

    # --- commands --------------------------------------------------------------------------

    def forget_part(self, given: Mapping[str, str | int]) -> dict[str, int | list[str]]:
        """Forget what was not synced but for a part of it."""
        how, pattern = str(given["kept"]), str(given["files"]).split("/")
        random = Random(f"{given['seed']}/{how}")
        if pattern != ALL:
            self._sync_names()
        paths = sorted(self._paths(ROOT, ()))
        hit = {number for path, number in paths if matches(path, pattern)}
        kept = 0
        for number, one in self.inodes.items():
            if not (one.links and one.synced_links) or one.is_folder:
                continue
            if number not in hit:
                kept += one.keep_all()
            elif how != "nothing":
                kept += one.keep_part(how, random)
        others = [] if hit else ["/".join(path) for path, _ in paths[:OTHERS]]
        return {**self.forget(), "kept": kept, "matching": len(hit), "others": others}

    def _paths(self, folder: int, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
        """Yield each file below a folder with its path."""
        for name, number in self.inodes[folder].names.items():
            path = (*above, os.fsdecode(name))
            if self.inodes[number].is_folder:
                yield from self._paths(number, path)
            else:
                yield path, number

    def forget(self) -> dict[str, int]:
        """Forget what was not synced."""
        # Of a file without a name nobody misses anything, even where the loss gives it back its name.
        files = [one for one in self.inodes.values() if not one.is_folder]
        lost = [found for one in files for found in [one.forget()] if one.links]
        names = 0
        for number in self._unsynced:
            folder = self.inodes[number]
            names += len({name for name, _ in folder.names.items() ^ folder.synced_names.items()})
            folder.names = dict(folder.synced_names)
        self._unsynced.clear()
        for one in list(self.inodes.values()):
            one.links = one.synced_links
            self._drop(one)
        return {
            "bytes": sum(one.bytes for one in lost),
            "lengths": sum(one.has_other_length for one in lost),
            "files": sum(one.is_changed for one in lost),
            "names": names,
        }

    def wipe(self) -> dict[str, int]:
        """Forget everything."""
        held = sum(one.size for one in self.inodes.values() if one.links)
        root = self.inodes[ROOT]
        root.names, root.synced_names = {}, {}
        self.inodes = {ROOT: root}
        self._unsynced.clear()
        return {"bytes": held}

    def open_count(self) -> dict[str, int]:
        """Say how many files and folders are open, and how many there are."""
        return {"open": len(self._handles), "held": len(self.inodes)}

    def misbehave(self, trouble: Trouble) -> dict[str, int]:
        """Misbehave like this from now on; say how many requests have met it until now, by how."""
        self.trouble = trouble
        return self.met

    # --- misbehaviour ----------------------------------------------------------------------

    @staticmethod
    def is_sync(opcode: int, body: bytes) -> bool:
        """Whether a request makes something last."""
        return opcode in SYNCS or (opcode == WRITE and bool(struct.unpack_from("<I", body, 32)[0] & WITH_SYNC))

    def must_accept(self, opcode: int, node: int, body: bytes) -> None:
        """Refuse what it misbehaves at. Raises OSError."""
        writes, failing, _ = self.trouble
        if failing == "syncs" and self.is_sync(opcode, body):
            if opcode == WRITE:
                self._put(node, body)
            self.inodes[node].forsake()
            self._refuse("failing", errno.EIO)
        if opcode in {"reads": READS, "writes": CHANGES}.get(failing, ()):
            self._refuse("failing", errno.EIO)
        if writes == "read-only" and opcode in CHANGES:
            self._refuse("read-only", errno.EROFS)
        if writes == "full" and self._needs_room(opcode, node, body):
            self._refuse("full", errno.ENOSPC)

    def _refuse(self, how: str, number: int) -> None:
        self.met[how] += 1
        raise OSError(number, os.strerror(number))

    def _needs_room(self, opcode: int, node: int, body: bytes) -> bool:
        if opcode == WRITE:
            _, offset, size = struct.unpack_from("<QQI", body)
            return bool(offset + size > self.inodes[node].size)
        if opcode == FALLOCATE:
            _, offset, length = struct.unpack_from("<QQQ", body)
            return bool(offset + length > self.inodes[node].size)
        return opcode in NEW_NAMES

    # --- parts of answers ------------------------------------------------------------------

    def _new(self, mode: int, uid: int, gid: int) -> Inode:
        made = self.inodes[self._next] = Inode(self._next, mode, uid, gid)
        self._next += 1
        return made

    def _attr(self, inode: Inode) -> bytes:
        seconds, ns = divmod(inode.changed_ns, 1_000_000_000)
        blocks = len(inode.pages) * (PAGE // 512)
        times = (seconds, seconds, seconds, ns, ns, ns)
        return struct.pack(
            "<6Q10I",
            *(
                inode.number,
                inode.size,
                blocks,
                *times,
                inode.mode,
                2 if inode.is_folder else inode.links,
                inode.uid,
                inode.gid,
            ),
            *(0, PAGE, 0),
        )

    def _attr_out(self, inode: Inode) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self._attr(inode)

    def _entry(self, inode: Inode) -> bytes:
        # Valid for no time at all: after a loss the kernel has to ask again.
        inode.lookups += 1
        return struct.pack("<QQQQII", inode.number, 0, 0, 0, 0, 0) + self._attr(inode)

    def _named(self, folder: int, name: bytes) -> Inode:
        try:
            return self.inodes[self.inodes[folder].names[name]]
        except KeyError:
            raise OSError(errno.ENOENT, "no such name") from None

    def _name(self, folder: int, name: bytes, inode: Inode) -> None:
        self._unname(folder, name)
        self.inodes[folder].names[name] = inode.number
        inode.links += 1
        self._unsynced.add(folder)

    def _unname(self, folder: int, name: bytes) -> None:
        number = self.inodes[folder].names.pop(name, None)
        if number is not None:
            self.inodes[number].links -= 1
            self._unsynced.add(folder)

    def _drop(self, inode: Inode) -> None:
        """Keep nothing of what has no name, now or after a loss, and what the kernel does not know any more."""
        if inode.number != ROOT and not (inode.links or inode.synced_links or inode.lookups):
            self.inodes.pop(inode.number, None)
            self._unsynced.discard(inode.number)

    def let_go(self, number: int, lookups: int) -> None:
        """Take note that the kernel has let go of a node so many times."""
        inode = self.inodes.get(number)
        if inode is not None:  # else it was wiped
            inode.lookups -= lookups
            self._drop(inode)

    def _made(self, folder: int, name: bytes, mode: int, who: tuple[int, int]) -> Inode:
        if name in self.inodes[folder].names:
            raise OSError(errno.EEXIST, "it exists")
        inode = self._new(mode, *who)
        self._name(folder, name, inode)
        return inode

    def _sync_names(self) -> None:
        former: list[Inode] = []
        for number in self._unsynced:
            folder = self.inodes[number]
            former += [self.inodes[one] for one in folder.synced_names.values()]
            for one in folder.names.values():
                self.inodes[one].synced_links += 1
            folder.synced_names = dict(folder.names)
        self._unsynced.clear()
        for inode in former:
            inode.synced_links -= 1
            self._drop(inode)

    # --- requests --------------------------------------------------------------------------

    def _init(self, _node: int, body: bytes, _who: tuple[int, int]) -> bytes:
        _, _, readahead = struct.unpack_from("<3I", body)
        return struct.pack("<4I2H2I2HI7I", 7, MINOR, readahead, BIG_WRITES, 16, 12, WRITE_BYTES_MAX, 1, *([0] * 10))

    def _lookup(self, node: int, body: bytes, _who: tuple[int, int]) -> bytes:
        return self._entry(self._named(node, body[:-1]))

    def _setattr(self, node: int, body: bytes, _who: tuple[int, int]) -> bytes:
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        mode, _, uid, gid = struct.unpack_from("<4I", body, 68)
        inode = self.inodes[node]
        if valid & SET_MODE:
            inode.mode = stat.S_IFMT(inode.mode) | stat.S_IMODE(mode)
        if valid & SET_UID:
            inode.uid = uid
        if valid & SET_GID:
            inode.gid = gid
        if valid & SET_SIZE:
            inode.resize(size)
        return self._attr_out(inode)

    def _symlink(self, node: int, body: bytes, who: tuple[int, int]) -> bytes:
        name, target = body.split(b"\0")[:2]
        made = self._made(node, name, stat.S_IFLNK | 0o777, who)
        made.link = target
        return self._entry(made)

    def _mknod(self, node: int, body: bytes, who: tuple[int, int]) -> bytes:
        (mode,) = struct.unpack_from("<I", body)
        return self._entry(self._made(node, body[16:-1], mode, who))

    def _mkdir(self, node: int, body: bytes, who: tuple[int, int]) -> bytes:
        (mode,) = struct.unpack_from("<I", body)
        return self._entry(self._made(node, body[8:-1], stat.S_IFDIR | stat.S_IMODE(mode), who))

    def _create(self, node: int, body: bytes, who: tuple[int, int]) -> bytes:
        _, mode = struct.unpack_from("<II", body)
        return self._entry(self._made(node, body[16:-1], mode, who)) + self._open(
            self.inodes[node].names[body[16:-1]], b"", who
        )

    def _open(self, node: int, _body: bytes, _who: tuple[int, int]) -> bytes:
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        # A place in a listing must go on meaning the same name while names before it are removed.
        self._handles[handle] = list(self.inodes[node].names.items())
        return struct.pack("<QII", handle, 0, 0)

    def _release(self, _node: int, body: bytes, _who: tuple[int, int]) -> bytes:
        self._handles.pop(struct.unpack_from("<Q", body)[0], None)
        return b""

    def _unlink(self, node: int, body: bytes, _who: tuple[int, int]) -> bytes:
        self._named(node, body[:-1])
        self._unname(node, body[:-1])
        return b""

    def _rmdir(self, node: int, body: bytes, who: tuple[int, int]) -> bytes:
        if self._named(node, body[:-1]).names:
            raise OSError(errno.ENOTEMPTY, "it is not empty")
        return self._unlink(node, body, who)

    def _rename(self, node: int, names: bytes, target: int, flags: int) -> bytes:
        old, new = names.split(b"\0")[:2]
        if flags & ~NO_REPLACE:
            raise OSError(errno.EINVAL, "two names cannot be exchanged")
        moved, there = self._named(node, old), self.inodes[target].names.get(new)
        if there is not None and flags:
            raise OSError(errno.EEXIST, "it exists")
        if there is not None and self.inodes[there].names:
            raise OSError(errno.ENOTEMPTY, "it is not empty")
        if (node, old) != (target, new):
            self._unname(node, old)
            self._name(target, new, moved)
        return b""

    def _hard_link(self, node: int, body: bytes, _who: tuple[int, int]) -> bytes:
        (old,) = struct.unpack_from("<Q", body)
        if body[8:-1] in self.inodes[node].names:
            raise OSError(errno.EEXIST, "it exists")
        self._name(node, body[8:-1], self.inodes[old])
        return self._entry(self.inodes[old])

    def _read(self, node: int, body: bytes, _who: tuple[int, int]) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        return self.inodes[node].read(offset, size)

    def _write(self, node: int, body: bytes, _who: tuple[int, int]) -> bytes:
        size = self._put(node, body)
        if self.is_sync(WRITE, body):
            self._fsync(node, b"", (0, 0))
        return struct.pack("<II", size, 0)

    def _put(self, node: int, body: bytes) -> int:
        _, offset, size = struct.unpack_from("<QQI", body)
        self.inodes[node].write(offset, body[40 : 40 + size])
        return int(size)

    def _fsync(self, node: int, _body: bytes, _who: tuple[int, int]) -> bytes:
        self.inodes[node].sync()
        self._sync_names()
        return b""

    def _fsync_folder(self, _node: int, _body: bytes, _who: tuple[int, int]) -> bytes:
        self._sync_names()
        return b""

    def _fallocate(self, node: int, body: bytes, _who: tuple[int, int]) -> bytes:
        _, offset, length, mode = struct.unpack_from("<QQQI", body)
        if mode & ~KEEP_SIZE:
            raise OSError(errno.EOPNOTSUPP, "no holes")
        inode = self.inodes[node]
        if not mode and offset + length > inode.size:
            inode.resize(offset + length)
        return b""

    def _readdir(self, _node: int, body: bytes, _who: tuple[int, int]) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        listed = b""
        for position, (name, number) in enumerate(self._handles.get(handle, [])[offset:], offset + 1):
            kind = stat.S_IFMT(self.inodes[number].mode) >> 12 if number in self.inodes else 0
            entry = struct.pack("<QQII", number, position, len(name), kind) + name
            entry += bytes(-len(entry) % 8)
            if len(listed) + len(entry) > size:
                break
            listed += entry
        return listed


STATFS: Final = struct.pack("<5Q10I", *(1 << 24, 1 << 23, 1 << 23, 1 << 20, 1 << 19, PAGE, 255, PAGE), *([0] * 7))


def answer(disk: Disk, packet: bytes) -> bytes | None:
    """Return the reply to a request of the kernel, None where it wants none."""
    _, opcode, unique, node, uid, gid, _, _ = HEAD.unpack_from(packet)
    if opcode == LET_GO:
        disk.let_go(node, *struct.unpack_from("<Q", packet, HEAD.size))
    if opcode == LET_GO_MANY:
        (count,) = struct.unpack_from("<I", packet, HEAD.size)
        for position in range(count):
            disk.let_go(*struct.unpack_from("<QQ", packet, HEAD.size + 8 + 16 * position))
    if opcode in NO_REPLY:
        return None
    try:
        if opcode not in disk.answers:
            raise OSError(errno.ENOSYS, "not offered")
        if node not in disk.inodes and opcode not in OF_NO_NODE:
            raise OSError(errno.ESTALE, "it is gone")
        if node in disk.inodes:
            disk.must_accept(opcode, node, packet[HEAD.size :])
        body = disk.answers[opcode](node, packet[HEAD.size :], (uid, gid))
    except OSError as problem:
        return REPLY.pack(REPLY.size, -(problem.errno or errno.EIO), unique)
    return REPLY.pack(REPLY.size + len(body), 0, unique) + body


def mounted(folder: str) -> int:
    """Mount on a folder; return the descriptor over which the kernel asks. Raises OSError."""
    kernel = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={kernel},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tribunal", os.fsencode(folder), b"fuse", STATIC, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"cannot mount: {os.strerror(ctypes.get_errno())}")
    return kernel


class Desk:
    """Takes requests from the kernel and commands from the harness; answers at once, or when a slow sync is over."""

    def __init__(self, disk: Disk, kernel: int) -> None:
        self._disk = disk
        self._kernel = kernel
        self._count = 0
        self._put_off: list[tuple[int, int, bytes]] = []  # due in ns, number, request; a heap

    def wait_s(self) -> float | None:
        """Return how long nothing is due; None: nothing will be."""
        return max(0, self._put_off[0][0] - time.monotonic_ns()) / 1e9 if self._put_off else None

    def answer_due(self) -> None:
        """Answer what has waited long enough, or waits for a disk that is slow no more. Raises OSError."""
        while self._put_off and (self.wait_s() == 0 or not self._disk.trouble.sync_delay_ms):
            self._disk.met["delayed"] += self.wait_s() == 0
            _, _, packet = heapq.heappop(self._put_off)
            self._reply(packet)

    def take(self) -> None:
        """Take a request of the kernel. Raises OSError."""
        packet = os.read(self._kernel, REQUEST_BYTES_MAX)
        delay_ms = self._disk.trouble.sync_delay_ms
        if delay_ms and Disk.is_sync(HEAD.unpack_from(packet)[1], packet[HEAD.size :]):
            self._count += 1
            heapq.heappush(self._put_off, (time.monotonic_ns() + delay_ms * NS_PER_MS, self._count, packet))
        else:
            self._reply(packet)

    def _reply(self, packet: bytes) -> None:
        reply = answer(self._disk, packet)
        if reply is not None:
            os.write(self._kernel, reply)

    def obey(self, line: str) -> Mapping[str, int | list[str]]:
        """Do what the harness says."""
        word, _, given = line.partition(" ")
        if word == "trouble":
            return self._disk.misbehave(Trouble(**json.loads(given)))
        commands: dict[str, Callable[[], Mapping[str, int | list[str]]]] = {
            "forget": lambda: self._disk.forget_part(json.loads(given)) if given else self._disk.forget(),
            "wipe": self._disk.wipe,
            "met": lambda: self._disk.met,
            "opened": self._disk.open_count,
        }
        return commands[word]()


def serve(disk: Disk, kernel: int) -> None:
    """Answer the kernel and the harness until either ends."""
    desk = Desk(disk, kernel)
    chosen = selectors.DefaultSelector()
    for descriptor in (kernel, 0):
        chosen.register(descriptor, selectors.EVENT_READ)
    while True:
        try:
            for key, _ in chosen.select(desk.wait_s()):
                if key.fd == kernel:
                    desk.take()
                    continue
                line = sys.stdin.readline().strip()
                if not line:
                    return
                sys.stdout.write(json.dumps(desk.obey(line)) + "\n")
                sys.stdout.flush()
            desk.answer_due()
        except OSError as problem:
            if problem.errno == errno.ENODEV:  # it was unmounted
                return
            if problem.errno not in (errno.ENOENT, errno.EINTR, errno.EAGAIN):  # who asked has given up
                raise


def main() -> None:
    """Mount, say so, and serve."""
    kernel = mounted(sys.argv[1])
    sys.stdout.write(json.dumps({"mounted": sys.argv[1]}) + "\n")
    sys.stdout.flush()
    serve(Disk(), kernel)


if __name__ == "__main__":
    main()
