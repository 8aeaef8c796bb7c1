"""An end marker that waits for its partition's replicas holds up no other producer between the same two brokers, nor markers at others."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.client.connection import Connection
from replog.config import Endpoint
from replog.errors import Error
from replog.log.batch import TRANSACTIONAL, NewRecord, build
from replog.node.broker import Broker
from replog.node.replication.replicas import Replica
from replog.types import NO_NODE, TopicPartition
from replog.wire.apis import api_of
from replog.wire.error_codes import errors_in
from replog.wire.exchange import exchange_of
from replog.wire.messages import end_txn as et
from replog.wire.messages import find_coordinator as fc
from replog.wire.messages import init_producer_id as ip
from tests.broker.loopback import Loopback, running

SETTINGS: dict[str, Any] = {
    "transaction__state__log__num__partitions": 4,
    "transaction__state__log__replication__factor": 1,
    "transaction__state__log__min__isr": 1,
    "replica__lag__time__max__ms": 60_000,
}
HERE, THERE, ELSEWHERE = 1, 2, 3
PASSING = (
    *(Error.NOT_COORDINATOR, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE),
    Error.CONCURRENT_TRANSACTIONS,
)


async def ask(cluster: Loopback, node: int, body: msgspec.Struct, version: int | None = None) -> Any:
    """Ask a broker until no coordinator is still to be made or loaded."""
    while True:
        connection = Connection(ClientWorld(), Endpoint("127.0.0.1", cluster.ports[node]), "somebody")
        await connection.open()
        answer = await connection.send(exchange_of(api_of(body)), body, version=version, timeout_ms=10_000)
        connection.close()
        if not any(error in PASSING for error in errors_in(answer)):
            return answer
        await asyncio.sleep(0.05)


async def a_producer(cluster: Loopback, coordinator: int) -> tuple[str, int, int]:
    """Return a transactional id that this broker coordinates, with its producer id and epoch."""
    for name in map(str, range(100)):
        found = await ask(cluster, HERE, fc.FindCoordinatorRequest(key_type=1, coordinator_keys=[name]))
        if found.coordinators[0].node_id == coordinator:
            begun = ip.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            given = await ask(cluster, coordinator, begun)
            return name, given.producer_id, given.producer_epoch
    raise AssertionError(f"broker {coordinator} coordinates nobody")


async def until(reached: Callable[[], bool]) -> None:
    """Wait for what one of the cluster's own objects shows."""
    while not reached():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def replica_of(cluster: Loopback, node: int, topic: str) -> Replica:
    """Return a leader's replica."""
    broker = cluster.nodes[node]
    assert isinstance(broker, Broker)
    replica = broker.plane.replicas.find(TopicPartition(topic, 0))
    assert replica is not None
    return replica


async def write(client: Client, topic: str, producer: tuple[str, int, int]) -> Error:
    """Write the first record of a transaction; nobody but the leader has to have it."""
    name, producer_id, epoch = producer
    batch = build([NewRecord(None, b"v")], timestamp_ms=1, producer=(producer_id, epoch, 0), attributes=TRANSACTIONAL)
    while True:
        result = await client.produce(topic, 0, batch, acks=1, transactional_id=name)
        assert result is not None
        if result.error_code is not Error.NOT_LEADER_OR_FOLLOWER:  # its log is yet to be made
            return Error(result.error_code)
        await asyncio.sleep(0.05)


def test_a_producer_begins_while_another_ones_marker_waits_for_a_replica(tmp_path: Path) -> None:
    """Its first record needs a word of its coordinator, and that stood behind the marker: for up to 30 s."""

    async def run() -> None:
        async with running(tmp_path, controllers=1, brokers=2, **SETTINGS) as cluster, asyncio.timeout(40):
            client = Client(ClientWorld(), [Endpoint("127.0.0.1", cluster.ports[HERE])])
            await client.create_topic("slow", assignments=[[THERE, HERE]])
            await client.create_topic("quick", assignments=[[HERE]])
            first, second = await a_producer(cluster, HERE), await a_producer(cluster, THERE)
            assert await write(client, "slow", first) is Error.NONE
            here = cluster.nodes[HERE]
            assert isinstance(here, Broker)
            here.plane.fetching.stop()  # what is written there from now on is not committed
            name, producer_id, epoch = first
            end = et.EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)
            assert (await ask(cluster, HERE, end, 5)).error_code is Error.NONE
            replica = replica_of(cluster, THERE, "slow")
            await until(lambda: replica.partition.log.log_end_offset == 2)  # the marker is on its way

            async with asyncio.timeout(5):
                assert await write(client, "quick", second) is Error.NONE

            assert replica.partition.high_watermark < 2
            await client.close()

    asyncio.run(run())


