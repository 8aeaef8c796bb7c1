"""What Apache Kafka's tools and producers read in answers that are easily forgotten: of followers, and of refusals."""

import asyncio
from pathlib import Path

import pytest

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.client.connection import Connection
from replog.errors import Error
from replog.log.batch import NewRecord, build
from replog.types import DEBUGGING_CONSUMER, NO_NODE
from replog.wire.apis import Api
from replog.wire.exchange import exchange_of
from replog.wire.messages import delete_records as dr
from replog.wire.messages import list_offsets as lo
from tests.broker.loopback import running
from tests.broker.test_fetching_live import append, endpoint_of, wait_for_sessions

PRODUCER, EPOCH = 4000, 0


@pytest.mark.parametrize(
    ("asker", "expected"),
    [
        pytest.param(DEBUGGING_CONSUMER, {1: (Error.NONE, 1), 2: (Error.NONE, 1)}, id="who compares replicas"),
        pytest.param(NO_NODE, {1: (Error.NONE, 1), 2: (Error.NOT_LEADER_OR_FOLLOWER, -1)}, id="a consumer"),
    ],
)
def test_followers_say_where_their_logs_end_to_who_compares_replicas(
    tmp_path: Path, asker: int, expected: dict[int, tuple[Error, int]]
) -> None:
    """ListOffsets of Kafka's protocol: replica id -2 is answered by any replica."""

    async def ends() -> dict[int, tuple[Error, int]]:
        async with running(tmp_path, controllers=1, brokers=2) as cluster:
            client = Client(ClientWorld(), [endpoint_of(cluster)])
            await client.create_topic("t", assignments=[[1, 2]])
            await wait_for_sessions(cluster, "t", 1)
            await append(client, "t", 0, b"x")
            wanted = lo.ListOffsetsPartition(partition_index=0, timestamp=-1)
            body = lo.ListOffsetsRequest(replica_id=asker, topics=[lo.ListOffsetsTopic(name="t", partitions=[wanted])])
            found: dict[int, tuple[Error, int]] = {}
            async with asyncio.timeout(10):
                while found.get(2, (Error.NONE, 0)) == (Error.NONE, 0):  # a follower learns of the high watermark later
                    for node in expected:
                        (topic,) = (await client.ask(exchange_of(Api.LIST_OFFSETS), body, node=node)).topics
                        found[node] = (topic.partitions[0].error_code, topic.partitions[0].offset)
            await client.close()
            return found

    assert asyncio.run(ends()) == expected


def test_a_refused_producer_learns_where_the_log_begins(tmp_path: Path) -> None:
    """As Apache Kafka: not where the partition itself was refused, or bytes that nobody could read."""

    def batch(sequence: int) -> bytes:
        return build([NewRecord(b"k", b"v")], timestamp_ms=1, producer=(PRODUCER, EPOCH, sequence))

    async def refusals() -> list[tuple[Error, int]]:
        async with running(tmp_path, controllers=1, brokers=1) as cluster:
            client = Client(ClientWorld(), [endpoint_of(cluster)])
            await client.create_topic("t", partitions=1, replication_factor=1)
            await wait_for_sessions(cluster, "t", 1)
            for sequence in range(3):
                answer = await client.produce("t", 0, batch(sequence), acks=-1)
                assert answer is not None
                assert (answer.error_code, answer.log_start_offset) == (Error.NONE, 0)
            partition = dr.DeleteRecordsPartition(partition_index=0, offset=2)
            deletion = dr.DeleteRecordsRequest(
                topics=[dr.DeleteRecordsTopic(name="t", partitions=[partition])], timeout_ms=5000
            )
            await client.ask(exchange_of(Api.DELETE_RECORDS), deletion, node=1)
            found = []
            for content in (batch(9), batch(3)[:-1] + b"?"):
                refused = await client.produce("t", 0, content, acks=-1)
                assert refused is not None
                found.append((refused.error_code, refused.log_start_offset))
            await client.close()
            return found

    assert asyncio.run(refusals()) == [(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, 2), (Error.CORRUPT_MESSAGE, -1)]


def test_telemetry_is_not_offered_and_new_groups_are(tmp_path: Path) -> None:
    """As a broker of Apache Kafka 4 without a telemetry plugin (KIP-714): clients then ask for no subscriptions, and push nothing."""

    async def offered() -> set[int]:
        async with running(tmp_path, controllers=1, brokers=1) as cluster:
            connection = Connection(ClientWorld(), endpoint_of(cluster), "test")
            await connection.open()
            connection.close()
            return set(connection.versions)

    found = asyncio.run(offered())

    assert found & {Api.GET_TELEMETRY_SUBSCRIPTIONS, Api.PUSH_TELEMETRY} == set()
    assert found >= {Api.CONSUMER_GROUP_HEARTBEAT, Api.CONSUMER_GROUP_DESCRIBE}
