"""Many partitions at once hold up nobody: their files come in the background, their roles in slices."""

import asyncio
import time
from pathlib import Path

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.config import Endpoint
from replog.errors import Error
from replog.log.batch import NewRecord, build
from replog.node.broker import Broker
from replog.types import ZERO_UUID
from replog.wire.apis import Api
from replog.wire.exchange import exchange_of
from replog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.loopback import Loopback, running

COUNT = 60


def hosted(cluster: Loopback, topic: str) -> list[int]:
    brokers = [node for node in cluster.nodes.values() if isinstance(node, Broker)]
    return [len(broker.plane.replicas.by_topic.get(topic, {})) for broker in brokers]


async def until_hosted(cluster: Loopback, topic: str, counts: list[int]) -> None:
    async with asyncio.timeout(40):
        while hosted(cluster, topic) != counts:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def longest_pause_ms(stop: asyncio.Event) -> float:
    """Return for how long the event loop, shared by all nodes, did not come back."""
    longest = 0.0
    while not stop.is_set():
        began = time.monotonic()
        await asyncio.sleep(0.002)
        longest = max(longest, (time.monotonic() - began) * 1000)
    return longest


async def append(client: Client, topic: str, partition: int) -> Error:
    batch = build([NewRecord(None, b"x")], timestamp_ms=ClientWorld().clock.wall_ms())
    answer = await client.produce(topic, partition, batch, acks=-1, timeout_ms=5000)
    assert answer is not None
    return answer.error_code


def test_creating_many_partitions_holds_up_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, controllers=1, brokers=2) as cluster:
            host, port = cluster.bootstrap.split(",")[0].split(":")
            client = Client(ClientWorld(), [Endpoint(host, int(port))])
            stop = asyncio.Event()
            watching = asyncio.create_task(longest_pause_ms(stop))

            made = await client.create_topic("many", assignments=[[1, 2]] * (COUNT // 2) + [[2, 1]] * (COUNT // 2))
            assert made.error_code is Error.NONE
            await until_hosted(cluster, "many", [COUNT, COUNT])
            stop.set()

            assert await watching < 1000  # it was several seconds when each log was synced by itself
            assert [await append(client, "many", index) for index in (0, COUNT - 1)] == [Error.NONE] * 2
            await client.close()

    asyncio.run(scenario())


def test_a_topic_deleted_while_it_is_created_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, controllers=1, brokers=1) as cluster:
            client = Client(ClientWorld(), [Endpoint(*_split(cluster.bootstrap))])
            for _ in range(3):
                await client.create_topic("brief", partitions=20, replication_factor=1)
                topics = [DeleteTopicState(name="brief", topic_id=ZERO_UUID)]
                await client.ask(exchange_of(Api.DELETE_TOPICS), DeleteTopicsRequest(topics=topics, timeout_ms=5000))
            await client.create_topic("brief", partitions=3, replication_factor=1)
            await until_hosted(cluster, "brief", [3])

            folders = sorted(path.name for path in (tmp_path / "node-1").glob("brief-*"))
            assert folders == ["brief-0", "brief-1", "brief-2"]
            assert await append(client, "brief", 2) is Error.NONE
            await client.close()

    asyncio.run(scenario())


def _split(address: str) -> tuple[str, int]:
    host, port = address.split(":")
    return host, int(port)
