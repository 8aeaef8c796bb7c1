"""What parts the containers of a described system: nftables in the network of each node.

A node's network belongs to a container of its own that does nothing, so it stays when the node is killed, and with it the rules and the
probe port. A packet is stopped where it comes in at its target; clients are on this machine, whose own network stays untouched: packets
to them are stopped where they leave. All of it ends with the containers. Entering their networks takes root.
"""

import asyncio
import functools
import os
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tribunal.clusters.api import CLIENTS, ClusterError, CutMode, Link
from tribunal.clusters.endings import all_done
from tribunal.clusters.namespaces.firewall import Cuts
from tribunal.clusters.namespaces.spaces import environment, way_in
from tribunal.clusters.nodes.node_container import socket_in

HOOKS: Final = ("input", "output")
BACKLOG: Final = 64


def lacking() -> str:
    """Return why nobody can stop packets between containers here; empty: somebody can."""
    if os.geteuid() != 0:
        return "entering the networks of its containers takes root"
    found = way_in()  # the same programs, really tried
    return found if isinstance(found, str) else ""


class ContainerNetworks:
    """The nodes' networks, each by a process that lives in it now; clients are in this machine's own.

    They are kept open: the number of a process that has ended may be anybody's, and so may its network.
    """

    def __init__(self, pids: Mapping[int, int]) -> None:
        self._spaces: dict[str, int] = {}
        try:
            for node, pid in pids.items():
                self._spaces[str(node)] = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as problem:
            self.close()
            raise ClusterError(f"what keeps a container's network has ended: {problem.strerror}") from None

    def close(self) -> None:
        """Let go of them; safe twice."""
        spaces, self._spaces = self._spaces, {}
        for space in spaces.values():
            os.close(space)

    def outgoing(self, name: str) -> socket.socket:
        """Return a fresh TCP socket of that network."""
        return socket.socket() if name == str(CLIENTS) else socket_in(self._spaces[name])

    def listener(self, name: str, host: str, port: int) -> socket.socket:
        """Return a socket that listens there; `OSError` when the address is taken."""
        made = self.outgoing(name)
        # A run before had the same address of this machine, and its last connections are not forgotten yet.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, port))
            made.listen(BACKLOG)
        except OSError:
            made.close()
            raise
        return made

    def run(self, argv: Sequence[str], *, stdin: str = "", name: str = "hub") -> str:
        """Run a program of this machine in a node's network; return its output, `ClusterError` with what it complained of."""
        space = self._spaces[name]
        command = ["nsenter", f"--net=/proc/self/fd/{space}", "--", *argv]
        done = subprocess.run(  # noqa: S603 - our own words
            command, input=stdin, capture_output=True, text=True, check=False, env=environment(), pass_fds=[space]
        )
        if done.returncode != 0:
            raise ClusterError(f"{' '.join(argv[:4])}: {' '.join((done.stderr or done.stdout).split())[:300]}")
        return done.stdout

    async def run_aside(self, argv: Sequence[str], *, stdin: str = "", name: str = "hub") -> str:
        """Run it without holding up the event loop."""
        return await asyncio.to_thread(functools.partial(self.run, argv, stdin=stdin, name=name))


class NodeFirewalls:
    """The rules in all nodes' networks; a `links.packet_filter.CutFilter`. A cut of several links begins node by node, within some milliseconds."""

    name = "nftables"

    def __init__(self, own: Mapping[int, Cuts]) -> None:
        """`own`: the rules of each node's network, clients have none."""
        self._own = own

    def open(self) -> None:
        """Put the empty rules in place."""
        for cuts in self._own.values():
            cuts.open()

    def stops(self, mode: CutMode) -> bool:
        """Lose no bytes for good: TCP would send them again."""
        return mode is not CutMode.DROP

    def is_cut(self, link: Link) -> bool:
        """Return whether the link's packets are stopped."""
        return self._own[_stopped_at(link)].is_cut(link)

    async def cut(self, links: Sequence[Link], mode: CutMode) -> None:
        """Stop packets of these links from now on."""
        await asyncio.gather(*(self._own[node].cut(own, mode) for node, own in _by_node(links).items()))

    async def mend(self, links: Sequence[Link]) -> None:
        """Let packets pass again."""
        await all_done(self._own[node].mend(own) for node, own in _by_node(links).items())

    async def stopped(self, links: Sequence[Link]) -> dict[str, int]:
        """Return how many packets of these links were stopped since they were cut."""
        counted = await asyncio.gather(*(self._own[node].stopped(own) for node, own in _by_node(links).items()))
        return {link: packets for counts in counted for link, packets in counts.items()}


def in_containers(networks: ContainerNetworks, addresses: Mapping[int, str]) -> NodeFirewalls:
    """Return the rules in the networks of containers."""
    nodes = [node for node in addresses if node != CLIENTS]
    return NodeFirewalls({node: Cuts(networks, addresses.__getitem__, at=str(node), hooks=HOOKS) for node in nodes})


def _stopped_at(link: Link) -> int:
    return link.source if link.target == CLIENTS else link.target


def _by_node(links: Iterable[Link]) -> dict[int, list[Link]]:
    found: dict[int, list[Link]] = {}
    for link in links:
        found.setdefault(_stopped_at(link), []).append(link)
    return found
