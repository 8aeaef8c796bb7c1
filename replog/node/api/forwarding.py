"""Admin requests of clients, passed on to the active controller and its answers passed back.

A request that surely was not carried out (no leader known, no connection, NOT_CONTROLLER) is sent again until the client's
time is over. One that was lost under way is only if it changes nothing: creating a topic twice would report that it
exists already. The client is told REQUEST_TIMED_OUT then, which says that nobody knows.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from replog.errors import Error
from replog.node.net.controller_link import ControllerLink, NoController
from replog.node.net.server import ServerRequest
from replog.node.tasks import Tasks
from replog.ports import World
from replog.wire.apis import Api
from replog.wire.messages import (
    add_raft_voter,
    alter_configs,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    describe_quorum,
    elect_designated_leaders,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
    remove_raft_voter,
    unregister_broker,
    update_features,
)

RETRY_AFTER_MS: Final = 100
PATIENCE_MS: Final = 30_000  # where the request has no timeout of its own
LOOKS: Final = frozenset({Api.DESCRIBE_QUORUM, Api.LIST_PARTITION_REASSIGNMENTS})  # change nothing: may be asked twice

Failed = Callable[[Any, Error], msgspec.Struct]


class Forwarding:
    """The way of admin requests through this broker."""

    def __init__(self, world: World, link: ControllerLink, tasks: Tasks) -> None:
        self.world = world
        self.tasks = tasks
        self.link = link

    def handle(self, request: ServerRequest) -> None:
        """Pass the request on; the answer comes later."""
        self.tasks.start(self._forward(request))

    async def _forward(self, request: ServerRequest) -> None:
        body, api = request.body, request.api
        patience_ms = max(1, getattr(body, "timeout_ms", PATIENCE_MS))
        deadline_ms = self.world.clock.now_ms() + patience_ms
        request.reply(await self._answer(api, body, request.version, deadline_ms))

    async def _answer(self, api: Api, body: Any, version: int, deadline_ms: int) -> msgspec.Struct:
        while True:
            left_ms = deadline_ms - self.world.clock.now_ms()
            if left_ms <= 0:
                return FAILED[api](body, Error.REQUEST_TIMED_OUT)
            try:
                # A client's patience is not the connection's: heartbeats and others' requests are under way on it.
                async with asyncio.timeout(left_ms / 1000):
                    answer: msgspec.Struct = await self.link.send(
                        api, body, version=version, timeout_ms=max(left_ms, PATIENCE_MS)
                    )
            except TimeoutError:
                return FAILED[api](body, Error.REQUEST_TIMED_OUT)
            except NoController as problem:
                if problem.was_sent and api not in LOOKS:
                    return FAILED[api](body, Error.REQUEST_TIMED_OUT)
            else:
                if not is_refused(answer):
                    return answer
                self.link.drop()
            await asyncio.sleep(RETRY_AFTER_MS / 1000)


def is_refused(answer: msgspec.Struct) -> bool:
    """Tell whether the controller did nothing because it is not active."""
    return any(error is Error.NOT_CONTROLLER for error in errors_in(answer))


def errors_in(answer: msgspec.Struct) -> Iterator[Error]:
    """Yield all error codes of an answer, at any depth."""
    for name in answer.__struct_fields__:
        value = getattr(answer, name)
        if isinstance(value, Error):
            yield value
        for item in value if isinstance(value, list) else ():
            if isinstance(item, msgspec.Struct):
                yield from errors_in(item)


def _create_topics(body: create_topics.CreateTopicsRequest, error: Error) -> msgspec.Struct:
    return create_topics.CreateTopicsResponse(
        topics=[
            create_topics.CreatableTopicResult(name=topic.name, error_code=error, error_message=None)
            for topic in body.topics
        ]
    )


def _delete_topics(body: delete_topics.DeleteTopicsRequest, error: Error) -> msgspec.Struct:
    by_name = [delete_topics.DeletableTopicResult(name=name, error_code=error) for name in body.topic_names]
    by_either = [
        delete_topics.DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error)
        for topic in body.topics
    ]
    return delete_topics.DeleteTopicsResponse(responses=by_name + by_either)


def _create_partitions(body: create_partitions.CreatePartitionsRequest, error: Error) -> msgspec.Struct:
    return create_partitions.CreatePartitionsResponse(
        results=[
            create_partitions.CreatePartitionsTopicResult(name=topic.name, error_code=error) for topic in body.topics
        ]
    )


def _replace_configs(body: alter_configs.AlterConfigsRequest, error: Error) -> msgspec.Struct:
    return alter_configs.AlterConfigsResponse(
        responses=[
            alter_configs.AlterConfigsResourceResponse(
                error_code=error,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in body.resources
        ]
    )


def _alter_configs(body: incremental_alter_configs.IncrementalAlterConfigsRequest, error: Error) -> msgspec.Struct:
    return incremental_alter_configs.IncrementalAlterConfigsResponse(
        responses=[
            incremental_alter_configs.AlterConfigsResourceResponse(
                error_code=error,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in body.resources
        ]
    )


def _elect_leaders(body: elect_leaders.ElectLeadersRequest, error: Error) -> msgspec.Struct:
    """Say it at the top and of each partition: version 0 has no top."""
    answer = elect_leaders.PartitionResult
    results = [
        elect_leaders.ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                answer(partition_id=index, error_code=error, error_message=None) for index in topic.partitions
            ],
        )
        for topic in body.topic_partitions or []
    ]
    return elect_leaders.ElectLeadersResponse(error_code=error, replica_election_results=results)


FAILED: Final[dict[Api, Failed]] = {
    Api.CREATE_TOPICS: _create_topics,
    Api.DELETE_TOPICS: _delete_topics,
    Api.CREATE_PARTITIONS: _create_partitions,
    Api.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    Api.ALTER_CONFIGS: _replace_configs,
    Api.ELECT_LEADERS: _elect_leaders,
    Api.ELECT_DESIGNATED_LEADERS: lambda _, error: elect_designated_leaders.ElectDesignatedLeadersResponse(
        error_code=error
    ),
    Api.ALTER_PARTITION_REASSIGNMENTS: lambda _, error: (
        alter_partition_reassignments.AlterPartitionReassignmentsResponse(error_code=error, error_message=None)
    ),
    Api.LIST_PARTITION_REASSIGNMENTS: lambda _, error: list_partition_reassignments.ListPartitionReassignmentsResponse(
        error_code=error, error_message=None
    ),
    Api.UNREGISTER_BROKER: lambda _, error: unregister_broker.UnregisterBrokerResponse(
        error_code=error, error_message=None
    ),
    Api.UPDATE_FEATURES: lambda _, error: update_features.UpdateFeaturesResponse(error_code=error, error_message=None),
    Api.ADD_RAFT_VOTER: lambda _, error: add_raft_voter.AddRaftVoterResponse(error_code=error, error_message=None),
    Api.REMOVE_RAFT_VOTER: lambda _, error: remove_raft_voter.RemoveRaftVoterResponse(
        error_code=error, error_message=None
    ),
    Api.DESCRIBE_QUORUM: lambda _, error: describe_quorum.DescribeQuorumResponse(error_code=error, error_message=None),
}
