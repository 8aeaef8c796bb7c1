"""Requests of operators and tools: topics, partitions, elections, reassignments, brokers, features."""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from replog.controller import elect_leaders as el
from replog.controller import fencing, raised_min_isr, reassignment, topics
from replog.controller.authorization import BY_NODES, Asker, Operation, of_cluster
from replog.controller.authorization import topic as topic_resource
from replog.controller.controller_api import ControllerApi, Decided, Decider, by_image
from replog.controller.election import Election
from replog.controller.mutation_quotas import UNLIMITED, Account
from replog.controller.policy import Strategy
from replog.controller.recoveries import Recoveries
from replog.controller.served_api import Parts, ServedApi, without_message
from replog.controller.turn import Turn
from replog.controller.unclean_recovery import PARTITIONS_PER_REQUEST_MAX
from replog.errors import Error
from replog.metadata import features
from replog.metadata import records as r
from replog.types import NO_NODE, ZERO_UUID, NodeId, TopicIdPartition
from replog.wire.messages import alter_partition_reassignments as apr
from replog.wire.messages import create_partitions as cp
from replog.wire.messages import create_topics as ct
from replog.wire.messages import delete_topics as dt
from replog.wire.messages import elect_designated_leaders as edl
from replog.wire.messages import elect_leaders as elm
from replog.wire.messages import list_partition_reassignments as lpr
from replog.wire.messages import unregister_broker as ub
from replog.wire.messages import update_features as uf

if TYPE_CHECKING:
    from random import Random


QUOTA_EXCEEDED: Final = "The throttling quota has been exceeded."


def on_create_topics(
    turn: Turn,
    body: ct.CreateTopicsRequest,
    new_topic_id: Callable[[], UUID],
    random: "Random",
    account: Account = UNLIMITED,
) -> ct.CreateTopicsResponse:
    """Create topics, each on its own: one that cannot be does not hold up the others."""
    names = Counter(topic.name for topic in body.topics)
    is_too_much = topics.partition_count(turn.policy, body.topics) > topics.PARTITIONS_PER_REQUEST_MAX
    results = []
    for wanted in body.topics:
        if names[wanted.name] > 1:
            outcome = topics.refused(Error.INVALID_REQUEST, "Duplicate topic name.")
        elif is_too_much:
            outcome = topics.too_many()
        else:
            outcome = topics.create(turn.policy, wanted, new_topic_id, random)
            outcome = _admitted(outcome, account, validate_only=body.validate_only)
        if not body.validate_only:
            turn.append(outcome.records)
        results.append(_created(wanted, outcome, validate_only=body.validate_only))
    return ct.CreateTopicsResponse(throttle_time_ms=account.throttle_ms, topics=results)


def _admitted(outcome: topics.TopicOutcome, account: Account, *, validate_only: bool = False) -> topics.TopicOutcome:
    """Return what becomes of a topic whose client may have a quota."""
    created = sum(isinstance(record, r.PartitionRecord) for record in outcome.records)
    if validate_only or not created or account.admits(created):
        return outcome
    return topics.refused(Error.THROTTLING_QUOTA_EXCEEDED, QUOTA_EXCEEDED)


def _created(
    wanted: ct.CreatableTopic, outcome: topics.TopicOutcome, *, validate_only: bool
) -> ct.CreatableTopicResult:
    return ct.CreatableTopicResult(
        name=wanted.name,
        topic_id=ZERO_UUID if validate_only else outcome.topic_id,
        error_code=outcome.error,
        error_message=outcome.message,
        num_partitions=outcome.partition_count,
        replication_factor=outcome.replication_factor,
        configs=[],
    )


