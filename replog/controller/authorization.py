"""Who may do what: one hook, asked before anything is decided, that allows all (SPEC D17).

There is no authorizer yet, and no connection says who is behind it: every caller is `ANONYMOUS`. What the hook is asked, in
which words and for which request, is what the released software asks; so an authorizer can be put in without touching
any other part. Three tables say it, and an API may be in several of them:

- `WHOLE`: questions that decide about a request as a whole;
- `PARTS`: requests that name topics or groups are decided one by one, and what is left is carried out;
- `SHOWN`: answers that tell of many, of which the caller sees its own.

Metadata, DescribeTopicPartitions and a broker's Fetch are asked for where they are answered: sessions and cursors go on
from what was seen. ApiVersions and DescribeCluster are everybody's.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final, NamedTuple, Protocol, TypeVar, cast
from uuid import UUID

import msgspec

from replog.errors import Error
from replog.log.batch import TRANSACTIONAL
from replog.metadata.state import TOPIC_RESOURCE
from replog.types import ZERO_UUID
from replog.wire import exchanges
from replog.wire.apis import Api
from replog.wire.exchanges import Exchange, Q, R
from replog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from replog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Member,
)
from replog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from replog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from replog.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from replog.wire.messages.find_coordinator import FindCoordinatorRequest
from replog.wire.messages.init_producer_id import InitProducerIdRequest
from replog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from replog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from replog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from replog.wire.messages.produce import ProduceRequest

ANONYMOUS: Final = "User:ANONYMOUS"
GROUP_RESOURCE: Final = 32  # of configs
TRANSACTIONS: Final = 1  # FindCoordinator's key type
ATTRIBUTES_POSITION: Final = 22  # the low byte of a batch's attributes


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
    """What it is done to: `topic`, `group`, `cluster` or `transactional_id`, and its name."""

    kind: str
    name: str


CLUSTER: Final = Resource("cluster", "kafka-cluster")
REFUSALS: Final = {
    "cluster": Error.CLUSTER_AUTHORIZATION_FAILED,
    "topic": Error.TOPIC_AUTHORIZATION_FAILED,
    "group": Error.GROUP_AUTHORIZATION_FAILED,
    "transactional_id": Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
May = Callable[[str, Operation, Resource], bool]  # principal, operation, resource


def allow_all(principal: str, operation: Operation, resource: Resource) -> bool:
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
    names: Callable[[], Iterable[str]]


class Asker(NamedTuple):
    """The hook as one principal meets it."""

    hook: May
    principal: str
    topics: Topics

    def may(self, operation: Operation, resource: Resource) -> bool:
        """Tell whether the principal may do this."""
        return self.hook(self.principal, operation, resource)

    def error(self, operation: Operation, resource: Resource) -> Error:
        """Return NONE, or what a refusal is called."""
        return Error.NONE if self.may(operation, resource) else REFUSALS[resource.kind]


# --- requests as a whole ---------------------------------------------------------------------------------

Question = Callable[[Asker, msgspec.Struct], Error]
_replace = msgspec.structs.replace


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


def _cluster(*operations: Operation) -> Callable[[Asker, object], Error]:
    """Return the question for the cluster: any of the operations will do."""

    def check(ask: Asker, _: object) -> Error:
        allowed = any(ask.may(operation, CLUSTER) for operation in operations)
        return Error.NONE if allowed else Error.CLUSTER_AUTHORIZATION_FAILED

    return check


def _group(operation: Operation) -> Callable[[Asker, OfGroup], Error]:
    return lambda ask, body: ask.error(operation, group(body.group_id))


def _writes_as(ask: Asker, body: OfTransaction) -> Error:
    return ask.error(Operation.WRITE, transactional_id(body.transactional_id))


def _produces_in_transaction(ask: Asker, body: ProduceRequest) -> Error:
    """Ask for the transactional id where batches are transactional: by their attributes, not by what the request says."""
    batches = (data.records for topic_data in body.topic_data for data in topic_data.partition_data)
    if not any(
        batch and len(batch) > ATTRIBUTES_POSITION and batch[ATTRIBUTES_POSITION] & TRANSACTIONAL for batch in batches
    ):
        return Error.NONE
    if body.transactional_id is None:
        return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ask.error(Operation.WRITE, transactional_id(body.transactional_id))


def _gets_producer_id(ask: Asker, body: InitProducerIdRequest) -> Error:
    """Ask for the transactional id; without one, whoever may write anywhere may be idempotent (KIP-679)."""
    if body.transactional_id is not None:
        return ask.error(Operation.WRITE, transactional_id(body.transactional_id))
    allowed = ask.may(Operation.IDEMPOTENT_WRITE, CLUSTER) or any(
        ask.may(Operation.WRITE, topic(name)) for name in ask.topics.names()
    )
    return Error.NONE if allowed else Error.CLUSTER_AUTHORIZATION_FAILED


def _adds_partitions(ask: Asker, body: AddPartitionsToTxnRequest) -> Error:
    if body.transactions:  # from version 4 on only brokers ask
        return ask.error(Operation.CLUSTER_ACTION, CLUSTER)
    return ask.error(Operation.WRITE, transactional_id(body.v3_and_below_transactional_id))


def _subscribes(ask: Asker, body: ConsumerGroupHeartbeatRequest) -> Error:
    names = dict.fromkeys(body.subscribed_topic_names or ())
    return next((error for name in names if (error := ask.error(Operation.DESCRIBE, topic(name)))), Error.NONE)


def _fetches_offsets(ask: Asker, body: OffsetFetchRequest) -> Error:
    """Ask for the one group of versions below 8; of several each is decided by itself."""
    return Error.NONE if body.groups else ask.error(Operation.DESCRIBE, group(body.group_id))


def _finds_one(ask: Asker, body: FindCoordinatorRequest) -> Error:
    """Ask for the one key of versions below 4."""
    return ask.error(Operation.DESCRIBE, _coordinated(body, body.key)) if body.key else Error.NONE


def _coordinated(body: FindCoordinatorRequest, key: str) -> Resource:
    return transactional_id(key) if body.key_type == TRANSACTIONS else group(key)


def _asks(exchange: Exchange[Q, R], *checks: Callable[[Asker, Q], Error]) -> dict[Api, tuple[Question, ...]]:
    """Return an entry of `WHOLE`: these questions, in order."""
    return {exchange.api: cast("tuple[Question, ...]", checks)}


WHOLE: Final[dict[Api, tuple[Question, ...]]] = {
    **dict.fromkeys(
        (
            Api.FETCH,  # of the metadata log
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
            Api.ELECT_DESIGNATED_LEADERS,  # likewise; versions 0-2 of ElectLeaders stay as released
            Api.LEADER_AND_ISR,
            Api.STOP_REPLICA,
            Api.UPDATE_METADATA,
            Api.CONTROLLED_SHUTDOWN,
        ),
        (_cluster(Operation.CLUSTER_ACTION),),
    ),
    Api.WRITE_TXN_MARKERS: (_cluster(Operation.ALTER, Operation.CLUSTER_ACTION),),
    **dict.fromkeys(
        (
            Api.UNREGISTER_BROKER,
            Api.ALTER_REPLICA_LOG_DIRS,
            Api.ELECT_LEADERS,
            Api.ALTER_PARTITION_REASSIGNMENTS,
            Api.UPDATE_FEATURES,
            Api.ADD_RAFT_VOTER,
            Api.REMOVE_RAFT_VOTER,
        ),
        (_cluster(Operation.ALTER),),
    ),
    **dict.fromkeys(
        (Api.DESCRIBE_QUORUM, Api.LIST_PARTITION_REASSIGNMENTS, Api.DESCRIBE_LOG_DIRS),
        (_cluster(Operation.DESCRIBE),),
    ),
    **_asks(exchanges.JOIN_GROUP, _group(Operation.READ)),
    **_asks(exchanges.SYNC_GROUP, _group(Operation.READ)),
    **_asks(exchanges.HEARTBEAT, _group(Operation.READ)),
    **_asks(exchanges.LEAVE_GROUP, _group(Operation.READ)),
    **_asks(exchanges.OFFSET_COMMIT, _group(Operation.READ)),
    **_asks(exchanges.CONSUMER_GROUP_HEARTBEAT, _group(Operation.READ), _subscribes),
    **_asks(exchanges.OFFSET_DELETE, _group(Operation.DELETE)),
    **_asks(exchanges.OFFSET_FETCH, _fetches_offsets),
    **_asks(exchanges.FIND_COORDINATOR, _finds_one),
    **_asks(exchanges.PRODUCE, _produces_in_transaction),
    **_asks(exchanges.INIT_PRODUCER_ID, _gets_producer_id),
    **_asks(exchanges.ADD_PARTITIONS_TO_TXN, _adds_partitions),
    **_asks(exchanges.ADD_OFFSETS_TO_TXN, _writes_as, _group(Operation.READ)),
    **_asks(exchanges.END_TXN, _writes_as),
    **_asks(exchanges.TXN_OFFSET_COMMIT, _writes_as, _group(Operation.READ)),
}


# --- requests in parts ----------------------------------------------------------------------------------


def _resource(_: msgspec.Struct, part: object, topics: Topics) -> Resource | None:
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


def _coordinator(body: msgspec.Struct, key: object, _: Topics) -> Resource:
    assert isinstance(body, FindCoordinatorRequest)
    return _coordinated(body, str(key))


def _named_group(_: msgspec.Struct, name: object, __: Topics) -> Resource:
    return group(str(name))


class _Parts(NamedTuple):
    """Where a request and its answer hold what is decided one by one."""

    asked: tuple[str, ...]
    answered: str
    operation: Operation
    resource: Callable[[msgspec.Struct, object, Topics], Resource | None] = _resource
    of_cluster: Operation | None = None  # who may do this in the cluster need not be told of each part
    together: bool = False  # if one part is refused nothing is attempted


PARTS: Final[dict[Api, _Parts]] = {
    Api.CREATE_TOPICS: _Parts(("topics",), "topics", Operation.CREATE, of_cluster=Operation.CREATE),
    Api.DELETE_TOPICS: _Parts(("topics", "topic_names"), "responses", Operation.DELETE),
    Api.CREATE_PARTITIONS: _Parts(("topics",), "results", Operation.ALTER),
    Api.INCREMENTAL_ALTER_CONFIGS: _Parts(("resources",), "responses", Operation.ALTER_CONFIGS),
    Api.ALTER_CONFIGS: _Parts(("resources",), "responses", Operation.ALTER_CONFIGS),
    Api.DESCRIBE_CONFIGS: _Parts(("resources",), "results", Operation.DESCRIBE_CONFIGS),
    Api.PRODUCE: _Parts(("topic_data",), "responses", Operation.WRITE),
    Api.LIST_OFFSETS: _Parts(("topics",), "topics", Operation.DESCRIBE),
    Api.OFFSET_FOR_LEADER_EPOCH: _Parts(("topics",), "topics", Operation.DESCRIBE, of_cluster=Operation.CLUSTER_ACTION),
    Api.DELETE_RECORDS: _Parts(("topics",), "topics", Operation.DELETE),
    Api.DESCRIBE_PRODUCERS: _Parts(("topics",), "topics", Operation.READ),
    Api.OFFSET_COMMIT: _Parts(("topics",), "topics", Operation.READ),
    Api.TXN_OFFSET_COMMIT: _Parts(("topics",), "topics", Operation.READ),
    Api.OFFSET_DELETE: _Parts(("topics",), "topics", Operation.READ),
    Api.ADD_PARTITIONS_TO_TXN: _Parts(
        ("v3_and_below_topics",), "results_by_topic_v3_and_below", Operation.WRITE, together=True
    ),
    Api.FIND_COORDINATOR: _Parts(("coordinator_keys",), "coordinators", Operation.DESCRIBE, _coordinator),
    Api.DESCRIBE_GROUPS: _Parts(("groups",), "groups", Operation.DESCRIBE, _named_group),
    Api.CONSUMER_GROUP_DESCRIBE: _Parts(("group_ids",), "groups", Operation.DESCRIBE, _named_group),
    Api.DELETE_GROUPS: _Parts(("groups_names",), "results", Operation.DELETE, _named_group),
    Api.DESCRIBE_TRANSACTIONS: _Parts(
        ("transactional_ids",),
        "transaction_states",
        Operation.DESCRIBE,
        lambda _, name, __: transactional_id(str(name)),
    ),
}


# --- answers --------------------------------------------------------------------------------------------

Show = Callable[[Asker, msgspec.Struct, msgspec.Struct], msgspec.Struct]
ShownTopic = TypeVar("ShownTopic", OffsetFetchResponseTopic, OffsetFetchResponseTopics)


def _shows(exchange: Exchange[Q, R], show: Callable[[Asker, Q, R], R]) -> dict[Api, Show]:
    """Return an entry of `SHOWN`: what of these answers the caller may see."""
    return {exchange.api: cast(Show, show)}


def _groups_shown(ask: Asker, _: ListGroupsRequest, answer: ListGroupsResponse) -> ListGroupsResponse:
    if ask.may(Operation.DESCRIBE, CLUSTER):
        return _replace(answer)
    return _replace(answer, groups=[one for one in answer.groups if ask.may(Operation.DESCRIBE, group(one.group_id))])


def _transactions_shown(
    ask: Asker, _: ListTransactionsRequest, answer: ListTransactionsResponse
) -> ListTransactionsResponse:
    states = answer.transaction_states
    shown = [one for one in states if ask.may(Operation.DESCRIBE, transactional_id(one.transactional_id))]
    return _replace(answer, transaction_states=shown)


def _partitions_shown(
    ask: Asker, _: DescribeTransactionsRequest, answer: DescribeTransactionsResponse
) -> DescribeTransactionsResponse:
    """Tell of a transaction's partitions only those whose topics may be seen."""
    shown = [
        _replace(state, topics=[one for one in state.topics if ask.may(Operation.DESCRIBE, topic(one.topic))])
        for state in answer.transaction_states
    ]
    return _replace(answer, transaction_states=shown)


