"""An administrator's requests, asked of whichever broker answers: a broker hands them on to the controller."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from replog.errors import Error
from replog.wire.exchange import Exchange, Q, R
from replog.wire.messages import alter_partition_reassignments as apr
from replog.wire.messages import elect_leaders as el
from replog.wire.messages import incremental_alter_configs as iac
from tribunal.clusters.api import ClusterError, Declined, Refused, TopicPartition
from tribunal.clusters.clients.asking import FAILURES, Asking
from tribunal.clusters.clients.operator_requests import (
    OUTLIVED,
    election_errors,
    preferred_election,
    reassignment,
    reassignment_errors,
    setting_errors,
    topic_setting,
)
from tribunal.clusters.secured.door import OPEN, Door
from tribunal.clusters.values import NotAsked, Unanswered

CLIENT_ID: Final = "tribunal-admin"
TIMEOUT_MS: Final = 5_000
INSIST_MS: Final = 15_000
RETRY_MS: Final = 150
# Of what passes by itself, what leaves nothing to be done later.
NOT_YET: Final = OUTLIVED | {Error.BROKER_NOT_AVAILABLE}
# What passes by itself: a controller is being elected, a broker is not unfenced yet.
PASSING: Final = (
    Error.NOT_CONTROLLER,
    Error.REQUEST_TIMED_OUT,
    Error.NETWORK_EXCEPTION,
    Error.BROKER_NOT_AVAILABLE,
    Error.UNKNOWN_SERVER_ERROR,
    Error.NOT_LEADER_OR_FOLLOWER,  # of the metadata quorum
)


class Administration:
    """Asks until somebody has an answer that stands."""

    def __init__(self, endpoints: Callable[[], Mapping[int, tuple[str, int]]], door: Door = OPEN) -> None:
        self._endpoints = endpoints
        self._door = door
        self.left_in_doubt = False  # whether an attempt before the one that was answered last may be carried out yet

    async def ask_once(self, exchange: Exchange[Q, R], version: int, body: Q, node: int | None) -> R:
        """Ask a broker, or the first that can be reached."""
        endpoints = self._endpoints()
        for endpoint in endpoints.values() if node is None else [endpoints[node]]:
            try:
                asking = await Asking.open(endpoint, CLIENT_ID, TIMEOUT_MS, self._door)
            except FAILURES:
                continue
            try:
                return await asking.ask(exchange, version, body, TIMEOUT_MS)
            except FAILURES as problem:
                raise Unanswered(f"{exchange.api.name.lower()}: {type(problem).__name__}") from None
            finally:
                asking.close()
        raise NotAsked(f"{exchange.api.name.lower()}: nobody can be reached")

    async def brokers(self) -> list[int]:
        """Return all brokers."""
        return sorted(self._endpoints())

    async def close(self) -> None:
        """Release nothing: each question has a connection of its own."""

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Ask for these replicas; none: give up a reassignment under way."""
        body = reassignment(partition, replicas, TIMEOUT_MS)
        await self.insist(apr.EXCHANGE, 0, body, reassignment_errors)

    async def set_topic_config(self, topic: str, name: str, value: str | None) -> None:
        """Set one of a topic's settings; None: back to the default."""
        await self.insist(iac.EXCHANGE, 0, topic_setting(topic, name, value), setting_errors)

    async def elect_preferred(self, partitions: Sequence[TopicPartition]) -> None:
        """Give each partition's lead to its first replica."""
        await self.insist(el.EXCHANGE, 2, preferred_election(partitions, TIMEOUT_MS), election_errors)

    async def insist(self, exchange: Exchange[Q, R], version: int, body: Q, errors: Callable[[R], list[Error]]) -> R:
        """Ask until an answer stands, and return it; `ClusterError` when it is no, or none comes."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + INSIST_MS / 1000
        in_doubt = False  # an earlier asking may have been carried out, or may be yet
        outlived = False  # an earlier asking may have been carried out
        while True:
            answer, is_first = await self._ask_any(exchange, version, body)
            in_doubt = in_doubt or not is_first
            bad = [] if answer is None else [error for error in errors(answer) if error is not Error.NONE]
            if answer is not None and not bad:
                self.left_in_doubt = in_doubt
                return answer
            if bad and bad[0] not in PASSING:
                raise (Declined if in_doubt or outlived else Refused)(f"{exchange.api.name.lower()}: {bad[0].name}")
            if loop.time() > deadline:
                raise ClusterError(f"{exchange.api.name.lower()}: {bad[0].name if bad else 'no broker answers'}")
            in_doubt = in_doubt or any(error not in NOT_YET for error in bad)
            outlived = outlived or any(error in OUTLIVED for error in bad)
            await asyncio.sleep(RETRY_MS / 1000)

    async def _ask_any(self, exchange: Exchange[Q, R], version: int, body: Q) -> tuple[R | None, bool]:
        """Return the first answer, None when no broker has one, and whether nobody else was asked before and fell silent."""
        is_first = True
        for endpoint in self._endpoints().values():
            try:
                asking = await Asking.open(endpoint, CLIENT_ID, TIMEOUT_MS, self._door)
            except FAILURES:
                continue
            try:
                return await asking.ask(exchange, version, body, TIMEOUT_MS), is_first
            except FAILURES:
                is_first = False
                continue
            finally:
                asking.close()
        return None, is_first
