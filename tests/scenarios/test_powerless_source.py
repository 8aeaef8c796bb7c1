"""A broker that lost power says nothing to those who fetch from it, not even that it is gone (found by a sweep: disks, seed 1002)."""

import asyncio

from tests.scenarios.three_brokers import NAME, isr_is, produce, run
from tribunal.clusters.simulated.cluster import SimulatedCluster

ANSWER_TIMEOUT_S = 10


def test_a_follower_drops_what_it_asked_of_an_earlier_incarnation() -> None:
    """It leads again within the time-out of that question: the followers must not wait for the old answer."""

    async def scenario(cluster: SimulatedCluster) -> None:
        first = cluster.state.partitions[NAME].leader
        await produce(cluster, -1, 10)
        await cluster.power_fail(first)
        began_s = asyncio.get_running_loop().time()
        await asyncio.sleep(1)
        await cluster.start(first)
        await isr_is(cluster, [1, 2, 3])
        second = cluster.state.partitions[NAME].leader
        await cluster.kill(second)
        others = [node for node in (1, 2, 3) if node != second]
        await isr_is(cluster, others)
        if cluster.state.partitions[NAME].leader != first:
            await cluster.start(second)
            await isr_is(cluster, [1, 2, 3])
            await cluster.stop(cluster.state.partitions[NAME].leader)
        await produce(cluster, -1, 10)
        took_s = asyncio.get_running_loop().time() - began_s

        assert cluster.state.partitions[NAME].leader == first
        assert took_s < ANSWER_TIMEOUT_S - 1

    run(3, scenario)
