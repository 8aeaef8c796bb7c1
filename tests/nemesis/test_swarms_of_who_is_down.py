"""A swarm hurts nobody whom another fault has ended: that one starts it again, and two starts of a node are an error."""

import asyncio

import pytest

from tests.simulated.cluster_program import Trial, wait_until_in_sync
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import faults


@pytest.mark.parametrize(
    ("swarm", "options"),
    [("rotating-swarm", {"period_ms": 300, "rest_ms": 100, "idle_odds": 0.0}), ("storm", {})],
)
def test_who_is_down_is_left_alone(swarm, options):
    effects = []

    async def scenario(cluster):
        for node in cluster.spec.broker_ids:
            await cluster.kill(node)
        async with faults()[swarm].planned(1, {**options, "seed": 3})(cluster) as effect:
            await asyncio.sleep(2)
            assert not any(cluster.alive(node) for node in cluster.spec.broker_ids)
        for node in cluster.spec.broker_ids:
            await cluster.start(node)
        await wait_until_in_sync(cluster)
        effects.append(effect)

    Trial(f"down in {swarm}", ClusterSpec(min_insync_replicas=2)).run(scenario)

    facts = effects[0].heal.facts
    assert facts["episode_0"] == {"holds": True}, facts  # nothing was done, and so nothing was left
