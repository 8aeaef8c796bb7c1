"""Faults on single Kafka messages: delay, drop, duplicate, hold and release, by API, direction and predicate.

Connections carry Kafka's frames (a 4-byte length, then a request or response). While `on`, every write is cut into
frames; a request is known by its header, a response by the request it answers. Rules are asked in order; the first
that wants a frame decides its fate. TCP keeps order, so frames behind a held one on the same connection wait with it,
unless the rule says that others may overtake (as if it had gone over another connection). What is held arrives
even if its sender has closed the connection or died meanwhile, as a request does that waits in the receiver's queue.

Observers see every frame with its fate: the `requests` table of the recording is made of that.
"""

from collections.abc import Callable
from enum import StrEnum
from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tribunal.clusters.simulated.loop import SimulatedLoop
    from tribunal.clusters.simulated.transport import SimulatedTransport

LENGTH_BYTES: Final = 4
REQUEST_START: Final = Struct(">ihhi")  # length, api key, version, correlation id
RESPONSE_START: Final = Struct(">ii")
NOT_ASKED: Final = (-1, -1)
# Produce, Fetch, Metadata, ApiVersions and garbage (-1): most of all messages; nobody is told unless a rule decides.
FLOWING: Final = frozenset({0, 1, 3, 18, -1})


class Fate(StrEnum):
    """What became of a frame (docs/recording-format.md, requests)."""

    DELIVERED = "delivered"
    DELAYED = "delayed"
    DROPPED = "dropped"
    HELD = "held"
    DUPLICATED = "duplicated"


class Frame:
    """One request or response on its way."""

    __slots__ = ("api", "correlation_id", "data", "is_request", "transport", "version")

    def __init__(self, transport: "SimulatedTransport", data: bytes, api: int, version: int) -> None:
        self.transport = transport
        self.data = data
        self.is_request = transport.is_client
        self.api = api
        self.version = version
        at = 8 if self.is_request else 4
        self.correlation_id = int.from_bytes(data[at : at + 4], "big")

    @property
    def source(self) -> str:
        """Name of the machine that sends it."""
        return self.transport.host.name

    @property
    def target(self) -> str:
        """Name of the machine it goes to."""
        return self.transport.peer.host.name


class Rule:
    """Who decides what becomes of frames. Remove it with `FrameRules.remove`; held frames then go on."""

    def __init__(
        self,
        wants: Callable[[Frame], bool],
        fate: Fate,
        *,
        delay_ns: int = 0,
        limit: int | None = None,
        overtaking: bool = False,
    ) -> None:
        self.wants = wants
        self.fate = fate
        self.delay_ns = delay_ns
        self.left = limit
        self.overtaking = overtaking
        self.hit_count = 0
        self.held: list[Held] = []
        self._delayed: list[Held] = []

    @property
    def held_count(self) -> int:
        """How many frames wait now."""
        return len(self.held) + sum(one.waiting for one in self._delayed)

    def take_waiting(self) -> list["Held"]:
        """Hand over all that waits."""
        waiting = [one for one in (*self.held, *self._delayed) if one.waiting]
        self.held, self._delayed = [], []
        return waiting

    def delays(self, held: "Held") -> None:
        """Remember a frame that waits for its time."""
        self._delayed = [one for one in self._delayed if one.waiting]
        self._delayed.append(held)

    def takes(self, frame: Frame) -> bool:
        """Tell whether this rule decides, and count it."""
        if self.left == 0 or not self.wants(frame):
            return False
        self.hit_count += 1
        if self.left is not None:
            self.left -= 1
        return True


class Held:
    """A frame that waits, and the rest of its connection behind it."""

    def __init__(self, frame: Frame, stream: "FrameStream", *, overtaking: bool) -> None:
        self.frame = frame
        self.stream = stream
        self.overtaking = overtaking
        self.waiting = True


def _nobody_listens(transport: "SimulatedTransport", api: int, version: int, correlation_id: int, fate: Fate) -> None:
    """Hear of a message, and forget it."""


class FrameStream:
    """One direction of a connection: cuts bytes into frames, and keeps what waits."""

    def __init__(self, transport: "SimulatedTransport") -> None:
        self.transport = transport
        self.doubled: dict[int, int] = {}  # correlation id -> answers too many (at the client's end)
        self.pending: dict[int, tuple[int, int]] = {}  # correlation id -> api, version (at the client's end)
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
        """Tell whether nothing waits here, and no answer is one too many: mostly so."""
        if self.doubled or self._queue or self._rest:
            return False
        other = self.transport.peer.stream
        return other is None or not other.doubled

    def put(self, item: "bytes | Held | None") -> None:
        """Send a frame, or the end of the stream, behind what waits."""
        self._queue.append(item)
        self.move()

    def waits(self) -> bool:
        """Tell whether something is held."""
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
            elif item.waiting:
                return
            else:
                self.transport.send(item.frame.data)
            queue.pop(0)


def stream_of(transport: "SimulatedTransport") -> FrameStream:
    """Return what is known of the bytes that this end sends."""
    if transport.stream is None:
        transport.stream = FrameStream(transport)
    return transport.stream


