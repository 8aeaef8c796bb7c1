"""That a broker is cut off is proven by what the cluster noticed, not by what happens beside it."""

import asyncio

import pytest

from tests.simulated.cluster_program import NOWHERE
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.running import run_simulated
from tribunal.clusters.spec import ClusterSpec
from tribunal.nemesis.api import fenced
from tribunal.nemesis.faults import isolate


@pytest.mark.parametrize("order", ["create_topic", "delete_topic"])
def test_a_topic_that_an_operator_makes_or_deletes_meanwhile_proves_nothing(order):
    async def main():
        cluster = await launch(ClusterSpec(brokers=3), NOWHERE, RunClock(), "cut off")
        operator = cluster.clients.operator("operator")
        for topic in ("t", "delete_topic"):
            await operator.create_topic(topic, 1, 3, {})
        await asyncio.sleep(1)
        noticed = []
        watching = asyncio.create_task(watch(cluster, noticed))
        async with isolate.inject(cluster, 1, isolate.Options(others="controllers")) as effect:
            if order == "create_topic":
                await operator.create_topic(order, 1, 3, {})
            else:
                await operator.delete_topic(order)
            await asyncio.sleep(0.2)
        watching.cancel()
        await operator.close()
        await cluster.close()
        return effect, noticed

    (effect, noticed), _ = run_simulated("cut off", main)

    assert effect.proof.holds
    assert noticed


async def watch(cluster, noticed):
    """Take note of when a broker is fenced, or has left an ISR."""
    while True:
        isrs = [len(state.isr) < len(state.replicas) for state in cluster.state.partitions.values()]
        if fenced(cluster, 1) or any(isrs):
            noticed.append(cluster.now_ns())
        await asyncio.sleep(0.01)
