"""The server and the connection over real loopback sockets: order, back-pressure, and whatever unknown clients send."""

import asyncio
import re
import socket
import struct
from collections.abc import Awaitable, Callable
from io import StringIO
from random import Random
from time import monotonic, process_time
from typing import Any

import pytest
import uvloop

from replog.client.connection import Connection, ConnectionLost, RequestTimedOut, UnsupportedVersion
from replog.config import Endpoint
from replog.errors import Error
from replog.host.world import RealClock, RealDisk, RealEntropy, RealJournal, RealNetwork
from replog.node.net.few_lines import LINES_PER_SECOND_MAX
from replog.node.net.refused import refusal_of
from replog.node.net.server import Server, ServerLimits, ServerRequest
from replog.wire.apis import BROKER_APIS, REFUSED_APIS, Api, request_type
from replog.wire.codec import decode_response, encode_request
from replog.wire.exchange import exchange_of
from replog.wire.layout import VersionRange
from replog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from replog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

HOST = "127.0.0.1"
TIMEOUT_MS = 5000


class SmallWorld:
    """A real world whose lines for people can be read by the test."""

    def __init__(self) -> None:
        self.said = StringIO()
        self.clock = RealClock()
        self.entropy = RealEntropy()
        self.disk = RealDisk()
        self.network = RealNetwork()
        self.journal = RealJournal(1, people=self.said, level="debug")


class Setup:
    """A server, and what it was asked."""

    def __init__(self, world: SmallWorld, server: Server, port: int, asked: list[ServerRequest]) -> None:
        self.world = world
        self.server = server
        self.endpoint = Endpoint(HOST, port)
        self.asked = asked

    async def connection(self) -> Connection:
        connection = Connection(self.world, self.endpoint, "test")
        await connection.open(timeout_ms=TIMEOUT_MS)
        return connection

    async def socket(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HOST, self.endpoint.port)

    async def until(self, what: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            while not what():  # noqa: ASYNC110 - what is awaited has no event
                await asyncio.sleep(0)


def echo(request: ServerRequest) -> None:
    request.reply(MetadataResponse(cluster_id=request.body.topics[0].name if request.body.topics else None))


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
chosen = {"loop": "asyncio"}


@pytest.fixture(autouse=True, params=LOOPS)
def on_each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(chosen, "loop", request.param)


def serve(
    scenario: Callable[[Setup], Awaitable[None]],
    handler: Callable[[ServerRequest], None] = echo,
    *,
    limits: ServerLimits | None = None,
    apis: dict[Api, VersionRange] | None = None,
    features: Callable[[], ApiVersionsResponse] = ApiVersionsResponse,
) -> SmallWorld:
    """Run a scenario against a server."""
    world = SmallWorld()
    asked: list[ServerRequest] = []

    def handle(request: ServerRequest) -> None:
        asked.append(request)
        handler(request)

    async def main() -> None:
        server = Server(world, apis or BROKER_APIS, handle, limits or ServerLimits(), features=features)
        port = await server.start(Endpoint(HOST, 0))
        try:
            await scenario(Setup(world, server, port, asked))
        finally:
            server.stop()
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=LOOPS[chosen["loop"]]) as runner:
        runner.run(main())
    world.disk.close()
    return world


def metadata_of(name: str) -> MetadataRequest:
    from replog.wire.messages.metadata import MetadataRequestTopic

    return MetadataRequest(topics=[MetadataRequestTopic(name=name)])


def test_a_connection_negotiates_and_gets_its_answers():
    async def scenario(setup: Setup) -> None:
        connection = await setup.connection()

        answer = await connection.send(exchange_of(Api.METADATA), metadata_of("t"), timeout_ms=TIMEOUT_MS)

        assert answer.cluster_id == "t"
        assert connection.version_of(Api.PRODUCE) == 13
        assert connection.versions[Api.PRODUCE] == VersionRange(0, 13)
        connection.close()

    serve(scenario)


