"""A broker that starts outlives that ZooKeeper goes away when it has just found it."""

import asyncio

from replog.node.zookeeper.broker import ZooKeeperBroker
from tests.simulated.cluster_program import NOWHERE
from tribunal.clusters.api import until
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.running import run_simulated
from tribunal.clusters.spec import ClusterSpec

AWAY_S = 0.3


def has_session(shell, former):
    """Return whether a process that came after the former one has reached ZooKeeper."""
    return shell is not former and isinstance(shell, ZooKeeperBroker) and bool(shell.zookeeper.session_id)


def test_a_broker_starts_again_where_zookeeper_goes_away_between_its_session_and_its_first_znode():
    """It ended with `ZooKeeper at ... was lost again`; Kafka's brokers ask again until they are connected."""

    async def main():
        cluster = await launch(ClusterSpec(mode="zookeeper", controllers=1), NOWHERE, RunClock(), "lost")
        server, broker, former = 101, cluster.nodes[2], cluster.nodes[2].shell
        epoch = cluster.state.brokers[2].broker_epoch
        await cluster.kill(2)
        coming = asyncio.create_task(cluster.start(2))
        await until(lambda: has_session(broker.shell, former), timeout_ms=20_000, what="a session", poll_ms=1)
        await cluster.kill(server)
        await asyncio.sleep(AWAY_S)
        await cluster.start(server)
        await coming
        await until(
            lambda: cluster.state.brokers[2].broker_epoch != epoch,
            timeout_ms=20_000,
            what="2 registered",
            cluster=cluster,
        )
        await cluster.close()

    run_simulated("lost", main)
