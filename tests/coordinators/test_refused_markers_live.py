"""An end marker that its partition's leader refuses is sent again ten times a second: that is a line in the log, not ten a second."""

import asyncio
from pathlib import Path

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.client.connection import Connection
from replog.config import Endpoint
from replog.errors import Error
from replog.node.broker import Broker
from replog.types import TopicPartition
from replog.wire.messages import find_coordinator as fc
from tests.broker.loopback import Loopback, running
from tests.coordinators.test_transactions_of_lost_topics_live import SETTINGS, Scene

BROKERS = (1, 2)
REFUSALS = 15


async def coordinator_in(cluster: Loopback, client: Client) -> int:
    """Return which broker coordinates `x`."""
    connection = Connection(ClientWorld(), Endpoint("127.0.0.1", cluster.ports[BROKERS[0]]), "somebody")
    await connection.open()
    answer = await Scene(connection, client).ask(fc.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]))
    connection.close()
    return int(answer.coordinators[0].node_id)


def leads(cluster: Loopback, node: int) -> bool:
    """Return whether a broker leads the partition alone."""
    broker = cluster.nodes[node]
    assert isinstance(broker, Broker)
    replica = broker.plane.replicas.find(TopicPartition("t", 0))
    state = None if replica is None else replica.partition.state
    return state is not None and state.leader == node and len(state.isr) == 1


def test_a_marker_that_is_refused_again_and_again_is_a_line_of_each_side(tmp_path: Path) -> None:
    """Its transaction ends while a partition has too few replicas in sync."""

    async def run() -> list[str]:
        settings = SETTINGS | {"min__insync__replicas": 2}
        async with running(tmp_path, controllers=1, brokers=len(BROKERS), **settings) as cluster:
            endpoints = [Endpoint("127.0.0.1", cluster.ports[node]) for node in BROKERS]
            client = Client(ClientWorld(), endpoints)
            coordinator = await coordinator_in(cluster, client)
            (other,) = {*BROKERS} - {coordinator}
            connection = Connection(ClientWorld(), Endpoint("127.0.0.1", cluster.ports[coordinator]), "somebody")
            await connection.open()
            scene = Scene(connection, client)
            lines: list[str] = []
            world = cluster.worlds[coordinator]
            world.journal.log = lambda level, message: lines.append(message)  # type: ignore[method-assign]
            async with asyncio.timeout(60):
                await scene.set_up()
                await client.create_topic("t", partitions=1, replication_factor=2)
                await scene.write("t", b"first")
                await cluster.stop(other)
                while not leads(cluster, coordinator):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)

                assert await scene.end(version=5) is Error.NONE
                for _ in range(REFUSALS):  # beside those of the coordinator
                    assert await scene.marker(scene.producer[1]) is Error.NOT_ENOUGH_REPLICAS
                await asyncio.sleep(REFUSALS / 10)

                await cluster.start(other)
                await scene.reaches("CompleteCommit")
            connection.close()
            await client.close()
            return lines

    lines = asyncio.run(run())
    sent = [line for line in lines if line.startswith("marker of 'x'")]
    written = [line for line in lines if line.startswith("t-0: end marker of")]
    assert [len(sent), len(written)] == [1, 1], lines
