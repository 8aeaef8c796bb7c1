"""Requests for cores: well formed, with numbers from the edges of what their types hold.

Not a test module. `tests/fuzz/conversations.py` speaks to whole nodes; here a request is encoded and read again, so that a core gets
what a listener would hand over, and no socket and no clock are between a seed and what comes of it.
"""

import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from replog.errors import Error
from replog.wire.apis import Api, known_versions, request_type
from replog.wire.codec import (
    decode_response,
    decode_rest,
    decode_struct,
    encode_request,
    encode_response,
    encode_struct,
)
from replog.wire.exchange import exchange_of
from replog.wire.layout import Field, VersionRange
from tests.broker.fuzzing import BITS, Known
from tests.fuzz.conversations import SAME, Speaker

NUMBERS: Final = (0, -1, 1, 32766, 32767, -32768, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
EDGES: Final = {kind: [n for n in NUMBERS if -(1 << bits) <= n < 1 << bits] for kind, bits in BITS.items()}
CHANCES: Final = (0.0, 0.0, 0.02, 0.1, 0.4)  # of a field to be another than it should be
TOPIC_IDS: Final = {"t": UUID(int=1), "u": UUID(int=2)}
CLUSTER: Final = "cluster"
WALL_MS: Final = 1_700_000_000_000
AnyAnswer = TypeVar("AnyAnswer", bound=msgspec.Struct)
LOYALTY: Final = 0.8  # of a voice to whom it said to be
OWN_DEEP: Final = 0.8  # of what is said of oneself, in lists of others
FORGETFUL: Final = 0.1
COMES_BACK: Final = 0.3  # of a static member that joins: its process is another
OWN: Final = ("member_id", "generation_id", "member_epoch", "producer_id", "producer_epoch")
FORGOTTEN: Final = (Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID, Error.FENCED_MEMBER_EPOCH)
TRAIL: Final = 12  # events that a failure names


class Voice:
    """One of several peers: what it was answered, what it is about, what it says next."""

    def __init__(self, name: str, own: dict[str, Any]) -> None:
        """`own` are fields that it fills in as who it is, by name, or by API and name."""
        self.name = name
        self.own = own
        self.remembered: dict[str, list[Any]] = {}
        self.subject: dict[str, str] = {}
        self.next: deque[Api] = deque()


class Asked(NamedTuple):
    """A request as it comes out of a listener."""

    api: Api
    version: int
    client_id: str
    body: Any
    voice: Voice

    def __str__(self) -> str:
        return f"{self.voice.name}: {self.api.name} v{self.version} {self.client_id!r} {self.body}"


class Drawing(Speaker):
    """Peers that mean harm, or do not, without a wire."""

    def __init__(
        self,
        seed: str,
        apis: dict[Api, VersionRange],
        voices: Sequence[Voice],
        stories: Sequence[Sequence[Api]],
    ) -> None:
        """`stories`: what is asked for in a row, mostly."""
        known = Known(cluster_id=CLUSTER, topic_ids=[*TOPIC_IDS.values()], now_ms=WALL_MS)
        super().__init__(seed, apis, known, may_order=True)
        self.voices = [*voices]
        self.voice = self.voices[0]
        self.stories = stories

    def asked(self, api: Api | None = None) -> Asked | None:
        """Draw a request, of this API or of the one whose turn it is; `None` where its version cannot say it."""
        voice = self.voice = self.random.choice(self.voices)
        self.remembered = voice.remembered
        if not voice.next:
            voice.next.extend(self._story())
        api = api or voice.next.popleft()
        if self.random.random() < FORGETFUL:
            voice.remembered.pop(self.random.choice(OWN), None)
        if voice.own.get("group_instance_id") and api is Api.JOIN_GROUP and self.random.random() < COMES_BACK:
            voice.remembered.clear()
        self.subject = voice.subject or self.subject
        offered = self.served[api]
        version = self.random.randint(max(offered.first, known_versions(api).first), offered.last)
        self.change_chance = self.random.choice(CHANCES)
        self.has_many, self.api = (
            True,
            api,
        )  # thousands of entries take their time, and what they take is looked at elsewhere
        body = self._struct(request_type(api), version, 0)
        try:
            frame = encode_request(api, version, 1, self.random.choice(("c", "", "d")), body)
        except (struct.error, ValueError, OverflowError):
            return None
        client_id, read = decode_rest(api, version, memoryview(frame)[4:])
        return Asked(api, version, client_id or "", read, voice)

    def answer_to(self, of: type[AnyAnswer], version: int) -> AnyAnswer:
        """Draw an answer that somebody sends to a request of ours, as it is read."""
        self.change_chance, self.has_many = self.random.choice(CHANCES), True
        return decode_struct(of, version, encode_struct(self._struct(of, version, 0), version))

    def _story(self) -> list[Api]:
        """Return what a voice asks for next; mostly it goes on as who it was."""
        before = {name: list(values) for name, values in self.remembered.items()}
        story = self.conversation()
        if self.voice.subject and self.random.random() < LOYALTY:
            self.remembered.update(before)
            self.subject = self.voice.subject
        self.voice.subject = self.subject
        return list(self.random.choice(self.stories)) if self.random.random() < LOYALTY else story

    def learn(self, asked: Asked, answer: msgspec.Struct) -> None:
        """Read an answer as a client would, and go on from what it says."""
        frame = encode_response(asked.api, asked.version, 1, answer)
        _, read = decode_response(exchange_of(asked.api), asked.version, memoryview(frame)[4:])
        self.remembered = asked.voice.remembered
        self.remember(read)
        if getattr(read, "error_code", None) in FORGOTTEN:
            self.remembered.clear()
        for name in OWN:  # what it says of others stands behind that
            value = getattr(read, name, None)
            if value not in (None, "", -1):
                values = self.remembered.setdefault(name, [])
                values[:] = [one for one in values if one != value] + [value]

    def edge(self, kind: str) -> int:
        """Draw a number from the edges of a type."""
        return self.random.choice(EDGES[kind])

    def _field(self, field: Field, version: int, depth: int) -> object:
        own = self.voice.own
        name = f"{self.api.name}.{field.name}" if f"{self.api.name}.{field.name}" in own else field.name
        if (
            name in own
            and (depth == 0 or self.random.random() < OWN_DEEP)
            and (self.random.random() >= self.change_chance)
        ):
            return own[name]
        value = super()._field(field, version, depth)
        if isinstance(value, list) and value and self.random.random() < self.change_chance / 2:
            return [*value, self.random.choice(value)]  # an entry that is there already
        return value

    def _text(self, name: str) -> str:
        if self.api is Api.CONSUMER_GROUP_HEARTBEAT and name == "member_id" and not self._is_state(name):
            return self.voice.name  # members choose their ids
        return super()._text(name)

    def _is_state(self, name: str) -> bool:
        return super()._is_state(name) or (self.change_chance == 0 and super()._is_state(name))

    def _recalled(self, name: str) -> Any:
        newest = self.remembered[SAME.get(name, name)][-1]
        return newest if self.random.random() >= self.change_chance else super()._recalled(name)

    def _number(self, name: str, kind: str) -> int:
        if kind not in BITS:
            return super()._number(name, kind)
        if self.random.random() < self.change_chance:
            return self.edge(kind)
        number = super()._number(name, kind)
        if self.random.random() < self.change_chance and number + 1 < 1 << BITS[kind]:
            return number + 1  # of the future
        return number


class Trail:
    """The last events before a failure."""

    def __init__(self) -> None:
        self._events: deque[str] = deque(maxlen=TRAIL)

    def note(self, *what: object) -> None:
        """Remember an event."""
        self._events.append(" ".join(map(str, what))[:2000])

    def explain(self, problem: BaseException, seed: str) -> None:
        """Say of a failure what led to it."""
        problem.add_note(f"seed {seed}, after:")
        for event in self._events:
            problem.add_note(event)
