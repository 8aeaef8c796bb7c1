"""One node of Apache Kafka as a process of this machine: its command, its properties, its formatted directory.

What Kafka does not understand of our settings is left out: replog's own names, ELR (a feature of the format there), unclean
recovery (which Kafka does not have). What only costs memory or time in a small cluster is turned down.
"""

import base64
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from replog.types import METADATA_TOPIC
from tribunal.clusters.api import ClusterError
from tribunal.clusters.kafka.jars import logging_option
from tribunal.clusters.kafka.releases import Release
from tribunal.clusters.nodes.serving import answers
from tribunal.clusters.spec import Settings, SettingValue

# replog's names, or such as Kafka keeps elsewhere or does not have.
OURS_ALONE: Final = (
    "tribunal.",
    "leader.recovery",
    "eligible.leader.replicas.enable",
    "unclean.recovery.",
)
ZOOKEEPER_SETTINGS: Final = "zookeeper."
ZOOKEEPER_CONNECT: Final = "zookeeper.connect"
# Three brokers and three controllers have to fit beside a harness and a judge.
FRUGAL: Final[Settings] = {
    "log.cleaner.dedupe.buffer.size": 2 << 20,  # else 128 MiB of the heap
    "num.network.threads": 2,
    "num.io.threads": 4,
    "background.threads": 4,
}
HEAP: Final = "256m"
JAVA: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true")
ELR_FEATURE: Final = "eligible.leader.replicas.version"
FORMAT_TIMEOUT_S: Final = 120
# A JVM on a machine that has other things to do: at a load of 30 on two cores one took more than 90 s. Who waits looks whether it still runs.
SERVING_TIMEOUT_MS: Final = 180_000
META_PROPERTIES: Final = "meta.properties"
METADATA_FOLDER: Final = f"{METADATA_TOPIC}-0"


class KafkaProgram:
    """A broker or a controller of Apache Kafka: a JVM where replog's nodes are Python."""

    serving_timeout_ms = SERVING_TIMEOUT_MS
    answer_wait_ms = 2_000

    def __init__(self, role: str, release: Release, jars: Path, java: str) -> None:
        self._role = role
        self.install(release, jars, java)

    def install(self, release: Release, jars: Path, java: str) -> None:
        """Be another release from the next start on."""
        self.release = release
        self.title = f"Apache Kafka {release.name}, {self._role}"
        self._jars = jars
        self._java = java

    def command(self, config: Path, *, python: str, java: str) -> list[str]:
        """Return the command of a node, by the Java that this release runs on."""
        return java_command(self._java, self._jars, "kafka.Kafka", str(config.resolve()), heap=HEAP)

    def needed_folders(self, command: list[str]) -> list[str]:
        """Return where the jars and Java are."""
        return [str(self._jars), str(Path(self._java).resolve().parent.parent)]

    async def answers(self, endpoint: tuple[str, int], *, wait_ms: int) -> bool:
        """Ask for its API versions."""
        return await answers(endpoint, wait_ms=wait_ms)


def java_command(program: str, jars: Path, *arguments: str, heap: str) -> list[str]:
    """Return the command that runs one of Kafka's classes."""
    return [program, "-Xms64m", f"-Xmx{heap}", *JAVA, logging_option(jars), "-cp", f"{jars}/*", *arguments]


def properties(settings: Settings) -> str:
    """Return a server.properties with the settings that Kafka understands."""
    foreign = OURS_ALONE if ZOOKEEPER_CONNECT in settings else (*OURS_ALONE, ZOOKEEPER_SETTINGS)
    known = {name: value for name, value in settings.items() if not name.startswith(foreign)}
    return "".join(f"{name}={property_text(value)}\n" for name, value in known.items())


def property_text(value: SettingValue) -> str:
    """Return a value as Kafka's files have it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float | str) else ",".join(value)


def formatted_by_kafka(command: Sequence[str]) -> None:
    """Let Kafka's own tool format a directory (`formatting_command`); takes about two seconds."""
    try:
        done = subprocess.run(  # noqa: S603 - our own command, no shell
            command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(f"Kafka's StorageTool does not format within {FORMAT_TIMEOUT_S} s") from None
    if done.returncode != 0:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise ClusterError(f"Kafka's StorageTool does not format: {said[-1] if said else done.returncode}")


def formatting_command(
    program: str,
    jars: Path,
    config: Path,
    cluster_id: str,
    *,
    release: Release,
    elr: bool,
    voters: Sequence[str] = (),
    begins_as: Release | None = None,
) -> list[str]:
    """Return the command that formats the directory which a server.properties names; only a release with ELR knows a feature of that name.

    voters:     of a quorum whose voters can be changed, the first ones; `voter` says how. None: the configuration names them.
    begins_as:  with which release's metadata.version the cluster begins; None: with the newest that this one knows.
    """
    features = ("--feature", f"{ELR_FEATURE}={int(elr)}") if release.has_elr else ()
    first = ("--initial-controllers", ",".join(voters)) if voters else ()
    level = () if begins_as is None else ("--release-version", begins_as.metadata_version_name)
    where = ("-t", cluster_id, "-c", str(config))
    return java_command(
        program, jars, "kafka.tools.StorageTool", "format", *where, *level, *features, *first, heap="128m"
    )


def voter(node: int, endpoint: tuple[str, int], directory_id: UUID) -> str:
    """Return a voter as Kafka's tool takes it: a vote belongs to a directory (KIP-853)."""
    return f"{node}@{endpoint[0]}:{endpoint[1]}:{id_text(directory_id)}"


def id_text(value: UUID) -> str:
    """Return an id as Kafka writes it."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def copy_formatted(template: Path, data: Path, node: int, directory_id: UUID, *, votes: bool) -> None:
    """Make a node's directory from one that Kafka's tool has formatted: the same, under its own name and id.

    A JVM less for every node and every wiped disk. What else tells nodes apart is only the snapshot with the first voters of a quorum whose voters can
    be changed: whoever is none of them has to learn who votes from the others (`--no-initial-controllers`).
    """
    shutil.copytree(template, data, ignore=None if votes else shutil.ignore_patterns(METADATA_FOLDER))
    text = (data / META_PROPERTIES).read_text()
    own = id_text(directory_id)
    text = re.sub(r"(?m)^node\.id=.*$", f"node.id={node}", text)
    (data / META_PROPERTIES).write_text(re.sub(r"(?m)^directory\.id=.*$", f"directory.id={own}", text))
