"""A way into another network for a client library that opens its own sockets here: a port of this machine whose connections go on from there."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

HERE: Final = "127.0.0.1"
PIECE_BYTES: Final = 1 << 16
TURNS: Final = 4  # of the event loop, within which a connection that was accepted has come here

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Way:
    """Hands on bytes, both ways, as they come; whoever hangs up at one end is hung up on at the other."""

    def __init__(self, connect: Callable[[], Awaitable[Streams]]) -> None:
        """`connect` connects to the far end."""
        self._connect = connect
        self._server: asyncio.Server | None = None
        self._is_closed = False
        self._serving: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.StreamWriter] = set()

    async def open(self) -> tuple[str, int]:
        """Listen; return where."""
        self._server = await asyncio.start_server(self._accepted, HERE, 0)
        host, port = self._server.sockets[0].getsockname()
        return host, port

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take note of a connection at once: a task that is cancelled before it has begun would leave it open."""
        if self._is_closed:
            writer.transport.abort()
            return
        self._open.add(writer)
        task = asyncio.create_task(self._serve(reader, writer), name="a way")
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._hand_on(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # nobody is there, or the way is closed
        finally:
            await self._let_go(writer)

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await self._connect()
        self._open.add(far_writer)
        halves = [asyncio.create_task(_copied(reader, far_writer)), asyncio.create_task(_copied(far_reader, writer))]
        try:
            await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for half in halves:
                half.cancel()
            await asyncio.wait(halves)
            await self._let_go(far_writer)

    async def _let_go(self, writer: asyncio.StreamWriter) -> None:
        """Close one end: what was received for it is sent yet, where somebody takes it."""
        writer.close()
        try:
            await writer.wait_closed()
        except OSError:
            pass  # it broke
        finally:
            self._open.discard(writer)

    async def close(self) -> None:
        """Hang up on everybody; safe twice."""
        if self._server is None:
            return
        self._is_closed = True
        # asyncio forgets, and leaves open, a connection that it was about to take when its server closes: so nobody comes any more, and who has come is taken.
        for sock in self._server.sockets:
            asyncio.get_running_loop().remove_reader(sock.fileno())
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        for task in list(self._serving):
            task.cancel()
        if self._serving:
            await asyncio.wait(list(self._serving))


class Ways:
    """All ways of one place."""

    def __init__(self) -> None:
        self._ways: list[Way] = []

    async def opened(self, connect: Callable[[], Awaitable[Streams]]) -> tuple[str, int]:
        """Open one more; return where it listens."""
        self._ways.append(Way(connect))
        return await self._ways[-1].open()

    async def close(self) -> None:
        """Hang up on everybody; safe twice."""
        for way in self._ways:
            await way.close()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(PIECE_BYTES):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # one end broke: the other one is let go of
