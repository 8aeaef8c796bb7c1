"""Faults of who may come in, on real processes; and by night every other fault where the links end TLS."""

import pytest

from tests.nemesis.fault_table import ONCE
from tests.nemesis.living_cluster import LivingCluster, broken, hurt
from tribunal.clusters.capabilities import SECURED
from tribunal.clusters.kinds import processes
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import faults

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

# fault, target, how long (s), options
OF_SECURED_CLUSTERS = [
    ("rotate-password", 1, 0.2, {}),
    ("renew-certificate", 2, 0.2, {}),
    ("renew-certificate", 101, 0.2, {}),
    ("expire-certificate", 3, 0.5, {}),
]
ALL = [pytest.param(*case, id=f"{case[0]}-{case[1]}") for case in OF_SECURED_CLUSTERS]
ALL += [pytest.param(*case, id=case[0], marks=pytest.mark.nightly) for case in ONCE]


@pytest.fixture(scope="module")
def living(tmp_path_factory):
    directory = tmp_path_factory.mktemp("secured")
    settings = {"broker.session.timeout.ms": 5000}
    living = LivingCluster.launched(processes, directory, ClusterSpec(security="sasl_ssl", settings=settings))
    yield living
    living.close()
    assert processes.leftovers(directory) == []


@pytest.mark.parametrize(("name", "node", "lasts_s", "options"), ALL)
def test_a_fault_bites_and_heals_where_everybody_says_who_he_is(living, name, node, lasts_s, options):
    effect = living.run(lambda cluster: hurt(cluster, faults()[name], node, lasts_s, **options))

    assert effect.proof.holds, broken(effect.proof.facts)
    assert effect.heal is not None
    assert effect.heal.holds, broken(effect.heal.facts)
    assert living.cluster.failures() == []


def test_every_fault_of_secured_clusters_is_tried():
    assert {name for name, fault in faults().items() if fault.needs & SECURED} == {
        case[0] for case in OF_SECURED_CLUSTERS
    }


def test_they_are_refused_where_anybody_may_come_in():
    assert set(processes.missing(ClusterSpec())) == SECURED
    assert not processes.missing(ClusterSpec(security="sasl_ssl"))
