"""The real world behind the ports: asyncio or uvloop, the operating system's files, clocks and chance.

This is the only module of `replog` that may touch `os`, `time`, `random`, `uuid` and threads, with what it uses for nodes
under test (`undo_disk.py`, `control_page.py` and theirs). Errors of the world come
out as `OSError`. Whoever runs a node calls `run(main, world)`: it ends the process on anything that was not foreseen,
because a node that goes on after a bug writes a false recording.
"""

import asyncio
import contextlib
import errno
import json
import os
import random
import resource
import shutil
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO
from uuid import UUID

from replog.config import NodeConfig
from replog.host.certificates import Certificates
from replog.host.handshakes import TlsListener, listening_sockets
from replog.host.memory import keep_freed_memory
from replog.host.peers import peering_of
from replog.ports import Buffer, Clock, Disk, Entropy, File, Journal, Listener, Network, NewFolder, Peering, Space

if TYPE_CHECKING:
    from replog.host.sabotage.control_page import ControlPage

LEVELS: Final = {"debug": 0, "info": 1, "warning": 2, "error": 3}
BACKLOG: Final = 1024
COPY_BYTES: Final = 1 << 20
WAITING_MAX: Final = 4
TEMPORARY_SUFFIX: Final = ".tmp"
BACKGROUND_SUFFIX: Final = ".background.tmp"  # the event loop may write the same file meanwhile
UNFORESEEN_KINDS_MAX: Final = 1000
# What strangers call themselves stands in lines, too: it begins no line of its own, and moves no cursor.
AS_TEXT: Final = {code: f"\\u{code:04x}" for code in (*range(32), *range(127, 160), 0x2028, 0x2029)} | {
    9: "\t",
    10: "\n    ",
}
MOST_PARTS: Final = 512  # of one vectored write; the system's IOV_MAX is 1024


class RealClock:
    """The machine's clocks. Monotonic time is CLOCK_MONOTONIC itself, so that the harness can compare it."""

    def now_ms(self) -> int:
        """Monotonic milliseconds."""
        return time.monotonic_ns() // 1_000_000

    def now_ns(self) -> int:
        """Monotonic nanoseconds."""
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000


class RealEntropy:
    """Chance from the operating system, one stream a purpose."""

    def __init__(self) -> None:
        self._streams: dict[str, random.Random] = {}

    def random(self, purpose: str) -> random.Random:
        """Return the stream for this purpose."""
        if purpose not in self._streams:
            self._streams[purpose] = random.Random(os.urandom(32))
        return self._streams[purpose]

    def uuid(self) -> UUID:
        """Return a fresh random id."""
        return uuid.uuid4()

    def strikes(self, point: str) -> bool:
        """Return that no fault is injected here."""
        return False


