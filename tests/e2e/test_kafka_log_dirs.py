"""kafka-reassign-partitions with log directories (KIP-113): replicas move between disks of a broker, and to a disk of another one.

Two brokers of three have the topic first; every broker has two directories.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.kafka_command import Tools, jars_or_skip
from tribunal.clusters.kafka.side_by_side import Ours, Place, SideBySide

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(300)]
SETTINGS: Final = {
    "default.replication.factor": 2,
    "min.insync.replicas": 1,
    "replica.fetch.wait.max.ms": 200,
    "auto.create.topics.enable": False,
}
LINES: Final = [f"record {number}" for number in range(500)]
SEGMENT: Final = "00000000000000000000.log"


class OnTwoDisks(Ours):
    """Nodes with two directories each."""

    def write_config(self, place: Place, settings: Mapping[str, Any]) -> Path:
        """Name both."""
        return super().write_config(place, {**settings, "log.dirs": f"{place.data},{other(place)}"})


def other(place: Place) -> Path:
    return place.folder / "other"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    jars_or_skip()
    folder = tmp_path_factory.mktemp("two-disks")
    with SideBySide(OnTwoDisks(), folder, brokers=3, controllers=1, settings=SETTINGS) as cluster:
        yield cluster.up()


@pytest.fixture(scope="module")
def tools(cluster: SideBySide) -> Tools:
    return Tools(jars_or_skip(), cluster.bootstrap)


def create(tools: Tools, topic: str) -> None:
    """Have a topic on brokers 1 and 2, and records in it."""
    tools.ask("kafka-topics", "--create", "--topic", topic, "--replica-assignment", "1:2")
    tools.ask("kafka-console-producer", "--topic", topic, stdin="".join(f"{line}\n" for line in LINES))


def assignment(folder: Path, topic: str, replicas: Mapping[int, str]) -> str:
    path = folder / f"{topic}.json"
    directories = {"replicas": list(replicas), "log_dirs": list(replicas.values())}
    path.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, **directories}]}))
    return str(path)


def copy_of(cluster: SideBySide, node: int, topic: str) -> Path:
    """Return where a broker has the topic's only partition."""
    place = cluster.places[node]
    (here,) = [path for path in (place.data, other(place)) if (path / f"{topic}-0").exists()]
    return here


def described(tools: Tools, topic: str) -> dict[int, list[str]]:
    """Return by broker where kafka-log-dirs says that a topic's partition lies."""
    said = tools.ask("kafka-log-dirs", "--describe", "--topic-list", topic).splitlines()[-1]
    return {
        one["broker"]: [path["logDir"] for path in one["logDirs"] if path["error"] is None and path["partitions"]]
        for one in json.loads(said)["brokers"]
    }


def read(tools: Tools, topic: str) -> list[str]:
    reading = ("--from-beginning", "--max-messages", str(len(LINES)), "--timeout-ms", "20000")
    return [
        line for line in tools.ask("kafka-console-consumer", "--topic", topic, *reading).splitlines() if line in LINES
    ]


def moved(cluster: SideBySide, tools: Tools, plan: str, done: str) -> str:
    """Carry out a plan; return what the tool said at its beginning."""
    reassign = ("kafka-reassign-partitions", "--reassignment-json-file", plan)
    started = tools.ask(*reassign, "--execute")
    cluster.wait_until(lambda: done in tools.ask(*reassign, "--verify"), done, 60)
    return started


def test_a_replica_moves_to_the_other_disk_of_its_broker(cluster: SideBySide, tools: Tools, tmp_path: Path) -> None:
    create(tools, "across")
    place = cluster.places[1]
    wanted = other(place) if copy_of(cluster, 1, "across") == place.data else place.data
    plan = assignment(tmp_path, "across", {1: str(wanted), 2: "any"})

    started = moved(cluster, tools, plan, "Reassignment of replica across-0-1 completed successfully")

    assert f"Successfully started moving log directory to {wanted} for replica across-0 with broker 1" in started
    assert described(tools, "across")[1] == [str(wanted)]
    assert copy_of(cluster, 1, "across") == wanted
    first, second = (copy_of(cluster, node, "across") / "across-0" / SEGMENT for node in (1, 2))
    assert first.read_bytes() == second.read_bytes()
    assert read(tools, "across") == LINES


def test_a_replica_moves_to_a_named_disk_of_another_broker(cluster: SideBySide, tools: Tools, tmp_path: Path) -> None:
    create(tools, "away")
    wanted = other(cluster.places[3])
    plan = assignment(tmp_path, "away", {1: "any", 3: str(wanted)})

    started = moved(cluster, tools, plan, "Reassignment of replica away-0-3 completed successfully")

    assert "Successfully started partition reassignment for away-0" in started
    assert described(tools, "away")[3] == [str(wanted)]
    assert read(tools, "away") == LINES


def test_a_directory_that_a_broker_does_not_have_is_refused(cluster: SideBySide, tools: Tools, tmp_path: Path) -> None:
    create(tools, "nowhere")
    before = described(tools, "nowhere")
    plan = assignment(tmp_path, "nowhere", {1: "/elsewhere", 2: "any"})

    said = tools.ask("kafka-reassign-partitions", "--reassignment-json-file", plan, "--execute", fails=True)

    assert "LogDirNotFoundException" in said
    assert described(tools, "nowhere") == before
