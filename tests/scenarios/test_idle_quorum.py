"""A quorum to which nothing happens keeps its leader, however short its time-outs are (found by sweeps of drawn clusters)."""

import asyncio

from tests.scenarios.three_brokers import run
from tribunal.clusters.simulated.cluster import SimulatedCluster

IDLE_S = 5


def test_an_idle_quorum_keeps_its_leader_when_its_fetch_timeout_is_shorter_than_a_fetch_may_wait() -> None:
    """Fetches waited half a second for news: with a fetch time-out below that every follower gave its leader up."""
    epochs = []

    async def scenario(cluster: SimulatedCluster) -> None:
        epochs.append(cluster.state.quorum_epoch)
        await asyncio.sleep(IDLE_S)
        epochs.append(cluster.state.quorum_epoch)

    short = {"controller.quorum.fetch.timeout.ms": 420, "controller.quorum.election.timeout.ms": 210}
    run(7, scenario, **short)

    assert epochs[0] == epochs[1]
