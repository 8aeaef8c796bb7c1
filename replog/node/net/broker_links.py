"""Connections to other brokers for what coordinators and leaders ask of each other; one a broker, opened when needed.

An answer or None: None says that nobody knows whether the request arrived. What is asked here can be asked again. Nobody waits
for a broker that has been fenced meanwhile, or has registered anew: others lead what it led, and whoever has lost its power hangs up on nobody.
What a broker asks itself goes straight to its own handler, without a socket: often coordinator and leader are one.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, cast

import msgspec

from replog.broker.metadata import BrokerMetadata
from replog.client.attempts import Attempts
from replog.client.connection import Connection, ConnectionLost, UnsupportedVersion
from replog.config.access import Access
from replog.controller.authorization import ANONYMOUS
from replog.ports import World
from replog.types import BrokerEpoch, NodeId
from replog.wire.apis import BROKER_APIS, Api
from replog.wire.exchange import Exchange, Q, R

OPEN_TIMEOUT_MS: Final = 5_000
REQUEST_TIMEOUT_MS: Final = 30_000
LOOK_MS: Final = 500


class OwnRequest(Generic[Q, R]):
    """What a node asks itself; to its handlers it is an `AwaitedRequest` like one of a connection."""

    __slots__ = ("answer", "api", "body", "client_id", "peer", "peer_host", "version")

    def __init__(self, api: Api, version: int, body: Q, client_id: str) -> None:
        self.api = api
        self.version = version
        self.body = body
        self.client_id = client_id
        self.peer_host = "itself"
        self.peer = ANONYMOUS
        self.answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    @property
    def is_answered(self) -> bool:
        """Return whether nobody waits any more."""
        return self.answer.done()

    def reply(self, body: R) -> None:
        """Answer; too late it does nothing."""
        if not self.answer.done():
            self.answer.set_result(body)


class Link(NamedTuple):
    """A connection to a broker, and the broker epoch that was known when it was opened."""

    connection: Connection
    broker_epoch: BrokerEpoch | None


class BrokerLinks:
    """Ways to the other brokers, and to ourselves."""

    def __init__(self, world: World, metadata: BrokerMetadata, access: Access) -> None:
        self.world = world
        self.access = access
        self.metadata = metadata
        self._own: dict[Api, Callable[[OwnRequest[msgspec.Struct, msgspec.Struct]], None]] = {}
        self._links: dict[NodeId, Link] = {}
        self._attempts: dict[NodeId, Attempts] = {}

    def answer_ourselves(self, exchange: Exchange[Q, R], handler: Callable[[OwnRequest[Q, R]], None]) -> None:
        """Let this handler take what is asked of ourselves."""
        self._own[exchange.api] = cast("Callable[[OwnRequest[msgspec.Struct, msgspec.Struct]], None]", handler)

    async def send(self, node: NodeId, exchange: Exchange[Q, R], body: Q, *, version: int | None = None) -> R | None:
        """Ask a broker; None when it cannot be had or does not answer."""
        if node == self.metadata.node_id and exchange.api in self._own:
            return await self._ask_ourselves(exchange, body, version)
        try:
            link = await self._open(node)
            if link is None:
                return None
            answer = link.connection.send(exchange, body, version=version, timeout_ms=REQUEST_TIMEOUT_MS)
            while not answer.done():
                await asyncio.wait([answer], timeout=LOOK_MS / 1000)
                if not answer.done() and self._is_gone(node, link):
                    link.connection.close()  # it will not answer: somebody else leads by now, and requests wait behind this
            return await answer
        except (ConnectionLost, UnsupportedVersion) as problem:
            self.world.journal.log("debug", f"{exchange} to broker {node}: {problem}")
            return None

    async def _ask_ourselves(self, exchange: Exchange[Q, R], body: Q, version: int | None) -> R | None:
        newest = BROKER_APIS[exchange.api].last if version is None else version
        request: OwnRequest[Q, R] = OwnRequest(
            exchange.api, newest, body, f"broker-{self.metadata.node_id}-coordinator"
        )
        self._own[exchange.api](cast("OwnRequest[msgspec.Struct, msgspec.Struct]", request))
        if request.answer.done():
            return request.answer.result()
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
                return await request.answer
        except TimeoutError:
            return None

    def _is_gone(self, node: NodeId, link: Link) -> bool:
        broker = self.metadata.image.brokers.get(node)
        if broker is None or broker.fenced or self.metadata.endpoint_of(node) != link.connection.endpoint:
            return True
        # Fenced and back within one look, as a broker is that comes back after a power failure.
        return broker.epoch != link.broker_epoch

    def close(self) -> None:
        """Close them all."""
        for link in self._links.values():
            link.connection.close()

    async def _open(self, node: NodeId) -> Link | None:
        async with self._attempts.setdefault(node, Attempts()).turn() as turn:
            endpoint = self.metadata.endpoint_of(node)
            broker = self.metadata.image.brokers.get(node)
            epoch = None if broker is None else broker.epoch
            known = self._links.get(node)
            if known is not None:
                is_open, to = known.connection.is_open, known.connection.endpoint
                if is_open and (to, known.broker_epoch) == (endpoint, epoch):
                    return known
                known.connection.close()
                del self._links[node]
            if endpoint is None:
                return None
            connection = Connection(self.world, endpoint, f"broker-{self.metadata.node_id}-coordinator", self.access)
            await turn.open(connection, timeout_ms=OPEN_TIMEOUT_MS)
            link = self._links[node] = Link(connection, epoch)
            return link
