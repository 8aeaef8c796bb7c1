"""Fetching from real brokers on loopback: sessions over the wire, log starts that reach followers, reads in one's own rack."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Consumer, TopicPartition

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.client.connection import Connection
from replog.config import Endpoint
from replog.errors import Error
from replog.log.batch import NewRecord, build
from replog.node.broker import Broker
from replog.types import TopicPartition as Name
from replog.wire.apis import Api
from replog.wire.exchange import exchange_of
from replog.wire.messages import delete_records as dr
from replog.wire.messages import list_offsets as lo
from replog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from tests.broker.loopback import Loopback, in_thread, running
from tests.broker.test_librdkafka import create, produce

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class Reader:
    """A consumer that speaks the protocol by hand."""

    def __init__(self, connection: Connection, topic_id: UUID) -> None:
        self.connection = connection
        self.topic_id = topic_id

    async def fetch(self, session: tuple[int, int], *positions: tuple[int, int], forget: tuple[int, ...] = ()):
        partitions = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in positions
        ]
        body = FetchRequest(
            max_wait_ms=10,
            min_bytes=1,
            session_id=session[0],
            session_epoch=session[1],
            topics=[FetchTopic(topic_id=self.topic_id, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=self.topic_id, partitions=list(forget))] if forget else [],
        )
        answer: FetchResponse = await self.connection.send(exchange_of(Api.FETCH), body, timeout_ms=5000)
        return answer


def said(answer: FetchResponse) -> dict[int, tuple[Error, int, bool]]:
    return {
        partition.partition_index: (partition.error_code, partition.high_watermark, bool(partition.records))
        for topic in answer.responses
        for partition in topic.partitions
    }


async def reader(client: Client, topic: str) -> Reader:
    leader = await client.leader(topic, 0)
    assert leader is not None
    connection = Connection(ClientWorld(), client.brokers[leader.node_id], "reader")
    await connection.open()
    return Reader(connection, leader.topic_id)


async def append(client: Client, topic: str, partition: int, value: bytes) -> None:
    batch = build([NewRecord(b"k", value)], timestamp_ms=ClientWorld().clock.wall_ms())
    answer = await client.produce(topic, partition, batch, acks=-1, timeout_ms=5000)
    assert answer is not None
    assert answer.error_code is Error.NONE


def endpoint_of(cluster: Loopback) -> Endpoint:
    host, port = cluster.bootstrap.split(",")[0].split(":")
    return Endpoint(host, int(port))


@pytest.mark.parametrize("slots", [pytest.param(1000, id="sessions"), pytest.param(0, id="no slot")])
def test_a_session_says_only_what_there_is_to_say(tmp_path: Path, slots: int) -> None:
    settings = {"max.incremental.fetch.session.cache.slots": slots}
    nothing = (Error.NONE, 0, False)

    async def scenario() -> None:
        async with running(tmp_path, controllers=1, brokers=1, **settings) as cluster:
            client = Client(ClientWorld(), [endpoint_of(cluster)])
            await client.create_topic("t", partitions=3, replication_factor=1)
            hand = await reader(client, "t")
            await wait_for_sessions(cluster, "t", 3)

            first = await hand.fetch((0, 0), (0, 0), (1, 0), (2, 0))
            assert said(first) == dict.fromkeys(range(3), nothing)
            if not slots:
                assert first.session_id == 0
            else:
                await follow_up(client, hand, first.session_id)
            hand.connection.close()
            await client.close()

    async def follow_up(client: Client, hand: Reader, session: int) -> None:
        assert said(await hand.fetch((session, 1))) == {}
        await append(client, "t", 1, b"x")
        assert said(await hand.fetch((session, 2))) == {1: (Error.NONE, 1, True)}
        assert said(await hand.fetch((session, 3))) == {1: (Error.NONE, 1, True)}  # the reader did not move
        assert said(await hand.fetch((session, 4), (1, 1))) == {}
        assert said(await hand.fetch((session, 5), (9, 0))) == {9: (Error.UNKNOWN_TOPIC_OR_PARTITION, -1, False)}
        assert said(await hand.fetch((session, 6), forget=(9,))) == {}
        assert (await hand.fetch((session, 6))).error_code is Error.INVALID_FETCH_SESSION_EPOCH
        assert (await hand.fetch((session + 1, 7))).error_code is Error.FETCH_SESSION_ID_NOT_FOUND
        ended = await hand.fetch((session, -1), (0, 0))
        assert (ended.session_id, said(ended)) == (0, {0: nothing})
        assert (await hand.fetch((session, 7))).error_code is Error.FETCH_SESSION_ID_NOT_FOUND

    asyncio.run(scenario())


def test_a_reader_that_left_is_notified_of_no_more_than_one_move(tmp_path: Path) -> None:
    """Its session may stay for minutes; records must not cost more for it."""

    async def scenario() -> None:
        async with running(tmp_path, controllers=1, brokers=1) as cluster:
            client = Client(ClientWorld(), [endpoint_of(cluster)])
            await client.create_topic("t", partitions=1, replication_factor=1)
            await wait_for_sessions(cluster, "t", 1)
            hand = await reader(client, "t")
            broker = cluster.nodes[1]
            assert isinstance(broker, Broker)
            replica = broker.plane.replicas.by_topic["t"][0]
            session = (await hand.fetch((0, 0), (0, 0))).session_id
            await hand.fetch((session, 1))
            assert len(replica.watchers) == 1
            hand.connection.close()

            for value in (b"x", b"y"):
                await append(client, "t", 0, value)

            assert len(replica.watchers) == 0
            again = await reader(client, "t")
            assert said(await again.fetch((session, 2))) == {0: (Error.NONE, 2, True)}
            again.connection.close()
            await client.close()

    asyncio.run(scenario())


async def wait_for_sessions(cluster: Loopback, topic: str, count: int) -> None:
    """Wait until all brokers host all partitions and all followers are in their leaders' sessions."""
    brokers = [node for node in cluster.nodes.values() if isinstance(node, Broker)]
    async with asyncio.timeout(20):
        while not all(len(broker.plane.replicas.by_topic.get(topic, {})) == count for broker in brokers):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def test_idle_followers_name_nothing_and_stay_in_sync_and_learn_of_log_starts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, controllers=1, brokers=2, replica__lag__time__max__ms=1000) as cluster:
            client = Client(ClientWorld(), [endpoint_of(cluster)])
            await client.create_topic("t", assignments=[[1, 2]] * 20)
            await wait_for_sessions(cluster, "t", 20)
            for index in range(20):
                await append(client, "t", index, b"x")
            leader, follower = cluster.nodes[1], cluster.nodes[2]
            assert isinstance(leader, Broker)
            assert isinstance(follower, Broker)

            await asyncio.sleep(2.5)  # longer than the allowed lag: nobody is named, and nobody lags
            await append(client, "t", 3, b"y")
            wanted = dr.DeleteRecordsRequest(
                topics=[
                    dr.DeleteRecordsTopic(name="t", partitions=[dr.DeleteRecordsPartition(partition_index=5, offset=1)])
                ],
                timeout_ms=5000,
            )
            deleted = await client.ask(exchange_of(Api.DELETE_RECORDS), wanted, node=1)

            assert deleted.topics[0].partitions[0].low_watermark == 1
            copy = follower.plane.replicas.find(Name("t", 5))
            assert copy is not None
            assert copy.partition.log.log_start_offset == 1
            for replica in leader.plane.replicas.by_topic["t"].values():
                assert replica.partition.leadership is not None
                assert set(replica.partition.leadership.isr) == {1, 2}
            await client.close()

    asyncio.run(scenario())


