"""Asking the coordinator of a group or of a transactional id, wherever it is now."""

from typing import Final

from replog.client.client import NO_ANSWER, Client, Unreachable
from replog.client.connection import ConnectionLost
from replog.errors import Error
from replog.types import NodeId
from replog.wire.exchange import Exchange, Q, R
from replog.wire.messages.find_coordinator import EXCHANGE, FindCoordinatorRequest

GROUP: Final = 0
TRANSACTION: Final = 1
ELSEWHERE: Final = frozenset({Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE})
# Answers that say "not yet" or "not here"; those of ELSEWHERE do not say that nothing was written.
TRY_AGAIN: Final = ELSEWHERE | {
    *(Error.COORDINATOR_LOAD_IN_PROGRESS, Error.CONCURRENT_TRANSACTIONS, Error.REQUEST_TIMED_OUT),
    *(Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID, Error.LEADER_NOT_AVAILABLE),
    *(Error.NOT_ENOUGH_REPLICAS, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Error.KAFKA_STORAGE_ERROR),
}  # fmt: skip
WITHOUT_EFFECT: Final = frozenset({Error.CONCURRENT_TRANSACTIONS, Error.COORDINATOR_LOAD_IN_PROGRESS})
# Something went wrong where nobody had foreseen it, perhaps behind the write.
SAYS_NOTHING: Final = frozenset({Error.UNKNOWN_SERVER_ERROR})


class CoordinatorLink:
    """The way to one key's coordinator; looked for again when it has moved or gives no answer."""

    def __init__(self, client: Client, key: str, key_type: int) -> None:
        self._client = client
        self._key = key
        self._key_type = key_type
        self._node: NodeId | None = None

    async def ask(self, exchange: Exchange[Q, R], body: Q) -> R:
        """Ask once. `Unreachable`: surely not asked; `ConnectionLost`: nobody knows."""
        answer, _ = await self.ask_and_name(exchange, body)
        return answer

    async def ask_and_name(self, exchange: Exchange[Q, R], body: Q) -> tuple[R, NodeId]:
        """Ask once, as `ask` does; return also who answered."""
        node = await self._find() if self._node is None else self._node
        try:
            answer = await self._client.ask(exchange, body, node=node)
        except NO_ANSWER:
            self.forget()
            raise
        if getattr(answer, "error_code", Error.NONE) in ELSEWHERE:
            self.forget()
        return answer, node

    def forget(self) -> None:
        """Look for the coordinator before the next question."""
        self._node = None

    async def _find(self) -> NodeId:
        body = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=[self._key])
        try:
            answer = await self._client.ask(EXCHANGE, body)
        except ConnectionLost as problem:
            raise Unreachable(str(problem)) from None
        (found,) = answer.coordinators
        if found.error_code is not Error.NONE:
            raise Unreachable(found.error_code.name)
        self._node = NodeId(found.node_id)
        return self._node
