"""A small model of ZooKeeper: a tree of znodes, sessions with ephemeral znodes, watches, transactions.

It keeps what brokers rely on: one order of all writes (zxid), a znode's czxid, versions, atomic transactions, one-shot
watches that come before the change can be seen, ephemeral znodes that go with their session. One server stands for an
ensemble: its state survives the server's process, as a quorum's transaction logs do. ACLs are left out.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from replog.zookeeper.operations import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SetData,
    Stat,
    Watched,
    ZooKeeperError,
)

ROOT: Final = "/"
FIRST_SESSION: Final = 0x1000


class Znode:
    """One node of the tree."""

    __slots__ = ("children", "created_count", "czxid", "data", "mzxid", "owner", "version")

    def __init__(self, data: bytes, zxid: int, owner: int) -> None:
        self.data = data
        self.czxid = zxid
        self.mzxid = zxid
        self.version = 0
        self.owner = owner
        self.created_count = 0
        self.children: dict[str, None] = {}

    @property
    def stat(self) -> Stat:
        """The part of it that reads and writes return besides its content."""
        return Stat(czxid=self.czxid, mzxid=self.mzxid, version=self.version, ephemeral_owner=self.owner)


class Change(NamedTuple):
    """What a transaction did to one znode; no stat: it is gone."""

    path: str
    data: bytes
    stat: Stat | None


class Watch(NamedTuple):
    """A one-time watch: whom to notify, and its number."""

    watcher: int
    path: str


class Session:
    """A client's session."""

    def __init__(self, session_id: int, timeout_ms: int, now_ms: int) -> None:
        self.session_id = session_id
        self.timeout_ms = timeout_ms
        self.last_message_ms = now_ms


class Model:
    """The state of an ensemble."""

    def __init__(self) -> None:
        self.zxid = 0
        self.nodes: dict[str, Znode] = {ROOT: Znode(b"", 0, 0)}
        self.sessions: dict[int, Session] = {}
        self.on_commit: Callable[[Sequence[Change]], None] = lambda _: None
        self._next_session = FIRST_SESSION
        self._data_watches: dict[str, dict[int, None]] = {}
        self._child_watches: dict[str, dict[int, None]] = {}

    # --- sessions ----------------------------------------------------------------------------

    def open_session(self, timeout_ms: int, now_ms: int) -> Session:
        """Begin a session."""
        self._next_session += 1
        session = self.sessions[self._next_session] = Session(self._next_session, timeout_ms, now_ms)
        return session

    def expired(self, now_ms: int) -> list[int]:
        """Return the sessions that sent nothing for too long."""
        return [
            session.session_id
            for session in self.sessions.values()
            if now_ms - session.last_message_ms > session.timeout_ms
        ]

    def end_session(self, session_id: int) -> list[tuple[int, str, Watched]]:
        """End a session: its ephemeral znodes go in one transaction. Return whom to notify."""
        self.sessions.pop(session_id, None)
        ephemeral = sorted(path for path, node in self.nodes.items() if node.owner == session_id)
        return self.transact([Delete(path=path) for path in ephemeral], session_id)[1] if ephemeral else []

    # --- reading -----------------------------------------------------------------------------

    def node(self, path: str) -> Znode:
        """Return a znode; `NoNode`."""
        found = self.nodes.get(path)
        if found is None:
            raise NoNode(path)
        return found

    def watch_data(self, path: str, watcher: int) -> None:
        """Notify the watcher of the next change of this znode, its creation included."""
        self._data_watches.setdefault(path, {})[watcher] = None

    def watch_children(self, path: str, watcher: int) -> None:
        """Notify the watcher when a child comes or goes."""
        self._child_watches.setdefault(path, {})[watcher] = None

    def forget(self, watcher: int) -> None:
        """Drop a watcher's watches."""
        for watches in (self._data_watches, self._child_watches):
            for path in [path for path, watchers in watches.items() if watcher in watchers]:
                del watches[path][watcher]
                if not watches[path]:
                    del watches[path]

    @property
    def watched_paths(self) -> list[str]:
        """What somebody watches, in order."""
        return sorted({**self._data_watches, **self._child_watches})

    def forget_watches(self) -> None:
        """Drop all watches: they are the server's, and go with its process; clients ask for them anew."""
        self._data_watches.clear()
        self._child_watches.clear()

    # --- writing -----------------------------------------------------------------------------

    def transact(
        self, operations: Sequence[Operation], session_id: int
    ) -> tuple[list[Result], list[tuple[int, str, Watched]]]:
        """Do all or nothing; return the results, and whom to notify of what. Raises the first operation's error."""
        zxid = self.zxid + 1
        draft = _Draft(self.nodes, zxid, session_id)
        results = [draft.do(operation) for operation in operations]
        self.zxid = zxid
        changes = draft.commit()
        self.on_commit(changes)
        return results, [notice for event in draft.events for notice in self._watchers(*event)]

    def _watchers(self, path: str, what: Watched) -> list[tuple[int, str, Watched]]:
        watches = self._child_watches if what is Watched.CHILDREN else self._data_watches
        notices = [(watcher, path, what) for watcher in watches.pop(path, {})]
        if what is Watched.DELETED:
            notices += [(watcher, path, what) for watcher in self._child_watches.pop(path, {})]
        return notices


