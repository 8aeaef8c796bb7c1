"""A cluster whose full service does not come about after the last fault: what a run records, and when a fault counts as undone."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.scenarios.three_brokers import NAME, isr_is, produce, reaches, run
from tribunal.checkers.judge.heal import stands_still
from tribunal.checkers.judge.verdict import check
from tribunal.clusters.api import CutMode, Link, Proof, TopicPartition
from tribunal.clusters.simulated.cluster import SimulatedCluster
from tribunal.harness.catalog import faults
from tribunal.harness.heal import alters_disks, observed
from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.run import Run
from tribunal.harness.scenario import load
from tribunal.harness.simulated import conduct_simulated
from tribunal.nemesis.api import all_back, back_in_service, incarnation, joined
from tribunal.results.store import Recording
from tribunal.results.verdict import Verdict

# To and from the other brokers, not the controllers: broker 3 stays unfenced.
LINKS = [Link(one, other) for one, other in ((1, 3), (3, 1), (2, 3), (3, 2))]


async def silenced(cluster: SimulatedCluster) -> None:
    """Let broker 3 fetch nothing any more, as if it did not want to, until it has left the ISR of `NAME`."""
    await cluster.cut(LINKS, CutMode.HOLD)
    await produce(cluster, 1, 3)  # who lacks nothing lags behind nobody
    await reaches(cluster, "3 out", lambda: 3 not in cluster.state.partitions[NAME].isr)


def test_two_looks_at_a_follower_that_never_fetches_prove_that_it_stands_still() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await led_by_another_than_3(cluster)
        await silenced(cluster)
        began_ns = cluster.now_ns()

        seen = await observed(cluster, not_undone=(), on_disks=())

        assert cluster.now_ns() - began_ns >= cluster.spec.recovery_timeout_ms * 1_000_000
        assert seen.first is not None
        assert seen.first.answering == cluster.spec.node_ids
        assert stands_still(seen) is not None

    run(3, scenario)


def test_a_follower_that_comes_back_between_two_looks_does_not_stand_still() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await led_by_another_than_3(cluster)
        await silenced(cluster)
        watching = asyncio.create_task(observed(cluster, not_undone=(), on_disks=()))
        await asyncio.sleep(1)
        await cluster.heal(LINKS)

        seen = await watching

        assert seen.first is not None
        assert seen.first.lacking
        assert seen.second is not None
        assert not seen.second.lacking
        assert stands_still(seen) is None

    run(3, scenario)


def test_a_look_names_whose_disk_lost_the_whole_log() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await led_by_another_than_3(cluster)
        await silenced(cluster)

        seen = await observed(cluster, not_undone=(), on_disks=(), emptied={(NAME, 2), (TopicPartition("other", 0), 3)})

        assert seen.second is not None
        assert [one.emptied for one in seen.second.lacking] == [(2,)]

    run(3, scenario)


@pytest.mark.parametrize("disturb", ["pause", "kill"])
def test_a_node_that_does_not_answer_proves_nothing(disturb: str) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await led_by_another_than_3(cluster)
        await silenced(cluster)
        await (cluster.pause(101) if disturb == "pause" else cluster.kill(101))

        seen = await observed(cluster, not_undone=(), on_disks=())

        assert seen.second is not None
        assert 101 not in seen.second.answering
        assert stands_still(seen) is None

    run(3, scenario)


async def led_by_another_than_3(cluster: SimulatedCluster) -> None:
    await isr_is(cluster, [1, 2, 3])
    if cluster.state.partitions[NAME].leader == 3:
        await cluster.kill(3)
        await reaches(cluster, "another leader", lambda: cluster.state.partitions[NAME].leader in (1, 2))
        await cluster.start(3)
        await isr_is(cluster, [1, 2, 3])


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(all_back, id="everybody"),
        pytest.param(lambda cluster: back_in_service(cluster, 3, None), id="one broker"),
    ],
)
def test_a_fault_is_undone_where_full_service_alone_is_missing(asked: Callable[..., Awaitable[Proof]]) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await led_by_another_than_3(cluster)
        await silenced(cluster)

        proof = await asked(cluster)

        assert not proof.holds
        assert proof.is_undone

    run(3, scenario)


@pytest.mark.parametrize(
    ("runs", "undone"),
    [pytest.param(True, True, id="its process runs"), pytest.param(False, False, id="nobody has started it")],
)
def test_an_end_is_undone_where_the_process_runs_whatever_registers(runs: bool, undone: bool) -> None:
    """Controllers that elect nobody let no broker register: that takes back no start, and must not excuse them."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.kill(3)
        await reaches(cluster, "3 fenced", lambda: cluster.state.brokers[3].fenced)
        former = incarnation(cluster, 3)
        if runs:
            await cluster.start(3)
            await reaches(cluster, "3 again", lambda: incarnation(cluster, 3) != former)
            former = incarnation(cluster, 3)  # of a process that runs, and registers no more

        proof = await back_in_service(cluster, 3, former)

        assert not proof.holds
        assert proof.is_undone is undone

    run(3, scenario)