class RealFile:
    """A file by its descriptor; reads and writes name their position."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size

    @property
    def path(self) -> str:
        """Where it was opened."""
        return self._path

    def size(self) -> int:
        """Length in bytes."""
        return self._size

    def append(self, *parts: Buffer) -> int:
        """Write at the end; return the position of the first byte."""
        position = self._size
        for first in range(0, len(parts), MOST_PARTS):
            self._write(parts[first : first + MOST_PARTS], self._size)
        return position

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite in place."""
        self._write((data,), position)

    def _write(self, parts: Sequence[Buffer], position: int) -> None:
        written = os.pwritev(self._descriptor, parts, position)
        wanted = sum(map(len, parts))
        self._size = max(self._size, position + written)
        if written < wanted:  # a full disk or a signal: the rest either fits or says why not
            rest = memoryview(b"".join(parts))
            while written < wanted:
                written += os.pwrite(self._descriptor, rest[written:], position + written)
                self._size = max(self._size, position + written)

    def read_at(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes."""
        data = os.pread(self._descriptor, length, position)
        while len(data) < length:
            more = os.pread(self._descriptor, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def truncate(self, size: int) -> None:
        """Cut to `size` bytes."""
        os.ftruncate(self._descriptor, size)
        self._size = size

    def sync(self) -> None:
        """Block until content and size are durable."""
        _sync(self._descriptor)

    def forget_cached(self, position: int, length: int) -> None:
        """Tell the system that its copy is not needed; what is not written yet stays."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, position, length, os.POSIX_FADV_DONTNEED)

    def write_again(self, position: int) -> None:
        """Write what is there once more."""
        while content := self.read_at(position, COPY_BYTES):
            self._write((content,), position)
            position += len(content)

    def close(self) -> None:
        """Close; twice is allowed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class RealDisk:
    """The file system, as it is."""

    def __init__(self) -> None:
        self._syncing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sync")
        # A file system that keeps a journal commits once for all who wait at the same time.
        self._waiting = ThreadPoolExecutor(max_workers=WAITING_MAX, thread_name_prefix="wait")

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Open for reading and writing."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, 0o644))

    def exists(self, path: str) -> bool:
        """Return whether a name exists."""
        return Path(path).exists()

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(path))  # noqa: PTH208 - names, not paths

    def make_directory(self, path: str) -> None:
        """Create it and its parents."""
        Path(path).mkdir(parents=True, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old` atomically."""
        Path(old).replace(new)

    def remove(self, path: str) -> None:
        """Remove a file."""
        Path(path).unlink()

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; a missing one is fine."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        """Make the names in this directory durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def space(self, path: str) -> Space:
        """Return the size of the file system, and what users other than root may still write."""
        found = os.statvfs(path)
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def read_file(self, path: str) -> bytes:
        """Return a small file's whole content."""
        return Path(path).read_bytes()

    def replace_file(self, path: str, content: bytes) -> None:
        """Write a small file durably and atomically."""
        temporary = path + TEMPORARY_SUFFIX
        self._write_durably(temporary, content)
        self.rename(temporary, path)
        self.sync_directory(str(Path(path).parent))

    def replace_in_background(
        self,
        files: Mapping[str, bytes],
        *,
        is_wanted: Callable[[str], bool],
        done: Callable[[OSError | None], None],
    ) -> None:
        """Write and sync on the syncing thread; put files in place on the event loop, so that its other writes come before or after."""
        loop = asyncio.get_running_loop()
        in_place: list[str] = []

        def placed(written: "asyncio.Future[None]") -> None:
            if written.cancelled():
                return
            try:
                written.result()
                for path in files:
                    if is_wanted(path):
                        self.rename(path + BACKGROUND_SUFFIX, path)
                        in_place.append(path)
                    else:
                        self.remove(path + BACKGROUND_SUFFIX)
            except OSError as problem:
                done(problem)
                return
            if not in_place:
                done(None)
                return
            directories = dict.fromkeys(str(Path(path).parent) for path in in_place)
            loop.run_in_executor(self._syncing, self._sync_directories, list(directories)).add_done_callback(durable)

        def durable(synced: "asyncio.Future[None]") -> None:
            if synced.cancelled():
                return
            try:
                synced.result()
            except OSError as problem:
                done(problem)
            else:
                done(None)

        loop.run_in_executor(self._syncing, self._write_aside, dict(files)).add_done_callback(placed)

    def _write_aside(self, files: Mapping[str, bytes]) -> None:
        for path, content in files.items():
            self._write_durably(path + BACKGROUND_SUFFIX, content)

    def _sync_directories(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.sync_directory(path)

    def _write_durably(self, path: str, content: bytes) -> None:
        file = self.open(path, create=True)
        try:
            file.truncate(0)
            file.append(content)
            file.sync()
        finally:
            file.close()

    def write_together(self, folders: Sequence[NewFolder]) -> None:
        """Write files into directories; everything is written before anything is waited for."""
        written: list[tuple[RealFile, str]] = []
        try:
            for folder in folders:
                for name, content in folder.files.items():
                    path = f"{folder.path}/{name}"
                    file = self.open(path + TEMPORARY_SUFFIX, create=True)
                    written.append((file, path))
                    if file.size():
                        file.truncate(0)
                    if content:
                        file.append(content)
            for file, _ in written:
                file.forget_cached(0, file.size())  # begins to write what is to be synced
            self._wait_for_all([file.sync for file, _ in written if file.size()])
        finally:
            for file, _ in written:
                file.close()
        for _, path in written:
            self.rename(path + TEMPORARY_SUFFIX, path)
        self._wait_for_all([partial(self.sync_directory, folder.path) for folder in folders if folder.files])

    def _wait_for_all(self, syncs: Sequence[Callable[[], None]]) -> None:
        """Do them at the same time; raise, when all are done, what the first that failed raised."""
        if len(syncs) == 1:
            syncs[0]()
            return
        waiting = [self._waiting.submit(sync) for sync in syncs]
        wait(waiting)
        for one in waiting:
            one.result()

    async def sync_in_background(self, files: Sequence[File]) -> None:
        """Make files durable in the order given, on the one syncing thread."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._syncing, _sync_all, list(files))

    async def create_in_background(self, folders: Sequence[NewFolder]) -> None:
        """Make directories with their files on the syncing thread."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._syncing, create_folders, self, list(folders))

    def close(self) -> None:
        """End the threads that sync."""
        self._syncing.shutdown()
        self._waiting.shutdown()


class RealListener:
    """A listening socket of asyncio's."""

    def __init__(self, server: asyncio.AbstractServer, port: int) -> None:
        self._server = server
        self._port = port

    @property
    def port(self) -> int:
        """The bound port."""
        return self._port

    def close(self) -> None:
        """Stop accepting."""
        self._server.close()


class RealNetwork:
    """TCP from the node's own address."""

    def __init__(self, bind_host: str | None = None, certificates: Certificates | None = None) -> None:
        """Without `certificates` there is no TLS."""
        self._bind_host = bind_host
        self._certificates = certificates

    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol], *, tls: bool = False
    ) -> Listener:
        """Accept connections."""
        if tls:
            context = self._with_tls.for_listening()
            return TlsListener(await listening_sockets(host, port, BACKLOG), context, factory)
        server = await asyncio.get_running_loop().create_server(factory, host, port, backlog=BACKLOG)
        return RealListener(server, server.sockets[0].getsockname()[1])

    async def connect(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol], *, tls: bool = False
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Open a connection from the node's own address."""
        loop = asyncio.get_running_loop()
        local = (self._bind_host, 0) if self._bind_host else None
        if tls:
            context = self._with_tls.for_connecting()
            return await loop.create_connection(factory, host, port, local_addr=local, ssl=context)
        return await loop.create_connection(factory, host, port, local_addr=local)

    def peering(self, transport: asyncio.BaseTransport) -> Peering | None:
        """Ask the system."""
        return peering_of(transport)

    @property
    def _with_tls(self) -> Certificates:
        assert self._certificates is not None, "TLS is asked for by settings that name certificates"
        return self._certificates


