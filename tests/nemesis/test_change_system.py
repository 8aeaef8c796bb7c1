"""`change-system` where it does not come about: nobody is stopped. What it does is in `tests/clusters/test_mixed.py`, with real brokers in `tests/e2e/test_mixed.py`."""

import pytest

from tests.scenarios import three_brokers
from tests.scenarios.three_brokers import run
from tribunal.clusters.api import ClusterError
from tribunal.clusters.capabilities import SystemName
from tribunal.clusters.kinds import apache_kafka, mixed, processes
from tribunal.clusters.simulated.cluster import SimulatedCluster
from tribunal.harness.catalog import faults
from tribunal.harness.plan import refusal
from tribunal.nemesis.faults import change_system
from tribunal.nemesis.faults.change_system import Options


class OfTwoSystems(SimulatedCluster):
    """A simulated cluster that says of its brokers 2 and 3 that they are Apache Kafka: whoever is stopped by mistake is really gone."""

    finalized = 25

    def system_of(self, node: int) -> SystemName:
        return "apache-kafka" if node in (2, 3) else "replog"

    async def metadata_version(self) -> int:
        return self.finalized


@pytest.fixture(autouse=True)
def of_two_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(three_brokers, "SimulatedCluster", OfTwoSystems)


@pytest.mark.parametrize(
    ("node", "options", "reason"),
    [
        pytest.param(101, Options(to="replog"), r"nodes \[101, 102, 103\] run replog already", id="controllers"),
        pytest.param(
            2, Options(to="apache-kafka", alone=True), r"nodes \[2\] run apache-kafka already", id="the same system"
        ),
        pytest.param(1, Options(to="replog", alone=True), r"nodes \[1\] run replog already", id="replog already"),
    ],
)
def test_what_changes_nothing_is_said_before_anybody_is_stopped(node: int, options: Options, reason: str) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        with pytest.raises(ClusterError, match=reason):
            async with change_system.inject(cluster, node, options):  # type: ignore[arg-type]
                pass
        assert all(cluster.alive(one) for one in cluster.spec.node_ids)

    run(7, story)


def test_nobody_goes_over_to_a_release_that_does_not_know_what_was_finalized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OfTwoSystems, "finalized", 31)

    async def story(cluster: SimulatedCluster) -> None:
        with pytest.raises(ClusterError, match=r"does not know metadata\.version 31, which was finalized"):
            async with change_system.inject(cluster, 1, Options()):  # type: ignore[arg-type]
                pass
        assert cluster.alive(1)

    run(7, story)


def test_only_a_cluster_of_two_systems_claims_it() -> None:
    fault = faults()["change-system"]

    assert refusal(fault, mixed.KIND) == ""
    assert "change_system" in refusal(fault, apache_kafka.KIND)
    assert "change_system" in refusal(fault, processes.KIND)
