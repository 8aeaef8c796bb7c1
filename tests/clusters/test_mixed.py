"""A cluster of two systems, as far as it can be known without a JVM: what is refused, and which node gets what of whom.

The running cluster is in `tests/e2e/test_mixed.py`.
"""

import asyncio
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from tribunal.clusters.clock import RunClock
from tribunal.clusters.kafka.mixed_software import MixedSoftware
from tribunal.clusters.kafka.node import formatting_command
from tribunal.clusters.kafka.releases import release
from tribunal.clusters.kafka.software import KafkaSoftware, Runtime
from tribunal.clusters.kinds import apache_kafka, mixed
from tribunal.clusters.loopback import Loopback
from tribunal.clusters.nodes.leftovers import command_line
from tribunal.clusters.nodes.node_events import FileEvents
from tribunal.clusters.nodes.node_software import ReplogSoftware
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import faults, scenario_file
from tribunal.harness.cli.main import exit_code
from tribunal.harness.plan import made, refusal
from tribunal.harness.scenario import load

CLUSTER_ID = "mixedmixedmixedmixed_A"
KILLS = ("--set", "steps=[{kill: leader(p*), for: 1s}]")  # what every machine can do
KAFKA = ("--set", "cluster.kafka=2,3")


@pytest.fixture(autouse=True)
def with_java(monkeypatch):
    monkeypatch.setattr(apache_kafka, "java_release", lambda: 17)
    monkeypatch.setattr("tribunal.clusters.kafka.java.java_release", lambda: 17)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        pytest.param((), "cluster mixed: say which of its nodes are Apache Kafka: --set cluster.kafka=2,3", id="none"),
        pytest.param(
            ("--set", "cluster.kafka=3,4"),
            "kafka names node 4; brokers are 1 to 3, controllers 101 to 103",
            id="no node",
        ),
        pytest.param(("--set", "cluster.kafka=104"), "kafka names node 104; brokers are 1 to 3", id="no controller"),
        pytest.param(("--set", "cluster.kafka=two"), "kafka is 'two': name nodes, like 2,3", id="no number"),
        pytest.param((*KAFKA, "--set", "cluster.version=3.9.1"), "4.0.0 is the first", id="an old release"),
        pytest.param((*KAFKA, "--mode", "zookeeper"), "cluster mixed: in ZooKeeper mode", id="ZooKeeper mode"),
        pytest.param(
            (*KAFKA, "--set", "cluster.security=sasl_ssl"), "cluster mixed cannot have security", id="secured"
        ),
        pytest.param(
            (*KAFKA, "--set", "cluster.settings.controlled.shutdown.enable=false"),
            "replog's nodes have no setting controlled.shutdown.enable",
            id="a setting of Apache Kafka's",
        ),
        pytest.param(
            (*KAFKA, "--set", "cluster.settings.unclean.recovery.manager.enabled=true"),
            "do not report their log ends to controllers",
            id="unclean recovery",
        ),
        pytest.param(
            (*KAFKA, "--set", "steps=[{clock-jump: broker 1, for: 1s}]"),
            "fault clock-jump: cluster mixed cannot set_clock",
            id="a fault of one system",
        ),
        pytest.param((*KAFKA, "--cluster", "processes"), "are for --cluster mixed", id="another kind"),
        pytest.param((*KAFKA, "--cluster", "apache-kafka"), "are for --cluster mixed", id="Apache Kafka alone"),
    ],
)
def test_what_two_systems_cannot_be_together_is_refused_in_one_line(tmp_path, capsys, options, reason):
    out = str(tmp_path / "runs")

    assert exit_code(["run", "produce-consume", "--cluster", "mixed", *KILLS, *options, "--out", out]) == 64

    said = capsys.readouterr().err
    assert reason in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_a_java_that_is_too_old_is_named(monkeypatch):
    monkeypatch.setattr("tribunal.clusters.kafka.java.java_release", lambda: 11)

    assert "needs Java 17 or newer" in mixed.refused(ClusterSpec(kafka=(2,)))


