"""One connection that asks one question after another: for the harness's own look at a cluster.

Not a client library: no metadata, no retries. What it asks is decided by its callers, and versions are fixed,
because both sides are known.
"""

import asyncio
from typing import Final

from replog.errors import Error
from replog.host.world import RealEntropy
from replog.security.sasl import SaslClient
from replog.security.scram import AuthenticationFailed
from replog.wire.codec import decode_response, encode_request
from replog.wire.decoder import MalformedMessage
from replog.wire.exchange import Exchange, Q, R
from replog.wire.messages import sasl_authenticate, sasl_handshake
from tribunal.clusters.secured.door import OPEN, Door

FRAME_BYTES_MAX: Final = 1 << 26
HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2

# What asking may end with: the node is gone, silent, answers nonsense, or does not let us in.
FAILURES: Final = (OSError, TimeoutError, asyncio.IncompleteReadError, MalformedMessage, AuthenticationFailed)


class Asking:
    """A connection to one node."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._correlation_id = 0

    @classmethod
    async def open(cls, endpoint: tuple[str, int], client_id: str, timeout_ms: int, door: Door = OPEN) -> "Asking":
        """Connect, and log in where that is asked for; one of FAILURES when that cannot be."""
        async with asyncio.timeout(timeout_ms / 1000):
            reader, writer = await asyncio.open_connection(*endpoint, ssl=door.context)
        asking = cls(reader, writer, client_id)
        if door.access.mechanism:
            try:
                await asking.log_in(door, timeout_ms)
            except BaseException:
                asking.close()
                raise
        return asking

    async def log_in(self, door: Door, timeout_ms: int) -> None:
        """Say who we are (KIP-152); `AuthenticationFailed` when that is not taken."""
        exchange = SaslClient(door.access, RealEntropy().uuid().hex)
        wanted = sasl_handshake.SaslHandshakeRequest(mechanism=door.access.mechanism)
        agreed = await self.ask(sasl_handshake.EXCHANGE, HANDSHAKE_VERSION, wanted, timeout_ms)
        if agreed.error_code is not Error.NONE:
            raise AuthenticationFailed(agreed.error_code.name)
        token: bytes | None = exchange.first
        while token is not None:
            body = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=token)
            answer = await self.ask(sasl_authenticate.EXCHANGE, AUTHENTICATE_VERSION, body, timeout_ms)
            if answer.error_code is not Error.NONE:
                raise AuthenticationFailed(answer.error_code.name)
            token = exchange.answer(bytes(answer.auth_bytes))

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
