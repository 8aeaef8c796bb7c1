"""What parts the hosts of a described system (`hosts.toml` with `cuts = true`): nftables on each host, in a table of the run's own, for the run's ports alone.

A packet is stopped where it comes in at its target; clients are on this machine, whose firewall stays untouched: packets to them are stopped
where they leave. Everything else that a host does goes on, ssh too. The table's name stands in the node's folder before there is a table, so that
whoever sweeps up behind a killed harness finds it (`hosts_of_run.py`). Probes are connections that a host's sshd makes for us, to ports of small programs there.
"""

import asyncio
import shlex
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import Final

from tribunal.clusters.api import CLIENTS, ClusterError
from tribunal.clusters.links.relays import connected
from tribunal.clusters.namespaces.firewall import Cuts
from tribunal.clusters.nodes.hosts_of_run import CUTS, NOTE, HostsOfRun
from tribunal.clusters.nodes.ssh_hosts import Hosts
from tribunal.clusters.systems.container_links import BACKLOG, HOOKS, NodeFirewalls
from tribunal.clusters.systems.links import ProbePort, SystemLinks, Takes, peer_name

PROGRAM: Final = Path(__file__).with_name("probe_port.py")
ROOT: Final = "root"
OPEN_MS: Final = 10_000
POLL_MS: Final = 10
WITH_NFT: Final = "PATH=$PATH:/usr/sbin:/sbin"
CLIENT: Final = 'echo "${SSH_CONNECTION%% *}"'  # as whom the host sees this machine


def lacking(hosts: Hosts, nodes: Sequence[int]) -> str:
    """Return why nobody can stop packets between these hosts, as far as their file says; empty: somebody may."""
    if not hosts.cuts:
        return "nobody stops packets between its hosts: their file does not say cuts = true"
    for entry in (hosts.entry(node) for node in nodes):
        if entry.user != ROOT:
            return (
                f"nobody stops packets between its hosts: that takes root, and {entry.user} is asked on {entry.address}"
            )
        try:
            IPv4Address(entry.address)
        except AddressValueError:
            return f"nobody stops packets between its hosts: rules name IPv4 addresses, and {entry.address} is none"
    return ""


class OnHosts:
    """Runs programs of the hosts; implements `tribunal.clusters.namespaces.firewall.Places`."""

    def __init__(self, hosts: HostsOfRun) -> None:
        self._hosts = hosts

    def run(self, argv: Sequence[str], *, stdin: str = "", name: str = "hub") -> str:
        """Run one; return its output."""
        return self._hosts.shells[int(name)].run(f"{WITH_NFT} && exec {shlex.join(argv)}", stdin.encode()).decode()

    async def run_aside(self, argv: Sequence[str], *, stdin: str = "", name: str = "hub") -> str:
        """Run it without holding up the event loop."""
        return await self._hosts.in_thread(partial(self.run, argv, stdin=stdin, name=name))


class RemotePort:
    """A probe port on a host, as its program tells of it."""

    def __init__(self) -> None:
        self.taken: dict[tuple[str, int], int] = {}
        self.is_open = False
        self._loop = asyncio.get_running_loop()
        self._half = b""

    def said(self, data: bytes) -> None:
        """Take what it says; from a thread."""
        self._loop.call_soon_threadsafe(self._take, data)

    def _take(self, data: bytes) -> None:
        *lines, self._half = (self._half + data).split(b"\n")
        for line in lines:
            name, _, count = line.decode().partition(" ")
            if count:
                peer = peer_name(name)
                self.taken[peer] = self.taken.get(peer, 0) + int(count)
            else:
                self.is_open = True

    async def close(self) -> None:
        """Leave its end to that of everything in the node's folder."""