def on_delete_topics(turn: Turn, body: dt.DeleteTopicsRequest, account: Account) -> dt.DeleteTopicsResponse:
    """Delete topics by name or id, unless the controller's file forbids it."""
    if not turn.policy.settings.topic_deletion:
        return refused_deletions(body, Error.TOPIC_DELETION_DISABLED)
    wanted = body.topics or [dt.DeleteTopicState(name=name) for name in body.topic_names]
    results = []
    for topic in wanted:
        known = turn.image.topics.get(topic.topic_id)
        outcome = topics.delete(turn.image, topic)
        if outcome.error is Error.NONE and not account.admits(len(turn.image.topics[outcome.topic_id].partitions)):
            outcome = topics.refused(Error.THROTTLING_QUOTA_EXCEEDED, QUOTA_EXCEEDED)
        turn.append(outcome.records)
        results.append(
            dt.DeletableTopicResult(
                name=known.name if known else topic.name,
                topic_id=outcome.topic_id if outcome.error is Error.NONE else topic.topic_id,
                error_code=outcome.error,
                error_message=outcome.message,
            )
        )
    return dt.DeleteTopicsResponse(throttle_time_ms=account.throttle_ms, responses=results)


def on_create_partitions(
    turn: Turn, body: cp.CreatePartitionsRequest, random: "Random", account: Account = UNLIMITED
) -> cp.CreatePartitionsResponse:
    """Give topics more partitions."""
    results = []
    names = Counter(topic.name for topic in body.topics)
    is_too_much = topics.missing_partitions(turn.image, body.topics) > topics.PARTITIONS_PER_REQUEST_MAX
    for wanted in body.topics:
        if names[wanted.name] > 1:
            outcome = topics.refused(Error.INVALID_REQUEST, "Duplicate topic name.")
        elif is_too_much:
            outcome = topics.too_many()
        else:
            outcome = topics.grow(turn.policy, wanted, random)
            outcome = _admitted(outcome, account, validate_only=body.validate_only)
        if not body.validate_only:
            turn.append(outcome.records)
        results.append(
            cp.CreatePartitionsTopicResult(name=wanted.name, error_code=outcome.error, error_message=outcome.message)
        )
    return cp.CreatePartitionsResponse(throttle_time_ms=account.throttle_ms, results=results)


def on_elect_leaders(turn: Turn, body: elm.ElectLeadersRequest) -> elm.ElectLeadersResponse:
    """Hold preferred or unclean elections (SPEC 2.9)."""
    elections = {el.PREFERRED: Election.PREFERRED, el.UNCLEAN: Election.UNCLEAN}
    if body.election_type not in elections:
        return elm.ElectLeadersResponse(error_code=Error.INVALID_REQUEST)
    election = elections[body.election_type]
    if body.topic_partitions is None:
        wanted = [
            (name, list(turn.image.topics_by_name[name].partitions)) for name in sorted(turn.image.topics_by_name)
        ]
    else:
        wanted = [(topic.topic, topic.partitions) for topic in body.topic_partitions]
    results = []
    for topic, partitions in wanted:
        elected = [(index, _elect(turn, topic, index, election)) for index in partitions]
        results_of_topic = [
            elm.PartitionResult(partition_id=index, error_code=error, error_message=None)
            for index, error in elected
            if body.topic_partitions is not None or error is not Error.ELECTION_NOT_NEEDED
        ]
        if results_of_topic:
            results.append(elm.ReplicaElectionResult(topic=topic, partition_result=results_of_topic))
    return elm.ElectLeadersResponse(replica_election_results=results)


def _elect(turn: Turn, topic: str, index: int, election: Election, designated: NodeId = NO_NODE) -> Error:
    outcome = el.elect(turn.policy, topic, index, election, designated)
    if outcome.record is not None:
        turn.append([outcome.record])
    return outcome.error


_LONGEST_LOG: dict[int, Strategy] = {
    edl.ElectionType.LONGEST_LOG_AGGRESSIVE: Strategy.AGGRESSIVE,
    edl.ElectionType.LONGEST_LOG_BALANCED: Strategy.BALANCED,
}


