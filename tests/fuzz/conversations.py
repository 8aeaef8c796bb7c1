"""Conversations of somebody who means harm: one connection, requests that go on from what was answered, each changed in a few fields.

Not a test module. `tests/broker/fuzzing.py` draws every field anew; here a request is right in most of them: it names ids, epochs and sessions that answers gave,
so that it gets past the doors behind which state is kept (fetch sessions, groups, transactions, logins). Frames go out whole, in
pieces or glued together. Every answer to a request whose bytes were left alone has to be one: right number, right layout.
"""

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from replog.types import METADATA_TOPIC_ID, ZERO_UUID
from replog.wire.apis import FORWARDABLE, Api, known_versions, request_type
from replog.wire.codec import decode_response, encode_request
from replog.wire.exchange import exchange_of
from replog.wire.layout import Field, VersionRange
from replog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from replog.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.fuzzing import BITS, ORDERS, Attacker, Known
from tests.fuzz.tls import misspeak

ANSWER_S: Final = 0.03  # afterwards the connection is left, or closed
MISSPEAKS: Final = 0.3  # of conversations with a listener of TLS
REQUESTS: Final = (1, 2, 3, 5, 8)
ITEM_COUNTS: Final = (1, 1, 1, 2)
REMEMBERED: Final = 8  # values of one name
DEPTH_MAX: Final = 5
CLIENTS: Final = ("c", "c", "", "", None, None, "d")  # `d` may have quotas, and waits then
MANY: Final = (100, 1000, 5000)  # entries, where one was meant
# What belongs to a state: taken from answers under its own name.
STATES: Final = frozenset(
    (
        *("member_id", "generation_id", "generation_id_or_member_epoch", "member_epoch", "group_instance_id"),
        *("producer_id", "producer_epoch", "session_id", "session_epoch", "leader_epoch", "partition_epoch"),
        *("end_offset", "epoch"),  # of snapshots, and of logs that have another history
        *("current_leader_epoch", "broker_epoch", "controller_epoch", "topic_id", "coordinator_epoch"),
    )
)
# What a new conversation had better ask for anew: of another group, another producer, another connection.
OF_A_CONVERSATION: Final = (
    *("member_id", "generation_id", "member_epoch", "group_instance_id"),
    *("producer_id", "producer_epoch", "session_id", "session_epoch"),
)
SAME: Final = {"generation_id_or_member_epoch": "generation_id", "current_leader_epoch": "leader_epoch"}
FIRST: Final = {"leader_epoch": (0, 1), "generation_id": (1,), "session_id": (0,), "session_epoch": (0, -1, 1)}
# Several of these in a row on one connection reach what one request does not.
STORIES: Final = (
    (Api.JOIN_GROUP, Api.SYNC_GROUP, Api.HEARTBEAT, Api.OFFSET_COMMIT, Api.JOIN_GROUP, Api.LEAVE_GROUP),
    (Api.CONSUMER_GROUP_HEARTBEAT, Api.CONSUMER_GROUP_HEARTBEAT, Api.OFFSET_COMMIT, Api.CONSUMER_GROUP_DESCRIBE),
    (Api.CONSUMER_GROUP_HEARTBEAT, Api.JOIN_GROUP, Api.OFFSET_FETCH, Api.DELETE_GROUPS, Api.CONSUMER_GROUP_HEARTBEAT),
    (Api.INIT_PRODUCER_ID, Api.ADD_PARTITIONS_TO_TXN, Api.PRODUCE, Api.END_TXN, Api.PRODUCE, Api.INIT_PRODUCER_ID),
    (Api.INIT_PRODUCER_ID, Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT, Api.END_TXN, Api.WRITE_TXN_MARKERS),
    (Api.FETCH, Api.FETCH, Api.FETCH, Api.FETCH),
    (Api.CREATE_TOPICS, Api.CREATE_PARTITIONS, Api.ALTER_PARTITION_REASSIGNMENTS, Api.DELETE_TOPICS),
    (Api.CREATE_TOPICS, Api.PRODUCE, Api.DELETE_RECORDS, Api.LIST_OFFSETS, Api.FETCH, Api.OFFSET_FOR_LEADER_EPOCH),
    (Api.INCREMENTAL_ALTER_CONFIGS, Api.ALTER_CONFIGS, Api.DESCRIBE_CONFIGS, Api.PRODUCE),
    (Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, Api.SASL_AUTHENTICATE, Api.METADATA),
    (Api.VOTE, Api.BEGIN_QUORUM_EPOCH, Api.FETCH, Api.FETCH_SNAPSHOT, Api.END_QUORUM_EPOCH),
    (Api.ALTER_CLIENT_QUOTAS, Api.DESCRIBE_CLIENT_QUOTAS, Api.PRODUCE, Api.FETCH, Api.CREATE_TOPICS),
    (Api.FETCH, Api.FETCH_SNAPSHOT, Api.FETCH_SNAPSHOT, Api.FETCH),
    (Api.METADATA, Api.DESCRIBE_TOPIC_PARTITIONS, Api.DESCRIBE_TOPIC_PARTITIONS, Api.FETCH, Api.DESCRIBE_LOG_DIRS),
)
# What a field means, by its name, or by the API and its name where other APIs mean something else.
MEANT: Final[dict[str, tuple[Any, ...]]] = {
    "protocol_type": ("consumer",),
    "protocol_name": ("range",),
    "JOIN_GROUP.name": ("range", "range", "roundrobin"),
    "server_assignor": (None, "range", "uniform"),
    "subscribed_topic_names": (["t"], ["t", "u"], None),
    "subscribed_topic_regex": (None, "t.*", "(t|u)+"),
    "CONSUMER_GROUP_HEARTBEAT.member_epoch": (0, 1, 2, -1, -2),
    "CONSUMER_GROUP_HEARTBEAT.topic_partitions": ([], None),
    "instance_id": (None, "i"),
    "group_instance_id": (None, "i"),
    "rebalance_timeout_ms": (100, 300),
    "session_timeout_ms": (6000, 10000),
    "transaction_timeout_ms": (100, 1000, 60000),
    "entity_type": ("user", "client-id", "ip"),
    # Not those of all: the orderly client has no quota. `d` has all kinds, and most requests are sent by others.
    "ALTER_CLIENT_QUOTAS.entity_name": ("d", "d", "x", "127.0.0.2"),
    "entity_name": ("d", "d", None, "x"),
    "key": (
        *("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"),
        *("connection_creation_rate", "x"),
    ),
    "match_type": (0, 1, 2),
    "resource_type": (2, 4, 8, 32),
    "resource_name": ("t", "1", "u", "", "g"),
    "config_operation": (0, 1, 2, 3),
    "INCREMENTAL_ALTER_CONFIGS.name": ("retention.ms", "min.insync.replicas", "cleanup.policy", "max.message.bytes"),
    "ALTER_CONFIGS.name": ("retention.ms", "segment.bytes", "cleanup.policy", "message.timestamp.type"),
    "value": ("1", "-1", "9223372036854775807", "compact", "zstd", "1e309", ""),
    "mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    "states_filter": ([], ["Empty"], ["Stable"]),
    "partition_index": (0, 1, 0, 1, 2),
    "partition": (0, 1, 0, 1, 2),
    "num_partitions": (-1, 1, 2, 1_000_000, 2**31 - 1),
    "assignments": ([],),
    "CREATE_PARTITIONS.count": (2, 3, 5, 100_000, 2**31 - 1),
    "CREATE_PARTITIONS.assignments": (None, []),
    "replication_factor": (-1, 1, 2),
    "acks": (-1, -1, 0, 1),
    "max_bytes": (1, 1000, 2**31 - 1),
    "partition_max_bytes": (1, 1000, 2**31 - 1),
    "key_type": (0, 1),
    "timestamp": (-1, -2, -3, -4, -5, 0, 2**62),
    "isolation_level": (0, 1),
    "replica_id": (-1, -1, -1, -2, 1, 2),
    "fetch_offset": (0, 1, 5),
    "log_start_offset": (-1, 0),
    "broker_id": (1, 1, 2),
    "new_isr": ([1], [], [1, 2], [1, 1]),
    "replicas": ([1], [1], [2], [1, 2], []),
    "CREATE_TOPICS.name": ("new", "newer", "t"),
    "DELETE_TOPICS.name": ("new", "newer"),
    "DELETE_TOPICS.topic_names": (["new"], ["newer"], ["new", "new"]),
    "committed_leader_epoch": (-1, 0),
    "METADATA.topic_id": (UUID(int=0),),
    "endpoint_type": (1, 2),
    "voter_id": (101,),
    "leader_id": (101, 1, 102),
    "candidate_id": (101, 102),
    "security_protocol": (0, 1, 3),
    "feature": ("metadata.version", "eligible.leader.replicas.version", "group.version", "transaction.version"),
    "UPDATE_FEATURES.max_version_level": (0, 1, 7, 14, 17, 20, 25, 27),
    "UPDATE_FEATURES.upgrade_type": (1, 2, 3),
}
# Of the metadata log at controllers: its name, its id, its only partition.
OF_QUORUM: Final = frozenset(
    (Api.VOTE, Api.BEGIN_QUORUM_EPOCH, Api.END_QUORUM_EPOCH, Api.FETCH_SNAPSHOT, Api.DESCRIBE_QUORUM)
)
TOKENS: Final = (
    b"\0alice\0secret",
    b"\0alice\0wrong",
    b"\0\0",
    b"",
    b"n,,n=alice,r=abc",
    b"n,,n=alice,r=" + b"a" * 100_000,
    b"c=biws,r=abc,p=AAAA",
    b"n,a=u=,n=a=2Cb,r=,,,",
    b"p=tls-unique,,n=alice,r=abc",
    "n,,n=\u00e9\u0000,r=abc".encode(),
    b"\xff\xfe\0\0",
)
# Orders that anybody may give where no authorizer is set, after which there may be no quorum: drawn in tests/broker/test_fuzz.py.
VOTERS: Final = (Api.ADD_RAFT_VOTER, Api.REMOVE_RAFT_VOTER, Api.UPDATE_RAFT_VOTER)
PASSED_ON: Final = sorted(FORWARDABLE - ORDERS - {*VOTERS})
ENVELOPED: Final = {
    "request_principal": (b"\0\0\5User\2c\0\0", b"\0\0\5User\2d\0\0", b"\0\0\5User\2d\0\0", b"", b"\0\1\0"),
    "client_host_address": (b"\x7f\0\0\1", b"\x7f\0\0\1", b"\0" * 15 + b"\1", b""),
}
SUBSCRIPTION: Final = b"\0\0\0\0\0\1\0\1t\0\0\0\0"  # of a consumer, version 0: topic t, no more


