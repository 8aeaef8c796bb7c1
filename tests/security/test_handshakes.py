"""Connections in TLS's handshake count, and what comes right behind a handshake is not lost."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import uvloop

from replog.client.connection import Connection
from replog.config import Endpoint
from replog.config.access import Access
from replog.config.security import SecurityConfig
from replog.host.certificates import Certificates
from replog.host.world import RealNetwork
from replog.node.net.entrance import Entrance
from replog.node.net.server import Server, ServerLimits
from replog.security.principals import DEFAULT
from replog.wire.apis import BROKER_APIS, Api
from replog.wire.codec import encode_request
from replog.wire.messages import metadata
from tests.security.certificates import Authority
from tests.wire.test_server import SmallWorld, echo, metadata_of

HOST = "127.0.0.1"
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class Stage(NamedTuple):
    """A listener with TLS."""

    world: SmallWorld
    server: Server
    endpoint: Endpoint
    authority: Authority
    trusted: ssl.SSLContext

    async def count(self, wanted: int) -> None:
        async with asyncio.timeout(10):
            while len(self.server.connections) != wanted:  # noqa: ASYNC110 - what is awaited has no event
                await asyncio.sleep(0.001)

    async def speaks(self) -> bool:
        connection = Connection(self.world, self.endpoint, "test", Access(has_tls=True))
        await connection.open(timeout_ms=5000)
        answer = await connection.send(metadata.EXCHANGE, metadata_of("t"), timeout_ms=5000)
        connection.close()
        return answer.cluster_id == "t"


@pytest.fixture(params=LOOPS)
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., str]:
    def served(scenario: Callable[[Stage], Awaitable[None]], limits: ServerLimits) -> str:
        authority = Authority(tmp_path)
        files = SecurityConfig(
            keystore_location=str(authority.issue("node")),
            truststore_location=str(authority.trust),
            client_auth="requested",
        )
        world = SmallWorld()
        world.network = RealNetwork(None, Certificates(files, world.journal.log))
        trusted = ssl.create_default_context(cafile=str(authority.trust))

        async def main() -> None:
            ended_by: list[dict[str, object]] = []  # as the loop of a node would be
            asyncio.get_running_loop().set_exception_handler(lambda _, context: ended_by.append(context))
            server = Server(world, BROKER_APIS, echo, limits)
            port = await server.start(Endpoint(HOST, 0), Entrance(has_tls=True, rules=(DEFAULT,)))
            try:
                await scenario(Stage(world, server, Endpoint(HOST, port), authority, trusted))
            finally:
                server.stop()
                await asyncio.sleep(0.01)
            assert ended_by == []

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(main())
        world.disk.close()
        return world.said.getvalue()

    return served


def test_who_does_not_go_on_with_a_handshake_counts_and_is_refused_beyond_the_limit(serve: Callable[..., str]) -> None:
    async def scenario(stage: Stage) -> None:
        address = (stage.endpoint.host, stage.endpoint.port)
        silent = [socket.create_connection(address, timeout=5) for _ in range(2)]
        await stage.count(2)
        further = await asyncio.open_connection(*address)
        assert await asyncio.wait_for(further[0].read(1), 5) == b""
        further[1].close()

        silent[0].close()
        await stage.count(1)
        assert await stage.speaks()
        silent[1].sendall(bytes(range(64)))  # no TLS at all
        await stage.count(0)
        silent[1].close()

    assert "took no connection from 127.0.0.1: there are 2" in serve(scenario, ServerLimits(connections_max=2))


def test_a_request_right_behind_the_handshake_is_answered(serve: Callable[..., str]) -> None:
    """By hand: the client's last flight and its first request leave in one piece."""

    async def scenario(stage: Stage) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = stage.trusted.wrap_bio(incoming, outgoing, server_hostname=HOST)
        reader, writer = await asyncio.open_connection(stage.endpoint.host, stage.endpoint.port)
        async with asyncio.timeout(10):
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    incoming.write(await reader.read(65536))
            tls.write(encode_request(Api.METADATA, 12, 1, "x", metadata_of("hello")))
            writer.write(outgoing.read())
            answer = b""
            while b"hello" not in answer:
                incoming.write(await reader.read(65536))
                try:
                    answer += tls.read(65536)
                except ssl.SSLWantReadError:
                    continue
        writer.close()

    serve(scenario, ServerLimits())


def test_a_listener_that_stops_ends_handshakes_under_way(serve: Callable[..., str]) -> None:
    async def scenario(stage: Stage) -> None:
        reader, writer = await asyncio.open_connection(stage.endpoint.host, stage.endpoint.port)
        await stage.count(1)

        stage.server.stop()

        assert await asyncio.wait_for(reader.read(1), 5) == b""
        await stage.count(0)
        writer.close()

    serve(scenario, ServerLimits())


def test_a_certificate_whose_names_are_no_text_costs_its_holder_the_connection_only(serve: Callable[..., str]) -> None:
    """The authority vouches for whom it knows, not for what he had written into his certificate."""

    async def scenario(stage: Stage) -> None:
        stage.trusted.load_cert_chain(stage.authority.issue("guest", host=b"\xff\xfe.example"))
        reader, writer = await asyncio.open_connection(
            stage.endpoint.host, stage.endpoint.port, ssl=stage.trusted, server_hostname=HOST
        )

        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(1), 5) == b""
        await stage.count(0)
        assert await stage.speaks()
        writer.close()

    serve(scenario, ServerLimits())
