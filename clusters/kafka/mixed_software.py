"""Two systems on one cluster's nodes: some brokers are Apache Kafka, all other nodes are replog. Each node is one of them for good."""

from pathlib import Path
from typing import Final

from tribunal.clusters.kafka.software import KafkaSoftware
from tribunal.clusters.nodes.node_program import NodeProgram
from tribunal.clusters.nodes.node_software import BootOrder, NodeSoftware, ReplogSoftware
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.spec import Settings


class MixedSoftware:
    """What is installed on the nodes of both systems: each node is asked of the system that it runs."""

    stop_timeout_ms: Final = max(KafkaSoftware.stop_timeout_ms, ReplogSoftware.stop_timeout_ms)

    def __init__(self, run: RunContext, replog: ReplogSoftware, kafka: KafkaSoftware) -> None:
        self._spec = run.spec
        self._replog = replog
        self._kafka = kafka

    def _of(self, node: int) -> NodeSoftware:
        return self._kafka if node in self._spec.kafka else self._replog

    @property
    def boot_order(self) -> BootOrder:
        """Start as Apache Kafka's clusters do: the slower system says how long it may take."""
        return self._kafka.boot_order

    def program(self, node: int) -> NodeProgram:
        """Return what the node runs."""
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
