"""A cluster of Apache Kafka in containers that stands outside of our kinds: made with the engine's command line alone, hurt by the commands of docs/your-cluster.md."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka.admin import AdminClient

from tests.containers.test_containers import no_engine
from tribunal.clusters.kafka.jars import LOG4J_2_FILE, VERSION, kafka_jars
from tribunal.clusters.kafka.node import property_text
from tribunal.clusters.maven_jars import NoJars
from tribunal.clusters.spec import JVM

pytestmark = [
    pytest.mark.containers,
    pytest.mark.e2e,
    pytest.mark.nightly,
    pytest.mark.timeout(570),
    pytest.mark.skipif(
        bool(no_engine()) or shutil.which("docker") is None, reason=no_engine() or "no `docker` on the path"
    ),
]
NODES = (1, 2, 3)
SUBNET = "10.231.77"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
SETTINGS = {**JVM, "offsets.topic.replication.factor": 3}
STATED = (
    "broker.session.timeout.ms", "replica.lag.time.max.ms", "offsets.topic.num.partitions", "transaction.state.log.num.partitions",
)  # fmt: skip
SCENARIO = """
scenario: mine
about: leaders are killed, paused, cut off and stopped, in containers that are there already
cluster: {file: cluster.toml}
workload: {name: produce-consume, partitions: 2, rate: 60, readers: 1}
time: 10s
steps:
  - {kill: leader(p0), for: 1.2x session}
  - {pause: leader(p0), for: 1.2x session}
  - {isolate: leader(p1), for: 1.2x session}
  - {stop: follower(p0), for: 0.5x session}
"""
COMMANDS = """
[commands]
kill = ["docker", "kill", "NAME-{node}"]
stop = ["docker", "stop", "-t", "60", "NAME-{node}"]
start = ["docker", "start", "NAME-{node}"]
pause = ["docker", "pause", "NAME-{node}"]
resume = ["docker", "unpause", "NAME-{node}"]
isolate = ["docker", "network", "disconnect", "NAME", "NAME-{node}"]
rejoin = ["docker", "network", "connect", "--ip", "{host}", "NAME", "NAME-{node}"]
alive = ["sh", "-c", "docker inspect -f '{{.State.Running}}' NAME-$1 | grep -q true", "sh", "{node}"]
copy_logs = ["docker", "cp", "NAME-{node}:/data/.", "{target}"]
"""


def docker(*words: str, check: bool = True) -> str:
    """Call the engine's command line as a user does."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=check).stdout.strip()


def address(node: int) -> str:
    return f"{SUBNET}.{10 + node}"


def properties(node: int) -> str:
    values = {
        "process.roles": "broker,controller",
        "node.id": node,
        "listeners": f"PLAINTEXT://{address(node)}:9092,CONTROLLER://{address(node)}:9093",
        "advertised.listeners": f"PLAINTEXT://{address(node)}:9092",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.quorum.voters": ",".join(f"{one}@{address(one)}:9093" for one in NODES),
        "log.dirs": "/data",
        **{
            name: value
            for name, value in SETTINGS.items()
            if not name.startswith(("tribunal.", "leader.", "eligible."))
        },
    }
    return "".join(f"{name}={property_text(value)}\n" for name, value in values.items())


def answers(node: int) -> bool:
    try:
        socket.create_connection((address(node), 9092), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture
def name(tmp_path: Path) -> Iterator[str]:
    """Start three containers on a network of their own; the host's own Java and libraries are all that they have."""
    try:
        jars = kafka_jars(VERSION)
    except NoJars as problem:
        pytest.skip(str(problem))
    name = f"tribunal-own-{os.getpid()}"
    java = Path(shutil.which("java") or "java").resolve()
    empty = tmp_path / "empty.tar"
    subprocess.run(["tar", "cf", str(empty), "-T", os.devnull], check=True)
    beside = ("/usr", "/lib", "/lib64", "/bin", "/etc", str(java.parent.parent), str(jars))
    mounted = [word for one in beside if Path(one).exists() for word in ("-v", f"{one}:{one}:ro")]
    jvm = [str(java), "-Xms64m", "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    logging = f"-Dlog4j2.configurationFile={jars / LOG4J_2_FILE}"
    try:
        docker("import", str(empty), name)
        docker("network", "create", "--subnet", f"{SUBNET}.0/24", name)
        for node in NODES:
            folder = tmp_path / str(node)
            (folder / "data").mkdir(parents=True)
            (folder / "server.properties").write_text(properties(node))
            volumes = [*mounted, "-v", f"{folder}:/node:ro", "-v", f"{folder / 'data'}:/data", "-v", "/tmp"]
            run = [*jvm, logging, "-cp", f"{jars}/*"]
            form = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", "/node/server.properties"]
            docker("run", "--rm", *volumes, name, *run, *form)
            net = ["--network", name, "--ip", address(node)]
            docker(
                "run",
                "-d",
                "--name",
                f"{name}-{node}",
                *net,
                *volumes,
                name,
                *run,
                "kafka.Kafka",
                "/node/server.properties",
            )
        deadline = time.monotonic() + 120
        while not all(map(answers, NODES)):
            assert time.monotonic() < deadline, [docker("logs", f"{name}-{node}") for node in NODES]
            Event().wait(0.3)
        yield name
    finally:
        for node in NODES:
            docker("rm", "-f", "-v", f"{name}-{node}", check=False)
        docker("network", "rm", name, check=False)
        docker("rmi", "-f", name, check=False)


def test_containers_that_stand_already_are_hurt_by_their_users_commands_and_judged_as_a_whole(
    name: str, tmp_path: Path
) -> None:
    def listed(port: int) -> str:
        return ", ".join(f'{{id = {node}, address = "{address(node)}:{port}"}}' for node in NODES)

    settings = "".join(f'"{one}" = {SETTINGS[one]}\n' for one in STATED)
    head = f'name = "containers"\nversion = "{VERSION}"\nbrokers = [{listed(9092)}]\ncontrollers = [{listed(9093)}]\n'
    (tmp_path / "cluster.toml").write_text(f"{head}[settings]\n{settings}{COMMANDS.replace('NAME', name)}")
    (tmp_path / "mine.yaml").write_text(SCENARIO)
    words = ["run", "mine.yaml", "--cluster", "existing", "--seed", "3", "--engine", "inline", "--out", "runs"]

    done = subprocess.run(
        [sys.executable, "-m", "tribunal", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    (path,) = (tmp_path / "runs").glob("*/verdict.json")
    verdict = json.loads(path.read_text())
    assert [fault["took_effect"] for fault in verdict["test"]["faults"]] == [True] * 4, said
    assert verdict["coverage"]["judged"] == verdict["coverage"]["cells"] > 0
    assert not (path.parent / "acts.json").exists()
    seen = AdminClient({"bootstrap.servers": f"{address(1)}:9092"}).list_topics(timeout=20)
    assert sorted(seen.brokers) == list(NODES)
    assert [topic for topic in seen.topics if not topic.startswith("__")] == []
