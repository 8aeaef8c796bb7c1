"""An administrator's requests, asked of whichever broker answers: a broker hands them on to the controller."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from replog.errors import Error
from replog.wire.apis import Api
from replog.wire.messages import alter_partition_reassignments as apr
from replog.wire.messages import elect_leaders as el
from replog.wire.messages import incremental_alter_configs as iac
from tribunal.clusters.api import ClusterError, TopicPartition
from tribunal.clusters.clients.asking import FAILURES, Asking

CLIENT_ID: Final = "tribunal-admin"
TIMEOUT_MS: Final = 5_000
PATIENCE_MS: Final = 15_000
RETRY_MS: Final = 150
TOPIC_RESOURCE: Final = 2
SET, DELETE = 0, 1
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

    def __init__(self, endpoints: Callable[[], Sequence[tuple[str, int]]]) -> None:
        self._endpoints = endpoints

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Ask for these replicas; none: give up a reassignment under way."""
        wanted = apr.ReassignablePartition(
            partition_index=partition.partition, replicas=list(replicas) if replicas else None
        )
        body = apr.AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=[apr.ReassignableTopic(name=partition.topic, partitions=[wanted])]
        )
        await self.insist(Api.ALTER_PARTITION_REASSIGNMENTS, 0, body, _reassignment_errors)

    async def set_topic_config(self, topic: str, name: str, value: str | None) -> None:
        """Set one of a topic's settings; None: back to the default."""
        config = iac.AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
        resource = iac.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[config])
        body = iac.IncrementalAlterConfigsRequest(resources=[resource])
        await self.insist(Api.INCREMENTAL_ALTER_CONFIGS, 0, body, lambda a: [each.error_code for each in a.responses])

    async def elect_preferred(self, partitions: Sequence[TopicPartition]) -> None:
        """Give each partition's lead to its first replica."""
        by_topic: dict[str, list[int]] = {}
        for topic, number in partitions:
            by_topic.setdefault(topic, []).append(number)
        topics = [el.TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
        body = el.ElectLeadersRequest(topic_partitions=topics, timeout_ms=TIMEOUT_MS)
        await self.insist(Api.ELECT_LEADERS, 2, body, _election_errors)

    async def insist(self, api: Api, version: int, body: msgspec.Struct, errors: Callable[[Any], list[Error]]) -> Any:
        """Ask until an answer stands, and return it; `ClusterError` when it is no, or none comes."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_MS / 1000
        while True:
            answer = await self._ask_any(api, version, body)
            bad = [] if answer is None else [error for error in errors(answer) if error is not Error.NONE]
            if answer is not None and not bad:
                return answer
            if (bad and bad[0] not in PASSING) or loop.time() > deadline:
                raise ClusterError(f"{api.name.lower()}: {bad[0].name if bad else 'no broker answers'}")
            await asyncio.sleep(RETRY_MS / 1000)

    async def _ask_any(self, api: Api, version: int, body: msgspec.Struct) -> Any:
        """Return the first answer, None when no broker has one."""
        for endpoint in self._endpoints():
            try:
                asking = await Asking.open(endpoint, CLIENT_ID, TIMEOUT_MS)
            except FAILURES:
                continue
            try:
                return await asking.ask(api, version, body, TIMEOUT_MS)
            except FAILURES:
                continue
            finally:
                asking.close()
        return None


def _reassignment_errors(answer: apr.AlterPartitionReassignmentsResponse) -> list[Error]:
    inner = [each.error_code for topic in answer.responses for each in topic.partitions]
    return [answer.error_code, *inner]


def _election_errors(answer: el.ElectLeadersResponse) -> list[Error]:
    inner = [each.error_code for topic in answer.replica_election_results for each in topic.partition_result]
    return [answer.error_code, *(error for error in inner if error is not Error.ELECTION_NOT_NEEDED)]