class RealJournal:
    """Lines for people on stderr, JSON lines for the recording in a file.

    An event line is `{"event": name, "node_ns": CLOCK_MONOTONIC, ...}` and is written whole, in one call, so that a
    killed node leaves no more than one torn line. A probe is written when its count reaches a power of two.
    """

    def __init__(self, node: int, events_path: str = "", *, level: str = "info", people: TextIO | None = None) -> None:
        self.level = level
        self._node = node
        self._threshold = LEVELS[level]
        self._people = people or sys.stderr
        self._probes: dict[str, int] = {}
        self._unforeseen: set[tuple[str, str]] = set()
        self.unforeseen_count = 0
        self._events = -1
        if events_path:
            Path(events_path).parent.mkdir(parents=True, exist_ok=True)
            self._events = os.open(events_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def log(self, level: str, message: str) -> None:
        """Write a line for people."""
        if LEVELS[level] >= self._threshold:
            now = datetime.now(UTC).strftime("%H:%M:%S.%f")[:-3]
            line = f"{now} {level.upper():7} node {self._node}: {message.translate(AS_TEXT)}\n"
            with contextlib.suppress(OSError):  # nobody reads it, or its disk is full: that ends no node
                self._people.write(line)
                self._people.flush()

    def event(self, name: str, **fields: object) -> None:
        """Record a fact for the recording."""
        self._line({"event": name, "node_ns": time.monotonic_ns(), **fields})

    def probe(self, name: str) -> None:
        """Count that a rare state was reached."""
        count = self._probes[name] = self._probes.get(name, 0) + 1
        if count & (count - 1) == 0:
            self._probe_line(name, count)

    def unforeseen(self, where: str, problem: Exception) -> None:
        """Log the first error of its kind with its cause; count all of them."""
        self.unforeseen_count += 1
        kind = (where, f"{type(problem).__name__} in {_place(problem)}")
        if kind not in self._unforeseen and len(self._unforeseen) < UNFORESEEN_KINDS_MAX:
            self._unforeseen.add(kind)
            self.log("error", f"{where}: {problem!r}; more of these are only counted\n{_traceback(problem)}")

    def close(self) -> None:
        """Write the probes' last counts and close the file."""
        for name, count in self._probes.items():
            self._probe_line(name, count)
        if self._events >= 0:
            os.close(self._events)
            self._events = -1

    def _probe_line(self, name: str, count: int) -> None:
        now_ns = time.monotonic_ns()
        self._line({"event": "probe", "node_ns": now_ns, "node": self._node, "name": name, "count": count})

    def _line(self, fields: dict[str, object]) -> None:
        if self._events >= 0:
            os.write(self._events, json.dumps(fields, separators=(",", ":")).encode() + b"\n")


class RealWorld:
    """All real doors of one node."""

    def __init__(self, config: NodeConfig, *, level: str = "info") -> None:
        page = _control_page(config)
        self._disk = _disk(config, page)
        self._journal = RealJournal(config.node_id, config.hooks.events_file, level=level)
        self.clock: Clock = RealClock() if page is None else _steered_clock(page)
        self.entropy: Entropy = RealEntropy()
        self.disk: Disk = self._disk
        self.network: Network = RealNetwork(config.bind_host, Certificates(config.security, self._journal.log))
        self.journal: Journal = self._journal

    def close(self) -> None:
        """Let go of threads and files."""
        self._disk.close()
        self._journal.close()


# What only nodes under test have is imported only there.


def _control_page(config: NodeConfig) -> "ControlPage | None":
    path = config.hooks.control_page
    if not path:
        return None
    from replog.host.sabotage.control_page import ControlPage

    return ControlPage(path)


def _steered_clock(page: "ControlPage") -> Clock:
    from replog.host.sabotage.control_page import SteeredClock

    return SteeredClock(page)


def _disk(config: NodeConfig, page: "ControlPage | None") -> RealDisk:
    journal_directory = config.hooks.undo_journal
    if not journal_directory:
        return RealDisk()
    from replog.host.sabotage.undo_disk import UndoDisk

    return UndoDisk(journal_directory, page)


def run(main: Coroutine[object, object, None], world: RealWorld) -> int:
    """Run a node to its end on uvloop (asyncio where it is missing) and return the exit code.

    What nobody caught, in a callback as well as in `main`, ends the node with code 1.
    """
    keep_freed_memory()
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        loop = runner.get_loop()
        task = loop.create_task(main)
        unforeseen: list[str] = []

        def end(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
            problem = context.get("exception")
            assert problem is None or isinstance(problem, BaseException), problem
            if _is_no_descriptor_left(context):
                world.journal.log("warning", f"no connection can be accepted: {problem}")
                return  # those that there are go on, and it is tried again
            unforeseen.append(f"{context['message']}: {problem!r}")
            world.journal.log("error", f"{unforeseen[-1]}\n{_traceback(problem)}")
            task.cancel()

        loop.set_exception_handler(end)
        hook = sys.unraisablehook
        sys.unraisablehook = partial(_note_unraisable, world.journal)
        try:
            runner.run(_awaited(task))
        except asyncio.CancelledError:
            return 1 if unforeseen else 0
        finally:
            sys.unraisablehook = hook
            world.close()
        return 1 if unforeseen else 0


def _note_unraisable(journal: Journal, what: "sys.UnraisableHookArgs") -> None:
    """Log what Python can give to nobody once, and count it: who names a server in TLS that is no text causes it as often as he connects."""
    if isinstance(what.exc_value, Exception):
        journal.unforeseen("an error that nobody could be given", what.exc_value)


async def _awaited(task: "asyncio.Task[None]") -> None:
    await task


def raise_descriptor_limit() -> None:
    """Let this process have as many open files and connections as the system permits it, as the JVM does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # some systems have a limit below the hard one that they state
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _is_no_descriptor_left(context: dict[str, object]) -> bool:
    problem = context.get("exception")
    accepts = "accept" in str(context.get("message")) or "listen" in str(context.get("message"))
    return accepts and isinstance(problem, OSError) and problem.errno in (errno.EMFILE, errno.ENFILE)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _traceback(problem: BaseException | None) -> str:
    return "" if problem is None else "".join(traceback.format_exception(problem))


def _place(problem: BaseException) -> str:
    """Return the last function of ours that an error came through: others of its type have other causes."""
    place, at = "", problem.__traceback__
    while at is not None:
        module = at.tb_frame.f_globals.get("__name__", "")
        if module.startswith("replog."):
            place = f"{module}.{at.tb_frame.f_code.co_qualname}"
        at = at.tb_next
    return place


def create_folders(disk: Disk, folders: Sequence[NewFolder]) -> None:
    """Make directories with their files, durable, names included."""
    for folder in folders:
        disk.make_directory(folder.path)
    disk.write_together(folders)
    for parent in dict.fromkeys(folder.path.rpartition("/")[0] or "." for folder in folders):
        disk.sync_directory(parent)


def _sync(descriptor: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def _sync_all(files: list[File]) -> None:
    for file in files:
        try:
            file.sync()
        except OSError as problem:
            # Closed meanwhile: the segment was deleted, or closed in order, which syncs it.
            if problem.errno != errno.EBADF:
                raise
