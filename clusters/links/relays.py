"""The links between nodes as something that can be cut: a TCP relay in user space, one a node.

Node N lives on 127.0.1.N and advertises its relay on 127.0.2.N, same port. Nodes bind their outgoing sockets
to their own address too, so the relay of the called node knows the caller by its source address; any other
source is a client (docs/contract.md, "Where nodes live on loopback"). That gives every directed pair of nodes, and
clients against each node, without privileges. The bytes of one link flow over two kinds of connection: those
that its source opened (requests) and those that its target opened (answers).

A TCP stream cannot lose bytes in its middle. A cut that holds therefore does what a dead cable does: it stops
reading, so that the bytes wait in the senders' kernels, and a connection opened meanwhile goes nowhere; after
the heal everything is delivered, late, as by retransmission. A cut that drops reads and discards, and resets at
the heal each connection that lost something. A new connection needs both directions, as a handshake does.

Proof is by probe: a connection from the source's own address that is opened before the cut and asks the target
for its API versions. What the relay did with these very bytes is counted, and the answer is read.

Where nodes have addresses of their own (containers, namespaces, hosts), `Addresses` says so; where a firewall stops packets
below the relays, it is the `PacketFilter` (`packet_filter.py`); everything else is the same there.
Links can also be made slow, lossy (by late retransmission: a stream loses nothing) or narrow, connections reset or
forgotten by one end (`link_faults.py`), and single messages be delayed, held, dropped, doubled (`frame_rules.py`).
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from random import Random
from typing import Final, NamedTuple, Protocol

from tribunal.clusters.api import CLIENTS, CutMode, Link, Proof
from tribunal.clusters.capabilities import RETRANSMISSION_MS, Fate, Shape
from tribunal.clusters.frame_rules import Rules
from tribunal.clusters.links.answers import Listener
from tribunal.clusters.links.frames import Head
from tribunal.clusters.links.packet_filter import NoPacketFilter, PacketFilter
from tribunal.clusters.links.probing import (
    GREETING_MS,
    KAFKA,
    PATIENT_WAIT_MS,
    PROBE_COUNT,
    PROBE_REQUEST,
    PROBE_WAIT_MS,
    SILENCE_MS,
    ZOOKEEPER,
    Channel,
    ProbeAnswer,
)
from tribunal.clusters.links.relay import Relay, Side, Traffic, Wires
from tribunal.clusters.standing_cuts import StandingCuts

__all__ = ["PROBE_REQUEST", "Links", "Traffic"]

NODE_NET: Final = "127.0.1."
LINK_NET: Final = "127.0.2."
CLIENT_HOST: Final = "127.0.0.1"
SPEAKING_MS: Final = 500
CLOSING_TURNS: Final = 5


def node_host(node: int) -> str:
    """Return the address a node binds and calls from."""
    return f"{NODE_NET}{node}"


def link_host(node: int) -> str:
    """Return the address of a node's relay, which it advertises."""
    return f"{LINK_NET}{node}"


def caller_of(host: str) -> int:
    """Return which node calls from this address, CLIENTS for any other."""
    return int(host.removeprefix(NODE_NET)) if host.startswith(NODE_NET) else CLIENTS


class RelayListener(NamedTuple):
    """Where a node's relay listens (an address, or a socket that listens already), and who decides on what comes in there."""

    wires: Wires
    where: tuple[str, int] | socket.socket


async def connected(sock: socket.socket, endpoint: tuple[str, int], *, bound_to: str | None) -> socket.socket:
    """Connect a socket; it is closed when that cannot be."""
    sock.settimeout(0)
    try:
        if bound_to is not None:
            sock.bind((bound_to, 0))
        await asyncio.get_running_loop().sock_connect(sock, endpoint)
    except BaseException:
        sock.close()
        raise
    return sock


class Addresses(Protocol):
    """Where nodes and their relays live, and how they are reached."""

    def endpoint(self, node: int) -> tuple[str, int]:
        """Return where the node itself listens."""

    def advertised(self, node: int) -> tuple[str, int]:
        """Return where the node's relay listens."""

    def caller(self, host: str) -> int:
        """Return which node calls from this address, CLIENTS for any other."""

    def listeners(self, node: int, links: Wires) -> Iterable[RelayListener]:
        """Return where the node's relay listens; `OSError` when an address is taken."""

    async def connect_relay(self, caller: int, target: int, far: Side, tls: ssl.SSLContext | None) -> None:
        """Connect the far side of a relay to its node, by TLS where it is given; `OSError` when nobody listens there."""

    async def connect_as(self, source: int, endpoint: tuple[str, int]) -> socket.socket:
        """Open a connection as this node (or a client) would; `OSError` when it cannot be had."""


