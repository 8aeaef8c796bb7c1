"""A producer whose epochs are used up goes on with another producer id, also where its coordinator has none left."""

import asyncio
from pathlib import Path

from msgspec.structs import replace

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.client.connection import Connection
from replog.config import Endpoint
from replog.coordinators.transaction import EPOCH_EXHAUSTED
from replog.errors import Error
from replog.node.broker import Broker
from replog.wire.messages import end_txn as et
from tests.broker.loopback import Loopback, running
from tests.coordinators.test_transactions_of_lost_topics_live import SETTINGS, Scene


def at_the_end_of_its_epochs(cluster: Loopback) -> None:
    """Leave `x` the last epoch that it may have, and its coordinator no producer id."""
    broker = cluster.nodes[1]
    assert isinstance(broker, Broker)
    coordinators = broker.plane.coordinators
    shard = coordinators.transactions.find("x")
    assert not isinstance(shard, Error)
    slot = shard.core.slots["x"]
    assert slot.known is not None
    slot.known = replace(slot.known, producer_epoch=EPOCH_EXHAUSTED)
    while coordinators.producer_ids.take() is not None:
        pass


def test_a_coordinator_without_producer_ids_asks_for_more_when_a_transaction_ends(tmp_path: Path) -> None:
    """As one that has just taken over: nobody but new producers made it ask, and the end was refused for ever."""

    async def run() -> None:
        async with running(tmp_path, controllers=1, brokers=1, **SETTINGS) as cluster:
            endpoint = Endpoint("127.0.0.1", cluster.ports[1])
            client = Client(ClientWorld(), [endpoint])
            connection = Connection(ClientWorld(), endpoint, "somebody")
            await connection.open()
            scene = Scene(connection, client)
            async with asyncio.timeout(30):
                await scene.set_up()
                await client.create_topic("t", partitions=1, replication_factor=1)
                at_the_end_of_its_epochs(cluster)
                old_id, _ = scene.producer
                scene.producer = (old_id, EPOCH_EXHAUSTED)
                await scene.write("t", b"first")

                body = et.EndTxnRequest(
                    transactional_id="x", producer_id=old_id, producer_epoch=EPOCH_EXHAUSTED, committed=True
                )
                ended = await scene.ask(body, 5)

                assert ended.error_code is Error.NONE
                assert (ended.producer_id > old_id, ended.producer_epoch) == (True, 0)
            connection.close()
            await client.close()

    asyncio.run(run())
