"""The links between a described system's nodes that have networks of their own, and how one sees that a cut takes effect.

Nobody knows what the nodes say to each other, so the proof is by packets of the harness's own: in every namespace a probe port
takes bytes and sends them back, and a probe is a connection from the source's namespace to the target's, over the same hub and under
the same rules as the system's own. It was opened before the cut and answered; then not one of its bytes arrives, and the firewall has
counted packets of this link that it stopped.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from tribunal.clusters.api import CutMode, Link, Proof, Unsupported
from tribunal.clusters.links.packet_filter import CutFilter
from tribunal.clusters.links.relays import connected
from tribunal.clusters.standing_cuts import StandingCuts
from tribunal.clusters.values import Facts

PROBE: Final = b"tribunal"
PROBE_WAIT_MS: Final = 5_000  # where an answer is expected: a busy machine takes its time
SILENCE_MS: Final = 150  # how long a probe on a cut link is given to prove the cut wrong


class Networks(Protocol):
    """The networks of nodes and clients, by their numbers as words: `Namespaces`, or those of containers."""

    def outgoing(self, name: str) -> socket.socket:
        """Return a fresh TCP socket of that network."""

    def listener(self, name: str, host: str, port: int) -> socket.socket:
        """Return a socket that listens there; `OSError` when the address is taken."""


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one probe."""

    link: str
    delivered_bytes: int
    answered: bool


class Takes(Protocol):
    """A port that says to whoever connects as whom it knows that one (`127.0.0.1:40001`, a line), takes bytes, and sends them back."""

    taken: dict[tuple[str, int], int]  # bytes, by who sent them

    async def close(self) -> None:
        """Hang up on everybody."""


class Probes(Protocol):
    """How probes get into the networks of nodes and clients."""

    async def listen(self, node: int, where: tuple[str, int]) -> Takes:
        """Open a port in a node's network. Raises ClusterError or OSError."""

    async def connected(self, source: int, endpoint: tuple[str, int]) -> socket.socket:
        """Connect from a node's network; `OSError` when that cannot be."""