def test_librdkafka_reads_from_the_replica_of_its_rack(tmp_path: Path) -> None:
    values = [b"value-%d" % index for index in range(500)]

    def read(bootstrap: str, rack: str) -> list[bytes]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "client.rack": rack})
        consumer.assign([TopicPartition("t", 0, 0)])
        found: list[bytes] = []
        for _ in range(100):
            found += [message.value() for message in consumer.consume(1000, 0.2) if message.error() is None]
            if len(found) >= len(values):
                break
        consumer.close()
        return found

    async def scenario() -> None:
        settings = {"racks": True, "replica.selector.class": RACK_AWARE}
        async with running(tmp_path, controllers=1, brokers=3, **settings) as cluster:
            await in_thread(lambda: create(cluster.bootstrap, "t", 1, 3))
            assert await in_thread(lambda: produce(cluster.bootstrap, "t", values, acks="all")) == []
            leader = next(
                node
                for node, broker in cluster.nodes.items()
                if isinstance(broker, Broker)
                and broker.plane.replicas.by_topic["t"][0].partition.leadership is not None
            )
            other = next(node for node in (1, 2, 3) if node != leader)
            served = count_reads(cluster)

            assert await in_thread(read, cluster.bootstrap, f"rack-{other}") == values
            assert [node for node, count in served.items() if count] == [other]
            served.update(dict.fromkeys(served, 0))
            assert await in_thread(read, cluster.bootstrap, "rack-of-nobody") == values
            assert [node for node, count in served.items() if count] == [leader]

    asyncio.run(scenario())


def count_reads(cluster: Loopback) -> dict[int, int]:
    """Count what each broker gives to consumers, in answers with records."""
    served = dict.fromkeys((1, 2, 3), 0)
    for node in served:
        broker = cluster.nodes[node]
        assert isinstance(broker, Broker)
        partition = broker.plane.replicas.by_topic["t"][0].partition
        original = partition.fetch_as_consumer

        def counted(node: int = node, original=original, **asked):
            answer = original(**asked)
            served[node] += bool(answer.records)
            return answer

        partition.fetch_as_consumer = counted  # type: ignore[method-assign]
    return served