def test_answers_leave_in_the_order_of_the_requests():
    """Whatever order the handler answers in."""
    held: list[ServerRequest] = []

    def backwards(request: ServerRequest) -> None:
        held.append(request)
        if len(held) == 5:
            for one in reversed(held):
                echo(one)

    async def scenario(setup: Setup) -> None:
        connection = await setup.connection()
        order: list[str] = []
        futures = [
            connection.send(exchange_of(Api.METADATA), metadata_of(str(n)), timeout_ms=TIMEOUT_MS) for n in range(5)
        ]
        for future in futures:
            future.add_done_callback(lambda done: order.append(done.result().cluster_id))

        await asyncio.gather(*futures)
        await asyncio.sleep(0)

        assert order == ["0", "1", "2", "3", "4"]
        assert setup.server.held_bytes == 0
        connection.close()

    serve(scenario, backwards)


def test_a_produce_without_acks_is_not_answered():
    def handle(request: ServerRequest) -> None:
        if request.api is Api.PRODUCE:
            request.reply_nothing()
        else:
            echo(request)

    async def scenario(setup: Setup) -> None:
        connection = await setup.connection()
        body = ProduceRequest(acks=0, topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=b"")])])

        connection.send_unanswered(body)
        answer = await connection.send(exchange_of(Api.METADATA), metadata_of("next"), timeout_ms=TIMEOUT_MS)

        assert answer.cluster_id == "next"
        connection.close()

    serve(scenario, handle)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes", id="http"),
        pytest.param(b"\xff\xff\xff\xff", "a frame of -1 bytes", id="negative length"),
        pytest.param(b"\0\0\0\x02ab", "a request of 2 bytes", id="too short"),
        pytest.param(b"\0\0\0\x08\x7f\x7f\0\0\0\0\0\0", "unknown api key 32639", id="unknown api"),
        pytest.param(b"\0\0\1\0\x7f\x7f\0\0\0\0\0\0", "unknown api key 32639", id="unknown api, frame unfinished"),
        pytest.param(b"\0\0\0\x08\0\3\0\x63\0\0\0\0", "METADATA version 99 is not offered", id="version"),
        pytest.param(b"\0\0\0\x08\0\x34\0\0\0\0\0\0", "VOTE version 0 is not offered", id="other listener"),
        pytest.param(encode_request(Api.METADATA, 9, 1, "x", MetadataRequest())[:3] + b"\1" + b"z", None, id="torn"),
        pytest.param(b"\0\0\0\x0a\0\3\0\0\0\0\0\0\xff\xfe", "client id of -2 bytes", id="client id"),
        pytest.param(b"\0\0\0\x0e\0\3\0\0\0\0\0\1\xff\xff\x7f\xff\xff\xff", "more items than", id="huge array"),
        pytest.param(
            b"\0\0\0\x0a\0\0\0\1\0\0\0\0\xff\xff",
            "ProduceRequest has no version 1",
            id="produce v1",
        ),
    ],
)
def test_garbage_closes_the_connection_with_a_reason(data: bytes, reason: str | None):
    async def scenario(setup: Setup) -> None:
        reader, writer = await setup.socket()
        writer.write(data)
        if reason is None:
            writer.write_eof()

        async with asyncio.timeout(TIMEOUT_MS / 1000):
            assert await reader.read() == b""

        writer.close()
        await setup.until(lambda: not setup.server.connections)
        assert setup.server.held_bytes == 0
        assert setup.asked == []

    world = serve(scenario)
    assert (reason or "") in world.said.getvalue()


