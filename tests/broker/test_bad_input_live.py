"""What foreign and broken clients send to a real broker: each is answered with an error, nothing is appended, all others are served."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import msgspec
import pytest

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.client.connection import Connection
from replog.config import Endpoint
from replog.errors import Error
from replog.log.batch import NewRecord, build, crc32c
from replog.types import ZERO_UUID
from replog.wire.apis import Api
from replog.wire.codec import decode_response, encode_request
from replog.wire.exchange import exchange_of
from replog.wire.messages import create_topics as ct
from replog.wire.messages import delete_records as dr
from replog.wire.messages import list_offsets as lo
from replog.wire.messages import offset_for_leader_epoch as oe
from replog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from replog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from replog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.loopback import running

FOREIGN = UUID(int=12345)
ATTRIBUTES, CRC = 21, 17
NOW_MS = ClientWorld().clock.wall_ms()


class Broker:
    """One broker with the topic `t`, asked by hand."""

    def __init__(self, client: Client, connection: Connection, endpoint: Endpoint, topic_id: UUID) -> None:
        self.client = client
        self.connection = connection
        self.endpoint = endpoint
        self.topic_id = topic_id

    async def produce(self, records: bytes, *, topic_id: UUID | None = None, partition: int = 0) -> Error:
        data = [PartitionProduceData(index=partition, records=records)]
        topic = TopicProduceData(topic_id=topic_id or self.topic_id, partition_data=data)
        body = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
        answer = await self.connection.send(exchange_of(Api.PRODUCE), body, timeout_ms=5000)
        error: Error = answer.responses[0].partition_responses[0].error_code
        return error

    async def fetch(self, topic_id: UUID, partition: int, offset: int, epoch: int = -1) -> Error:
        wanted = FetchPartition(
            partition=partition, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=1000
        )
        body = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])])
        answer = await self.connection.send(exchange_of(Api.FETCH), body, timeout_ms=5000)
        error: Error = answer.responses[0].partitions[0].error_code
        return error

    async def offset(self, timestamp: int, topic: str = "t", epoch: int = -1) -> tuple[Error, int, int]:
        wanted = lo.ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
        body = lo.ListOffsetsRequest(topics=[lo.ListOffsetsTopic(name=topic, partitions=[wanted])])
        answer = await self.connection.send(exchange_of(Api.LIST_OFFSETS), body, timeout_ms=5000)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.offset, found.timestamp

    async def end_of_epoch(self, epoch: int, known: int = -1) -> tuple[Error, int, int]:
        wanted = oe.OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=known)
        body = oe.OffsetForLeaderEpochRequest(topics=[oe.OffsetForLeaderTopic(topic="t", partitions=[wanted])])
        answer = await self.connection.send(exchange_of(Api.OFFSET_FOR_LEADER_EPOCH), body, timeout_ms=5000)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    async def ask(self, api: Api, version: int, body: msgspec.Struct) -> Any:
        """Send one request in this version over a connection of its own."""
        reader, writer = await asyncio.open_connection(self.endpoint.host, self.endpoint.port)
        try:
            async with asyncio.timeout(10):
                writer.write(encode_request(api, version, 1, "x", body))
                length = int.from_bytes(await reader.readexactly(4), "big")
                return decode_response(exchange_of(api), version, await reader.readexactly(length))[1]
        finally:
            writer.transport.abort()

    async def shout(self, data: bytes, *, leave: bool = False) -> bytes:
        """Send bytes over a connection of their own; return what comes back until it is closed."""
        reader, writer = await asyncio.open_connection(self.endpoint.host, self.endpoint.port)
        try:
            async with asyncio.timeout(10):
                writer.write(data)
                if leave:
                    writer.write_eof()
                return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.transport.abort()


def on_broker(folder: Path, scenario: Callable[[Broker], Awaitable[None]]) -> None:
    async def run() -> None:
        async with running(folder, controllers=1, brokers=1) as cluster:
            host, port = cluster.bootstrap.split(":")
            endpoint = Endpoint(host, int(port))
            client = Client(ClientWorld(), [endpoint])
            await client.create_topic("t", partitions=1, replication_factor=1)
            connection = Connection(ClientWorld(), endpoint, "hand")
            await connection.open()
            broker = Broker(client, connection, endpoint, (await client.leader("t", 0)).topic_id)
            while await broker.produce(batch(b"first")) is not Error.NONE:  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # its log is being laid down
            await scenario(broker)
            connection.close()
            await client.close()

    asyncio.run(run())


def batch(*values: bytes, timestamp_ms: int = NOW_MS) -> bytes:
    return build([NewRecord(None, value) for value in values], timestamp_ms=timestamp_ms)


def changed(position: int, value: bytes, *, sealed: bool) -> bytes:
    """Return a batch with other bytes at a position. sealed: the checksum fits them."""
    data = bytearray(batch(b"one", b"two"))
    data[position : position + len(value)] = value
    if sealed:
        data[CRC : CRC + 4] = struct.pack(">I", crc32c(memoryview(data)[ATTRIBUTES:]))
    return bytes(data)


REFUSED = {
    "magic 0": (changed(16, b"\0", sealed=True), Error.INVALID_RECORD),
    "magic 1": (changed(16, b"\1", sealed=True), Error.INVALID_RECORD),
    "magic 3": (changed(16, b"\3", sealed=True), Error.CORRUPT_MESSAGE),
    "unknown codec 5": (changed(ATTRIBUTES, b"\0\5", sealed=True), Error.UNSUPPORTED_COMPRESSION_TYPE),
    "unknown codec 7": (changed(ATTRIBUTES, b"\0\7", sealed=True), Error.UNSUPPORTED_COMPRESSION_TYPE),
    "fewer offsets than records": (changed(23, b"\0\0\0\0", sealed=True), Error.INVALID_RECORD),
    "offsets that go back": (changed(23, b"\xff\xff\xff\xf0", sealed=True), Error.CORRUPT_MESSAGE),
    "a length beyond the request": (changed(8, b"\0\0\xff\xff", sealed=False), Error.CORRUPT_MESSAGE),
    "a negative length": (changed(8, b"\xff\xff\xff\xff", sealed=False), Error.CORRUPT_MESSAGE),
    "records that are none": (changed(61, b"\x7e\x01", sealed=True), Error.INVALID_RECORD),
    "an offset that is another's": (changed(64, b"\x08", sealed=True), Error.INVALID_RECORD),
    "records that are not gzip": (changed(ATTRIBUTES, b"\0\1", sealed=True), Error.CORRUPT_MESSAGE),
    "records that are not zstd": (changed(ATTRIBUTES, b"\0\4", sealed=True), Error.CORRUPT_MESSAGE),
    "a largest timestamp that no record has": (
        changed(35, struct.pack(">q", NOW_MS + 1), sealed=True),
        Error.INVALID_TIMESTAMP,
    ),
    "a control batch": (changed(ATTRIBUTES, b"\0\x20", sealed=True), Error.INVALID_RECORD),
    "too large": (batch(bytes(1_100_000)), Error.MESSAGE_TOO_LARGE),
    "nothing": (b"", Error.INVALID_RECORD),
    "half a batch": (batch(b"half")[:30], Error.CORRUPT_MESSAGE),
    "a batch and a half": (batch(b"one") + batch(b"half")[:40], Error.CORRUPT_MESSAGE),
    "from the year 2100": (batch(b"x", timestamp_ms=4_102_444_800_000), Error.INVALID_TIMESTAMP),
}


def test_bad_batches_are_refused_and_nothing_is_appended(tmp_path: Path) -> None:
    random = Random("flips")

    async def scenario(broker: Broker) -> None:
        said = {name: await broker.produce(records) for name, (records, _) in REFUSED.items()}
        assert said == {name: error for name, (_, error) in REFUSED.items()}

        good = batch(b"value", b"other")
        for _ in range(150):
            bit = random.randrange(16 * 8, len(good) * 8)  # before it stand offset, length and epoch
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            allowed = {Error.CORRUPT_MESSAGE, Error.INVALID_RECORD} if bit // 8 == 16 else {Error.CORRUPT_MESSAGE}
            assert await broker.produce(bytes(bad)) in allowed, bit

        assert await broker.offset(-1) == (Error.NONE, 1, -1)
        # Base offset and leader epoch are the leader's to give, whatever a producer writes there.
        assert await broker.produce(changed(0, struct.pack(">q", 77), sealed=False)) is Error.NONE
        assert await broker.offset(-1) == (Error.NONE, 3, -1)

    on_broker(tmp_path, scenario)


def test_partitions_that_are_not_there_are_said_so(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        assert await broker.produce(batch(b"x"), topic_id=FOREIGN) is Error.UNKNOWN_TOPIC_ID
        assert await broker.produce(batch(b"x"), partition=9) is Error.UNKNOWN_TOPIC_OR_PARTITION
        assert await broker.fetch(FOREIGN, 0, 0) is Error.UNKNOWN_TOPIC_ID
        assert await broker.fetch(ZERO_UUID, 0, 0) in (Error.UNKNOWN_TOPIC_ID, Error.UNKNOWN_TOPIC_OR_PARTITION)
        assert await broker.fetch(broker.topic_id, 9, 0) is Error.UNKNOWN_TOPIC_OR_PARTITION
        assert await broker.fetch(broker.topic_id, 0, 2) is Error.OFFSET_OUT_OF_RANGE
        assert await broker.fetch(broker.topic_id, 0, -5) is Error.OFFSET_OUT_OF_RANGE
        assert await broker.fetch(broker.topic_id, 0, 0, epoch=99) is Error.UNKNOWN_LEADER_EPOCH
        assert (await broker.offset(-1, topic="nobody's"))[0] is Error.UNKNOWN_TOPIC_OR_PARTITION
        assert (await broker.offset(-1, epoch=99))[0] is Error.UNKNOWN_LEADER_EPOCH

    on_broker(tmp_path, scenario)


def test_offsets_of_all_kinds(tmp_path: Path) -> None:
    """Latest -1, earliest -2, latest by timestamp -3, earliest local -4, and the first at or after a time."""

    async def scenario(broker: Broker) -> None:
        for stamp in (NOW_MS + 30_000, NOW_MS + 10_000, NOW_MS + 20_000):
            assert await broker.produce(batch(b"x", timestamp_ms=stamp)) is Error.NONE

        assert await broker.offset(-1) == (Error.NONE, 4, -1)
        assert await broker.offset(-2) == (Error.NONE, 0, -1)
        assert await broker.offset(-3) == (Error.NONE, 1, NOW_MS + 30_000)
        assert await broker.offset(-4) == (Error.NONE, 0, -1)
        assert await broker.offset(0) == (Error.NONE, 0, NOW_MS)
        assert await broker.offset(NOW_MS + 5_000) == (Error.NONE, 1, NOW_MS + 30_000)
        assert await broker.offset(NOW_MS + 30_001) == (Error.NONE, -1, -1)
        assert await broker.end_of_epoch(0) == (Error.NONE, 0, 4)
        assert await broker.end_of_epoch(5) == (Error.NONE, -1, -1)
        assert (await broker.end_of_epoch(0, known=9))[0] is Error.UNKNOWN_LEADER_EPOCH

    on_broker(tmp_path, scenario)


def test_what_is_no_request_costs_its_sender_the_connection(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        good = encode_request(Api.METADATA, 9, 1, "x", MetadataRequest())
        assert await broker.shout(struct.pack(">i", 104857601) + b"x" * 100) == b""
        assert await broker.shout(struct.pack(">i", -1)) == b""
        assert await broker.shout(struct.pack(">ihhi", 20, 99, 0, 0) + bytes(12)) == b""
        assert await broker.shout(Random("noise").randbytes(5000), leave=True) == b""
        for end in (1, 4, 9, len(good) - 1):
            assert await broker.shout(good[:end], leave=True) == b""
        assert len(await broker.shout(good, leave=True)) > 40
        torn = struct.pack(">i", len(good) - 4 - 3) + good[4:-3]
        assert await broker.shout(torn) == b""

        assert await broker.produce(batch(b"still there")) is Error.NONE

    on_broker(tmp_path, scenario)


def test_garbage_behind_a_request_costs_its_sender_the_connection_and_nobody_else_anything(tmp_path: Path) -> None:
    """In one piece of bytes: the connection ends before what takes the broker longer has begun."""
    wanted = ct.CreatableTopic(name="later", num_partitions=1, replication_factor=1)
    creation = ct.CreateTopicsRequest(topics=[wanted], timeout_ms=5000)
    first = dr.DeleteRecordsTopic(name="t", partitions=[dr.DeleteRecordsPartition(partition_index=0, offset=1)])
    deletion = dr.DeleteRecordsRequest(topics=[first], timeout_ms=5000)
    garbage = struct.pack(">ihhi", 20, 99, 0, 0) + bytes(12)

    async def scenario(broker: Broker) -> None:
        unforeseen: list[dict[str, Any]] = []  # each of them would end the node
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unforeseen.append(context))

        assert await broker.shout(encode_request(Api.CREATE_TOPICS, 7, 1, "x", creation) + garbage) == b""
        assert await broker.shout(encode_request(Api.DELETE_RECORDS, 2, 1, "x", deletion) + garbage) == b""
        assert await broker.produce(batch(b"still there")) is Error.NONE

        assert unforeseen == []
        assert await broker.offset(-2) == (Error.NONE, 1, -1)
        async with asyncio.timeout(10):
            while (await broker.client.refresh(["later"])).topics[0].error_code is not Error.NONE:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    on_broker(tmp_path, scenario)


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_id_where_answers_must_name_topics_is_refused(tmp_path: Path, version: int) -> None:
    """Kafka: "Topic IDs are not supported in requests for version" 10 and 11, nor are topics without a name."""

    async def scenario(broker: Broker) -> None:
        known, nobody = MetadataRequestTopic(topic_id=broker.topic_id), MetadataRequestTopic(topic_id=FOREIGN)
        for wanted in (
            known,
            nobody,
            MetadataRequestTopic(name=None, topic_id=FOREIGN),
            MetadataRequestTopic(name=None),
        ):
            body = MetadataRequest(topics=[wanted, MetadataRequestTopic(name="t")])
            answer = await broker.ask(Api.METADATA, version, body)
            assert [(result.name, result.error_code) for result in answer.topics] == [
                (wanted.name or "", Error.INVALID_REQUEST),
                ("t", Error.INVALID_REQUEST),
            ]
        answer = await broker.ask(Api.METADATA, version, MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
        assert [result.error_code for result in answer.topics] == [Error.NONE]

    on_broker(tmp_path, scenario)


def test_a_legal_request_with_a_very_long_name_ends_nobody(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        topic = ct.CreatableTopic(name="x" * 32_767, num_partitions=1, replication_factor=1)
        answer = await broker.ask(Api.CREATE_TOPICS, 4, ct.CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        assert [result.error_code for result in answer.topics] == [Error.INVALID_TOPIC_EXCEPTION]

    on_broker(tmp_path, scenario)


def test_nobody_creates_a_topic_over_the_metadata_log(tmp_path: Path) -> None:
    """Its partition 0 would lie in the folder of the broker's metadata log; deleted, it took that with it."""

    async def scenario(broker: Broker) -> None:
        wanted = MetadataRequestTopic(name="__cluster_metadata")
        answer = await broker.ask(Api.METADATA, 9, MetadataRequest(topics=[wanted]))
        assert [result.error_code for result in answer.topics] == [Error.UNKNOWN_TOPIC_OR_PARTITION]
        topic = ct.CreatableTopic(name="__cluster_metadata", num_partitions=1, replication_factor=1)
        made = await broker.ask(Api.CREATE_TOPICS, 7, ct.CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        assert [result.error_code for result in made.topics] == [Error.TOPIC_AUTHORIZATION_FAILED]

    on_broker(tmp_path, scenario)


def test_an_impatient_client_does_not_cost_the_broker_its_connection_to_the_controller(tmp_path: Path) -> None:
    """Heartbeats, ISR proposals and other clients' requests are under way on it."""

    async def run() -> None:
        async with running(tmp_path, controllers=1, brokers=1) as cluster:
            host, port = cluster.bootstrap.split(":")
            controller: Any = cluster.nodes[101]
            connection = Connection(ClientWorld(), Endpoint(host, int(port)), "hand")
            await connection.open()
            before = await callers(controller)
            for number in range(20):
                topic = ct.CreatableTopic(name=f"t{number}", num_partitions=50, replication_factor=1)
                body = ct.CreateTopicsRequest(topics=[topic], timeout_ms=0)
                answer = await connection.send(exchange_of(Api.CREATE_TOPICS), body, timeout_ms=5000)
                assert answer.topics[0].error_code in (Error.REQUEST_TIMED_OUT, Error.NONE)
            assert await callers(controller) == before
            connection.close()

    asyncio.run(run())


async def callers(controller: Any) -> list[int]:
    """Return the connections that a controller has, once its broker has one for its heartbeats and one to fetch."""
    async with asyncio.timeout(10):
        while len(controller.server.connections) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return sorted(controller.server.connections)
