"""One end of a simulated TCP connection: ordered bytes, flow control, retransmission, FIN and RST.

Every `write` becomes one segment with a sequence number. What cannot arrive (a cut, a machine without power) is
kept by the sender's kernel and sent again when its retransmission timer fires: 200 ms, doubled each time, up to 120 s,
given up after 15 attempts, as Linux does. A connection's two kernels outlive the processes that own its ends.

The transport belongs to a process; what the peer's kernel delivers is handed to the process at once, or when it
runs again if it is paused or busy.
"""

import asyncio
import errno
from asyncio import BaseProtocol, Protocol
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Final
from zlib import crc32

from tribunal.clusters.api import CutMode
from tribunal.clusters.simulated.process import NS_PER_MS, NS_PER_S, Process

if TYPE_CHECKING:
    from tribunal.clusters.simulated.frames import FrameStream
    from tribunal.clusters.simulated.network import Host, Link, SimulatedNetwork

KERNEL_BUFFER_BYTES: Final = 1 << 20  # sent, but not yet taken by the peer's application
LAST_TIMEOUT_NS: Final = 120 * NS_PER_S
ATTEMPTS: Final = 15


class Kind(IntEnum):
    """What a segment carries."""

    DATA = 0
    FIN = 1
    RST = 2


Segment = tuple[int, Kind, bytes]  # sequence number, kind, data


