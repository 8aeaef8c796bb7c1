"""Who may do what: one hook, asked before anything is decided, that allows all (SPEC D17).

There is no authorizer yet, and no connection says who is behind it: every caller is `ANONYMOUS`. What the hook is asked, in
which words and for which request, is what the released software asks; so an authorizer can be put in without touching
any other part. A request that names topics is decided topic by topic, what is left of it is carried out.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from replog.controller.state import TOPIC_RESOURCE
from replog.errors import Error
from replog.types import ZERO_UUID
from replog.wire.apis import Api

ANONYMOUS: Final = "User:ANONYMOUS"


class Operation(IntEnum):
    """What somebody wants to do; numbers as in Kafka's ACLs."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11


class Resource(NamedTuple):
    """What it is done to: `topic` or `cluster`, and its name."""

    kind: str
    name: str


CLUSTER: Final = Resource("cluster", "kafka-cluster")
May = Callable[[str, Operation, Resource], bool]  # principal, operation, resource


def allow_all(principal: str, operation: Operation, resource: Resource) -> bool:
    """Allow everybody everything."""
    return True


def topic(name: str) -> Resource:
    """Return the resource that a topic is."""
    return Resource("topic", name)


# Requests that are allowed or refused as a whole, on the cluster.
WHOLE: Final[dict[Api, Operation]] = {
    **dict.fromkeys(
        (
            Api.VOTE,
            Api.BEGIN_QUORUM_EPOCH,
            Api.END_QUORUM_EPOCH,
            Api.FETCH_SNAPSHOT,
            Api.UPDATE_RAFT_VOTER,
            Api.ALTER_PARTITION,
            Api.BROKER_REGISTRATION,
            Api.BROKER_HEARTBEAT,
            Api.ALLOCATE_PRODUCER_IDS,
            Api.CONTROLLER_REGISTRATION,
            Api.ASSIGN_REPLICAS_TO_DIRS,
            Api.GET_REPLICA_LOG_INFO,  # KIP-966: "ACL: CLUSTER_ACTION"
        ),
        Operation.CLUSTER_ACTION,
    ),
    **dict.fromkeys(
        (
            Api.UNREGISTER_BROKER,
            Api.ELECT_LEADERS,
            Api.ELECT_DESIGNATED_LEADERS,
            Api.ALTER_PARTITION_REASSIGNMENTS,
            Api.UPDATE_FEATURES,
            Api.ADD_RAFT_VOTER,
            Api.REMOVE_RAFT_VOTER,
        ),
        Operation.ALTER,
    ),
    **dict.fromkeys((Api.DESCRIBE_QUORUM, Api.LIST_PARTITION_REASSIGNMENTS, Api.DESCRIBE_LOG_DIRS), Operation.DESCRIBE),
}


class _Parts(NamedTuple):
    """Where a request and its answer hold what is decided one by one."""

    asked: tuple[str, ...]
    answered: str
    operation: Operation


PARTS: Final[dict[Api, _Parts]] = {
    Api.CREATE_TOPICS: _Parts(("topics",), "topics", Operation.CREATE),
    Api.DELETE_TOPICS: _Parts(("topics", "topic_names"), "responses", Operation.DELETE),
    Api.CREATE_PARTITIONS: _Parts(("topics",), "results", Operation.ALTER),
    Api.INCREMENTAL_ALTER_CONFIGS: _Parts(("resources",), "responses", Operation.ALTER_CONFIGS),
    Api.ALTER_CONFIGS: _Parts(("resources",), "responses", Operation.ALTER_CONFIGS),
    Api.DESCRIBE_CONFIGS: _Parts(("resources",), "results", Operation.DESCRIBE_CONFIGS),
}


class Decision(NamedTuple):
    """What may be carried out of a request, and what is refused of it and why."""

    body: msgspec.Struct | None  # None: nothing
    refused: list[tuple[msgspec.Struct, Error]]

    def with_refusals(self, api: Api, answer: msgspec.Struct, refusals: list[msgspec.Struct]) -> msgspec.Struct:
        """Return the answer with the parts that tell of refusals."""
        name = PARTS[api].answered
        told = [part for refusal in refusals for part in getattr(refusal, name)]
        return msgspec.structs.replace(answer, **{name: [*getattr(answer, name), *told]})


def decide(
    may: May, principal: str, api: Api, body: msgspec.Struct, topic_name: Callable[[UUID], str | None]
) -> Decision:
    """Ask the hook about a request.

    topic_name: the name of a topic id, None when there is no such topic: then there is nothing to protect.
    """
    if api in WHOLE:
        if may(principal, WHOLE[api], CLUSTER):
            return Decision(body, [])
        return Decision(None, [(body, Error.CLUSTER_AUTHORIZATION_FAILED)])
    if api not in PARTS:
        return Decision(body, [])
    return _decided_by_parts(may, principal, api, body, topic_name)


def _decided_by_parts(
    may: May, principal: str, api: Api, body: msgspec.Struct, topic_name: Callable[[UUID], str | None]
) -> Decision:
    parts = PARTS[api]
    allowed: dict[str, list[object]] = {}
    refused: dict[Error, dict[str, list[object]]] = {}
    for field in parts.asked:
        allowed[field] = []
        for part in getattr(body, field):
            resource = _resource(part, topic_name)
            if resource is None or _may_touch(may, principal, api, resource):
                allowed[field].append(part)
            else:
                of_cluster = resource == CLUSTER
                error = Error.CLUSTER_AUTHORIZATION_FAILED if of_cluster else Error.TOPIC_AUTHORIZATION_FAILED
                refused.setdefault(error, {name: [] for name in parts.asked})[field].append(part)
    if not refused:
        return Decision(body, [])
    told = [(msgspec.structs.replace(body, **fields), error) for error, fields in refused.items()]
    remains = any(allowed.values())
    return Decision(msgspec.structs.replace(body, **allowed) if remains else None, told)


def _may_touch(may: May, principal: str, api: Api, resource: Resource) -> bool:
    # Who may create topics in the cluster need not be told of each.
    if api is Api.CREATE_TOPICS and may(principal, Operation.CREATE, CLUSTER):
        return True
    return may(principal, PARTS[api].operation, resource)


def _resource(part: Any, topic_name: Callable[[UUID], str | None]) -> Resource | None:
    if isinstance(part, str):
        return topic(part)
    if hasattr(part, "resource_type"):
        return topic(part.resource_name) if part.resource_type == TOPIC_RESOURCE else CLUSTER
    name: str | None = getattr(part, "name", None)
    topic_id: UUID = getattr(part, "topic_id", ZERO_UUID)
    if name is None and topic_id != ZERO_UUID:
        name = topic_name(topic_id)
    return None if name is None else topic(name)
