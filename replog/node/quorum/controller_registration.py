"""A controller's registration with whoever is active: where it listens and which features it supports (KIP-919).

The committed metadata is compared with what this process is; the process registers until they agree, so that no answer
has to be trusted, and a controller that does not have the registration gets it again. The active controller registers itself without a connection.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from replog.config.listeners import ListenerConfig
from replog.errors import Error
from replog.metadata.features import SUPPORTED
from replog.metadata.image import Image
from replog.metadata.state import CONTROLLERS_LEVEL
from replog.node.net.controller_link import ControllerLink, NoController
from replog.node.tasks import Tasks
from replog.ports import World
from replog.types import NodeId
from replog.wire.messages import controller_registration as m

TIMEOUT_MS: Final = 2_000
PAUSE_MS: Final = 500  # for the metadata to come back, or before the next try


class ControllerRegistration:
    """Keeps one controller's committed registration true."""

    def __init__(
        self,
        world: World,
        tasks: Tasks,
        link: ControllerLink,
        *,
        node_id: NodeId,
        incarnation: UUID,
        listeners: Sequence[ListenerConfig],
        image: Callable[[], Image],
        register_here: Callable[
            [m.ControllerRegistrationRequest], "asyncio.Future[m.ControllerRegistrationResponse] | None"
        ],
    ) -> None:
        """`register_here`: hand the request to this very node, if it is the active controller; None if it is not."""
        self.world = world
        self.tasks = tasks
        self.link = link
        self.node_id = node_id
        self.image = image
        self.register_here = register_here
        self.request = m.ControllerRegistrationRequest(
            controller_id=node_id,
            incarnation_id=incarnation,
            listeners=[
                m.Listener(
                    name=one.name,
                    host=one.advertised.host,
                    port=one.advertised.port,
                    security_protocol=one.protocol.number,
                )
                for one in listeners
            ],
            features=[
                m.Feature(name=name, min_supported_version=levels.lowest, max_supported_version=levels.highest)
                for name, levels in sorted(SUPPORTED.items())
            ],
        )
        self._is_registering = False
        self._last_words = ""

    def look(self) -> None:
        """Register if the metadata does not know this node: something was committed, or somebody else leads."""
        if not self._is_registering and not self._is_known():
            self._is_registering = True
            self.tasks.start(self._tell())

    def _is_known(self) -> bool:
        image = self.image()
        if image.metadata_version < CONTROLLERS_LEVEL:
            return True  # nobody wants to know
        known = image.controllers.get(self.node_id)
        return known is not None and known.incarnation_id == self.request.incarnation_id

    async def _tell(self) -> None:
        while not self._is_known():
            answer = await self._ask()
            if answer is not None:
                self._complain(answer)
            if not self._is_known():
                await asyncio.sleep(PAUSE_MS / 1000)
        self._is_registering = False

    def _complain(self, answer: m.ControllerRegistrationResponse) -> None:
        words = f"{answer.error_code.name} {answer.error_message or ''}".rstrip()
        if answer.error_code not in (Error.NONE, Error.NOT_CONTROLLER) and words != self._last_words:
            self._last_words = words
            self.world.journal.log("warning", f"registration of this controller: {words}")

    async def _ask(self) -> m.ControllerRegistrationResponse | None:
        own = self.register_here(self.request)
        if own is not None:
            return await own
        try:
            answer = await self.link.send(m.EXCHANGE, self.request, timeout_ms=TIMEOUT_MS)
        except NoController:
            return None
        if answer.error_code is Error.NOT_CONTROLLER:
            self.link.drop()
        return answer
