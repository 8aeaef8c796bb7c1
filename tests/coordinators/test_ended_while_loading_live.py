"""A coordinator whose leadership ends while it reads its log: it begins nothing, and its task ends with it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.config import Endpoint
from replog.coordinators.placement import TRANSACTIONS_TOPIC
from replog.errors import Error
from replog.log.batch import NewRecord, build
from replog.node.broker import Broker
from replog.node.coordinators.runtime import CoordinatorShard
from replog.node.replication.replicas import Replica
from replog.types import TopicPartition
from tests.broker.loopback import Loopback, running

HERE, THERE = 1, 2


def replica_of(cluster: Loopback) -> tuple[Broker, Replica]:
    """Return the leader of `t`, and its replica."""
    broker = cluster.nodes[HERE]
    assert isinstance(broker, Broker)
    replica = broker.plane.replicas.find(TopicPartition("t", 0))
    assert replica is not None
    return broker, replica


async def write(client: Client, *, acks: int) -> None:
    """Write a record to `t`."""
    while True:
        result = await client.produce("t", 0, build([NewRecord(b"key", b"value")], timestamp_ms=1), acks=acks)
        assert result is not None
        if result.error_code is Error.NONE:
            return
        await asyncio.sleep(0.05)  # its log is yet to be made


class EndsAtItsLastRecord:
    """A core whose leadership is over once it has read so far."""

    next_ms = None

    def __init__(self, last_offset: int) -> None:
        self.last_offset = last_offset
        self.end: Callable[[], None] = lambda: None

    def replay(self, _key: bytes, _value: bytes, log_offset: int, _producer_id: int | None) -> None:
        if log_offset == self.last_offset:
            self.end()


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_coordinator_that_has_ended_is_not_loaded(tmp_path: Path, is_committed: bool) -> None:
    """It was said to coordinate after it had been said not to, or waited for a high watermark that was nobody's any more."""

    async def run() -> bool:
        settings = {"replica__lag__time__max__ms": 60_000}
        async with running(tmp_path, controllers=1, brokers=2, **settings) as cluster, asyncio.timeout(30):
            client = Client(ClientWorld(), [Endpoint("127.0.0.1", cluster.ports[HERE])])
            await client.create_topic("t", assignments=[[HERE, THERE]])
            there = cluster.nodes[THERE]
            assert isinstance(there, Broker)
            await write(client, acks=-1)
            if not is_committed:
                there.plane.fetching.stop()
                await write(client, acks=1)
            await client.close()
            broker, replica = replica_of(cluster)
            core = EndsAtItsLastRecord(replica.partition.log.log_end_offset - 1)
            runtime = broker.plane.coordinators.by_topic[TRANSACTIONS_TOPIC]
            shard = CoordinatorShard(runtime, replica, core)  # type: ignore[arg-type]
            core.end = shard.end

            async with asyncio.timeout(5):
                return await shard.load()

    assert not asyncio.run(run())
