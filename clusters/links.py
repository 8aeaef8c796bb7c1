"""The links between nodes as something that can be cut: a TCP relay in user space, one a node.

Node N lives on 127.0.1.N and advertises its relay on 127.0.2.N, same port. Nodes bind their outgoing sockets
to their own address too, so the relay of the called node knows the caller by its source address; any other
source is a client (CONTRACT, "Where nodes live on loopback"). That gives every directed pair of nodes, and
clients against each node, without privileges. The bytes of one link flow over two kinds of connection: those
that its source opened (requests) and those that its target opened (answers).

A TCP stream cannot lose bytes in its middle. A cut that holds therefore does what a dead cable does: it stops
reading, so that the bytes wait in the senders' kernels, and a connection opened meanwhile goes nowhere; after
the heal everything is delivered, late, as by retransmission. A cut that drops reads and discards, and resets at
the heal each connection that lost something. A new connection needs both directions, as a handshake does.

Proof is by probe: a connection from the source's own address that is opened before the cut and asks the target
for its API versions. What the relay did with these very bytes is counted, and the answer is read.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Final, cast

import msgspec

from clusters.api import CLIENTS, CutMode, Link, Proof

NODE_NET: Final = "127.0.1."
LINK_NET: Final = "127.0.2."
CLIENT_HOST: Final = "127.0.0.1"
PROBE_COUNT: Final = 3
PROBE_WAIT_MS: Final = 1500
HELD_BYTES_MAX: Final = 65_536  # a connection; then its sender's kernel has to keep them
SILENCE_MS: Final = 120  # how long a probe on a cut link is given to prove the cut wrong
# ApiVersions version 0, correlation id 7, client id "probe": every Kafka-like node answers it.
PROBE_REQUEST: Final = struct.pack(">ihhih5s", 15, 18, 0, 7, 5, b"probe")


def node_host(node: int) -> str:
    """Return the address a node binds and calls from."""
    return f"{NODE_NET}{node}"


def link_host(node: int) -> str:
    """Return the address of a node's relay, which it advertises."""
    return f"{LINK_NET}{node}"


def caller_of(host: str) -> int:
    """Return which node calls from this address, CLIENTS for any other."""
    return int(host.removeprefix(NODE_NET)) if host.startswith(NODE_NET) else CLIENTS


class Traffic(msgspec.Struct):
    """What passed over one link, and what a cut stopped."""

    delivered_bytes: int = 0
    stopped_bytes: int = 0
    connections: int = 0
    stopped_connections: int = 0
    resets: int = 0


