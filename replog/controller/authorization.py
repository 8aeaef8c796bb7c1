"""Who may do what: one hook, asked before anything is decided, that allows all unless an authorizer is set (SPEC D17).

What the hook is asked, in which words and for which request, is what the released software asks. Where nobody shows who he is
everybody is `ANONYMOUS`; the authorizer behind the hook is `replog/node/api/standard_authorizer.py`, where there is one. Which questions an API comes to stands beside its handler (`replog/controller/served_api.py`); here are the words for them.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple, Protocol
from uuid import UUID

import msgspec

from replog.errors import Error
from replog.metadata.state import GROUP_RESOURCE, TOPIC_RESOURCE
from replog.security.principals import ANONYMOUS_USER
from replog.types import ZERO_UUID


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
    IDEMPOTENT_WRITE = 12


class Resource(NamedTuple):
    """What it is done to: `topic`, `group`, `cluster` or `transactional_id`, and its name; or `SOME_TOPIC`."""

    kind: str
    name: str


class Peer(NamedTuple):
    """Who asks, and from which address."""

    principal: str
    host: str


ANONYMOUS: Final = Peer(ANONYMOUS_USER, "")
CLUSTER: Final = Resource("cluster", "kafka-cluster")
SOME_TOPIC: Final = Resource("some topic", "")  # whichever, be it there already or not
REFUSALS: Final = {
    "cluster": Error.CLUSTER_AUTHORIZATION_FAILED,
    "topic": Error.TOPIC_AUTHORIZATION_FAILED,
    "group": Error.GROUP_AUTHORIZATION_FAILED,
    "transactional_id": Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
May = Callable[[Peer, Operation, Resource], bool]


def allow_all(peer: Peer, operation: Operation, resource: Resource) -> bool:
    """Allow everybody everything."""
    return True


def topic(name: str) -> Resource:
    """Return the resource that a topic is."""
    return Resource("topic", name)


def group(name: str) -> Resource:
    """Return the resource that a group is."""
    return Resource("group", name)


def transactional_id(name: str) -> Resource:
    """Return the resource that a transactional id is."""
    return Resource("transactional_id", name)


class Topics(NamedTuple):
    """What is known of topics: a name is None when there is no such topic, and then there is nothing to protect."""

    name_of: Callable[[UUID], str | None]


class Asker(NamedTuple):
    """The hook as one principal meets it."""

    hook: May
    peer: Peer
    topics: Topics

    def may(self, operation: Operation, resource: Resource) -> bool:
        """Return whether the principal may do this."""
        return self.hook(self.peer, operation, resource)

    def error(self, operation: Operation, resource: Resource) -> Error:
        """Return NONE, or what a refusal is called."""
        return Error.NONE if self.may(operation, resource) else REFUSALS[resource.kind]


# --- questions about a request as a whole ------------------------------------------------------------------


class OfGroup(Protocol):
    """A request that concerns one group."""

    @property
    def group_id(self) -> str:
        """Its name."""


class OfTransaction(Protocol):
    """A request in the name of a transactional id."""

    @property
    def transactional_id(self) -> str:
        """Its name."""


def of_cluster(*operations: Operation) -> Callable[[Asker, object], Error]:
    """Return the question for the cluster: any of the operations will do."""

    def check(ask: Asker, _: object) -> Error:
        allowed = any(ask.may(operation, CLUSTER) for operation in operations)
        return Error.NONE if allowed else Error.CLUSTER_AUTHORIZATION_FAILED

    return check


def of_group(operation: Operation) -> Callable[[Asker, OfGroup], Error]:
    """Return the question for the group that a request names."""
    return lambda ask, body: ask.error(operation, group(body.group_id))


def writes_as(ask: Asker, body: OfTransaction) -> Error:
    """Ask for the transactional id that a request names."""
    return ask.error(Operation.WRITE, transactional_id(body.transactional_id))


BY_NODES: Final = (of_cluster(Operation.CLUSTER_ACTION),)  # brokers and controllers ask each other


# --- what a part of a request is about ------------------------------------------------------------------


def part_resource(_: msgspec.Struct, part: object, topics: Topics) -> Resource | None:
    """Return what a part of a request is about; None where that is a topic that does not exist."""
    if isinstance(part, str):
        return topic(part)
    resource_type = getattr(part, "resource_type", None)
    if resource_type is not None:
        kinds = {TOPIC_RESOURCE: topic, GROUP_RESOURCE: group}
        return kinds[resource_type](getattr(part, "resource_name", "")) if resource_type in kinds else CLUSTER
    name: str | None = getattr(part, "topic", None) or getattr(part, "name", None)
    topic_id: UUID = getattr(part, "topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID and not name:
        name = topics.name_of(topic_id)
    return None if name is None else topic(name)


def named_group(_: msgspec.Struct, name: object, __: Topics) -> Resource:
    """Return the group that a part of a request is the name of."""
    return group(str(name))
