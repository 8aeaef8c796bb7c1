"""replog and Apache Kafka as described systems (`systems/replog`, `systems/kafka`): the same file as anybody's, judged as logs."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.systems.judged import judged_in, started
from tribunal.clusters.api import ClusterError
from tribunal.clusters.kafka.jars import obstacles
from tribunal.clusters.kinds import system as kind
from tribunal.clusters.namespaces.spaces import way_in
from tribunal.clusters.systems.cluster import COPY
from tribunal.clusters.systems.disks import lacking as no_disks
from tribunal.harness.new import made_system
from tribunal.harness.plan import Plan, made
from tribunal.harness.run import settings
from tribunal.harness.scenario import BadScenario, load
from tribunal.results.verdict import RunVerdict, Verdict

SYSTEMS = Path(__file__).resolve().parents[2] / "systems"
REPLOG = SYSTEMS / "replog"
KAFKA = SYSTEMS / "kafka"
NO_NAMESPACES = str(way_in()) if isinstance(way_in(), str) else ""
NO_DISKS = NO_NAMESPACES or no_disks()
NO_KAFKA = "; ".join(one.reason for one in obstacles())
SMALL = "{name: produce-consume, partitions: 3, rate: 200, readers: 1}"


def planned(file: Path, *, workload: str = SMALL, steps: str = "[{kill: random broker}]") -> Plan:
    """Return a plan for a described system; `BadScenario` where it is refused."""
    overrides = {"cluster.system": str(file), "workload": workload, "steps": steps}
    return made(load(REPLOG / "kill.yaml", overrides), seed=1, cluster="system", time_ms=None, mutants=())


def judged_as_log(folder: Path, scenario: str, out: Path, **overrides: str) -> RunVerdict:
    """Run a scenario of a log and judge it: records have to be in it, and replicas at its end."""
    verdict = judged_in(folder, scenario, overrides, out)
    assert verdict.judged["acknowledged, acks=all"] > 50
    assert verdict.judged["partitions with a final log"] == 3
    return verdict


def test_replog_described_as_anybody_s_system_is_judged_as_a_log(tmp_path: Path) -> None:
    """A killed leader loses nothing that all in sync had; the metadata, the clients and the final logs are there as of any log."""
    steps = "[{kill: leader(p0), for: 1.2x session, after: 300ms}]"

    verdict = judged_as_log(REPLOG, "kill.yaml", tmp_path, steps=steps, time="1s", workload=SMALL)

    assert verdict.verdict in (Verdict.PASS, Verdict.PERMITTED), verdict.reasons
    assert verdict.judged["metadata changes"] > 10


@pytest.mark.nightly
def test_the_same_nodes_with_a_known_bug_are_convicted(tmp_path: Path) -> None:
    """A leader that answers acks=all before anybody has copied the record loses it with its lead."""
    verdicts = (
        judged_in(REPLOG, "kill.yaml", {"cluster.system": str(REPLOG / "early.toml")}, tmp_path, seed=seed)
        for seed in range(1, 5)
    )

    convicted = next((one for one in verdicts if one.verdict is Verdict.VIOLATION), None)

    assert convicted is not None


@pytest.mark.skipif(bool(NO_DISKS), reason=NO_DISKS)
def test_a_log_whose_disks_forget_is_judged_by_what_they_kept(tmp_path: Path) -> None:
    """The disks end with the nodes: what they had is copied once, before."""
    verdict = judged_as_log(REPLOG, "power-loss.yaml", tmp_path)

    assert verdict.verdict is not Verdict.VIOLATION


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("folder", "scenario"),
    [
        pytest.param(REPLOG, "isolate.yaml", marks=pytest.mark.skipif(bool(NO_NAMESPACES), reason=NO_NAMESPACES)),
        pytest.param(KAFKA, "kill.yaml", marks=pytest.mark.skipif(bool(NO_KAFKA), reason=NO_KAFKA)),
        pytest.param(KAFKA, "isolate.yaml", marks=pytest.mark.skipif(bool(NO_KAFKA or NO_NAMESPACES), reason="no")),
        pytest.param(KAFKA, "power-loss.yaml", marks=pytest.mark.skipif(bool(NO_KAFKA or NO_DISKS), reason="no")),
    ],
)
def test_logs_that_are_cut_off_or_lose_power_are_not_accused(folder: Path, scenario: str, tmp_path: Path) -> None:
    """What all in sync had acknowledged is on the others."""
    verdict = judged_as_log(folder, scenario, tmp_path)

    assert verdict.verdict is not Verdict.VIOLATION


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        pytest.param('"{settings}",', "", "does not name {settings}", id="nodes that are not told"),
        pytest.param('controllers = "controller"', 'controllers = "raft"', "there is no port 'raft'", id="a port"),
        pytest.param('"replica.lag.time.max.ms"', '"replica.lag.max"', "no rule of the judge knows", id="a setting"),
        pytest.param('protocol = "kafka"', 'protocol = "kafka"\nversion = "17.0"', "17.0", id="a release"),
        pytest.param("[log]", '[client]\ncommand = ["a"]\noperations = ["read"]\n[log]', "one of the two", id="both"),
        pytest.param("[log]", "[timeouts_ms]\nelection = 1\n[log]", "what its settings say", id="time-outs"),
        pytest.param(
            "count = 3", 'count = 3\nhosts = "hosts.toml"\ndisk = "forgetful"', "no forgetful disks", id="hosts"
        ),
    ],
)
def test_a_log_that_could_not_be_judged_is_refused(old: str, new: str, why: str, tmp_path: Path) -> None:
    """In one line that says what is missing, before anything is started."""
    text = (REPLOG / "system.toml").read_text()
    assert old in text
    file = tmp_path / "system.toml"
    file.write_text(text.replace(old, new))

    with pytest.raises((BadScenario, ValueError), match=r"^[^\n]*$") as refusal:
        planned(file)

    assert why in str(refusal.value)


def test_a_log_has_records_and_no_objects(tmp_path: Path) -> None:
    """And a system with operations on objects has no records, no settings of Kafka's and no release."""
    with pytest.raises(BadScenario, match="calls cas, read, write, which clients of this cluster do not have"):
        planned(REPLOG / "system.toml", workload="{name: register, keys: 2, rate: 20}")
    made_system("keeper", tmp_path)
    keeper = tmp_path / "keeper" / "system.toml"
    with pytest.raises(BadScenario, match="sends and reads records"):
        planned(keeper, steps="[{kill: random node, for: 100ms}]")
    keeper.write_text(keeper.read_text().replace('"--data",', '"--more", "{settings}", "--data",'))
    with pytest.raises((BadScenario, ValueError), match=r"there is no \{settings\}"):
        planned(keeper, steps="[{kill: random node, for: 100ms}]")


