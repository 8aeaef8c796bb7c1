"""The server and the connection on every network: the shell is the same in the simulator."""

import asyncio

import pytest

from replog.client.connection import Connection, ConnectionLost, RequestTimedOut
from replog.config import Endpoint
from replog.node.net.server import Server, ServerLimits, ServerRequest
from replog.ports import World
from replog.wire.apis import BROKER_APIS, Api
from replog.wire.exchange import exchange_of
from replog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse


def of(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)])


def test_pipelined_requests_are_answered_in_order(place):
    async def scenario(world: World) -> None:
        def later(request: ServerRequest) -> None:
            name = request.body.topics[0].name
            delay_ms = 5 - int(name)  # the last is ready first
            asyncio.get_running_loop().call_later(delay_ms / 1000, request.reply, MetadataResponse(cluster_id=name))

        server = Server(world, BROKER_APIS, later, ServerLimits())
        port = await server.start(Endpoint(place.host, 0))
        connection = Connection(world, Endpoint(place.host, port), "test")
        await connection.open()
        order: list[str] = []
        futures = [connection.send(exchange_of(Api.METADATA), of(str(n)), timeout_ms=5000) for n in range(5)]
        for future in futures:
            future.add_done_callback(lambda done: order.append(done.result().cluster_id))
        await asyncio.gather(*futures)

        assert order == ["0", "1", "2", "3", "4"]
        connection.close()
        server.stop()
        await asyncio.sleep(0.001)

    place.run(scenario)


def test_a_silent_server_times_out_and_a_stopped_one_is_lost(place):
    async def scenario(world: World) -> None:
        server = Server(world, BROKER_APIS, lambda _: None, ServerLimits())
        port = await server.start(Endpoint(place.host, 0))
        first, second = (Connection(world, Endpoint(place.host, port), "test") for _ in range(2))
        await first.open()
        await second.open()

        with pytest.raises(RequestTimedOut):
            await first.send(exchange_of(Api.METADATA), of("t"), timeout_ms=20)
        future = second.send(exchange_of(Api.METADATA), of("t"), timeout_ms=5000)
        server.stop()
        with pytest.raises(ConnectionLost):
            await future
        await asyncio.sleep(0.001)

    place.run(scenario)


def test_an_idle_connection_is_closed_by_the_server(place):
    async def scenario(world: World) -> None:
        server = Server(world, BROKER_APIS, lambda _: None, ServerLimits(idle_ms_max=30))
        port = await server.start(Endpoint(place.host, 0))
        connection = Connection(world, Endpoint(place.host, port), "test")
        lost = asyncio.Event()
        connection.on_lost = lambda _: lost.set()
        await connection.open()

        async with asyncio.timeout(5):
            await lost.wait()

        assert not server.connections
        server.stop()

    place.run(scenario)