def test_a_marker_that_was_refused_is_sent_again_while_another_leaders_waits_for_a_replica(tmp_path: Path) -> None:
    """It was asked for again only when the last leader of the transaction had answered, or had not for 30 s."""

    async def run() -> None:
        settings = SETTINGS | {"min__insync__replicas": 2}
        async with running(tmp_path, controllers=1, brokers=3, **settings) as cluster, asyncio.timeout(40):
            client = Client(ClientWorld(), [Endpoint("127.0.0.1", cluster.ports[HERE])])
            await client.create_topic("slow", assignments=[[THERE, HERE]])
            await client.create_topic("refused", assignments=[[HERE, ELSEWHERE]])
            producer = name, producer_id, epoch = await a_producer(cluster, HERE)
            assert await write(client, "slow", producer) is Error.NONE
            assert await write(client, "refused", producer) is Error.NONE
            slow, refused = replica_of(cluster, THERE, "slow"), replica_of(cluster, HERE, "refused")
            await cluster.stop(ELSEWHERE)
            await until(lambda: refused.partition.state is not None and refused.partition.state.isr == (HERE,))
            here = cluster.nodes[HERE]
            assert isinstance(here, Broker)
            here.plane.fetching.stop()
            end = et.EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)
            assert (await ask(cluster, HERE, end, 5)).error_code is Error.NONE
            await until(lambda: slow.partition.log.log_end_offset == 2)
            assert refused.partition.log.log_end_offset == 1

            await cluster.start(ELSEWHERE)
            async with asyncio.timeout(10):
                await until(lambda: refused.partition.log.log_end_offset == 2)

            assert slow.partition.high_watermark < 2
            await client.close()

    asyncio.run(run())


def test_a_marker_for_a_partition_without_a_leader_is_sent_when_it_has_one_while_another_leaders_waits(
    tmp_path: Path,
) -> None:
    """Nobody could be asked for it, and it was thought of again only when the other leader had answered, or had not for 30 s."""

    async def run() -> None:
        async with running(tmp_path, controllers=1, brokers=3, **SETTINGS) as cluster, asyncio.timeout(40):
            client = Client(ClientWorld(), [Endpoint("127.0.0.1", cluster.ports[HERE])])
            await client.create_topic("slow", assignments=[[THERE, HERE]])
            await client.create_topic("leaderless", assignments=[[ELSEWHERE]])
            producer = name, producer_id, epoch = await a_producer(cluster, HERE)
            assert await write(client, "slow", producer) is Error.NONE
            assert await write(client, "leaderless", producer) is Error.NONE
            slow = replica_of(cluster, THERE, "slow")
            await cluster.stop(ELSEWHERE)
            here = cluster.nodes[HERE]
            assert isinstance(here, Broker)
            await until(lambda: here.plane.coordinators.internal_topics.leader_of("leaderless", 0) == NO_NODE)
            here.plane.fetching.stop()
            end = et.EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)
            assert (await ask(cluster, HERE, end, 5)).error_code is Error.NONE
            await until(lambda: slow.partition.log.log_end_offset == 2)

            await cluster.start(ELSEWHERE)
            await until(lambda: here.plane.coordinators.internal_topics.leader_of("leaderless", 0) == ELSEWHERE)
            async with asyncio.timeout(10):
                await until(lambda: replica_of(cluster, ELSEWHERE, "leaderless").partition.log.log_end_offset == 2)

            assert slow.partition.high_watermark < 2
            await client.close()

    asyncio.run(run())
