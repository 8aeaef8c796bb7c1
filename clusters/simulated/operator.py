"""What an operator asks of a cluster: reassignments, topic settings, preferred leaders; asked until it is answered."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from replog.client.client import NO_ANSWER, Client, Unreachable
from replog.errors import Error
from replog.types import NodeId
from replog.wire.exchange import Exchange, Q, R
from replog.wire.messages import alter_partition_reassignments as apr
from replog.wire.messages import elect_leaders as el
from replog.wire.messages import incremental_alter_configs as iac
from tribunal.clusters.api import ClusterError, Declined, Refused, TopicPartition
from tribunal.clusters.clients.operator_requests import (
    OUTLIVED,
    election_errors,
    preferred_election,
    reassignment,
    reassignment_errors,
    setting_errors,
    topic_setting,
)
from tribunal.clusters.values import NotAsked, Unanswered

TIMEOUT_MS: Final = 15_000
RETRY_MS: Final = 200
ASK_AGAIN: Final = frozenset(
    {
        Error.NOT_CONTROLLER,
        Error.REQUEST_TIMED_OUT,
        Error.BROKER_NOT_AVAILABLE,
        Error.NOT_LEADER_OR_FOLLOWER,  # of the metadata quorum
        Error.UNKNOWN_SERVER_ERROR,
    }
)
IN_DOUBT: Final = frozenset({Error.REQUEST_TIMED_OUT, Error.UNKNOWN_SERVER_ERROR})
NOT_YET: Final = ASK_AGAIN - IN_DOUBT  # these leave nothing to be done later


class SimulatedAsker:
    """Carries an operator's questions; implements `tribunal.clusters.clients.operating.Asker`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def ask_once(self, exchange: Exchange[Q, R], version: int, body: Q, node: int | None) -> R:
        """Ask a broker, or any, in whatever version both know."""
        try:
            return await self._client.ask(exchange, body, node=None if node is None else NodeId(node))
        except Unreachable as problem:
            raise NotAsked(str(problem)) from None
        except NO_ANSWER as problem:
            raise Unanswered(str(problem)) from None

    async def brokers(self) -> list[int]:
        """Return the brokers that the cluster names."""
        with contextlib.suppress(*NO_ANSWER):
            await self._client.refresh([])
        return sorted(self._client.brokers)

    async def close(self) -> None:
        """Release everything."""
        await self._client.close()


class SimulatedOperator:
    """Asks through any broker; `ClusterError` when the cluster says no or nothing."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.left_in_doubt = False  # something that was asked may be carried out without an answer that says so
        self._outlived = False  # somebody was asked and deposed: it may have been carried out before the next was asked

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Ask for these replicas (none: give up a reassignment under way)."""
        wanted = reassignment(partition, replicas, TIMEOUT_MS)
        answer = await self._ask(apr.EXCHANGE, wanted, reassignment_errors)
        self._refuse(f"reassignment of {partition}", reassignment_errors(answer))

    async def set_topic_config(self, topic: str, name: str, value: str | None) -> None:
        """Set one of a topic's settings (None: back to the default)."""
        answer = await self._ask(iac.EXCHANGE, topic_setting(topic, name, value), setting_errors)
        self._refuse(f"{name} of {topic}", setting_errors(answer))

    async def elect_preferred(self, partitions: Sequence[TopicPartition]) -> None:
        """Give each partition's lead to its first replica; one that leads already is fine."""
        wanted = preferred_election(partitions, TIMEOUT_MS)
        answer = await self._ask(el.EXCHANGE, wanted, election_errors)
        self._refuse("election of preferred leaders", election_errors(answer))

    async def insist(self, exchange: Exchange[Q, R], version: int, body: Q, errors: Callable[[R], list[Error]]) -> R:
        """Ask until an answer stands, in whatever version; `ClusterError` when it is no."""
        answer = await self._ask(exchange, body, errors)
        self._refuse(exchange.api.name.lower(), errors(answer))
        return answer

    def _refuse(self, what: str, errors: Sequence[Error]) -> None:
        wrong = [error.name for error in errors if error is not Error.NONE]
        if wrong:
            refusal = Declined if self.left_in_doubt or self._outlived else Refused
            raise refusal(f"{what} is refused: {', '.join(wrong)}")

    async def close(self) -> None:
        """Release everything."""
        await self._client.close()

    async def _ask(self, exchange: Exchange[Q, R], body: Q, errors: Callable[[R], list[Error]]) -> R:
        """Ask until none of the answer's errors passes by itself; `errors` says which ones are looked at."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TIMEOUT_MS / 1000
        reason = "no answer"
        while loop.time() < deadline:
            try:
                answer = await self._client.ask(exchange, body)
            except Unreachable as problem:
                reason = str(problem)
            except NO_ANSWER as problem:
                reason, self.left_in_doubt = str(problem), True
            else:
                passing = [error for error in errors(answer) if error in ASK_AGAIN]
                if not passing:
                    return answer
                reason = passing[0].name
                self.left_in_doubt = self.left_in_doubt or any(error not in NOT_YET for error in passing)
                self._outlived = self._outlived or any(error in OUTLIVED for error in passing)
            await asyncio.sleep(RETRY_MS / 1000)
        raise ClusterError(f"{exchange.api.name}: {reason}")
