"""A listener that speaks the protocol: frames in, requests to the handler in order, replies out in order.

The handler is called with each request as it arrives and may answer at once, later, or in any order; replies leave in
the order of the requests, connection by connection, as Kafka's clients rely on. What an unknown client sends cannot
harm it: bytes that are no request close the connection with a logged reason; memory is bounded by not reading. Reading
stops while a connection has `pending_requests_max` requests unanswered, while its peer does not read
replies, and while all connections together hold more than `queued_bytes_max` of unanswered or unfinished requests (then
whoever began a frame first may finish it, so that somebody always advances, and who holds no more than its peer's share
goes on, so that nobody is stopped by another). Who does not go on with a request that it began is closed.

A few requests that nobody offers are refused in an answer, whole ones only (`REFUSED_APIS`, `replog/node/net/refused.py`).

ApiVersions is answered here (KIP-35, KIP-511): a version that we do not know gets the v0 layout with
UNSUPPORTED_VERSION and what we offer, because that is all such a client can read.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar, cast

import msgspec

from replog.config import Endpoint
from replog.config.network import NetworkConfig
from replog.controller.authorization import Peer
from replog.errors import Error
from replog.node.boundary import contain
from replog.node.net.entrance import OPEN, Entrance
from replog.node.net.few_lines import FewLines
from replog.node.net.login import TOKEN_BYTES_MAX, Login, Stage
from replog.node.net.refused import refusal_of
from replog.ports import Incoming, Listener, Peering, World
from replog.security.principals import ANONYMOUS_USER, distinguished_name, principal_of
from replog.wire.apis import FEATURE_OF, REFUSED_APIS, SASL_APIS, Api
from replog.wire.codec import APIS, LENGTH, MalformedMessage, RequestStart, decode_rest, encode_response, request_start
from replog.wire.framing import Frames
from replog.wire.layout import VersionRange
from replog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse, SupportedFeatureKey
from replog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from replog.wire.messages.sasl_handshake import SaslHandshakeRequest

REQUEST_START_BYTES: Final = 8
UNWRITTEN_BYTES_MAX: Final = 65536
THROTTLE_MS_MAX: Final = 2**31 - 1  # what an answer can say
TURN_NS: Final = (
    50_000_000  # for the requests of one connection: a hundred slow ones at once would be the only ones for seconds
)
PROGRESS_BYTES: Final = 65536  # of a request, in the time that its peer has for a part of it
LOOK_MS: Final = 1000  # between two looks after a peer that is not read
_NETWORK: Final = NetworkConfig(listeners=())
LAST_VERSION_WITHOUT_FEATURE_LEVEL_ZERO: Final = 3  # KAFKA-17011: older clients refuse a minimum of 0

Q = TypeVar("Q", bound=msgspec.Struct)
R = TypeVar("R", bound=msgspec.Struct)
Answer = TypeVar("Answer", bound=msgspec.Struct, contravariant=True)


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one listener takes on."""

    request_bytes_max: int = _NETWORK.socket_request_bytes_max
    queued_bytes_max: int = _NETWORK.queued_request_bytes_max
    idle_ms_max: int = _NETWORK.connections_idle_ms_max
    progress_ms_max: int = _NETWORK.request_progress_ms_max
    connections_max: int = _NETWORK.connections_max
    connections_per_host_max: int = _NETWORK.connections_per_host_max
    connections_per_second_max: int = _NETWORK.connections_per_second_max
    failed_login_delay_ms: int = _NETWORK.failed_authentication_delay_ms
    pending_requests_max: int = 100
    reply_buffer_bytes_max: int = 1024 * 1024
    farewell_ms: int = 10000  # for the last answers of a connection that we close

    @staticmethod
    def of(config: NetworkConfig) -> "ServerLimits":
        """Take the limits from a node's configuration."""
        return ServerLimits(
            request_bytes_max=config.socket_request_bytes_max,
            queued_bytes_max=config.queued_request_bytes_max,
            idle_ms_max=config.connections_idle_ms_max,
            progress_ms_max=config.request_progress_ms_max,
            connections_max=config.connections_max,
            connections_per_host_max=config.connections_per_host_max,
            connections_per_second_max=config.connections_per_second_max,
            failed_login_delay_ms=config.failed_authentication_delay_ms,
        )


