"""What a seed draws for real nodes: the same everywhere, and no more than real nodes can be."""

import pytest

from tests.harness.this_machine import skip_unless_it_can
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import scenario_file
from tribunal.harness.plan import made
from tribunal.harness.scenario import load

REAL = ("processes", "containers", "ssh", "apache-kafka")


def spec(seed, cluster, **settings):
    scenario = load(scenario_file("rotating-swarm"), settings)
    skip_unless_it_can(cluster, [step.kind for step in scenario.steps])
    return made(scenario, seed=seed, cluster=cluster, time_ms=None, mutants=()).spec


@pytest.mark.parametrize("cluster", REAL)
def test_real_nodes_are_few_with_long_time_outs_and_still_many_shapes(cluster):
    specs = [spec(seed, cluster) for seed in range(40)]

    assert {one.brokers for one in specs} == {3, 4}
    assert {one.controllers for one in specs} == {1, 3}
    assert all(1 <= one.min_insync_replicas < one.replication_factor <= one.brokers for one in specs)
    session = "broker.session.timeout.ms"
    assert {one.settings[session] >= ClusterSpec().timeout_ms(session) for one in specs} == {True}
    assert len({one.settings[session] for one in specs}) > 1


def test_apache_kafka_is_given_no_segment_that_it_refuses():
    assert min(spec(seed, "apache-kafka").settings["log.segment.bytes"] for seed in range(40)) == 1 << 20
    assert min(spec(seed, "processes").settings["log.segment.bytes"] for seed in range(40)) == 4_096


def test_what_the_scenario_sets_by_name_stays():
    by_name = {"cluster.settings": "{broker.session.timeout.ms: 1000}"}

    assert {spec(seed, "processes", **by_name).settings["broker.session.timeout.ms"] for seed in range(20)} == {1_000}
