"""A broker's way to the active controller: one connection, to whoever leads the quorum now.

The observer knows who leads. A request that cannot be delivered, or reaches a node that no longer leads, fails with
`NoController`; whoever asked knows whether and when to ask again. Nothing is repeated here, because only the
asker knows whether its question still holds (a heartbeat does, an AlterPartition may not).

Heartbeats that are not answered in time end the connection soon, so that the next may go by a new one. What a client asked
for in the meantime, and must not be asked for twice, still waits for its answer on the old one (`must_not_repeat`).
"""

from collections.abc import Callable

from replog.client.attempts import Attempts
from replog.client.connection import Connection, ConnectionLost, UnsupportedVersion
from replog.config import Endpoint
from replog.config.access import Access
from replog.node.fault_injection_points import strikes
from replog.ports import World
from replog.types import NO_NODE, NodeId
from replog.wire.exchange import Exchange, Q, R

Leader = Callable[[], tuple[NodeId, Endpoint | None]]


class NoController(Exception):
    """No answer from an active controller.

    was_sent:  whether the request left us: then it may have taken effect.
    """

    def __init__(self, reason: str, *, was_sent: bool) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


class ControllerLink:
    """The connection to the active controller, opened when needed."""

    def __init__(self, world: World, client_id: str, leader: Leader, access: Access, *, open_timeout_ms: int) -> None:
        self.world = world
        self.client_id = client_id
        self.leader = leader
        self.access = access
        self.open_timeout_ms = open_timeout_ms
        self._connection: Connection | None = None
        self._connected_to = NO_NODE
        self._former: list[Connection] = []  # to the same leader, with requests under way that must not be repeated
        self._attempts = Attempts()

    async def send(
        self,
        exchange: Exchange[Q, R],
        body: Q,
        *,
        timeout_ms: int,
        version: int | None = None,
        must_not_repeat: bool = False,
    ) -> R:
        """Send to the active controller and return its answer; `NoController` when there is none."""
        was_sent, connection = False, None
        try:
            connection = await self._open()
            answer = connection.send(
                exchange, body, version=version, timeout_ms=timeout_ms, must_not_repeat=must_not_repeat
            )
            was_sent = True
            response: R = await answer
            if strikes(self.world, "controller's answer is lost"):
                raise ConnectionLost(f"{exchange}: the answer is lost")
            return response
        except (ConnectionLost, UnsupportedVersion) as problem:
            if connection is self._connection:
                self.drop()
            raise NoController(str(problem), was_sent=was_sent) from None

    def drop(self) -> None:
        """Ask who leads again before the next request: this one does not, or does not answer."""
        self._former = [one for one in self._former if not one.has_ended]
        if self._connection is not None:
            self._connection.retire()
            self._former.append(self._connection)
            self._connection = None
        self._connected_to = NO_NODE

    def close(self) -> None:
        """Close what is open; what is under way fails."""
        self.drop()
        for one in self._former:
            one.close()

    async def _open(self) -> Connection:
        async with self._attempts.turn() as turn:
            node, endpoint = self.leader()
            if node == NO_NODE or endpoint is None:
                raise NoController("nobody is known to lead the quorum", was_sent=False)
            if self._connection is not None and self._connected_to == node and self._connection.is_open:
                return self._connection
            self.drop()
            for one in self._former:
                if one.endpoint != endpoint:
                    one.close()  # another node leads: whoever waits there learns no more in time
            connection = Connection(self.world, endpoint, self.client_id, self.access)
            await turn.open(connection, timeout_ms=self.open_timeout_ms)
            self._connection, self._connected_to = connection, node
            return connection
