"""One connection through a node's relay: two sockets, and what becomes of the bytes between them.

Bytes read on one side are held while their link is cut, then cut into messages, which rules may stop, and put into a
queue (`send_queue.py`) that keeps order and, where the link is slow, time; what leaves the queue is written to the other side.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Container
from typing import Final, Protocol, cast

import msgspec

from tribunal.clusters.api import CLIENTS, CutMode, Link
from tribunal.clusters.capabilities import Fate
from tribunal.clusters.frame_rules import Rules
from tribunal.clusters.links.answers import Listener
from tribunal.clusters.links.frames import (
    REQUEST_HEAD_BYTES,
    RESPONSE_HEAD_BYTES,
    Conversation,
    Cutter,
    Head,
    Piece,
)
from tribunal.clusters.links.send_queue import SendQueue

HELD_BYTES_MAX: Final = 65_536  # a connection; then its sender's kernel has to keep them
QUEUED_BYTES_MAX: Final = 1 << 20  # the same for what a rule or a slow link keeps


class Traffic(msgspec.Struct):
    """What passed over one link, and what a cut stopped."""

    delivered_bytes: int = 0
    stopped_bytes: int = 0
    connections: int = 0
    stopped_connections: int = 0
    resets: int = 0
    retransmissions: int = 0  # pieces made late by a lossy link


class Wires(Protocol):
    """What a relay asks about its links."""

    rules: Rules
    relays: dict["Relay", None]  # in the order of their coming; a caller's port may lead to several nodes at once

    def cut_mode(self, link: Link) -> CutMode | None:
        """Return how the link is cut, None when it is not."""

    def is_shaped(self, link: Link) -> bool:
        """Return whether the link is slow, lossy or narrow."""

    def due_s(self, link: Link, size: int, now_s: float) -> float:
        """Return when so many bytes, handed over now, come out at the link's other end."""

    def traffic(self, link: Link) -> Traffic:
        """Return the link's counters."""

    def caller(self, host: str) -> int:
        """Return which node calls from this address."""

    def note_message(self, head: Head) -> None:
        """Take note of a message that begins, its fate decided."""

    def listener(self) -> Listener | None:
        """Return what listens to a connection of clients, None where nobody wants to know."""

    async def connect(self, caller: int, target: int, far: "Side") -> None:
        """Connect a relay's far side to its node; `OSError` when nobody listens there."""


