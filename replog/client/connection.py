"""One connection to a node: requests out, answers matched by correlation id, any number under way.

Opening negotiates ApiVersions, as every Kafka client does; `send` picks the highest version that both know.
A connection that is lost, or that let a request wait too long, fails all that is under way with `ConnectionLost`:
whether such a request took effect nobody knows. It is never opened again; make a new one.
A request that was sent with `must_not_repeat` alone waits on for its answer when another one has waited too long: the
connection takes no more then, and is closed when the last of these is answered.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Generic, Protocol, cast

import msgspec

from replog.config import Endpoint
from replog.config.access import OPEN_DOOR, Access
from replog.errors import Error
from replog.ports import World
from replog.security.sasl import SaslClient
from replog.security.scram import AuthenticationFailed
from replog.wire.apis import Api, highest_common, known_versions
from replog.wire.codec import LENGTH, MalformedMessage, decode_answer, encode_request
from replog.wire.exchange import Exchange, Q, R
from replog.wire.framing import Frames
from replog.wire.layout import NO_VERSIONS, VersionRange
from replog.wire.messages import sasl_authenticate, sasl_handshake
from replog.wire.messages.api_versions import EXCHANGE, ApiVersionsRequest, ApiVersionsResponse
from replog.wire.messages.produce import ProduceRequest

LOG_IN_AGAIN_AFTER: Final = 0.85  # of the time that a login holds, as Kafka's clients
RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
SOFTWARE: Final = "tribunal"
SOFTWARE_VERSION: Final = "1"
CORRELATION_IDS: Final = 1 << 31


class ConnectionLost(Exception):
    """The connection is gone; a request under way may or may not have taken effect."""


class RequestTimedOut(ConnectionLost):
    """No answer in time; the connection was closed for it."""


class UnsupportedVersion(Exception):
    """There is no version of this request that both sides know."""


class Waiting(Protocol):
    """A request under way, of whatever API."""

    @property
    def api(self) -> Api:
        """What was asked."""

    @property
    def timer(self) -> asyncio.TimerHandle:
        """When it is given up."""

    @property
    def must_not_repeat(self) -> bool:
        """Whether to wait on for its answer where others' would be asked for again."""

    def answer(self, frame: memoryview) -> None:
        """Take the answer; `MalformedMessage` when it is none."""

    def fail(self, problem: ConnectionLost) -> None:
        """Get no answer."""


class Pending(Generic[Q, R]):
    """A request under way."""

    __slots__ = ("exchange", "future", "must_not_repeat", "timer", "version")

    def __init__(
        self,
        exchange: Exchange[Q, R],
        version: int,
        future: asyncio.Future[R],
        timer: asyncio.TimerHandle,
        *,
        must_not_repeat: bool,
    ) -> None:
        self.exchange = exchange
        self.version = version
        self.future = future
        self.timer = timer
        self.must_not_repeat = must_not_repeat

    @property
    def api(self) -> Api:
        """What was asked."""
        return self.exchange.api

    def answer(self, frame: memoryview) -> None:
        """Take the answer; `MalformedMessage` when it is none."""
        version = self.version
        if self.api is Api.API_VERSIONS and bytes(frame[4:6]) == b"\x00\x23":
            version = 0  # UNSUPPORTED_VERSION comes in the oldest layout (KIP-511)
        body = decode_answer(self.exchange, version, frame)
        if not self.future.done():
            self.future.set_result(body)

    def fail(self, problem: ConnectionLost) -> None:
        """Get no answer."""
        _fail(self.future, problem)


