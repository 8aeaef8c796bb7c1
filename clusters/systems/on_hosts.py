"""Nodes of a described system on hosts reached over ssh (`hosts.toml`): any daemon, on a host that has `sh`.

Each node has a folder on its host, with its data and, where a command of nodes names {folder}, what lies beside system.toml. Clients are on
this machine and reach the nodes by their addresses. Everything in the folders is gone after the run but the nodes' logs, which are fetched, and the data of a log that speaks Kafka's protocol.
"""

import asyncio
import shlex
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tribunal.clusters.api import ClusterError, Unsupported
from tribunal.clusters.links.addresses import FIRST_PORT
from tribunal.clusters.nodes.hosts_of_run import NOTE, HostsOfRun
from tribunal.clusters.nodes.node_program import NodeProgram
from tribunal.clusters.nodes.remote_files import unpack
from tribunal.clusters.nodes.remote_node import RemoteNode
from tribunal.clusters.nodes.ssh_hosts import read_hosts
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.systems.description import Addresses, Elsewhere, System
from tribunal.clusters.systems.host_links import lacking, opened
from tribunal.clusters.systems.links import SystemLinks
from tribunal.clusters.systems.packing import as_it_is, packed
from tribunal.clusters.systems.places import Fetching, RunningNode
from tribunal.clusters.systems.ways import Streams, Ways

LOOK_S: Final = 6  # a look that hangs ends on its host; longer than anybody waits for it (`program.py`)
ENVIRONMENT: Final = {"PYTHONUNBUFFERED": "1"}
DATA: Final = "data"
DESCRIBED: Final = "described"
# Bytes that are there, one number a line; and what is left after they were removed.
SIZES: Final = "find data -type f -exec stat -c %s {} +"
WIPE: Final = "rm -rf data && mkdir data"
PACK: Final = "tar -cf - --exclude='*.*index' -C data ."  # indexes may take as much room as everything else


