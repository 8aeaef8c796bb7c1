"""A listener with SASL, by bytes: what clients without headers send, and what who guesses passwords gets."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from time import monotonic

from replog.client.connection import Connection
from replog.config import Endpoint
from replog.config.access import Access
from replog.errors import Error
from replog.node.net.entrance import Entrance
from replog.node.net.login import WHILE_OUTSIDE, SaslDoor
from replog.node.net.server import AnyRequest, Server, ServerLimits
from replog.wire.apis import BROKER_APIS, Api, known_versions, request_type
from replog.wire.codec import decode_response, encode_request
from replog.wire.messages import metadata, sasl_authenticate, sasl_handshake
from tests.wire.test_server import SmallWorld, echo, metadata_of

PLAIN = sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN")
Socket = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def serve(scenario: Callable[[Server, Socket], Awaitable[None]], *, delay_ms: int = 0, session_ms_max: int = 0) -> str:
    """Connect to a listener where alice may log in; return what the node said."""
    world = SmallWorld()
    door = SaslDoor(
        mechanisms=("PLAIN",),
        passwords={"alice": "secret"},
        credential_of=lambda _, __: None,
        nonce=lambda: "server",
        session_ms_max=session_ms_max,
    )

    async def main() -> None:
        server = Server(world, BROKER_APIS, echo, ServerLimits(failed_login_delay_ms=delay_ms))
        port = await server.start(Endpoint("127.0.0.1", 0), Entrance(sasl=door))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            async with asyncio.timeout(10):
                await scenario(server, (reader, writer))
        finally:
            writer.close()
            server.stop()
            await asyncio.sleep(0)

    asyncio.run(main())
    world.disk.close()
    return world.said.getvalue()


async def frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(length)


def test_a_token_without_a_header_may_come_in_pieces() -> None:
    async def scenario(server: Server, socket: Socket) -> None:
        reader, writer = socket
        writer.write(encode_request(Api.SASL_HANDSHAKE, 0, 1, "old", PLAIN))
        await frame(reader)
        token = b"\0alice\0secret"
        writer.write(struct.pack(">i", len(token)) + token[:9])
        while not any(connection.held_bytes for connection in server.connections.values()):
            assert server.connections, "the connection was closed"
            await asyncio.sleep(0)
        writer.write(token[9:])

        assert await frame(reader) == b""
        writer.write(encode_request(Api.METADATA, 12, 2, "old", metadata_of("t")))
        assert b"t" in await frame(reader)

    serve(scenario, delay_ms=0)


def test_before_a_login_no_api_is_answered_in_any_version_but_that_which_leads_to_it() -> None:
    asked: list[AnyRequest] = []

    async def scenario(server: Server, socket: Socket) -> None:
        server.handler = asked.append
        endpoint = socket[1].get_extra_info("peername")
        for api in sorted(BROKER_APIS.keys() - WHILE_OUTSIDE):
            for version in {known_versions(api).first, known_versions(api).last}:
                reader, writer = await asyncio.open_connection(*endpoint)
                handshake = encode_request(Api.SASL_HANDSHAKE, 1, 1, "x", PLAIN) if version % 2 else b""
                writer.write(handshake + encode_request(api, version, 2, "x", request_type(api)()))
                if handshake:
                    await frame(reader)
                assert await reader.read() == b"", (api, version)
                writer.close()

    said = serve(scenario, delay_ms=0)
    assert not asked
    assert "before anybody has logged in" in said  # of the lines that strangers cause only so many a second are written


def test_a_node_that_stays_logs_in_again_before_its_time_is_over() -> None:
    async def scenario(server: Server, socket: Socket) -> None:
        endpoint = Endpoint("127.0.0.1", socket[1].get_extra_info("peername")[1])
        staying = Connection(SmallWorld(), endpoint, "x", Access(mechanism="PLAIN", user="alice", password="secret"))
        await staying.open()
        for _ in range(20):
            answer = await staying.send(metadata.EXCHANGE, metadata_of("t"), timeout_ms=5000)
            assert answer.cluster_id == "t"
            await asyncio.sleep(0.06)
        staying.close()

    said = serve(scenario, session_ms_max=500)
    assert "his time is over" not in said


def test_who_guesses_waits_for_the_answer_and_gets_no_other() -> None:
    delay_ms = 150

    async def scenario(server: Server, socket: Socket) -> None:
        reader, writer = socket
        guess = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b"\0alice\0guess")
        right = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
        tries = [encode_request(Api.SASL_AUTHENTICATE, 2, number, "x", one) for number, one in ((2, guess), (3, right))]
        writer.write(encode_request(Api.SASL_HANDSHAKE, 1, 1, "x", PLAIN) + b"".join(tries))
        await frame(reader)
        begun = monotonic()

        _, answer = decode_response(sasl_authenticate.EXCHANGE, 2, memoryview(await frame(reader)))

        assert monotonic() - begun >= delay_ms / 1000 * 0.9
        assert answer.error_code is Error.SASL_AUTHENTICATION_FAILED
        assert await reader.read() == b""

    said = serve(scenario, delay_ms=delay_ms)
    assert "wrong name or password of 'alice'" in said


def test_who_goes_while_he_waits_leaves_nothing_behind() -> None:
    async def scenario(server: Server, socket: Socket) -> None:
        reader, writer = socket
        guess = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b"\0alice\0guess")
        writer.write(encode_request(Api.SASL_HANDSHAKE, 1, 1, "x", PLAIN))
        writer.write(encode_request(Api.SASL_AUTHENTICATE, 2, 2, "x", guess))
        await frame(reader)
        (connection,) = server.connections.values()
        connection.abort()
        await asyncio.sleep(0.1)

        assert server.held_bytes == 0
        assert not server.connections

    said = serve(scenario, delay_ms=50)
    assert "wrong name" not in said