class Side(asyncio.Protocol):
    """One of the two sockets of a relayed connection."""

    def __init__(self, relay: "Relay", cutter: Cutter) -> None:
        self.relay = relay
        self.cutter = cutter
        self.send_queue = SendQueue(self._due_s)
        self.transport: asyncio.Transport | None = None
        self.choked = False  # the socket on the other side takes no more for now
        self.ended = False
        self.failed = False
        self.held: list[bytes] = []  # read here, not yet passed on
        self.delivered_bytes = 0
        self.wake: asyncio.TimerHandle | None = None
        self._due_last_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket."""
        # (uvloop's transports are no subclasses of asyncio's.)
        self.transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.relay.opened(self)

    def data_received(self, data: bytes) -> None:
        """Hand on what was read."""
        self.relay.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remember how the socket ended."""
        self.ended = True
        self.failed = exc is not None
        self.relay.apply_hindrances()

    def pause_writing(self) -> None:
        """Read no more on the other side for now."""
        self.relay.other(self).choked = True
        self.relay.apply_hindrances()

    def resume_writing(self) -> None:
        """Read again on the other side."""
        self.relay.other(self).choked = False
        self.relay.apply_hindrances()

    def write(self, data: bytes) -> None:
        """Send towards this side's node, unless it has gone."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def abort(self) -> bool:
        """End the socket with a reset; return whether there was one."""
        if self.transport is None or self.ended:
            return False
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):  # already gone
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
        return True

    def _due_s(self, head: Head, size: int) -> float:
        """Return when these bytes may leave; never before those in front of them."""
        now_s = asyncio.get_running_loop().time()
        due_s = self.relay.wires.due_s(self.relay.link(self), size, now_s)
        if head.rule is not None and head.rule.rule.fate is Fate.DELAYED:
            due_s += head.rule.rule.delay_ms / 1000
        self._due_last_s = max(self._due_last_s, due_s)
        return self._due_last_s


class Relay:
    """One connection from a caller through the target's relay to the target."""

    def __init__(self, wires: Wires, target: int) -> None:
        self.wires = wires
        self.target = target
        self.caller = CLIENTS
        self.talk = Conversation(CLIENTS, target)
        self.near = Side(self, Cutter(self.talk.request, REQUEST_HEAD_BYTES))  # towards the caller
        self.far = Side(self, Cutter(self.talk.response, RESPONSE_HEAD_BYTES))  # towards the target
        self.peer = ("", 0)
        self.torn = False  # lost bytes for good: useless after the heal
        self.closed = False
        self.half_open_side: Side | None = None  # this end takes the connection for open, the other has closed it
        self.connecting: asyncio.Task[None] | None = None
        self._listener: Listener | None = None

    def other(self, side: Side) -> Side:
        """Return the other side."""
        return self.far if side is self.near else self.near

    def link(self, side: Side) -> Link:
        """Return the link over which bytes read from this side travel."""
        return Link(self.caller, self.target) if side is self.near else Link(self.target, self.caller)

    def is_over(self, links: Container[Link]) -> bool:
        """Return whether its bytes travel over one of these links."""
        return self.link(self.near) in links or self.link(self.far) in links

    def mode(self, side: Side) -> CutMode | None:
        """Return how that link is cut."""
        return self.wires.cut_mode(self.link(side))

    def opened(self, side: Side) -> None:
        """Take note of a socket that is connected now."""
        if self.closed:
            assert side.transport is not None
            side.transport.abort()
        elif side is self.near:
            assert side.transport is not None
            self.peer = side.transport.get_extra_info("peername")[:2]
            self.caller = self.talk.caller = self.wires.caller(self.peer[0])
            self._listener = self.wires.listener() if self.caller == CLIENTS else None
            self.wires.relays[self] = None
            traffic = self.wires.traffic(self.link(side))
            traffic.connections += 1
            traffic.stopped_connections += self.mode(side) is not None
        self.apply_hindrances()

    def apply_hindrances(self) -> None:
        """Bring both sockets into the state that cuts, rules and shapes ask for; called after every change."""
        if self.closed:
            return
        modes = (self.mode(self.near), self.mode(self.far))
        if self.half_open_side is not None:
            if self.half_open_side.ended:
                self.reset()
        elif CutMode.RESET in modes or (self.torn and modes == (None, None)):
            self.reset()
        elif self.far.transport is None:
            self._hinder_unconnected(cut=modes != (None, None))
        else:
            for side in (self.near, self.far):
                self._hinder_side(side)

    def _hinder_unconnected(self, *, cut: bool) -> None:
        if self.near.ended:
            self.reset()
            return
        if not cut and self.connecting is None:
            self.connecting = asyncio.ensure_future(self._connect())
        self._read_or_wait(self.near)

    def _hinder_side(self, side: Side) -> None:
        if self.closed:
            return
        if self.mode(side) is None:
            waiting, side.held = side.held, []
            for data in waiting:
                self._deliver(side, data)
            self._move(side)
            # The end of a stream travels like its bytes: behind those that waited, and not over a cut.
            if side.ended and side.send_queue.is_empty:
                (self.reset if side.failed else self.close)()
                return
        if self.near.ended and self.far.ended and self._nothing_waits():
            self._forget()
            return
        self._read_or_wait(side)

    def _nothing_waits(self) -> bool:
        """Return whether no end of this connection is owed anything; what a dead sender sent still arrives."""
        return all(side.send_queue.is_empty or self.other(side).ended for side in (self.near, self.far))

    def _read_or_wait(self, side: Side) -> None:
        if side.transport is None or side.ended or side.transport.is_closing():
            return
        full = sum(map(len, side.held)) >= HELD_BYTES_MAX or side.send_queue.byte_count >= QUEUED_BYTES_MAX
        (side.transport.pause_reading if side.choked or full else side.transport.resume_reading)()

    async def _connect(self) -> None:
        try:
            await self.wires.connect(self.caller, self.target, self.far)
        except OSError:
            self.reset()  # nobody listens there: the caller learns it as a reset
        finally:
            self.connecting = None

    def received(self, side: Side, data: bytes) -> None:
        """Take what one side's node sent."""
        if self.half_open_side is not None:
            return  # into the void
        mode = self.mode(side)
        if mode is None and self.far.transport is not None:
            self._deliver(side, data)
            return
        if mode is not None:
            self.wires.traffic(self.link(side)).stopped_bytes += len(data)
        if mode is CutMode.DROP:
            self.torn = True
        else:
            side.held.append(bytes(data))
            self._read_or_wait(side)

    def _deliver(self, side: Side, data: bytes) -> None:
        pieces = side.cutter.feed(bytes(data))
        rules = self.wires.rules
        plain = not rules.in_force and side.send_queue.is_empty and not self.wires.is_shaped(self.link(side))
        for piece in pieces:
            if piece.is_first:
                if rules.in_force:
                    self._decide(piece, rules)
                self.wires.note_message(piece.head)
            if self._listener is not None:
                self._listener.pass_by(piece)
            if plain and piece.head.rule is None and not piece.head.swallowed:
                self._write(side, piece.data)
            else:
                side.send_queue.put(piece)
        self._move(side)

    def _decide(self, piece: Piece, rules: Rules) -> None:
        head = piece.head
        head.decide(rules, self.apply_hindrances)
        if head.rule is not None and head.rule.rule.fate is Fate.DUPLICATED:
            self.talk.questions.double(head.correlation_id)

    def _move(self, side: Side) -> None:
        """Write what may leave the queue now, and wake up for the rest; over a cut nothing leaves."""
        if side.send_queue.is_empty or self.mode(side) is not None or self.closed:
            return
        loop = asyncio.get_running_loop()
        for data in side.send_queue.leaving(loop.time()):
            self._write(side, data)
        if side.wake is not None:
            side.wake.cancel()
            side.wake = None
        due_s = side.send_queue.next_due_s()
        if due_s is not None:
            side.wake = loop.call_at(due_s, self.apply_hindrances)
        self._read_or_wait(side)

    def _write(self, side: Side, data: bytes) -> None:
        self.wires.traffic(self.link(side)).delivered_bytes += len(data)
        side.delivered_bytes += len(data)
        self.other(side).write(data)

    def leave_half_open(self, side: Side) -> None:
        """Let the other side's node forget the connection; this side's node is not notified."""
        self.half_open_side = side
        for one in (self.near, self.far):
            one.send_queue.clear()
            one.held.clear()
        self.other(side).abort()

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
            if side.abort():
                self.wires.traffic(self.link(side)).resets += 1

    def _forget(self) -> None:
        self.closed = True
        for side in (self.near, self.far):
            if side.wake is not None:
                side.wake.cancel()
        if self.connecting is not None and self.connecting is not asyncio.current_task():
            self.connecting.cancel()
        self.wires.relays.pop(self, None)
