"""The wide swarm in ZooKeeper mode, and the power that all controllers lose in one moment."""

import asyncio
from random import Random

import pytest

from tests.simulated.cluster_program import NOWHERE
from tribunal.clusters.api import ClusterError, until
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.running import run_simulated
from tribunal.clusters.spec import ClusterSpec
from tribunal.nemesis.faults import wide_swarm
from tribunal.nemesis.hurts import AMONG_NODES, AMONG_NODES_IN_ZOOKEEPER_MODE, refused
from tribunal.nemesis.messages import not_sent_in

SECONDS = 25


def swarm(name, spec, **options):
    """Let the swarm hurt an idle cluster; return the power failures with their time, the hurts, how it healed, and what was violated."""
    failed: dict[int, list[int]] = {}

    async def main():
        cluster = await launch(spec, NOWHERE, RunClock(), name)
        power_fail = cluster.power_fail

        async def noted(node):
            failed.setdefault(cluster.now_ns(), []).append(node)
            return await power_fail(node)

        cluster.power_fail = noted
        async with wide_swarm.inject(cluster, 1, wide_swarm.Options(**options)) as effect:
            await asyncio.sleep(SECONDS)
        await cluster.close()
        return effect.proof.facts["hurts"], effect.heal.holds, cluster.watch.violation

    hurts, healed, violation = run_simulated(name, main)[0]
    return failed, hurts, healed, violation


def test_all_controllers_lose_power_in_one_moment():
    spec = ClusterSpec()

    failed, hurts, healed, violation = swarm("all controllers", spec, seed=3, all_odds=1.0, controller_odds=0.9)

    together = [sorted(nodes) for nodes in failed.values() if set(nodes) & set(spec.controller_ids)]
    assert spec.controller_ids in [tuple(nodes) for nodes in together]
    assert any(len(one.get("others", [])) == 2 for one in hurts)
    assert healed
    assert violation is None


def test_each_loses_power_alone_where_nobody_asked_for_more():
    failed, hurts, healed, violation = swarm("all controllers", ClusterSpec(), seed=3, controller_odds=0.9)

    assert failed
    assert {len(nodes) for nodes in failed.values()} == {1}
    assert not any("others" in one for one in hurts)
    assert (healed, violation) == (True, None)


def test_zookeeper_is_killed_paused_and_cut_off_and_keeps_its_disk():
    spec = ClusterSpec(mode="zookeeper", controllers=1)
    seen: dict[str, set[str]] = {}
    for seed in range(4):
        _, hurts, healed, violation = swarm(f"zookeeper {seed}", spec, seed=seed, disk_odds=1.0, all_odds=1.0)
        assert (healed, violation) == (True, None)
        for one in hurts:
            seen.setdefault("server" if one["node"] in spec.controller_ids else "broker", set()).add(one["hurt"])

    assert seen["server"] <= {"killed", "paused", "cut_off"}
    assert len(seen["server"]) > 1
    assert {"powerless", "hindered", "cut_off"} <= seen["broker"]


def test_a_disk_that_refused_writes_does_not_excuse_how_the_next_start_ends():
    """A broker ended at that start by a bug, and the run said that it did not serve within 30 s."""
    spec = ClusterSpec(mode="zookeeper", controllers=1)
    (server,) = spec.controller_ids

    async def main():
        cluster = await launch(spec, NOWHERE, RunClock(), "refused")

        async def without_a_server():
            async with refused(cluster, 2, Random(1)):
                await cluster.clients.operator("maker").create_topic("t", 1, 3, {})
                await until(lambda: not cluster.alive(2), timeout_ms=20_000, what="2 ended")
                await cluster.kill(server)

        with pytest.raises(ClusterError, match="ended by itself: ZooKeeperUnreachable"):
            await without_a_server()
        await cluster.close()

    run_simulated("refused", main)


def test_messages_of_each_mode_are_such_as_are_sent_there():
    assert not [api for api in AMONG_NODES if not_sent_in("kraft", api)]
    assert not [api for api in AMONG_NODES_IN_ZOOKEEPER_MODE if not_sent_in("zookeeper", api)]
