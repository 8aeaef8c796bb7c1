"""The simulated ZooKeeper's client, where the server goes away at the very moment at which it has answered."""

import asyncio
from types import SimpleNamespace

import msgspec

from replog.config import Endpoint
from tribunal.clusters.simulated.zookeeper import ANSWER, HEADER, Answered, Client, SimulatedZooKeeper

SERVER = Endpoint("10.0.0.101", 9092)


class Answering(asyncio.Transport):
    """A connection whose other end answers the first request, and closes if it is to."""

    def __init__(self, protocol: Client, *, closes: bool) -> None:
        super().__init__()
        self.protocol = protocol
        self.closes = closes

    def write(self, data: bytes) -> None:
        *_, correlation_id = HEADER.unpack_from(data)
        payload = msgspec.msgpack.encode(Answered(session_id=0x1001))
        self.protocol.data_received(ANSWER.pack(4 + len(payload), correlation_id) + payload)
        if self.closes:
            self.protocol.connection_lost(None)

    def close(self) -> None:
        """Be closed."""


def opened(*, closes: bool) -> tuple[Client | None, list[object]]:
    """Return what came of an attempt to open a session, and what the broker was notified of."""
    notified: list[object] = []

    async def connect(_host, _port, factory):
        protocol = factory()
        transport = Answering(protocol, closes=closes)
        protocol.connection_made(transport)
        return transport, protocol

    async def run() -> Client | None:
        world = SimpleNamespace(network=SimpleNamespace(connect=connect))
        settings = SimpleNamespace(session_timeout_ms=1800, connect=str(SERVER))
        listener = SimpleNamespace(on_session=notified.append)
        client = SimulatedZooKeeper(world, SimpleNamespace(zookeeper=settings), listener)
        return await client._opened(SERVER)

    return asyncio.run(run()), notified


def test_a_connection_that_ends_with_its_first_answer_is_none():
    """The broker was notified that it was connected, and waited for two thirds of its session for answers that could not come."""
    assert opened(closes=True) == (None, [])


def test_one_that_stays_is_taken():
    client, notified = opened(closes=False)

    assert client is not None
    assert len(notified) == 1
