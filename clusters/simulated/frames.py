"""Kafka's messages on simulated connections, and how those that rules delay, drop, double and hold travel.

Connections carry Kafka's frames (a 4-byte length, then a request or response). While `on`, every write is cut into
frames; a request is known by its header, a response by the request it answers. What becomes of a frame is decided by
`frame_rules.py`. TCP keeps order, so frames behind a held one on the same connection wait with it,
unless the rule says that others may overtake (as if it had gone over another connection). What is held arrives
even if its sender has closed the connection or died meanwhile, as a request does that waits in the receiver's queue.

Observers see every frame with its fate: the `requests` table of the recording is made of that.
"""

from collections.abc import Callable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Final

from replog.wire.apis import Api
from replog.wire.codec import MalformedMessage, decode_request
from replog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from tribunal.clusters.api import CLIENTS
from tribunal.clusters.capabilities import Fate, FrameRule
from tribunal.clusters.frame_rules import UNASKED, Gate, Questions, Rule, Rules
from tribunal.clusters.links.requests import FLOWING
from tribunal.clusters.simulated.process import NS_PER_MS

if TYPE_CHECKING:
    from tribunal.clusters.simulated.loop import SimulatedLoop
    from tribunal.clusters.simulated.transport import SimulatedTransport

LENGTH_BYTES: Final = 4
REQUEST_START: Final = Struct(">ihhi")  # length, api key, version, correlation id
RESPONSE_START: Final = Struct(">ii")


class Frame:
    """One request or response on its way."""

    __slots__ = ("api", "correlation_id", "data", "is_request", "rule", "source", "target", "transport", "version")

    def __init__(
        self, transport: "SimulatedTransport", data: bytes, identity: tuple[int, int], *, source: int, target: int
    ) -> None:
        self.transport = transport
        self.data = data
        self.is_request = transport.is_client
        self.api, self.version = identity
        self.source = source
        self.target = target
        self.rule: Rule | None = None
        at = 8 if self.is_request else 4
        self.correlation_id = int.from_bytes(data[at : at + 4], "big")


def request_body(frame: Frame) -> object:
    """Return what a request says; None of one that cannot be read, as its receiver will say."""
    try:
        return decode_request(memoryview(frame.data)[LENGTH_BYTES:]).body
    except MalformedMessage:
        return None


def metadata_offset_of(frame: Frame) -> int | None:
    """Return how far a broker knows the metadata, by its heartbeat; None of any other message, and of one that cannot be read."""
    if not frame.is_request or frame.api != Api.BROKER_HEARTBEAT:
        return None
    body = request_body(frame)
    return body.current_metadata_offset if isinstance(body, BrokerHeartbeatRequest) else None


class Held:
    """A frame that waits, and the rest of its connection behind it."""

    def __init__(self, rule: Rule, frame: Frame, stream: "FrameStream") -> None:
        self.frame = frame
        self.overtaken = rule.rule.overtaking
        self.gate: Gate = rule.gate(self._go_on)
        self._stream = stream

    def _go_on(self) -> None:
        if self.overtaken:
            self._stream.aside_count -= 1
            self._stream.transport.send(self.frame.data)
        self._stream.move()


def _nobody_listens(frame: Frame, fate: Fate) -> None:
    """Take a message, and forget it."""


