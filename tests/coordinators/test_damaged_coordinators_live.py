"""A coordinator whose log cannot be replayed answers for nobody; what the others coordinate is listed all the same."""

import asyncio
from pathlib import Path
from typing import Any

from replog.__main__ import ClientWorld
from replog.client.connection import Connection, ConnectionLost
from replog.config import Endpoint
from replog.coordinators.placement import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_for
from replog.errors import Error
from replog.log.batch import sealed
from replog.log.log import Appended
from replog.log.validation import Origin
from replog.node.broker import Broker
from replog.types import TopicPartition
from replog.wire.apis import api_of
from replog.wire.error_codes import errors_in
from replog.wire.exchange import exchange_of
from replog.wire.messages import describe_transactions as dtx
from replog.wire.messages import find_coordinator as fc
from replog.wire.messages import init_producer_id as ip
from replog.wire.messages import list_groups as ls
from replog.wire.messages import list_transactions as lt
from replog.wire.messages import offset_fetch as of
from tests.broker.loopback import Loopback, running
from tests.coordinators.test_group_scenarios import join

SETTINGS: dict[str, Any] = {
    "offsets__topic__num__partitions": 2,
    "offsets__topic__replication__factor": 1,
    "transaction__state__log__num__partitions": 2,
    "transaction__state__log__replication__factor": 1,
    "transaction__state__log__min__isr": 1,
    "group__initial__rebalance__delay__ms": 0,
}
PASSING = (Error.NOT_COORDINATOR, Error.COORDINATOR_LOAD_IN_PROGRESS)
SOUND, DAMAGED = (next(name for name in "abcdefgh" if partition_for(name, 2) == partition) for partition in (0, 1))


async def ask(cluster: Loopback, body: Any, passing: tuple[Error, ...] = PASSING, version: int | None = None) -> Any:
    """Ask until no coordinator is still loaded."""
    while True:
        connection = Connection(ClientWorld(), Endpoint("127.0.0.1", cluster.ports[1]), "somebody")
        try:
            await connection.open()
        except ConnectionLost:  # it is being started
            await asyncio.sleep(0.05)
            continue
        answer = await connection.send(exchange_of(api_of(body)), body, version=version, timeout_ms=10_000)
        connection.close()
        if not any(error in passing for error in errors_in(answer)):
            return answer
        await asyncio.sleep(0.05)


def damage(cluster: Loopback, topic: str) -> None:
    """Append what is no record."""
    broker = cluster.nodes[1]
    assert isinstance(broker, Broker)
    replica = broker.plane.replicas.find(TopicPartition(topic, 1))
    assert replica is not None
    garbage = sealed(
        b"no records",
        count=1,
        last_offset_delta=0,
        timestamps_ms=(0, 0),
        base_offset=0,
        leader_epoch=-1,
        producer=(-1, -1, -1),
        attributes=0,
    )
    appended, _ = replica.partition.append(garbage, acks=1, now_ms=0, wall_ms=0, origin=Origin.COORDINATOR)
    assert isinstance(appended, Appended)


def test_the_others_groups_and_transactions_are_listed(tmp_path: Path) -> None:
    """They were said to be loading, for ever."""
    not_made = (*PASSING, Error.COORDINATOR_NOT_AVAILABLE)

    async def run() -> None:
        async with running(tmp_path, controllers=1, brokers=1, **SETTINGS) as cluster, asyncio.timeout(40):
            for name in (SOUND, DAMAGED):
                for key_type in (0, 1):
                    await ask(cluster, fc.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name]), not_made)
                await ask(cluster, join(group_id=name), not_made, version=3)
                begun = ip.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
                assert (await ask(cluster, begun, not_made)).error_code is Error.NONE
            damage(cluster, OFFSETS_TOPIC)
            damage(cluster, TRANSACTIONS_TOPIC)
            await cluster.stop(1)
            await cluster.start(1)

            transactions = await ask(cluster, lt.ListTransactionsRequest())
            groups = await ask(cluster, ls.ListGroupsRequest())

            assert [one.transactional_id for one in transactions.transaction_states] == [SOUND]
            assert groups.error_code is Error.NONE
            fetched = await ask(
                cluster, of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group_id=DAMAGED, topics=None)])
            )
            assert fetched.groups[0].error_code is Error.COORDINATOR_NOT_AVAILABLE
            described = await ask(cluster, dtx.DescribeTransactionsRequest(transactional_ids=[DAMAGED]))
            assert described.transaction_states[0].error_code is Error.COORDINATOR_NOT_AVAILABLE

    asyncio.run(run())
