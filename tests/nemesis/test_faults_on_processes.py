"""Every fault once on real processes: really injected, proven to bite, proven to heal."""

import time

import pytest

from tests.nemesis import living_cluster
from tests.nemesis.fault_matrix import write_row
from tests.nemesis.fault_table import COMPOSED, ONCE
from tribunal.clusters.capabilities import SECURED
from tribunal.clusters.kinds import processes
from tribunal.clusters.links.addresses import taken_address
from tribunal.clusters.namespaces import network as netns
from tribunal.clusters.spec import KRAFT
from tribunal.harness.catalog import faults

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


@pytest.mark.parametrize(("name", "node", "lasts_s", "options"), ONCE, ids=[case[0] for case in ONCE])
def test_a_fault_bites_and_heals(living, name, node, lasts_s, options):
    module = faults()[name]
    began = time.monotonic()

    effect = living.run(lambda cluster: living_cluster.hurt(cluster, module, node, lasts_s, **options))

    healed = effect.heal is not None and effect.heal.holds
    kind = "namespaces" if living.cluster.place == netns.PLACE else "proxies"
    write_row(kind, name, took_effect=effect.proof.holds, healed=healed, took_s=time.monotonic() - began)
    assert effect.proof.holds, living_cluster.broken(effect.proof.facts)
    assert effect.heal is not None
    assert effect.heal.holds, living_cluster.broken(effect.heal.facts)
    assert living.cluster.failures() == []


# The compositions take longest: one here, the others in the nightly lane.
COMPOSITIONS = [
    pytest.param(*case, id=case[0], marks=[] if case[0] == "swizzle" else pytest.mark.nightly) for case in COMPOSED
]


@pytest.mark.parametrize(("name", "node", "lasts_s", "options"), COMPOSITIONS)
def test_a_composition_bites_and_heals(living, name, node, lasts_s, options):
    test_a_fault_bites_and_heals(living, name, node, lasts_s, options)


def test_every_fault_that_processes_claim_is_tried():
    claimed = {
        name
        for name, fault in faults().items()
        if KRAFT in fault.modes and not fault.needs - (processes.KIND.capabilities - SECURED)
    }

    assert claimed == {case[0] for case in ONCE} | {case[0] for case in COMPOSED}