@pytest.mark.parametrize(
    ("api", "version"),
    [(api, v) for api, versions in REFUSED_APIS.items() for v in range(versions.first, versions.last + 1)],
    ids=lambda one: getattr(one, "name", one),
)
def test_what_nobody_offers_is_refused_in_its_turn_and_the_connection_stays(api: Api, version: int):
    """Clients know by ApiVersions that these are not to be had; who asks without looking gets an error that says so."""

    async def scenario(setup: Setup) -> None:
        reader, writer = await setup.socket()

        async def answer(expected: Api, version: int) -> tuple[int, Any]:
            length = int.from_bytes(await reader.readexactly(4), "big")
            return decode_response(exchange_of(expected), version, await reader.readexactly(length))

        async with asyncio.timeout(TIMEOUT_MS / 1000):
            writer.write(encode_request(api, version, 7, "x", request_type(api)()))
            writer.write(encode_request(Api.API_VERSIONS, 4, 8, "x", ApiVersionsRequest()))
            refused, offered = await answer(api, version), await answer(Api.API_VERSIONS, 4)

        assert (refused[0], refused[1]) == (7, refusal_of(api, request_type(api)()))
        assert offered[0] == 8
        assert not {offer.api_key for offer in offered[1].api_keys} & {int(one) for one in REFUSED_APIS}
        assert setup.asked == []
        assert len(setup.server.connections) == 1
        writer.close()
        await setup.until(lambda: not setup.server.connections)
        assert setup.server.held_bytes == 0

    world = serve(scenario)
    assert "closed connection" not in world.said.getvalue()


@pytest.mark.parametrize("version", [0, 3])
def test_what_nobody_offers_is_refused_in_known_versions_only(version: int):
    async def scenario(setup: Setup) -> None:
        reader, writer = await setup.socket()
        frame = bytearray(encode_request(Api.SHARE_FETCH, 1, 7, "x", request_type(Api.SHARE_FETCH)()))
        frame[6:8] = version.to_bytes(2, "big")
        writer.write(frame)

        async with asyncio.timeout(TIMEOUT_MS / 1000):
            assert await reader.read() == b""

        writer.close()

    world = serve(scenario)
    assert f"SHARE_FETCH version {version} is not offered here" in world.said.getvalue()


def test_api_versions_of_an_unknown_version_is_answered_in_the_oldest_layout():
    async def scenario(setup: Setup) -> None:
        reader, writer = await setup.socket()
        frame = bytearray(encode_request(Api.API_VERSIONS, 4, 77, "x", ApiVersionsRequest()))
        frame[6:8] = b"\0\x09"
        writer.write(frame)

        length = int.from_bytes(await reader.readexactly(4), "big")
        correlation_id, answer = decode_response(exchange_of(Api.API_VERSIONS), 0, await reader.readexactly(length))

        assert correlation_id == 77
        assert answer.error_code is Error.UNSUPPORTED_VERSION
        assert Api.API_VERSIONS in [offer.api_key for offer in answer.api_keys]
        writer.close()

    serve(scenario)


def test_a_client_falls_back_to_what_an_old_server_offers():
    """The server knows ApiVersions 0-1 only; the client starts with the newest."""
    apis = {**BROKER_APIS, Api.API_VERSIONS: VersionRange(0, 1), Api.METADATA: VersionRange(0, 5)}

    async def scenario(setup: Setup) -> None:
        connection = await setup.connection()

        answer = await connection.send(exchange_of(Api.METADATA), metadata_of("t"), timeout_ms=TIMEOUT_MS)

        assert answer.cluster_id == "t"
        assert setup.asked[-1].version == 5
        connection.close()

    serve(scenario, apis=apis)


def test_clients_before_version_4_see_no_feature_level_zero():
    feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)

    async def scenario(setup: Setup) -> None:
        connection = await setup.connection()
        old = await connection.send(
            exchange_of(Api.API_VERSIONS), ApiVersionsRequest(), version=3, timeout_ms=TIMEOUT_MS
        )

        assert connection.peer.supported_features[0].min_version == 0
        assert old.supported_features[0].min_version == 1
        connection.close()

    serve(scenario, features=lambda: ApiVersionsResponse(supported_features=[feature]))


