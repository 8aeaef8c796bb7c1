"""Quotas at real nodes: who produces or fetches more than his quota is answered with the time to wait, and not read meanwhile (KIP-219)."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.client.connection import Connection
from replog.errors import Error
from replog.log.batch import NewRecord, build
from replog.metadata.client_quotas import (
    CONNECTION_RATE,
    CONSUMER_RATE,
    IP,
    MUTATION_RATE,
    PRODUCER_RATE,
    REQUEST_PERCENTAGE,
)
from replog.node.broker import Broker
from replog.wire.messages import alter_client_quotas as alter
from replog.wire.messages import create_topics as ct
from replog.wire.messages import describe_cluster as dc
from replog.wire.messages import fetch as f
from replog.wire.messages import metadata as md
from replog.wire.messages import produce as p
from tests.broker.loopback import Loopback, running
from tests.broker.test_fetching_live import endpoint_of

VERSION_WITH_NAMES = 12
VALUE_BYTES = 30_000
WAIT_MS = 20_000
API_VERSIONS_V0 = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


class Limited:
    """A cluster with a topic, and connections of clients by their names."""

    def __init__(self, cluster: Loopback, client: Client) -> None:
        self.cluster = cluster
        self.client = client
        self.open: list[Connection] = []

    @property
    def broker(self) -> Broker:
        (broker,) = (node for node in self.cluster.nodes.values() if isinstance(node, Broker))
        return broker

    async def limit(self, client_id: str, key: str, value: float) -> None:
        """Set a quota, and wait until the broker knows it."""
        entity = [alter.AlterClientQuotasRequestEntityData(entity_type="client-id", entity_name=client_id)]
        entry = alter.AlterClientQuotasRequestEntryData(entity=entity, ops=[alter.OpData(key=key, value=value)])
        answer = await self.client.ask(alter.EXCHANGE, alter.AlterClientQuotasRequest(entries=[entry]))
        assert [one.error_code for one in answer.entries] == [Error.NONE]
        async with asyncio.timeout(10):
            while not self.broker.plane.metadata.image.client_quotas.share_of(key, "", client_id):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def connect(self, client_id: str) -> Connection:
        connection = Connection(ClientWorld(), endpoint_of(self.cluster), client_id)
        await connection.open()
        self.open.append(connection)
        return connection


@asynccontextmanager
async def limited(folder: Path) -> AsyncGenerator[Limited]:
    async with running(folder, controllers=1, brokers=1) as cluster:
        client = Client(ClientWorld(), [endpoint_of(cluster)])
        await client.create_topic("t", partitions=1, replication_factor=1)
        there = Limited(cluster, client)
        async with asyncio.timeout(10):
            while not any(replica.partition.leadership for replica in there.broker.plane.replicas):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        try:
            yield there
        finally:
            for connection in there.open:
                connection.close()
            await client.close()


def production(acks: int = 1) -> p.ProduceRequest:
    batch = build([NewRecord(b"k", b"v" * VALUE_BYTES)], timestamp_ms=ClientWorld().clock.wall_ms())
    topic = p.TopicProduceData(name="t", partition_data=[p.PartitionProduceData(index=0, records=batch)])
    return p.ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[topic])


async def produce(connection: Connection) -> p.ProduceResponse:
    answer = await connection.send(p.EXCHANGE, production(), version=9, timeout_ms=WAIT_MS)
    (topic,) = answer.responses
    assert topic.partition_responses[0].error_code is Error.NONE
    return answer


async def fetch(connection: Connection, replica_id: int = -1) -> f.FetchResponse:
    partition = f.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10**6)
    topics = [f.FetchTopic(topic="t", partitions=[partition])]
    body = f.FetchRequest(replica_id=replica_id, max_wait_ms=100, min_bytes=1, topics=topics)
    return await connection.send(f.EXCHANGE, body, version=VERSION_WITH_NAMES, timeout_ms=WAIT_MS)


async def seconds_of_next(connection: Connection) -> float:
    began = monotonic()
    await connection.send(dc.EXCHANGE, dc.DescribeClusterRequest(), timeout_ms=WAIT_MS)
    return monotonic() - began


def test_who_produces_too_much_is_written_down_and_waits_and_nobody_else_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with limited(tmp_path) as there:
            await there.limit("greedy", PRODUCER_RATE, VALUE_BYTES // 11)
            greedy, modest = await there.connect("greedy"), await there.connect("modest")

            answer = await produce(greedy)
            waited_s = await seconds_of_next(greedy)

            assert 800 <= answer.throttle_time_ms <= 3000  # the tenth second, and what a request has besides records
            assert waited_s >= answer.throttle_time_ms / 1000 - 0.1
            assert (await produce(modest)).throttle_time_ms == 0
            assert await seconds_of_next(modest) < 0.5

    asyncio.run(scenario())


@pytest.mark.nightly  # 14 s
def test_two_requests_at_once_wait_for_the_longer_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with limited(tmp_path) as there:
            await there.limit("greedy", PRODUCER_RATE, VALUE_BYTES // 11)
            greedy = await there.connect("greedy")

            first = greedy.send(p.EXCHANGE, production(), version=9, timeout_ms=WAIT_MS)
            second = greedy.send(p.EXCHANGE, production(), version=9, timeout_ms=WAIT_MS)
            delays = [one.throttle_time_ms for one in await asyncio.gather(first, second)]
            waited_s = await seconds_of_next(greedy)

            assert 0 < delays[0] < delays[1]
            assert waited_s >= delays[1] / 1000 - 0.1

    asyncio.run(scenario())


def test_who_wants_no_answers_waits_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with limited(tmp_path) as there:
            await there.limit("silent", PRODUCER_RATE, VALUE_BYTES // 11)
            silent = await there.connect("silent")

            silent.send_unanswered(production(acks=0), version=9)

            assert await seconds_of_next(silent) >= 0.7

    asyncio.run(scenario())


@pytest.mark.parametrize(("replica_id", "waits"), [
    pytest.param(-1, True, id="a consumer"),
    pytest.param(1, False, id="a follower"),
])  # fmt: skip
def test_who_fetches_too_much_gets_it_and_waits_but_no_follower(tmp_path: Path, replica_id: int, waits: bool) -> None:
    async def scenario() -> None:
        async with limited(tmp_path) as there:
            for _ in range(3):
                await produce(await there.connect("writer"))
            await there.limit("reader", CONSUMER_RATE, VALUE_BYTES // 11)
            reader = await there.connect("reader")

            answer = await fetch(reader, replica_id)

            size = len(answer.responses[0].partitions[0].records or b"") if answer.responses else 0
            assert (answer.throttle_time_ms > 0) is waits
            if waits:
                assert VALUE_BYTES < size < 2 * VALUE_BYTES  # no more than one batch beyond the window
                assert await seconds_of_next(reader) >= answer.throttle_time_ms / 1000 - 0.1

    asyncio.run(scenario())


def test_who_takes_more_time_than_his_share_waits_whatever_he_asks_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with limited(tmp_path) as there:
            await there.limit("busy", REQUEST_PERCENTAGE, 0.0001)  # 1 us in a second
            busy, modest = await there.connect("busy"), await there.connect("modest")

            answer = await busy.send(dc.EXCHANGE, dc.DescribeClusterRequest(), timeout_ms=WAIT_MS)
            written = asyncio.ensure_future(produce(busy))
            waited_s = await seconds_of_next(modest)
            began = monotonic()
            await written

            assert 0 < answer.throttle_time_ms <= 1000
            assert monotonic() - began >= answer.throttle_time_ms / 1000 - waited_s - 0.2
            assert (await written).throttle_time_ms > 0
            assert waited_s < 0.5

    asyncio.run(scenario())


def test_who_creates_too_many_partitions_is_refused_waits_and_others_are_served(tmp_path: Path) -> None:
    def creation(name: str, count: int) -> ct.CreateTopicsRequest:
        return ct.CreateTopicsRequest(
            topics=[ct.CreatableTopic(name=name, num_partitions=count, replication_factor=1)], timeout_ms=5000
        )

    async def scenario() -> None:
        async with limited(tmp_path) as there:
            await there.limit("eager", MUTATION_RATE, 1)
            eager, modest = await there.connect("eager"), await there.connect("modest")

            first = await eager.send(ct.EXCHANGE, creation("a", 12), timeout_ms=WAIT_MS)
            refused = await eager.send(ct.EXCHANGE, creation("b", 1), timeout_ms=WAIT_MS)
            other = await modest.send(ct.EXCHANGE, creation("c", 1), timeout_ms=WAIT_MS)
            waited_s = await seconds_of_next(eager)
            later = await eager.send(ct.EXCHANGE, creation("b", 1), timeout_ms=WAIT_MS)

            assert [one.topics[0].error_code for one in (first, refused, other, later)] == [
                Error.NONE,
                Error.THROTTLING_QUOTA_EXCEEDED,
                Error.NONE,
                Error.NONE,
            ]
            assert (first.throttle_time_ms, other.throttle_time_ms, later.throttle_time_ms) == (0, 0, 0)
            assert 0 < refused.throttle_time_ms <= 1001
            assert waited_s >= refused.throttle_time_ms / 1000 - 0.3

    asyncio.run(scenario())


def test_who_names_topics_that_are_not_there_has_no_more_made_than_who_creates_them(tmp_path: Path) -> None:
    """Topics that come by being asked for are partitions, too."""

    async def scenario() -> None:
        async with limited(tmp_path) as there:
            await there.limit("eager", MUTATION_RATE, 1)
            eager, modest = await there.connect("eager"), await there.connect("modest")
            for client, kind in ((eager, "e"), (modest, "m")):
                wanted = [md.MetadataRequestTopic(name=f"{kind}{number}") for number in range(40)]
                await client.send(md.EXCHANGE, md.MetadataRequest(topics=wanted), timeout_ms=WAIT_MS)

            names = there.broker.plane.metadata.image.topics_by_name
            async with asyncio.timeout(20):
                while sum(name.startswith("m") for name in names) < 40 or there.broker.plane.cluster._creating:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)

            assert 1 <= sum(name.startswith("e") for name in names) <= 20

    asyncio.run(scenario())


async def set_address(there: Limited, rate: float | None) -> None:
    """Limit the connections from here, or take the limit away, and wait until the broker knows it."""
    entity = [alter.AlterClientQuotasRequestEntityData(entity_type=IP, entity_name="127.0.0.1")]
    op = alter.OpData(key=CONNECTION_RATE, value=rate or 0.0, remove=rate is None)
    entry = alter.AlterClientQuotasRequestEntryData(entity=entity, ops=[op])
    answer = await there.client.ask(alter.EXCHANGE, alter.AlterClientQuotasRequest(entries=[entry]))
    assert [one.error_code for one in answer.entries] == [Error.NONE]
    async with asyncio.timeout(10):
        while there.broker.plane.metadata.image.client_quotas.connection_rate("127.0.0.1") != rate:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def served_of(there: Limited, count: int) -> int:
    """Connect one after the other; return how many were answered."""
    served = 0
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint_of(there.cluster).port)
        try:
            writer.write(API_VERSIONS_V0)
            served += bool(await reader.read(1))
        except ConnectionError:
            pass
        finally:
            writer.close()
    return served


def test_an_address_that_connects_too_often_is_closed_until_its_limit_is_taken_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with limited(tmp_path) as there:
            before = await served_of(there, 15)
            await set_address(there, 1)
            limited_now = await served_of(there, 15)
            await set_address(there, None)
            after = await served_of(there, 15)
        assert before == after == 15
        assert 1 <= limited_now <= 11  # a connection a second, over a window of ten

    asyncio.run(scenario())
