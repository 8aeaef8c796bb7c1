"""What the harness sees of a described system beside its processes, and the clients it gives the workloads: of objects, or of a log (`kafka_view.py`)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from tribunal.clusters.api import (
    BrokerState,
    ClientFactory,
    ClusterState,
    DumpedLog,
    MetadataEntry,
    NodeEvent,
)
from tribunal.clusters.nodes.node_events import NodeEvents, seen_by_harness
from tribunal.clusters.orders import OrderSeen
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.systems.clients import SystemClients
from tribunal.clusters.systems.description import Addresses, Client


class View(Protocol):
    """What is known of the nodes of one cluster."""

    @property
    def state(self) -> ClusterState:
        """Which nodes are in service, and what else is known."""

    @property
    def clients(self) -> ClientFactory:
        """Who calls, or writes and reads."""

    @property
    def events(self) -> NodeEvents:
        """Starts and ends of nodes."""

    def start(self) -> None:
        """Look from now on: no node has begun yet."""

    def looked(self, node: int, incarnation: str, *, is_ready: bool) -> None:
        """Take note whether a node was ready when it was last asked, and as which process."""

    def has_role(self, role: str, nodes: frozenset[int]) -> None:
        """Take note which nodes said that they have a role."""

    def failures(self) -> list[str]:
        """Return why what was seen is not enough to judge by."""

    def drain_metadata(self) -> list[MetadataEntry]:
        """Return committed metadata records since the last call."""

    def drain_orders(self) -> list[OrderSeen]:
        """Return what was ordered as an operator does since the last call."""

    def final_logs(self) -> Iterator[DumpedLog]:
        """Read every replica's log, once the nodes are down."""

    async def close(self) -> None:
        """Look no more, and end every client."""


class SeenEvents:
    """Starts and ends of nodes that report nothing themselves; implements `NodeEvents`."""

    def __init__(self, run: RunContext) -> None:
        self._now_ns = run.clock.now_ns
        self._seen: list[NodeEvent] = []

    def starting(self, node: int) -> None:
        """Take note that a node is about to be started."""
        self._seen.append(seen_by_harness(node, "start", self._now_ns()))

    def stopped(self, node: int) -> None:
        """Take note that a node ended in good order, as it was asked to."""
        self._seen.append(seen_by_harness(node, "stop", self._now_ns()))

    def killed(self, node: int, pid: int | None) -> None:
        """Take note that a node was killed."""
        self._seen.append(seen_by_harness(node, "killed", self._now_ns(), pid=pid))

    def exited(self, node: int, reason: str) -> None:
        """Take note that a node ended without being asked to."""
        self._seen.append(seen_by_harness(node, "exit", self._now_ns(), reason=reason))

    def drain(self) -> list[NodeEvent]:
        """Return what came since the last call."""
        seen, self._seen = self._seen, []
        return seen


class ObjectView:
    """A system whose clients call operations on objects: in service is who is ready. Implements `View`."""

    def __init__(
        self,
        run: RunContext,
        name: str,
        client: Client,
        addresses: Addresses,
        prefix: Sequence[str],
        run_dir: Path,
        *,
        keys: str = "",
    ) -> None:
        self.state = ClusterState()
        self.clients = SystemClients(name, client, addresses, run_dir, prefix, keys=keys)
        self.events = SeenEvents(run)

    def start(self) -> None:
        """Need nothing: nodes are asked whether they are ready."""

    def looked(self, node: int, incarnation: str, *, is_ready: bool) -> None:
        """Count who is not ready as fenced."""
        self.state.brokers[node] = BrokerState(broker_epoch=0, incarnation=incarnation, fenced=not is_ready)

    def has_role(self, role: str, nodes: frozenset[int]) -> None:
        """Know of nobody else."""
        self.state.roles[role] = nodes

    def failures(self) -> list[str]:
        """Return none."""
        return []

    def drain_metadata(self) -> list[MetadataEntry]:
        """Return none: there is no metadata log."""
        return []

    def drain_orders(self) -> list[OrderSeen]:
        """Return none: nobody operates it."""
        return []

    def final_logs(self) -> Iterator[DumpedLog]:
        """Read none: nobody knows its files."""
        return iter(())

    async def close(self) -> None:
        """End every client, also those that nobody closed."""
        await self.clients.close()
