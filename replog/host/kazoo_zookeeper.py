"""ZooKeeper through kazoo: its threads end here, at a queue into the event loop.

kazoo's own callbacks run in its threads; each does nothing but hand its news to the loop (`call_soon_threadsafe`), in the
order it came. What is asked while no server is connected fails at once with `ConnectionLoss`, so that nobody waits for
longer than he knows.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo import exceptions as kx
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import EventType, KazooState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry

from replog.config import NodeConfig
from replog.ports import World, ZooKeeperListener
from replog.zookeeper.operations import (
    NO_SESSION,
    BadVersion,
    Check,
    ConnectionLoss,
    Create,
    Delete,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    Unreachable,
    Watched,
    ZooKeeperError,
)

RETRY_DELAY_S: Final = 0.05
RETRY_DELAY_S_MAX: Final = 0.3
ERRORS: Final[tuple[tuple[type[Exception], type[ZooKeeperError]], ...]] = (
    (kx.NoNodeError, NoNode),
    (kx.NodeExistsError, NodeExists),
    (kx.BadVersionError, BadVersion),
    (kx.NotEmptyError, NotEmpty),
    (kx.NoAuthError, NoAuth),
    (kx.AuthFailedError, NoAuth),
    (kx.InvalidACLError, NoAuth),
    (kx.SessionExpiredError, SessionExpired),
    (kx.ConnectionLoss, ConnectionLoss),
    (kx.ConnectionClosedError, ConnectionLoss),
    (kx.OperationTimeoutError, ConnectionLoss),
    (kx.SessionMovedError, ConnectionLoss),
)
WATCHED: Final = {
    EventType.CREATED: Watched.CREATED,
    EventType.DELETED: Watched.DELETED,
    EventType.CHANGED: Watched.DATA,
    EventType.CHILD: Watched.CHILDREN,
}


class BoundHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Connects from the node's own address, so that links know who calls (docs/contract.md, loopback)."""

    def __init__(self, source_host: str | None) -> None:
        super().__init__()
        self._source = None if source_host is None else (source_host, 0)

    def create_connection(self, address: tuple[str, int], timeout: float | None = None, **_: object) -> socket.socket:
        """Open a socket."""
        return socket.create_connection(address, timeout, source_address=self._source)


