"""The channel to one registration of one broker: its control requests in order, each until it is answered (KIP-380)."""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from replog.client.connection import Connection, ConnectionLost, UnsupportedVersion
from replog.config import Endpoint
from replog.errors import Error
from replog.metadata.state import Broker
from replog.node.tasks import Tasks
from replog.ports import World
from replog.wire.apis import api_of
from replog.wire.exchange import exchange_of
from replog.zookeeper.control_queue import ControlQueue, ControlRequest
from replog.zookeeper.controller import ControlAnswered

RETRY_MS: Final = 100
TIMEOUT_MS: Final = 5_000


class ControlChannel:
    """A queue and the connection that empties it."""

    def __init__(
        self, world: World, node_id: int, broker: Broker, tasks: Tasks, answered: Callable[[ControlAnswered], None]
    ) -> None:
        self.world = world
        self.queue = ControlQueue(broker.broker_id, broker.epoch)
        self._endpoint = Endpoint(broker.endpoints[0].host, broker.endpoints[0].port)
        self._client_id = f"controller-{node_id}"
        self._answered = answered
        self._connection: Connection | None = None
        self._more = asyncio.Event()
        self._is_closed = False
        tasks.start(self._run())

    def put(self, request: ControlRequest) -> None:
        """Say this after everything else."""
        self.queue.put(request)
        self._more.set()

    def close(self) -> None:
        """Say nothing more: the broker is gone, or another controller talks to it."""
        self._is_closed = True
        self._more.set()
        if self._connection is not None:
            self._connection.close()

    async def _run(self) -> None:
        while not self._is_closed:
            request = self.queue.next
            if request is None:
                self._more.clear()
                await self._more.wait()
                continue
            try:
                connection = await self._connect()
                answer = await connection.send(
                    exchange_of(api_of(request.body)), request.body, version=request.version, timeout_ms=TIMEOUT_MS
                )
            except (ConnectionLost, UnsupportedVersion) as problem:
                self.world.journal.log("debug", f"control request to {self.queue.node}: {problem}")
                self._connection = None
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            if not self._is_closed:
                self._take(request, answer)

    def _take(self, request: ControlRequest, answer: msgspec.Struct) -> None:
        error = getattr(answer, "error_code", Error.NONE)
        if self.queue.on_answer(request, error):
            self._answered(ControlAnswered(node=self.queue.node, request=request, response=answer))
            return
        journal = self.world.journal
        journal.log("info", f"{api_of(request.body).name} was refused by broker {self.queue.node}: {error.name}")
        if error is Error.STALE_BROKER_EPOCH:
            journal.probe("control_request_was_stale")

    async def _connect(self) -> Connection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        connection = Connection(self.world, self._endpoint, self._client_id)
        await connection.open(timeout_ms=TIMEOUT_MS)
        if self._is_closed:
            connection.close()
            raise ConnectionLost("closed by us")
        self._connection = connection
        return connection