def _members_shown(
    ask: Asker, _: ConsumerGroupDescribeRequest, answer: ConsumerGroupDescribeResponse
) -> ConsumerGroupDescribeResponse:
    """Tell nothing of a group whose members subscribe or are assigned what may not be seen."""

    def is_visible(member: Member) -> bool:
        assigned = (
            held.topic_name
            for assignment in (member.assignment, member.target_assignment)
            for held in assignment.topic_partitions
        )
        names = dict.fromkeys((*member.subscribed_topic_names, *assigned))
        return all(ask.may(Operation.DESCRIBE, topic(name)) for name in names)

    words = "The group has described topic(s) that the client is not authorized to describe."
    shown = [
        one
        if all(map(is_visible, one.members))
        else _replace(one, error_code=Error.TOPIC_AUTHORIZATION_FAILED, error_message=words, members=[])
        for one in answer.groups
    ]
    return _replace(answer, groups=shown)


def _offsets_shown(ask: Asker, body: OffsetFetchRequest, answer: OffsetFetchResponse) -> OffsetFetchResponse:
    """Tell of each group what may be seen: of all topics those, of named ones an error for the others."""
    if not body.groups:
        return _replace(answer, topics=_topics_shown(ask, answer.topics, all_of_them=body.topics is None))
    asked = {one.group_id: one for one in body.groups}
    shown = []
    for one in answer.groups:
        if error := ask.error(Operation.DESCRIBE, group(one.group_id)):
            shown.append(_replace(one, topics=[], error_code=error))
        else:
            all_of_them = asked[one.group_id].topics is None
            shown.append(_replace(one, topics=_topics_shown(ask, one.topics, all_of_them=all_of_them)))
    return _replace(answer, groups=shown)


