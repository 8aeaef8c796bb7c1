"""Producer ids, taken from the controller in blocks and given out one by one (InitProducerId)."""

import asyncio
from typing import Final

from replog.broker.identity import BrokerIdentity
from replog.coordinators.transaction_coordinator import names_half_a_producer
from replog.errors import Error
from replog.node.net.controller_link import ControllerLink, NoController
from replog.node.net.server import ServerRequest
from replog.node.tasks import Tasks
from replog.wire.messages.allocate_producer_ids import EXCHANGE, AllocateProducerIdsRequest
from replog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

REQUEST_TIMEOUT_MS: Final = 5_000


class ProducerIds:
    """The block of ids in use and the request for the next."""

    def __init__(self, link: ControllerLink, tasks: Tasks, identity: BrokerIdentity) -> None:
        self.link = link
        self.tasks = tasks
        self.identity = identity
        self._next = 0
        self._end = 0
        self._allocating = asyncio.Lock()

    def init(self, request: ServerRequest[InitProducerIdRequest, InitProducerIdResponse]) -> None:
        """Give an idempotent producer its id."""
        if names_half_a_producer(request.body):
            request.reply(InitProducerIdResponse(error_code=Error.INVALID_REQUEST))
        elif self._next < self._end:
            request.reply(_answer(self.take()))
        else:
            self.tasks.start(self._init_later(request))

    async def _init_later(self, request: ServerRequest[InitProducerIdRequest, InitProducerIdResponse]) -> None:
        await self.stock_up()
        request.reply(_answer(self.take()))

    async def stock_up(self) -> None:
        """Ask the controller for the next block, if this one is used up."""
        async with self._allocating:
            if self._next >= self._end:
                await self._allocate()

    @property
    def is_empty(self) -> bool:
        """Return whether the next one has to be asked for."""
        return self._next >= self._end

    def take(self) -> int | None:
        """Return an id that nobody had before, None when we have none."""
        if self._next >= self._end:
            return None
        taken = self._next
        self._next += 1
        return taken

    async def _allocate(self) -> None:
        body = AllocateProducerIdsRequest(broker_id=self.identity.node_id, broker_epoch=self.identity.broker_epoch)
        try:
            answer = await self.link.send(EXCHANGE, body, timeout_ms=REQUEST_TIMEOUT_MS)
        except NoController:
            return
        if answer.error_code is Error.NONE:
            self._next = answer.producer_id_start
            self._end = answer.producer_id_start + answer.producer_id_len
        elif answer.error_code is Error.NOT_CONTROLLER:
            self.link.drop()


def _answer(producer_id: int | None) -> InitProducerIdResponse:
    if producer_id is None:
        return InitProducerIdResponse(error_code=Error.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id)
