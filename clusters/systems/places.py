"""Where the nodes of a described system live: on loopback addresses, in network namespaces, in containers (`containers.py`), or on hosts (`on_hosts.py`).

A system that we did not write opens its connections itself, on any number of ports. So there are no relays: on loopback nothing
between its nodes can be hindered; in namespaces (10.213.0.N a node, 10.213.0.254 all clients together) every packet between them
crosses the hub, whose firewall stops it (`links.py`). The harness asks a node whether it is ready from within that node's own
namespace, past every cut.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from tribunal.clusters.api import CLIENTS, ClusterError, CutMode, Link, Proof, Unsupported
from tribunal.clusters.host_environment import HostedNode
from tribunal.clusters.links.addresses import FIRST_PORT, candidate_ports, taken_address
from tribunal.clusters.links.relays import connected, node_host
from tribunal.clusters.namespaces.firewall import Firewall
from tribunal.clusters.namespaces.network import address, device, lay_out
from tribunal.clusters.namespaces.spaces import Namespaces
from tribunal.clusters.nodes.node_process import NodeProcess
from tribunal.clusters.nodes.node_program import NodeProgram
from tribunal.clusters.nodes.serving import refuses
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.systems.commands import carried_out, ended_well
from tribunal.clusters.systems.description import Addresses, Elsewhere, System
from tribunal.clusters.systems.links import LocalProbes, SystemLinks
from tribunal.clusters.systems.ways import Streams, Ways

LAST_PORT: Final = 65_535
Fetching = Callable[[int, Path], Awaitable[None]]


class RunningNode(HostedNode, Protocol):
    """A node of a described system: `NodeProcess`, `NodeContainer`."""

    async def ends_by(self, asking: Coroutine[object, None, bool], timeout_ms: int) -> bool:
        """Expect it to end by what somebody else does; return whether that worked, and the end came in time."""

    async def exit_code(self) -> int | None:
        """Return how its last process ended, negative: by this signal; None: it runs, or nobody knows."""


class Cuts(Protocol):
    """What stops the packets between nodes: `SystemLinks`, or commands for whole nodes."""

    async def cut(self, links: Sequence[Link], mode: CutMode) -> Proof:
        """Stop them; proven."""

    async def heal(self, links: Sequence[Link]) -> Proof:
        """Let them pass again; proven."""


class Place(Protocol):
    """Where the nodes of one cluster live, and its clients."""

    @property
    def words(self) -> str:
        """Say it in a few words, for the run's header."""

    @property
    def links(self) -> Cuts:
        """What can be cut; `Unsupported` where nothing can."""

    @property
    def fetching(self) -> Fetching | None:
        """What brings a dead node's data folder, without indexes, into a folder here; None: data folders are here."""

    async def open(self, run: RunContext, system: System, folder: Path) -> Addresses:
        """Prepare it; return where everybody is."""

    def prefix(self, node: int) -> Sequence[str]:
        """Return the words in front of a command that is to run where this node is, or the clients."""

    async def connect(self, node: int, endpoint: tuple[str, int]) -> Streams:
        """Connect to a node past every cut."""

    async def reached(self, node: int, endpoint: tuple[str, int], *, past_cuts: bool) -> tuple[str, int]:
        """Return where this process finds a node's port: past every cut, or as clients do."""

    def node(
        self, run: RunContext, node: int, program: NodeProgram, addresses: Addresses, on_exit: Callable[[str], None]
    ) -> RunningNode:
        """Make a node that is not started yet."""

    async def carried_out(self, node: int, command: list[str], log: Path, run_dir: Path) -> bool:
        """Run a command where a node is, its output appended to the log; return whether it ended with 0."""

    async def looks(self, node: int, command: list[str]) -> bool:
        """Run a command there that only looks; return whether it ended with 0."""

    async def emptied(self, node: int, data: Path) -> tuple[int, bool]:
        """Empty a dead node's data folder; return how many bytes it had, and whether they are gone."""

    async def close(self) -> None:
        """Leave nothing behind."""


class PlacedProcess(NodeProcess):
    """A node's process that runs, and is reached, where its place says."""

    def __init__(
        self,
        run: RunContext,
        node: int,
        program: NodeProgram,
        endpoint: tuple[str, int],
        on_exit: Callable[[str], None],
        place: Place,
    ) -> None:
        super().__init__(
            node,
            program,
            run.folder(node),
            run.log_file(node),
            endpoint,
            on_exit,
            run.directory,
            lambda: place.prefix(node),
        )
        self._way = partial(place.connect, node, endpoint)
        self._where = endpoint

    async def _refuses(self) -> bool:
        return await refuses(self._where, connect=self._way)


class OnThisMachine:
    """What places have in common whose nodes are processes of this machine, started with words in front of their commands."""

    fetching: Fetching | None = None
    run_dir = Path()  # of the run that it was opened for

    def prefix(self, node: int) -> Sequence[str]:
        """Return the words in front of a command that is to run where this node is, or the clients."""
        return ()

    async def connect(self, node: int, endpoint: tuple[str, int]) -> Streams:
        """Connect as anybody does."""
        return await asyncio.open_connection(*endpoint)

    async def reached(self, node: int, endpoint: tuple[str, int], *, past_cuts: bool) -> tuple[str, int]:
        """Return the port itself: nothing is in the way."""
        return endpoint

    async def carried_out(self, node: int, command: list[str], log: Path, run_dir: Path) -> bool:
        """Run a command behind these words; it ends with the harness. Raises ClusterError."""
        return await carried_out(self.prefix(node), command, log, run_dir)

    async def looks(self, node: int, command: list[str]) -> bool:
        """Run it behind them; who gives up waiting has ended it."""
        return await ended_well([*self.prefix(node), *command], self.run_dir)

    async def emptied(self, node: int, data: Path) -> tuple[int, bool]:
        """Empty its data folder."""
        return await asyncio.to_thread(emptied_here, data)


