"""A simulated network: machines, directed links between them, and connections that behave like TCP.

A *link* is one direction between two machines: latency, jitter, bandwidth, loss (which TCP shows as delay), and
whether it is cut. A cut link loses every segment that would arrive; the sender's kernel sends it again with TCP's
back-off, so that after a long cut the first sign of the other side comes late. A cut in one direction also stops the other
after one retransmission time-out, because acknowledgements are missing, and no connection can be made either way.

Machines that lose power fall silent: no FIN leaves them. Once they are up again, they answer what belongs to a
connection of the time before with a reset. A killed process leaves its kernel alive, which closes its connections.

Connections themselves are in `transport.py`, faults by Kafka API in `frames.py`.
"""

import errno
from asyncio import BaseProtocol, BaseTransport
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from random import Random
from typing import Final

from replog.ports import Peering
from tribunal.clusters.api import CutMode
from tribunal.clusters.simulated.frames import NetworkFrames
from tribunal.clusters.simulated.loop import SimulatedLoop
from tribunal.clusters.simulated.process import NS_PER_S, MonotonicClock, Process
from tribunal.clusters.simulated.transport import SimulatedTransport

FIRST_EPHEMERAL_PORT: Final = 40_000
SYN_TIMEOUTS_NS: Final = tuple(NS_PER_S * 2**n for n in range(7))  # Linux, tcp_syn_retries = 6: 127 s in all
WILDCARDS: Final = ("", "0.0.0.0", "::")  # noqa: S104  # compared with, not bound
LOOPBACK_LATENCY_NS: Final = 10_000


class Link:
    """One direction between two machines."""

    def __init__(self, random: Random, *, latency_ns: int, jitter_ns: int) -> None:
        self.latency_ns = latency_ns
        self.jitter_ns = jitter_ns
        self.tail_share = 0.001  # how many segments take up to 50 times the jitter
        self.loss_share = 0.0
        self.ns_per_kib = 1_000
        self.cut: CutMode | None = None
        self._unhindered = (latency_ns, jitter_ns, self.ns_per_kib)
        self._random = random

    def hinder(self, *, delay_ns: int, jitter_ns: int, loss_share: float, ns_per_kib: int) -> None:
        """Be slower, lossier, narrower than by nature; all zero: as by nature."""
        latency_ns, own_jitter_ns, own_ns_per_kib = self._unhindered
        self.latency_ns = latency_ns + delay_ns
        self.jitter_ns = own_jitter_ns + jitter_ns
        self.loss_share = loss_share
        self.ns_per_kib = max(ns_per_kib, own_ns_per_kib)

    def delay_ns(self, size_bytes: int) -> int:
        """Draw how long a segment is under way, retransmissions of lost copies included."""
        chance = self._random.random()
        delay_ns = self.latency_ns + int(self.jitter_ns * chance) + (size_bytes * self.ns_per_kib >> 10)
        if chance < self.tail_share:
            delay_ns += int(50 * self.jitter_ns * self._random.random())
        if self.loss_share:
            timeout_ns = SimulatedTransport.FIRST_TIMEOUT_NS
            while self._random.random() < self.loss_share:
                delay_ns += timeout_ns
                timeout_ns *= 2
        return delay_ns


class Listener:
    """A bound port; implements `replog.ports.Listener`."""

    def __init__(self, host: "Host", port: int, factory: Callable[[], BaseProtocol], process: Process) -> None:
        self.port = port
        self.factory = factory
        self.process = process
        self.context: Context = copy_context()
        self._host = host

    def close(self) -> None:
        """Stop accepting."""
        if self._host.listeners.get(self.port) is self:
            del self._host.listeners[self.port]


class Host:
    """A machine as the network sees it: address, ports, kernel."""

    def __init__(self, *, rank: int, name: str, address: str, kernel: Process) -> None:
        self.rank = rank
        self.name = name
        self.address = address
        self.kernel = kernel
        self.up = True
        self.boot = 0
        self.listeners: dict[int, Listener] = {}
        self.transports: dict[int, SimulatedTransport] = {}
        self._next_port = FIRST_EPHEMERAL_PORT

    def ephemeral_port(self) -> int:
        """Return a port nobody uses."""
        self._next_port += 1
        return self._next_port

    def close_sockets_of(self, process: Process) -> None:
        """Do what a kernel does for a dead process: unbind its ports, close its connections."""
        self.listeners = {port: one for port, one in self.listeners.items() if one.process is not process}
        for transport in list(self.transports.values()):
            if transport.process is process:
                transport.kernel_close()

    def power_fail(self) -> None:
        """Forget everything and fall silent."""
        self.up = False
        self.boot += 1
        self.listeners.clear()
        self.transports.clear()

    def power_on(self) -> None:
        """Answer again."""
        self.up = True


