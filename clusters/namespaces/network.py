"""Local processes in network namespaces of their own: packets between nodes cross a real network that can be hurt.

Every node has a namespace with one address, 10.213.0.N; the clients together have another. All of them hang on the hub,
a namespace that forwards packets, and that is where packets are dropped, refused, lost and held to a bandwidth
(`firewall.py`). None of it needs root (`spaces.py`).

The relays stay, because only something that reads frames can delay, drop, hold or double single messages, and because
clients live outside. A node reaches node M at 127.0.2.M as on plain loopback: in its own namespace a relay listens there,
whose other leg starts at the node's own address and crosses the hub, so that a packet that is dropped there is dropped
between these two nodes. For clients the same relay listens on the harness's 127.0.2.M. The harness itself looks at a node
through a side door, 127.0.1.N, which leads into the node's namespace past every fault.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tribunal.clusters.api import CLIENTS, CutMode, Link
from tribunal.clusters.capabilities import Shape
from tribunal.clusters.links.addresses import open_on_free_port
from tribunal.clusters.links.frames import Head, Rule
from tribunal.clusters.links.probing import ProbeAnswer
from tribunal.clusters.links.relay import Relay, Side, Traffic
from tribunal.clusters.links.relays import LINK_NET, Links, LoopbackAddresses, node_host
from tribunal.clusters.namespaces.firewall import Firewall
from tribunal.clusters.namespaces.spaces import Namespaces
from tribunal.clusters.nodes.node_process import NodeProcess
from tribunal.clusters.nodes.node_program import NodeProgram
from tribunal.clusters.spec import ClusterSpec

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


class NamespaceAddresses(LoopbackAddresses):
    """Addresses as on loopback, each namespace with a loopback of its own."""

    def __init__(self, ports: dict[int, int], spaces: Namespaces) -> None:
        super().__init__(ports)
        self._spaces = spaces

    def relay_source(self, node: int) -> tuple[str, int] | None:
        """Leave it to the system: a namespace has one address."""
        return None

    async def connect_as(self, source: int, endpoint: tuple[str, int]) -> socket.socket:
        """Connect from the node's own namespace; clients are outside."""
        if source == CLIENTS:
            return await super().connect_as(source, endpoint)
        return await connected(self._spaces.outgoing(str(source)), endpoint, bound_to=node_host(source))


async def connected(sock: socket.socket, endpoint: tuple[str, int], *, bound_to: str | None = None) -> socket.socket:
    """Connect a socket; it is closed when that cannot be."""
    try:
        if bound_to is not None:
            sock.bind((bound_to, 0))
        await asyncio.get_running_loop().sock_connect(sock, endpoint)
    except BaseException:
        sock.close()
        raise
    return sock


class SideDoors:
    """Ways into the namespaces that no fault touches, for the harness alone (a `relay.Wires` that hinders nothing)."""

    def __init__(self, links: "NamespaceLinks") -> None:
        self.rules: list[Rule] = []
        self.relays: dict[Relay, None] = {}
        self._links = links
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

    def told(self, head: Head) -> None:
        """Keep it to oneself: this is nobody's traffic."""

    async def connect(self, caller: int, target: int, far: Side) -> None:
        """Connect from within the node's own namespace."""
        await self._links.connect_from(target, target, far)


