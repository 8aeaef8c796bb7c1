"""What an operator does to a cluster, asked until there is an answer that stands; who carries the questions is elsewhere.

Topics are asked of anybody (a broker hands the request on to the controller), records of a partition's leader, groups and
transactional ids of their coordinator, each found anew for every attempt. An order that was refused after an earlier attempt
may have been carried out already raises `ClusterError`; `Refused` says that surely nothing was done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Literal, Protocol
from uuid import UUID

from replog.errors import Error
from replog.types import NO_NODE
from replog.wire.exchange import Exchange, Q, R
from replog.wire.messages import alter_partition_reassignments as apr
from replog.wire.messages import create_partitions as cp
from replog.wire.messages import create_topics as ct
from replog.wire.messages import delete_groups as dg
from replog.wire.messages import delete_records as dr
from replog.wire.messages import delete_topics as dt
from replog.wire.messages import describe_producers as dp
from replog.wire.messages import describe_transactions as dtx
from replog.wire.messages import elect_leaders as el
from replog.wire.messages import find_coordinator as fc
from replog.wire.messages import incremental_alter_configs as iac
from replog.wire.messages import init_producer_id as ipi
from replog.wire.messages import list_groups as lg
from replog.wire.messages import list_transactions as lt
from replog.wire.messages import metadata as md
from replog.wire.messages import offset_commit as oc
from replog.wire.messages import offset_delete as od
from tribunal.clusters.api import ClusterError, Refused, TopicPartition, TopicSeen
from tribunal.clusters.clients import operator_requests as requests
from tribunal.clusters.values import NotAsked, Unanswered

REQUEST_MS: Final = 5_000
INSIST_MS: Final = 12_000
RETRY_MS: Final = 200
GROUP: Final = 0
TRANSACTION: Final = 1
FENCE_TIMEOUT_MS: Final = 5_000
# What passes by itself, and leaves nothing to be done later.
NOT_YET: Final = requests.OUTLIVED | {
    Error.BROKER_NOT_AVAILABLE,
    Error.LEADER_NOT_AVAILABLE,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
}
PASSING: Final = NOT_YET | {Error.REQUEST_TIMED_OUT, Error.NETWORK_EXCEPTION}


class Asker(Protocol):
    """Who carries questions to brokers."""

    async def ask_once(self, exchange: Exchange[Q, R], version: int, body: Q, node: int | None) -> R:
        """Ask a broker, or any; `NotAsked` when surely nobody was, `Unanswered` when nobody knows."""

    async def brokers(self) -> list[int]:
        """Return the brokers that can be asked."""

    async def close(self) -> None:
        """Release everything."""


class Operating:
    """Implements `tribunal.clusters.api.Operator`."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self.left_in_doubt = False

    async def close(self) -> None:
        """Release everything."""
        await self._asker.close()

    # --- to see ----------------------------------------------------------------------------

    async def topics(self) -> dict[str, TopicSeen]:
        """Return all topics but internal ones."""
        answer = await self._metadata(None)
        return {
            topic.name: TopicSeen(
                topic_id=topic.topic_id,
                replicas={each.partition_index: tuple(each.replica_nodes) for each in topic.partitions},
            )
            for topic in sorted(answer.topics, key=lambda one: one.name or "")
            if topic.name is not None and not topic.is_internal and topic.error_code is Error.NONE
        }

    async def groups(self) -> list[str]:
        """Return all groups that some broker knows of."""
        found: dict[str, None] = {}
        for node in await self._asker.brokers():
            try:
                answer = await self._asker.ask_once(lg.EXCHANGE, 4, lg.ListGroupsRequest(), node)
            except (NotAsked, Unanswered):
                continue
            found |= dict.fromkeys(group.group_id for group in answer.groups)
        return sorted(found)

    async def transactional_ids(self) -> list[str]:
        """Return all transactional ids that some broker knows of."""
        found: dict[str, None] = {}
        for node in await self._asker.brokers():
            try:
                answer = await self._asker.ask_once(lt.EXCHANGE, 0, lt.ListTransactionsRequest(), node)
            except (NotAsked, Unanswered):
                continue
            found |= dict.fromkeys(state.transactional_id for state in answer.transaction_states)
        return sorted(found)

    async def describe_transaction(self, transactional_id: str) -> None:
        """Ask what a transactional id is doing."""
        body = dtx.DescribeTransactionsRequest(transactional_ids=[transactional_id])
        await self._insist(
            dtx.EXCHANGE,
            0,
            body,
            lambda answer: [state.error_code for state in answer.transaction_states],
            lambda: self._coordinator(transactional_id, TRANSACTION),
        )

    async def describe_producers(self, partition: TopicPartition) -> None:
        """Ask which producers a partition's leader knows."""
        topic = dp.TopicRequest(name=partition.topic, partition_indexes=[partition.partition])
        await self._insist(
            dp.EXCHANGE,
            0,
            dp.DescribeProducersRequest(topics=[topic]),
            lambda answer: [each.error_code for topic in answer.topics for each in topic.partitions],
            lambda: self._leader(partition),
        )

    # --- topics ----------------------------------------------------------------------------

    async def create_topic(
        self, topic: str, partitions: int, replication_factor: int, settings: Mapping[str, str]
    ) -> UUID:
        """Create a topic; return its id."""
        body = requests.creation(topic, partitions, replication_factor, settings, REQUEST_MS)
        answer = await self._insist(ct.EXCHANGE, 7, body, requests.creation_errors)
        return answer.topics[0].topic_id

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        body = requests.deletion(topic, REQUEST_MS)
        await self._insist(dt.EXCHANGE, 6, body, requests.deletion_errors, done_already=requests.DELETED_ALREADY)

    async def add_partitions(self, topic: str, count: int) -> None:
        """Let a topic have so many partitions."""
        body = requests.more_partitions(topic, count, REQUEST_MS)
        await self._insist(cp.EXCHANGE, 3, body, requests.partition_errors)

    async def delete_records(self, partition: TopicPartition, offset: int) -> None:
        """Delete a partition's records before an offset."""
        body = requests.record_deletion(partition, offset, REQUEST_MS)
        await self._insist(dr.EXCHANGE, 2, body, requests.record_deletion_errors, lambda: self._leader(partition))

    async def set_topic_config(self, topic: str, name: str, value: str | None) -> None:
        """Set one of a topic's settings; None: back to the default."""
        await self._insist(iac.EXCHANGE, 1, requests.topic_setting(topic, name, value), requests.setting_errors)

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Ask for these replicas; none: give up a reassignment under way."""
        body = requests.reassignment(partition, replicas, REQUEST_MS)
        await self._insist(apr.EXCHANGE, 0, body, requests.reassignment_errors)

    async def elect(self, partition: TopicPartition, kind: Literal["preferred", "unclean"]) -> None:
        """Elect a partition's leader."""
        election_type = requests.UNCLEAN if kind == "unclean" else requests.PREFERRED
        body = requests.election([partition], election_type, REQUEST_MS)
        await self._insist(el.EXCHANGE, 2, body, requests.election_errors)

    # --- groups and transactions -----------------------------------------------------------

    async def delete_group(self, group: str) -> None:
        """Delete a group."""
        await self._of_group(group, dg.EXCHANGE, 2, requests.group_deletion(group), requests.group_deletion_errors)

    async def alter_offset(self, group: str, partition: TopicPartition, offset: int) -> None:
        """Set a group's position; refused while it has members."""
        seen = (await self.topics()).get(partition.topic)
        if seen is None:
            raise Refused(f"{partition.topic} is not there")
        body = requests.position(group, partition, seen.topic_id, offset)
        await self._of_group(group, oc.EXCHANGE, 8, body, requests.position_errors)

    async def delete_offset(self, group: str, partition: TopicPartition) -> None:
        """Delete a group's position."""
        body = requests.position_deletion(group, partition)
        await self._of_group(group, od.EXCHANGE, 0, body, requests.position_deletion_errors)

    async def fence_producer(self, transactional_id: str) -> None:
        """Let nobody go on under this transactional id as it is now: its transaction is aborted."""
        body = ipi.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=FENCE_TIMEOUT_MS)
        await self._insist(
            ipi.EXCHANGE,
            4,
            body,
            lambda answer: [answer.error_code],
            lambda: self._coordinator(transactional_id, TRANSACTION),
        )

    async def _of_group(
        self, group: str, exchange: Exchange[Q, R], version: int, body: Q, errors: Callable[[R], list[Error]]
    ) -> None:
        await self._insist(exchange, version, body, errors, lambda: self._coordinator(group, GROUP))

    # --- asking ----------------------------------------------------------------------------

    async def _metadata(self, topics: Sequence[str] | None) -> md.MetadataResponse:
        wanted = None if topics is None else [md.MetadataRequestTopic(name=topic) for topic in topics]
        body = md.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return await self._insist(md.EXCHANGE, 12, body, lambda _: [])

    async def _leader(self, partition: TopicPartition) -> int:
        body = md.MetadataRequest(
            topics=[md.MetadataRequestTopic(name=partition.topic)], allow_auto_topic_creation=False
        )
        answer = await self._asker.ask_once(md.EXCHANGE, 12, body, None)
        leaders = {each.partition_index: each.leader_id for topic in answer.topics for each in topic.partitions}
        leader = leaders.get(partition.partition, NO_NODE)
        if leader == NO_NODE:
            raise NotAsked(f"{partition} has no leader")
        return leader

    async def _coordinator(self, key: str, key_type: int) -> int:
        body = fc.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        answer = await self._asker.ask_once(fc.EXCHANGE, 4, body, None)
        (found,) = answer.coordinators
        if found.error_code is not Error.NONE:
            raise NotAsked(f"no coordinator: {found.error_code.name}")
        return found.node_id

    async def _insist(
        self,
        exchange: Exchange[Q, R],
        version: int,
        body: Q,
        errors: Callable[[R], list[Error]],
        found: Callable[[], Awaitable[int]] | None = None,
        done_already: frozenset[Error] = frozenset(),
    ) -> R:
        """Ask until an answer stands, and return it.

        found:         finds who is to be asked; None: anybody.
        done_already:  refusals that may come of the order being carried out, also at the first asking.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + INSIST_MS / 1000
        in_doubt = False  # an earlier attempt may have been carried out, or may be yet
        outlived = False  # an earlier attempt may have been carried out
        reason = "nobody was asked"
        while loop.time() < deadline:
            try:
                node = None if found is None else await _asked(found)
                answer = await self._asker.ask_once(exchange, version, body, node)
            except NotAsked as problem:
                reason = str(problem)
            except Unanswered as problem:
                reason, in_doubt = str(problem), True
            else:
                bad = next((error for error in errors(answer) if error is not Error.NONE), None)
                if bad is None:
                    self.left_in_doubt = in_doubt
                    return answer
                reason = f"{exchange.api.name.lower()}: {bad.name}"
                if bad not in PASSING:
                    raise (ClusterError if in_doubt or outlived or bad in done_already else Refused)(reason)
                in_doubt = in_doubt or bad not in NOT_YET
                outlived = outlived or bad in requests.OUTLIVED
            await asyncio.sleep(RETRY_MS / 1000)
        raise (ClusterError if in_doubt or outlived else Refused)(reason)


async def _asked(found: Callable[[], Awaitable[int]]) -> int:
    """Find who is to be asked; that this had no answer leaves nothing in doubt."""
    try:
        return await found()
    except Unanswered as problem:
        raise NotAsked(str(problem)) from None