def _topics_shown(ask: Asker, topics: list[ShownTopic], *, all_of_them: bool) -> list[ShownTopic]:
    shown: list[ShownTopic] = []
    for one in topics:
        resource = _resource(one, one, ask.topics)
        error = ask.error(Operation.DESCRIBE, resource) if resource else Error.NONE
        if error and not all_of_them:
            hidden = [
                type(each)(partition_index=each.partition_index, committed_offset=-1, error_code=error)
                for each in one.partitions
            ]
            shown.append(_replace(one, partitions=hidden))
        elif not error:
            shown.append(one)
    return shown


def _configs_shown(ask: Asker, _: CreateTopicsRequest, answer: CreateTopicsResponse) -> CreateTopicsResponse:
    """Tell how a new topic is configured only to who may know (KIP-525)."""
    error = Error.TOPIC_AUTHORIZATION_FAILED
    return _replace(
        answer,
        topics=[
            one
            if one.error_code or ask.may(Operation.DESCRIBE_CONFIGS, topic(one.name))
            else _replace(one, topic_config_error_code=error, num_partitions=-1, replication_factor=-1, configs=[])
            for one in answer.topics
        ],
    )


SHOWN: Final[dict[Api, Show]] = {
    **_shows(exchanges.LIST_GROUPS, _groups_shown),
    **_shows(exchanges.LIST_TRANSACTIONS, _transactions_shown),
    **_shows(exchanges.DESCRIBE_TRANSACTIONS, _partitions_shown),
    **_shows(exchanges.CONSUMER_GROUP_DESCRIBE, _members_shown),
    **_shows(exchanges.OFFSET_FETCH, _offsets_shown),
    **_shows(exchanges.CREATE_TOPICS, _configs_shown),
}
FREE: Final = frozenset({Api.API_VERSIONS, Api.DESCRIBE_CLUSTER})
WHERE_ANSWERED: Final = frozenset({Api.METADATA, Api.DESCRIBE_TOPIC_PARTITIONS})