class FrameStream:
    """One direction of a connection: cuts bytes into frames, and keeps what waits."""

    def __init__(self, transport: "SimulatedTransport", questions: Questions) -> None:
        self.transport = transport
        self.questions = questions  # of both directions
        self._rest = b""
        self.aside_count = 0  # held frames that others may overtake
        self._queue: list[bytes | Held | None] = []  # None: the end of the stream

    def frames(self, data: bytes) -> list[bytes]:
        """Return the whole frames that these bytes complete."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        size = len(data)
        if size >= LENGTH_BYTES and LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big") == size:
            return [data]
        found, position = [], 0
        while size - position >= LENGTH_BYTES:
            end = position + LENGTH_BYTES + int.from_bytes(data[position : position + LENGTH_BYTES], "big")
            if end > size:
                break
            found.append(data[position:end])
            position = end
        self._rest = data[position:]
        return found

    def is_plain(self) -> bool:
        """Return whether nothing waits here, and no answer is one too many: mostly so."""
        return not (self.questions.doubled or self._queue or self._rest)

    def put(self, item: "bytes | Held | None") -> None:
        """Send a frame, or the end of the stream, behind what waits."""
        self._queue.append(item)
        self.move()

    def waits(self) -> bool:
        """Return whether something is held."""
        return bool(self._queue or self.aside_count)

    def move(self) -> None:
        """Send what no longer waits."""
        queue = self._queue
        while queue:
            item = queue[0]
            if item is None:
                if self.aside_count:
                    return
                self.transport.send_end()
            elif isinstance(item, bytes):
                self.transport.send(item)
            elif not item.gate.is_open:
                return
            else:
                self.transport.send(item.frame.data)
            queue.pop(0)


def stream_of(transport: "SimulatedTransport") -> FrameStream:
    """Return what is known of the bytes that this end sends."""
    if transport.stream is None:
        other = transport.peer.stream
        transport.stream = FrameStream(transport, Questions() if other is None else other.questions)
    return transport.stream


class NetworkFrames:
    """All frames of a network, its rules and observers.

    nodes:       which node lives on the machine of this name; all others are clients.
    on_message:  gets the messages that do not flow all the time, and those that a rule decided on.
    dropped_ns:  when the last message between these two nodes was dropped, whoever sent it; by both, the smaller one first.
    """

    def __init__(self, loop: "SimulatedLoop") -> None:
        self.on = False
        self.rules = Rules()
        self.observers: list[Callable[[Frame, Fate], None]] = []
        self.on_message: Callable[[Frame, Fate], None] = _nobody_listens
        self.nodes: Mapping[str, int] = {}
        self.dropped_ns: dict[tuple[int, int], int] = {}
        self._loop = loop

    def add(self, rule: FrameRule) -> Rule:
        """Ask this rule from now on, after those before it."""
        assert self.on, "frames are cut from a connection's first byte on, or not at all"
        return self.rules.add(rule)

    def write(self, transport: "SimulatedTransport", data: bytes) -> None:
        """Take what an application writes; pass on what the rules leave."""
        stream = transport.stream or stream_of(transport)
        if not (self.rules.in_force or self.observers) and stream.is_plain() and self._goes_whole(stream, data):
            transport.send(data)
            return
        for frame_bytes in stream.frames(data):
            identity = self._identity(stream, frame_bytes)
            if identity[0] < 0 and self._is_surplus(stream, frame_bytes):
                continue
            if self.rules.in_force or self.observers:
                self._decide(stream, self._frame(transport, frame_bytes, identity))
            else:
                stream.put(frame_bytes)

    def _frame(self, transport: "SimulatedTransport", data: bytes, identity: tuple[int, int]) -> Frame:
        source = self.nodes.get(transport.host.name, CLIENTS)
        target = self.nodes.get(transport.peer.host.name, CLIENTS)
        return Frame(transport, data, identity, source=source, target=target)

    def _goes_whole(self, stream: FrameStream, data: bytes) -> bool:
        """Take note of bytes that are exactly one frame, as mostly they are; False for others."""
        transport = stream.transport
        if len(data) < (REQUEST_START if transport.is_client else RESPONSE_START).size:
            return False
        if transport.is_client:
            length, api, version, correlation_id = REQUEST_START.unpack_from(data)
            if LENGTH_BYTES + length != len(data):
                return False
            identity = (api, version)
            stream.questions.ask(correlation_id, identity)
        else:
            length, correlation_id = RESPONSE_START.unpack_from(data)
            if LENGTH_BYTES + length != len(data):
                return False
            identity = stream.questions.answer(correlation_id)
        if identity[0] not in FLOWING:
            self.on_message(self._frame(transport, data, identity), Fate.DELIVERED)
        return True

    def _identity(self, stream: FrameStream, data: bytes) -> tuple[int, int]:
        """Return api key and version, (-1, -1) for an answer to an unknown question."""
        if len(data) < REQUEST_START.size and (stream.transport.is_client or len(data) < RESPONSE_START.size):
            return UNASKED  # garbage: whoever gets it will say so
        if stream.transport.is_client:
            _, api, version, correlation_id = REQUEST_START.unpack_from(data)
            stream.questions.ask(correlation_id, (api, version))
            return api, version
        return stream.questions.answer(RESPONSE_START.unpack_from(data)[1])

    def _is_surplus(self, stream: FrameStream, data: bytes) -> bool:
        """Return whether this is the second answer to a doubled request."""
        return not stream.transport.is_client and stream.questions.swallows(int.from_bytes(data[4:8], "big"))

    def _decide(self, stream: FrameStream, frame: Frame) -> None:
        rule = self.rules.decide(frame)
        fate = rule.rule.fate if rule is not None else Fate.DELIVERED
        for observe in self.observers:
            observe(frame, fate)
        if rule is not None or frame.api not in FLOWING:
            self.on_message(frame, fate)
        if rule is None:
            stream.put(frame.data)
            return
        self._loop.note(fate, frame.transport.number, frame.api, frame.correlation_id)
        self._carry_out(rule, stream, frame)

    def _carry_out(self, rule: Rule, stream: FrameStream, frame: Frame) -> None:
        match rule.rule.fate:
            case Fate.DROPPED:
                self.dropped_ns[min(frame.source, frame.target), max(frame.source, frame.target)] = self._loop.now_ns
            case Fate.DUPLICATED:
                if frame.is_request:
                    stream.questions.double(frame.correlation_id)
                stream.put(frame.data)
                stream.put(frame.data)
            case Fate.DELIVERED:
                stream.put(frame.data)
            case Fate.HELD | Fate.DELAYED:
                held = Held(rule, frame, stream)
                if held.overtaken:
                    stream.aside_count += 1
                else:
                    stream.put(held)
                if rule.rule.fate is Fate.DELAYED:
                    due_ns = self._loop.now_ns + rule.rule.delay_ms * NS_PER_MS
                    self._loop.call_at_ns(due_ns, held.gate.open, process=frame.transport.host.kernel)
