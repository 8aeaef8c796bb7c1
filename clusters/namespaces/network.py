"""Local processes in network namespaces of their own: packets between nodes cross a real network that can be cut and slowed.

Every node has a namespace with one address, 10.213.0.N; the clients together have another. All of them hang on the hub,
a namespace that forwards packets, and that is where packets are dropped, refused, lost and held to a bandwidth
(`firewall.py`). None of it needs root (`spaces.py`).

The relays stay, because only something that reads frames can delay, drop, hold or double single messages, and because
clients live outside. A node reaches node M at 127.0.2.M as on plain loopback: in its own namespace a relay listens there,
whose other leg starts at the node's own address and crosses the hub, so that a packet that is dropped there is dropped
between these two nodes. For clients the same relay listens on the harness's 127.0.2.M. The harness itself looks at a node
through a bypass, 127.0.1.N, which leads into the node's namespace past every fault.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tribunal.clusters.api import CLIENTS, CutMode, Link
from tribunal.clusters.frame_rules import Rules
from tribunal.clusters.links.addresses import open_on_free_port
from tribunal.clusters.links.frames import Head
from tribunal.clusters.links.relay import Relay, Side, Traffic, Wires
from tribunal.clusters.links.relays import (
    LINK_NET,
    Links,
    LoopbackAddresses,
    RelayListener,
    connected,
    listener_at,
    node_host,
)
from tribunal.clusters.namespaces.firewall import Firewall
from tribunal.clusters.namespaces.spaces import Namespaces
from tribunal.clusters.nodes.node_process import NodeProcess
from tribunal.clusters.nodes.node_program import NodeProgram
from tribunal.clusters.run_context import RunContext

PLACE: Final = "processes in network namespaces"
NET: Final = "10.213.0."
HUB_ADDRESS: Final = "10.213.255.254"
CLIENTS_NUMBER: Final = 254
FORWARD: Final = "echo 1 > /proc/sys/net/ipv4/ip_forward && ip link set lo up && ip -batch -"


def address(node: int) -> str:
    """Return a node's address in its namespace; the clients', who are node 0."""
    return f"{NET}{CLIENTS_NUMBER if node == CLIENTS else node}"


def device(node: int) -> str:
    """Return the name of a node's link at the hub."""
    return f"v{node}"


def lay_out(spaces: Namespaces, nodes: Sequence[int]) -> None:
    """Make a namespace for each node, linked to the hub, which forwards."""
    at_hub = []
    for node in nodes:
        spaces.make(str(node))
        spaces.run(
            ["ip", "-batch", "-"],
            name=str(node),
            stdin=f"link set lo up\nlink add eth0 type veth peer name {device(node)} netns {spaces.anchor}\n"
            f"addr add {address(node)}/32 dev eth0\nlink set eth0 up\n"
            f"route add {HUB_ADDRESS}/32 dev eth0\nroute add default via {HUB_ADDRESS} dev eth0\n",
        )
        at_hub.append(
            f"addr add {HUB_ADDRESS}/32 dev {device(node)}\nlink set {device(node)} up\n"
            f"route add {address(node)}/32 dev {device(node)}\n"
        )
    spaces.run(["sh", "-c", FORWARD], stdin="".join(at_hub))


class NamespaceAddresses:
    """Addresses as on loopback, each namespace with a loopback of its own."""

    def __init__(self, ports: dict[int, int], spaces: Namespaces) -> None:
        self._loopback = LoopbackAddresses(ports)
        self._ports = ports
        self._spaces = spaces
        self._bypasses = Bypasses(self)

    def endpoint(self, node: int) -> tuple[str, int]:
        """Return the node's bypass, which leads the harness into its namespace."""
        return self._loopback.endpoint(node)

    def advertised(self, node: int) -> tuple[str, int]:
        """Return where the node's relay listens, in every namespace and outside."""
        return self._loopback.advertised(node)

    def caller(self, host: str) -> int:
        """Return which node calls from this address."""
        return self._loopback.caller(host)

    def listeners(self, node: int, links: Wires) -> Iterator[RelayListener]:
        """Return where a node's relay listens, outside and in each namespace, and the node's bypass."""
        yield from self._loopback.listeners(node, links)
        for caller in self._ports:
            yield RelayListener(links, self._spaces.listener(str(caller), *self.advertised(node)))
        yield listener_at(self._bypasses, self.endpoint(node))

    async def connect_relay(self, caller: int, target: int, far: Side, tls: ssl.SSLContext | None) -> None:
        """Connect from the caller's namespace, over the hub."""
        host = address(target)
        sock = await connected(self._spaces.outgoing(str(caller)), (host, self._ports[target]), bound_to=None)
        await asyncio.get_running_loop().create_connection(
            lambda: far, sock=sock, ssl=tls, server_hostname=host if tls else None
        )

    async def connect_as(self, source: int, endpoint: tuple[str, int]) -> socket.socket:
        """Connect from the node's own namespace; clients are outside."""
        if source == CLIENTS:
            return await self._loopback.connect_as(source, endpoint)
        return await connected(self._spaces.outgoing(str(source)), endpoint, bound_to=node_host(source))


