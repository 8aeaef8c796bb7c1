"""A real Apache Kafka as a kind of cluster: it starts, is disturbed, is observed where it does not report itself, and is judged as ours is.

One cluster with three faults in the gate; every claimed fault, whole runs and the rules that permit losses nightly.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from replog.log import batch
from replog.log.batch import NewRecord
from replog.wire.apis import Api
from replog.wire.exchange import exchange_of
from replog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from tests.nemesis.fault_matrix import write_row
from tests.nemesis.fault_table import COMPOSED, ONCE
from tests.nemesis.living_cluster import LivingCluster, broken, hurt
from tests.nemesis.machine import left_of, ours
from tribunal.clusters.api import ClusterSpec, TopicPartition
from tribunal.clusters.clients.asking import Asking
from tribunal.clusters.kafka.disk import CLEAN_SHUTDOWN, lose_unflushed, previous_broker_epoch
from tribunal.clusters.kafka.releases import DYNAMIC_VOTERS
from tribunal.clusters.kinds import apache_kafka
from tribunal.clusters.nodes.log_damage import log_ends
from tribunal.harness.catalog import faults
from tribunal.harness.plan import made, refusal
from tribunal.harness.scenario import BadScenario, load

ROOT = Path(__file__).parents[2]
BLOCKED = next((obstacle.reason for obstacle in apache_kafka.obstacles() if obstacle.blocks), "")
NEEDS_KAFKA = pytest.mark.skipif(bool(BLOCKED), reason=BLOCKED or "there is Kafka")
IN_THE_GATE = ("pause", "isolate", "power-loss")
LIVING = ClusterSpec(controllers=1, settings={"broker.session.timeout.ms": 5000})
CLAIMED = [
    case
    for case in ONCE + COMPOSED
    if not refusal(faults()[case[0]], apache_kafka.KIND)
    and not faults()[case[0]].needs & apache_kafka.missing(LIVING).keys()
]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


# --- what can be known without a running Kafka ---------------------------------------------


def test_what_apache_kafka_cannot_be_is_refused_when_the_plan_is_made():
    plain = load(ROOT / "scenarios/produce-consume.yaml", {})
    in_zookeeper_mode = load(ROOT / "scenarios/produce-consume.yaml", {"cluster.mode": "zookeeper"})

    with pytest.raises(BadScenario, match="mutants are bugs of replog: m44_acks_local"):
        made(plain, seed=1, cluster="apache-kafka", time_ms=None, mutants=("m44_acks_local",))
    with pytest.raises(BadScenario, match=r"4\.3\.1 has no ZooKeeper mode: 3\.9 was the last"):
        made(in_zookeeper_mode, seed=1, cluster="apache-kafka", time_ms=None, mutants=())
    assert refusal(faults()["clock-jump"], apache_kafka.KIND) == "set_clock"


def test_without_namespaces_faults_on_links_are_refused_with_the_reason(monkeypatch):
    monkeypatch.setattr(apache_kafka, "way_in", lambda: "no network namespaces: forbidden")

    assert refusal(faults()["isolate"], apache_kafka.KIND).endswith("who calls; no network namespaces: forbidden)")
    assert refusal(faults()["power-loss"], apache_kafka.KIND) == ""


def test_the_doctor_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("TRIBUNAL_KAFKA", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))

    found = [(obstacle.reason, obstacle.blocks) for obstacle in apache_kafka.obstacles_to_kafka()]

    assert found == [
        ("Apache Kafka 4.3.1 needs Java 17 or newer, and there is no `java` on the path", True),
        (f"the jars of Apache Kafka 4.3.1 are not in {tmp_path}, and no `mvn` to fetch them", True),
    ]


def written(folder, offsets):
    folder.mkdir(parents=True)
    log = folder / f"{offsets[0]:020}.log"
    for offset in offsets:
        record = NewRecord(key=None, value=offset.to_bytes(8))
        with log.open("ab") as file:
            file.write(batch.build([record], timestamp_ms=0, base_offset=offset, leader_epoch=0))
    log.with_suffix(".index").touch()
    return log


def test_a_power_failure_takes_what_kafka_does_not_claim_to_have_flushed(tmp_path):
    cut, kept, rolled = tmp_path / "t-0", tmp_path / "__cluster_metadata-0", tmp_path / "t-1"
    log = written(cut, range(5))
    written(kept, range(5))
    written(rolled, range(7, 9))
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 3\n")

    lost = lose_unflushed(tmp_path)

    assert log_ends(tmp_path) == {"t-0": 3, "t-1": 7}, "what was rolled is being flushed: its successor goes alone"
    assert not log.with_suffix(".index").exists()
    assert (kept / f"{0:020}.log").stat().st_size > 0
    assert lost.file_count == 2


@pytest.mark.parametrize(
    ("content", "epoch"),
    [
        pytest.param('{"version":0,"brokerEpoch":17}', 17, id="in good order"),
        pytest.param("", -1, id="of an older version"),
        pytest.param(None, -1, id="killed"),
    ],
)
def test_how_the_earlier_incarnation_ended_is_read_where_the_broker_reads_it(tmp_path, content, epoch):
    if content is not None:
        (tmp_path / CLEAN_SHUTDOWN).write_text(content)

    assert previous_broker_epoch(tmp_path) == epoch


# --- a running one -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def living(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kafka")
    living = LivingCluster.launched(apache_kafka, folder, LIVING)
    yield living
    living.close()
    assert apache_kafka.leftovers(folder) == []
    assert ours(left_of(folder)) == []


def in_their_lanes(cases):
    return [
        pytest.param(*case, id=case[0], marks=[] if case[0] in IN_THE_GATE else [pytest.mark.nightly]) for case in cases
    ]


def hurt_and_written_down(living, name, node, lasts_s, **options):
    """Hurt a node, and add a row to the table of faults; return the effect, and whether it healed."""
    began = time.monotonic()
    try:
        effect = living.run(lambda cluster: hurt(cluster, faults()[name], node, lasts_s, **options))
    except BaseException as problem:
        took_s = time.monotonic() - began
        write_row("apache-kafka", name, took_effect=False, healed=False, took_s=took_s, words=type(problem).__name__)
        raise
    healed = effect.heal is not None and effect.heal.holds
    write_row("apache-kafka", name, took_effect=effect.proof.holds, healed=healed, took_s=time.monotonic() - began)
    return effect, healed


@NEEDS_KAFKA
@pytest.mark.parametrize(("name", "node", "lasts_s", "options"), in_their_lanes(CLAIMED))
def test_a_fault_bites_and_heals(living, name, node, lasts_s, options):
    effect, healed = hurt_and_written_down(living, name, node, lasts_s, **options)

    assert effect.proof.holds, broken(effect.proof.facts)
    assert healed, effect.heal and broken(effect.heal.facts)
    assert living.cluster.failures() == []


@NEEDS_KAFKA
@pytest.mark.nightly
@pytest.mark.parametrize("fault", ["remove-voter", "wipe"])
def test_a_controller_without_a_vote_gets_one_again(tmp_path, fault):
    settings = {"broker.session.timeout.ms": 5000, DYNAMIC_VOTERS: True}
    living = LivingCluster.launched(apache_kafka, tmp_path, ClusterSpec(settings=settings))
    try:
        effect = living.run(lambda cluster: hurt(cluster, faults()[fault], 103, 1.0))
        voters = living.run(lambda cluster: cluster.voters())
    finally:
        living.close()

    assert effect.proof.holds, broken(effect.proof.facts)
    assert effect.heal is not None
    assert effect.heal.holds, broken(effect.heal.facts)
    assert voters == [101, 102, 103]


@NEEDS_KAFKA
def test_what_is_observed_is_what_kafka_says(living):
    """The metadata log as we follow it agrees with DescribeTopicPartitions: leader, ISR, ELR."""

    async def asked(cluster):
        asking = await Asking.open(cluster.links.endpoint(1), "test", 5_000)
        try:
            request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
            return await asking.ask(exchange_of(Api.DESCRIBE_TOPIC_PARTITIONS), 0, request, 5_000)
        finally:
            asking.close()

    answer = living.run(asked)
    observed = living.cluster.state.partitions

    for partition in answer.topics[0].partitions:
        known = observed[TopicPartition("t", partition.partition_index)]
        described = (partition.leader_id, sorted(partition.isr_nodes), partition.eligible_leader_replicas or [])
        assert described == (known.leader, sorted(known.isr), list(known.elr))


@NEEDS_KAFKA
def test_registrations_say_how_the_earlier_incarnation_ended(living):
    events = living.cluster.drain_events()
    registered = [event for event in events if event.name == "registered"]

    assert {event.node for event in registered} == {1, 2, 3}
    assert {event.fields["previous_broker_epoch"] for event in registered} == {-1}, "killed, or the first life"


def run(tmp_path, scenario, seed, *options):
    command = [sys.executable, "-m", "tribunal.harness.cli.main", "run", scenario, "--cluster", "apache-kafka"]
    command += ["--seed", str(seed), "--engine", "inline", "-q", "--json", "--out", str(tmp_path), *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    return json.loads(done.stdout)


def rules(verdict):
    return {one["rule"] for one in verdict.get("findings", []) if one["severity"] == "permitted"}


SHORT = """scenario: short
about: what power-loss-one does, as short as it can be
cluster: {brokers: 3, controllers: 1, replication_factor: 3, min_insync_replicas: 2, profile: ci}
workload: {name: produce-consume, partitions: 2, rate: 100, readers: 1}
time: 4s
warm_up: 1s
steps:
  - {power-loss: leader(p0), for: 0.3x session, after: 100ms}
