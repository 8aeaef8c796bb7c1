"""A cluster of replog processes for one of Kafka's own tests: `python -m tests.kafka_own.nodes`, started by the test's fixture.

On stdin comes one line of JSON that says what the test asks for (`Asked`), then one line a command: `start N`, `stop N`. Each is
answered by one line of JSON (`Facts`). At the end of stdin everything ends.
"""

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

import msgspec

from replog.config import DEFINITIONS
from replog.config.setting import ConfigType
from tribunal.clusters.api import ClusterError
from tribunal.clusters.kafka.side_by_side import CLUSTER_ID, Ours, Place, SideBySide
from tribunal.clusters.spec import Settings, SettingValue

FIRST_CONTROLLER = 3000  # as Kafka's fixture numbers them
IN_MS = {"hours": 3_600_000, "minutes": 60_000}
OURS_ALONE = ("listeners", "advertised.listeners", "node.id", "process.roles", "log.dirs", "controller.quorum.voters")


class Asked(msgspec.Struct, frozen=True):
    """What a test's annotation asks for; settings by Kafka's names, as text."""

    brokers: int
    controllers: int
    combined: bool
    disks: int
    elr: bool
    settings: dict[str, str]
    settings_of: dict[int, dict[str, str]]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the fixture has to know. `without`: settings that have no meaning here. `problem`: why it cannot be done."""

    bootstrap: str = ""
    controllers: str = ""
    cluster: str = ""
    without: list[str] = []
    problem: str = ""


class PerNode(Ours):
    """replog, with settings of single nodes and several log directories."""

    def __init__(self, of_node: Mapping[int, Settings], disks: int) -> None:
        self.of_node = of_node
        self.disks = disks

    def write_config(self, place: Place, settings: Settings) -> Path:
        """Write node.toml."""
        folders = [str(place.data), *(f"{place.data}-{number}" for number in range(1, self.disks))]
        return super().write_config(
            place, {**settings, **self.of_node.get(place.node, {}), "log.dirs": ",".join(folders)}
        )


def understood(given: Mapping[str, str]) -> tuple[dict[str, SettingValue], list[str]]:
    """Return the settings that replog has, by their types, and the names of the others."""
    found: dict[str, SettingValue] = {}
    without = []
    for name, text in given.items():
        stem, _, unit = name.rpartition(".")
        if unit in IN_MS and f"{stem}.ms" in DEFINITIONS:
            found[f"{stem}.ms"] = int(text) * IN_MS[unit]
        elif name not in DEFINITIONS:
            without.append(name)
        elif name not in OURS_ALONE:
            found[name] = typed(DEFINITIONS[name].type, text)
    return found, without


def typed(kind: ConfigType, text: str) -> SettingValue:
    """Return the value that a text means."""
    match kind:
        case ConfigType.BOOLEAN:
            return text.lower() == "true"
        case ConfigType.DOUBLE:
            return float(text)
        case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
            return int(text)
        case _:
            return text


def cluster_of(asked: Asked, folder: Path) -> tuple[SideBySide, list[str]]:
    """Return the cluster, not yet started, and the names of the settings that it lacks."""
    internal = min(asked.brokers, 3)
    settings, without = understood(asked.settings)
    of_node = {node: understood(given)[0] for node, given in asked.settings_of.items()}
    least: dict[str, SettingValue] = {
        "offsets.topic.replication.factor": internal,
        "offsets.topic.num.partitions": 5,
        "transaction.state.log.replication.factor": internal,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 5,
        "group.initial.rebalance.delay.ms": 0,
        "log.segment.delete.delay.ms": 1000,
        "eligible.leader.replicas.enable": asked.elr,
    }
    cluster = SideBySide(
        PerNode(of_node, asked.disks), folder, brokers=asked.brokers, controllers=0 if asked.combined else asked.controllers,
        settings=least | settings, first_broker=0, first_controller=FIRST_CONTROLLER,
    )  # fmt: skip
    return cluster, without


def serve(commands: TextIO, answers: TextIO) -> None:
    """Start what is asked for, do what is said, end it."""

    def say(facts: Facts) -> None:
        answers.write(msgspec.json.encode(facts).decode() + "\n")
        answers.flush()

    asked = msgspec.json.decode(commands.readline(), type=Asked)
    with tempfile.TemporaryDirectory(prefix="kafka-own-") as folder:
        cluster, without = cluster_of(asked, Path(folder))
        with cluster:
            try:
                cluster.up()
            except ClusterError as problem:
                say(Facts(problem=str(problem)))
                return
            here = Facts(
                bootstrap=cluster.bootstrap,
                controllers=cluster.bootstrap_controllers,
                cluster=CLUSTER_ID,
                without=without,
            )
            say(here)
            for line in commands:
                try:
                    obey(cluster, *line.split())
                except ClusterError as problem:
                    say(Facts(problem=str(problem)))
                else:
                    say(here)


def obey(cluster: SideBySide, verb: str, node: str) -> None:
    """Start or stop a node; return when the brokers that live are seen by each other."""
    number = int(node)
    if verb == "stop":
        cluster.stop(number)
    else:
        cluster.start(number)
    cluster.wait_serving(one for one in cluster.broker_ids if cluster.processes[one].poll() is None)


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
