"""What an operator asks of a cluster: reassignments, topic settings, preferred leaders; asked until it is answered."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from replog.client.client import Client, Unreachable
from replog.client.connection import ConnectionLost, UnsupportedVersion
from replog.errors import Error
from replog.wire.apis import Api
from replog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from replog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from replog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tribunal.clusters.api import ClusterError, TopicPartition

TOPIC_RESOURCE: Final = 2
SET: Final = 0
DELETE: Final = 1
PREFERRED: Final = 0
TIMEOUT_MS: Final = 15_000
RETRY_MS: Final = 200
ASK_AGAIN: Final = frozenset(
    {
        Error.NOT_CONTROLLER,
        Error.REQUEST_TIMED_OUT,
        Error.BROKER_NOT_AVAILABLE,
        Error.NOT_LEADER_OR_FOLLOWER,  # of the metadata quorum
    }
)
FINE: Final = frozenset({Error.NONE, Error.ELECTION_NOT_NEEDED})


class SimulatedOperator:
    """Asks through any broker; `ClusterError` when the cluster says no or nothing."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Ask for these replicas (none: give up a reassignment under way)."""
        wanted = ReassignablePartition(partition_index=partition.partition, replicas=list(replicas) or None)
        topics = [ReassignableTopic(name=partition.topic, partitions=[wanted])]
        answer = await self._ask(
            Api.ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
        )
        _refuse(f"reassignment of {partition}", [answer.error_code])
        _refuse(f"reassignment of {partition}", [one.error_code for t in answer.responses for one in t.partitions])

    async def set_topic_config(self, topic: str, name: str, value: str | None) -> None:
        """Set one of a topic's settings (None: back to the default)."""
        config = AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[config])
        answer = await self._ask(Api.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=[resource]))
        _refuse(f"{name} of {topic}", [one.error_code for one in answer.responses])

    async def elect_preferred(self, partitions: Sequence[TopicPartition]) -> None:
        """Give each partition's lead to its first replica; one that leads already is fine."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        wanted = [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
        answer = await self._ask(
            Api.ELECT_LEADERS,
            ElectLeadersRequest(election_type=PREFERRED, topic_partitions=wanted, timeout_ms=TIMEOUT_MS),
        )
        results = [one.error_code for topic in answer.replica_election_results for one in topic.partition_result]
        _refuse("election of preferred leaders", [answer.error_code, *results])

    async def insist(self, api: Api, version: int, body: msgspec.Struct, errors: Callable[[Any], list[Error]]) -> Any:
        """Ask until an answer stands, in whatever version; `ClusterError` when it is no."""
        answer = await self._ask(api, body, errors)
        _refuse(api.name.lower(), errors(answer))
        return answer

    async def close(self) -> None:
        """Release everything."""
        await self._client.close()

    async def _ask(
        self,
        api: Api,
        body: msgspec.Struct,
        errors: Callable[[Any], list[Error]] = lambda answer: [getattr(answer, "error_code", Error.NONE)],
    ) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TIMEOUT_MS / 1000
        reason = "no answer"
        while loop.time() < deadline:
            try:
                answer = await self._client.ask(api, body)
            except (Unreachable, ConnectionLost, UnsupportedVersion) as problem:
                reason = str(problem)
            else:
                passing = [error for error in errors(answer) if error in ASK_AGAIN]
                if not passing:
                    return answer
                reason = passing[0].name
            await asyncio.sleep(RETRY_MS / 1000)
        raise ClusterError(f"{api.name}: {reason}")


def _refuse(what: str, errors: Sequence[Error]) -> None:
    wrong = [error.name for error in errors if error not in FINE]
    if wrong:
        raise ClusterError(f"{what} is refused: {', '.join(wrong)}")