def test_a_version_in_common_is_needed():
    async def scenario(setup: Setup) -> None:
        connection = await setup.connection()

        with pytest.raises(UnsupportedVersion):
            connection.send(exchange_of(Api.VOTE), MetadataRequest(), timeout_ms=TIMEOUT_MS)
        with pytest.raises(UnsupportedVersion):
            connection.send(exchange_of(Api.METADATA), MetadataRequest(), version=99, timeout_ms=TIMEOUT_MS)

        connection.close()

    serve(scenario)


def test_a_lost_connection_fails_what_is_under_way():
    async def scenario(setup: Setup) -> None:
        connection = await setup.connection()
        future = connection.send(exchange_of(Api.METADATA), metadata_of("t"), timeout_ms=TIMEOUT_MS)
        await setup.until(lambda: bool(setup.asked))
        setup.server.stop()

        with pytest.raises(ConnectionLost):
            await future
        with pytest.raises(ConnectionLost):
            await connection.send(exchange_of(Api.METADATA), metadata_of("t"), timeout_ms=TIMEOUT_MS)
        assert not connection.is_open
        setup.asked[0].reply(MetadataResponse())  # too late; no harm

    serve(scenario, lambda _: None)


def test_a_request_without_an_answer_in_time_ends_the_connection():
    async def scenario(setup: Setup) -> None:
        connection = await setup.connection()
        other = connection.send(exchange_of(Api.METADATA), metadata_of("t"), timeout_ms=TIMEOUT_MS)

        with pytest.raises(RequestTimedOut):
            await connection.send(exchange_of(Api.METADATA), metadata_of("t"), timeout_ms=10)
        with pytest.raises(ConnectionLost):
            await other

    serve(scenario, lambda _: None)


def test_nobody_listening_is_connection_lost():
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        endpoint = Endpoint(HOST, unused.getsockname()[1])

        async def main() -> None:
            with pytest.raises(ConnectionLost):
                await Connection(SmallWorld(), endpoint, "x").open(timeout_ms=TIMEOUT_MS)

        with asyncio.Runner(loop_factory=LOOPS[chosen["loop"]]) as runner:
            runner.run(main())


def test_no_more_requests_are_taken_than_may_be_pending():
    async def scenario(setup: Setup) -> None:
        connection = await setup.connection()
        futures = [
            connection.send(exchange_of(Api.METADATA), metadata_of(str(n)), timeout_ms=TIMEOUT_MS) for n in range(50)
        ]
        await setup.until(lambda: len(setup.asked) == 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(setup.asked) == 3

        for n in range(50):
            await setup.until(lambda n=n: len(setup.asked) > n)
            echo(setup.asked[n])

        assert [(await future).cluster_id for future in futures] == [str(n) for n in range(50)]
        connection.close()

    serve(scenario, lambda _: None, limits=ServerLimits(pending_requests_max=3))


def test_memory_of_all_connections_together_is_bounded_and_somebody_always_advances():
    """Four requests of 300 kB against a limit of 400 kB: unfinished ones wait, and all are answered in the end."""
    limits = ServerLimits(queued_bytes_max=400_000)
    most = 0

    def handle(request: ServerRequest) -> None:
        asyncio.get_running_loop().call_later(0.005, echo_produce, request)

    def echo_produce(request: ServerRequest) -> None:
        from replog.wire.messages.produce import ProduceResponse

        request.reply(ProduceResponse())

    async def scenario(setup: Setup) -> None:
        nonlocal most
        records = bytes(300_000)
        body = ProduceRequest(
            acks=-1, topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=records)])]
        )
        connections = [await setup.connection() for _ in range(4)]
        futures = [connection.send(exchange_of(Api.PRODUCE), body, timeout_ms=TIMEOUT_MS) for connection in connections]
        while not all(future.done() for future in futures):
            await asyncio.sleep(0)
            most = max(most, setup.server.held_bytes)
        for future in futures:
            assert (await future).throttle_time_ms == 0
        assert setup.server.held_bytes == setup.server.unanswered_bytes == 0
        for connection in connections:
            connection.close()

    serve(scenario, handle, limits=limits)
    assert most < 2 * 300_000 + 4 * 262_144


