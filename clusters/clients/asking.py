"""One connection that asks one question after another: for the harness's own look at a cluster.

Not a client library: no metadata, no retries. What it asks is decided by its callers, and versions are fixed,
because both sides are known.
"""

import asyncio
from typing import Final

from replog.wire.codec import decode_response, encode_request
from replog.wire.decoder import MalformedMessage
from replog.wire.exchange import Exchange, Q, R

FRAME_BYTES_MAX: Final = 1 << 26

# What asking may end with: the node is gone, silent, or answers nonsense.
FAILURES: Final = (OSError, TimeoutError, asyncio.IncompleteReadError, MalformedMessage)


class Asking:
    """A connection to one node."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._correlation_id = 0

    @classmethod
    async def open(cls, endpoint: tuple[str, int], client_id: str, timeout_ms: int) -> "Asking":
        """Connect; one of FAILURES when that cannot be."""
        async with asyncio.timeout(timeout_ms / 1000):
            reader, writer = await asyncio.open_connection(*endpoint)
        return cls(reader, writer, client_id)

    async def ask(self, exchange: Exchange[Q, R], version: int, body: Q, timeout_ms: int) -> R:
        """Send one request and return its answer's body; after one of FAILURES the connection is useless."""
        self._correlation_id += 1
        self._writer.write(encode_request(exchange.api, version, self._correlation_id, self._client_id, body))
        async with asyncio.timeout(timeout_ms / 1000):
            length = int.from_bytes(await self._reader.readexactly(4))
            if not 0 < length <= FRAME_BYTES_MAX:
                raise MalformedMessage(f"frame of {length} bytes")
            frame = await self._reader.readexactly(length)
        correlation_id, answer = decode_response(exchange, version, frame)
        if correlation_id != self._correlation_id:
            raise MalformedMessage(f"answer {correlation_id} to question {self._correlation_id}")
        return answer

    def close(self) -> None:
        """Hang up."""
        self._writer.transport.abort()
