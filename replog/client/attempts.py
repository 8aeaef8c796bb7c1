"""Attempts to open one connection that several want: one at a time, for all of them.

Who comes while another opens it waits. When that succeeds they share the connection, and when it fails the failure: were each to try
again, the last of ten would wait for ten time-outs of a node that answers nothing, and that perhaps nobody needs any more.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from replog.client.connection import Connection, ConnectionLost
from replog.config import Endpoint


class Attempts:
    """The attempts to reach one node."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.failure_count = 0
        self.failed: Endpoint | None = None  # in the last failure, and why
        self.reason = ""

    @asynccontextmanager
    async def turn(self) -> AsyncIterator["Turn"]:
        """Wait until nobody else opens a connection."""
        turn = Turn(self)
        async with self._lock:
            yield turn


class Turn:
    """Who waits, and then may open one."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._failure_count = attempts.failure_count

    async def open(self, connection: Connection, *, timeout_ms: int) -> None:
        """Open it; `ConnectionLost` at once when its endpoint could not be reached while we waited."""
        attempts = self._attempts
        if attempts.failure_count != self._failure_count and attempts.failed == connection.endpoint:
            raise ConnectionLost(attempts.reason)
        try:
            await connection.open(timeout_ms=timeout_ms)
        except ConnectionLost as problem:
            attempts.failure_count += 1
            attempts.failed, attempts.reason = connection.endpoint, str(problem)
            raise
