"""The fault remove-broker gives back what is there still, and no more."""

import asyncio

import pytest

from tests.simulated.cluster_program import NOWHERE
from tribunal.clusters.api import TopicPartition
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.running import run_simulated
from tribunal.clusters.spec import ClusterSpec
from tribunal.nemesis.faults import remove_broker


@pytest.mark.parametrize("made_anew", [False, True], ids=["deleted", "made anew"])
def test_a_topic_that_is_deleted_meanwhile_is_not_given_back(made_anew):
    async def main():
        cluster = await launch(ClusterSpec(brokers=3), NOWHERE, RunClock(), "removed")
        operator = cluster.clients.operator("operator")
        for topic in ("t", "kept"):
            await operator.create_topic(topic, 1, 3, {})
        await asyncio.sleep(1)
        async with remove_broker.inject(cluster, 1, remove_broker.Options()) as effect:
            await operator.delete_topic("t")
            await asyncio.sleep(1)
            if made_anew:
                await operator.create_topic("t", 1, 2, {})
                await asyncio.sleep(1)
        replicas = {str(one): sorted(state.replicas) for one, state in cluster.state.partitions.items()}
        await operator.close()
        await cluster.close()
        return effect, replicas

    (effect, replicas), _ = run_simulated("removed", main)

    assert effect.proof.holds
    assert effect.heal.holds
    assert replicas == {"kept-0": [1, 2, 3]} | ({"t-0": [2, 3]} if made_anew else {})


def test_a_topic_that_is_being_deleted_is_not_moved():
    async def main():
        cluster = await launch(ClusterSpec(brokers=3), NOWHERE, RunClock(), "moment")
        operator = cluster.clients.operator("operator")
        for topic in ("t", "kept"):
            await operator.create_topic(topic, 1, 3, {})
        await asyncio.sleep(1)
        deletion = asyncio.create_task(operator.delete_topic("t"))
        await asyncio.sleep(0)
        known = TopicPartition("t", 0) in cluster.state.partitions
        async with remove_broker.inject(cluster, 1, remove_broker.Options()) as effect:
            await deletion
        await operator.close()
        await cluster.close()
        return known, effect

    (known, effect), _ = run_simulated("moment", main)

    assert known, "it was deleted before anything was asked for"
    assert effect.proof.holds
    assert effect.heal.holds