FILLED = {
    "the answer's limit": {"min_bytes": 1 << 20, "max_bytes": 1500},
    "the partition's limit": {"min_bytes": 900, "partition_max_bytes": 1000},
    "the end of a segment": {"min_bytes": 1 << 20},
}


@pytest.mark.parametrize("asked", [pytest.param(asked, id=name) for name, asked in FILLED.items()])
def test_a_fetch_that_waiting_would_not_fill_is_answered_at_once(tmp_path: Path, asked: dict[str, int]) -> None:
    """As Apache Kafka does: it counts what limits keep back, and waits for nobody who is behind the active segment."""

    async def scenario() -> None:
        async with running(tmp_path, controllers=1, brokers=1, log__segment__bytes=4096) as cluster:
            client = Client(ClientWorld(), [endpoint_of(cluster)])
            await client.create_topic("t", partitions=1, replication_factor=1)
            await wait_for_sessions(cluster, "t", 1)
            for _ in range(10 if len(asked) == 1 else 5):
                await append(client, "t", 0, b"x" * 600)
            hand = await reader(client, "t")
            partition = FetchPartition(
                partition=0, fetch_offset=0, partition_max_bytes=asked.get("partition_max_bytes", 1 << 20)
            )
            body = FetchRequest(
                max_wait_ms=30_000,
                min_bytes=asked["min_bytes"],
                max_bytes=asked.get("max_bytes", 1 << 20),
                topics=[FetchTopic(topic_id=hand.topic_id, partitions=[partition])],
            )
            async with asyncio.timeout(15):
                answer = await hand.connection.send(exchange_of(Api.FETCH), body, timeout_ms=60_000)
            assert said(answer)[0][2]
            hand.connection.close()
            await client.close()

    asyncio.run(scenario())


def test_special_timestamps_are_answered_by_what_they_mean_and_others_refused(tmp_path: Path) -> None:
    """KIP-405, KIP-1005, KIP-1023: nothing lies in another tier; Apache Kafka refuses negative ones that it does not know."""
    unknown, unsupported = (Error.NONE, -1), (Error.UNSUPPORTED_VERSION, -1)
    expected = {-1: (Error.NONE, 1), -2: (Error.NONE, 0), -3: (Error.NONE, 0), -4: (Error.NONE, 0)}
    expected |= {-5: unknown, -6: unknown, -7: unsupported}

    async def scenario() -> None:
        async with running(tmp_path, controllers=1, brokers=1) as cluster:
            client = Client(ClientWorld(), [endpoint_of(cluster)])
            await client.create_topic("t", partitions=1, replication_factor=1)
            await wait_for_sessions(cluster, "t", 1)
            await append(client, "t", 0, b"x")
            found = {}
            for timestamp in expected:
                wanted = lo.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
                body = lo.ListOffsetsRequest(replica_id=-1, topics=[lo.ListOffsetsTopic(name="t", partitions=[wanted])])
                answer = (await client.ask(exchange_of(Api.LIST_OFFSETS), body, node=1)).topics[0].partitions[0]
                found[timestamp] = (answer.error_code, answer.offset)
            assert found == expected
            await client.close()

    asyncio.run(scenario())


def test_records_are_not_deleted_where_the_last_of_each_key_is_wanted(tmp_path: Path) -> None:
    """As Apache Kafka: KIP-107, "Proposed Changes", and the internal topics hold what groups have read."""
    expected = {
        "t": Error.NONE,
        "compacted": Error.POLICY_VIOLATION,
        "both": Error.NONE,
        "__consumer_offsets": Error.INVALID_TOPIC_EXCEPTION,
    }
    policies = {"compacted": "compact", "both": "compact,delete", "__consumer_offsets": "delete"}

    async def scenario() -> None:
        async with running(tmp_path, controllers=1, brokers=1) as cluster:
            client = Client(ClientWorld(), [endpoint_of(cluster)])
            found = {}
            for topic in expected:
                configs = {"cleanup.policy": policies[topic]} if topic in policies else {}
                await client.create_topic(topic, partitions=1, replication_factor=1, configs=configs)
                await wait_for_sessions(cluster, topic, 1)
                if topic != "__consumer_offsets":  # only coordinators write there
                    await append(client, topic, 0, b"x")
                partition = dr.DeleteRecordsPartition(partition_index=0, offset=1)
                wanted = dr.DeleteRecordsRequest(
                    topics=[dr.DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=5000
                )
                answer = (await client.ask(exchange_of(Api.DELETE_RECORDS), wanted, node=1)).topics[0].partitions[0]
                found[topic] = answer.error_code
            assert found == expected
            await client.close()

    asyncio.run(scenario())