class LoopbackAddresses:
    """Every node on 127.0.1.N, its relay on 127.0.2.N, on the same port."""

    def __init__(self, ports: dict[int, int]) -> None:
        self.ports = ports

    def endpoint(self, node: int) -> tuple[str, int]:
        """Return where the node itself listens."""
        return node_host(node), self.ports[node]

    def advertised(self, node: int) -> tuple[str, int]:
        """Return where the node's relay listens."""
        return link_host(node), self.ports[node]

    def caller(self, host: str) -> int:
        """Return which node calls from this address."""
        return caller_of(host)

    def listeners(self, node: int, links: Wires) -> Iterable[RelayListener]:
        """Return the relay's own address."""
        return [listener_at(links, self.advertised(node))]

    async def connect_relay(self, caller: int, target: int, far: Side, tls: ssl.SSLContext | None) -> None:
        """Connect from the relay's own address."""
        await connect_far(far, self.endpoint(target), tls, source=(link_host(target), 0))

    async def connect_as(self, source: int, endpoint: tuple[str, int]) -> socket.socket:
        """Connect from the node's own address."""
        return await connected(
            socket.socket(), endpoint, bound_to=CLIENT_HOST if source == CLIENTS else node_host(source)
        )


def listener_at(wires: Wires, endpoint: tuple[str, int]) -> RelayListener:
    """Return a listener at an address of this machine."""
    return RelayListener(wires, endpoint)


class LinkTls(Protocol):
    """The TLS of relays, which end it on both sides: what they carry on is read and hindered as without it."""

    @property
    def context(self) -> ssl.SSLContext:
        """What a relay checks its node's certificate by, and the harness that of both."""

    def relays(self, hosts: Iterable[str]) -> ssl.SSLContext:
        """Return what relays at these addresses show."""


async def connect_far(
    far: Side, endpoint: tuple[str, int], tls: ssl.SSLContext | None, *, source: tuple[str, int] | None = None
) -> None:
    """Connect the far side of a relay to an address; no source: the system's choice."""
    host, port = endpoint
    await asyncio.get_running_loop().create_connection(lambda: far, host, port, ssl=tls, local_addr=source)


