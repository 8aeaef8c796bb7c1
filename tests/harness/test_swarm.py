"""Swarm scenarios: the seed draws cluster and load, always something that can be, and always the same."""

from pathlib import Path

import pytest
import yaml

from tribunal.clusters.spec import RACKS, ClusterSpec
from tribunal.harness.catalog import scenario_file
from tribunal.harness.plan import made
from tribunal.harness.scenario import BadScenario, load

SWARM = {
    "scenario": "s", "workload": "produce-consume", "swarm": True,
    "steps": [{"kill": "random broker", "for": "1s"}],
}  # fmt: skip


def plan(seed, *, mode="kraft", cluster="simulated"):
    scenario = load(scenario_file("rotating-swarm"), {"cluster.mode": mode})
    return made(scenario, seed=seed, cluster=cluster, time_ms=None, mutants=())


def test_every_drawn_cluster_can_be():
    specs = [plan(seed).spec for seed in range(60)]

    assert all(1 <= one.min_insync_replicas < one.replication_factor <= one.brokers for one in specs)
    for vary in ("brokers", "controllers", "replication_factor", "min_insync_replicas"):
        assert len({getattr(one, vary) for one in specs}) > 1, vary
    for name in (
        "broker.session.timeout.ms",
        "log.segment.bytes",
        "eligible.leader.replicas.enable",
        "tribunal.points",
    ):
        assert len({one.settings[name] for one in specs}) > 1, name


def test_readers_are_sent_to_their_rack_in_some_seeds_where_readers_know_theirs():
    racks = [plan(seed).spec.racks for seed in range(60)]

    assert 0 < racks.count({}) < 60
    assert all(len({*drawn.values()}) == RACKS for drawn in racks if drawn)
    assert [
        plan(seed, mode="zookeeper").spec.racks or plan(seed, cluster="processes").spec.racks for seed in range(60)
    ] == 60 * [{}]


def test_in_zookeeper_mode_it_draws_what_that_mode_has():
    specs = [plan(seed, mode="zookeeper", cluster="processes").spec for seed in range(60)]

    assert {one.controllers for one in specs} == {1, 3}
    for name in ("zookeeper.session.timeout.ms", "inter.broker.protocol.version"):
        assert len({one.settings[name] for one in specs}) > 1, name
    quorum = [name for one in specs for name in one.settings if name.startswith(("controller.quorum", "metadata.log"))]
    assert quorum == []


def test_the_simulator_has_one_server_of_zookeeper():
    """Who names another gets an error before anything runs."""
    scenario = load(scenario_file("voter-disk-loss"), {"cluster.mode": "zookeeper"})

    with pytest.raises(
        BadScenario, match=r"step \d \(.*controller 102.*: in ZooKeeper mode the simulator has one server"
    ):
        made(scenario, seed=1, cluster="simulated", time_ms=None, mutants=())


def test_a_fault_of_zookeeper_mode_needs_that_mode():
    scenario = load(scenario_file("zookeeper-late-leave"), {"cluster.mode": "kraft"})

    with pytest.raises(BadScenario, match="fault late-leave strikes what only ZooKeeper mode has: --mode zookeeper"):
        made(scenario, seed=1, cluster="simulated", time_ms=None, mutants=())


def test_zookeeper_mode_has_no_elr_whatever_is_said():
    """A run was judged by a promise that the mode does not make (found by a sweep: I9, seed 7)."""
    spec = ClusterSpec(mode="zookeeper", settings={"eligible.leader.replicas.enable": True})

    assert not spec.node_settings()["eligible.leader.replicas.enable"]


def test_a_seed_draws_the_same():
    assert plan(7) == plan(7)
    assert plan(7).spec != ClusterSpec()


@pytest.mark.parametrize(
    ("changed", "word"),
    [({"swarm": "yes"}, "true or false"), ({"steps": [{"kill": "broker 3", "for": "1s"}]}, "not every drawn cluster")],
)
def test_what_a_swarm_may_not_say(tmp_path: Path, changed, word):
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(SWARM | changed, sort_keys=False))

    with pytest.raises(BadScenario, match=word):
        load(path, {})