class SimulatedTransport(asyncio.Transport):
    """An `asyncio.Transport` in the simulated world."""

    FIRST_TIMEOUT_NS: ClassVar[int] = 200 * NS_PER_MS
    peer: "SimulatedTransport"
    _out: "Link"
    _back: "Link"

    def __init__(
        self, network: "SimulatedNetwork", host: "Host", process: Process, context: Context, *, number: int, port: int
    ) -> None:
        self.host = host
        self.process = process
        self.context = context
        self.number = number
        self.port = port
        self.is_client = False
        self.lost_for_good = False
        self.is_half_open = False  # the other end is gone, and this one is not notified
        self.stream: FrameStream | None = None
        self._network = network
        self._loop = network.loop
        self._boot = host.boot
        self._protocol: BaseProtocol | None = None
        self._closing = False  # the application wants no more of it
        self._gone = False  # the kernel has no such socket any more
        self._finished = False  # connection_lost was called
        # sending
        self._next_sequence = 0
        self._last_arrival_ns = 0
        self._unsent: list[Segment] = []
        self._timeout_ns = self.FIRST_TIMEOUT_NS
        self._attempts = 0
        self._unacknowledged_since_ns: int | None = None
        self._in_flight_bytes = 0
        self._high_bytes = KERNEL_BUFFER_BYTES + 65_536
        self._low_bytes = KERNEL_BUFFER_BYTES + 16_384
        self._writing_paused = False
        # receiving
        self._expected_sequence = 0
        self._received: deque[Segment] = deque()
        self._reading = True
        self._delivery_scheduled = False

    def join(self, peer: "SimulatedTransport", *, is_client: bool) -> None:
        """Connect this end with the other."""
        self.peer = peer
        self.is_client = is_client
        self._out = self._network.link(self.host, peer.host)
        self._back = self._network.link(peer.host, self.host)
        self.host.transports[self.number] = self

    def open(self, factory: Callable[[], BaseProtocol]) -> BaseProtocol:
        """Give the connection to the application; runs in its process."""
        protocol = self._protocol = factory()
        protocol.connection_made(self)
        if self._received:
            self._schedule_delivery()
        elif self._gone:
            self._schedule_finish(_reset())
        return protocol

    # asyncio.Transport

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Know `peername` and `sockname`."""
        if name == "peername":
            return (self.peer.host.address, self.peer.port)
        if name == "sockname":
            return (self.host.address, self.port)
        return default

    def set_protocol(self, protocol: BaseProtocol) -> None:
        """Hand what comes to another protocol."""
        self._protocol = protocol

    def get_protocol(self) -> BaseProtocol:
        """Return who gets what comes."""
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        """Tell whether it is closed or about to be."""
        return self._closing

    def is_reading(self) -> bool:
        """Tell whether received bytes are handed on."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """Keep what arrives in the kernel; the peer will have to wait once that is full."""
        self._reading = False

    def resume_reading(self) -> None:
        """Hand on again, beginning with what was kept."""
        if not self._reading:
            self._reading = True
            if self._received:
                self._schedule_delivery()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set when writing is paused: above `high` bytes beyond what the kernels hold."""
        high = (65_536 if low is None else 4 * low) if high is None else high
        self._high_bytes = KERNEL_BUFFER_BYTES + high
        self._low_bytes = KERNEL_BUFFER_BYTES + (high // 4 if low is None else low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the limits as they were set."""
        return self._low_bytes - KERNEL_BUFFER_BYTES, self._high_bytes - KERNEL_BUFFER_BYTES

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait for room in the kernels."""
        return max(0, self._in_flight_bytes - KERNEL_BUFFER_BYTES)

    def can_write_eof(self) -> bool:
        """TCP can be half closed."""
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, as one segment."""
        if self._closing or self._gone or not data:
            return
        frames = self._network.frames
        if frames.on:
            frames.write(self, bytes(data))
        else:
            self.send(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send parts as one segment."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """Close the sending direction."""
        self._end_stream()

    def close(self) -> None:
        """Close after what was written; connection_lost follows soon."""
        if self._closing:
            return
        self._closing = True
        self._end_stream()
        self._schedule_finish(None)

    def abort(self) -> None:
        """Close now, by reset; what a frame rule holds still goes on before the end."""
        if self._finished:
            return
        self._closing = True
        if self._holds():
            self._end_stream()
        else:
            self._segment(Kind.RST, b"")
        self._schedule_finish(None)

    # sending

    def send(self, data: bytes) -> None:
        """Send bytes past the frame rules."""
        self._in_flight_bytes += len(data)
        self._segment(Kind.DATA, data)
        if self._in_flight_bytes > self._high_bytes and not self._writing_paused:
            self._writing_paused = True
            if self._protocol is not None:
                self._protocol.pause_writing()

    def send_end(self) -> None:
        """Close the sending direction past the frame rules."""
        self._segment(Kind.FIN, b"")

    def _end_stream(self) -> None:
        """Close the sending direction, behind what a rule holds."""
        if self.stream is not None and self._holds():
            self.stream.put(None)
        else:
            self.send_end()

    def _holds(self) -> bool:
        return self.stream is not None and self.stream.waits()

    def _segment(self, kind: Kind, data: bytes) -> None:
        """Number a segment and send it, unless the kernel already knows that nothing gets through."""
        segment = (self._next_sequence, kind, data)
        self._next_sequence += 1
        if self._unsent or not self._passes():
            self._keep(segment)
        else:
            self._transmit(segment)

    def _transmit(self, segment: Segment) -> None:
        loop, process, peer = self._loop, self.process, self.peer
        sequence, kind, data = segment
        size = len(data)
        # Noted here and not on arrival: the order of sends itself must be alike in every run.
        loop.trace.numbers += (self.number, kind, crc32(data), size)
        if loop.trace.sink is not None:
            loop.trace.sink(f"{loop.event_count} {loop.now_ns} segment {self.number} {sequence} {kind} {size}")
        # What a busy process writes leaves when it is done; if it dies before that, it never left.
        departure_ns = loop.now_ns
        if process.busy_until_ns > departure_ns and process.alive:
            departure_ns = process.busy_until_ns
        arrival_ns = departure_ns + self._out.delay_ns(size)
        if arrival_ns <= self._last_arrival_ns:
            arrival_ns = self._last_arrival_ns + 1
        self._last_arrival_ns = arrival_ns
        loop.call_at_ns(
            arrival_ns, self._arrive, segment, departure_ns if process.alive else 0, process=peer.host.kernel
        )

    def _passes(self) -> bool:
        """Tell whether this kernel may send: both directions open, or not missing acknowledgements for long."""
        if self._out.cut is not None:
            return False
        if self._back.cut is None:
            self._unacknowledged_since_ns = None
            return True
        now_ns = self._loop.now_ns
        if self._unacknowledged_since_ns is None:
            self._unacknowledged_since_ns = now_ns
        return now_ns - self._unacknowledged_since_ns < self.FIRST_TIMEOUT_NS

    def _keep(self, segment: Segment) -> None:
        """Keep a segment for retransmission, in order; the first one starts the timer."""
        if self._out.cut is CutMode.DROP:
            self.lost_for_good = True
            return
        if not self._unsent:
            self._attempts = 0
            self._timeout_ns = self.FIRST_TIMEOUT_NS
            self._start_timer()
        self._unsent.append(segment)
        if len(self._unsent) > 1 and self._unsent[-2] > segment:
            self._unsent.sort()

    def _start_timer(self) -> None:
        due_ns = self._loop.now_ns + self._timeout_ns
        self._loop.call_at_ns(due_ns, self._retransmit, process=self.host.kernel)

    def _retransmit(self) -> None:
        """Try again; when something gets through, everything kept goes out in order."""
        if self._is_forgotten() or not self._unsent:
            self._unsent.clear()
            return
        if self._out.cut is None and self._back.cut is None and self.peer.host.up:
            kept, self._unsent = self._unsent, []
            for segment in kept:
                self._transmit(segment)
            return
        self._attempts += 1
        if self._attempts >= ATTEMPTS:
            self._unsent.clear()
            self._break(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
            return
        self._timeout_ns = min(2 * self._timeout_ns, LAST_TIMEOUT_NS)
        self._start_timer()

    # receiving: runs in the peer's kernel

    def _arrive(self, segment: Segment, departure_ns: int) -> None:
        """Bring a segment to the other end, or lose it."""
        peer = self.peer
        if departure_ns > self.process.died_ns or self._boot != self.host.boot:
            return  # it never left: the process died, or the machine did, before the time of departure
        sequence, kind, data = segment
        if self._out.cut is not None or not peer.host.up or sequence != peer._expected_sequence:
            self._keep(segment)
            return
        peer._expected_sequence += 1
        network = self._network
        network.message_count += 1
        network.byte_count += len(data)
        if self.is_half_open:
            return
        if peer._boot != peer.host.boot or peer._gone:
            self._answer_by_reset(kind)
        elif kind is Kind.RST:
            peer._break(_reset())
        else:
            peer._take(segment)

    def _take(self, segment: Segment) -> None:
        """Put a segment before the application: at once if it runs."""
        self._received.append(segment)
        if self._protocol is None or self._delivery_scheduled:
            return
        if self.process.runnable:
            self.context.run(self._deliver)
        else:
            self._schedule_delivery()

    def _schedule_delivery(self) -> None:
        self._delivery_scheduled = True
        self._loop.run_soon(self.process, self.context, self._deliver)

    def _deliver(self) -> None:
        """Hand what arrived to the application, as long as it wants more."""
        self._delivery_scheduled = False
        protocol = self._protocol
        assert isinstance(protocol, Protocol)
        try:
            while self._received and self._reading and not self._finished:
                _, kind, data = self._received.popleft()
                if self._closing:
                    continue
                if kind is Kind.DATA:
                    self.peer._acknowledged(len(data))
                    protocol.data_received(data)
                elif not protocol.eof_received():
                    self.close()
        except Exception as problem:  # noqa: BLE001  # as asyncio: a failing protocol loses its connection, no more
            self._loop.call_exception_handler({"message": "a protocol failed", "exception": problem})
            self.abort()

    def _acknowledged(self, size_bytes: int) -> None:
        """Count bytes as taken by the peer's application; let writing go on."""
        self._in_flight_bytes -= size_bytes
        if self._writing_paused and self._in_flight_bytes <= self._low_bytes and not self._closing:
            self._writing_paused = False
            if self._protocol is not None:
                self._loop.run_soon(self.process, self.context, self._protocol.resume_writing)

    def _answer_by_reset(self, kind: Kind) -> None:
        """Answer data for a socket that is not there."""
        if kind is Kind.DATA and self._back.cut is None:
            due_ns = self._loop.now_ns + self._back.delay_ns(0)
            self._loop.call_at_ns(due_ns, self._break, _reset(), process=self.host.kernel)

    # the end

    def reset_both(self) -> None:
        """Reset both ends at once."""
        self._break(_reset())
        self.peer._break(_reset())

    def vanish(self) -> None:
        """Forget the connection here and in the application; the other end goes on taking it for open."""
        self.peer.is_half_open = True
        self._closing = True
        self._received.clear()
        self._schedule_finish(_reset())

    def kernel_close(self) -> None:
        """Close for a process that died: by reset if it had not read everything."""
        self._closing = True
        if self._received and not self._holds():
            self._segment(Kind.RST, b"")
        else:
            self._end_stream()
        self._forget()

    def _break(self, problem: OSError) -> None:
        """End the connection from outside; the application learns why, after what it already has to read."""
        if self._gone or self._is_forgotten():
            return
        self._closing = True
        self._received.clear()
        self._unsent.clear()
        self._schedule_finish(problem)

    def _schedule_finish(self, problem: OSError | None) -> None:
        self._forget()
        if self._protocol is not None:
            self._loop.run_soon(self.process, self.context, self._finish, problem)

    def _forget(self) -> None:
        """Take the socket out of the kernel: what still comes is answered by a reset."""
        self._gone = True
        self.host.transports.pop(self.number, None)

    def _finish(self, problem: OSError | None) -> None:
        if self._finished:
            return
        self._finished = True
        assert self._protocol is not None
        self._protocol.connection_lost(problem)

    def _is_forgotten(self) -> bool:
        """Tell whether the machine was restarted since: its kernel knows nothing of this connection."""
        return self._boot != self.host.boot

    def __repr__(self) -> str:
        return f"SimulatedTransport({self.number}: {self.host.name}:{self.port} to {self.peer.host.name})"


def _reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