def test_what_a_scenario_sets_is_what_nodes_are_started_with() -> None:
    """The settings of the file, and before them those of the scenario; the judge counts on the same."""
    overrides = {"cluster.settings": "{replica.lag.time.max.ms: 900}", "cluster.min_insync_replicas": "1"}
    plan = made(load(REPLOG / "kill.yaml", overrides), seed=1, cluster="system", time_ms=None, mutants=())

    settings = plan.spec.node_settings()

    assert settings["replica.lag.time.max.ms"] == 900
    assert settings["broker.session.timeout.ms"] == 1800
    assert settings["min.insync.replicas"] == 1


def test_a_log_says_whether_its_nodes_start_again_and_promises_nothing_else(tmp_path: Path) -> None:
    """Where nothing is said, a node that does not start again is an error whose remedy is this very line."""
    file, text = tmp_path / "system.toml", (REPLOG / "system.toml").read_text().partition("[promises]")[0]
    file.write_text(f"{text}\n[promises]\nstarts_after = {{ kill = true, pause-kill = false }}\n")

    given = settings(planned(file))

    assert (given["promises.starts_after.kill"], given["promises.starts_after.pause-kill"]) == (True, False)
    assert given["broker.session.timeout.ms"] == 1800
    file.write_text(f'{text}\n[promises]\nconsistency = "serializable"\n')
    with pytest.raises((BadScenario, ValueError), match="what its settings say"):
        planned(file)


def test_a_log_that_does_not_come_up_leaves_nothing(tmp_path: Path) -> None:
    """The error has the last lines of a node's log."""
    text = (REPLOG / "system.toml").read_text()
    file = tmp_path / "system.toml"
    file.write_text(text.replace('"sh", "{folder}/node.sh",', '"sh", "-c", "echo broken; exit 3", "sh",'))
    plan = planned(file)
    run_dir = tmp_path / "run"
    run_dir.mkdir()

    with pytest.raises(ClusterError, match="broken"):
        asyncio.run(started(plan.spec, run_dir))

    assert kind.leftovers(run_dir) == []


@pytest.mark.parametrize(
    ("reads", "holds"), [("exit 0", True), ("exit 2", False)], ids=["all was read", "some was not"]
)
def test_a_copy_that_lacks_what_could_not_be_read_is_none(tmp_path: Path, reads: str, holds: bool) -> None:
    """Of a disk that fails tar makes a whole archive with zeros in it: the replica would seem to have lost them."""
    log, copy, tools = tmp_path / "its data" / "t-0" / "0.log", tmp_path / "its copy", tmp_path / "tools"
    log.parent.mkdir(parents=True)
    log.write_text("records")
    tools.mkdir()
    (tools / "tar").write_text(f'#!/bin/sh\n{shutil.which("tar")} "$@" || exit\ncase $1 in -cf) {reads};; esac\n')
    (tools / "tar").chmod(0o755)

    done = subprocess.run(
        ["/bin/sh", "-c", COPY, "sh", str(log.parents[1]), str(copy)],
        env=os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"},
        check=False,
    )

    assert (done.returncode == 0, (copy / "t-0" / "0.log").read_text()) == (holds, "records")