@pytest.mark.parametrize("text", ["3,2", "[3, 2]", "[2, 3, 3]"])
def test_brokers_are_named_as_a_list_or_as_the_command_line_has_it(text):
    scenario = load(scenario_file("produce-consume"), {"cluster.kafka": text})

    assert scenario.spec.kafka == (2, 3)


def test_one_broker_is_named_by_its_number():
    assert load(scenario_file("produce-consume"), {"cluster.kafka": "2"}).spec.kafka == (2,)


def test_a_drawn_cluster_has_the_brokers_that_are_named():
    overrides = {"cluster.kafka": "5", "cluster.brokers": "5", "steps": "[{kill: leader(p*), for: 1s}]"}
    scenario = load(scenario_file("rotating-swarm"), overrides)

    specs = [made(scenario, seed=seed, cluster="mixed", time_ms=None, mutants=()).spec for seed in range(20)]

    assert {spec.brokers for spec in specs} == {5}
    assert min(spec.settings["log.segment.bytes"] for spec in specs) == 1 << 20


def test_a_drawn_cluster_has_the_controllers_that_are_named():
    overrides = {"cluster.kafka": "103", "steps": "[{kill: leader(p*), for: 1s}]"}
    scenario = load(scenario_file("rotating-swarm"), overrides)

    specs = [made(scenario, seed=seed, cluster="mixed", time_ms=None, mutants=()).spec for seed in range(20)]

    assert {spec.controllers for spec in specs} == {3}
    assert {spec.brokers for spec in specs} > {3}, "they are drawn as if nobody was named"


def test_the_first_metadata_version_is_the_same_whoever_is_active_first():
    command = formatting_command(
        "java", Path("jars"), Path("p"), CLUSTER_ID, release=release("4.3.1"), elr=True, begins_as=mixed.BEGINS_AS
    )

    assert command[command.index("--release-version") + 1] == "4.0"
    assert ClusterSpec(kafka=(101,)).formatted_level == mixed.BEGINS_AS.metadata_version


def test_faults_on_links_are_refused_where_nobody_knows_who_calls(monkeypatch):
    monkeypatch.setattr(apache_kafka, "way_in", lambda: "no network namespaces: forbidden")

    assert refusal(faults()["isolate"], mixed.KIND).endswith("who calls; no network namespaces: forbidden)")
    assert refusal(faults()["kill"], mixed.KIND) == ""


@pytest.fixture
def of_two_systems(tmp_path):
    run = RunContext(ClusterSpec(controllers=1, kafka=(2,)), tmp_path, RunClock(), CLUSTER_ID)
    environment = Loopback()

    async def opened():
        links = await environment.open(run)
        replog = ReplogSoftware(run, environment, links, lambda node: str(run.folder(node)))
        kafka = KafkaSoftware(run, environment, links, Runtime(jars=tmp_path / "jars", java="java"), run.spec.kafka)
        await environment.close()
        return MixedSoftware(run, replog, kafka)

    return run, asyncio.run(opened())


def test_each_node_is_configured_as_its_own_system_is(of_two_systems):
    run, software = of_two_systems
    for node in run.spec.node_ids:
        software.configure(node, {"replica.lag.time.max.ms": 777})

    assert [software.config(node).name for node in (101, 1, 2, 3)] == [
        *("node.toml", "node.toml", "server.properties", "node.toml")
    ]
    properties = dict(line.split("=", 1) for line in software.config(2).read_text().splitlines())
    ours = {node: tomllib.loads(software.config(node).read_text()) for node in (101, 1, 3)}
    assert {settings["replica.lag.time.max.ms"] for settings in ours.values()} == {777}
    assert properties["replica.lag.time.max.ms"] == "777"
    assert {settings["controller.quorum.voters"] for settings in ours.values()} == {
        properties["controller.quorum.voters"]
    }
    assert properties["process.roles"] == "broker"
    assert not [name for name in properties if name.startswith("tribunal.")]


