"""A fault whose run was broken off does nothing more: what it did then would stand in no recording, and the system would be accused of it."""

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
from tribunal.nemesis.api import Effect, FaultTarget
from tribunal.nemesis.combine import together
from tribunal.nemesis.episodes import episodes

MENDS = ("resume", "heal", "remove_rule")
ASKED = frozenset((*map(str, Capability), *MENDS))
LATER_S = 10


class BrokenOff(Exception):
    """What ends the run."""


class Watched:
    """A cluster, and what was asked of it."""

    def __init__(self, cluster):
        self._cluster = cluster
        self.asked = []

    def __getattr__(self, name):
        if name in ASKED:
            self.asked.append(name)
        return getattr(self._cluster, name)


async def broken_off(fault):
    async with fault:
        await asyncio.sleep(2)
        raise BrokenOff


@pytest.mark.parametrize(
    ("fault", "options"),
    [
        pytest.param("rotating-swarm", {"period_ms": 300, "rest_ms": 100, "idle_odds": 0.0, "seed": 3}, id="episodes"),
        pytest.param("storm", {"seed": 3}, id="storm"),
        pytest.param("wide-swarm", {"seed": 3}, id="lanes"),
        pytest.param("clock-strobe", {}, id="strobe"),
    ],
)
def test_nothing_is_done_any_more_when_the_run_was_broken_off(fault, options):
    asked = []

    async def story():
        cluster = await launch(ClusterSpec(), NOWHERE, RunClock(), "broken-off")
        watched = Watched(cluster)
        with pytest.raises(BrokenOff):
            await broken_off(faults()[fault].planned(1, options)(watched))
        await asyncio.sleep(0.1)
        asked.append(list(watched.asked))
        await asyncio.sleep(LATER_S)
        asked.append(watched.asked[len(asked[0]) :])
        await cluster.close()

    with sealed(Simulation(f"broken off in {fault}")) as simulation:
        simulation.run(story())

    assert asked[0]
    assert asked[1] == []


def part(name: str, said: list[str], *, refuses: bool = False, bites: bool = True, heal_s: float = 0.0):
    """Return a fault that says what becomes of it."""

    @asynccontextmanager
    async def fault(cluster: FaultTarget) -> AsyncGenerator[Effect]:
        effect = Effect(1, Proof(holds=bites, facts={}))
        try:
            yield effect
        except asyncio.CancelledError:
            said.append(f"{name} broken off")
            raise
        if refuses:
            raise ClusterError(f"{name} does not heal")
        await asyncio.sleep(heal_s)
        effect.heal = Proof(holds=True, facts={})
        said.append(f"{name} healed")

    return fault


async def entered(fault, *, fails: bool = False) -> None:
    async with fault(None):
        if fails:
            raise BrokenOff
    await asyncio.sleep(0)


def test_one_that_does_not_heal_keeps_no_other_from_it():
    """What goes wrong is raised when all have tried: a link would stay cut that somebody else is to be judged by."""
    said: list[str] = []

    with pytest.raises(ClusterError, match="one does not heal"):
        asyncio.run(entered(together(part("one", said, refuses=True), part("other", said, heal_s=0.05))))

    assert said == ["other healed"]


def test_each_of_those_that_do_not_heal_is_named():
    said: list[str] = []

    with pytest.raises(ClusterError, match=r"^one does not heal; other does not heal$"):
        asyncio.run(entered(together(part("one", said, refuses=True), part("other", said, refuses=True))))


def test_faults_that_lasted_together_end_with_the_run():
    said: list[str] = []

    async def story() -> None:
        with pytest.raises(BrokenOff):
            await entered(together(part("one", said), part("other", said)), fails=True)
        await asyncio.sleep(0.01)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left

    asyncio.run(story())

    assert said == ["one broken off", "other broken off"]


async def an_effect(fault) -> Effect:
    """Return what is known of a fault that does not heal."""
    known: list[Effect] = []

    async def lasted() -> None:
        async with fault(None) as effect:
            known.append(effect)
            await asyncio.sleep(0.2)

    with pytest.raises(ClusterError, match="one does not heal"):
        await lasted()
    return known[0]


@pytest.mark.parametrize("bites", [True, False])
@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda one: lambda cluster: episodes(cluster, 1, lambda _: (one, 50), lambda _: 0), id="episode"),
        pytest.param(lambda one: together(one, part("other", [])), id="part"),
    ],
)
def test_what_does_not_heal_counts_with_its_own_proof(made, bites):
    """A node that does not start again leaves the run going on: whether the fault that put it down bit must not be said for it."""
    effect = asyncio.run(an_effect(made(part("one", [], refuses=True, bites=bites))))

    assert effect.proof.holds is bites
    assert effect.heal is not None
    assert not effect.heal.holds
