"""The fault reassign lets another broker take a replica's place, and gives it back."""

import asyncio

import pytest

from tests.simulated.cluster_program import NOWHERE
from tribunal.clusters.api import TopicPartition, until
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.running import run_simulated
from tribunal.clusters.spec import ClusterSpec
from tribunal.nemesis.faults import reassign

PARTITION = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("brokers", "elsewhere", "replicas"),
    [
        pytest.param(4, False, 2, id="nobody takes its place"),
        pytest.param(4, True, 3, id="another one takes its place"),
        pytest.param(3, True, 2, id="there is no other"),
    ],
)
def test_who_has_the_partition_meanwhile(brokers, elsewhere, replicas):
    async def main():
        cluster = await launch(ClusterSpec(brokers=brokers), NOWHERE, RunClock(), "elsewhere")
        admin = cluster.clients.admin("maker")
        await admin.create_topic("t", 1, 3, 10_000)
        await admin.close()
        before = cluster.state.partitions[PARTITION].replicas
        async with reassign.inject(cluster, before[0], reassign.Options(elsewhere=elsewhere)) as effect:
            meanwhile = cluster.state.partitions[PARTITION].replicas
        after = cluster.state.partitions[PARTITION].replicas
        await cluster.close()
        return before, meanwhile, after, effect

    (before, meanwhile, after, effect), _ = run_simulated("elsewhere", main)

    assert effect.proof.holds
    assert effect.heal.holds
    assert before[0] not in meanwhile
    assert (len(meanwhile), len({*meanwhile} - {*before})) == (replicas, replicas - 2)
    assert sorted(after) == sorted(before)


def test_a_topic_that_is_deleted_meanwhile_has_nothing_to_give_back():
    async def main():
        cluster = await launch(ClusterSpec(brokers=3), NOWHERE, RunClock(), "deleted")
        operator = cluster.clients.operator("operator")
        await operator.create_topic("t", 1, 3, {})
        await asyncio.sleep(1)
        async with reassign.inject(cluster, 1, reassign.Options()) as effect:
            await operator.delete_topic("t")
            await asyncio.sleep(1)
        await operator.close()
        await cluster.close()
        return effect

    effect, _ = run_simulated("deleted", main)

    assert effect.proof.holds
    assert effect.heal.holds
    assert effect.heal.facts["deleted"] == "t-0"


def test_a_topic_that_is_deleted_while_its_replica_moves_is_a_fault_without_effect():
    async def main():
        cluster = await launch(ClusterSpec(brokers=4), NOWHERE, RunClock(), "moving")
        operator = cluster.clients.operator("operator")
        await operator.create_topic("t", 1, 3, {})
        await asyncio.sleep(1)
        before = cluster.state.partitions[PARTITION].replicas
        (spare,) = {*cluster.spec.broker_ids} - {*before}
        await cluster.pause(spare)  # it copies nothing: the replica stays on its way
        deletion = asyncio.create_task(deleted_once_on(cluster, spare, operator))
        async with reassign.inject(cluster, before[0], reassign.Options(elsewhere=True)) as effect:
            await deletion
            await cluster.resume(spare)
        await operator.close()
        await cluster.close()
        return effect

    effect, _ = run_simulated("moving", main)

    assert not effect.proof.holds
    assert effect.heal.holds


async def deleted_once_on(cluster, broker, operator):
    await until(
        lambda: broker in cluster.state.partitions[PARTITION].replicas,
        timeout_ms=10_000,
        what="the reassignment is under way",
    )
    await operator.delete_topic("t")