def on_elect_designated_leaders(
    turn: Turn, recoveries: Recoveries, body: edl.ElectDesignatedLeadersRequest
) -> edl.ElectDesignatedLeadersResponse:
    """Elect whom an operator names, or begin a search for the longest log (SPEC 2.9.4, 2.9.5)."""
    if body.election_type not in edl.ElectionType.__members__.values():
        return edl.ElectDesignatedLeadersResponse(error_code=Error.INVALID_REQUEST)
    served = 0
    results = []
    for topic in body.topics:
        results_of_topic = []
        for wanted in topic.partitions:
            error = Error.REQUEST_LIMIT_REACHED  # D8, D18
            if served < PARTITIONS_PER_REQUEST_MAX:
                error = _designated(turn, recoveries, body.election_type, topic.topic, wanted)
            served += 1
            results_of_topic.append(edl.DesignatedPartitionResult(partition=wanted.partition, error_code=error))
        results.append(edl.DesignatedTopicResult(topic=topic.topic, partition_results=results_of_topic))
    return edl.ElectDesignatedLeadersResponse(replica_election_results=results)


def _designated(
    turn: Turn, recoveries: Recoveries, election_type: int, topic: str, wanted: edl.DesignatedPartition
) -> Error:
    strategy = _LONGEST_LOG.get(election_type)
    if strategy is None:
        return _elect(turn, topic, wanted.partition, Election.DESIGNATED, NodeId(wanted.designated_leader))
    known = turn.image.topics_by_name.get(topic)
    partition = known.partitions.get(wanted.partition) if known else None
    if known is None or partition is None:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader != NO_NODE:
        return Error.ELECTION_NOT_NEEDED
    recoveries.order(turn, TopicIdPartition(known.topic_id, wanted.partition), strategy)
    return Error.NONE


def on_alter_partition_reassignments(
    turn: Turn, body: apr.AlterPartitionReassignmentsRequest
) -> apr.AlterPartitionReassignmentsResponse:
    """Start, change or cancel reassignments.

    A partition that is named twice is not changed: each change of mind would be a record, and a request may hold 262,144.
    """
    responses = []
    named = Counter((topic.name, wanted.partition_index) for topic in body.topics for wanted in topic.partitions)
    for topic in body.topics:
        results_of_topic = []
        for wanted in topic.partitions:
            target = None if wanted.replicas is None else tuple(NodeId(node) for node in wanted.replicas)
            if named[topic.name, wanted.partition_index] > 1:
                outcome = reassignment.refused(Error.INVALID_REQUEST, "Duplicate partition.")
            else:
                outcome = reassignment.reassign(
                    turn.policy,
                    topic.name,
                    wanted.partition_index,
                    target,
                    allow_replication_factor_change=body.allow_replication_factor_change,
                )
            if outcome.record is not None:
                turn.append([outcome.record])
            results_of_topic.append(
                apr.ReassignablePartitionResponse(
                    partition_index=wanted.partition_index, error_code=outcome.error, error_message=outcome.message
                )
            )
        responses.append(apr.ReassignableTopicResponse(name=topic.name, partitions=results_of_topic))
    return apr.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=body.allow_replication_factor_change, error_message=None, responses=responses
    )


def on_list_partition_reassignments(
    turn: Turn, body: lpr.ListPartitionReassignmentsRequest
) -> lpr.ListPartitionReassignmentsResponse:
    """Show what is being reassigned."""
    return lpr.ListPartitionReassignmentsResponse(error_message=None, topics=reassignment.ongoing(turn.policy, body))


def on_unregister_broker(turn: Turn, body: ub.UnregisterBrokerRequest) -> ub.UnregisterBrokerResponse:
    """Forget a broker that will not come back."""
    broker = turn.image.brokers.get(NodeId(body.broker_id))
    if broker is None:
        message = f"Broker ID {body.broker_id} is not currently registered"
        return ub.UnregisterBrokerResponse(error_code=Error.BROKER_ID_NOT_REGISTERED, error_message=message)
    turn.append(fencing.unregister(turn.policy, broker))
    return ub.UnregisterBrokerResponse(error_message=None)


