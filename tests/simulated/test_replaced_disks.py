"""Who waits for an operator where a disk was replaced: also a partition in which nobody had written anything."""

import asyncio

import pytest

from replog.wire.apis import Api
from tests.scenarios.three_brokers import NAME, NOBODY, all_return, isr_is, leads, produce, run
from tribunal.clusters.capabilities import Fate, FrameRule
from tribunal.clusters.simulated.cluster import SimulatedCluster

WITHOUT_ELR = {"eligible.leader.replicas.enable": False, "min.insync.replicas": 1}


async def last_in_the_isr_dies(cluster: SimulatedCluster, records: int) -> None:
    """Leave broker 3 alone in the ISR, with so many records, and kill it."""
    if records:
        await produce(cluster, -1, records)
    for node, isr in ((1, [2, 3]), (2, [3])):
        await cluster.kill(node)
        await isr_is(cluster, isr)
    await leads(cluster, 3)
    await cluster.kill(3)
    await leads(cluster, NOBODY)


@pytest.mark.parametrize("records", [0, 20])
def test_a_partition_whose_last_replica_in_the_isr_has_another_disk_waits_for_an_operator(records: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await last_in_the_isr_dies(cluster, records)
        await cluster.wipe(3)
        # Where its replica lies now it says behind its unfencing here; said before, it would be elected by that.
        rule = FrameRule(fate=Fate.DELAYED, api=Api.ASSIGN_REPLICAS_TO_DIRS, source=3, delay_ms=500, overtaking=True)
        late = cluster.add_rule(rule)
        await all_return(cluster, 1, 2)
        await all_return(cluster, 3)
        await asyncio.sleep(5)

        assert late.hit_count
        assert cluster.state.partitions[NAME].leader == NOBODY
        assert cluster.watch.waits_for_an_operator(NAME)

        await cluster.kill(3)  # when it is unfenced once more it is elected, empty as it is
        await asyncio.sleep(20)
        await all_return(cluster, 3)
        await leads(cluster, 3)
        assert not cluster.watch.waits_for_an_operator(NAME)
        await isr_is(cluster, [1, 2, 3])

    run(5, scenario, **WITHOUT_ELR)


def test_one_who_has_the_disk_that_it_had_is_waited_for_by_nobody() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await last_in_the_isr_dies(cluster, 0)

        assert not cluster.watch.waits_for_an_operator(NAME)

        await all_return(cluster)
        await leads(cluster, 3)

    run(5, scenario, **WITHOUT_ELR)


def test_another_replicas_disk_does_not_count() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await last_in_the_isr_dies(cluster, 0)
        await cluster.wipe(2)

        assert not cluster.watch.waits_for_an_operator(NAME)

        await all_return(cluster)
        await leads(cluster, 3)

    run(5, scenario, **WITHOUT_ELR)
