"""Every fault once on real processes: really injected, proven to bite, proven to heal."""

import pytest

from clusters import processes
from clusters.addresses import taken_address
from harness.catalog import faults
from tests.nemesis import living_cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def living(tmp_path_factory):
    directory = tmp_path_factory.mktemp("faults")
    living = living_cluster.LivingCluster.launched(processes, directory)
    (port,) = set(living.cluster.links.ports.values())
    yield living
    living.close()
    assert processes.leftovers(directory) == []
    assert taken_address(living.cluster.spec.node_ids, port) is None


# fault, target, how long (s), options
ONCE = [
    ("kill", 1, 0.3, {}),
    ("stop", 2, 0.3, {}),
    ("pause", 3, 0.5, {}),
    ("wipe", 1, 0.3, {}),
    ("fast-bounce", 2, 0.2, {"times": 2}),
    ("slow-bounce", 3, 0.2, {}),
    ("kill-in-shutdown", 1, 0.2, {}),
    ("rolling-restart", 2, 0.1, {}),
    ("isolate", 2, 0.5, {"others": "nodes"}),
    ("single-link", 1, 0.5, {}),
    ("halves", 3, 0.5, {}),
    ("bridge", 2, 0.5, {}),
    ("majorities-ring", 1, 0.5, {}),
    ("brokers-from-controllers", 1, 0.5, {}),
    ("clients-from-brokers", 1, 0.5, {}),
    ("slow", 2, 0.3, {"delay_ms": 40, "jitter_ms": 10}),
    ("flaky", 2, 0.3, {"loss": 0.2}),
    ("narrow", 2, 0.3, {}),
    ("reset-connections", 3, 0.1, {}),
    ("half-open", 1, 0.5, {"others": "nodes"}),
    ("delay-messages", 2, 0.5, {"api": "fetch", "delay_ms": 100}),
    ("drop-messages", 3, 0.5, {"api": "broker-heartbeat", "limit": 2}),
    ("duplicate-messages", 2, 0.5, {"api": "broker-heartbeat"}),
    ("hold-messages", 1, 0.5, {"api": "fetch"}),
    ("power-loss", 2, 0.3, {}),
    ("torn-tail", 3, 0.3, {}),
    ("truncate-segment", 1, 0.3, {}),
    ("bit-flip", 2, 0.3, {}),
    ("full-disk", 3, 0.3, {}),
    ("read-only-disk", 1, 0.3, {}),
    ("slow-fsync", 2, 0.3, {"delay_ms": 50}),
    ("clock-jump", 2, 0.3, {}),
    ("clock-drift", 3, 0.3, {}),
    ("clock-strobe", 1, 0.5, {}),
    ("reassign", 2, 0.3, {}),
    ("change-min-isr", 1, 0.3, {}),
    ("elect-leaders", 1, 0.1, {}),
]


@pytest.mark.parametrize(("name", "node", "lasts_s", "options"), ONCE, ids=[case[0] for case in ONCE])
def test_a_fault_bites_and_heals(living, name, node, lasts_s, options):
    module = faults()[name]

    effect = living.run(lambda cluster: living_cluster.hurt(cluster, module, node, lasts_s, **options))

    assert effect.proof.holds, living_cluster.broken(effect.proof.facts)
    assert effect.heal is not None
    assert effect.heal.holds, living_cluster.broken(effect.heal.facts)
    assert living.cluster.failures() == []


# The compositions take longest: one here, the others in the nightly lane.
COMPOSED = [
    pytest.param("swizzle", 1, 0.3, {}, id="swizzle"),
    pytest.param("part-kill", 2, 0.5, {"phase_ms": 1000}, id="part-kill", marks=pytest.mark.nightly),
    pytest.param("pause-kill", 1, 0.5, {"phase_ms": 1000}, id="pause-kill", marks=pytest.mark.nightly),
    pytest.param("storm", 3, 4.0, {"seed": 7}, id="storm", marks=pytest.mark.nightly),
    pytest.param("rotating-swarm", 2, 8.0, {"seed": 3, "period_ms": 1500}, id="swarm", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("name", "node", "lasts_s", "options"), COMPOSED)
def test_a_composition_bites_and_heals(living, name, node, lasts_s, options):
    test_a_fault_bites_and_heals(living, name, node, lasts_s, options)


def test_every_fault_that_processes_claim_is_tried():
    claimed = {name for name, module in faults().items() if module.NEEDS <= processes.CAPABILITIES}

    assert claimed == {case[0] for case in ONCE} | {case.values[0] for case in COMPOSED}