def test_a_request_larger_than_the_whole_limit_is_still_taken():
    async def scenario(setup: Setup) -> None:
        connections = [await setup.connection() for _ in range(2)]
        body = MetadataRequest(topics=metadata_of("x" * 20_000).topics * 10)
        futures = [
            connection.send(exchange_of(Api.METADATA), body, timeout_ms=TIMEOUT_MS) for connection in connections
        ]

        for future in futures:
            assert len((await future).cluster_id) == 20_000
        for connection in connections:
            connection.close()

    serve(scenario, limits=ServerLimits(queued_bytes_max=1000))


def test_a_peer_that_does_not_read_is_not_read():
    """Its requests are taken only as long as the answers fit the buffer."""

    def big(request: ServerRequest) -> None:
        request.reply(MetadataResponse(cluster_id="x" * 30_000))

    async def scenario(setup: Setup) -> None:
        reader, writer = await setup.socket()
        one = encode_request(Api.METADATA, 9, 1, "x", MetadataRequest())
        for _ in range(50):
            writer.write(one * 100)
            await asyncio.sleep(0.001)
        taken = len(setup.asked)

        assert taken < 1000
        for _ in range(5000):
            length = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(length)
        assert len(setup.asked) == 5000
        writer.close()

    serve(scenario, big, limits=ServerLimits(reply_buffer_bytes_max=65536))


def test_a_peer_that_is_refused_and_reads_nothing_is_gone_after_a_while():
    """Else whoever asks for much, then talks nonsense and never reads, keeps a descriptor and the answer for ever."""

    def big(request: ServerRequest) -> None:
        request.reply(MetadataResponse(cluster_id="x" * 30_000))

    async def scenario(setup: Setup) -> None:
        reader, writer = await setup.socket()
        one = encode_request(Api.METADATA, 9, 1, "x", MetadataRequest())
        writer.write(one * 1000 + b"\xff" * 100)
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            while not setup.asked or setup.server.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)

        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(30_000 * 1000)
        writer.close()

    serve(
        scenario, big, limits=ServerLimits(reply_buffer_bytes_max=1 << 30, pending_requests_max=10_000, farewell_ms=50)
    )


def mute(request: ServerRequest) -> None:
    """Answer, and let who asked wait for days, as a quota does."""
    request.mute(10**9)
    echo(request)


@pytest.mark.parametrize("is_reset", [pytest.param(True, id="reset"), pytest.param(False, id="closed")])
@pytest.mark.parametrize("handler", [pytest.param(mute, id="muted"), pytest.param(lambda _: None, id="unanswered")])
def test_who_goes_away_while_he_is_not_read_is_let_go(handler: Callable[[ServerRequest], None], is_reset: bool):
    """Each of them kept a descriptor for ten minutes, or for as long as its answer took (found by tests/fuzz/test_conversations.py)."""

    async def scenario(there: Setup) -> None:
        _, writer = await there.socket()
        writer.write(encode_request(Api.METADATA, 12, 1, "test", metadata_of("t")))
        await there.until(lambda: bool(there.asked))
        if is_reset:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        await there.until(lambda: not there.server.connections)

    serve(scenario, handler, limits=ServerLimits(pending_requests_max=1))


def test_who_sent_his_last_while_he_is_not_read_stays_until_it_is_read_or_he_was_idle_for_long():
    async def scenario(there: Setup) -> None:
        frame = encode_request(Api.METADATA, 12, 1, "test", metadata_of("t"))
        _, writer = await there.socket()
        _, silent = await there.socket()
        for one in (writer, silent):
            one.write(frame)
        await there.until(lambda: len(there.asked) == 2)
        writer.write(frame)
        writer.write_eof()

        await asyncio.sleep(1.5)

        assert len(there.server.connections) == 2
        await there.until(lambda: len(there.server.connections) == 1)
        (left,) = there.server.connections.values()
        assert left.unanswered_bytes == len(frame) - 4
        for one in (writer, silent):
            one.transport.abort()

    serve(scenario, lambda _: None, limits=ServerLimits(pending_requests_max=1, idle_ms_max=2500))


