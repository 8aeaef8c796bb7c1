"""Clients in other languages, unmodified, on three of our brokers, while one of them dies by kill -9.

KafkaJS, franz-go, sarama, aiokafka, kafka-python (small programs beside this file), kcat. What is missing on a machine (a runtime, a
registry that cannot be reached) is said, and its client skipped. Go modules and npm packages are fetched by their own
tools, in the versions that are pinned beside the programs.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer

import pytest

from tests.clients.three_brokers_one_dies import SETTINGS, committed, create, dying, on_the_log, revive
from tribunal.clusters.kafka.side_by_side import Ours, SideBySide

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
HERE = Path(__file__).parent
BUILD_S = 600
RUN_S = 100
COUNT = 60
TRANSACTIONS = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    with SideBySide(Ours(), tmp_path_factory.mktemp("foreign"), brokers=3, controllers=1, settings=SETTINGS) as cluster:
        yield cluster.up()


def needed(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


def built(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_S, check=False)
    if done.returncode:
        said = done.stdout + done.stderr
        unreachable = ("dial tcp", "ENOTFOUND", "ECONNREFUSED", "EAI_AGAIN", "proxyconnect", "i/o timeout", "ETIMEDOUT")
        if any(sign in said for sign in unreachable):
            pytest.skip(f"{' '.join(command)}: the registry cannot be reached: {said[-200:]}")
        raise AssertionError(said)


def kafkajs(folder: Path) -> list[str]:
    node = needed("node")
    built([needed("npm"), "install", "--no-audit", "--no-fund", "--prefer-offline"], folder)
    return [node, str(folder / "client.js")]


def go_program(folder: Path) -> list[str]:
    built([needed("go"), "build", "-p", "2", "-mod=mod", "-o", "client", "."], folder)
    return [str(folder / "client")]


BUILDERS: dict[str, Callable[[Path], list[str]]] = {"kafkajs": kafkajs, "franz": go_program, "sarama": go_program}
PYTHON = ("aiokafka", "kafka-python")
CLIENTS = [
    pytest.param("kafkajs", id="KafkaJS"),
    pytest.param("franz", id="franz-go", marks=pytest.mark.nightly),  # Go's first build takes minutes on a busy machine
    pytest.param("sarama", id="sarama", marks=pytest.mark.nightly),
    *(pytest.param(name, marks=pytest.mark.nightly) for name in PYTHON),
]


@pytest.fixture(scope="module", params=CLIENTS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    """A client's name and the words that start it."""
    name: str = request.param
    if name in PYTHON:
        return name, [sys.executable, str(HERE / "python_client.py"), name]
    folder = tmp_path_factory.mktemp(name) / name
    shutil.copytree(HERE / name, folder)
    return name, BUILDERS[name](folder)


def said(command: list[str], *, stdin: str = "") -> list[str]:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def said_while_dying(
    name: str, command: list[str], cluster: SideBySide, node: int, after_s: float
) -> tuple[list[str], Timer]:
    """Kill a broker while the program is at work; return what it said, and who killed."""
    if name != "kafkajs":
        timer = dying(cluster, node, after_s)
        lines = said(command)
    else:
        # KafkaJS (2.2, eosManager) gives up at once if the broker that it asks for a producer id is dead, and on a busy
        # machine it comes to ask that late: it says when it has one.
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
            assert program.stderr is not None
            first = program.stderr.readline()
            assert first == "connected\n", first + program.communicate(timeout=RUN_S)[1]
            timer = dying(cluster, node, 0.1)
            out, problems = program.communicate(timeout=RUN_S)
        if program.returncode:
            revive(cluster, node, timer)  # the tests behind this one have the same cluster
        assert program.returncode == 0, problems[-2000:]
        lines = out.splitlines()
    return lines, timer


def messages(lines: list[str]) -> dict[tuple[int, int], str]:
    found = [json.loads(line) for line in lines]
    return {(one["partition"], one["offset"]): one["value"] for one in found}


def test_what_is_acknowledged_is_read_by_a_group_while_a_broker_dies(
    cluster: SideBySide, program: tuple[str, list[str]]
) -> None:
    name, command = program
    create(cluster, f"{name}-plain")

    produce = [*command, "produce", cluster.bootstrap, f"{name}-plain", str(COUNT)]
    lines, timer = said_while_dying(name, produce, cluster, 1, 0.4)
    acknowledged = messages(lines)
    read = messages(said([*command, "consume", cluster.bootstrap, f"{name}-plain", str(COUNT), f"{name}-group"]))
    revive(cluster, 1, timer)

    assert len(acknowledged) == COUNT
    assert read == acknowledged == on_the_log(cluster, f"{name}-plain")
    assert committed(cluster, f"{name}-group", f"{name}-plain") == COUNT


def test_transactions_are_all_or_nothing_while_a_broker_dies(
    cluster: SideBySide, program: tuple[str, list[str]]
) -> None:
    name, command = program
    create(cluster, f"{name}-tx")

    transact = [*command, "transact", cluster.bootstrap, f"{name}-tx", str(TRANSACTIONS)]
    _, timer = said_while_dying(name, transact, cluster, 2, 0.6)
    revive(cluster, 2, timer)
    found = on_the_log(cluster, f"{name}-tx")

    prefix = {"kafkajs": "js", "franz": "go", "aiokafka": "aio", "kafka-python": "kp"}.get(name, name)
    expected = [f"{prefix}-{i}-{partition}" for i in range(0, TRANSACTIONS, 2) for partition in range(3)]
    assert sorted(found.values()) == sorted(expected)


def test_kcat_writes_reads_and_reads_as_a_group_while_a_broker_dies(cluster: SideBySide) -> None:
    kcat = [needed("kcat"), "-b", cluster.bootstrap]
    create(cluster, "kcat")
    values = [f"line-{index}" for index in range(COUNT)]
    timer = dying(cluster, 3, 0.2)

    said([*kcat, "-P", "-t", "kcat", "-X", "acks=all"], stdin="\n".join(values) + "\n")
    read = said([*kcat, "-C", "-t", "kcat", "-e", "-q"])
    by_group = said([*kcat, "-G", "kcat-group", "-c", str(COUNT), "-q", "-X", "auto.offset.reset=earliest", "kcat"])
    revive(cluster, 3, timer)
    listed = "\n".join(said([*kcat, "-L", "-t", "kcat"]))

    assert sorted(read) == sorted(by_group) == sorted(values)
    assert "with 3 partitions" in listed
    assert listed.count("isrs: ") == 3