class OnSshHosts:
    """A place; implements `tribunal.clusters.systems.places.Place`."""

    words = "processes on hosts over ssh"

    def __init__(self, hosts: Path) -> None:
        self._file = hosts
        self._hosts = HostsOfRun()
        self._run: RunContext | None = None
        self._links: SystemLinks | None = None
        self._ways = Ways()

    @property
    def fetching(self) -> Fetching | None:
        """What brings a dead node's data folder here."""
        return self._fetch_data

    @property
    def links(self) -> SystemLinks:
        """The links, once open; refuse where the hosts' file does not let anybody cut them."""
        if self._links is None:
            raise Unsupported(lacking(self._hosts.hosts, [*self._hosts.shells]))
        return self._links

    async def open(self, run: RunContext, system: System, folder: Path) -> Addresses:
        """Connect to each host, and make the node's folder there."""
        self._run, nodes = run, run.spec.broker_ids
        await self._hosts.open(run.directory, read_hosts(self._file), nodes)
        beside = await asyncio.to_thread(packed, folder, run.directory, as_it_is) if system.names_folder else b""
        await asyncio.gather(*(self._hosts.in_thread(self._furnish, node, beside) for node in nodes))
        first = run.spec.base_port or FIRST_PORT
        ports = {name: first + number for number, name in enumerate(system.nodes.ports)}
        entries = {node: self._hosts.hosts.entry(node) for node in nodes}
        folders = {node: Path(self._hosts.folder(node)) for node in nodes}
        if not lacking(self._hosts.hosts, nodes):
            addresses = {node: entry.address for node, entry in entries.items()}
            self._links = await opened(self._hosts, addresses, [*ports.values()], first + len(ports))
        return Addresses(
            folder=folder,
            hosts={node: entry.address for node, entry in entries.items()},
            ports=dict.fromkeys(nodes, ports),
            data={node: own / DATA for node, own in folders.items()},
            elsewhere={
                node: Elsewhere(python=entry.python, folder=folders[node] / DESCRIBED)
                for node, entry in entries.items()
            },
        )

    def _furnish(self, node: int, beside: bytes) -> None:
        folder = shlex.quote(self._hosts.folder(node))
        self._hosts.shells[node].run(f"mkdir -p {folder}/{DATA} {folder}/{DESCRIBED}")
        if beside:
            self._hosts.shells[node].run(f"tar -xf - -C {folder}/{DESCRIBED}", beside)

    def prefix(self, node: int) -> Sequence[str]:
        """Need none: clients are on this machine."""
        return ()

    async def connect(self, node: int, endpoint: tuple[str, int]) -> Streams:
        """Connect as clients do; where that may be cut, let the host connect to itself."""
        if self._links is None:
            return await asyncio.open_connection(*endpoint)
        sock = await self._hosts.in_thread(self._hosts.shells[node].forwarded, endpoint)
        sock.settimeout(0)
        return await asyncio.open_connection(sock=sock)

    async def reached(self, node: int, endpoint: tuple[str, int], *, past_cuts: bool) -> tuple[str, int]:
        """Return the port itself; where that may be cut, past cuts a way through the node's own host."""
        if not past_cuts or self._links is None:
            return endpoint
        return await self._ways.opened(partial(self.connect, node, endpoint))

    def node(
        self, run: RunContext, node: int, program: NodeProgram, addresses: Addresses, on_exit: Callable[[str], None]
    ) -> RunningNode:
        """Make its daemon."""
        endpoint = addresses.endpoint(node)
        return RemoteNode(
            node, program, self._hosts, endpoint, on_exit, ENVIRONMENT, partial(self.connect, node, endpoint)
        )

    async def carried_out(self, node: int, command: list[str], log: Path, run_dir: Path) -> bool:
        """Run a command in the node's folder; it is ended with the run. Raises ClusterError."""
        code, said, complaint = await self._tried(node, f"{NOTE} && exec {shlex.join(command)}")
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            file.write(said + complaint.encode())
        return code == 0

    async def looks(self, node: int, command: list[str]) -> bool:
        """Run it there, and end it there where it hangs."""
        try:
            code, _, _ = await self._tried(node, f"exec timeout -s KILL {LOOK_S} {shlex.join(command)}")
        except ClusterError:
            return False  # the host has hung up
        return code == 0

    async def emptied(self, node: int, data: Path) -> tuple[int, bool]:
        """Empty its data folder."""
        _, sizes, _ = await self._tried(node, SIZES)
        code, _, _ = await self._tried(node, f'{WIPE} && [ -z "$(ls -A data)" ]')
        return sum(map(int, sizes.split())), code == 0

    async def _tried(self, node: int, command: str) -> tuple[int, bytes, str]:
        shell, folder = self._hosts.shells[node], shlex.quote(self._hosts.folder(node))
        return await self._hosts.in_thread(shell.tried, f"cd {folder} && {command}")

    async def close(self) -> None:
        """Fetch the logs, and leave nothing on the hosts."""
        await self._ways.close()
        if self._links is not None:
            await self._links.close()
        reached = [node for node, shell in self._hosts.shells.items() if shell.is_open]
        try:
            await asyncio.gather(*map(self._fetch, reached))
        finally:
            await self._hosts.close()

    async def _fetch_data(self, node: int, copy: Path) -> None:
        """Bring a dead node's data folder here. Raises ClusterError."""
        code, content, complaint = await self._tried(node, PACK)
        if code != 0:
            where = self._hosts.hosts.entry(node).address
            raise ClusterError(f"node {node}: its files cannot be fetched from {where}: {complaint}")
        await asyncio.to_thread(_unpacked, content, copy)

    async def _fetch(self, node: int) -> None:
        assert self._run is not None
        log = self._run.log_file(node)
        code, said, _ = await self._tried(node, "cat log")
        if code == 0:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_bytes(said)


def _unpacked(content: bytes, folder: Path) -> None:
    """Unpack an archive into a folder that has nothing else in it then."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    unpack(content, folder)