class Bypasses:
    """Ways into the namespaces that no fault touches, for the harness alone (a `relay.Wires` that hinders nothing)."""

    def __init__(self, addresses: NamespaceAddresses) -> None:
        self.rules = Rules()
        self.relays: dict[Relay, None] = {}
        self._addresses = addresses
        self._traffic = Traffic()

    def cut_mode(self, link: Link) -> CutMode | None:
        """Never cut."""
        return None

    def is_shaped(self, link: Link) -> bool:
        """Never shaped."""
        return False

    def due_s(self, link: Link, size: int, now_s: float) -> float:
        """Come out at once."""
        return now_s

    def traffic(self, link: Link) -> Traffic:
        """Count everything together."""
        return self._traffic

    def caller(self, host: str) -> int:
        """Only the harness comes here."""
        return CLIENTS

    def note_message(self, head: Head) -> None:
        """Keep it to oneself: this is nobody's traffic."""

    def listener(self) -> None:
        """Listen to nobody."""

    async def connect(self, caller: int, target: int, far: Side) -> None:
        """Connect from within the node's own namespace."""
        await self._addresses.connect_relay(target, target, far, None)


class InNamespaces:
    """Runs nodes as processes in namespaces.

    routes_choose_source:  for nodes that cannot bind their outgoing side: the kernel gives it the node's own address.
    """

    mounts_while_running = True

    def __init__(self, place: str = PLACE, *, routes_choose_source: bool = False) -> None:
        self.place = place
        self._routes_choose_source = routes_choose_source
        self._spaces: Namespaces | None = None
        self._links = Links({})

    @property
    def spaces(self) -> Namespaces:
        """The namespaces, once open."""
        assert self._spaces is not None
        return self._spaces

    async def open(self, run: RunContext) -> Links:
        """Make the namespaces, their network and the relays."""
        # Not in a thread: the kernel ends the keeper with the thread that started it.
        spec, spaces = run.spec, Namespaces(run.directory)
        self._spaces = spaces
        spaces.open()
        lay_out(spaces, [*spec.node_ids, CLIENTS])
        firewall = Firewall(spaces, address, device)
        firewall.open()
        self._links = await open_on_free_port(
            spec,
            lambda ports: Links(
                ports,
                NamespaceAddresses(ports, spaces),
                firewall,
                on_message=run.requests.note,
                zookeeper_nodes=run.spec.ensemble_ids,
                tls=run.security,
            ),
        )
        if self._routes_choose_source:
            for node in spec.node_ids:
                spaces.run(source_route(node), name=str(node))
        return self._links

    def node(
        self, node: int, program: NodeProgram, config: Path, log: Path, on_exit: Callable[[str], None]
    ) -> NodeProcess:
        """Return a process that is not started yet."""
        endpoint = self._links.endpoint(node)
        return NodeProcess(
            node, program, config, log, endpoint, on_exit, self.spaces.run_dir, lambda: self.spaces.command(str(node))
        )

    def listener(self, node: int) -> tuple[str, int]:
        """Return where the node is to listen."""
        return address(node), self._links.ports[node]

    def bind_host(self, node: int) -> str:
        """Return the address that the node calls from: the relays of its namespace know it by that."""
        return node_host(node)

    async def mounting(self, argv: Sequence[str]) -> str:
        """Mount for the nodes alone."""
        return await self.spaces.run_aside(argv)

    async def close(self) -> None:
        """Close the relays; end the keeper, and with it every namespace."""
        await self._links.close()
        if self._spaces is not None:
            await asyncio.to_thread(self._spaces.close)


def source_route(node: int) -> list[str]:
    """Return the command by which the kernel of a node's namespace calls relays from the node's own address."""
    return ["ip", "route", "add", "local", f"{LINK_NET}0/24", *("dev", "lo", "src", node_host(node), "table", "local")]