class SimulatedNetwork:
    """All machines and links of a simulation."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.latency_ns = 200_000
        self.jitter_ns = 300_000
        self.hosts: list[Host] = []
        self.message_count = 0
        self.byte_count = 0
        self.frames = NetworkFrames(loop)
        self._by_address: dict[str, Host] = {}
        self._links: dict[tuple[int, int], Link] = {}
        self._connections = 0

    def add_host(self, name: str, address: str, rank: int) -> Host:
        """Connect a machine to all others."""
        kernel = self.loop.new_process(f"kernel of {name}", rank=rank, clock=MonotonicClock())
        host = Host(rank=rank, name=name, address=address, kernel=kernel)
        self.hosts.append(host)
        self._by_address[name] = self._by_address[address] = host
        return host

    def resolve(self, address: str) -> Host:
        """Return the machine of this name or address; `OSError` when there is none."""
        try:
            return self._by_address[address]
        except KeyError:
            raise OSError(errno.EADDRNOTAVAIL, f"no machine {address!r} in the simulation") from None

    def link(self, source: Host, target: Host) -> Link:
        """Return the direction from one machine to another."""
        key = (source.rank, target.rank)
        link = self._links.get(key)
        if link is None:
            near = source is target
            link = self._links[key] = Link(
                self.loop.random(f"network/{source.name}->{target.name}"),
                latency_ns=LOOPBACK_LATENCY_NS if near else self.latency_ns,
                jitter_ns=LOOPBACK_LATENCY_NS if near else self.jitter_ns,
            )
        return link

    # faults

    def cut(self, pairs: Iterable[tuple[Host, Host]], mode: CutMode) -> None:
        """Cut directions between machines."""
        for source, target in pairs:
            self.loop.note("cut", source.rank, target.rank)
            self.link(source, target).cut = mode
            if mode is CutMode.RESET:
                self.reset(source, target)

    def heal(self, pairs: Iterable[tuple[Host, Host]]) -> None:
        """Undo cuts; what the senders' kernels kept goes out when their timers fire."""
        for source, target in pairs:
            self.loop.note("heal", source.rank, target.rank)
            self.link(source, target).cut = None
            for transport in _between(source, target):
                if transport.lost_for_good:
                    transport.reset_both()

    def reset(self, one: Host, other: Host) -> int:
        """Reset every connection between two machines; both ends see it at once. Return how many ends there were."""
        ends = _between(one, other) + _between(other, one)
        for transport in ends:
            transport.reset_both()
        return len(ends)

    def half_open(self, source: Host, target: Host) -> int:
        """Let the target forget its connections with the source, which goes on taking them for open."""
        open_ends = [transport for transport in _between(source, target) if not transport.is_half_open]
        for transport in open_ends:
            transport.peer.vanish()
        return len(open_ends)

    def close_half_open(self, source: Host, target: Host) -> int:
        """Reset the ends that are still open; return how many there were."""
        open_ends = [transport for transport in _between(source, target) if transport.is_half_open]
        for transport in open_ends:
            transport.reset_both()
        return len(open_ends)

    # connections

    def listen(self, host: Host, process: Process, address: str, port: int, factory: "Factory") -> Listener:
        """Bind a port of a machine for a process."""
        if address not in (*WILDCARDS, host.name, host.address):
            raise OSError(errno.EADDRNOTAVAIL, f"Cannot assign requested address: {address!r} on {host.name}")
        port = port or host.ephemeral_port()
        if port in host.listeners:
            raise OSError(errno.EADDRINUSE, f"Address already in use: {host.address}:{port}")
        listener = host.listeners[port] = Listener(host, port, factory, process)
        return listener

    async def connect(
        self, host: Host, process: Process, address: str, port: int, factory: "Factory"
    ) -> tuple[BaseTransport, BaseProtocol]:
        """Shake hands as TCP does: SYN again with doubled time-outs while nothing answers."""
        loop, target = self.loop, self.resolve(address)
        out, back = self.link(host, target), self.link(target, host)
        for timeout_ns in SYN_TIMEOUTS_NS:
            if CutMode.RESET in (out.cut, back.cut):
                raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed ({address!r}, {port})")
            there_ns, return_ns = out.delay_ns(0), back.delay_ns(0)
            await loop.sleep_ns(there_ns)
            if out.cut is None and back.cut is None and target.up:
                if port not in target.listeners:
                    await loop.sleep_ns(return_ns)
                    raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed ({address!r}, {port})")
                transport = self._establish(host, process, target.listeners[port], target)
                try:
                    await loop.sleep_ns(return_ns)
                except BaseException:
                    transport.abort()
                    raise
                return transport, transport.open(factory)
            await loop.sleep_ns(timeout_ns)
        raise TimeoutError(errno.ETIMEDOUT, f"Connect call failed ({address!r}, {port})")

    def _establish(self, host: Host, process: Process, listener: Listener, target: Host) -> SimulatedTransport:
        """Make both ends; the server's process learns of its end when it runs."""
        self._connections += 2
        local_port = host.ephemeral_port()
        near = SimulatedTransport(self, host, process, copy_context(), number=self._connections, port=local_port)
        far = SimulatedTransport(
            self, target, listener.process, listener.context.copy(), number=self._connections + 1, port=listener.port
        )
        near.join(far, is_client=True)
        far.join(near, is_client=False)
        self.loop.note("connect", host.rank, target.rank, listener.port)
        self.loop.run_soon(far.process, far.context, far.open, listener.factory)
        return near


class ProcessNetwork:
    """The network as one process uses it; implements `replog.ports.Network`."""

    def __init__(self, network: SimulatedNetwork, host: Host, process: Process) -> None:
        self._network = network
        self._host = host
        self._process = process

    async def listen(self, host: str, port: int, factory: "Factory", *, tls: bool = False) -> Listener:
        """Accept connections on the machine's own address; nobody listens in, so that TLS makes no difference."""
        return self._network.listen(self._host, self._process, host, port, factory)

    async def connect(
        self, host: str, port: int, factory: "Factory", *, tls: bool = False
    ) -> tuple[BaseTransport, BaseProtocol]:
        """Open a connection from the machine's own address."""
        return await self._network.connect(self._host, self._process, host, port, factory)

    def peering(self, transport: BaseTransport) -> Peering | None:
        """Say nothing: nobody here leaves a connection that is not read."""
        return None

    def address_of(self, name: str) -> str:
        """Return the address of a machine."""
        return self._network.resolve(name).address


Factory = Callable[[], BaseProtocol]


def _between(source: Host, target: Host) -> list[SimulatedTransport]:
    """Return the ends at `source` of connections to `target`, oldest first."""
    return [transport for transport in source.transports.values() if transport.peer.host is target]
