"""Connections to other brokers for what coordinators and leaders ask of each other; one a broker, opened when needed.

An answer or None: None says that nobody knows whether the request arrived. What is asked here can be asked again.
"""

import asyncio
from typing import Any, Final

import msgspec

from replog.client.connection import Connection, ConnectionLost, UnsupportedVersion
from replog.node.replicas import Replicas
from replog.types import NodeId
from replog.wire.apis import Api

OPEN_TIMEOUT_MS: Final = 5_000
REQUEST_TIMEOUT_MS: Final = 30_000


class BrokerLinks:
    """Ways to the other brokers, and to ourselves."""

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self._connections: dict[NodeId, Connection] = {}
        self._opening: dict[NodeId, asyncio.Lock] = {}

    async def send(self, node: NodeId, api: Api, body: msgspec.Struct, *, version: int | None = None) -> Any | None:
        """Ask a broker; None when it cannot be had or does not answer."""
        try:
            connection = await self._open(node)
            if connection is None:
                return None
            return await connection.send(api, body, version=version, timeout_ms=REQUEST_TIMEOUT_MS)
        except (ConnectionLost, UnsupportedVersion) as problem:
            self.replicas.world.journal.log("debug", f"{api.name} to broker {node}: {problem}")
            return None

    def close(self) -> None:
        """Close them all."""
        for connection in self._connections.values():
            connection.close()

    async def _open(self, node: NodeId) -> Connection | None:
        async with self._opening.setdefault(node, asyncio.Lock()):
            endpoint = self.replicas.metadata.endpoint_of(node)
            known = self._connections.get(node)
            if known is not None and known.is_open and known.endpoint == endpoint:
                return known
            if known is not None:
                known.close()
                del self._connections[node]
            if endpoint is None:
                return None
            connection = Connection(self.replicas.world, endpoint, f"broker-{self.replicas.node_id}-coordinator")
            await connection.open(timeout_ms=OPEN_TIMEOUT_MS)
            self._connections[node] = connection
            return connection