class Progress(Enum):
    """How far a request's answer is."""

    PENDING = 0
    READY = 1
    WRITTEN = 2  # or given up: nothing is owed any more


class Caller(Protocol):
    """Who asks."""

    @property
    def client_id(self) -> str | None:
        """What it calls itself."""

    @property
    def peer_host(self) -> str:
        """Where it asks from."""


class AwaitedRequest(Caller, Protocol[Q, Answer]):
    """A request that waits for its answer, from a connection or from this very node."""

    body: Q
    version: int

    @property
    def is_answered(self) -> bool:
        """Return whether nothing is owed any more."""

    def reply(self, body: Answer) -> None:
        """Answer; when nobody waits any more it does nothing."""


class ServerRequest(Generic[Q, R]):
    """A request of type Q that waits for its answer: exactly one of `reply` (with an R), `reply_nothing`, `close`."""

    __slots__ = (
        "_connection",
        "_frame",
        "_progress",
        "amend",
        "api",
        "body",
        "charge",
        "client_id",
        "connection_id",
        "correlation_id",
        "peer_host",
        "size_bytes",
        "version",
    )

    def __init__(self, connection: "ServerConnection", api: Api, start: RequestStart, frame: memoryview) -> None:
        self.client_id, body = decode_rest(api, start.version, frame)
        self.body = cast(Q, body)  # by its API, as the handler is found
        self.api = api
        self.version = start.version
        self.correlation_id = start.correlation_id
        self.size_bytes = len(frame)
        self.peer_host = connection.peer_host
        self.connection_id = connection.connection_id
        self._connection = connection
        self._frame = b""
        self._progress = Progress.PENDING
        self.amend: Callable[[R], R] | None = None  # what of it was refused beforehand
        # Who has a quota: counts an answer of so many bytes, and says for how many ms nothing more may come.
        self.charge: Callable[[int], int] | None = None

    @property
    def listener(self) -> str:
        """The name of the listener that it came to."""
        return self._connection.entrance.listener

    @property
    def peer(self) -> Peer:
        """Who asks, as far as the listener wants to know."""
        return Peer(self._connection.principal, self.peer_host)

    @property
    def is_answered(self) -> bool:
        """Return whether nothing is owed any more."""
        return self._progress is not Progress.PENDING

    def reply(self, body: R) -> None:
        """Answer; after the connection is lost it does nothing."""
        if self.amend is not None:
            body = self.amend(body)
        frame = encode_response(self.api, self.version, self.correlation_id, body)
        delay_ms = self._charged_ms(len(frame))
        if delay_ms > getattr(body, "throttle_time_ms", delay_ms):  # a few answers cannot say it
            body = msgspec.structs.replace(body, throttle_time_ms=delay_ms)
            frame = encode_response(self.api, self.version, self.correlation_id, body)
        self._finish(frame)

    def reply_nothing(self) -> None:
        """Answer nothing, as a produce with acks=0 wants it; unless something of it was refused: no client would notice."""
        if self.amend is not None:
            self.close(f"a part of {self.api.name} was refused")
        else:
            self._charged_ms(0)
            self._finish(b"")

    def close(self, reason: str) -> None:
        """Close the connection instead of answering."""
        if self._progress is Progress.PENDING:
            self._connection.refuse(reason)

    def _charged_ms(self, size_bytes: int) -> int:
        """Count it where a quota holds; its connection is not read before who asked may go on (KIP-219)."""
        delay_ms = 0 if self.charge is None else min(self.charge(size_bytes), THROTTLE_MS_MAX)
        if delay_ms:
            self.mute(delay_ms)
        return delay_ms

    def mute(self, delay_ms: int) -> None:
        """Take nothing more from its connection for so long."""
        self._connection.mute(delay_ms)

    def hold(self) -> None:
        """Take nothing more from its connection until `release`: this request is not through, and what comes behind it may not overtake it."""
        self._connection.hold()

    def release(self) -> None:
        """Go on with its connection."""
        self._connection.release()

    def _finish(self, frame: bytes) -> None:
        if self._progress is Progress.WRITTEN:
            return  # the connection is gone
        assert self._progress is Progress.PENDING, f"{self.api.name} was answered twice"
        self._progress = Progress.READY
        self._frame = frame
        self._connection.answered(len(frame))

    def take_frame(self) -> bytes | None:
        """Return the answer's bytes once it is there; the body is let go."""
        if self._progress is Progress.PENDING:
            return None
        self._progress = Progress.WRITTEN
        self.body = None  # type: ignore[assignment]  # nobody looks at it any more
        return self._frame

    def give_up(self) -> None:
        """Owe nothing any more."""
        self._progress = Progress.WRITTEN
        self.body = None  # type: ignore[assignment]


