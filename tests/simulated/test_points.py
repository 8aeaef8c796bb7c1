"""Named points in the nodes' code: struck only where a run asks for it, each in some seeds, and outlived."""

import re
from pathlib import Path

import pytest

from tests.simulated.cluster_program import Trial, leader
from tribunal.clusters.simulated.loop import SimulatedLoop
from tribunal.clusters.simulated.world import Points
from tribunal.clusters.spec import ClusterSpec

ROOT = Path(__file__).parents[2]
CALL = re.compile(r'(?:linger|strikes)\((?:self\.[\w.]+, )?"([^"]+)"\)')
POINTS = sorted(point for path in (ROOT / "replog").rglob("*.py") for point in CALL.findall(path.read_text()))


async def one_leader_dies(cluster):
    """The least that makes every kind of node work."""
    node = leader(cluster)
    await cluster.kill(node)
    await cluster.start(node)


def test_there_are_enough_of_them_and_each_has_its_name():
    assert len(POINTS) == len(set(POINTS)) >= 8


@pytest.mark.parametrize("point", POINTS)
def test_a_point_is_struck_in_some_seeds_and_quiet_in_most(point):
    odds = [Points(SimulatedLoop.create(seed)).odds(point) for seed in range(40)]

    assert 0 < sum(one > 0 for one in odds) < 30


def test_what_strikes_is_outlived():
    trial = Trial("points/2", ClusterSpec(settings={"tribunal.points": True})).run(one_leader_dies)
    struck = {name for name, _ in trial.simulation.probes.counts if name.startswith("point ")}

    assert struck
    assert trial.lost() == []
    assert trial.unread == []


def test_nothing_strikes_unasked():
    trial = Trial("points/1").run(one_leader_dies)

    assert not any(name.startswith("point ") for name, _ in trial.simulation.probes.counts)