class _Side(asyncio.Protocol):
    """One of the two sockets of a relayed connection."""

    def __init__(self, relay: "_Relay") -> None:
        self.relay = relay
        self.transport: asyncio.Transport | None = None
        self.choked = False  # the socket on the other side takes no more for now
        self.ended = False
        self.failed = False
        self.held: list[bytes] = []  # read here, not yet passed on
        self.delivered_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # (uvloop's transports are no subclasses of asyncio's.)
        self.transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.relay.opened(self)

    def data_received(self, data: bytes) -> None:
        self.relay.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self.failed = exc is not None
        self.relay.settle()

    def pause_writing(self) -> None:
        self.relay.other(self).choked = True
        self.relay.settle()

    def resume_writing(self) -> None:
        self.relay.other(self).choked = False
        self.relay.settle()

    def write(self, data: bytes) -> None:
        """Send towards this side's node, unless it has gone."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)


class _Relay:
    """One connection from a caller through the target's relay to the target."""

    def __init__(self, links: "Links", target: int) -> None:
        self.links = links
        self.near = _Side(self)  # towards the caller
        self.far = _Side(self)  # towards the target
        self.target = target
        self.caller = CLIENTS
        self.peer = ("", 0)
        self.torn = False  # lost bytes for good: useless after the heal
        self.closed = False
        self.connecting: asyncio.Task[None] | None = None

    def other(self, side: _Side) -> _Side:
        return self.far if side is self.near else self.near

    def link(self, side: _Side) -> Link:
        """Return the link over which bytes read from this side travel."""
        return Link(self.caller, self.target) if side is self.near else Link(self.target, self.caller)

    def mode(self, side: _Side) -> CutMode | None:
        return self.links.cuts.get(self.link(side))

    def opened(self, side: _Side) -> None:
        if self.closed:
            assert side.transport is not None
            side.transport.abort()
        elif side is self.near:
            assert side.transport is not None
            self.peer = side.transport.get_extra_info("peername")[:2]
            self.caller = caller_of(self.peer[0])
            self.links.relays[self.peer] = self
            traffic = self.links.traffic(self.link(side))
            traffic.connections += 1
            traffic.stopped_connections += self.mode(side) is not None
        self.settle()

    def settle(self) -> None:
        """Bring both sockets into the state that the cuts ask for; called after every change."""
        if self.closed:
            return
        modes = (self.mode(self.near), self.mode(self.far))
        if CutMode.RESET in modes or (self.torn and modes == (None, None)):
            self.reset()
        elif self.far.transport is None:
            self._settle_unconnected(cut=modes != (None, None))
        else:
            for side in (self.near, self.far):
                self._settle_side(side)

    def _settle_unconnected(self, *, cut: bool) -> None:
        if self.near.ended:
            self.reset()
            return
        if not cut and self.connecting is None:
            self.connecting = asyncio.ensure_future(self._connect())
        self._read_or_wait(self.near)

    def _settle_side(self, side: _Side) -> None:
        if self.closed:
            return
        if self.mode(side) is None:
            waiting, side.held = side.held, []
            for data in waiting:
                self._deliver(side, data)
            # The end of a stream travels like its bytes: behind those that waited, and not over a cut.
            if side.ended:
                (self.reset if side.failed else self.close)()
                return
        if self.near.ended and self.far.ended:
            self._forget()
            return
        self._read_or_wait(side)

    def _read_or_wait(self, side: _Side) -> None:
        if side.transport is None or side.ended or side.transport.is_closing():
            return
        full = sum(map(len, side.held)) >= HELD_BYTES_MAX
        (side.transport.pause_reading if side.choked or full else side.transport.resume_reading)()

    async def _connect(self) -> None:
        host, port = self.links.endpoint(self.target)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: self.far, host, port, local_addr=(link_host(self.target), 0)
            )
        except OSError:
            self.reset()  # nobody listens there: the caller learns it as a reset
        finally:
            self.connecting = None

    def received(self, side: _Side, data: bytes) -> None:
        mode = self.mode(side)
        if mode is None and self.far.transport is not None:
            self._deliver(side, data)
            return
        if mode is not None:
            self.links.traffic(self.link(side)).stopped_bytes += len(data)
        if mode is CutMode.DROP:
            self.torn = True
        else:
            side.held.append(bytes(data))
            self._read_or_wait(side)

    def _deliver(self, side: _Side, data: bytes) -> None:
        self.links.traffic(self.link(side)).delivered_bytes += len(data)
        side.delivered_bytes += len(data)
        self.other(side).write(data)

    def close(self) -> None:
        """End both sockets after what was written has left."""
        self._forget()
        for side in (self.near, self.far):
            if side.transport is not None:
                side.transport.close()

    def reset(self) -> None:
        """End both sockets at once."""
        self._forget()
        for side in (self.near, self.far):
            if side.transport is None or side.ended:
                continue
            sock = side.transport.get_extra_info("socket")
            if sock is not None:
                with contextlib.suppress(OSError):  # already gone
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            side.transport.abort()
            self.links.traffic(self.link(side)).resets += 1

    def _forget(self) -> None:
        self.closed = True
        if self.connecting is not None and self.connecting is not asyncio.current_task():
            self.connecting.cancel()
        self.links.relays.pop(self.peer, None)


class ProbeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the probe packets of one link."""

    link: Link
    sent: int
    delivered: int  # requests that the relay passed on, by its counters
    answered: int

    def facts(self) -> dict[str, object]:
        """Return it for the recording."""
        return {"link": str(self.link), "sent": self.sent, "delivered": self.delivered, "answered": self.answered}


class _Channel:
    """A connection from a node's own address to another node's relay, kept open for probing."""

    def __init__(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.link = link
        self.reader = reader
        self.writer = writer

    async def ask(self, relay: _Relay | None, count: int, wait_ms: int) -> ProbeAnswer:
        """Send probe packets; tell how many passed the relay and how many answers came back."""
        before = relay.near.delivered_bytes if relay else 0
        answered = 0
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            self.writer.write(PROBE_REQUEST * count)
            await self.writer.drain()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    while answered < count:
                        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
                        await self.reader.readexactly(length)
                        answered += 1
        after = relay.near.delivered_bytes if relay else 0
        return ProbeAnswer(
            link=self.link, sent=count, delivered=(after - before) // len(PROBE_REQUEST), answered=answered
        )

    def close(self) -> None:
        self.writer.transport.abort()


class Links:
    """All relays of one cluster, and the cuts in force."""

    def __init__(self, ports: dict[int, int]) -> None:
        self.ports = ports
        self.cuts: dict[Link, CutMode] = {}
        self.relays: dict[tuple[str, int], _Relay] = {}
        self._traffic: dict[Link, Traffic] = {}
        self._servers: list[asyncio.Server] = []

    def endpoint(self, node: int) -> tuple[str, int]:
        """Return where the node itself listens."""
        return node_host(node), self.ports[node]

    def advertised(self, node: int) -> tuple[str, int]:
        """Return where the node's relay listens."""
        return link_host(node), self.ports[node]

    def traffic(self, link: Link) -> Traffic:
        """Return the link's counters."""
        found = self._traffic.get(link)
        if found is None:
            found = self._traffic[link] = Traffic()
        return found

    async def open(self) -> None:
        """Listen for all nodes; `OSError` when an address is taken, with nothing left open."""
        loop = asyncio.get_running_loop()
        try:
            for node in self.ports:
                host, port = self.advertised(node)
                server = await loop.create_server(lambda node=node: _Relay(self, node).near, host, port)  # type: ignore[misc]
                self._servers.append(server)
        except OSError:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop listening and end every connection."""
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        self.cuts.clear()
        for relay in list(self.relays.values()):
            relay.reset()
        await asyncio.sleep(0)

    async def cut(self, links: Sequence[Link], mode: CutMode) -> Proof:
        """Cut links; the proof has probes that passed before and do not any more."""
        channels = await self._channels(links)
        try:
            before = await self._ask(channels, PROBE_WAIT_MS)
            self.cuts |= dict.fromkeys(links, mode)
            self._settle_all(links)
            after = await self._ask(channels, SILENCE_MS)
        finally:
            for channel in channels:
                channel.close()
        passed_before = bool(before) and all(answer.answered == answer.sent for answer in before)
        return Proof(
            holds=passed_before and all(self._stopped(answer) for answer in after),
            facts={
                "mode": mode.value,
                "cut": [str(link) for link in links],
                "probes_before": [answer.facts() for answer in before],
                "probes_after": [answer.facts() for answer in after],
            },
        )

    def _stopped(self, answer: ProbeAnswer) -> bool:
        """Tell whether the probe met the cut that it should have met."""
        return answer.answered == 0 and (answer.delivered == 0 or answer.link not in self.cuts)

    async def heal(self, links: Sequence[Link]) -> Proof:
        """Undo cuts; the proof has fresh probes that are answered."""
        stopped = {str(link): self.traffic(link).stopped_bytes for link in links}
        for link in links:
            self.cuts.pop(link, None)
        self._settle_all(links)
        channels = await self._channels(links)
        try:
            after = await self._ask(channels, PROBE_WAIT_MS)
        finally:
            for channel in channels:
                channel.close()
        return Proof(
            holds=bool(after) and all(answer.answered == answer.sent for answer in after),
            facts={"stopped_bytes": stopped, "probes_after": [answer.facts() for answer in after]},
        )

    def _settle_all(self, links: Iterable[Link]) -> None:
        touched = frozenset(links)
        for relay in list(self.relays.values()):
            if relay.link(relay.near) in touched or relay.link(relay.far) in touched:
                relay.settle()

    async def _channels(self, links: Sequence[Link]) -> list[_Channel]:
        """Open one probing connection a pair: a link to clients is probed by the answers of its opposite."""
        wanted = dict.fromkeys(link if link.target != CLIENTS else Link(CLIENTS, link.source) for link in links)
        found: list[_Channel] = []
        for link in wanted:
            host = CLIENT_HOST if link.source == CLIENTS else node_host(link.source)
            with contextlib.suppress(OSError):  # then no probe speaks for this link, and the proof lacks it
                reader, writer = await asyncio.open_connection(*self.advertised(link.target), local_addr=(host, 0))
                found.append(_Channel(link, reader, writer))
        return found

    async def _ask(self, channels: Sequence[_Channel], wait_ms: int) -> list[ProbeAnswer]:
        questions = []
        for channel in channels:
            address = channel.writer.get_extra_info("sockname")
            questions.append(channel.ask(self.relays.get(address[:2]), PROBE_COUNT, wait_ms))
        return list(await asyncio.gather(*questions))