@pytest.mark.parametrize(
    ("first", "second", "undone"),
    [
        pytest.param(Proof(True, {}), Proof(True, {}), True, id="all of it holds"),
        pytest.param(Proof(True, {}), Proof(False, {}, undone=True), True, id="service alone is missing"),
        pytest.param(Proof(False, {}), Proof(False, {}, undone=True), False, id="the links are not mended"),
        pytest.param(Proof(True, {}), Proof(False, {}), False, id="another part is missing"),
    ],
)
def test_a_joined_proof_is_undone_when_both_parts_are(first: Proof, second: Proof, undone: bool) -> None:
    assert joined(first, "service", second).is_undone is undone


def test_faults_that_alter_disks_claim_nothing() -> None:
    kinds = {name for name, fault in faults().items() if alters_disks(fault)}

    assert {"bit-rot", "torn-tail", "full-disk", "mount-full"} <= kinds
    assert not {"kill", "isolate", "power-loss", "wipe", "missed-bounce"} & kinds


SCENARIO = """
scenario: stops-to-fetch
cluster: {brokers: 3, controllers: 1, replication_factor: 3, min_insync_replicas: 2, profile: ci}
workload: {name: produce-consume, partitions: 1, rate: 12, readers: 1}
time: 1s
steps:
  - {kill: controller 101, for: 300ms}
"""


@pytest.mark.parametrize(
    ("mended", "unhealed", "found"),
    [
        pytest.param(False, True, ["invariant/no_full_isr/liveness"], id="it never fetches again"),
        pytest.param(True, False, [], id="it does in time"),
    ],
)
def test_a_run_records_that_its_cluster_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mended: bool, unhealed: bool, found: list[str]
) -> None:
    """A follower that stops to fetch when the last fault is undone stands for a bug that no simulation's own watch has seen."""

    async def stops_to_fetch(_: Run, cluster: SimulatedCluster) -> None:
        ((_, partition),) = cluster.state.partitions.items()
        follower = next(node for node in partition.replicas if node != partition.leader)
        others = [node for node in cluster.spec.broker_ids if node != follower]
        links = [link for one in others for link in (Link(one, follower), Link(follower, one))]
        await cluster.cut(links, CutMode.HOLD)
        await reaches(cluster, "an ISR of two", lambda: any(len(p.isr) == 2 for p in cluster.state.partitions.values()))
        if mended:
            await cluster.heal(links)

    monkeypatch.setattr("tribunal.harness.simulated._asked_for_progress", stops_to_fetch)
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO)
    run_dir = tmp_path / "run"
    run_dir.mkdir()

    conduct_simulated(made(load(file, {}), seed=1, cluster="simulated", time_ms=None, mutants=()), run_dir, Silent())

    recording = Recording.open(run_dir)
    manifest = recording.manifest
    assert manifest is not None
    assert (manifest.unhealed is not None) is unhealed
    assert recording.table("faults")["undone"].to_pylist() == [True]
    verdict = check([run_dir], "inline")[0]
    assert [str(one.signature) for one in verdict.violations] == found, verdict.claim
    assert (verdict.verdict is Verdict.VIOLATION) is unhealed
