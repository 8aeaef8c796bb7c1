"""Where nodes live: as processes on loopback addresses or in namespaces, in containers, or on hosts of their own.

Everything else about them is the same: relays in the harness, events, disks, clocks.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tribunal.clusters.api import Proof
from tribunal.clusters.links.relays import Links
from tribunal.clusters.nodes.node_program import NodeProgram
from tribunal.clusters.run_context import RunContext


class HostedNode(Protocol):
    """One node, through all its starts and ends."""

    @property
    def pid(self) -> int | None:
        """Id of its process, or of its last one."""

    @property
    def is_here(self) -> bool:
        """Whether its process is one of this machine."""

    @property
    def alive(self) -> bool:
        """Whether it exists."""

    async def spawn(self) -> None:
        """Start it; it may not serve yet."""

    async def serving(self) -> None:
        """Wait until it answers; `ClusterError` with its last log lines if it does not."""

    async def kill(self) -> Proof:
        """Kill -9, proven; fine for one that is dead."""

    async def terminate(self, timeout_ms: int) -> bool:
        """Ask for an orderly end; return whether it came in time."""

    async def pause(self) -> Proof:
        """Stop its execution; proven."""

    async def resume(self) -> Proof:
        """Let it go on; proven."""


def processes_here(nodes: Mapping[int, HostedNode]) -> dict[int, int]:
    """Return the processes of this machine in which these nodes run now, by node."""
    return {name: one.pid for name, one in nodes.items() if one.is_here and one.alive and one.pid is not None}


class HostEnvironment(Protocol):
    """Where the nodes of one cluster live."""

    @property
    def mounts_while_running(self) -> bool:
        """Whether a running node sees what is mounted meanwhile."""

    @property
    def place(self) -> str:
        """Where the nodes live, in a few words for the run's header."""

    async def open(self, run: RunContext) -> Links:
        """Prepare addresses and open the relays."""

    def node(
        self, node: int, program: NodeProgram, config: Path, log: Path, on_exit: Callable[[str], None]
    ) -> HostedNode:
        """Return a node that is not started yet; `on_exit` gets the reason of an end that nobody asked for."""

    def listener(self, node: int) -> tuple[str, int]:
        """Return where the node itself is to listen, as it sees it."""

    def bind_host(self, node: int) -> str:
        """Return the address a node calls from; empty: its only one."""

    async def mounting(self, argv: Sequence[str]) -> str:
        """Run a command where the nodes' mounts are made; `ClusterError` with its complaint."""

    async def close(self) -> None:
        """Leave nothing behind."""