class _Draft:
    """A transaction in the making: the tree as it would be."""

    def __init__(self, nodes: dict[str, Znode], zxid: int, session_id: int) -> None:
        self._nodes = nodes
        self._zxid = zxid
        self._session_id = session_id
        self._drafted: dict[str, Znode | None] = {}
        self.events: list[tuple[str, Watched]] = []

    def do(self, operation: Operation) -> Result:
        """Do one operation on the draft."""
        match operation:
            case Create():
                return self._create(operation)
            case SetData():
                node = self._versioned(operation.path, operation.version)
                node.data, node.version, node.mzxid = operation.data, node.version + 1, self._zxid
                self.events.append((operation.path, Watched.DATA))
                return node.stat
            case Delete():
                self._delete(operation)
                return None
            case Check():
                self._versioned(operation.path, operation.version)
                return None

    def commit(self) -> list[Change]:
        """Make the draft the tree."""
        changes = []
        for path, node in self._drafted.items():
            if node is None:
                self._nodes.pop(path, None)
                changes.append(Change(path, b"", None))
            else:
                self._nodes[path] = node
                changes.append(Change(path, node.data, node.stat))
        return changes

    def _create(self, operation: Create) -> str:
        parent = self._open(_parent(operation.path))
        if parent.owner:
            raise NoNode(f"{_parent(operation.path)} is ephemeral")
        path = operation.path
        if operation.sequential:
            path += f"{parent.created_count:010}"
        if self._found(path) is not None:
            raise NodeExists(path)
        parent.created_count += 1
        parent.children[path.rpartition("/")[2]] = None
        self._drafted[path] = Znode(operation.data, self._zxid, self._session_id if operation.ephemeral else 0)
        self.events += [(path, Watched.CREATED), (_parent(path), Watched.CHILDREN)]
        return path

    def _delete(self, operation: Delete) -> None:
        node = self._versioned(operation.path, operation.version)
        if node.children:
            raise NotEmpty(operation.path)
        del self._open(_parent(operation.path)).children[operation.path.rpartition("/")[2]]
        self._drafted[operation.path] = None
        self.events += [(operation.path, Watched.DELETED), (_parent(operation.path), Watched.CHILDREN)]

    def _versioned(self, path: str, version: int) -> Znode:
        node = self._open(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path)
        return node

    def _found(self, path: str) -> Znode | None:
        return self._drafted[path] if path in self._drafted else self._nodes.get(path)

    def _open(self, path: str) -> Znode:
        """Return a znode to be changed in the draft only."""
        found = self._found(path)
        if found is None:
            raise NoNode(path)
        if path not in self._drafted:
            copy = Znode(found.data, found.czxid, found.owner)
            copy.mzxid, copy.version, copy.created_count = found.mzxid, found.version, found.created_count
            copy.children = dict(found.children)
            self._drafted[path] = found = copy
        return found


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


def error_name(problem: ZooKeeperError) -> str:
    """Return the name by which an error goes over the wire."""
    return type(problem).__name__