class NamespaceLinks(Links):
    """Links whose packets the kernel carries, and stops."""

    def __init__(self, ports: dict[int, int], spaces: Namespaces, firewall: Firewall) -> None:
        super().__init__(ports, NamespaceAddresses(ports, spaces))
        self._spaces = spaces
        self._firewall = firewall
        self._doors = SideDoors(self)
        self._seen: dict[str, int] = {}  # packets that the last cut was seen to stop

    async def open(self) -> None:
        """Listen for all nodes, in every namespace and outside, and open the side doors."""
        await super().open()
        loop = asyncio.get_running_loop()
        try:
            for node in self.ports:
                host, port = self.endpoint(node)
                server = await loop.create_server(lambda node=node: Relay(self._doors, node).near, host, port)  # type: ignore[misc]
                self._servers.append(server)
        except OSError:
            await self.close()
            raise

    def doors(self, node: int) -> Iterable[dict[str, Any]]:
        """Return where a node's relay listens: outside, and in each namespace."""
        yield from super().doors(node)
        for caller in self.ports:
            yield {"sock": self._spaces.listener(str(caller), *self.advertised(node))}

    async def connect(self, caller: int, target: int, far: Side) -> None:
        """Connect a relay's far side to its node, from the caller's namespace over the hub."""
        await self.connect_from(caller, target, far)

    async def connect_from(self, space: int, target: int, far: Side) -> None:
        """Connect to a node from this namespace."""
        sock = await connected(self._spaces.outgoing(str(space)), (address(target), self.ports[target]))
        await asyncio.get_running_loop().create_connection(lambda: far, sock=sock)

    async def close(self) -> None:
        """Stop listening and end every connection."""
        await super().close()
        for relay in list(self._doors.relays):
            relay.reset()

    # --- cuts ------------------------------------------------------------------------------

    async def sever(self, links: Sequence[Link], mode: CutMode) -> None:
        """Stop packets; bytes that are to be lost for good are the relay's: TCP would send them again."""
        if mode is CutMode.DROP:
            await super().sever(links, mode)
            return
        await self._firewall.cut(links, mode)
        if mode is CutMode.RESET:
            touched = frozenset(links)
            for relay in list(self.relays):
                if relay.is_over(touched):
                    relay.reset()

    async def tally(self, links: Sequence[Link]) -> dict[str, int]:
        """Return what cuts of these links have stopped: packets, or bytes where the relay did it."""
        packets = await self._firewall.stopped([link for link in links if self._firewall.is_cut(link)])
        return {**packets, **(await super().tally([link for link in links if link in self.cuts]))}

    async def mend(self, links: Sequence[Link]) -> None:
        """Undo cuts of both kinds."""
        await self._firewall.mend(links)
        await super().mend([link for link in links if link in self.cuts])

    async def stopped(self, links: Sequence[Link], answers: Sequence[ProbeAnswer]) -> dict[Link, bool]:
        """Tell for each probe whether it was silenced, and the firewall has seen packets of that pair."""
        by_kernel = [link for link in links if self._firewall.is_cut(link)]
        self._seen = await self._firewall.stopped(by_kernel)
        found = await super().stopped(links, [answer for answer in answers if not self._is_kernels(answer.link)])
        for answer in answers:
            if self._is_kernels(answer.link):
                pair = (answer.link, Link(answer.link.target, answer.link.source))
                found[answer.link] = answer.answered == 0 and any(self._seen.get(str(link), 0) for link in pair)
        return found

    def _is_kernels(self, link: Link) -> bool:
        return any(map(self._firewall.is_cut, (link, Link(link.target, link.source))))

    def witness(self) -> dict[str, object]:
        """Return the packets that the firewall has stopped."""
        return {"by": "nftables", "stopped_packets": self._seen} if self._seen else {"by": "relay"}

    def is_hindered(self, link: Link) -> bool:
        """Tell whether what leaves the relay for this link does not arrive for now."""
        return self._firewall.is_cut(link) or super().is_hindered(link)

    # --- shapes ----------------------------------------------------------------------------

    async def set_shape(self, links: Sequence[Link], shape: Shape) -> None:
        """Delay in the relay, which is precise to 1 ms; lose packets and hold to a bandwidth in the kernel."""
        await super().set_shape(links, Shape(delay_ms=shape.delay_ms, jitter_ms=shape.jitter_ms))
        await self._firewall.set_loss(links, shape.loss)
        await self._firewall.set_bandwidth(links, shape.bytes_per_s, device)

    async def losses(self, links: Sequence[Link]) -> int:
        """Return how many packets were lost."""
        return await self._firewall.lost()


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

    async def open(self, spec: ClusterSpec, directory: Path) -> Links:
        """Make the namespaces, their network and the relays."""
        # Not in a thread: the kernel ends the keeper with the thread that started it.
        spaces = self._spaces = Namespaces(directory)
        spaces.open()
        lay_out(spaces, [*spec.node_ids, CLIENTS])
        firewall = Firewall(spaces, address)
        firewall.open()
        self._links = await open_on_free_port(spec, lambda ports: NamespaceLinks(ports, spaces, firewall))
        if self._routes_choose_source:
            for node in spec.node_ids:
                spaces.run(source_route(node), name=str(node))
        return self._links

    def node(
        self, node: int, program: NodeProgram, config: Path, log: Path, on_exit: Callable[[str], None]
    ) -> NodeProcess:
        """Return a process that is not started yet."""
        endpoint = self._links.endpoint(node)
        return NodeProcess(node, program, config, log, endpoint, on_exit, lambda: self.spaces.command(str(node)))

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
