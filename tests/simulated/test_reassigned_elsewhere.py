"""The fault reassign lets another broker take a replica's place, and gives it back."""

import pytest

from tests.simulated.cluster_program import NOWHERE
from tribunal.clusters.api import TopicPartition
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
