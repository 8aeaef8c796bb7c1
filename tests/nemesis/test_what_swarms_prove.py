"""What a swarm of faults says of itself: which it leaves out, whether a disk that it emptied is empty, and that each of its lanes mends."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.simulated.cluster_program import NOWHERE
from tribunal.clusters.api import ClusterError, Proof
from tribunal.clusters.capabilities import Capability
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.guard import sealed
from tribunal.clusters.simulated.world import Simulation
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import faults
from tribunal.nemesis.api import Effect
from tribunal.nemesis.faults import wide_swarm
from tribunal.nemesis.hurts import emptied


class Cluster:
    """A cluster that differs in a few things from one of the simulator."""

    def __init__(self, cluster, **others):
        self._cluster = cluster
        self._others = others

    def __getattr__(self, name):
        return self._others[name] if name in self._others else getattr(self._cluster, name)


def in_simulator(story):
    async def carried_out():
        cluster = await launch(ClusterSpec(controllers=1), NOWHERE, RunClock(), "swarms")
        try:
            return await story(cluster)
        finally:
            await cluster.close()

    with sealed(Simulation("swarms")) as simulation:
        return simulation.run(carried_out())


@pytest.mark.parametrize("has_power", [True, False])
def test_a_rotating_swarm_says_what_it_leaves_out_where_nobody_can_take_power(has_power):
    async def story(cluster):
        taken = frozenset() if has_power else frozenset({Capability.POWER_FAIL})
        asked = Cluster(cluster, capabilities=cluster.capabilities - taken)
        options = {"period_ms": 100, "rest_ms": 50, "seed": 3}
        async with faults()["rotating-swarm"].planned(1, options)(asked) as effect:
            await asyncio.sleep(0.1)
        return effect.proof.facts

    facts = in_simulator(story)

    said = None if has_power else {"power-loss": "the cluster cannot power_fail"}
    assert facts.get("left_out") == said


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_disk_that_a_swarm_empties_is_proven_to_be_empty(monkeypatch, is_empty):
    monkeypatch.setattr(wide_swarm, "TO_NODES", {emptied: 1})
    monkeypatch.setattr(wide_swarm, "BESIDES", {})

    async def story(cluster):
        async def wipe(node):
            proof = await cluster.wipe(node)
            return Proof(holds=is_empty and proof.holds, facts=proof.facts)

        options = {"at_once": 1, "controller_odds": 0.0, "seed": 3}
        async with faults()["wide-swarm"].planned(1, options)(Cluster(cluster, wipe=wipe)) as effect:
            await asyncio.sleep(0.1)
        return effect.proof

    proof = in_simulator(story)

    assert proof.facts["hurts"][0]["wiped"]["holds"] is is_empty
    assert proof.holds is is_empty


def test_a_lane_that_fails_keeps_no_other_from_mending(monkeypatch):
    lanes = []

    @asynccontextmanager
    async def hurt(cluster, node, random) -> AsyncGenerator[Effect]:
        lanes.append(node)
        number = len(lanes)
        yield Effect(node, Proof(holds=True, facts={}))
        if number == 1:
            raise ClusterError("not mended")
        await asyncio.sleep(1)
        lanes.remove(node)

    monkeypatch.setattr(wide_swarm, "TO_NODES", {})
    monkeypatch.setattr(wide_swarm, "BESIDES", {hurt: 1})
    monkeypatch.setattr(wide_swarm, "RESTS_MS", (0,))
    monkeypatch.setattr(wide_swarm, "LASTS_MS", (60_000,))

    async def story(cluster):
        with pytest.raises(ClusterError, match="not mended"):
            async with faults()["wide-swarm"].planned(1, {"at_once": 3, "seed": 3})(cluster):
                await asyncio.sleep(0.1)
        return len(lanes)

    assert in_simulator(story) == 1


def test_a_lane_that_fails_lets_no_other_hurt_anybody_more(monkeypatch):
    begun = []

    @asynccontextmanager
    async def hurt(cluster, node, random) -> AsyncGenerator[Effect]:
        begun.append(node)
        number = len(begun)
        yield Effect(node, Proof(holds=True, facts={}))
        if number == 1:
            raise ClusterError("not mended")

    monkeypatch.setattr(wide_swarm, "TO_NODES", {})
    monkeypatch.setattr(wide_swarm, "BESIDES", {hurt: 1})
    monkeypatch.setattr(wide_swarm, "RESTS_MS", (0,))
    monkeypatch.setattr(wide_swarm, "LASTS_MS", (100,))

    async def story(cluster):
        with pytest.raises(ClusterError, match="not mended"):
            async with faults()["wide-swarm"].planned(1, {"at_once": 3, "seed": 3})(cluster):
                await asyncio.sleep(5)
        return len(begun)

    assert in_simulator(story) <= 2 * 3  # each lane's first, and what one may have begun at that moment
