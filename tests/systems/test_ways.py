"""A way into another network hands on bytes as they come, and a hang-up as one."""

import asyncio
import socket

from tribunal.clusters.systems.ways import HERE, Streams, Way


class Far:
    """A far end: it says back what it receives, until it receives `end`."""

    def __init__(self) -> None:
        self.received = b""
        self.hung_up = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def open(self) -> tuple[str, int]:
        """Listen; return where."""
        self._server = await asyncio.start_server(self._serve, HERE, 0)
        host, port = self._server.sockets[0].getsockname()
        return host, port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            self.received += data
            writer.write(data)
            if self.received.endswith(b"end"):
                break
        writer.close()
        self.hung_up.set()

    def close(self) -> None:
        """Listen no more."""
        assert self._server is not None
        self._server.close()


async def ways_to(far: Far) -> tuple[Way, Streams]:
    """Open a way to it; return the way, and a connection over it."""
    endpoint = await far.open()
    way = Way(lambda: asyncio.open_connection(*endpoint))
    return way, await asyncio.open_connection(*await way.open())


def test_what_was_said_before_a_hang_up_arrives_before_it() -> None:
    """An answer that a node gave before it ended is not lost on the way."""

    async def tried() -> tuple[bytes, bytes]:
        far = Far()
        way, (reader, writer) = await ways_to(far)
        writer.write(b"x" * (1 << 20) + b"end")
        async with asyncio.timeout(10):
            said = await reader.read(-1)
        writer.transport.abort()
        await way.close()
        far.close()
        return said, far.received

    said, received = asyncio.run(tried())

    assert said == received == b"x" * (1 << 20) + b"end"


def test_a_way_that_is_closed_hangs_up_at_both_ends() -> None:
    """Nothing stays open behind it; a second closing does nothing."""

    async def tried() -> bytes:
        far = Far()
        way, (reader, writer) = await ways_to(far)
        writer.write(b"first")
        await reader.readexactly(5)
        await way.close()
        await way.close()
        async with asyncio.timeout(10):
            await far.hung_up.wait()
            try:
                left = await reader.read(-1)
            except ConnectionResetError:
                left = b""
        writer.transport.abort()
        far.close()
        return left

    assert asyncio.run(tried()) == b""


def test_a_far_end_that_is_not_there_is_a_hang_up() -> None:
    """Whoever connects learns that nobody is there, and the way goes on."""

    async def tried() -> bytes:
        far = Far()
        endpoint = await far.open()
        far.close()
        way = Way(lambda: asyncio.open_connection(*endpoint))
        reader, writer = await asyncio.open_connection(*await way.open())
        async with asyncio.timeout(10):
            said = await reader.read(-1)
        writer.transport.abort()
        await way.close()
        return said

    assert asyncio.run(tried()) == b""


def test_who_comes_while_a_way_is_closed_is_hung_up_on() -> None:
    """However far the event loop has come with the connection: its task may not have begun yet."""

    async def tried(turns: int) -> bytes:
        way = Way(lambda: asyncio.open_connection(HERE, 9))
        with socket.create_connection(await way.open()) as sock:  # the kernel has taken it, the loop has not seen it
            for _ in range(turns):
                await asyncio.sleep(0)
            await way.close()
            sock.setblocking(False)
            try:
                async with asyncio.timeout(5):
                    return await asyncio.get_running_loop().sock_recv(sock, 1)
            except ConnectionResetError:
                return b""

    assert {asyncio.run(tried(turns)) for turns in range(12)} == {b""}
