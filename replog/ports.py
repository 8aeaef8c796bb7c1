"""The shell's only interfaces to the world: clock, network, disk, entropy, and a journal for events.

The real ones are in `replog/host/world.py`, the simulated ones in `clusters/simulated`. Both obey the
same contract tests (`tests/contracts`). Disk calls are synchronous: a write goes to the page cache and costs
microseconds; `File.sync` blocks until it is durable (the simulator charges the node virtual time for it).
What may take long while clients wait (flushing data segments) goes through `Disk.sync_in_background`.
"""

from asyncio import BaseProtocol, BaseTransport
from asyncio import Protocol as StreamProtocol
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from random import Random
from typing import NamedTuple, Protocol
from uuid import UUID

from replog.zookeeper.operations import Operation, Result, SessionState, Stat, Watched

Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """A node's own idea of time; in the simulator it drifts and jumps."""

    def now_ms(self) -> int:
        """Monotonic milliseconds since an arbitrary start."""

    def now_ns(self) -> int:
        """Monotonic nanoseconds since the same start."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for record timestamps only: it may jump."""


class Entropy(Protocol):
    """Chance, one independent stream a purpose, so that a new draw here shifts nothing there."""

    def random(self, purpose: str) -> Random:
        """Return the node's stream for this purpose (the same object each time)."""

    def uuid(self) -> UUID:
        """Return a fresh random (version 4) id."""

    def strikes(self, point: str) -> bool:
        """Return whether a named point in the code is to be late or to fail now (`node/fault_injection_points.py`); never so outside of the simulator."""


class File(Protocol):
    """An open regular file. Errors of the world are `OSError`."""

    @property
    def path(self) -> str:
        """Where it was opened, relative to nothing: as given to `Disk.open`."""

    def size(self) -> int:
        """Length in bytes, unsynced writes included."""

    def append(self, *parts: Buffer) -> int:
        """Write the parts one behind the other at the end; return the position of the first byte."""

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite in place; may extend the file."""

    def read_at(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes; fewer at the end of the file."""

    def truncate(self, size: int) -> None:
        """Cut to `size` bytes."""

    def sync(self) -> None:
        """Block until content and size are durable. A file's *name* needs `Disk.sync_directory`.

        After an `OSError` a second call may say yes and have done nothing: the system has dropped what it could not write,
        and counts what is in its cache as clean. Only what was written again (`write_again`) can be made durable then.
        """

    def forget_cached(self, position: int, length: int) -> None:
        """Have these bytes read from the disk next time, where the system can: what is in its cache says nothing of the disk."""

    def write_again(self, position: int) -> None:
        """Write what stands from `position` on once more, so that the next sync writes it whatever the system believes."""

    def close(self) -> None:
        """Close; unsynced writes stay in the page cache. Closing twice is allowed."""


class NewFolder(NamedTuple):
    """A directory to be made, and the small files to be put into it by name."""

    path: str
    files: Mapping[str, bytes]


class Space(NamedTuple):
    """How large a file system is, and how much of it may still be written."""

    total_bytes: int
    usable_bytes: int


