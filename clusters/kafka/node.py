"""One node of Apache Kafka as a process of this machine: its command, its properties, its formatted directory.

What Kafka does not understand of our settings is left out: replog's own names, ELR (a feature of the format there), unclean
recovery (which Kafka does not have). What only costs memory or time in a small cluster is turned down.
"""

import asyncio
import base64
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from tribunal.clusters.api import ClusterError
from tribunal.clusters.nodes.node_process import PARENT_DEATH, POLL_MS, NodeProcess, answers, last_lines

# replog's names, or such as Kafka keeps elsewhere or does not have.
OURS_ALONE: Final = (
    "tribunal.",
    "leader.recovery",
    "eligible.leader.replicas.enable",
    "unclean.recovery.",
    "zookeeper.",
)
# Three brokers and three controllers have to fit beside a harness and a judge.
FRUGAL: Final[Mapping[str, Any]] = {
    "log.cleaner.dedupe.buffer.size": 2 << 20,  # else 128 MiB of the heap
    "num.network.threads": 2,
    "num.io.threads": 4,
    "background.threads": 4,
}
HEAP: Final = "256m"
JAVA: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true")
ELR_FEATURE: Final = "eligible.leader.replicas.version"
FORMAT_TIMEOUT_S: Final = 120
SERVING_TIMEOUT_MS: Final = 90_000  # a JVM on a machine that has other things to do
META_PROPERTIES: Final = "meta.properties"


class KafkaProcess(NodeProcess):
    """One life after another of one node: a JVM where replog's nodes are Python."""

    def __init__(
        self,
        node: int,
        role: str,
        config: Path,
        log: Path,
        endpoint: tuple[str, int],
        jars: Path,
        into: Callable[[], list[str]] = list,
    ) -> None:
        super().__init__(node, role, config, log, endpoint, into)
        self.before_start: Callable[[], None] = lambda: None
        self._jars = jars

    async def spawn(self) -> None:
        """Start the process; it may not serve yet."""
        assert not self.alive, f"node {self.node} runs already"
        self.before_start()
        self._ending = False
        command = [*self._into(), sys.executable, "-I", "-S", str(PARENT_DEATH), str(os.getpid())]
        command += java(self._jars, "kafka.Kafka", str(self.config.resolve()), heap=HEAP)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._watch = asyncio.create_task(self._wait_for_end(self._process), name=f"watch node {self.node}")

    async def serving(self) -> None:
        """Wait until the node answers requests; `ClusterError` with its last log lines if it does not."""
        deadline = asyncio.get_running_loop().time() + SERVING_TIMEOUT_MS / 1000
        while not await answers(self.endpoint, wait_ms=2_000):
            if self._process is None or self._process.returncode is not None:
                raise ClusterError(self.exit_reason(self._process.returncode if self._process else None))
            if asyncio.get_running_loop().time() > deadline:
                raise ClusterError(
                    f"node {self.node} (Apache Kafka, {self.role}) does not serve after {SERVING_TIMEOUT_MS} ms; "
                    f"its log {self.log} ends:\n{last_lines(self.log)}"
                )
            await asyncio.sleep(POLL_MS / 1000)


def java(jars: Path, *arguments: str, heap: str) -> list[str]:
    """Return the command that runs one of Kafka's classes, its program by its whole path: `parent_death.py` searches no PATH."""
    program = shutil.which("java")
    if program is None:
        raise ClusterError("no `java` on the path (17 or newer is needed)")
    logging = f"-Dlog4j2.configurationFile={jars / 'log4j2.properties'}"
    return [program, "-Xms64m", f"-Xmx{heap}", *JAVA, logging, "-cp", f"{jars}/*", *arguments]


def properties(settings: Mapping[str, Any]) -> str:
    """Return a server.properties with the settings that Kafka understands."""
    known = {name: value for name, value in settings.items() if not name.startswith(OURS_ALONE)}
    return "".join(f"{name}={_property(value)}\n" for name, value in known.items())


def _property(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def formatted_by_kafka(jars: Path, config: Path, cluster_id: str, *, elr: bool) -> None:
    """Let Kafka's own tool format the directory that a server.properties names; takes about two seconds."""
    feature = f"{ELR_FEATURE}={int(elr)}"
    command = java(
        jars,
        "kafka.tools.StorageTool",
        "format",
        "-t",
        cluster_id,
        "-c",
        str(config),
        "--feature",
        feature,
        heap="128m",
    )
    try:
        done = subprocess.run(  # noqa: S603 - our own command, no shell
            command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(f"Kafka's StorageTool does not format within {FORMAT_TIMEOUT_S} s") from None
    if done.returncode != 0:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise ClusterError(f"Kafka's StorageTool does not format: {said[-1] if said else done.returncode}")


def copy_formatted(template: Path, data: Path, node: int, directory_id: UUID) -> None:
    """Make a node's directory from one that Kafka's tool has formatted: the same, under its own name and id.

    A JVM less for every node and every wiped disk; nothing else in such a directory tells nodes apart.
    """
    shutil.copytree(template, data)
    text = (data / META_PROPERTIES).read_text()
    own = base64.urlsafe_b64encode(directory_id.bytes).decode().rstrip("=")
    text = re.sub(r"(?m)^node\.id=.*$", f"node.id={node}", text)
    (data / META_PROPERTIES).write_text(re.sub(r"(?m)^directory\.id=.*$", f"directory.id={own}", text))