AnyRequest = ServerRequest[msgspec.Struct, msgspec.Struct]
Handler = Callable[[AnyRequest], None]


class Server:
    """All connections of one listener, and what they hold together."""

    def __init__(
        self,
        world: World,
        apis: dict[Api, VersionRange],
        handler: Handler,
        limits: ServerLimits,
        *,
        features: Callable[[], ApiVersionsResponse] = ApiVersionsResponse,
        may_come: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.world = world
        self.apis = apis
        self.handler = handler
        self.limits = limits
        self.features = features  # the feature fields of the ApiVersions answer, as they are now
        self.may_come = may_come  # counts one more connection from an address, or says that it is too soon
        self.connections: dict[int, ServerConnection] = {}
        self.held_bytes = 0  # of requests that are unfinished or unanswered
        self.unanswered_bytes = 0
        self._choked: dict[int, ServerConnection] = {}  # their peers do not read what was answered
        self._waiting: dict[int, ServerConnection] = {}  # not reading because of `queued_bytes_max`
        self._unfinished: dict[int, ServerConnection] = {}  # in the middle of a frame, the longest first
        self._by_host: dict[str, int] = {}  # connections
        self._second = 0  # of the clock, and what was accepted in it
        self._accepted_count = 0
        self._next_id = 0
        self._listeners: list[Listener] = []
        self.leaving: dict[int, asyncio.Transport] = {}  # closed by us, and not gone yet
        self.lines = FewLines(world)  # anybody can have as many as he connects
        self.on_connection_lost: Callable[[int], None] | None = None  # by its id, for who wants to know

    async def start(self, endpoint: Endpoint, entrance: Entrance = OPEN) -> int:
        """Listen, here as well as where it listens already; return the bound port. `OSError` when the address is taken."""
        listener = await self.world.network.listen(
            endpoint.host, endpoint.port, lambda: self._accept(entrance), tls=entrance.has_tls
        )
        self._listeners.append(listener)
        return listener.port

    def stop(self) -> None:
        """Stop listening and close all connections; unanswered requests stay unanswered."""
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections.values()):
            connection.abort()
        for transport in list(self.leaving.values()):
            transport.abort()

    def _accept(self, entrance: Entrance) -> "ServerConnection":
        self._next_id += 1
        return ServerConnection(self, self._next_id, entrance)

    def admit(self, connection: "ServerConnection") -> str | None:
        """Take a new connection, or return why not."""
        limits, host = self.limits, connection.peer_host
        second = self.world.clock.now_ns() // 1_000_000_000
        if second != self._second:
            self._second, self._accepted_count = second, 0
        if self._accepted_count >= limits.connections_per_second_max:
            return f"more than {limits.connections_per_second_max} in a second"
        if len(self.connections) >= limits.connections_max:
            return f"there are {len(self.connections)}"
        if self._by_host.get(host, 0) >= limits.connections_per_host_max:
            return f"there are {limits.connections_per_host_max} from there"
        if not self.may_come(host):
            return "more from there in a second than connection_creation_rate permits"
        self._accepted_count += 1
        self._by_host[host] = self._by_host.get(host, 0) + 1
        self.connections[connection.connection_id] = connection
        return None

    # memory, all connections together

    def account(self, connection: "ServerConnection") -> None:
        """Note what a connection holds now, and let go on or hold up whom that concerns."""
        held_bytes, unanswered_bytes = connection.held_bytes, connection.unanswered_bytes
        self.held_bytes += held_bytes - connection.noted_held_bytes
        self.unanswered_bytes += unanswered_bytes - connection.noted_unanswered_bytes
        connection.noted_held_bytes, connection.noted_unanswered_bytes = held_bytes, unanswered_bytes
        if held_bytes > unanswered_bytes:
            self._unfinished.setdefault(connection.connection_id, connection)
        else:
            self._unfinished.pop(connection.connection_id, None)
        if not self._waiting and self.held_bytes <= self.limits.queued_bytes_max:
            return  # nobody is held up, and nobody has to be
        favoured = self._may_go_on()
        is_fair = self.held_bytes <= self.limits.queued_bytes_max or held_bytes <= self._share(connection)
        if held_bytes == 0 or connection in favoured or is_fair:
            self._waiting.pop(connection.connection_id, None)
        else:
            self._waiting[connection.connection_id] = connection
        for other in favoured:
            if self._waiting.pop(other.connection_id, None) is not None:
                other.go_on()

    @property
    def unsent_bytes(self) -> int:
        """Answers that slow peers leave in our memory; whoever makes large answers heeds it."""
        return sum(connection.unsent_bytes for connection in self._choked.values())

    def choke(self, connection: "ServerConnection") -> None:
        """Note that a peer does not read."""
        self._choked[connection.connection_id] = connection

    def unchoke(self, connection: "ServerConnection") -> None:
        """Note that it reads again, or is gone."""
        self._choked.pop(connection.connection_id, None)

    def is_waiting(self, connection: "ServerConnection") -> bool:
        """Return whether a connection must not read because too much is held already."""
        return connection.connection_id in self._waiting

    def forget(self, connection: "ServerConnection") -> None:
        """Let go of a closed connection, which was counted as holding nothing."""
        if self.connections.pop(connection.connection_id, None) is None:
            return  # it was not taken
        host = connection.peer_host
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def _share(self, connection: "ServerConnection") -> int:
        """Return what a connection may hold whatever others do: each peer has the same share, for all its connections.

        Without it one peer that begins a large request and goes silent would stop everybody else's.
        """
        hosts = dict.fromkeys(one.peer_host for one in self._unfinished.values())
        hosts[connection.peer_host] = None
        own = sum(one.peer_host == connection.peer_host for one in self._unfinished.values())
        return self.limits.queued_bytes_max // len(hosts) // max(1, own)

    def _may_go_on(self) -> "list[ServerConnection]":
        if self.held_bytes <= self.limits.queued_bytes_max:
            return list(self._waiting.values())
        if self.unanswered_bytes == 0:  # no answer will free memory: the longest unfinished may finish
            return list(self._unfinished.values())[:1]
        return []


