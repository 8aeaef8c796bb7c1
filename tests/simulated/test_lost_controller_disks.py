"""A controller loses its disk: an operator, as the wide swarm is one, gives the new one its vote."""

import asyncio
from contextlib import nullcontext
from random import Random

import pytest

from tests.simulated.cluster_program import NOWHERE, Trial
from tribunal.clusters.api import CutMode, Link, TopicPartition
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.running import run_simulated
from tribunal.clusters.simulated.violation import Violated
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.liveness import Liveness
from tribunal.nemesis.faults import wide_swarm, wipe
from tribunal.workloads.kinds.produce_consume import TOPIC

SECONDS = 15
CORES = 4


def swarm(name, spec, **options):
    """Let the swarm hurt an idle cluster; return the controllers with another disk than before, who votes in the end, and how it healed."""

    async def main():
        cluster = await launch(spec, NOWHERE, RunClock(), name)
        before = {node: cluster.nodes[node].directory_id for node in spec.controller_ids}
        async with wide_swarm.inject(cluster, 1, wide_swarm.Options(**options)) as effect:
            await asyncio.sleep(SECONDS)
        other = [node for node, known in before.items() if cluster.nodes[node].directory_id != known]
        voters = sorted(await cluster.voters())
        await cluster.close()
        return other, voters, effect.heal.holds, cluster.watch.violation

    return run_simulated(name, main)[0]


@pytest.mark.parametrize(("seed", "node"), [(0, 103), (8, 102)])
def test_a_controller_that_lost_its_disk_votes_again(seed, node):
    assert swarm(f"lost disk {seed}", ClusterSpec(), seed=seed, disk_odds=1.0) == ([node], [101, 102, 103], True, None)


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        pytest.param(ClusterSpec(), {}, id="as in plans from before"),
        pytest.param(ClusterSpec(controllers=1), {"disk_odds": 1.0}, id="a quorum that would not outlive it"),
    ],
)
def test_no_controller_loses_its_disk(spec, options):
    other, voters, healed, violation = swarm("lost disk 0", spec, seed=0, **options)

    assert (other, voters) == ([], list(spec.controller_ids))
    assert healed
    assert violation is None


@pytest.mark.parametrize("late_ms", [0, 2_000], ids=["in time", "late"])
def test_the_disk_that_is_there_gets_the_vote_also_where_it_fetches_late(late_ms):
    """Until the new disk fetches, the leader knows the old one alone: as an observer, once its vote is taken."""
    votes = []

    async def scenario(cluster):
        leader = cluster.state.quorum_leader
        node = next(one for one in cluster.spec.controller_ids if one != leader)
        links = [Link(node, one) for one in cluster.spec.controller_ids if one != node]
        async with wipe.inject(cluster, node, wipe.Options()) as effect:
            await cluster.cut(links, CutMode.HOLD)
            mended = asyncio.create_task(mended_after(cluster, links, late_ms))
        await mended
        await asyncio.sleep(1)  # the record comes to the node itself
        votes.append((effect.heal.holds, cluster.nodes[node].quorum.is_voter))

    Trial("late observer").run(scenario)

    assert votes == [(True, True)]


async def mended_after(cluster, links, late_ms):
    """Mend the links when so much time has passed."""
    await asyncio.sleep(late_ms / 1000)
    await cluster.heal(links)


async def without_a_vote(cluster):
    """Let a controller lose its disk, and nobody give the new one a vote; return the others."""
    node, *others = sorted(cluster.spec.controller_ids, key=lambda one: one == cluster.state.quorum_leader)
    await cluster.kill(node)
    await cluster.wipe(node)
    await cluster.start(node)
    await asyncio.sleep(2)
    return others


async def left_alone(cluster):
    """Ask several cores for progress."""
    for seed in range(CORES):
        await Liveness(cluster, Random(seed), lambda _: nullcontext()).core_progresses([TopicPartition(TOPIC, 0)])


def test_who_votes_with_a_disk_that_is_gone_is_in_no_core():
    async def scenario(cluster):
        await without_a_vote(cluster)
        await left_alone(cluster)

    Trial("no vote").run(scenario)


def test_who_votes_with_a_disk_that_is_there_has_to_elect_somebody():
    async def scenario(cluster):
        one, other = await without_a_vote(cluster)
        await cluster.cut([Link(one, other), Link(other, one)], CutMode.HOLD)
        await left_alone(cluster)

    with pytest.raises(Violated, match="no progress with a quorum alone"):
        Trial("no vote").run(scenario)
