"""Two systems on one cluster's nodes: some are Apache Kafka, all others replog. A node that is down may go over to the other system."""

import shutil
from pathlib import Path
from typing import Final

from tribunal.clusters.api import Proof
from tribunal.clusters.capabilities import SystemName
from tribunal.clusters.kafka.software import KafkaSoftware
from tribunal.clusters.nodes.leftovers import command_line
from tribunal.clusters.nodes.node_program import NodeProgram
from tribunal.clusters.nodes.node_software import BootOrder, NodeSoftware, ReplogSoftware
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.spec import Settings

REPLOG: Final = "replog"
APACHE_KAFKA: Final = "apache-kafka"


class MixedSoftware:
    """What is installed on the nodes of both systems: each node is asked of the system that it runs.

    kafka_nodes:  the nodes that run Apache Kafka, or do so from their next start on; others read it while it changes.
    """

    stop_timeout_ms: Final = max(KafkaSoftware.stop_timeout_ms, ReplogSoftware.stop_timeout_ms)

    def __init__(self, run: RunContext, replog: ReplogSoftware, kafka: KafkaSoftware) -> None:
        self._run = run
        self._replog = replog
        self._kafka = kafka
        self.kafka_nodes = set(run.spec.kafka)

    def _of(self, node: int) -> NodeSoftware:
        return self._kafka if node in self.kafka_nodes else self._replog

    @property
    def boot_order(self) -> BootOrder:
        """Start as Apache Kafka's clusters do: the slower system says how long it may take."""
        return self._kafka.boot_order

    def program(self, node: int) -> NodeProgram:
        """Return what the node runs: at each start the program of its system of that time."""
        return ProgramOfItsSystem(self, node)

    def program_now(self, node: int) -> NodeProgram:
        """Return the program of the node's present system."""
        return self._of(node).program(node)

    def config(self, node: int) -> Path:
        """Return server.properties of Apache Kafka, node.toml of replog."""
        return self._of(node).config(node)

    def configure(self, node: int, changes: Settings) -> None:
        """Write the node's configuration, with these settings different."""
        self._of(node).configure(node, changes)

    async def prepare_format(self) -> None:
        """Do for both systems what formatting needs once."""
        await self._replog.prepare_format()
        await self._kafka.prepare_format()

    def format(self, node: int) -> None:
        """Format the node's log directory as its own system does."""
        self._of(node).format(node)

    # --- from one system to the other -----------------------------------------------------

    def system_of(self, node: int) -> SystemName:
        """Return the system that a node runs, or runs from its next start on."""
        return APACHE_KAFKA if node in self.kafka_nodes else REPLOG

    def change_system(self, node: int, system: SystemName) -> Proof:
        """Let a node that is down run this system from its next start on, with the log directory as it is.

        Which of replog's writes are not synced, its journal for power failures says; it is true of nothing that another system
        writes, and goes. A later power failure takes what Apache Kafka has not flushed since its last recovery point.
        """
        former = self.system_of(node)
        if system == APACHE_KAFKA:
            self.kafka_nodes.add(node)
        else:
            self.kafka_nodes.discard(node)
        shutil.rmtree(self._run.folder(node) / "undo", ignore_errors=True)
        self.configure(node, {})
        return Proof(holds=former != system, facts={"former": former, "next": system})

    def runs_system(self, pid: int | None, system: SystemName) -> Proof:
        """Say whether a process is of that system, as its command line has it."""
        words = command_line(pid)
        own = "kafka.Kafka" if system == APACHE_KAFKA else "replog"
        return Proof(holds=own in words, facts={"pid": pid, "system": system})


class ProgramOfItsSystem:
    """One node's program, of the system that it runs now."""

    def __init__(self, software: MixedSoftware, node: int) -> None:
        self._software = software
        self._node = node

    @property
    def _program(self) -> NodeProgram:
        return self._software.program_now(self._node)

    @property
    def title(self) -> str:
        """What it is, for messages."""
        return self._program.title

    @property
    def serving_timeout_ms(self) -> int:
        """How long it may take from its start until it serves."""
        return self._program.serving_timeout_ms

    @property
    def answer_wait_ms(self) -> int:
        """How long one question whether it serves may take."""
        return self._program.answer_wait_ms

    def command(self, config: Path, *, python: str, java: str) -> list[str]:
        """Return its command line with its system's own configuration, wherever the one at first was."""
        return self._program.command(self._software.config(self._node), python=python, java=java)

    def needed_folders(self, command: list[str]) -> list[str]:
        """Return this machine's folders that the command needs beside the node's own."""
        return self._program.needed_folders(command)

    async def answers(self, endpoint: tuple[str, int], *, wait_ms: int) -> bool:
        """Return whether it serves at its address."""
        return await self._program.answers(endpoint, wait_ms=wait_ms)
