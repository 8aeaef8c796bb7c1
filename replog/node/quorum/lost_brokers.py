"""Notices brokers whose process has died, before their sessions are over (`broker.early.fencing.enable`).

When a process ends, its kernel closes its connections and refuses new ones. A controller that loses the connection by which a
broker's heartbeats came asks at the broker's address: whoever is refused there knows that nobody listens. Everything else says
nothing: a host that is gone answers nothing, a broker that hangs still accepts, and both are left to the session time-out.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from replog.config import Endpoint
from replog.node.tasks import Tasks
from replog.ports import World
from replog.types import BrokerEpoch, NodeId

ATTEMPTS: Final = 5  # a process that is ending may still accept, or its successor already
PAUSE_MS: Final = 50


class LostBrokers:
    """Which connections brokers send their heartbeats by, and what becomes of them."""

    def __init__(
        self,
        world: World,
        tasks: Tasks,
        address_of: Callable[[NodeId], Endpoint | None],
        on_refused: Callable[[NodeId, BrokerEpoch], None],
    ) -> None:
        """`on_refused` is called with the incarnation that nobody listens for any more."""
        self._world = world
        self._tasks = tasks
        self._address_of = address_of
        self._on_refused = on_refused
        self._senders: dict[int, tuple[NodeId, BrokerEpoch]] = {}

    def heartbeat(self, connection_id: int, broker_id: NodeId, epoch: BrokerEpoch) -> None:
        """Remember whose heartbeat came by a connection."""
        self._senders[connection_id] = broker_id, epoch

    def connection_lost(self, connection_id: int) -> None:
        """Look what is left of a broker whose heartbeats came by this connection."""
        sender = self._senders.pop(connection_id, None)
        if sender is not None:
            self._tasks.start(self._look(*sender))

    async def _look(self, broker_id: NodeId, epoch: BrokerEpoch) -> None:
        address = self._address_of(broker_id)
        if address is None:
            return
        for _ in range(ATTEMPTS):
            try:
                transport, _ = await self._world.network.connect(address.host, address.port, asyncio.Protocol)
            except ConnectionRefusedError:
                self._on_refused(broker_id, epoch)
                return
            except OSError:
                return
            transport.close()
            await asyncio.sleep(PAUSE_MS / 1000)