"""


@pytest.mark.nightly
@NEEDS_KAFKA
def test_one_power_failure_loses_nothing_that_was_promised(tmp_path):
    (tmp_path / "short.yaml").write_text(SHORT)

    verdict = run(tmp_path, str(tmp_path / "short.yaml"), 1)

    assert verdict["verdict"] in ("PASS", "PERMITTED"), verdict["claim"]
    assert rules(verdict) <= {"R5"}
    assert verdict["judged"]["acknowledged, acks=all"] > 0


@NEEDS_KAFKA
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
def test_fewer_power_failures_than_min_isr_lose_nothing_that_was_promised(tmp_path, seed):
    verdict = run(tmp_path, "power-loss-one", seed)

    assert verdict["verdict"] in ("PASS", "PERMITTED", "INCONCLUSIVE"), verdict["claim"]
    assert rules(verdict) <= {"R5"}


@NEEDS_KAFKA
@pytest.mark.nightly
def test_a_power_failure_of_all_is_permitted_to_lose_by_the_rule(tmp_path):
    verdict = run(tmp_path, "power-loss-all", 1)

    assert verdict["verdict"] == "PERMITTED", verdict["claim"]
    assert "R1" in rules(verdict)


@NEEDS_KAFKA
@pytest.mark.nightly
def test_nodes_go_up_to_another_release_and_back(tmp_path):
    """Controllers first, then a broker; the formatted metadata.version stays, so that the way back is open."""
    spec = ClusterSpec(controllers=1, version="3.9.1", settings={"broker.session.timeout.ms": 5000})
    living = LivingCluster.launched(apache_kafka, tmp_path, spec)
    try:
        effects = [
            hurt_and_written_down(living, "change-release", node, 0.2, to=to, alone=True)[0]
            for node, to in ((101, "4.3.1"), (2, "4.3.1"), (2, "3.9.1"), (101, "3.9.1"))
        ]
    finally:
        living.close()

    for effect in effects:
        assert effect.proof.holds, broken(effect.proof.facts)
        assert effect.heal is not None
        assert effect.heal.holds, broken(effect.heal.facts)
    changes = [effect.proof.facts["release"] for effect in effects]
    assert [(change["former"], change["next"]) for change in changes] == [
        *(("3.9.1", "4.3.1"),) * 2,
        *(("4.3.1", "3.9.1"),) * 2,
    ]


@NEEDS_KAFKA
@pytest.mark.nightly
def test_metadata_version_is_raised_once_the_last_node_knows_it(tmp_path):
    spec = ClusterSpec(controllers=1, version="4.0.0", settings={"broker.session.timeout.ms": 5000})
    living = LivingCluster.launched(apache_kafka, tmp_path, spec)
    steps = [
        ("change-release", 101, {"to": "4.1.1"}),
        ("raise-metadata-version", 101, {"to": "4.1.1", "expect": "refused"}),  # no broker knows it
        ("change-release", 1, {"to": "4.1.1"}),
        ("change-release", 1, {"to": "4.3.1", "alone": True}),
        ("raise-metadata-version", 101, {"to": "4.1.1"}),  # all know it, of two releases
        ("raise-metadata-version", 101, {"to": "4.3.1", "expect": "refused"}),
    ]
    try:
        effects = [hurt_and_written_down(living, name, node, 0.2, **options)[0] for name, node, options in steps]
    finally:
        living.close()

    for effect in effects:
        assert effect.proof.holds, broken(effect.proof.facts)
        assert effect.heal is not None
        assert effect.heal.holds, broken(effect.heal.facts)
    shown = [effect.proof.facts["shown"] for effect in effects if "shown" in effect.proof.facts]
    assert shown == [25, 27, 27]


@NEEDS_KAFKA
@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["upgrade-3.9", "finalize-4.1", "everybody-stops", "operated-swarm"])
def test_a_scenario_of_releases_accuses_nobody(tmp_path, name):
    verdict = run(tmp_path, f"released/{name}", 1)

    assert verdict["verdict"] in ("PASS", "PERMITTED", "INCONCLUSIVE"), verdict["claim"]


@NEEDS_KAFKA
@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
@pytest.mark.parametrize("name", ["produce-consume", "transactions", "consumer-group", "restarts", "exactly-once"])
def test_ordinary_scenarios_accuse_no_release(tmp_path, name, version):
    verdict = run(tmp_path, name, 1, "--set", f"cluster.version={version}")

    assert verdict["verdict"] in ("PASS", "PERMITTED", "INCONCLUSIVE"), verdict["claim"]
    assert rules(verdict) <= {"R5"}