class Connection:
    """A connection to one endpoint, of use between `open` and the first loss."""

    def __init__(self, world: World, endpoint: Endpoint, client_id: str, access: Access = OPEN_DOOR) -> None:
        self.endpoint = endpoint
        self.access = access
        self.client_id = client_id
        self.versions: dict[int, VersionRange] = {}  # by api key, as the peer offers them
        self._common: dict[Api, int] = {}  # the highest that both know, as far as asked for
        self.peer = ApiVersionsResponse()  # with the features that the peer supports and has finalized
        self.on_lost: Callable[[str], None] | None = None
        self._world = world
        self._transport: asyncio.Transport | None = None
        self._frames = Frames(RESPONSE_BYTES_MAX)
        self._pending: dict[int, Waiting] = {}
        self._given_up: dict[int, None] = {}  # correlation ids whose answers may yet come
        self._correlation_id = 0
        self._lost: str | None = None
        self._is_retired = False
        self._next_login: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None  # held, or it might be collected

    @property
    def is_open(self) -> bool:
        """Return whether requests can be sent."""
        return self._transport is not None and self._lost is None and not self._is_retired

    @property
    def has_ended(self) -> bool:
        """Return whether nothing is under way any more, nor will be."""
        return self._lost is not None

    async def open(self, *, timeout_ms: int = 10000) -> None:
        """Connect and negotiate; `ConnectionLost` when that fails."""
        network = self._world.network
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if self._world.entropy.strikes("connection is refused"):
                    raise ConnectionRefusedError("at a point of the simulator")
                await network.connect(
                    self.endpoint.host, self.endpoint.port, lambda: _Stream(self), tls=self.access.has_tls
                )
                await self._negotiate(timeout_ms)
                if self.access.mechanism:
                    await self._log_in(timeout_ms)
        except (OSError, TimeoutError, ValueError, OverflowError) as problem:
            # The last two are no address at all: a name with a label of 64 letters, a port beyond 65535. Others said so.
            self.close()
            raise ConnectionLost(f"{self.endpoint}: {str(problem) or 'timed out'}") from None
        except BaseException:
            self.close()
            raise

    async def _negotiate(self, timeout_ms: int) -> None:
        request = ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version=SOFTWARE_VERSION)
        version = known_versions(Api.API_VERSIONS).last
        answer = await self._send(EXCHANGE, version, request, timeout_ms)
        if answer.error_code is Error.UNSUPPORTED_VERSION:
            offered = next((offer for offer in answer.api_keys if offer.api_key == Api.API_VERSIONS), None)
            version = min(version, offered.max_version) if offered else 0
            answer = await self._send(EXCHANGE, version, request, timeout_ms)
        if answer.error_code is not Error.NONE:
            self._lose(f"ApiVersions was answered with {answer.error_code.name}")
            raise ConnectionLost(f"{self.endpoint}: {self._lost}")
        self.peer = answer
        self.versions = {offer.api_key: VersionRange(offer.min_version, offer.max_version) for offer in answer.api_keys}

    async def _log_in(self, timeout_ms: int) -> None:
        """Say who we are (KIP-152)."""
        uuid = self._world.entropy.uuid
        exchange = SaslClient(self.access, uuid().hex + uuid().hex)
        wanted = sasl_handshake.SaslHandshakeRequest(mechanism=self.access.mechanism)
        try:
            agreed = await self.send(sasl_handshake.EXCHANGE, wanted, timeout_ms=timeout_ms)
            if agreed.error_code is not Error.NONE:
                raise AuthenticationFailed(f"{agreed.error_code.name}, it offers {', '.join(agreed.mechanisms)}")
            token: bytes | None = exchange.first
            session_ms = 0
            while token is not None:
                body = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=token)
                answer = await self.send(sasl_authenticate.EXCHANGE, body, timeout_ms=timeout_ms)
                if answer.error_code is not Error.NONE:
                    raise AuthenticationFailed(answer.error_message or answer.error_code.name)
                token = exchange.answer(bytes(answer.auth_bytes))
                session_ms = answer.session_lifetime_ms
        except (AuthenticationFailed, UnsupportedVersion) as problem:
            self._lose(f"logging in by {self.access.mechanism}: {problem}")
            raise ConnectionLost(f"{self.endpoint}: {self._lost}") from None
        if session_ms > 0 and self._lost is None:
            delay_s = session_ms * LOG_IN_AGAIN_AFTER / 1000
            self._next_login = asyncio.get_running_loop().call_later(delay_s, self._log_in_again, timeout_ms)

    def _log_in_again(self, timeout_ms: int) -> None:
        """Show who we are before the peer's patience ends (KIP-368): it would close the connection, and what is under way."""
        self._renewing = asyncio.get_running_loop().create_task(self._renew(timeout_ms))

    async def _renew(self, timeout_ms: int) -> None:
        with contextlib.suppress(ConnectionLost):  # who uses the connection learns of it
            await self._log_in(timeout_ms)

    def version_of(self, api: Api) -> int:
        """Return the highest version that both know; `UnsupportedVersion` when there is none."""
        version = self._common.get(api)
        if version is None:
            version = highest_common(api, self.versions.get(api))
            if version is None:
                raise UnsupportedVersion(f"{self.endpoint} and we have no version of {api.name} in common")
            self._common[api] = version
        return version

    def send(
        self,
        exchange: Exchange[Q, R],
        body: Q,
        *,
        version: int | None = None,
        timeout_ms: int,
        must_not_repeat: bool = False,
    ) -> asyncio.Future[R]:
        """Send and return the answer's future, which fails with `ConnectionLost`.

        A version that the peer does not offer is refused here.
        """
        chosen = self._chosen(exchange.api, version)
        return self._send(exchange, chosen, body, timeout_ms, must_not_repeat=must_not_repeat)

    def send_unanswered(self, body: ProduceRequest, *, version: int | None = None) -> None:
        """Send a produce with acks=0, which nobody answers; `ConnectionLost` when it surely was not sent."""
        assert body.acks == 0
        version = self._chosen(Api.PRODUCE, version)
        if self._transport is None or self._lost is not None:
            raise ConnectionLost(f"{self.endpoint}: {self._lost or 'not open'}")
        self._write(self._transport, Api.PRODUCE, version, body)

    def _chosen(self, api: Api, version: int | None) -> int:
        if version is None:
            return self.version_of(api)
        if version not in self.versions.get(api, NO_VERSIONS):
            raise UnsupportedVersion(f"{self.endpoint} does not offer {api.name} version {version}")
        return version

    def _send(
        self, exchange: Exchange[Q, R], version: int, body: Q, timeout_ms: int, *, must_not_repeat: bool = False
    ) -> asyncio.Future[R]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        if self._transport is None or self._lost is not None or self._is_retired:
            _fail(future, ConnectionLost(f"{self.endpoint}: {self._lost or 'not open'}"))
            return future
        correlation_id = self._write(self._transport, exchange.api, version, body)
        timer = loop.call_later(timeout_ms / 1000, self._time_out, correlation_id)
        self._pending[correlation_id] = Pending(exchange, version, future, timer, must_not_repeat=must_not_repeat)
        return future

    def _write(self, transport: asyncio.Transport, api: Api, version: int, body: msgspec.Struct) -> int:
        correlation_id = self._correlation_id
        self._correlation_id = (correlation_id + 1) % CORRELATION_IDS
        transport.write(encode_request(api, version, correlation_id, self.client_id, body))
        return correlation_id

    def retire(self) -> None:
        """Take no more requests, and fail those that can be sent again; close when the others are answered."""
        if not self._gave_up("closed by us"):
            self.close()

    def close(self) -> None:
        """Close; what is under way fails."""
        if self._transport is not None:
            self._transport.close()  # what is written still leaves
        self._lose("closed by us")

    # from the stream

    def connected(self, transport: asyncio.Transport) -> None:
        """Have a transport."""
        if self._lost is not None:
            transport.abort()  # closed while it was being opened
        else:
            self._transport = transport

    def received(self, data: bytes) -> None:
        """Take the answers that are whole."""
        self._frames.feed(data)
        try:
            while self._lost is None:
                frame = self._frames.next_frame()
                if frame is None:
                    return
                self._answered(frame)
        except MalformedMessage as problem:
            self._lose(f"not an answer: {problem}")
        except Exception as problem:  # a mistake of ours in reading: it costs this link
            if isinstance(problem, AssertionError | OSError):
                raise
            self._world.journal.unforeseen(f"an answer of {self.endpoint}", problem)
            self._lose(f"{type(problem).__name__} in an answer")

    def lost(self, problem: Exception | None) -> None:
        """Fail all that is under way."""
        self._lose(str(problem) if problem else "closed by the peer")

    def _answered(self, frame: memoryview) -> None:
        if len(frame) < LENGTH.size:
            raise MalformedMessage(f"{len(frame)} bytes")
        correlation_id: int = LENGTH.unpack_from(frame)[0]
        pending = self._pending.pop(correlation_id, None)
        if pending is None:
            if correlation_id in self._given_up:
                del self._given_up[correlation_id]
                return
            raise MalformedMessage(f"correlation id {correlation_id} was not asked for")
        pending.timer.cancel()
        try:
            pending.answer(frame)
        except MalformedMessage as problem:
            pending.fail(ConnectionLost(f"{self.endpoint}: {pending.api.name}: {problem}"))
            raise
        if self._is_retired and not self._pending:
            self.close()

    def _time_out(self, correlation_id: int) -> None:
        pending = self._pending.pop(correlation_id)
        reason = f"no answer to {pending.api.name} in time"
        pending.fail(RequestTimedOut(f"{self.endpoint}: {reason}"))
        self._given_up[correlation_id] = None
        if not self._gave_up(reason):
            self._lose(reason)

    def _gave_up(self, reason: str) -> bool:
        """Fail all but what must not be sent again, and return whether there is such a thing."""
        waiting = self._pending
        self._pending = {number: one for number, one in waiting.items() if one.must_not_repeat}
        if not self._pending or self._lost is not None:
            self._pending = waiting
            return False
        self._is_retired = True
        for number, one in waiting.items():
            if not one.must_not_repeat:
                self._given_up[number] = None
                one.timer.cancel()
                one.fail(ConnectionLost(f"{self.endpoint}: {reason}"))
        return True

    def _lose(self, reason: str) -> None:
        if self._lost is not None:
            return
        self._lost = reason
        if self._next_login is not None:
            self._next_login.cancel()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()
        pending, self._pending = self._pending, {}
        for waiting in pending.values():
            waiting.timer.cancel()
            waiting.fail(ConnectionLost(f"{self.endpoint}: {reason}"))
        if self.on_lost is not None:
            self.on_lost(reason)


class _Stream(asyncio.Protocol):
    """What asyncio calls."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.connected(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._connection.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.lost(exc)


def _fail(future: asyncio.Future[R], problem: ConnectionLost) -> None:
    if not future.done():
        future.set_exception(problem)
        future.exception()  # nobody has to look: a lost answer is no news to who stopped waiting