def test_an_idle_connection_is_closed():
    async def scenario(setup: Setup) -> None:
        reader, writer = await setup.socket()
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            assert await reader.read() == b""
        writer.close()
        assert not setup.server.connections

    world = serve(scenario, limits=ServerLimits(idle_ms_max=20))
    assert "idle" in world.said.getvalue()


def test_requests_may_come_one_byte_at_a_time():
    async def scenario(setup: Setup) -> None:
        reader, writer = await setup.socket()
        for byte in encode_request(Api.METADATA, 9, 5, "x", metadata_of("slow")):
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        length = int.from_bytes(await reader.readexactly(4), "big")
        assert decode_response(exchange_of(Api.METADATA), 9, await reader.readexactly(length))[1].cluster_id == "slow"
        writer.close()

    serve(scenario)


def test_strangers_do_no_harm_to_others():
    """A hundred connections of random bytes, some of them cut off, beside one that goes on working."""
    random = Random("strangers")

    async def scenario(setup: Setup) -> None:
        connection = await setup.connection()
        for n in range(100):
            _, writer = await setup.socket()
            length = random.choice((random.randrange(-5, 300), random.getrandbits(31)))
            key, version = random.choice((0, 1, 3, 18, 52, 99)), random.randrange(20)
            header = struct.pack(">ihh", length, key, version)
            writer.write(header[: random.choice((3, 8, 8, 8))] + random.randbytes(random.randrange(300)))
            writer.close()
            answer = await connection.send(exchange_of(Api.METADATA), metadata_of(str(n)), timeout_ms=TIMEOUT_MS)
            assert answer.cluster_id == str(n)
        await setup.until(lambda: len(setup.server.connections) == 1)
        assert setup.server.held_bytes == 0
        connection.close()

    serve(scenario, lambda request: echo(request) if request.api is Api.METADATA else request.reply_nothing())


def test_a_peer_that_goes_silent_in_a_large_request_stops_nobody_and_is_closed() -> None:
    limits = ServerLimits(queued_bytes_max=400_000, progress_ms_max=300)
    large = encode_request(Api.PRODUCE, 11, 1, "x", produce_of(200_000))

    async def scenario(setup: Setup) -> None:
        reader, writer = await setup.socket()
        writer.write(struct.pack(">i", 90_000_000) + large[4:] * 3)
        await setup.until(lambda: setup.server.held_bytes > 400_000)

        other = await setup.connection()
        answer = await other.send(exchange_of(Api.PRODUCE), produce_of(100_000), version=11, timeout_ms=TIMEOUT_MS)
        assert answer is not None
        assert await reader.read() == b""
        other.close()
        writer.close()

    def produced(request: ServerRequest) -> None:
        request.reply(ProduceResponse())

    world = serve(scenario, produced, limits=limits)
    assert "its rest does not come" in world.said.getvalue()


def test_a_peer_that_goes_silent_in_a_request_is_closed_whatever_he_waits_for() -> None:
    """A fetch may wait for days: what its peer has begun behind it must not lie in memory for as long."""
    limits = ServerLimits(progress_ms_max=200)
    waits = encode_request(Api.METADATA, 9, 1, "x", metadata_of("a"))

    async def scenario(setup: Setup) -> None:
        patient, patients = await setup.socket()
        patients.write(waits)
        reader, writer = await setup.socket()
        writer.write(waits + struct.pack(">i", 90_000_000) + waits[4:])
        await setup.until(lambda: len(setup.asked) == 2)

        async with asyncio.timeout(TIMEOUT_MS / 1000):
            assert await reader.read() == b""
        setup.asked[0].reply(MetadataResponse())  # who has begun nothing may wait
        assert await patient.read(4)
        for one in (writer, patients):
            one.close()

    world = serve(scenario, lambda request: None, limits=limits)
    assert world.said.getvalue().count("its rest does not come") == 1


