"""Kafka's messages in a stream of bytes.

A `Cutter` cuts what flows over one direction of a connection into frames (a 4-byte length, then a message) without
waiting for complete ones: a frame's head says all that a rule wants to know. A request is known by its own head, a
response by the request it answers. Bytes that are no frames make the cutter blind: they pass, and no rule sees them.

No sockets, no clocks: what becomes of a message is decided by `frame_rules.py` and carried out by `relay.py`.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from tribunal.clusters.capabilities import Fate
from tribunal.clusters.frame_rules import UNKNOWN, Gate, Questions, Rule, Rules

LENGTH_BYTES: Final = 4
REQUEST_HEAD_BYTES: Final = 12  # length, api key, version, correlation id
RESPONSE_HEAD_BYTES: Final = 8  # length, correlation id
FRAME_BYTES_MAX: Final = 1 << 27


class Head:
    """One message on its way: who asks what, and what was decided about it."""

    __slots__ = (
        "api",
        "correlation_id",
        "gate",
        "is_request",
        "parts",
        "rule",
        "source",
        "swallowed",
        "target",
        "version",
    )

    def __init__(
        self, *, api: int, correlation_id: int, is_request: bool, source: int, target: int, version: int = UNKNOWN
    ) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.is_request = is_request
        self.source = source
        self.target = target
        self.rule: Rule | None = None
        self.gate: Gate | None = None
        self.swallowed = False
        self.parts: list[bytes] = []

    def decide(self, rules: Rules, on_open: Callable[[], None]) -> None:
        """Let the rules decide; what is no message passes. `on_open`: it may go on, if it was held."""
        rule = rules.decide(self) if self.api != UNKNOWN else None
        if rule is not None and rule.rule.fate is Fate.HELD:
            self.gate = rule.gate(on_open)


class Piece(NamedTuple):
    """Bytes of one message."""

    head: Head
    data: bytes
    is_first: bool
    is_last: bool


class Conversation:
    """What is said over one connection."""

    def __init__(self, caller: int, target: int) -> None:
        self.caller = caller
        self.target = target
        self.questions = Questions()

    def request(self, head: bytes) -> Head:
        """Return what a request's first bytes say."""
        known = len(head) == REQUEST_HEAD_BYTES
        api = int.from_bytes(head[4:6]) if known else UNKNOWN
        version = int.from_bytes(head[6:8]) if known else UNKNOWN
        correlation_id = int.from_bytes(head[8:12]) if known else UNKNOWN
        if known:
            self.questions.ask(correlation_id, (api, version))
        return Head(
            api=api,
            version=version,
            correlation_id=correlation_id,
            is_request=True,
            source=self.caller,
            target=self.target,
        )

    def response(self, head: bytes) -> Head:
        """Return what a response's first bytes say; the second answer to a doubled request is to be swallowed."""
        correlation_id = int.from_bytes(head[4:8]) if len(head) == RESPONSE_HEAD_BYTES else UNKNOWN
        api, version = self.questions.answer(correlation_id)
        found = Head(
            api=api,
            version=version,
            correlation_id=correlation_id,
            is_request=False,
            source=self.target,
            target=self.caller,
        )
        found.swallowed = api == UNKNOWN and self.questions.swallows(correlation_id)
        return found


class Cutter:
    """One direction of one connection."""

    def __init__(self, identify: Callable[[bytes], Head], head_bytes: int) -> None:
        self._identify = identify
        self._head_bytes = head_bytes
        self._rest = b""
        self._head: Head | None = None
        self._left = 0
        self._blind: Head | None = None

    @property
    def at_boundary(self) -> bool:
        """Whether the next byte begins a message."""
        return self._left == 0 and not self._rest and self._blind is None

    def feed(self, data: bytes) -> list[Piece]:
        """Return the pieces of messages that these bytes are; the beginning of a head waits for its rest."""
        if self._blind is not None:
            return [Piece(self._blind, data, is_first=False, is_last=True)]
        if self._rest:
            data, self._rest = self._rest + data, b""
        pieces: list[Piece] = []
        position, size = 0, len(data)
        while position < size:
            is_first = self._left == 0
            if is_first:
                started = self._begin(data, position)
                if started is None:
                    self._rest = data[position:]
                    break
                self._head = started
            assert self._head is not None
            end = min(position + self._left, size)
            self._left -= end - position
            chunk = data if end - position == size else data[position:end]
            pieces.append(Piece(self._head, chunk, is_first=is_first, is_last=self._left == 0))
            position = end
        return pieces

    def _begin(self, data: bytes, position: int) -> Head | None:
        """Read a message's head; None when it is not complete. What is no message lasts for ever."""
        if len(data) - position < LENGTH_BYTES:
            return None
        length = int.from_bytes(data[position : position + LENGTH_BYTES])
        if length > FRAME_BYTES_MAX:
            self._blind = Head(api=UNKNOWN, correlation_id=UNKNOWN, is_request=True, source=0, target=0)
            self._left = len(data) - position
            return self._blind
        wanted = min(LENGTH_BYTES + length, self._head_bytes)
        if len(data) - position < wanted:
            return None
        self._left = LENGTH_BYTES + length
        return self._identify(data[position : position + wanted])