def emptied_here(data: Path) -> tuple[int, bool]:
    """Empty a folder of this machine; return how many bytes it had, and whether they are gone."""
    before = sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
    try:
        shutil.rmtree(data)
    except OSError as problem:
        raise ClusterError(f"cannot empty {data}: {problem.strerror}: {problem.filename}") from None
    gone = not data.exists()
    data.mkdir()
    return before, gone


class OnLoopback(OnThisMachine):
    """Nodes on 127.0.1.N; clients are anywhere on this machine."""

    words = "processes on loopback addresses"

    @property
    def links(self) -> SystemLinks:
        """Refuse."""
        raise Unsupported("nodes on loopback addresses have no links of their own")

    async def open(self, run: RunContext, system: System, folder: Path) -> Addresses:
        """Choose ports that are free on all addresses: each name's port is the same on every node's own."""
        self.run_dir, nodes = run.directory, run.spec.broker_ids
        base, count = run.spec.base_port, len(system.nodes.ports)
        chosen: dict[str, int] = {}
        taken: str | None = None
        for port in candidate_ports(None) if base is None else range(base, base + count):
            if len(chosen) == count:
                break
            found = taken_address(nodes, port) if port <= LAST_PORT else f"{port} (the last one is {LAST_PORT})"
            taken = found or taken
            if found is None:
                chosen[system.nodes.ports[len(chosen)]] = port
        if len(chosen) < count:
            raise ClusterError(f"{system.name} needs {count} free ports on 127.0.1.N; this one cannot be had: {taken}")
        return addresses_of(run, folder, {node: node_host(node) for node in nodes}, chosen)

    def node(
        self, run: RunContext, node: int, program: NodeProgram, addresses: Addresses, on_exit: Callable[[str], None]
    ) -> RunningNode:
        """Make its process."""
        return PlacedProcess(run, node, program, addresses.endpoint(node), on_exit, self)

    async def close(self) -> None:
        """Have nothing open."""


class InNamespaces(OnThisMachine):
    """Nodes in network namespaces of their own, clients together in another; nothing of it needs root."""

    words = "processes in network namespaces"

    def __init__(self) -> None:
        self._spaces: Namespaces | None = None
        self._links: SystemLinks | None = None
        self._ways = Ways()

    @property
    def spaces(self) -> Namespaces:
        """The namespaces, once open."""
        assert self._spaces is not None
        return self._spaces

    @property
    def links(self) -> SystemLinks:
        """The links, once open."""
        assert self._links is not None
        return self._links

    async def open(self, run: RunContext, system: System, folder: Path) -> Addresses:
        """Make the namespaces and their network; every port in them is free."""
        self.run_dir, nodes = run.directory, run.spec.broker_ids
        # Not in a thread: the kernel ends the keeper with the thread that started it.
        self._spaces = Namespaces(run.directory)
        self._spaces.open()
        lay_out(self._spaces, [*nodes, CLIENTS])
        firewall = Firewall(self._spaces, address, device)
        firewall.open()
        first = run.spec.base_port or FIRST_PORT
        chosen = {name: first + number for number, name in enumerate(system.nodes.ports)}
        self._links = SystemLinks(LocalProbes(self._spaces), firewall, address, probe_port=first + len(chosen))
        await self._links.open([*nodes, CLIENTS])
        return addresses_of(run, folder, {node: address(node) for node in nodes}, chosen)

    def node(
        self, run: RunContext, node: int, program: NodeProgram, addresses: Addresses, on_exit: Callable[[str], None]
    ) -> RunningNode:
        """Make its process."""
        return PlacedProcess(run, node, program, addresses.endpoint(node), on_exit, self)

    def prefix(self, node: int) -> Sequence[str]:
        """Return what enters the node's namespace."""
        return self.spaces.command(str(node))

    async def connect(self, node: int, endpoint: tuple[str, int]) -> Streams:
        """Connect from within the node's own namespace."""
        return await self._connected(node, endpoint)

    async def _connected(self, source: int, endpoint: tuple[str, int]) -> Streams:
        sock = await connected(self.spaces.outgoing(str(source)), endpoint, bound_to=None)
        return await asyncio.open_connection(sock=sock)

    async def reached(self, node: int, endpoint: tuple[str, int], *, past_cuts: bool) -> tuple[str, int]:
        """Open a way into the network: from the node's own namespace, or from where clients are, over the hub and under its rules."""
        return await self._ways.opened(partial(self._connected, node if past_cuts else CLIENTS, endpoint))

    async def close(self) -> None:
        """End the keeper, and with it every namespace."""
        await self._ways.close()
        if self._links is not None:
            await self._links.close()
        if self._spaces is not None:
            await asyncio.to_thread(self._spaces.close)


NAMESPACES: Final = "namespaces"


def addresses_of(
    run: RunContext,
    folder: Path,
    hosts: Mapping[int, str],
    ports: Mapping[str, int],
    *,
    elsewhere: Mapping[int, Elsewhere] | None = None,
) -> Addresses:
    """Return where everybody is: the same ports on every node's own address."""
    return Addresses(
        folder=folder,
        hosts=hosts,
        ports=dict.fromkeys(hosts, ports),
        data={node: run.data_dir(node).resolve() for node in hosts},
        elsewhere=elsewhere or {},
    )