class HostProbes:
    """Probes between hosts, and from and to this machine; implements `tribunal.clusters.systems.links.Probes`."""

    def __init__(self, hosts: HostsOfRun) -> None:
        self._hosts = hosts

    async def listen(self, node: int, where: tuple[str, int]) -> Takes:
        """Begin the program on a host, or listen here."""
        if node == CLIENTS:
            here = ProbePort()
            try:
                await here.listen(_Here(), node, where)
            except OSError as problem:
                raise ClusterError(
                    f"hosts see this machine as {where[0]}, where it cannot listen at port {where[1]} ({problem.strerror}): links to clients"
                    " could not be proven to be cut; leave out cuts = true"
                ) from None
            return here
        port, shell, folder = RemotePort(), self._hosts.shells[node], shlex.quote(self._hosts.folder(node))
        await self._hosts.in_thread(shell.run, f"cat >{folder}/{PROGRAM.name}", PROGRAM.read_bytes())
        words = shlex.join([shell.entry.python, "-I", PROGRAM.name, where[0], str(where[1])])
        ended = self._hosts.begun(partial(shell.watched, f"cd {folder} && {NOTE} && exec {words} 2>>log", port.said))
        deadline = asyncio.get_running_loop().time() + OPEN_MS / 1000
        while not (port.is_open or ended.done() or asyncio.get_running_loop().time() >= deadline):  # noqa: ASYNC110 - its end comes from a thread
            await asyncio.sleep(POLL_MS / 1000)
        if not port.is_open:
            raise ClusterError(
                f"host {shell.entry.address} of node {node}: its probe port {where[1]} does not open; a host whose links are cut needs Python"
                f" ({shell.entry.python}); leave out cuts = true where it has none"
            )
        return port

    async def connected(self, source: int, endpoint: tuple[str, int]) -> socket.socket:
        """Let a host's sshd connect, or connect from here."""
        if source == CLIENTS:
            return await connected(socket.socket(), endpoint, bound_to=None)
        sock = await self._hosts.in_thread(self._hosts.shells[source].forwarded, endpoint)
        sock.settimeout(0)
        return sock


class _Here:
    """The network of this machine; implements `tribunal.clusters.systems.links.Networks`."""

    def outgoing(self, name: str) -> socket.socket:
        """Return a fresh TCP socket."""
        return socket.socket()

    def listener(self, name: str, host: str, port: int) -> socket.socket:
        """Return a socket that listens there; `OSError` when the address is taken."""
        return socket.create_server((host, port), backlog=BACKLOG)


async def opened(hosts: HostsOfRun, addresses: Mapping[int, str], ports: Sequence[int], probe_port: int) -> SystemLinks:
    """Have the rules on every host, and probe ports; they are for these ports alone, and that of the probes. Raises ClusterError."""
    seen = dict(zip(addresses, await asyncio.gather(*(_seen_from(hosts, node) for node in addresses)), strict=True))
    own = {}
    for node in addresses:
        known = {**addresses, CLIENTS: seen[node]}
        table = f"tribunal_{hosts.mark}_{node}"
        note = f"echo {table} >{shlex.quote(hosts.folder(node))}/{CUTS}"
        await hosts.in_thread(hosts.shells[node].run, note)
        own[node] = Cuts(
            OnHosts(hosts), known.__getitem__, at=str(node), hooks=HOOKS, table=table, ports=(*ports, probe_port)
        )
        try:
            await hosts.in_thread(own[node].open)
        except ClusterError as problem:
            raise ClusterError(
                f"{problem}; links between hosts are cut by nft, as root: leave out cuts = true"
            ) from None
    here = {CLIENTS: next(iter(seen.values()))}
    links = SystemLinks(HostProbes(hosts), NodeFirewalls(own), {**addresses, **here}.__getitem__, probe_port=probe_port)
    await links.open([*addresses, CLIENTS])
    return links


async def _seen_from(hosts: HostsOfRun, node: int) -> str:
    """Return the address by which a node's host sees this machine. Raises ClusterError."""
    said = (await hosts.in_thread(hosts.shells[node].run, CLIENT)).decode().strip()
    try:
        return str(IPv4Address(said))
    except AddressValueError:
        where = hosts.hosts.entry(node).address
        raise ClusterError(
            f"host {where} of node {node} sees this machine as {said!r}: rules name IPv4 addresses; leave out cuts = true"
        ) from None