def on_update_features(turn: Turn, body: uf.UpdateFeaturesRequest) -> uf.UpdateFeaturesResponse:
    """Finalize feature levels, all of the request or none."""
    outcomes = []
    wanted = {update.feature: max(update.max_version_level, 0) for update in body.feature_updates}
    names = Counter(update.feature for update in body.feature_updates)
    for update in body.feature_updates:
        upgrade_type = features.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
        if names[update.feature] > 1:
            outcome: features.Outcome = (Error.INVALID_REQUEST, "The feature is named twice.", [])
        else:
            level = wanted[update.feature]
            outcome = features.update(turn.image, turn.policy.settings, update.feature, level, upgrade_type, wanted)
        outcomes.append((update.feature, outcome))
    failed = [(error, message) for _, (error, message, _) in outcomes if error is not Error.NONE]
    if not failed and not body.validate_only:
        had_elr = turn.policy.elr_enabled
        for _, (_, _, records) in outcomes:
            turn.append(records)
        if not had_elr:
            turn.append(raised_min_isr.of_all(turn.policy))
    error, message = failed[0] if failed else (Error.NONE, None)
    return uf.UpdateFeaturesResponse(
        error_code=error,
        error_message=message,
        results=[
            uf.UpdatableFeatureResult(feature=name, error_code=error, error_message=message)
            for name, (error, message, _) in outcomes
        ],
    )


# --- who may ask, and how all of it is refused -----------------------------------------------------------


def _configs_shown(ask: Asker, _: ct.CreateTopicsRequest, answer: ct.CreateTopicsResponse) -> ct.CreateTopicsResponse:
    """Show how a new topic is configured only to who may know (KIP-525)."""
    replace = msgspec.structs.replace
    error = Error.TOPIC_AUTHORIZATION_FAILED
    return replace(
        answer,
        topics=[
            one
            if one.error_code or ask.may(Operation.DESCRIBE_CONFIGS, topic_resource(one.name))
            else replace(one, topic_config_error_code=error, num_partitions=-1, replication_factor=-1, configs=[])
            for one in answer.topics
        ],
    )


def _refused_topics(body: ct.CreateTopicsRequest, error: Error) -> ct.CreateTopicsResponse:
    results = [ct.CreatableTopicResult(name=one.name, error_code=error, error_message=None) for one in body.topics]
    return ct.CreateTopicsResponse(topics=results)


def refused_deletions(body: dt.DeleteTopicsRequest, error: Error) -> dt.DeleteTopicsResponse:
    """Answer each topic of a request alike."""
    by_name = [dt.DeletableTopicResult(name=name, error_code=error) for name in body.topic_names]
    by_either = [dt.DeletableTopicResult(name=one.name, topic_id=one.topic_id, error_code=error) for one in body.topics]
    return dt.DeleteTopicsResponse(responses=by_name + by_either)


def _refused_partitions(body: cp.CreatePartitionsRequest, error: Error) -> cp.CreatePartitionsResponse:
    results = [cp.CreatePartitionsTopicResult(name=one.name, error_code=error) for one in body.topics]
    return cp.CreatePartitionsResponse(results=results)


def _refused_elections(body: elm.ElectLeadersRequest, error: Error) -> elm.ElectLeadersResponse:
    """Say it at the top and of each partition: version 0 has no top."""
    results = [
        elm.ReplicaElectionResult(
            topic=one.topic,
            partition_result=[
                elm.PartitionResult(partition_id=index, error_code=error, error_message=None)
                for index in one.partitions
            ],
        )
        for one in body.topic_partitions or []
    ]
    return elm.ElectLeadersResponse(error_code=error, replica_election_results=results)


def _create_topics(decider: Decider, turn: Turn, body: ct.CreateTopicsRequest) -> ct.CreateTopicsResponse:
    wait_ms = 0 if body.validate_only else decider.creations.wait_ms(turn.now_ms)
    if wait_ms:
        refused = _refused_topics(body, Error.THROTTLING_QUOTA_EXCEEDED)
        return msgspec.structs.replace(refused, throttle_time_ms=wait_ms)
    account = decider.mutations.account(turn, refuses_from=6)
    answer = on_create_topics(turn, body, decider.new_topic_id, decider.random, account)
    decider.creations.spend(_created_count(turn))
    return answer


