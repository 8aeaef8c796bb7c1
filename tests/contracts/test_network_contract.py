"""What `replog.ports.Network` promises, on every network: ordered bytes, honest endings, back-pressure."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from replog.ports import World

TIMEOUT_S = 5


class End(asyncio.Protocol):
    """One end of a connection, remembering what happened to it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.received = b""
        self.lost: list[Exception | None] = []
        self.paused = False
        self.changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.changed.set()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.changed.set()

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)
        self.changed.set()

    async def until(self, what: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not what():
                self.changed.clear()
                await self.changed.wait()

    @property
    def open(self) -> asyncio.Transport:
        assert self.transport is not None
        return self.transport


class Pair:
    """A listener and a connection to it, both ends in one process."""

    def __init__(self) -> None:
        self.accepted: list[End] = []
        self.arrived = asyncio.Event()

    def accept(self) -> End:
        self.accepted.append(End())
        return self.accepted[-1]

    async def connect(self, world: World, host: str) -> tuple[End, End]:
        self.listener = await world.network.listen(host, 0, self.accept)
        _, near = await world.network.connect(host, self.listener.port, End)
        async with asyncio.timeout(TIMEOUT_S):
            while not self.accepted or self.accepted[0].transport is None:  # noqa: ASYNC110 - both kinds of loop
                await asyncio.sleep(0.001)
        return cast(End, near), self.accepted[0]

    async def close(self, *ends: End) -> None:
        self.listener.close()
        for end in ends:
            end.open.abort()
            await end.until(lambda end=end: bool(end.lost))


def test_bytes_arrive_whole_and_in_order(place):
    async def scenario(world: World) -> None:
        pair = Pair()
        near, far = await pair.connect(world, place.host)
        sent = b"".join(n.to_bytes(2, "big") for n in range(50_000))

        for first in range(0, len(sent), 7919):
            near.open.write(sent[first : first + 7919])
        far.open.write(b"back")
        await far.until(lambda: len(far.received) == len(sent))
        await near.until(lambda: near.received == b"back")

        assert far.received == sent
        await pair.close(near, far)

    place.run(scenario)


def test_what_was_written_before_a_close_arrives_before_the_end(place):
    async def scenario(world: World) -> None:
        pair = Pair()
        near, far = await pair.connect(world, place.host)

        near.open.write(b"x" * 100_000)
        near.open.close()
        near.open.write(b"not this")
        await far.until(lambda: bool(far.lost))
        await near.until(lambda: bool(near.lost))

        assert far.received == b"x" * 100_000
        assert (near.lost, far.lost) == ([None], [None])
        pair.listener.close()

    place.run(scenario)


def test_an_aborted_connection_ends_at_both_ends_once(place):
    async def scenario(world: World) -> None:
        pair = Pair()
        near, far = await pair.connect(world, place.host)

        near.open.abort()
        await near.until(lambda: bool(near.lost))
        await far.until(lambda: bool(far.lost))
        far.open.abort()
        await asyncio.sleep(0)

        assert (len(near.lost), len(far.lost)) == (1, 1)
        assert near.lost == [None]
        pair.listener.close()

    place.run(scenario)


def test_nobody_listening_is_an_oserror(place):
    async def scenario(world: World) -> None:
        listener = await world.network.listen(place.host, 0, End)
        port = listener.port
        listener.close()
        await asyncio.sleep(0.01)

        with pytest.raises(OSError):  # noqa: PT011 - the contract says no more
            await world.network.connect(place.host, port, End)

    place.run(scenario)


def test_an_address_is_taken_once(place):
    async def scenario(world: World) -> None:
        listener = await world.network.listen(place.host, 0, End)
        assert listener.port > 0

        with pytest.raises(OSError):  # noqa: PT011 - the contract says no more
            await world.network.listen(place.host, listener.port, End)

        listener.close()

    place.run(scenario)


def test_connections_outlive_their_listener(place):
    async def scenario(world: World) -> None:
        pair = Pair()
        near, far = await pair.connect(world, place.host)

        pair.listener.close()
        near.open.write(b"still here")
        await far.until(lambda: far.received == b"still here")

        await pair.close(near, far)

    place.run(scenario)


def test_who_does_not_read_gets_nothing_and_holds_up_the_writer(place):
    async def scenario(world: World) -> None:
        pair = Pair()
        near, far = await pair.connect(world, place.host)
        far.open.pause_reading()
        near.open.set_write_buffer_limits(high=65536)
        size = 0
        while not near.paused:
            near.open.write(bytes(65536))
            size += 65536
            assert size < 64 * 1024 * 1024
            await asyncio.sleep(0.001)
        before = len(far.received)

        far.open.resume_reading()
        await far.until(lambda: len(far.received) == size)
        await near.until(lambda: not near.paused)

        assert before <= 65536 * 4
        await pair.close(near, far)

    place.run(scenario)


def test_both_ends_know_who_the_other_is(place):
    async def scenario(world: World) -> None:
        pair = Pair()
        near, far = await pair.connect(world, place.host)

        assert near.open.get_extra_info("peername")[:2] == (place.host, pair.listener.port)
        assert far.open.get_extra_info("peername")[0] == place.host
        assert far.open.get_extra_info("peername")[1] == near.open.get_extra_info("sockname")[1]
        await pair.close(near, far)

    place.run(scenario)
