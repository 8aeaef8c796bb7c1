"""`raise-metadata-version` on replog's simulated controllers, which answer as Kafka's do: what is finalized is shown, what a node does not know is refused."""

import pytest

from replog.metadata.record_versions import HIGHEST
from tests.scenarios import three_brokers
from tests.scenarios.three_brokers import run
from tribunal.clusters.api import ClusterError
from tribunal.clusters.clients.finalized_features import FinalizedFeatures
from tribunal.clusters.kafka.releases import release
from tribunal.clusters.simulated.cluster import SimulatedCluster
from tribunal.harness.plan import Plan, made
from tribunal.harness.scenario import BadScenario, scenario
from tribunal.nemesis.api import Effect
from tribunal.nemesis.faults import change_release, raise_metadata_version

BEFORE = release("4.0.0").metadata_version  # with which simulated clusters begin


class WithReleases(SimulatedCluster):
    """A simulated cluster whose metadata.version can be raised, as one of Apache Kafka can."""

    async def metadata_version(self) -> int:
        async with self._operator() as operator:
            return await FinalizedFeatures(operator).metadata_version()

    async def raise_metadata_version(self, level: int) -> None:
        async with self._operator() as operator:
            await FinalizedFeatures(operator).raise_metadata_version(level)


@pytest.fixture(autouse=True)
def with_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(three_brokers, "SimulatedCluster", WithReleases)


@pytest.mark.parametrize(
    ("to", "expect", "holds", "shown"),
    [
        pytest.param("4.3.1", "done", True, HIGHEST, id="all know it"),
        pytest.param("3.9.1", "refused", True, BEFORE, id="there is no way back"),
        pytest.param("4.3.1", "refused", False, HIGHEST, id="no refusal where one is due"),
        pytest.param("3.9.1", "done", False, BEFORE, id="a refusal where none is due"),
    ],
)
def test_the_proof_says_what_the_cluster_shows(to: str, expect: str, holds: bool, shown: int) -> None:
    effects: list[Effect] = []

    async def story(cluster: SimulatedCluster) -> None:
        assert isinstance(cluster, WithReleases)
        options = raise_metadata_version.Options(to=to, expect=expect)  # type: ignore[arg-type]
        async with raise_metadata_version.inject(cluster, 101, options) as effect:
            effects.append(effect)
            assert await cluster.metadata_version() == shown

    run(7, story)

    proof, heal = effects[0].proof, effects[0].heal
    assert (proof.holds, proof.facts["shown"], proof.facts["former"]) == (holds, shown, BEFORE)
    assert ("INVALID_UPDATE_VERSION" in str(proof.facts["refused"])) is (to == "3.9.1")
    assert heal is not None
    assert heal.holds


def test_nobody_goes_back_behind_what_is_finalized() -> None:
    """The node is not even stopped: one that does not know the level would not come up again."""

    async def story(cluster: SimulatedCluster) -> None:
        options = change_release.Options(to="3.9.1")
        expected = rf"^Apache Kafka 3\.9\.1 does not know metadata.version {BEFORE}, which was finalized$"
        with pytest.raises(ClusterError, match=expected):
            async with change_release.inject(cluster, 2, options):  # type: ignore[arg-type]
                pass
        assert cluster.alive(2)

    run(7, story)


@pytest.mark.parametrize(
    ("kafka", "to", "reason"),
    [
        pytest.param("3.9.1", "4.3.1", "", id="up"),
        pytest.param("4.3.1", "4.3.1", "4.3.1, 30, raises nothing", id="the same"),
        pytest.param("4.1.1", "4.0.0", "4.0.0, 25, raises nothing", id="down"),
        pytest.param("4.1.1", "four", "'four' is no version of Apache Kafka", id="no number"),
    ],
)
def test_what_raises_nothing_is_refused_with_the_plan(kafka: str, to: str, reason: str) -> None:
    step = {"raise-metadata-version": "active controller", "to": to, "for": "1s"}
    replaced = (
        [] if reason else [{"change-release": "active controller", "to": to, "for": "1s"}]
    )  # who knows the new level
    given = {"scenario": "x", "workload": "produce-consume", "kafka": kafka, "steps": [*replaced, step]}

    def plan() -> Plan:
        return made(scenario(given), seed=1, cluster="apache-kafka", time_ms=None, mutants=())

    if reason:
        with pytest.raises(BadScenario, match=f"fault raise-metadata-version: .*{reason}"):
            plan()
    else:
        assert plan().faults[-1].kind == "raise-metadata-version"


@pytest.mark.parametrize(
    ("kafka", "to", "reason"),
    [
        pytest.param("4.3.1", "4.3.1", "", id="both know it"),
        pytest.param("4.1.1", "4.3.1", "no node knows metadata.version 30", id="Kafka's brokers do not"),
        pytest.param("4.3.1", "4.0.0", "formatted by replog's controllers, with metadata.version 25", id="the first"),
    ],
)
def test_a_mixed_cluster_begins_with_the_level_of_replogs_controllers(
    kafka: str, to: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tribunal.clusters.kinds.mixed.way_in", lambda: ())
    step = {"raise-metadata-version": "active controller", "to": to, "for": "1s"}
    cluster = {"kafka": [2, 3], "version": kafka}
    given = {"scenario": "x", "workload": "produce-consume", "cluster": cluster, "steps": [step]}

    def plan() -> Plan:
        return made(scenario(given), seed=1, cluster="mixed", time_ms=None, mutants=())

    if reason:
        with pytest.raises(BadScenario, match=reason):
            plan()
    else:
        assert plan().faults[-1].kind == "raise-metadata-version"