# --- decisions ------------------------------------------------------------------------------------------


class Decision(NamedTuple):
    """What may be carried out of a request, and what is refused of it and why."""

    body: msgspec.Struct | None  # None: nothing
    refused: list[tuple[msgspec.Struct, Error]]

    def with_refusals(self, api: Api, answer: msgspec.Struct, refusals: list[msgspec.Struct]) -> msgspec.Struct:
        """Return the answer with the parts that tell of refusals."""
        name = PARTS[api].answered
        told = [part for refusal in refusals for part in getattr(refusal, name)]
        return _replace(answer, **{name: [*getattr(answer, name), *told]})


def decide(ask: Asker, api: Api, body: msgspec.Struct) -> Decision:
    """Ask the hook about a request."""
    for check in WHOLE.get(api, ()):
        error = check(ask, body)
        if error is not Error.NONE:
            return Decision(None, [(body, error)])
    return _decided_by_parts(ask, PARTS[api], body) if api in PARTS else Decision(body, [])


def _decided_by_parts(ask: Asker, parts: _Parts, body: msgspec.Struct) -> Decision:
    allowed: dict[str, list[object]] = {field: [] for field in parts.asked}
    refused: dict[Error, dict[str, list[object]]] = {}
    for field in parts.asked:
        for part in getattr(body, field):
            error = _refusal(ask, parts, parts.resource(body, part, ask.topics))
            if error is Error.NONE:
                allowed[field].append(part)
            else:
                refused.setdefault(error, {name: [] for name in parts.asked})[field].append(part)
    if not refused:
        return Decision(body, [])
    if parts.together and any(allowed.values()):
        refused[Error.OPERATION_NOT_ATTEMPTED] = allowed
    told = [(_replace(body, **fields), error) for error, fields in refused.items()]
    remains = any(allowed.values()) and not parts.together
    return Decision(_replace(body, **allowed) if remains else None, told)


def _refusal(ask: Asker, parts: _Parts, resource: Resource | None) -> Error:
    if resource is None or (parts.of_cluster is not None and ask.may(parts.of_cluster, CLUSTER)):
        return Error.NONE
    return ask.error(parts.operation, resource)