class FrameRules:
    """The rules and observers of a network."""

    def __init__(self, loop: "SimulatedLoop") -> None:
        self.on = False
        self.observers: list[Callable[[Frame, Fate], None]] = []
        self.on_message: Callable[[SimulatedTransport, int, int, int, Fate], None] = _nobody_listens
        self._loop = loop
        self._rules: list[Rule] = []

    def add(self, rule: Rule) -> Rule:
        """Ask this rule from now on, after those before it."""
        assert self.on, "frames are cut from a connection's first byte on, or not at all"
        self._rules.append(rule)
        return rule

    def remove(self, rule: Rule) -> int:
        """Ask it no more; what it held goes on. Return how many frames that were."""
        if rule in self._rules:
            self._rules.remove(rule)
        return self.release(rule)

    def release(self, rule: Rule) -> int:
        """Let go on what a rule has held up to now; return how many frames."""
        held = rule.take_waiting()
        for one in held:
            self._let_go(one)
        return len(held)

    def write(self, transport: "SimulatedTransport", data: bytes) -> None:
        """Take what an application writes; pass on what the rules leave."""
        stream = transport.stream or stream_of(transport)
        if not (self._rules or self.observers) and stream.is_plain() and self._goes_whole(stream, data):
            transport.send(data)
            return
        for frame_bytes in stream.frames(data):
            api, version = self._identity(stream, frame_bytes)
            if api < 0 and self._is_surplus(stream, frame_bytes):
                continue
            if self._rules or self.observers:
                self._decide(stream, Frame(transport, frame_bytes, api, version))
            else:
                stream.put(frame_bytes)

    def _goes_whole(self, stream: FrameStream, data: bytes) -> bool:
        """Take note of bytes that are exactly one frame, as mostly they are; False for others."""
        transport = stream.transport
        if len(data) < (REQUEST_START if transport.is_client else RESPONSE_START).size:
            return False
        if transport.is_client:
            length, api, version, correlation_id = REQUEST_START.unpack_from(data)
            if LENGTH_BYTES + length != len(data):
                return False
            stream.pending[correlation_id] = (api, version)
        else:
            length, correlation_id = RESPONSE_START.unpack_from(data)
            if LENGTH_BYTES + length != len(data):
                return False
            api, version = stream_of(transport.peer).pending.pop(correlation_id, NOT_ASKED)
        if api not in FLOWING:
            self.on_message(transport, api, version, correlation_id, Fate.DELIVERED)
        return True

    def _identity(self, stream: FrameStream, data: bytes) -> tuple[int, int]:
        """Return api key and version, (-1, -1) for an answer to an unknown question."""
        if len(data) < REQUEST_START.size and (stream.transport.is_client or len(data) < RESPONSE_START.size):
            return NOT_ASKED  # garbage: whoever gets it will say so
        if stream.transport.is_client:
            _, api, version, correlation_id = REQUEST_START.unpack_from(data)
            identity = stream.pending[correlation_id] = (api, version)
            return identity
        asked = stream_of(stream.transport.peer).pending
        return asked.pop(RESPONSE_START.unpack_from(data)[1], NOT_ASKED)

    def _is_surplus(self, stream: FrameStream, data: bytes) -> bool:
        """Swallow the second answer to a doubled request: clients take an answer they did not ask for as garbage."""
        doubled = stream_of(stream.transport.peer).doubled
        correlation_id = int.from_bytes(data[4:8], "big")
        if not doubled.get(correlation_id):
            return False
        doubled[correlation_id] -= 1
        return True

    def _decide(self, stream: FrameStream, frame: Frame) -> None:
        rule = next((rule for rule in self._rules if rule.takes(frame)), None)
        fate = rule.fate if rule is not None else Fate.DELIVERED
        for observe in self.observers:
            observe(frame, fate)
        if rule is not None or frame.api not in FLOWING:
            self.on_message(frame.transport, frame.api, frame.version, frame.correlation_id, fate)
        if rule is None:
            stream.put(frame.data)
            return
        self._loop.note(fate, frame.transport.number, frame.api, frame.correlation_id)
        self._carry_out(rule, stream, frame)

    def _carry_out(self, rule: Rule, stream: FrameStream, frame: Frame) -> None:
        match rule.fate:
            case Fate.DROPPED:
                return
            case Fate.DUPLICATED:
                if frame.is_request:
                    stream.doubled[frame.correlation_id] = stream.doubled.get(frame.correlation_id, 0) + 1
                stream.put(frame.data)
                stream.put(frame.data)
            case Fate.DELIVERED:
                stream.put(frame.data)
            case Fate.HELD | Fate.DELAYED:
                held = Held(frame, stream, overtaking=rule.overtaking)
                if rule.overtaking:
                    stream.aside_count += 1
                else:
                    stream.put(held)
                if rule.fate is Fate.HELD:
                    rule.held.append(held)
                else:
                    rule.delays(held)
                    due_ns = self._loop.now_ns + rule.delay_ns
                    self._loop.call_at_ns(due_ns, self._let_go, held, process=frame.transport.host.kernel)

    def _let_go(self, held: Held) -> None:
        if not held.waiting:
            return  # released before its time
        held.waiting = False
        if held.overtaking:
            held.stream.aside_count -= 1
            held.stream.transport.send(held.frame.data)
        held.stream.move()
