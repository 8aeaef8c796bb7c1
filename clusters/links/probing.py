"""Probes: connections made as a node would make them, which ask for the API versions and time the answer."""

import asyncio
import contextlib
import struct
from typing import Final

import msgspec

from tribunal.clusters.api import Link
from tribunal.clusters.links.relay import Relay

PROBE_COUNT: Final = 3
PROBE_WAIT_MS: Final = 1500
PATIENT_WAIT_MS: Final = 5000  # where nobody has answered in time
SILENCE_MS: Final = 120  # how long a probe on a cut link is given to prove the cut wrong
# ApiVersions version 0, correlation id 0, client id "probe": every Kafka-like node answers it.
PROBE_REQUEST: Final = struct.pack(">ihhih5s", 15, 18, 0, 0, 5, b"probe")
CORRELATION: Final = slice(8, 12)  # where the correlation id stands in a request, its length included
# ConnectRequest of a new session of 2 s, and a ping in it, as any client of ZooKeeper sends them.
ZOOKEEPER_HELLO: Final = struct.pack(">iiqiqi16sB", 45, 0, 0, 2_000, 0, 16, bytes(16), 0)
ZOOKEEPER_PING: Final = struct.pack(">iii", 8, -2, 11)
GREETING_MS: Final = 2_000
PADDING_MAX: Final = 32_000


def padded_request(size: int) -> bytes:
    """Return a probe of about this size: its client id is long."""
    padding = max(1, min(size - 14, PADDING_MAX))
    return struct.pack(">ihhih", 10 + padding, 18, 0, 7, padding) + b"p" * padding


class ProbeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the probe packets of one link."""

    link: Link
    sent: int
    delivered: int  # requests that the relay passed on, by its counters
    answered: int

    def facts(self) -> dict[str, object]:
        """Return it for the recording."""
        return {"link": str(self.link), "sent": self.sent, "delivered": self.delivered, "answered": self.answered}


class ProbeLanguage(msgspec.Struct, frozen=True, kw_only=True):
    """What a probed node understands.

    request:     what is asked; its answer begins with its length.
    greeting:    what is said first on a connection, and answered; empty: nothing.
    padded:      whether a request can be made longer.
    correlated:  whether a request has a correlation id, which its answer begins with.
    """

    request: bytes
    greeting: bytes
    padded: bool
    correlated: bool


KAFKA: Final = ProbeLanguage(request=PROBE_REQUEST, greeting=b"", padded=True, correlated=True)
ZOOKEEPER: Final = ProbeLanguage(request=ZOOKEEPER_PING, greeting=ZOOKEEPER_HELLO, padded=False, correlated=False)


class Channel:
    """A connection from a node's own address to another node's relay, kept open for probing."""

    def __init__(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, language: ProbeLanguage
    ) -> None:
        self.link = link
        self.reader = reader
        self.writer = writer
        self._language = language
        self._questions = 0

    async def greet(self) -> None:
        """Say what has to be said first; `OSError` and the like when nobody answers."""
        if self._language.greeting:
            self._write(self._language.greeting)
            await self._answer()

    async def ask(self, relay: Relay | None, count: int, wait_ms: int) -> ProbeAnswer:
        """Send probe packets; return how many passed the relay and how many answers came back.

        What answers earlier packets, late on a busy machine, is no answer to these.
        """
        before = relay.near.delivered_bytes if relay else 0
        answered = 0
        self._questions += 1
        request = self._language.request
        if self._language.correlated:
            request = request[: CORRELATION.start] + struct.pack(">i", self._questions) + request[CORRELATION.stop :]
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            self._write(request * count)
            await self.writer.drain()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    while answered < count:
                        answered += self._is_of_last(await self._answer())
        after = relay.near.delivered_bytes if relay else 0
        return ProbeAnswer(
            link=self.link, sent=count, delivered=(after - before) // len(self._language.request), answered=answered
        )

    async def round_trip_ms(self, size: int, wait_ms: int) -> float | None:
        """Return how long one probe of this size takes, None when no answer comes."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.timeout(wait_ms / 1000):
                self._write(self._of_size(size))
                await self._answer()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return None
        return (loop.time() - began_s) * 1000

    def _write(self, data: bytes) -> None:
        # (uvloop calls it a RuntimeError to write to what has been reset.)
        if self.writer.transport.is_closing():
            raise ConnectionResetError("the probe's connection has gone")
        self.writer.write(data)

    def _of_size(self, size: int) -> bytes:
        return padded_request(size) if self._language.padded else self._language.request

    async def _answer(self) -> bytes:
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    def _is_of_last(self, answer: bytes) -> bool:
        """Return whether it answers the last question; a language without correlation ids cannot tell."""
        return not self._language.correlated or answer[:4] == struct.pack(">i", self._questions)

    def close(self) -> None:
        """Hang up."""
        self.writer.transport.abort()
