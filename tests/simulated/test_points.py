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


def test_each_strike_is_reported_with_its_time_and_its_node():
    trial = Trial("points/2", ClusterSpec(settings={"tribunal.points": True})).run(one_leader_dies)
    reported = [
        (event.fields["name"], event.node, event.fields["count"], event.at_ns)
        for event in trial.cluster.drain_events()
        if event.name == "probe" and event.fields["name"].startswith("point ")
    ]
    counts = {
        (name, int(machine.rpartition("-")[2])): count
        for (name, machine), count in trial.simulation.probes.counts.items()
        if name.startswith("point ")
    }

    for place, count in counts.items():
        own = [(reached, at_ns) for name, node, reached, at_ns in reported if (name, node) == place]
        assert [reached for reached, _ in own] == list(range(1, count + 1))
        assert [at_ns for _, at_ns in own] == sorted(at_ns for _, at_ns in own)
    assert len({at_ns for *_, at_ns in reported}) > 10


def test_nothing_strikes_unasked():
    trial = Trial("points/1").run(one_leader_dies)

    assert not any(name.startswith("point ") for name, _ in trial.simulation.probes.counts)
