"""Admin requests of clients, passed on to the active controller and its answers passed back.

A request that surely was not carried out (no leader known, no connection, NOT_CONTROLLER) is sent again until the client's
time is over. One that was lost under way is only if it changes nothing: creating a topic twice would report that it
exists already. The client is told REQUEST_TIMED_OUT then, which says that nobody knows.
"""

import asyncio
from typing import Final

from replog.errors import Error
from replog.node.api.refusals import REFUSALS
from replog.node.net.controller_link import ControllerLink, NoController
from replog.node.net.handlers import Handlers
from replog.node.net.server import ServerRequest
from replog.node.tasks import Tasks
from replog.ports import World
from replog.wire import exchanges
from replog.wire.apis import Api
from replog.wire.error_codes import errors_in
from replog.wire.exchanges import Exchange, Q, R

RETRY_AFTER_MS: Final = 100
PATIENCE_MS: Final = 30_000  # where the request has no timeout of its own
LOOKS: Final = frozenset({Api.DESCRIBE_QUORUM, Api.LIST_PARTITION_REASSIGNMENTS})  # change nothing: may be asked twice


class Forwarding:
    """The way of admin requests through this broker."""

    def __init__(self, world: World, link: ControllerLink, tasks: Tasks) -> None:
        self.world = world
        self.tasks = tasks
        self.link = link

    def answer(self, handlers: Handlers) -> None:
        """Let these requests be passed on."""
        self._pass_on(handlers, exchanges.CREATE_TOPICS)
        self._pass_on(handlers, exchanges.DELETE_TOPICS)
        self._pass_on(handlers, exchanges.CREATE_PARTITIONS)
        self._pass_on(handlers, exchanges.INCREMENTAL_ALTER_CONFIGS)
        self._pass_on(handlers, exchanges.ALTER_CONFIGS)
        self._pass_on(handlers, exchanges.ELECT_LEADERS)
        self._pass_on(handlers, exchanges.ELECT_DESIGNATED_LEADERS)
        self._pass_on(handlers, exchanges.ALTER_PARTITION_REASSIGNMENTS)
        self._pass_on(handlers, exchanges.LIST_PARTITION_REASSIGNMENTS)
        self._pass_on(handlers, exchanges.UNREGISTER_BROKER)
        self._pass_on(handlers, exchanges.UPDATE_FEATURES)
        self._pass_on(handlers, exchanges.ADD_RAFT_VOTER)
        self._pass_on(handlers, exchanges.REMOVE_RAFT_VOTER)
        self._pass_on(handlers, exchanges.DESCRIBE_QUORUM)

    def _pass_on(self, handlers: Handlers, exchange: Exchange[Q, R]) -> None:
        def handle(request: ServerRequest[Q, R]) -> None:
            # With its body: should the connection end before the task begins, the request lets go of it.
            self.tasks.start(self._forward(exchange, request, request.body))

        handlers.on(exchange, handle)

    async def _forward(self, exchange: Exchange[Q, R], request: ServerRequest[Q, R], body: Q) -> None:
        patience_ms = max(1, getattr(body, "timeout_ms", PATIENCE_MS))
        deadline_ms = self.world.clock.now_ms() + patience_ms
        request.reply(await self._answer(exchange, body, request.version, deadline_ms))

    async def _answer(self, exchange: Exchange[Q, R], body: Q, version: int, deadline_ms: int) -> R:
        while True:
            left_ms = deadline_ms - self.world.clock.now_ms()
            if left_ms <= 0:
                return REFUSALS.of(exchange, body, Error.REQUEST_TIMED_OUT)
            try:
                # A client's patience is not the connection's: heartbeats and others' requests are under way on it.
                async with asyncio.timeout(left_ms / 1000):
                    answer = await self.link.send(exchange, body, version=version, timeout_ms=max(left_ms, PATIENCE_MS))
            except TimeoutError:
                return REFUSALS.of(exchange, body, Error.REQUEST_TIMED_OUT)
            except NoController as problem:
                if problem.was_sent and exchange.api not in LOOKS:
                    return REFUSALS.of(exchange, body, Error.REQUEST_TIMED_OUT)
            else:
                if not any(error is Error.NOT_CONTROLLER for error in errors_in(answer)):
                    return answer
                self.link.drop()  # it did nothing: it is not active
            await asyncio.sleep(RETRY_AFTER_MS / 1000)