def _create_partitions(decider: Decider, turn: Turn, body: cp.CreatePartitionsRequest) -> cp.CreatePartitionsResponse:
    wait_ms = 0 if body.validate_only else decider.creations.wait_ms(turn.now_ms)
    if wait_ms:
        refused = _refused_partitions(body, Error.THROTTLING_QUOTA_EXCEEDED)
        return msgspec.structs.replace(refused, throttle_time_ms=wait_ms)
    answer = on_create_partitions(turn, body, decider.random, decider.mutations.account(turn, refuses_from=3))
    decider.creations.spend(_created_count(turn))
    return answer


def _delete_topics(decider: Decider, turn: Turn, body: dt.DeleteTopicsRequest) -> dt.DeleteTopicsResponse:
    return on_delete_topics(turn, body, decider.mutations.account(turn, refuses_from=5))


def _created_count(turn: Turn) -> int:
    return sum(isinstance(record, r.PartitionRecord) for record in turn.records)


def _unregister_broker(decider: Decider, turn: Turn, body: ub.UnregisterBrokerRequest) -> ub.UnregisterBrokerResponse:
    decider.sessions.drop(NodeId(body.broker_id))
    decider.recoveries.on_fenced(NodeId(body.broker_id))
    return on_unregister_broker(turn, body)


_MAY_ALTER: Final = (of_cluster(Operation.ALTER),)
CREATE_TOPICS: Final = ControllerApi(
    ServedApi(
        ct.EXCHANGE,
        parts=Parts(("topics",), "topics", Operation.CREATE, of_cluster=Operation.CREATE),
        shown=_configs_shown,
        refuse=_refused_topics,
    ),
    decide=_create_topics,
)
DELETE_TOPICS: Final = ControllerApi(
    ServedApi(
        dt.EXCHANGE,
        parts=Parts(("topics", "topic_names"), "responses", Operation.DELETE),
        refuse=refused_deletions,
    ),
    decide=_delete_topics,
)
CREATE_PARTITIONS: Final = ControllerApi(
    ServedApi(cp.EXCHANGE, parts=Parts(("topics",), "results", Operation.ALTER), refuse=_refused_partitions),
    decide=_create_partitions,
)
ELECT_LEADERS: Final = ControllerApi(
    ServedApi(elm.EXCHANGE, questions=_MAY_ALTER, refuse=_refused_elections), decide=by_image(on_elect_leaders)
)
ELECT_DESIGNATED_LEADERS: Final = ControllerApi(
    ServedApi(edl.EXCHANGE, questions=BY_NODES),  # KIP-966: "ACL: CLUSTER_ACTION"; ElectLeaders stays as released
    decide=lambda decider, turn, body: on_elect_designated_leaders(turn, decider.recoveries, body),
)
ALTER_PARTITION_REASSIGNMENTS: Final = ControllerApi(
    ServedApi(apr.EXCHANGE, questions=_MAY_ALTER, refuse=without_message(apr.EXCHANGE)),
    decide=by_image(on_alter_partition_reassignments),
)
LIST_PARTITION_REASSIGNMENTS: Final = ControllerApi(
    ServedApi(
        lpr.EXCHANGE,
        questions=(of_cluster(Operation.DESCRIBE),),
        refuse=without_message(lpr.EXCHANGE),
        changes_nothing=True,
    ),
    decide=by_image(on_list_partition_reassignments),
)
UNREGISTER_BROKER: Final = ControllerApi(
    ServedApi(ub.EXCHANGE, questions=_MAY_ALTER, refuse=without_message(ub.EXCHANGE)), decide=_unregister_broker
)
UPDATE_FEATURES: Final = ControllerApi(
    ServedApi(uf.EXCHANGE, questions=_MAY_ALTER, refuse=without_message(uf.EXCHANGE)),
    decide=by_image(on_update_features),
)
APIS: Final[tuple[Decided, ...]] = (
    CREATE_TOPICS,
    DELETE_TOPICS,
    CREATE_PARTITIONS,
    ELECT_LEADERS,
    ELECT_DESIGNATED_LEADERS,
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    UNREGISTER_BROKER,
    UPDATE_FEATURES,
)
