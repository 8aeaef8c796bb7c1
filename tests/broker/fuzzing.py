"""Requests of somebody who means harm: drawn field by field from a seed, near enough to valid ones to get past the first check.

Not a test module. A request of each API and version is put together from its layout. A field gets a value that means
something under its name (the cluster's topics, groups, ids and epochs), an extreme, or anything; frames are cut, lengthened and
have bytes changed, some come several in a segment, and with some the connection ends before the answer.
"""

import struct
from functools import cache
from random import Random
from typing import Final
from uuid import UUID

import msgspec

from replog.log.batch import NewRecord, build
from replog.types import ZERO_UUID
from replog.wire.apis import Api, known_versions, request_type
from replog.wire.codec import encode_request
from replog.wire.encoder import FIXED
from replog.wire.layout import Field, VersionRange, fields_of

# What anybody may order where no authorizer is set, and what ends or fences a broker in good order.
ORDERS: Final = frozenset({Api.UNREGISTER_BROKER, Api.BROKER_HEARTBEAT, Api.UPDATE_FEATURES, Api.CONTROLLED_SHUTDOWN})
BITS: Final = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
NUMBERS: Final = (-1, 0, 1, 2, 3, 5, 101)
TEXTS: Final = (
    "",
    "t",
    "u",
    "g",
    "x",
    "range",
    "consumer",
    "__consumer_offsets",
    "__transaction_state",
    "(",
    "a{9999}",
)
HOSTS: Final = ("127.0.0.1", "a" * 64, "", "::", "\0", "h" * 300, "é")
FLOATS: Final = (0.0, -1.0, float("nan"), float("inf"), 1e300, 5e-324, 1e-9, 0.5, 1.0, 1000.0, 1e9)
ITEM_COUNTS: Final = (0, 1, 1, 1, 2, 3)
DEPTH_MAX: Final = 6
_fields: Final = cache(fields_of)  # the same few hundred thousands of times


class Known(msgspec.Struct, kw_only=True):
    """What the attacker has found out about the cluster."""

    cluster_id: str
    topic_ids: list[UUID]
    now_ms: int
    topics: tuple[str, ...] = ()  # beside `t` and `u`


class Attacker:
    """Frames from a seed."""

    def __init__(self, seed: str, apis: dict[Api, VersionRange], known: Known, *, may_order: bool = False) -> None:
        """`may_order`: nobody obeys him, so let him try."""
        self.random = Random(seed)
        self.known = known
        self.apis = [(api, versions) for api, versions in sorted(apis.items()) if may_order or api not in ORDERS]

    def frames(self) -> bytes:
        """Return what is sent at once: a request or several, perhaps damaged."""
        count = self.random.choice((1, 1, 1, 2, 4))
        return b"".join(self._frame() for _ in range(count))

    def _frame(self) -> bytes:
        random = self.random
        api, versions = random.choice(self.apis)
        version = random.randint(max(versions.first, known_versions(api).first), versions.last)
        body = self._struct(request_type(api), version, 0)
        try:
            frame = bytearray(encode_request(api, version, random.randrange(1 << 31), random.choice(TEXTS), body))
        except (struct.error, ValueError, OverflowError):
            return b""  # a text that is too long for this version
        if random.random() < 0.2:
            for _ in range(random.randint(1, 4)):
                frame[random.randrange(4, len(frame))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        if random.random() < 0.05:
            del frame[random.randrange(4, len(frame)) :]
            frame[:4] = (len(frame) - 4).to_bytes(4, "big")
        if random.random() < 0.02:
            frame += random.randbytes(random.randrange(40))
        return bytes(frame)

    def _struct(self, of: type[msgspec.Struct], version: int, depth: int) -> msgspec.Struct:
        return of(**{field.name: self._field(field, version, depth) for field in _fields(of, version)})

    def _field(self, field: Field, version: int, depth: int) -> object:
        if field.nullable and self.random.random() < 0.1:
            return None
        if not field.is_array:
            return self._value(field, version, depth)
        if depth >= DEPTH_MAX:
            return []
        return [self._value(field, version, depth + 1) for _ in range(self.random.choice(ITEM_COUNTS))]

    def _value(self, field: Field, version: int, depth: int) -> object:
        if field.struct is not None:
            return self._struct(field.struct, version, depth)
        match field.kind:
            case "string":
                return self._text(field.name)
            case "uuid":
                return self.random.choice((*self.known.topic_ids, ZERO_UUID, UUID(int=self.random.getrandbits(128))))
            case "bytes" | "records":
                return self._content()
            case "bool":
                return self.random.random() < 0.5
            case "float64":
                return self.random.choice(FLOATS)
            case "error":
                return 0
            case kind:
                return self._number(field.name, kind)

    def _text(self, name: str) -> str:
        if name == "cluster_id":
            return self.random.choice((self.known.cluster_id, "", "another"))
        if "host" in name:
            return self.random.choice(HOSTS)
        if self.random.random() < 0.05:
            return self.random.choice(("a" * 300, "/" * 40, "\n", "((((((a))))))", "." * 249))
        return self.random.choice(TEXTS)

    def _number(self, name: str, kind: str) -> int:
        if kind not in BITS:
            return self.random.randrange(1 << 8 * struct.calcsize(">" + FIXED[kind]))
        bits = BITS[kind]
        if "timeout" in name or "wait" in name:
            return self.random.choice((-1, 0, 1, 50))  # longer ones are waited for, and say no more
        if self.random.random() < 0.15:
            return self.random.choice((-(1 << bits), (1 << bits) - 1, self.random.randrange(-(1 << bits), 1 << bits)))
        return self.random.choice(NUMBERS)

    def _content(self) -> bytes:
        random = self.random
        if random.random() < 0.3:
            return random.randbytes(random.choice((0, 1, 61, 200)))
        new = [NewRecord(b"k", random.randbytes(20)) for _ in range(random.randint(1, 3))]
        producer = random.choice(((-1, -1, -1), (0, 0, 0), (1, 0, 5)))
        batch = bytearray(build(new, timestamp_ms=self.known.now_ms, producer=producer))
        if random.random() < 0.5:
            batch[random.randrange(len(batch))] ^= 1 << random.randrange(8)
        return bytes(batch)