class ServerConnection(Incoming):
    """One connection: its unread bytes, its unanswered requests in order."""

    def __init__(self, server: Server, connection_id: int, entrance: Entrance) -> None:
        self.connection_id = connection_id
        self.entrance = entrance
        self.principal = ANONYMOUS_USER
        self.peer_host = ""
        self.unanswered_bytes = 0
        self.noted_held_bytes = 0  # what the server has counted of it
        self.noted_unanswered_bytes = 0
        self._server = server
        self._login = None if entrance.sasl is None else Login(entrance.sasl)
        self._apis = server.apis if self._login is None else {**server.apis, **SASL_APIS}
        largest = server.limits.request_bytes_max
        self._frames = Frames(largest if self._login is None else min(largest, TOKEN_BYTES_MAX))
        self._pending: deque[AnyRequest] = deque()
        self._transport: asyncio.Transport | None = None
        self._is_accepted = False
        self._closed = False
        self._has_failed = False  # to log in
        self._reading = True
        self._is_held = False  # one of its requests is worked on in turns
        self._writable = True
        self._handling = False
        self._unwritten_bytes = 0  # of answers that wait for the end of the requests in hand
        self._idle_timer: asyncio.TimerHandle | None = None
        self._progress_timer: asyncio.TimerHandle | None = None  # while a request is unfinished
        self._mute_timer: asyncio.TimerHandle | None = None  # while its peer has used more than his quota
        self._peer_timer: asyncio.TimerHandle | None = None  # while it is not read
        self._progress_bytes = 0  # held when it was set
        self._active_ns = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of requests that are unfinished or unanswered."""
        return 0 if self._closed else self._frames.held_bytes + self.unanswered_bytes

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that wait in this process for the peer to read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # asyncio.Protocol

    def connection_accepted(self, host: str) -> bool:
        """Count it, if there may be one more; with TLS its handshake is still ahead."""
        self.peer_host = host
        self._is_accepted = True
        refusal = self._server.admit(self)
        if refusal is not None:
            self._server.lines.log("info", f"took no connection from {host}: {refusal}")
            self._end()
        return refusal is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        if not self._is_accepted:
            peer = transport.get_extra_info("peername")
            self.connection_accepted(str(peer[0]) if peer else "")
        if self._closed:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=self._server.limits.reply_buffer_bytes_max)
        if self.entrance.has_tls and self._login is None and not self._is_named(transport.get_extra_info("peercert")):
            return
        self._active_ns = self._server.world.clock.now_ns()
        self._watch_idleness(self._server.limits.idle_ms_max)

    def _is_named(self, certificate: Mapping[str, object] | None) -> bool:
        """Take the name in a certificate; without one that a rule fits nobody gets in."""
        name = distinguished_name(certificate)
        principal = principal_of(name, self.entrance.rules)
        if principal is None:
            self.refuse(f"no rule of ssl.principal.mapping.rules fits {name!r}")
            return False
        self.principal = principal
        return True

    def data_received(self, data: bytes) -> None:
        """Take bytes and hand out the requests that are whole."""
        if self._closed:
            return
        self._active_ns = self._server.world.clock.now_ns()
        self._frames.feed(data)
        self._handle_frames()

    def pause_writing(self) -> None:
        """Read no more requests while the peer does not read replies."""
        self._writable = False
        self._server.choke(self)
        self._adjust_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._writable = True
        self._server.unchoke(self)
        self._write_answers()
        self._handle_frames()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        self._server.leaving.pop(self.connection_id, None)
        if self._server.on_connection_lost is not None:
            self._server.on_connection_lost(self.connection_id)
        self._end()
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    # requests

    def go_on(self) -> None:
        """Read again after memory was freed; not from within whoever freed it."""
        asyncio.get_running_loop().call_soon(self._handle_frames)

    def _handle_frames(self) -> None:
        """Hand out whole frames as long as more requests may be pending."""
        if self._handling:
            return  # an answer given at once: the loop below goes on
        self._handling = True
        try:
            clock = self._server.world.clock
            until_ns = clock.now_ns() + TURN_NS
            while self._frames.held_bytes and not self._closed and self._has_room():
                if clock.now_ns() > until_ns:
                    self.go_on()
                    break
                frame = self._frames.next_frame()
                if frame is None:
                    self._refuse_unknown_api()
                    break
                self._handle_frame(frame)
        except MalformedMessage as problem:
            self.refuse(str(problem))
        except Exception as problem:  # noqa: BLE001  # a mistake of ours costs this connection, no more
            contain(self._server.world.journal, "a connection", problem)
            self.refuse(f"{type(problem).__name__} in what it sent")
        finally:
            self._handling = False
        self._write_answers()
        self._server.account(self)
        self._adjust_reading()
        if self._frames.held_bytes or self._progress_timer is not None:
            self._watch_progress()

    def _has_room(self) -> bool:
        """Return whether one more request may be taken; answers that only wait to be written make room."""
        if self._may_take_requests():
            return True
        self._write_answers()
        return self._may_take_requests()

    def _may_take_requests(self) -> bool:
        has_place = len(self._pending) < self._server.limits.pending_requests_max
        is_free = not self._has_failed and not self._is_held and self._mute_timer is None
        return self._writable and has_place and is_free

    def hold(self) -> None:
        """Take no more requests until `release`."""
        self._is_held = True

    def release(self) -> None:
        """Go on, if it is held; not from within whoever released it."""
        if self._is_held:
            self._is_held = False
            self.go_on()

    def mute(self, delay_ms: int) -> None:
        """Take no more requests for a while; two at once hold for the longer one."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + delay_ms / 1000
        if self._closed or (self._mute_timer is not None and self._mute_timer.when() >= until_s):
            return
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        self._mute_timer = loop.call_at(until_s, self._unmute)

    def _unmute(self) -> None:
        self._mute_timer = None
        self._active_ns = self._server.world.clock.now_ns()  # it was us who kept it idle
        self._handle_frames()

    def _handle_frame(self, frame: memoryview) -> None:
        login = self._login
        if login is not None and login.stage is Stage.BARE_TOKENS:
            self._take_bare_token(login, frame)
            return
        start = request_start(frame)
        api = _api(start.api_key)
        if login is not None and not login.admits(api, self._server.world.clock.now_ms()):
            raise MalformedMessage(f"{api.name} before anybody has logged in, or after his time is over")
        offered = self._apis.get(api) or REFUSED_APIS.get(api)
        if offered is None or not offered.first <= start.version <= offered.last:
            if api is not Api.API_VERSIONS:
                raise MalformedMessage(f"{api.name} version {start.version} is not offered here")
            self._write_now(encode_response(Api.API_VERSIONS, 0, start.correlation_id, self._api_versions_refused()))
            return
        request: AnyRequest = ServerRequest(self, api, start, frame)
        self._pending.append(request)
        self.unanswered_bytes += request.size_bytes
        if api is Api.API_VERSIONS:
            request.reply(self._api_versions(request.version))
        elif api not in self._apis:
            request.reply(refusal_of(api, request.body))
        elif login is not None and api in SASL_APIS:
            self._log_in(login, request)
        else:
            self._server.handler(request)

    def _log_in(self, login: Login, request: AnyRequest) -> None:
        """Go on with SASL; who fails is told so, and closed."""
        now_ms = self._server.world.clock.now_ms()
        answer: msgspec.Struct
        if isinstance(request.body, SaslHandshakeRequest):
            answer = login.handshake(request.body, request.version)
        else:
            assert isinstance(request.body, SaslAuthenticateRequest)
            answer = login.authenticate(request.body, now_ms)
        if login.failure is None:
            request.reply(answer)
        self._logged_in(login, lambda: request.reply(answer))

    def _take_bare_token(self, login: Login, frame: memoryview) -> None:
        answer = login.token(bytes(frame), self._server.world.clock.now_ms())
        if login.failure is None and self._transport is not None:
            self._transport.write(LENGTH.pack(len(answer)) + answer)
        self._logged_in(login, lambda: None)

    def _logged_in(self, login: Login, answer: Callable[[], None]) -> None:
        if login.failure is not None:
            self._refuse_later(login.failure, answer)
        elif login.stage is Stage.DONE:
            self.principal = f"User:{login.user}"
            self._frames.permit(self._server.limits.request_bytes_max)

    def _refuse_later(self, reason: str, answer: Callable[[], None]) -> None:
        """Let who failed to log in wait for the answer, and take nothing more of him: so he guesses slowly."""

        def end() -> None:
            if not self._closed:
                answer()
                self.refuse(reason)

        self._has_failed = True
        asyncio.get_running_loop().call_later(self._server.limits.failed_login_delay_ms / 1000, end)

    def _refuse_unknown_api(self) -> None:
        """Look at the beginning of an unfinished frame: no need to wait for the rest of garbage."""
        if self._login is not None and self._login.stage is Stage.BARE_TOKENS:
            return  # it begins with no header
        beginning = self._frames.beginning(REQUEST_START_BYTES)
        if beginning is None:
            return
        api = _api(request_start(beginning).api_key)
        if api not in self._apis and api not in REFUSED_APIS:
            raise MalformedMessage(f"{api.name} is not offered here")

    # answers

    def answered(self, size_bytes: int) -> None:
        """Write what can be written, in the order of the requests.

        Small answers to requests that came in one piece of bytes leave in one piece: a system call
        costs more than a whole produce of one record.
        """
        self._unwritten_bytes += size_bytes
        if self._handling and self._unwritten_bytes < UNWRITTEN_BYTES_MAX:
            return
        self._write_answers()
        if not self._handling:
            self._handle_frames()

    def _write_answers(self) -> None:
        self._unwritten_bytes = 0
        if not self._pending:
            return
        frames = []
        freed = 0
        while self._writable and self._pending:
            frame = self._pending[0].take_frame()
            if frame is None:
                break
            freed += self._pending.popleft().size_bytes
            if frame:
                frames.append(frame)
        if not freed:
            return
        self._active_ns = self._server.world.clock.now_ns()
        if frames and self._transport is not None:
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        self.unanswered_bytes -= freed

    def _write_now(self, frame: bytes) -> None:
        """Answer a request that could not be read; only as the first request of a connection this keeps the order."""
        self._write_answers()
        if self._pending:
            raise MalformedMessage("ApiVersions of an unknown version behind other requests")
        if self._transport is not None:
            self._transport.write(frame)

    def _api_versions(self, version: int) -> ApiVersionsResponse:
        answer = self._server.features()
        supported = answer.supported_features
        if version <= LAST_VERSION_WITHOUT_FEATURE_LEVEL_ZERO:
            supported = [_without_level_zero(feature) for feature in supported]
        return msgspec.structs.replace(answer, api_keys=self._offered(), supported_features=supported)

    def _api_versions_refused(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=self._offered())

    def _offered(self) -> list[ApiVersion]:
        finalized = {one.name for one in self._server.features().finalized_features if one.max_version_level > 0}
        return [
            ApiVersion(api_key=api, min_version=versions.first, max_version=versions.last)
            for api, versions in sorted(self._apis.items())
            if api not in FEATURE_OF or FEATURE_OF[api] in finalized
        ]

    # reading, closing

    def _adjust_reading(self) -> None:
        if self._closed or self._transport is None:
            return
        wanted = self._may_take_requests() and not self._server.is_waiting(self)
        if wanted and not self._reading:
            self._transport.resume_reading()
            if self._progress_timer is not None:  # what was not read is nobody's delay: its time begins now
                self._progress_timer.cancel()
                self._progress_timer = None
        elif self._reading and not wanted:
            self._transport.pause_reading()
            self._watch_peer(self._transport)
        self._reading = wanted

    def _watch_peer(self, transport: asyncio.Transport) -> None:
        """Look after whoever is not read: where nothing is read nobody notices that the other end is gone.

        Answers may be owed, or a quota may forbid to read, for days; who goes away meanwhile would cost us the descriptor for as long.
        """
        if self._peer_timer is None and self._server.world.network.peering(transport) is not None:
            self._peer_timer = asyncio.get_running_loop().call_later(LOOK_MS / 1000, self._look_after_peer)

    def _look_after_peer(self) -> None:
        self._peer_timer = None
        if self._closed or self._reading or self._transport is None:
            return
        peering = self._server.world.network.peering(self._transport)
        idle_ms = (self._server.world.clock.now_ns() - self._active_ns) // 1_000_000
        if peering is Peering.GONE or (peering is Peering.FINISHED and idle_ms >= self._server.limits.idle_ms_max):
            self._server.world.journal.log("debug", f"{self.peer_host} is gone, and was not read")
            self.abort()
        else:
            self._watch_peer(self._transport)

    def refuse(self, reason: str) -> None:
        """Close, and say why."""
        if not self._closed:
            self._write_answers()
            self._server.lines.log("warning", f"closed connection from {self.peer_host}: {reason}")
            self.drop()

    def drop(self) -> None:
        """Close without a word; answers that are written already still leave, if the peer reads them soon."""
        self._end()
        if self._transport is not None:
            self._transport.close()
            self._server.leaving[self.connection_id] = self._transport
            # A peer that never reads would keep the descriptor, and the answers, for ever.
            farewell_ms = self._server.limits.farewell_ms
            self._idle_timer = asyncio.get_running_loop().call_later(farewell_ms / 1000, self._transport.abort)

    def abort(self) -> None:
        """Close at once; what the peer has not read is lost."""
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def _end(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._server.unchoke(self)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._progress_timer is not None:
            self._progress_timer.cancel()
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        if self._peer_timer is not None:
            self._peer_timer.cancel()
        for request in self._pending:
            request.give_up()
        self._pending.clear()
        self.unanswered_bytes = 0
        self._server.account(self)
        self._server.forget(self)

    def _watch_progress(self) -> None:
        """Give an unfinished request so much time for its next part."""
        held_bytes = self._frames.held_bytes
        if self._progress_timer is not None:
            if held_bytes and 0 <= held_bytes - self._progress_bytes < PROGRESS_BYTES:
                return
            self._progress_timer.cancel()
            self._progress_timer = None
        if held_bytes and not self._closed:
            self._progress_bytes = held_bytes
            delay_s = self._server.limits.progress_ms_max / 1000
            self._progress_timer = asyncio.get_running_loop().call_later(delay_s, self._close_if_stuck)

    def _close_if_stuck(self) -> None:
        self._progress_timer = None
        if self._reading:  # whatever is unanswered: what waits for room here would keep us from reading
            self.refuse(f"{self._frames.held_bytes} bytes of a request, and its rest does not come")
        else:
            self._watch_progress()  # it waits for us

    def _watch_idleness(self, delay_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(delay_ms / 1000, self._close_if_idle)

    def _close_if_idle(self) -> None:
        idle_ms = (self._server.world.clock.now_ns() - self._active_ns) // 1_000_000
        limit_ms = self._server.limits.idle_ms_max
        if self._pending and self._writable:
            self._watch_idleness(limit_ms)  # it waits for us
        elif idle_ms < limit_ms:
            self._watch_idleness(limit_ms - idle_ms)
        else:
            self._server.world.journal.log("debug", f"closed idle connection from {self.peer_host}")
            self.abort()


def _api(key: int) -> Api:
    api = APIS.get(key)
    if api is None:
        raise MalformedMessage(f"unknown api key {key}")
    return api


def _without_level_zero(feature: SupportedFeatureKey) -> SupportedFeatureKey:
    return msgspec.structs.replace(feature, min_version=max(1, feature.min_version))
