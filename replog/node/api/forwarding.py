"""Admin requests of clients, passed on to the active controller and its answers passed back.

A request that nobody took (no leader known, no connection) is sent again until the client's time is over, a minute at most, and so is one
that was answered NOT_CONTROLLER, as Apache Kafka does: a controller that is deposed with the request's records written but
not committed answers that, too (SPEC 2.14), its successor may commit them, and the repetition is then refused (a topic
exists already, or is gone). One that was lost under way is sent again only if it changes nothing; the client is then
answered REQUEST_TIMED_OUT: the outcome is unknown.

Where `controller_mutation_rate` holds for a client its request is passed on in an envelope, so that the controller counts it as the client's. Whoever the
controller lets wait (`throttle_time_ms`) is not read for that time (KIP-599).
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from replog.controller import controller
from replog.controller.authorization import Peer
from replog.controller.served_api import AnyServedApi, ServedApi
from replog.errors import Error
from replog.metadata.client_quotas import MUTATION_RATE, ClientQuotas
from replog.node.net.controller_link import ControllerLink, NoController
from replog.node.net.envelopes import USER_PREFIX, enclosed
from replog.node.net.handlers import Handlers, contained
from replog.node.net.server import ServerRequest
from replog.node.quorum import member
from replog.node.tasks import Tasks
from replog.ports import World
from replog.wire.apis import BROKER_APIS, SECURITY_APIS, Api
from replog.wire.codec import decode_response
from replog.wire.error_codes import errors_in
from replog.wire.exchange import Q, R
from replog.wire.messages import envelope

RETRY_AFTER_MS: Final = 100
RETRIED_MS_MAX: Final = 60_000  # Kafka's: whatever time a client has
DEFAULT_TIMEOUT_MS: Final = 30_000  # where the request has no timeout of its own
MUTATIONS: Final = (Api.CREATE_TOPICS, Api.CREATE_PARTITIONS, Api.DELETE_TOPICS)


class Asker(NamedTuple):
    """The client whose request it is."""

    peer: Peer
    client_id: str | None


class Forwarding:
    """The way of admin requests through this broker."""

    def __init__(
        self, world: World, link: ControllerLink, tasks: Tasks, quotas: Callable[[], ClientQuotas] = ClientQuotas
    ) -> None:
        self.world = world
        self._quotas = quotas
        self.tasks = tasks
        self.link = link

    def answer(self, handlers: Handlers) -> None:
        """Pass on what brokers offer, controllers answer, and nobody here has answered so far."""
        decided: list[AnyServedApi] = [one.any_served for one in controller.APIS.values()]
        for served in (*decided, *(one.any_served for one in member.APIS)):
            if served.api in {**BROKER_APIS, **SECURITY_APIS} and served.api not in handlers.by_api:
                self._pass_on(handlers, served)

    def _pass_on(self, handlers: Handlers, served: ServedApi[Q, R]) -> None:
        def handle(request: ServerRequest[Q, R]) -> None:
            # With its body: should the connection end before the task begins, the request lets go of it.
            body = request.body
            failed = contained(self.world.journal, request, served, body)
            self.tasks.start(self._forward(served, request, body), failed=failed)

        handlers.on(served, handle)

    async def _forward(self, served: ServedApi[Q, R], request: ServerRequest[Q, R], body: Q) -> None:
        own_timeout_ms = max(1, getattr(body, "timeout_ms", DEFAULT_TIMEOUT_MS))
        answer = await self._answer(served, request, body, own_timeout_ms)
        if answer is None:
            return
        throttle_ms = getattr(answer, "throttle_time_ms", 0)
        if throttle_ms:
            request.mute(throttle_ms)
        request.reply(answer)

    def _asker(self, served: ServedApi[Q, R], request: ServerRequest[Q, R]) -> Asker | None:
        """Return who asks, where the controller has to know."""
        if served.api not in MUTATIONS:
            return None
        asker = Asker(request.peer, request.client_id)
        return asker if counts_for(asker, self._quotas()) else None

    async def _answer(
        self, served: ServedApi[Q, R], request: ServerRequest[Q, R], body: Q, own_timeout_ms: int
    ) -> R | None:
        """Return the controller's answer; None when nobody took the request, and nobody waits for its answer any more.

        Who sends a request and goes is obeyed, as by Kafka: it is passed on once whoever still waits.
        """
        asker, version, began_ms = self._asker(served, request), request.version, self.world.clock.now_ms()
        while True:
            left_ms = own_timeout_ms - (self.world.clock.now_ms() - began_ms)
            if left_ms <= 0 or self.world.clock.now_ms() >= began_ms + RETRIED_MS_MAX:
                return served.refused(body, Error.REQUEST_TIMED_OUT)
            try:
                # A client's timeout is not the connection's: heartbeats and others' requests are under way on it.
                async with asyncio.timeout(left_ms / 1000):
                    timeout_ms = max(left_ms, DEFAULT_TIMEOUT_MS)
                    if asker is None:
                        answer = await self.link.send(
                            served.exchange,
                            body,
                            version=version,
                            timeout_ms=timeout_ms,
                            must_not_repeat=not served.changes_nothing,
                        )
                    else:
                        answer = await send_enclosed(self.link, served, body, version, timeout_ms, asker)
            except TimeoutError:
                return served.refused(body, Error.REQUEST_TIMED_OUT)
            except NoController as problem:
                if problem.was_sent and not served.changes_nothing:
                    return served.refused(body, Error.REQUEST_TIMED_OUT)
            else:
                if not any(error is Error.NOT_CONTROLLER for error in errors_in(answer)):
                    return answer
                self.link.drop()  # it is not active, or not any more
            await asyncio.sleep(RETRY_AFTER_MS / 1000)
            if request.is_answered:  # its connection is gone
                return None


async def send_enclosed(
    link: ControllerLink, served: ServedApi[Q, R], body: Q, version: int, timeout_ms: int, asker: Asker
) -> R:
    """Ask the controller in the name of a client: what it counts is the client's. `NoController` as the link."""
    outer = enclosed(served.exchange, version, asker.client_id, asker.peer, body)
    answer = await link.send(
        envelope.EXCHANGE, outer, timeout_ms=timeout_ms, must_not_repeat=not served.changes_nothing
    )
    if answer.error_code is not Error.NONE or answer.response_data is None:
        return served.refused(body, answer.error_code)
    return decode_response(served.exchange, version, answer.response_data)[1]


def counts_for(asker: Asker, quotas: ClientQuotas) -> bool:
    """Return whether the controller has to know who it is that has partitions made."""
    user = asker.peer.principal.removeprefix(USER_PREFIX)
    return quotas.share_of(MUTATION_RATE, user, asker.client_id or "") is not None