class Disk(Protocol):
    """Files by path string. Listings are sorted. Names are durable only after `sync_directory`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; `FileNotFoundError` unless it exists or `create`."""

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of this name exists."""

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; `FileNotFoundError` when it is missing."""

    def make_directory(self, path: str) -> None:
        """Create it and its parents; an existing one is fine."""

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old` atomically (files and directories)."""

    def remove(self, path: str) -> None:
        """Remove a file; `FileNotFoundError` when it is missing."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; a missing one is fine."""

    def sync_directory(self, path: str) -> None:
        """Make the names in this directory durable."""

    def space(self, path: str) -> Space:
        """Return the size of the file system that this directory lies in, and what is left of it."""

    def read_file(self, path: str) -> bytes:
        """Return a small file's whole content."""

    def replace_file(self, path: str, content: bytes) -> None:
        """Write a small file durably and atomically: temp file, fsync, rename, fsync of the directory."""

    def replace_in_background(
        self,
        files: Mapping[str, bytes],
        *,
        is_wanted: Callable[[str], bool],
        done: Callable[[OSError | None], None],
    ) -> None:
        """Begin to write small files of one directory, by path, as `replace_file` does, without holding up the event loop.

        To be called on the event loop, and for each path only when the call before is done.

        is_wanted:  asked on the event loop when a content is durable and not yet in place; where it says no the file stays as it is.
        done:       called on the event loop when all of it is durable, or with what failed; the simulator calls it before this returns.
        """

    def write_together(self, folders: Sequence[NewFolder]) -> None:
        """Write files into directories that exist, each whole or not at all; all of it is durable when this returns.

        Which of the new names a power failure on the way leaves is open, also within one directory.
        """

    async def sync_in_background(self, files: Sequence[File]) -> None:
        """Make files durable without holding up the event loop."""

    async def create_in_background(self, folders: Sequence[NewFolder]) -> None:
        """Make directories with their files, durable, names included, without holding up the event loop.

        Each file appears whole or not at all; what exists is replaced. Many folders cost hardly more syncs than one has files.
        """


class Listener(Protocol):
    """A bound listening socket."""

    @property
    def port(self) -> int:
        """The bound port (resolved when 0 was asked for)."""

    def close(self) -> None:
        """Stop accepting; established connections live on."""


class Incoming(StreamProtocol):
    """The protocol of a connection that somebody opens to us."""

    def connection_accepted(self, host: str) -> bool:
        """Count a connection whose TLS handshake is ahead: `connection_made` follows, or `connection_lost`.

        Return whether it may go on; if not nothing follows.
        """
        return True


class Peering(Enum):
    """How the other end of a connection is."""

    THERE = 0
    FINISHED = 1  # it sends nothing more; what it sent is not read yet
    GONE = 2


class Network(Protocol):
    """Ordered byte streams between addresses; protocols are `asyncio.Protocol`s."""

    async def listen(self, host: str, port: int, factory: Callable[[], BaseProtocol], *, tls: bool = False) -> Listener:
        """Accept connections; `OSError` when the address is taken.

        tls:  with the node's own certificate; protocols are `Incoming`. The transport of who showed one has it as `peercert`.
        """

    async def connect(
        self, host: str, port: int, factory: Callable[[], BaseProtocol], *, tls: bool = False
    ) -> tuple[BaseTransport, BaseProtocol]:
        """Open a connection from the node's own address; `OSError` when it cannot be had.

        tls:  the peer's certificate is checked, and the node's own is shown if it has one.
        """

    def peering(self, transport: BaseTransport) -> Peering | None:
        """Return how the peer is of a connection that is not read, and whose end is therefore not noticed; None: nobody knows."""


class Journal(Protocol):
    """Where a node says what happened, for people (`log`) and for checkers (`event`, `probe`)."""

    level: str  # lines for people below it are left out

    def log(self, level: str, message: str) -> None:
        """Write a line for people; level is debug, info, warning or error."""

    def event(self, name: str, **fields: object) -> None:
        """Record a fact for the recording (docs/recording-format.md, nodes and watermarks); JSON-able fields."""

    def probe(self, name: str) -> None:
        """Count that a rare state was reached (`elr_nonempty`, `stale_broker_epoch_refused`, ...)."""

    def unforeseen(self, where: str, problem: Exception) -> None:
        """Log an error that cost a request or a connection, the first of its kind with its cause; count all of them."""

    @property
    def unforeseen_count(self) -> int:
        """How many of them there were."""


class World(Protocol):
    """All doors of one node together."""

    clock: Clock
    entropy: Entropy
    disk: Disk
    network: Network
    journal: Journal


class ZooKeeperListener(Protocol):
    """Who is notified of sessions and watches, on the event loop."""

    def on_session(self, state: SessionState) -> None:
        """The session was connected (perhaps a new one), lost its server, or ended."""

    def on_watch(self, path: str, what: Watched) -> None:
        """Something changed where a watch was left; the watch is gone."""


class ZooKeeper(Protocol):
    """A session with a ZooKeeper ensemble, and a new one each time it has ended.

    Errors are `replog.zookeeper.operations.ZooKeeperError`. After `ConnectionLoss` nobody knows whether it was done.
    """

    @property
    def session_id(self) -> int:
        """The present session's id, 0 before the first."""

    async def connect(self, timeout_ms: int) -> None:
        """Get a first session; `Unreachable` when no server answers in time."""

    async def get(self, path: str, *, watch: bool = False) -> tuple[bytes, Stat]:
        """Return a znode's data; `NoNode` (then no watch is left)."""

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """Return whether there is such a znode; the watch is left either way."""

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return the names of a znode's children, sorted; `NoNode`."""

    async def transaction(self, operations: Sequence[Operation]) -> list[Result]:
        """Do all of it or nothing; raises the error of the operation that could not be done."""

    async def close(self) -> None:
        """End the session: its ephemeral znodes go at once."""
