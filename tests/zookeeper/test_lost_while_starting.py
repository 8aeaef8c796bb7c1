"""A broker that starts outlives that ZooKeeper goes away when it has just found it."""

import asyncio

import pytest

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


def first_znode_comes(cluster, former):
    """Return whether broker 2 has a session, and looks at its first znode next."""
    return has_session(cluster.nodes[2].shell, former)


def configurations_come(cluster, former):
    """Return whether broker 2 has opened its logs, and reads the configurations next."""
    return any(event.name == "start" and event.node == 2 for event in cluster.drain_events())


@pytest.mark.parametrize("comes", [first_znode_comes, configurations_come])
def test_a_broker_starts_again_where_zookeeper_goes_away_between_its_session_and_its_registration(comes):
    """It ended with `ZooKeeper at ... was lost again`, or with ConnectionLoss; Kafka's brokers ask again until they are connected."""

    async def main():
        cluster = await launch(ClusterSpec(mode="zookeeper", controllers=1), NOWHERE, RunClock(), "lost")
        server, former = 101, cluster.nodes[2].shell
        epoch = cluster.state.brokers[2].broker_epoch
        await cluster.kill(2)
        cluster.drain_events()
        coming = asyncio.create_task(cluster.start(2))
        await until(lambda: comes(cluster, former), timeout_ms=20_000, what="that moment", poll_ms=1)
        await cluster.kill(server)
        await asyncio.sleep(AWAY_S)
        assert not cluster.nodes[2].shell.is_serving  # it came to no more meanwhile
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
