"""ZooKeeper in the simulator: a server on a machine of its own, and the client that nodes reach it with.

Both talk over the simulated network, so links to it are cut and slowed like any other, and its process is killed and paused
like any node's. Frames look like Kafka's from far (length, key, version, correlation id), which keeps `frames.py` content.
A message pushed by the server (a watch) has correlation id -1.
"""

import asyncio
from asyncio import BaseProtocol, BaseTransport
from collections.abc import Sequence
from struct import Struct
from typing import Final, cast

import msgspec

from replog.config import Endpoint, NodeConfig, endpoint
from replog.ports import Listener, World, ZooKeeperListener
from replog.zookeeper.operations import (
    ERRORS,
    NO_SESSION,
    Check,
    ConnectionLoss,
    Create,
    Delete,
    NoNode,
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
from tribunal.clusters.simulated.zookeeper_model import Model, error_name

KEY: Final = 30_000
HEADER: Final = Struct(">ihhi")  # length, key, version, correlation id
ANSWER: Final = Struct(">ii")  # length, correlation id
PUSHED: Final = -1
WRITE_MS: Final = 1  # until a quorum has it
TICK_MS: Final = 20
RECONNECT_MS: Final = 50
REQUEST_TIMEOUTS: Final = 3  # a session's third


class Connect(msgspec.Struct, frozen=True, tag="connect"):
    """Begin a session (id 0) or go on with one."""

    session_id: int
    timeout_ms: int


class Get(msgspec.Struct, frozen=True, tag="get"):
    """Read data."""

    path: str
    watch: bool


class Exists(msgspec.Struct, frozen=True, tag="exists"):
    """Read a Stat."""

    path: str
    watch: bool


class Children(msgspec.Struct, frozen=True, tag="children"):
    """Read names."""

    path: str
    watch: bool


class Transaction(msgspec.Struct, frozen=True, tag="transaction"):
    """Write."""

    operations: list[Create | SetData | Delete | Check]


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Keep the session open."""


class End(msgspec.Struct, frozen=True, tag="end"):
    """End the session."""


Asked = Connect | Get | Exists | Children | Transaction | Ping | End


class Answered(msgspec.Struct, frozen=True):
    """An answer: an error's name with words, or what was asked for."""

    error: str = ""
    words: str = ""
    session_id: int = NO_SESSION
    data: bytes = b""
    stat: Stat | None = None
    names: list[str] = []
    results: list[str | Stat | None] = []


class Seen(msgspec.Struct, frozen=True):
    """A watch that fired."""

    path: str
    what: str


_ASKED: Final = msgspec.msgpack.Decoder(Asked)
_ANSWERED: Final = msgspec.msgpack.Decoder(Answered)
_SEEN: Final = msgspec.msgpack.Decoder(Seen)


class Stream(asyncio.Protocol):
    """Cuts bytes into frames."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._rest = b""

    def connection_made(self, transport: BaseTransport) -> None:
        """Have a transport."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take whole frames."""
        self._rest += data
        while len(self._rest) >= 4 and len(self._rest) >= (size := 4 + int.from_bytes(self._rest[:4], "big")):
            frame, self._rest = self._rest[:size], self._rest[size:]
            self.frame(frame)

    def frame(self, frame: bytes) -> None:
        """Take one frame."""
        raise NotImplementedError


# --- the server ----------------------------------------------------------------------------------


class Served(Stream):
    """One client's connection, at the server."""

    def __init__(self, server: "ZooKeeperServer", number: int) -> None:
        super().__init__()
        self.server = server
        self.number = number
        self.session_id = NO_SESSION

    def frame(self, frame: bytes) -> None:
        """Answer a request."""
        *_, correlation_id = HEADER.unpack_from(frame)
        self.server.asked(self, correlation_id, _ASKED.decode(frame[HEADER.size :]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client's watches; its session lives on for a while."""
        self.server.lost(self)

    def answer(self, correlation_id: int, body: msgspec.Struct) -> None:
        """Send an answer or a push."""
        if self.transport is not None and not self.transport.is_closing():
            payload = msgspec.msgpack.encode(body)
            self.transport.write(ANSWER.pack(4 + len(payload), correlation_id) + payload)

    def hang_up(self) -> None:
        """Close."""
        if self.transport is not None:
            self.transport.close()


class ZooKeeperServer:
    """The one server of a simulated ensemble; a shell like a node's."""

    quorum = None

    def __init__(self, world: World, model: Model, address: Endpoint) -> None:
        self.world = world
        self.model = model
        self.address = address
        self._connections: dict[int, Served] = {}
        self._next_number = 0
        self._ticking: asyncio.Task[None] | None = None
        self._listener: Listener | None = None

    async def start(self) -> None:
        """Serve; sessions get their whole time-out again, as after an ensemble's election."""
        self.model.forget_watches()  # connections are numbered from the beginning again
        for session in self.model.sessions.values():
            session.last_message_ms = self.world.clock.now_ms()
        self._listener = await self.world.network.listen(self.address.host, self.address.port, self._accept)
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    async def stop(self) -> None:
        """Stop serving."""
        if self._ticking is not None:
            self._ticking.cancel()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections.values()):
            connection.hang_up()

    def _accept(self) -> BaseProtocol:
        self._next_number += 1
        connection = self._connections[self._next_number] = Served(self, self._next_number)
        return connection

    def lost(self, connection: Served) -> None:
        """Forget a connection."""
        self._connections.pop(connection.number, None)
        self.model.forget(connection.number)

    async def _tick(self) -> None:
        while True:
            for session_id in self.model.expired(self.world.clock.now_ms()):
                self.world.journal.log("info", f"session {session_id:#x} expired")
                self._end(session_id)
            await asyncio.sleep(TICK_MS / 1000)

    def _end(self, session_id: int) -> None:
        self._push(self.model.end_session(session_id))
        for connection in list(self._connections.values()):
            if connection.session_id == session_id:
                connection.hang_up()

    def _push(self, events: list[tuple[int, str, Watched]]) -> None:
        for number, path, what in events:
            connection = self._connections.get(number)
            if connection is not None:
                connection.answer(PUSHED, Seen(path, what.value))

    def asked(self, connection: Served, correlation_id: int, asked: Asked) -> None:
        """Do what is asked; what is written is answered when a quorum has it."""
        session = self.model.sessions.get(connection.session_id)
        if session is not None:
            session.last_message_ms = self.world.clock.now_ms()
        try:
            answer = self._answer(connection, asked)
        except ZooKeeperError as problem:
            answer = Answered(error=error_name(problem), words=str(problem))
        if isinstance(asked, Transaction):
            loop = asyncio.get_running_loop()
            loop.call_later(WRITE_MS / 1000, connection.answer, correlation_id, answer)
        else:
            connection.answer(correlation_id, answer)

    def _answer(self, connection: Served, asked: Asked) -> Answered:
        if isinstance(asked, Connect):
            return self._connect(connection, asked)
        if connection.session_id not in self.model.sessions:
            raise SessionExpired
        model = self.model
        match asked:
            case Get():
                node = model.node(asked.path)
                if asked.watch:
                    model.watch_data(asked.path, connection.number)
                return Answered(data=node.data, stat=node.stat)
            case Exists():
                if asked.watch:
                    model.watch_data(asked.path, connection.number)
                found = model.nodes.get(asked.path)
                return Answered(stat=None if found is None else found.stat)
            case Children():
                names = sorted(model.node(asked.path).children)
                if asked.watch:
                    model.watch_children(asked.path, connection.number)
                return Answered(names=names)
            case Transaction():
                results, events = model.transact(asked.operations, connection.session_id)
                self._push(events)
                return Answered(results=results)
            case Ping():
                return Answered()
            case End():
                self._push(model.end_session(connection.session_id))
                return Answered()

    def _connect(self, connection: Served, asked: Connect) -> Answered:
        now_ms = self.world.clock.now_ms()
        if asked.session_id == NO_SESSION:
            session = self.model.open_session(asked.timeout_ms, now_ms)
        else:
            known = self.model.sessions.get(asked.session_id)
            if known is None:
                raise SessionExpired
            session = known
            session.last_message_ms = now_ms
        connection.session_id = session.session_id
        return Answered(session_id=session.session_id)


# --- the client ----------------------------------------------------------------------------------


class Client(Stream):
    """One connection, at the client."""

    def __init__(self, owner: "SimulatedZooKeeper") -> None:
        super().__init__()
        self.owner = owner
        self.pending: dict[int, asyncio.Future[Answered]] = {}
        self.is_lost = False
        self._next_id = 0

    def frame(self, frame: bytes) -> None:
        """Take an answer or a push."""
        _, correlation_id = ANSWER.unpack_from(frame)
        if correlation_id == PUSHED:
            seen = _SEEN.decode(frame[ANSWER.size :])
            self.owner.seen(seen)
            return
        future = self.pending.pop(correlation_id, None)
        if future is not None and not future.done():
            future.set_result(_ANSWERED.decode(frame[ANSWER.size :]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody knows what became of what was asked."""
        self.is_lost = True
        self.fail()
        self.owner.lost(self)

    def fail(self) -> None:
        """Fail what is under way."""
        pending, self.pending = self.pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(ConnectionLoss())
                future.exception()

    def ask(self, body: Asked) -> "asyncio.Future[Answered]":
        """Send a request."""
        assert self.transport is not None
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._next_id += 1
        self.pending[self._next_id] = future
        payload = msgspec.msgpack.encode(body)
        header = HEADER.pack(HEADER.size - 4 + len(payload), KEY, 0, self._next_id)
        self.transport.write(header + payload)
        return future


class SimulatedZooKeeper:
    """A session with the model; implements `replog.ports.ZooKeeper`."""

    def __init__(self, world: World, config: NodeConfig, listener: ZooKeeperListener) -> None:
        self.world = world
        self.listener = listener
        self.timeout_ms = config.zookeeper.session_timeout_ms
        addresses, _, chroot = config.zookeeper.connect.partition("/")
        self._addresses = [endpoint("zookeeper.connect", text) for text in addresses.split(",")]
        self._chroot = f"/{chroot}" if chroot else ""
        self.session_id = NO_SESSION
        self._client: Client | None = None
        self._session_task: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self._lost = asyncio.Event()

    async def connect(self, timeout_ms: int) -> None:
        """Get a first session."""
        self._session_task = asyncio.get_running_loop().create_task(self._live())
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._connected.wait()
        except TimeoutError:
            self._session_task.cancel()
            raise Unreachable(",".join(map(str, self._addresses))) from None
        if self._chroot and await self.exists("") is None:
            raise NoNode(self._chroot)

    async def close(self) -> None:
        """End the session."""
        if self._client is not None:
            try:
                async with asyncio.timeout(1):
                    await self._client.ask(End())
            except (TimeoutError, ZooKeeperError):
                pass
        if self._session_task is not None:
            self._session_task.cancel()
        if self._client is not None and self._client.transport is not None:
            self._client.transport.close()

    async def get(self, path: str, *, watch: bool = False) -> tuple[bytes, Stat]:
        """Return a znode's data."""
        answer = await self._ask(Get(self._chroot + path, watch))
        assert answer.stat is not None
        return answer.data, answer.stat

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """Return whether there is such a znode."""
        return (await self._ask(Exists(self._chroot + path, watch))).stat

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return the names of a znode's children."""
        return (await self._ask(Children(self._chroot + path, watch))).names

    async def transaction(self, operations: Sequence[Operation]) -> list[Result]:
        """Do all of it or nothing."""
        moved = [msgspec.structs.replace(each, path=self._chroot + each.path) for each in operations]
        results = (await self._ask(Transaction(moved))).results
        return [each.removeprefix(self._chroot) if isinstance(each, str) else each for each in results]

    async def _ask(self, body: Asked) -> Answered:
        client = self._client
        if client is None:
            raise ConnectionLoss
        answer = await client.ask(body)
        if answer.error:
            raise ERRORS[answer.error](answer.words)
        return answer

    def seen(self, seen: Seen) -> None:
        """Pass a watch on."""
        self.listener.on_watch(seen.path.removeprefix(self._chroot), Watched(seen.what))

    # --- the session -------------------------------------------------------------------------

    def lost(self, client: Client) -> None:
        """Have no server any more."""
        if client is self._client:
            self._client = None
            self._connected.clear()
            self._lost.set()
            self.listener.on_session(SessionState.SUSPENDED)

    async def _live(self) -> None:
        while True:
            for address in self._addresses:
                client = await self._opened(address)
                if client is not None:
                    await self._keep(client)
            await asyncio.sleep(RECONNECT_MS / 1000)

    async def _opened(self, address: Endpoint) -> Client | None:
        """Connect and go on with the session, or begin one; None when this server cannot be had."""
        client = Client(self)
        wait_s = self.timeout_ms / REQUEST_TIMEOUTS / 1000
        try:
            async with asyncio.timeout(wait_s):
                await self.world.network.connect(address.host, address.port, lambda: client)
                answer = await client.ask(Connect(self.session_id, self.timeout_ms))
        except (OSError, TimeoutError, ConnectionLoss):
            if client.transport is not None:
                client.transport.abort()
            return None
        if answer.error:
            self.session_id = NO_SESSION
            assert client.transport is not None
            client.transport.close()
            self.listener.on_session(SessionState.EXPIRED)
            return None
        self.session_id = answer.session_id
        if client.is_lost:  # as soon as it had answered: whoever asked by this connection would get no answer
            return None
        self._client = client
        self._lost.clear()
        self._connected.set()
        self.listener.on_session(SessionState.CONNECTED)
        return client

    async def _keep(self, client: Client) -> None:
        """Ping until the server is lost, or silent for too long."""
        third_s = self.timeout_ms / REQUEST_TIMEOUTS / 1000
        while self._client is client:
            try:
                async with asyncio.timeout(third_s):
                    await self._lost.wait()
                return
            except TimeoutError:
                pass
            if self._client is not client:
                return
            try:
                async with asyncio.timeout(third_s):
                    await client.ask(Ping())
            except TimeoutError:
                assert client.transport is not None
                client.fail()
                client.transport.abort()
                self.lost(client)
                return
            except ConnectionLoss:
                return


def open_zookeeper(world: World, config: NodeConfig, listener: ZooKeeperListener) -> SimulatedZooKeeper:
    """Return a client that is not connected yet."""
    return SimulatedZooKeeper(world, config, listener)