class KazooZooKeeper:
    """A session with a real ensemble; implements `replog.ports.ZooKeeper`."""

    def __init__(
        self, connect: str, *, session_timeout_ms: int, source_host: str | None, listener: ZooKeeperListener
    ) -> None:
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # what matters is reported by `on_session`
        self._listener = listener
        self._connect = connect
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closing = False
        self._client = KazooClient(
            hosts=connect,
            timeout=session_timeout_ms / 1000,
            handler=BoundHandler(source_host),
            connection_retry=KazooRetry(max_tries=-1, delay=RETRY_DELAY_S, max_delay=RETRY_DELAY_S_MAX, max_jitter=0.1),
            command_retry=KazooRetry(max_tries=0),
        )
        self._client.add_listener(self._on_state)

    @property
    def session_id(self) -> int:
        """The present session's id."""
        client_id = self._client.client_id
        return NO_SESSION if client_id is None else int(client_id[0])

    async def connect(self, timeout_ms: int) -> None:
        """Get a first session."""
        self._loop = asyncio.get_running_loop()
        connected = self._client.start_async()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.to_thread(connected.wait, timeout_ms / 1000)
        except TimeoutError:
            pass
        if not self._client.connected:
            await self._stop()
            raise Unreachable(self._connect)
        if self._client.chroot and await self.exists("/") is None:
            await self._stop()
            raise NoNode(self._client.chroot)

    async def close(self) -> None:
        """End the session."""
        self._is_closing = True
        await self._stop()

    async def _stop(self) -> None:
        def stop() -> None:
            self._client.stop()
            self._client.close()

        await asyncio.to_thread(stop)

    async def get(self, path: str, *, watch: bool = False) -> tuple[bytes, Stat]:
        """Return a znode's data."""
        data, stat = await self._ask(
            lambda: self._client.get_async(path, watch=self._on_watch if watch else None), path
        )
        return data, _stat(stat)

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """Return whether there is such a znode."""
        stat = await self._ask(lambda: self._client.exists_async(path, watch=self._on_watch if watch else None), path)
        return None if stat is None else _stat(stat)

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return the names of a znode's children."""
        names = await self._ask(
            lambda: self._client.get_children_async(path, watch=self._on_watch if watch else None), path
        )
        return sorted(names)

    async def transaction(self, operations: Sequence[Operation]) -> list[Result]:
        """Do all of it or nothing."""
        transaction = self._client.transaction()
        for operation in operations:
            match operation:
                case Create():
                    transaction.create(
                        operation.path,
                        operation.data,
                        ephemeral=operation.ephemeral,
                        sequence=operation.sequential,
                    )
                case SetData():
                    transaction.set_data(operation.path, operation.data, version=operation.version)
                case Delete():
                    transaction.delete(operation.path, version=operation.version)
                case Check():
                    transaction.check(operation.path, version=operation.version)
        results = await self._ask(transaction.commit_async, operations[0].path)
        _raise_first(results, operations)
        return [_result(result) for result in results]

    async def _ask(self, begin: Callable[[], Any], path: str) -> Any:
        if not self._client.connected:
            raise ConnectionLoss
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def complete(answer: object, problem: BaseException | None) -> None:
            if future.done():
                return
            if problem is None:
                future.set_result(answer)
            else:
                future.set_exception(_error(problem, path))

        def answered(result: Any) -> None:  # in kazoo's thread
            _hand_over(loop, complete, result.value if result.successful() else None, result.exception)

        begin().rawlink(answered)
        return await future

    # --- in kazoo's threads ------------------------------------------------------------------

    def _on_state(self, state: str) -> None:
        event = {
            KazooState.CONNECTED: SessionState.CONNECTED,
            KazooState.SUSPENDED: SessionState.SUSPENDED,
            KazooState.LOST: SessionState.EXPIRED,
        }[state]
        if self._loop is not None and not self._is_closing:
            _hand_over(self._loop, self._listener.on_session, event)

    def _on_watch(self, event: WatchedEvent) -> None:
        what = WATCHED.get(event.type)
        if what is not None and self._loop is not None and not self._is_closing:
            _hand_over(self._loop, self._listener.on_watch, event.path, what)


def open_zookeeper(world: World, config: NodeConfig, listener: ZooKeeperListener) -> KazooZooKeeper:
    """Return a client that is not connected yet."""
    return KazooZooKeeper(
        config.zookeeper.connect,
        session_timeout_ms=config.zookeeper.session_timeout_ms,
        source_host=config.bind_host,
        listener=listener,
    )


def _hand_over(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object) -> None:
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        return  # the loop is closed: nobody listens any more


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        version=stat.version,
        ephemeral_owner=stat.ephemeralOwner or NO_SESSION,
        written_ms=stat.mtime,
    )


def _raise_first(results: list[object], operations: Sequence[Operation]) -> None:
    """Raise what kept a transaction from being done: the others were only rolled back for it."""
    for result, operation in zip(results, operations, strict=True):
        if isinstance(result, Exception) and not isinstance(result, kx.RolledBackError | kx.RuntimeInconsistency):
            raise _error(result, operation.path)


def _result(result: object) -> Result:
    if isinstance(result, ZnodeStat):
        return _stat(result)
    return result if isinstance(result, str) else None


def _error(problem: BaseException, path: str) -> Exception:
    for known, ours in ERRORS:
        if isinstance(problem, known):
            return ours(path)
    return ZooKeeperError(f"{type(problem).__name__} {problem} ({path})")
