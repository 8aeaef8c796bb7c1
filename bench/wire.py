"""The protocol itself, for benches that need more speed or longer timeouts than a client library has."""

import asyncio
import struct
from collections.abc import Mapping
from typing import Any

from replog.wire.apis import Api
from replog.wire.codec import decode_response, encode_request
from replog.wire.exchange import exchange_of


class Wire:
    """One connection, one request at a time, in the given versions."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, versions: Mapping[Api, int]) -> None:
        self._reader = reader
        self._writer = writer
        self._versions = versions

    @classmethod
    async def open(cls, endpoint: tuple[str, int], versions: Mapping[Api, int]) -> "Wire":
        """Connect to a node."""
        return cls(*await asyncio.open_connection(*endpoint), versions)

    async def ask(self, api: Api, body: Any) -> Any:
        """Send a request and return the answer's body."""
        version = self._versions[api]
        self._writer.write(encode_request(api, version, 1, "bench", body))
        size = struct.unpack(">i", await self._reader.readexactly(4))[0]
        return decode_response(exchange_of(api), version, memoryview(await self._reader.readexactly(size)))[1]