def test_the_time_for_the_rest_of_a_request_begins_when_it_is_read_again() -> None:
    limits = ServerLimits(pending_requests_max=1, progress_ms_max=60_000)
    frame = encode_request(Api.METADATA, 9, 1, "x", metadata_of("a"))

    async def scenario(setup: Setup) -> None:
        _, writer = await setup.socket()
        writer.write(frame + frame[:20])
        await setup.until(lambda: len(setup.asked) == 1)
        (connection,) = setup.server.connections.values()
        before = connection._progress_timer
        assert before is not None
        assert not connection._reading

        setup.asked[0].reply(MetadataResponse())

        assert connection._reading
        assert connection._progress_timer is not None
        assert connection._progress_timer is not before
        writer.write(frame[20:])
        await setup.until(lambda: len(setup.asked) == 2)
        writer.close()

    serve(scenario, lambda request: None, limits=limits)


def test_many_slow_requests_at_once_stop_nobody_for_long() -> None:
    order: list[str] = []

    def slow(request: ServerRequest) -> None:
        name = request.body.topics[0].name if request.api is Api.METADATA else ""
        order.append(name)
        until = process_time() + (0.02 if name == "slow" else 0)
        while process_time() < until:
            pass
        request.reply(MetadataResponse())

    async def scenario(setup: Setup) -> None:
        other = await setup.connection()
        reader, writer = await setup.socket()
        writer.write(encode_request(Api.METADATA, 9, 1, "x", metadata_of("slow")) * 50)
        await setup.until(lambda: "slow" in order)
        await other.send(exchange_of(Api.METADATA), metadata_of("quick"), timeout_ms=TIMEOUT_MS)
        await setup.until(lambda: order.count("slow") == 50)
        assert await reader.readexactly(4)
        other.close()
        writer.close()

    serve(scenario, slow)
    assert order.index("quick") < 25


def test_strangers_cannot_fill_the_log() -> None:
    async def scenario(setup: Setup) -> None:
        for _ in range(200):
            reader, writer = await setup.socket()
            writer.write(struct.pack(">i", -1))
            assert await reader.read() == b""
            writer.close()

    began = monotonic()
    said = serve(scenario).said.getvalue()
    seconds = int(monotonic() - began) + 2  # that were begun

    written = said.count("closed connection from")
    assert LINES_PER_SECOND_MAX <= written <= LINES_PER_SECOND_MAX * seconds
    left_out = sum(int(number) for number in re.findall(r"before it (\d+) lines", said))
    assert written + left_out <= 200


def produce_of(size: int) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=bytes(size))]
    return ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)])


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(ServerLimits(connections_max=2), id="in all"),
        pytest.param(ServerLimits(connections_per_host_max=2), id="from one address"),
    ],
)
def test_no_more_connections_are_taken_than_are_wanted(limits: ServerLimits) -> None:
    async def scenario(setup: Setup) -> None:
        first, second = await setup.connection(), await setup.connection()
        with pytest.raises(ConnectionLost):
            await setup.connection()
        assert len(setup.server.connections) == 2

        first.close()
        await setup.until(lambda: len(setup.server.connections) == 1)
        third = await setup.connection()
        second.close()
        third.close()

    world = serve(scenario, limits=limits)
    assert "took no connection from 127.0.0.1" in world.said.getvalue()


def test_no_more_connections_are_taken_in_a_second_than_are_wanted() -> None:
    async def scenario(setup: Setup) -> None:
        opened = [await setup.socket() for _ in range(8)]
        await asyncio.sleep(0.05)
        assert 3 <= len(setup.server.connections) <= 6  # the second may have turned in between
        for _, writer in opened:
            writer.close()

    serve(scenario, limits=ServerLimits(connections_per_second_max=3))