def test_each_node_runs_its_own_system(of_two_systems):
    _, software = of_two_systems

    commands = {
        node: software.program(node).command(software.config(node), python="python", java="java")
        for node in (101, 1, 2)
    }

    assert "kafka.Kafka" in commands[2]
    assert all("replog" in " ".join(commands[node]) and "kafka.Kafka" not in commands[node] for node in (101, 1))
    assert software.stop_timeout_ms == KafkaSoftware.stop_timeout_ms


def test_a_power_failure_takes_what_the_nodes_own_system_has_not_synced(of_two_systems):
    run, software = of_two_systems
    fail = mixed.power_failure_of(run, software)
    for node in (1, 2):
        run.data_dir(node).mkdir(parents=True)

    assert "files_cut" in fail(run.folder(2)).facts
    assert "files_rolled_back" in fail(run.folder(1)).facts


def test_a_broker_goes_over_to_the_other_system_with_its_directory(of_two_systems):
    run, software = of_two_systems
    fail = mixed.power_failure_of(run, software)
    for node in (1, 2):
        software.configure(node, {})
        run.data_dir(node).mkdir()
    programs = {node: software.program(node) for node in (1, 2)}
    journal = run.folder(1) / "undo"
    journal.mkdir()

    proofs = [software.change_system(1, "apache-kafka"), software.change_system(2, "replog")]

    assert [proof.holds for proof in proofs] == [True, True]
    assert [proof.facts for proof in proofs] == [
        {"former": "replog", "next": "apache-kafka"},
        {"former": "apache-kafka", "next": "replog"},
    ]
    assert [software.system_of(node) for node in (1, 2, 3)] == ["apache-kafka", "replog", "replog"]
    assert [software.config(node).name for node in (1, 2)] == ["server.properties", "node.toml"]
    at_first = run.folder(9) / "config of its first system"
    commands = {node: programs[node].command(at_first, python="python", java="java") for node in (1, 2)}
    assert commands[1][-2:] == ["kafka.Kafka", str(software.config(1).resolve())]
    assert commands[2] == ["python", "-m", "replog", "broker", "--config", str(software.config(2))]
    properties = dict(line.split("=", 1) for line in software.config(1).read_text().splitlines())
    data = {properties["log.dirs"], tomllib.loads(software.config(2).read_text())["log.dirs"]}
    assert data == {str(run.data_dir(node).resolve()) for node in (1, 2)}
    assert not journal.exists(), "it would take back what the other system has written"
    assert "files_cut" in fail(run.folder(1)).facts
    assert "files_rolled_back" in fail(run.folder(2)).facts


def test_a_broker_that_runs_the_system_already_does_not_go_over(of_two_systems):
    _, software = of_two_systems

    assert not software.change_system(2, "apache-kafka").holds


def test_a_process_is_of_the_system_whose_command_it_is(of_two_systems):
    _, software = of_two_systems
    waiting = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", waiting, "kafka.Kafka"], stdin=subprocess.PIPE) as process:
        until_it_runs(process.pid, "kafka.Kafka")

        assert software.runs_system(process.pid, "apache-kafka").holds
        assert not software.runs_system(process.pid, "replog").holds

        assert process.stdin is not None
        process.stdin.close()
    assert not software.runs_system(process.pid, "apache-kafka").holds


def until_it_runs(pid, word):
    deadline = time.monotonic() + 20
    while word not in command_line(pid):
        assert time.monotonic() < deadline


def test_who_goes_over_reports_what_its_present_system_reports():
    runs_kafka = {2}
    events = FileEvents({}, iter(range(9)).__next__, silent=runs_kafka)

    events.starting(2)
    runs_kafka.discard(2)
    events.stopped(2)
    runs_kafka.add(1)
    events.starting(1)

    assert [(event.node, event.name) for event in events.drain()] == [(2, "start"), (1, "start")]


def test_starts_and_ends_of_a_node_without_an_event_file_are_what_the_harness_saw():
    events = FileEvents({}, iter(range(9)).__next__, silent=(2,))

    for node in (1, 2):
        events.starting(node)
        events.stopped(node)
    events.killed(1, 7)

    assert [(event.node, event.name) for event in events.drain()] == [(2, "start"), (2, "stop"), (1, "killed")]