class Links:
    """All relays of one cluster, and what hinders their links."""

    def __init__(
        self,
        ports: dict[int, int],
        addresses: Addresses | None = None,
        packets: PacketFilter | None = None,
        *,
        on_message: Callable[[Head, Fate], None] = lambda head, fate: None,
        zookeeper_nodes: Collection[int] = (),
        tls: LinkTls | None = None,
    ) -> None:
        """`on_message` gets every message and its fate; `zookeeper_nodes` speak another protocol: no messages are read, and probes differ."""
        self._tls = tls
        self.ports = ports
        self._on_message = on_message
        self._zookeeper_nodes = frozenset(zookeeper_nodes)
        self._packets: PacketFilter = NoPacketFilter() if packets is None else packets
        self._stopped_packets: dict[str, int] = {}  # that the last cut was seen to stop
        self._wires: dict[Wires, None] = {}  # of all listeners
        self.addresses: Addresses = LoopbackAddresses(ports) if addresses is None else addresses
        self.cuts: dict[Link, CutMode] = {}  # that the relays make
        self._standing = StandingCuts()  # of relays and packet filter
        self.rules = Rules()
        self.relays: dict[Relay, None] = {}
        self._shapes: dict[Link, Shape] = {}
        self._standing_shapes = StandingCuts()
        self._free_s: dict[Link, float] = {}  # when a narrow link has sent what it was given
        self._random = Random("links")
        self._traffic: dict[Link, Traffic] = {}
        self._servers: list[asyncio.Server] = []
        self.listener: Callable[[], Listener | None] = lambda: None

    def endpoint(self, node: int) -> tuple[str, int]:
        """Return where the node itself listens."""
        return self.addresses.endpoint(node)

    def advertised(self, node: int) -> tuple[str, int]:
        """Return where the node's relay listens."""
        return self.addresses.advertised(node)

    def caller(self, host: str) -> int:
        """Return which node calls from this address."""
        return self.addresses.caller(host)

    def traffic(self, link: Link) -> Traffic:
        """Return the link's counters."""
        found = self._traffic.get(link)
        if found is None:
            found = self._traffic[link] = Traffic()
        return found

    def cut_mode(self, link: Link) -> CutMode | None:
        """Return how the link is cut, None when it is not."""
        return self.cuts.get(link)

    def is_shaped(self, link: Link) -> bool:
        """Return whether the link is slow, lossy or narrow."""
        return link in self._shapes

    def due_s(self, link: Link, size: int, now_s: float) -> float:
        """Return when so many bytes, handed over now, come out at the link's other end."""
        shape = self._shapes.get(link)
        if shape is None:
            return now_s
        due_s = now_s
        if shape.bytes_per_s:
            due_s = max(now_s, self._free_s.get(link, 0.0)) + size / shape.bytes_per_s
            self._free_s[link] = due_s
        if shape.loss and self._random.random() < shape.loss:
            self.traffic(link).retransmissions += 1
            due_s += RETRANSMISSION_MS / 1000
        return due_s + (shape.delay_ms + shape.jitter_ms * self._random.uniform(-1, 1)) / 1000

    # --- begin and end ---------------------------------------------------------------------

    async def open(self) -> None:
        """Listen for all nodes; `OSError` when an address is taken, with nothing left open."""
        loop = asyncio.get_running_loop()
        shown = None if self._tls is None else self._tls.relays(self.advertised(node)[0] for node in self.ports)
        try:
            for node in self.ports:
                for wires, where in self.addresses.listeners(node, self):
                    near = partial(near_side, wires, node)
                    # (A way past all links hinders nothing, so it carries TLS on as it comes.)
                    tls = shown if wires is self else None
                    if isinstance(where, socket.socket):
                        self._servers.append(await loop.create_server(near, sock=where, ssl=tls))
                    else:
                        self._servers.append(await loop.create_server(near, *where, ssl=tls))
                    self._wires[wires] = None
        except OSError:
            await self.close()
            raise

    async def connect(self, caller: int, target: int, far: Side) -> None:
        """Connect a relay's far side to its node; `OSError` when nobody listens there."""
        await self.addresses.connect_relay(caller, target, far, self._context)

    @property
    def _context(self) -> ssl.SSLContext | None:
        return None if self._tls is None else self._tls.context

    async def close(self) -> None:
        """Stop listening and end every connection."""
        loop = asyncio.get_running_loop()
        servers, self._servers = self._servers, []
        for listener in (listener for server in servers for listener in server.sockets):
            loop.remove_reader(listener.fileno())  # accept no more
        self.cuts.clear()
        self._standing.clear()
        self._standing_shapes.clear()
        self.rules.clear()
        self._shapes.clear()
        # Whoever was being accepted appears in a later turn. Servers have to wait for it: asyncio's, closed meanwhile,
        # fails an assertion at that connection (Server._attach), and leaves it open for ever.
        for turn in range(2 * CLOSING_TURNS):
            if turn == CLOSING_TURNS:
                for server in servers:
                    server.close()
            for relay in [relay for wires in self._wires for relay in wires.relays]:
                relay.reset()
            await asyncio.sleep(0)

    # --- cuts ------------------------------------------------------------------------------

    async def cut(self, links: Sequence[Link], mode: CutMode) -> Proof:
        """Cut links; the proof has probes that passed before and do not any more."""
        channels = await self.channels(links)
        try:
            before = await self._ask(channels, PROBE_WAIT_MS)
            is_partial = any(0 < answer.answered < answer.sent for answer in before)
            if is_partial or not any(answer.answered for answer in before):  # a busy machine is slow: no proof yet
                before = await self._ask(channels, PATIENT_WAIT_MS)
            began_s = asyncio.get_running_loop().time()
            await self.sever(links, mode)
            applied_ms = (asyncio.get_running_loop().time() - began_s) * 1000
            after = await self._ask(channels, SILENCE_MS)
            stopped = await self.stopped(links, after)
        finally:
            for channel in channels:
                channel.close()
        # What was silent before (its node is down or paused, another fault has the link) proves nothing about the cut.
        probed = {answer.link for answer in before if answer.answered}
        return Proof(
            holds=bool(probed)
            and all(answer.answered == answer.sent for answer in before if answer.link in probed)
            and all(stopped[answer.link] for answer in after if answer.link in probed),
            facts={
                "mode": mode.value,
                "cut": [str(link) for link in links],
                "applied_ms": round(applied_ms, 2),
                **self.witness(),
                "probes_before": [answer.facts() for answer in before],
                "probes_after": [answer.facts() for answer in after],
            },
        )

    async def sever(self, links: Sequence[Link], mode: CutMode) -> None:
        """Cut links, without a word of proof."""
        self._standing.add(links)
        if not self._packets.stops(mode):
            self.cuts |= dict.fromkeys(links, mode)
            self.apply_hindrances(links)
            return
        await self._packets.cut(links, mode)
        if mode is CutMode.RESET:
            touched = frozenset(links)
            for relay in [relay for relay in self.relays if relay.is_over(touched)]:
                relay.reset()

    def is_hindered(self, link: Link) -> bool:
        """Return whether what leaves the relay for this link does not arrive for now."""
        return self._packets.is_cut(link)  # (A cut of the relay's own keeps the bytes in front of it.)

    def note_message(self, head: Head) -> None:
        """Hand on a message with its fate (docs/recording-format.md, requests)."""
        if head.source in self._zookeeper_nodes or head.target in self._zookeeper_nodes:
            return
        if head.rule is not None:
            fate = head.rule.rule.fate
        elif self.is_hindered(link := Link(head.source, head.target)):
            fate = Fate.HELD
        else:
            fate = Fate.DELAYED if self.is_shaped(link) else Fate.DELIVERED
        self._on_message(head, fate)

    async def tally(self, links: Sequence[Link]) -> dict[str, int]:
        """Return what cuts of these links have stopped: packets, or bytes where the relay did it."""
        filtered = [link for link in links if self._packets.is_cut(link)]
        relayed = [link for link in links if link in self.cuts or link not in filtered]
        packets = await self._packets.stopped(filtered)
        return {**packets, **{str(link): self.traffic(link).stopped_bytes for link in relayed}}

    async def mend(self, links: Sequence[Link]) -> list[Link]:
        """Undo cuts, without a word of proof; return the links that no other fault cuts."""
        free = self._standing.undo(links)
        await self._packets.mend(free)
        for link in free:
            self.cuts.pop(link, None)
        self.apply_hindrances(free)
        return free

    async def stopped(self, links: Sequence[Link], answers: Sequence[ProbeAnswer]) -> dict[Link, bool]:
        """Return for each probe whether it met the cut that it should have met: silence, and what the cut has counted."""
        filtered = [link for link in links if self._packets.is_cut(link)]
        self._stopped_packets = await self._packets.stopped(filtered)
        found = {}
        for answer in answers:
            pair = (answer.link, Link(answer.link.target, answer.link.source))
            if any(map(self._packets.is_cut, pair)):
                met = any(self._stopped_packets.get(str(link), 0) for link in pair)
            else:
                met = answer.delivered == 0 or answer.link not in self.cuts
            found[answer.link] = answer.answered == 0 and met
        return found

    def witness(self) -> dict[str, object]:
        """Return who stops what is cut, and what that saw, for the proof."""
        if not self._stopped_packets:
            return {"by": "relay"}
        return {"by": self._packets.name, "stopped_packets": self._stopped_packets}

    async def heal(self, links: Sequence[Link]) -> Proof:
        """Undo cuts; the proof has fresh probes that are answered, over links that no other fault cuts."""
        stopped = await self.tally(links)
        began_s = asyncio.get_running_loop().time()
        free = await self.mend(links)
        applied_ms = (asyncio.get_running_loop().time() - began_s) * 1000
        facts: dict[str, object] = {"stopped": stopped, "applied_ms": round(applied_ms, 2)}
        # A connection needs both directions: where another fault has the opposite one, nothing can be said.
        probed = [link for link in free if not self._standing.stands(Link(link.target, link.source))]
        if len(probed) < len(links):
            facts["cut_by_others"] = [str(link) for link in links if link not in probed]
        return await self.passing(probed, facts) if probed else Proof(holds=True, facts=facts)

    async def passing(self, links: Sequence[Link], facts: dict[str, object]) -> Proof:
        """Prove by fresh probes that links pass."""
        channels = await self.channels(links)
        try:
            after = await self._ask(channels, PROBE_WAIT_MS)
        finally:
            for channel in channels:
                channel.close()
        down = await self._down(after)
        probed = [answer for answer in after if answer.link not in down]
        return Proof(
            holds=bool(probed) and all(answer.answered == answer.sent for answer in probed),
            facts={**facts, "probes_after": [answer.facts() for answer in after]},
        )

    def apply_hindrances(self, links: Iterable[Link] | None = None) -> None:
        """Apply what cuts, rules and shapes ask for to the connections over these links (None: all)."""
        touched = None if links is None else frozenset(links)
        for relay in list(self.relays):
            if touched is None or relay.is_over(touched):
                relay.apply_hindrances()

    # --- shapes ----------------------------------------------------------------------------

    async def set_shape(self, links: Sequence[Link], shape: Shape) -> None:
        """Make links slow, lossy or narrow, or as they were once nobody else has them so; of several shapes the newest one is in effect."""
        if shape == Shape():
            links = self._standing_shapes.undo(links)
        else:
            self._standing_shapes.add(links)
        relayed = await self._packets.shape(links, shape)
        for link in links:
            self._free_s.pop(link, None)
            if relayed == Shape():
                self._shapes.pop(link, None)
            else:
                self._shapes[link] = relayed
        self.apply_hindrances(links)

    async def losses(self, links: Sequence[Link]) -> int:
        """Return how many packets (of the relay's: pieces made late) the links have lost."""
        return await self._packets.lost() + sum(self.traffic(link).retransmissions for link in links)

    # --- probes ----------------------------------------------------------------------------

    async def channels(self, links: Sequence[Link]) -> list[Channel]:
        """Open one probing connection a pair: a link to clients is probed by the answers of its opposite."""
        wanted = dict.fromkeys(link if link.target != CLIENTS else Link(CLIENTS, link.source) for link in links)
        found: list[Channel] = []
        for link in wanted:
            with contextlib.suppress(OSError):  # then no probe speaks for this link, and the proof lacks it
                relay = self.advertised(link.target)
                sock = await self.addresses.connect_as(link.source, relay)
                reader, writer = await asyncio.open_connection(
                    sock=sock, ssl=self._context, server_hostname=relay[0] if self._context else None
                )
                found.append(await self._channel(link, reader, writer))
        return found

    async def _channel(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Channel:
        channel = Channel(link, reader, writer, ZOOKEEPER if link.target in self._zookeeper_nodes else KAFKA)
        try:
            async with asyncio.timeout(GREETING_MS / 1000):
                await channel.greet()
        except (OSError, asyncio.IncompleteReadError) as problem:
            channel.close()  # an answer that comes later would be taken for that of a probe
            raise OSError(f"{link}: no session for probes: {problem}") from None
        return channel

    async def _down(self, answers: Sequence[ProbeAnswer]) -> set[Link]:
        """Return the links that cannot be probed, because the node at their end is silent: dead or paused."""
        silent = [answer.link for answer in answers if answer.answered == 0]
        return {link for link in silent if not await self.speaks(link.target)}

    async def speaks(self, node: int) -> bool:
        """Return whether the node answers when it is asked past all faults."""
        with contextlib.suppress(OSError, TimeoutError):
            # (A handshake of TLS is the node's work, not only its kernel's.)
            async with asyncio.timeout((SPEAKING_MS if self._context else SILENCE_MS) / 1000):
                reader, writer = await asyncio.open_connection(*self.endpoint(node), ssl=self._context)
            channel = await self._channel(Link(CLIENTS, node), reader, writer)
            try:
                return await channel.round_trip_ms(0, SPEAKING_MS) is not None
            finally:
                channel.close()
        return False

    async def _ask(self, channels: Sequence[Channel], wait_ms: int) -> list[ProbeAnswer]:
        questions = []
        for channel in channels:
            address = channel.writer.get_extra_info("sockname")
            questions.append(channel.ask(self._relay(address[:2], channel.link.target), PROBE_COUNT, wait_ms))
        return list(await asyncio.gather(*questions))

    def _relay(self, peer: tuple[str, int], target: int) -> Relay | None:
        """Return the relay of a connection from this address to a node."""
        return next((relay for relay in self.relays if relay.peer == peer and relay.target == target), None)


def near_side(wires: Wires, node: int) -> Side:
    """Return the near side of a fresh relay to a node."""
    return Relay(wires, node).near