class Exchanged(msgspec.Struct):
    """A request as it was sent, for whoever has to repeat it."""

    api: Api
    version: int
    correlation_id: int
    is_whole: bool  # its bytes are what the encoder wrote
    is_owed: bool  # an answer: not to a produce with acks=0
    frame: bytes


class Wrong(AssertionError):
    """An answer that is none, or one to another request."""


class Speaker(Attacker):
    """A harmful peer that listens to what it is answered.

    Sequences come from the seed; what is answered depends on the cluster's own chance and time, so that a repetition is alike, not equal.
    """

    def __init__(self, seed: str, apis: dict[Api, VersionRange], known: Known, *, may_order: bool = False) -> None:
        super().__init__(seed, apis, known, may_order=may_order)
        self.served = dict(self.apis)
        self.remembered: dict[str, list[Any]] = {}
        self.tls: ssl.SSLContext | None = None  # where the listener speaks it
        self.kept_from: Sequence[Any] = ()  # what it never learns, whatever it is answered: it could delete it
        self.change_chance = 0.0
        self.api = Api.API_VERSIONS  # for which a request is drawn
        self.subject = {"group": "g", "transactional": "x", "topic": "t"}  # of one conversation
        self.is_controller = Api.VOTE in apis
        self.has_many = False  # entries in the request that is drawn now: a product of them would be no frame
        self.sent = 0
        self.answered = 0

    # --- drawing -----------------------------------------------------------------------------

    def conversation(self) -> list[Api]:
        """Return the APIs to be asked in a row, and choose of what it is about."""
        self.subject = {
            "group": self.random.choice("gh"),
            "transactional": self.random.choice("xy"),
            "topic": self.random.choice(("t", "t", "u", "new", *self.known.topics)),
        }
        if self.random.random() < 0.7:
            for name in OF_A_CONVERSATION:
                self.remembered.pop(name, None)
        if self.random.random() < 0.6:
            story = [api for api in self.random.choice(STORIES) if api in self.served]
            if story:
                return story[self.random.choice((0, 0, 0, 1)) :] or story
        return [self.random.choice(self.apis)[0] for _ in range(self.random.choice(REQUESTS))]

    def request(self, api: Api) -> Exchanged | None:
        """Draw one request; `None` where this version cannot say it."""
        random = self.random
        versions = self.served[api]
        version = random.randint(max(versions.first, known_versions(api).first), versions.last)
        self.change_chance = random.choice((0.0, 0.02, 0.1, 0.4))
        self.has_many, self.api = False, api
        body = self._struct(request_type(api), version, 0)
        correlation_id = random.randrange(1 << 31)
        try:
            frame = bytearray(encode_request(api, version, correlation_id, random.choice(CLIENTS), body))
        except (struct.error, ValueError, OverflowError):
            return None
        is_whole = random.random() < 0.9
        if not is_whole:
            for _ in range(random.randint(1, 3)):
                frame[random.randrange(4, len(frame))] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
        is_owed = getattr(body, "acks", None) != 0
        return Exchanged(api, version, correlation_id, is_whole, is_owed, bytes(frame))

    def _field(self, field: Field, version: int, depth: int) -> object:
        random = self.random
        if random.random() >= self.change_chance:
            meant = MEANT.get(f"{self.api.name}.{field.name}") or MEANT.get(field.name)
            if meant is not None and (field.is_array or not self._is_state(field.name)):
                value = random.choice(meant)
                if _fits(value, field):
                    return value
        if field.nullable and field.name != "entity_name" and random.random() < 0.05 + self.change_chance / 4:
            return None
        if not field.is_array:
            return self._value(field, version, depth)
        if depth >= DEPTH_MAX:
            return []
        count = random.choice(ITEM_COUNTS)
        if not self.has_many and random.random() < self.change_chance / 8:
            self.has_many = True
            value = self._value(field, version, depth + 1)
            return [value] * random.choice(MANY)  # the same entry again and again
        return [self._value(field, version, depth + 1) for _ in range(count)]

    def _is_state(self, name: str) -> bool:
        """Return whether an answer said something of this that is better than a guess."""
        return bool(self.remembered.get(SAME.get(name, name))) and name in STATES and self.random.random() < 0.9

    def _recalled(self, name: str) -> Any:
        values = self.remembered[SAME.get(name, name)]
        return values[-1] if self.random.random() < 0.7 else self.random.choice(values)

    def _text(self, name: str) -> str:
        if self.random.random() < self.change_chance:
            return super()._text(name)
        if self._is_state(name):
            return str(self._recalled(name))
        if name == "member_id":
            return ""
        if name == "cluster_id":
            return self.known.cluster_id
        for about, subject in self.subject.items():
            if about in name:
                return "__cluster_metadata" if about == "topic" and self.api in OF_QUORUM else subject
        return self.random.choice(("t", "t", "u", "x", self.subject["topic"]))

    def _number(self, name: str, kind: str) -> int:
        if kind not in BITS or self.random.random() < self.change_chance:
            return super()._number(name, kind)
        if self._is_state(name):
            return _fitting(int(self._recalled(name)), kind)
        if name in FIRST:
            return self.random.choice(FIRST[name])
        if "timeout" in name or "wait" in name:
            return self.random.choice((0, 1, 50))
        if self.api in OF_QUORUM and ("partition" in name or name == "index"):
            return 0
        return self.random.choice((-1, 0, 0, 1))

    def _value(self, field: Field, version: int, depth: int) -> object:
        random = self.random
        if field.kind == "uuid" and random.random() >= self.change_chance:
            if self.is_controller and self.api is Api.FETCH:
                return METADATA_TOPIC_ID
            return random.choice(self.remembered.get("topic_id") or self.known.topic_ids)
        if field.kind == "bytes" and random.random() >= self.change_chance:
            if self.api is Api.ENVELOPE:
                return self._enveloped() if field.name == "request_data" else random.choice(ENVELOPED[field.name])
            if self.api in (Api.JOIN_GROUP, Api.SYNC_GROUP):
                return SUBSCRIPTION
            if self.api is Api.SASL_AUTHENTICATE:
                return random.choice(TOKENS)
        return super()._value(field, version, depth)

    def _enveloped(self) -> bytes:
        """Return a request that a broker would pass on, without the length that a frame begins with."""
        chance, api = self.change_chance, self.random.choice(PASSED_ON)
        versions = known_versions(api)
        self.api = api
        version = self.random.randint(versions.first, versions.last)
        body = self._struct(request_type(api), version, 1)
        self.change_chance, self.api = chance, Api.ENVELOPE
        return encode_request(api, version, 1, "c", body)[4:]

    # --- listening ---------------------------------------------------------------------------

    def remember(self, answer: object) -> None:
        """Take what an answer says of states, under the name by which a request asks for it."""
        if isinstance(answer, list):
            for item in answer[:4]:
                self.remember(item)
        if not isinstance(answer, msgspec.Struct):
            return
        for name in answer.__struct_fields__:
            value = getattr(answer, name)
            if name in STATES and value not in ("", None, -1, ZERO_UUID, *self.kept_from):
                values = self.remembered.setdefault(name, [])
                if value not in values:
                    values.append(value)
                    del values[:-REMEMBERED]
            elif isinstance(value, list | msgspec.Struct) and not isinstance(value, UUID):
                self.remember(value)

    async def converse(self, port: int) -> list[Exchanged]:
        """Hold one conversation; return what was sent. `Wrong` when an answer is none."""
        said: list[Exchanged] = []
        if self.tls is not None and self.random.random() < MISSPEAKS:
            await misspeak(self.random, port, self.tls)
            return said
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=self.tls)
        except OSError:
            return said
        try:
            await self._speak(reader, writer, said)
        except (OSError, asyncio.IncompleteReadError):
            pass  # closed: that is an answer, too
        finally:
            writer.transport.abort()
        return said

    async def _speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: list[Exchanged]) -> None:
        glued = self.random.random() < 0.3
        owed: list[Exchanged] = []
        if Api.SASL_AUTHENTICATE in self.served and self.random.random() < 0.7:
            await self._log_in(reader, writer)
        for api in self.conversation():
            one = self.request(api)
            if one is None:
                continue
            said.append(one)
            if one.is_owed or not one.is_whole:
                owed.append(one)
            await self._send(writer, one.frame)
            self.sent += 1
            if not glued and not await self._listen(reader, owed):
                return
        await self._listen(reader, owed)

    async def _log_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Get in as somebody who may do a little."""
        writer.write(encode_request(Api.SASL_HANDSHAKE, 1, 1, "c", SaslHandshakeRequest(mechanism="PLAIN")))
        writer.write(encode_request(Api.SASL_AUTHENTICATE, 1, 2, "c", SaslAuthenticateRequest(auth_bytes=TOKENS[0])))
        for _ in range(2):
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))

    async def _send(self, writer: asyncio.StreamWriter, frame: bytes) -> None:
        if self.random.random() < 0.1:
            for end in sorted(self.random.sample(range(len(frame)), min(3, len(frame)))):
                writer.write(frame[:end])
                frame = frame[end:] if end < len(frame) else b""
                await writer.drain()
                await asyncio.sleep(0)
        writer.write(frame)
        await writer.drain()

    async def _listen(self, reader: asyncio.StreamReader, owed: list[Exchanged]) -> bool:
        """Read the answers that are owed; return whether the numbers can still be known."""
        while owed:
            asked = owed[0]
            try:
                async with asyncio.timeout(ANSWER_S):
                    (length,) = struct.unpack(">i", await reader.readexactly(4))
                    frame = await reader.readexactly(length)
            except TimeoutError:
                return False  # it is waited for; whoever asked goes away
            owed.pop(0)
            if not asked.is_whole:
                return False  # whatever it was taken for
            self._take(asked, frame, owed)
        return True

    def _take(self, asked: Exchanged, frame: bytes, owed: list[Exchanged]) -> None:
        number = int.from_bytes(frame[:4], "big")
        if number != asked.correlation_id:
            if not any(one.correlation_id == number for one in owed):
                raise Wrong(f"{asked.api.name} v{asked.version}: answer {number}, asked {asked.correlation_id}")
            while owed and owed[0].correlation_id != number:  # those with acks=0 are owed nothing
                asked = owed.pop(0)
            asked = owed.pop(0)
        version = asked.version
        if asked.api is Api.API_VERSIONS and frame[4:6] == b"\x00\x23":
            version = 0
        _, body = decode_response(exchange_of(asked.api), version, frame)
        self.answered += 1
        with contextlib.suppress(RecursionError):
            self.remember(body)


def _fits(value: object, field: Field) -> bool:
    """Return whether a meant value is of the field's type in this version."""
    if value is None:
        return field.nullable
    if isinstance(value, list):
        return field.is_array and (
            not value or (field.struct is None and isinstance(value[0], str) == (field.kind == "string"))
        )
    if field.is_array or field.struct is not None:
        return False
    if isinstance(value, str):
        return field.kind == "string"
    if isinstance(value, UUID):
        return field.kind == "uuid"
    return field.kind in BITS and -(1 << BITS[field.kind]) <= value < 1 << BITS[field.kind]


def _fitting(number: int, kind: str) -> int:
    limit = 1 << BITS[kind]
    return number if -limit <= number < limit else -1