class ProbePort:
    """Takes bytes in one namespace, and sends them back."""

    def __init__(self) -> None:
        self.taken: dict[tuple[str, int], int] = {}  # bytes, by who sent them
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def listen(self, spaces: Networks, node: int, where: tuple[str, int]) -> None:
        """Listen in a node's namespace."""
        self._server = await asyncio.start_server(self._serve, sock=spaces.listener(str(node), *where))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")[:2]
        self._open.add(writer)
        try:
            writer.write(b"%s:%d\n" % (peer[0].encode(), peer[1]))
            while data := await reader.read(1 << 12):
                self.taken[peer] = self.taken.get(peer, 0) + len(data)
                writer.write(data)
        except OSError:
            pass  # it was cut
        finally:
            self._open.discard(writer)
            self.taken.pop(peer, None)
            writer.transport.abort()

    async def close(self) -> None:
        """Hang up on everybody."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._open):
                writer.transport.abort()
            await self._server.wait_closed()


class LocalProbes:
    """Probes by sockets that this process has in each network; implements `Probes`."""

    def __init__(self, spaces: Networks) -> None:
        self._spaces = spaces

    async def listen(self, node: int, where: tuple[str, int]) -> ProbePort:
        """Listen there."""
        port = ProbePort()
        await port.listen(self._spaces, node, where)
        return port

    async def connected(self, source: int, endpoint: tuple[str, int]) -> socket.socket:
        """Connect."""
        return await connected(self._spaces.outgoing(str(source)), endpoint, bound_to=None)


class Channel:
    """A probing connection."""

    def __init__(
        self,
        link: Link,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        port: Takes,
        name: tuple[str, int],
    ) -> None:
        self.link = link
        self._reader = reader
        self._writer = writer
        self._port = port
        self._name = name

    async def ask(self, wait_ms: int) -> Probed:
        """Send a probe; return what became of it in this time."""
        before = self._port.taken.get(self._name, 0)
        answered = False
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(wait_ms / 1000):
                if self._writer.transport.is_closing():  # (uvloop calls a write to what has been reset a RuntimeError)
                    raise ConnectionResetError
                self._writer.write(PROBE)
                answered = await self._reader.readexactly(len(PROBE)) == PROBE
        # Where it was reset its count is gone with it, and nothing came in.
        arrived = max(0, self._port.taken.get(self._name, 0) - before)
        return Probed(link=str(self.link), delivered_bytes=arrived, answered=answered)

    def close(self) -> None:
        """Hang up."""
        self._writer.transport.abort()


class SystemLinks:
    """Cuts links, and proves it."""

    def __init__(self, probes: Probes, firewall: CutFilter, address: Callable[[int], str], *, probe_port: int) -> None:
        self._probes = probes
        self._firewall = firewall
        self._address = address
        self._probe_port = probe_port
        self._ports: dict[int, Takes] = {}
        self._standing = StandingCuts()

    async def open(self, nodes: Sequence[int]) -> None:
        """Open a probe port in each namespace."""
        for node in nodes:
            self._ports[node] = await self._probes.listen(node, (self._address(node), self._probe_port))

    async def close(self) -> None:
        """Close the probe ports."""
        for port in self._ports.values():
            await port.close()

    async def cut(self, links: Sequence[Link], mode: CutMode) -> Proof:
        """Stop the packets of these links; proven by probes that were answered before and of which nothing arrives any more."""
        if not self._firewall.stops(mode):
            raise Unsupported(f"packets can be held or refused between these nodes, not lost for good: mode {mode}")
        channels = await self._channels(links)
        try:
            before = await self._ask(channels, PROBE_WAIT_MS)
            self._standing.add(links)
            await self._firewall.cut(links, mode)
            after = await self._ask(channels, SILENCE_MS)
            stopped = await self._firewall.stopped(links)
        finally:
            for channel in channels:
                channel.close()
        passed = len(channels) == len(set(links)) and all(one.answered for one in before)
        silent = all(not one.answered and one.delivered_bytes == 0 for one in after)
        return Proof(
            holds=bool(channels) and passed and silent and all(stopped.get(str(link), 0) for link in links),
            facts={
                "by": self._firewall.name,
                "probes_before": _facts(before),
                "probes_after": _facts(after),
                "stopped_packets": stopped,
            },
        )

    async def heal(self, links: Sequence[Link]) -> Proof:
        """Let packets pass again; proven by fresh probes over those that no other fault cuts."""
        mended = [link for link in links if self._firewall.is_cut(link)]
        stopped = await self._firewall.stopped(mended) if mended else {}
        uncut = self._standing.undo(links)
        await self._firewall.mend(uncut)
        # A connection needs both directions: where another fault has the opposite one, nothing can be said.
        free = [link for link in uncut if not self._firewall.is_cut(Link(link.target, link.source))]
        channels = await self._channels(free)
        try:
            after = await self._ask(channels, PROBE_WAIT_MS)
        finally:
            for channel in channels:
                channel.close()
        passes = len(channels) == len(set(free)) and all(one.answered for one in after)
        facts: Facts = {"stopped_packets": stopped, "probes_after": _facts(after)}
        if len(free) < len(links):
            facts["cut_by_others"] = [str(link) for link in links if link not in free]
        return Proof(holds=passes, facts=facts)

    async def _channels(self, links: Sequence[Link]) -> list[Channel]:
        opened = await asyncio.gather(*map(self._channel, dict.fromkeys(links)))
        return [channel for channel in opened if channel is not None]

    async def _channel(self, link: Link) -> Channel | None:
        try:
            async with asyncio.timeout(PROBE_WAIT_MS / 1000):
                sock = await self._probes.connected(link.source, (self._address(link.target), self._probe_port))
                reader, writer = await asyncio.open_connection(sock=sock)
                name = await _greeted(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return None  # no probe speaks for this link, and the proof lacks it
        return Channel(link, reader, writer, self._ports[link.target], name)

    async def _ask(self, channels: Sequence[Channel], wait_ms: int) -> list[Probed]:
        return list(await asyncio.gather(*(channel.ask(wait_ms) for channel in channels)))


async def _greeted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, int]:
    """Return as whom the port knows this connection, which is closed when it does not say so."""
    try:
        return peer_name((await reader.readuntil(b"\n")).decode())
    except BaseException:
        writer.transport.abort()
        raise


def peer_name(text: str) -> tuple[str, int]:
    """Read such a name."""
    host, _, port = text.strip().rpartition(":")
    return host, int(port)


def _facts(probes: Sequence[Probed]) -> list[dict[str, object]]:
    return [msgspec.structs.asdict(one) for one in probes]
