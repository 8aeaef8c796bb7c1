"""One hook decides who may do what, for every request of every listener (SPEC D17, KIP-966 "ACL")."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest

from replog.client.connection import Connection
from replog.config import NodeConfig
from replog.controller.authorization import (
    ANONYMOUS,
    CLUSTER,
    SOME_TOPIC,
    Asker,
    Operation,
    Peer,
    Resource,
    Topics,
    group,
    topic,
    transactional_id,
)
from replog.errors import Error
from replog.host.world import RealWorld
from replog.node.controller import ControllerNode
from replog.types import METADATA_TOPIC
from replog.wire.apis import (
    BROKER_APIS,
    CONTROLLER_APIS,
    SECURITY_APIS,
    ZOOKEEPER_BROKER_APIS,
    Api,
    api_of,
    request_type,
)
from replog.wire.codec import decode_response, encode_response
from replog.wire.error_codes import errors_in
from replog.wire.exchange import exchange_of
from replog.wire.messages import add_offsets_to_txn as aot
from replog.wire.messages import add_partitions_to_txn as apt
from replog.wire.messages import alter_client_quotas as acq
from replog.wire.messages import alter_configs as ac
from replog.wire.messages import alter_replica_log_dirs as arl
from replog.wire.messages import alter_user_scram_credentials as ausc
from replog.wire.messages import consumer_group_describe as cgd
from replog.wire.messages import consumer_group_heartbeat as cgh
from replog.wire.messages import create_acls as ca
from replog.wire.messages import create_partitions as cp
from replog.wire.messages import create_topics as ct
from replog.wire.messages import delete_acls as da
from replog.wire.messages import delete_groups as dg
from replog.wire.messages import delete_records as dr
from replog.wire.messages import delete_topics as dt
from replog.wire.messages import describe_client_quotas as dcq
from replog.wire.messages import describe_configs as dc
from replog.wire.messages import describe_groups as desc
from replog.wire.messages import describe_producers as dp
from replog.wire.messages import describe_transactions as dtx
from replog.wire.messages import elect_leaders as el
from replog.wire.messages import end_txn as et
from replog.wire.messages import fetch as fe
from replog.wire.messages import find_coordinator as fc
from replog.wire.messages import heartbeat as hb
from replog.wire.messages import incremental_alter_configs as iac
from replog.wire.messages import init_producer_id as ip
from replog.wire.messages import join_group as jg
from replog.wire.messages import leave_group as lg
from replog.wire.messages import list_config_resources as lcr
from replog.wire.messages import list_groups as ls
from replog.wire.messages import list_offsets as lo
from replog.wire.messages import list_transactions as lt
from replog.wire.messages import offset_commit as oc
from replog.wire.messages import offset_delete as od
from replog.wire.messages import offset_fetch as of
from replog.wire.messages import offset_for_leader_epoch as oe
from replog.wire.messages import produce as pr
from replog.wire.messages import sync_group as sg
from replog.wire.messages import txn_offset_commit as toc
from replog.wire.messages import write_txn_markers as wtm
from tests.controller.served_apis import IN_ZOOKEEPER_MODE, ON_BROKERS, ON_CONTROLLERS, SERVED
from tests.quorum.quorum_nodes import CLUSTER as CLUSTER_ID
from tests.quorum.quorum_nodes import free_ports, until

THEIRS, OTHERS = "theirs", "others"
THEIRS_ID, OTHERS_ID = UUID(int=1001), UUID(int=1002)
NAMES = {THEIRS_ID: THEIRS, OTHERS_ID: OTHERS}
TOPICS = Topics(NAMES.get)
OF_CLUSTER = Error.CLUSTER_AUTHORIZATION_FAILED
OF_TOPIC = Error.TOPIC_AUTHORIZATION_FAILED
OF_GROUP = Error.GROUP_AUTHORIZATION_FAILED
OF_TRANSACTION = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TRANSACTIONAL_BATCH = bytes(22) + bytes([0b10000]) + bytes(40)


def nobody(peer: Peer, operation: Operation, resource: Resource) -> bool:
    assert peer.principal == ANONYMOUS.principal
    return False


def only_theirs(_: Peer, operation: Operation, resource: Resource) -> bool:
    return resource == topic(THEIRS)


def decided(body: Any, may: Any = only_theirs) -> tuple[Any, list[tuple[Any, Error]]]:
    return SERVED[api_of(body)].decide(Asker(may, ANONYMOUS, TOPICS), body)


def refused(body: Any, may: Any) -> list[Error]:
    """Errors in the answer to what is refused of a request."""
    refusals = [SERVED[api_of(body)].refused(part, error) for part, error in decided(body, may)[1]]
    return [error for answer in refusals for error in errors_in(answer) if error]


class Row(NamedTuple):
    """A request, the questions it comes to when all are answered yes, and the error of each that is answered no."""

    body: Any
    asked: list[tuple[Operation, Resource]]
    errors: list[Error]


def row(body: Any, operation: Operation, resource: Resource, error: Error) -> Row:
    return Row(body, [(operation, resource)], [error])


T, G, X = topic(THEIRS), group("g"), transactional_id("x")
MARKER = wtm.WritableTxnMarker(topics=[wtm.WritableTxnMarkerTopic(name=THEIRS, partition_indexes=[0])])
MEMBER = {"group_id": "g", "member_id": "m"}
OFFSETS = [oc.OffsetCommitRequestTopic(name=THEIRS, partitions=[oc.OffsetCommitRequestPartition(partition_index=0)])]
TXN_OFFSETS = [
    toc.TxnOffsetCommitRequestTopic(name=THEIRS, partitions=[toc.TxnOffsetCommitRequestPartition(partition_index=0)])
]
DELETED = [od.OffsetDeleteRequestTopic(name=THEIRS, partitions=[od.OffsetDeleteRequestPartition(partition_index=0)])]
ADDED = [apt.AddPartitionsToTxnTopic(name=THEIRS, partitions=[0])]


def produced(records: bytes = bytes(61), **fields: Any) -> pr.ProduceRequest:
    data = pr.PartitionProduceData(index=0, records=records)
    return pr.ProduceRequest(topic_data=[pr.TopicProduceData(name=THEIRS, partition_data=[data])], acks=1, **fields)


# What Kafka's brokers ask their authorizer about, request by request.
TABLE = {
    "produce": row(produced(), Operation.WRITE, T, OF_TOPIC),
    "produce by topic id": row(
        pr.ProduceRequest(
            topic_data=[pr.TopicProduceData(topic_id=THEIRS_ID, partition_data=[pr.PartitionProduceData(index=0)])]
        ),
        Operation.WRITE,
        T,
        OF_TOPIC,
    ),
    "produce in a transaction": Row(
        produced(TRANSACTIONAL_BATCH, transactional_id="x"),
        [(Operation.WRITE, X), (Operation.WRITE, T)],
        [OF_TRANSACTION, OF_TOPIC],
    ),
    "list offsets": row(
        lo.ListOffsetsRequest(
            topics=[lo.ListOffsetsTopic(name=THEIRS, partitions=[lo.ListOffsetsPartition(partition_index=0)])]
        ),
        Operation.DESCRIBE,
        T,
        OF_TOPIC,
    ),
    "offset for leader epoch, a replica's": row(
        oe.OffsetForLeaderEpochRequest(
            topics=[oe.OffsetForLeaderTopic(topic=THEIRS, partitions=[oe.OffsetForLeaderPartition(partition=0)])]
        ),
        Operation.CLUSTER_ACTION,
        CLUSTER,
        OF_TOPIC,
    ),
    "delete records": row(
        dr.DeleteRecordsRequest(
            topics=[dr.DeleteRecordsTopic(name=THEIRS, partitions=[dr.DeleteRecordsPartition(partition_index=0)])]
        ),
        Operation.DELETE,
        T,
        OF_TOPIC,
    ),
    "describe producers": row(
        dp.DescribeProducersRequest(topics=[dp.TopicRequest(name=THEIRS, partition_indexes=[0])]),
        Operation.READ,
        T,
        OF_TOPIC,
    ),
    "join group": row(jg.JoinGroupRequest(**MEMBER), Operation.READ, G, OF_GROUP),
    "sync group": row(sg.SyncGroupRequest(**MEMBER), Operation.READ, G, OF_GROUP),
    "heartbeat": row(hb.HeartbeatRequest(**MEMBER), Operation.READ, G, OF_GROUP),
    "leave group": row(lg.LeaveGroupRequest(**MEMBER), Operation.READ, G, OF_GROUP),
    "consumer group heartbeat": Row(
        cgh.ConsumerGroupHeartbeatRequest(**MEMBER, subscribed_topic_names=[THEIRS, THEIRS]),
        [(Operation.READ, G), (Operation.DESCRIBE, T)],
        [OF_GROUP, OF_TOPIC],
    ),
    "offset commit": Row(
        oc.OffsetCommitRequest(group_id="g", topics=OFFSETS),
        [(Operation.READ, G), (Operation.READ, T)],
        [OF_GROUP, OF_TOPIC],
    ),
    "offset commit in a transaction": Row(
        toc.TxnOffsetCommitRequest(group_id="g", transactional_id="x", topics=TXN_OFFSETS),
        [(Operation.WRITE, X), (Operation.READ, G), (Operation.READ, T)],
        [OF_TRANSACTION, OF_GROUP, OF_TOPIC],
    ),
    "offset delete": Row(
        od.OffsetDeleteRequest(group_id="g", topics=DELETED),
        [(Operation.DELETE, G), (Operation.READ, T)],
        [OF_GROUP, OF_TOPIC],
    ),
    "offset fetch of one group": row(of.OffsetFetchRequest(group_id="g"), Operation.DESCRIBE, G, OF_GROUP),
    "describe groups": row(desc.DescribeGroupsRequest(groups=["g"]), Operation.DESCRIBE, G, OF_GROUP),
    "describe consumer groups": row(cgd.ConsumerGroupDescribeRequest(group_ids=["g"]), Operation.DESCRIBE, G, OF_GROUP),
    "delete groups": row(dg.DeleteGroupsRequest(groups_names=["g"]), Operation.DELETE, G, OF_GROUP),
    "find a group's coordinator": row(fc.FindCoordinatorRequest(key="g"), Operation.DESCRIBE, G, OF_GROUP),
    "find the coordinator of the group without a name": row(
        fc.FindCoordinatorRequest(key=""), Operation.DESCRIBE, group(""), OF_GROUP
    ),
    "find groups' coordinators": row(
        fc.FindCoordinatorRequest(coordinator_keys=["g"]), Operation.DESCRIBE, G, OF_GROUP
    ),
    "find a transaction's coordinator": row(
        fc.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), Operation.DESCRIBE, X, OF_TRANSACTION
    ),
    "producer id for a transactional id": row(
        ip.InitProducerIdRequest(transactional_id="x"), Operation.WRITE, X, OF_TRANSACTION
    ),
    "producer id for the idempotent": row(
        ip.InitProducerIdRequest(transactional_id=None), Operation.IDEMPOTENT_WRITE, CLUSTER, OF_CLUSTER
    ),
    "add partitions": Row(
        apt.AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=ADDED),
        [(Operation.WRITE, X), (Operation.WRITE, T)],
        [OF_TRANSACTION, OF_TOPIC],
    ),
    "add partitions, a broker's": row(
        apt.AddPartitionsToTxnRequest(
            transactions=[apt.AddPartitionsToTxnTransaction(transactional_id="x", topics=ADDED)]
        ),
        Operation.CLUSTER_ACTION,
        CLUSTER,
        OF_CLUSTER,
    ),
    "add offsets": Row(
        aot.AddOffsetsToTxnRequest(transactional_id="x", group_id="g"),
        [(Operation.WRITE, X), (Operation.READ, G)],
        [OF_TRANSACTION, OF_GROUP],
    ),
    "end transaction": row(et.EndTxnRequest(transactional_id="x"), Operation.WRITE, X, OF_TRANSACTION),
    "write markers": row(wtm.WriteTxnMarkersRequest(markers=[MARKER]), Operation.ALTER, CLUSTER, OF_CLUSTER),
    "describe transactions": row(
        dtx.DescribeTransactionsRequest(transactional_ids=["x"]), Operation.DESCRIBE, X, OF_TRANSACTION
    ),
    "move replicas between directories": row(
        arl.AlterReplicaLogDirsRequest(
            dirs=[
                arl.AlterReplicaLogDir(path="/data", topics=[arl.AlterReplicaLogDirTopic(name=THEIRS, partitions=[0])])
            ]
        ),
        Operation.ALTER,
        CLUSTER,
        OF_CLUSTER,
    ),
    "create topics": row(
        ct.CreateTopicsRequest(topics=[ct.CreatableTopic(name=THEIRS)]), Operation.CREATE, CLUSTER, OF_TOPIC
    ),
    "delete topics": row(dt.DeleteTopicsRequest(topic_names=[THEIRS]), Operation.DELETE, T, OF_TOPIC),
    "create partitions": row(
        cp.CreatePartitionsRequest(topics=[cp.CreatePartitionsTopic(name=THEIRS)]), Operation.ALTER, T, OF_TOPIC
    ),
    "alter a topic's configs": row(
        iac.IncrementalAlterConfigsRequest(resources=[iac.AlterConfigsResource(resource_type=2, resource_name=THEIRS)]),
        Operation.ALTER_CONFIGS,
        T,
        OF_TOPIC,
    ),
    "replace a broker's configs": row(
        ac.AlterConfigsRequest(resources=[ac.AlterConfigsResource(resource_type=4, resource_name="1")]),
        Operation.ALTER_CONFIGS,
        CLUSTER,
        OF_CLUSTER,
    ),
    "describe a group's configs": row(
        dc.DescribeConfigsRequest(resources=[dc.DescribeConfigsResource(resource_type=32, resource_name="g")]),
        Operation.DESCRIBE_CONFIGS,
        G,
        OF_GROUP,
    ),
    **{
        api.name.lower(): row(request_type(api)(), Operation.CLUSTER_ACTION, CLUSTER, OF_CLUSTER)
        for api in (
            *(Api.ENVELOPE, Api.FETCH, Api.VOTE, Api.BEGIN_QUORUM_EPOCH, Api.END_QUORUM_EPOCH, Api.FETCH_SNAPSHOT),
            *(Api.UPDATE_RAFT_VOTER, Api.ALTER_PARTITION, Api.BROKER_REGISTRATION, Api.BROKER_HEARTBEAT),
            *(Api.ALLOCATE_PRODUCER_IDS, Api.CONTROLLER_REGISTRATION, Api.ASSIGN_REPLICAS_TO_DIRS),
            *(Api.GET_REPLICA_LOG_INFO, Api.LEADER_AND_ISR, Api.STOP_REPLICA, Api.UPDATE_METADATA),
            *(Api.CONTROLLED_SHUTDOWN, Api.ELECT_DESIGNATED_LEADERS),
        )
    },
    **{
        api.name.lower(): row(request_type(api)(), Operation.ALTER, CLUSTER, OF_CLUSTER)
        for api in (
            *(Api.UNREGISTER_BROKER, Api.ELECT_LEADERS, Api.UPDATE_FEATURES),
            *(Api.ALTER_PARTITION_REASSIGNMENTS, Api.ADD_RAFT_VOTER, Api.REMOVE_RAFT_VOTER),
            Api.DESCRIBE_CLUSTER,  # of controllers; brokers answer everybody
        )
    },
    "create acls": row(ca.CreateAclsRequest(creations=[ca.AclCreation()]), Operation.ALTER, CLUSTER, OF_CLUSTER),
    "delete acls": row(da.DeleteAclsRequest(filters=[da.DeleteAclsFilter()]), Operation.ALTER, CLUSTER, OF_CLUSTER),
    "alter credentials": row(
        ausc.AlterUserScramCredentialsRequest(deletions=[ausc.ScramCredentialDeletion(name="alice")]),
        Operation.ALTER,
        CLUSTER,
        OF_CLUSTER,
    ),
    "alter quotas": row(
        acq.AlterClientQuotasRequest(entries=[acq.AlterClientQuotasRequestEntryData()]),
        Operation.ALTER_CONFIGS,
        CLUSTER,
        OF_CLUSTER,
    ),
    "describe quotas": row(dcq.DescribeClientQuotasRequest(), Operation.DESCRIBE_CONFIGS, CLUSTER, OF_CLUSTER),
    "list config resources": row(lcr.ListConfigResourcesRequest(), Operation.DESCRIBE_CONFIGS, CLUSTER, OF_CLUSTER),
    **{
        api.name.lower(): row(request_type(api)(), Operation.DESCRIBE, CLUSTER, OF_CLUSTER)
        for api in (
            *(Api.DESCRIBE_QUORUM, Api.LIST_PARTITION_REASSIGNMENTS, Api.DESCRIBE_LOG_DIRS),
            *(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, Api.DESCRIBE_ACLS),
        )
    },
}


BY_PART = ("alter credentials", "alter quotas", "create acls", "delete acls")  # refused change by change


def test_what_is_offered_is_served_and_nothing_else() -> None:
    on_brokers, on_controllers = BROKER_APIS | SECURITY_APIS, CONTROLLER_APIS | SECURITY_APIS
    forwarded = {api for api in on_brokers if api in ON_CONTROLLERS}
    by_the_server = {Api.API_VERSIONS}
    as_controllers = {Api.ALTER_PARTITION, Api.ALLOCATE_PRODUCER_IDS}

    assert ON_BROKERS.keys() | forwarded | by_the_server == on_brokers.keys()
    assert ON_CONTROLLERS.keys() | by_the_server == on_controllers.keys()
    assert ZOOKEEPER_BROKER_APIS.keys() - BROKER_APIS.keys() == IN_ZOOKEEPER_MODE.keys() | as_controllers


@pytest.mark.parametrize(
    "api", sorted(api for api, served in SERVED.items() if served.questions or served.parts), ids=lambda api: api.name
)
def test_the_table_has_all(api: Api) -> None:
    assert any(api_of(row.body) is api for row in TABLE.values())


@pytest.mark.parametrize("one", TABLE.values(), ids=TABLE)
def test_the_hook_is_asked_in_kafkas_words(one: Row) -> None:
    asked: list[tuple[Any, ...]] = []

    def all_of_it(*question: Any) -> bool:
        asked.append(question)
        return True

    assert decided(one.body, all_of_it) == (one.body, [])
    assert asked == [(ANONYMOUS, *question) for question in one.asked]


@pytest.mark.parametrize("one", TABLE.values(), ids=TABLE)
def test_a_refusal_says_so_in_the_words_of_its_api(one: Row) -> None:
    """Whatever is refused first is what the answer says, and nothing of the request is left."""
    left, _ = decided(one.body, nobody)

    assert left is None
    assert refused(one.body, nobody) == [one.errors[0]]


@pytest.mark.parametrize("version", range(4, 13))
def test_a_refused_fetch_of_metadata_says_so_in_every_version(version: int) -> None:
    """Before version 7 there is no error at the top: an empty answer would mean that there is nothing new."""
    wanted = fe.FetchRequest(topics=[fe.FetchTopic(topic=METADATA_TOPIC, partitions=[fe.FetchPartition(partition=0)])])
    refusal = ON_CONTROLLERS[Api.FETCH].refused(wanted, OF_CLUSTER)

    frame = encode_response(Api.FETCH, version, 7, refusal)
    _, answer = decode_response(fe.EXCHANGE, version, frame[4:])

    (shown,) = answer.responses
    assert shown.topic == METADATA_TOPIC
    assert [(one.partition_index, one.high_watermark, one.error_code) for one in shown.partitions] == [
        (0, -1, OF_CLUSTER)
    ]
    assert answer.error_code is (OF_CLUSTER if version > 6 else Error.NONE)


@pytest.mark.parametrize("version", range(1, 8))
def test_a_refused_offset_fetch_of_one_group_says_so_in_every_version(version: int) -> None:
    """Version 1 has no error for the group: an empty answer would mean that nothing was ever committed."""
    wanted = of.OffsetFetchRequest(
        group_id="g", topics=[of.OffsetFetchRequestTopic(name=THEIRS, partition_indexes=[0, 1])]
    )
    refusal = SERVED[Api.OFFSET_FETCH].refused(wanted, OF_GROUP)

    frame = encode_response(Api.OFFSET_FETCH, version, 7, refusal)
    _, answer = decode_response(of.EXCHANGE, version, frame[4:])

    (shown,) = answer.topics
    assert shown.name == THEIRS
    assert [(one.partition_index, one.committed_offset, one.error_code) for one in shown.partitions] == [
        (0, -1, OF_GROUP),
        (1, -1, OF_GROUP),
    ]
    assert answer.error_code is (OF_GROUP if version > 1 else Error.NONE)


@pytest.mark.parametrize(
    "one", [one for one in TABLE.values() if len(one.asked) > 1], ids=lambda one: api_of(one.body).name
)
def test_every_question_can_refuse(one: Row) -> None:
    for question, error in zip(one.asked, one.errors, strict=True):
        assert refused(one.body, lambda _, *asked, no=question: asked != no) == [error]


def resources(of: Any, resource: Any) -> Any:
    return of(resources=[resource(resource_type=2, resource_name=name) for name in (THEIRS, OTHERS)])


@pytest.mark.parametrize(
    "body",
    [
        ct.CreateTopicsRequest(topics=[ct.CreatableTopic(name=n) for n in (THEIRS, OTHERS)]),
        dt.DeleteTopicsRequest(topic_names=[THEIRS, OTHERS]),
        dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name=None, topic_id=i) for i in (THEIRS_ID, OTHERS_ID)]),
        cp.CreatePartitionsRequest(topics=[cp.CreatePartitionsTopic(name=n) for n in (THEIRS, OTHERS)]),
        resources(iac.IncrementalAlterConfigsRequest, iac.AlterConfigsResource),
        resources(ac.AlterConfigsRequest, ac.AlterConfigsResource),
        resources(dc.DescribeConfigsRequest, dc.DescribeConfigsResource),
        pr.ProduceRequest(topic_data=[pr.TopicProduceData(name=n) for n in (THEIRS, OTHERS)]),
        pr.ProduceRequest(topic_data=[pr.TopicProduceData(topic_id=i) for i in (THEIRS_ID, OTHERS_ID)]),
        lo.ListOffsetsRequest(topics=[lo.ListOffsetsTopic(name=n) for n in (THEIRS, OTHERS)]),
        oe.OffsetForLeaderEpochRequest(topics=[oe.OffsetForLeaderTopic(topic=n) for n in (THEIRS, OTHERS)]),
        dr.DeleteRecordsRequest(topics=[dr.DeleteRecordsTopic(name=n) for n in (THEIRS, OTHERS)]),
        dp.DescribeProducersRequest(topics=[dp.TopicRequest(name=n) for n in (THEIRS, OTHERS)]),
    ],
    ids=lambda body: type(body).__name__,
)
def test_topics_are_decided_one_by_one(body: msgspec.Struct) -> None:
    left, refusals = decided(body)
    nothing, all_refused = decided(body, nobody)

    assert len(refusals) == 1
    assert refusals[0][1] is OF_TOPIC
    for field in SERVED[api_of(body)].parts.asked:
        whole = getattr(body, field)
        assert [*getattr(left, field), *getattr(refusals[0][0], field)] == whole
        assert getattr(left, field) == whole[:1]
    assert nothing is None
    assert all_refused == [(body, OF_TOPIC)]


def test_of_a_transactions_partitions_all_or_none_are_added() -> None:
    topics = [apt.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in (THEIRS, OTHERS)]
    body = apt.AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)

    left, refusals = decided(body, lambda *asked: asked[2] in (topic(THEIRS), X))

    assert left is None
    assert [(part.v3_and_below_topics, error) for part, error in refusals] == [
        ([topics[1]], OF_TOPIC),
        ([topics[0]], Error.OPERATION_NOT_ATTEMPTED),
    ]


def test_transactional_batches_need_a_transactional_id() -> None:
    assert refused(produced(TRANSACTIONAL_BATCH), lambda *_: True) == [OF_TRANSACTION]


def test_who_may_write_anywhere_may_be_idempotent() -> None:
    body = ip.InitProducerIdRequest(transactional_id=None)

    assert decided(body, lambda *asked: asked[1:] == (Operation.WRITE, SOME_TOPIC)) == (body, [])


def test_markers_are_written_by_who_may_alter_or_act_for_the_cluster() -> None:
    body = wtm.WriteTxnMarkersRequest(markers=[MARKER])

    assert decided(body, lambda *asked: asked[1] is Operation.CLUSTER_ACTION) == (body, [])


def test_epochs_of_others_are_shown_to_who_may_describe() -> None:
    topics = [oe.OffsetForLeaderTopic(topic=name) for name in (THEIRS, OTHERS)]

    left, _ = decided(oe.OffsetForLeaderEpochRequest(topics=topics))

    assert left.topics == topics[:1]


def test_who_may_create_in_the_cluster_may_create_every_topic() -> None:
    body = ct.CreateTopicsRequest(topics=[ct.CreatableTopic(name=OTHERS)])

    assert decided(body, lambda *asked: asked[2] == CLUSTER) == (body, [])


def test_a_brokers_configs_are_the_clusters_matter() -> None:
    broker = iac.AlterConfigsResource(resource_type=4, resource_name="1")
    mine = iac.AlterConfigsResource(resource_type=2, resource_name=THEIRS)

    left, refusals = decided(iac.IncrementalAlterConfigsRequest(resources=[broker, mine]))

    assert left.resources == [mine]
    assert [(body.resources, error) for body, error in refusals] == [([broker], OF_CLUSTER)]


def test_a_topic_that_does_not_exist_needs_no_protection() -> None:
    gone = dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name=None, topic_id=UUID(int=9))])

    assert decided(gone) == (gone, [])


# --- what is shown of answers ------------------------------------------------------------------------------


def shown(api: Api, answer: Any, *visible: Resource, body: Any = None) -> Any:
    def may(_: str, operation: Operation, resource: Resource) -> bool:
        return resource in visible

    return SERVED[api].shown(Asker(may, ANONYMOUS, TOPICS), body, answer)


def test_groups_are_listed_to_who_may_describe_them_or_the_cluster() -> None:
    answer = ls.ListGroupsResponse(groups=[ls.ListedGroup(group_id=name) for name in ("a", "b")])

    assert [one.group_id for one in shown(Api.LIST_GROUPS, answer, group("b")).groups] == ["b"]
    assert shown(Api.LIST_GROUPS, answer, CLUSTER) == answer


def test_transactions_are_listed_to_who_may_describe_them() -> None:
    answer = lt.ListTransactionsResponse(
        transaction_states=[lt.TransactionState(transactional_id=name) for name in ("x", "y")]
    )

    listed = shown(Api.LIST_TRANSACTIONS, answer, X)

    assert [one.transactional_id for one in listed.transaction_states] == ["x"]


def test_of_a_transaction_only_visible_topics_are_shown() -> None:
    topics = [dtx.TopicData(topic=name, partitions=[0]) for name in (THEIRS, OTHERS)]
    answer = dtx.DescribeTransactionsResponse(
        transaction_states=[dtx.TransactionState(transactional_id="x", topics=topics)]
    )

    assert shown(Api.DESCRIBE_TRANSACTIONS, answer, T).transaction_states[0].topics == topics[:1]


def test_of_a_group_with_invisible_topics_nothing_is_shown() -> None:
    members = [cgd.Member(member_id="m", subscribed_topic_names=[THEIRS, OTHERS])]
    answer = cgd.ConsumerGroupDescribeResponse(groups=[cgd.DescribedGroup(group_id="g", members=members)])

    hidden = shown(Api.CONSUMER_GROUP_DESCRIBE, answer, T).groups[0]

    assert (hidden.error_code, hidden.members) == (OF_TOPIC, [])
    assert shown(Api.CONSUMER_GROUP_DESCRIBE, answer, T, topic(OTHERS)) == answer


def fetched(name: str, **fields: Any) -> of.OffsetFetchResponseTopics:
    partitions = [of.OffsetFetchResponsePartitions(partition_index=0, committed_offset=5)]
    return of.OffsetFetchResponseTopics(name=name, partitions=partitions, **fields)


def test_of_what_a_pattern_fits_visible_topics_are_assigned() -> None:
    held = [
        cgh.ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=one, partitions=[0])
        for one in (THEIRS_ID, OTHERS_ID)
    ]
    answer = cgh.ConsumerGroupHeartbeatResponse(member_epoch=3, assignment=cgh.Assignment(topic_partitions=held))
    nothing_new = cgh.ConsumerGroupHeartbeatResponse(member_epoch=3, assignment=None)

    answered = shown(Api.CONSUMER_GROUP_HEARTBEAT, answer, T)

    assert answered == msgspec.structs.replace(answer, assignment=cgh.Assignment(topic_partitions=held[:1]))
    assert shown(Api.CONSUMER_GROUP_HEARTBEAT, nothing_new, T) == nothing_new


def test_offsets_of_visible_topics_of_visible_groups_are_shown() -> None:
    answer = of.OffsetFetchResponse(
        groups=[
            of.OffsetFetchResponseGroup(group_id=name, topics=[fetched(THEIRS), fetched(OTHERS)])
            for name in ("all", "named", "hidden")
        ]
    )
    named = [of.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in (THEIRS, OTHERS)]
    groups = [
        of.OffsetFetchRequestGroup(group_id=name, topics=topics)
        for name, topics in (("all", None), ("named", named), ("hidden", None))
    ]

    answered = shown(
        Api.OFFSET_FETCH, answer, T, group("all"), group("named"), body=of.OffsetFetchRequest(groups=groups)
    ).groups

    assert answered[0].topics == [fetched(THEIRS)]
    assert answered[1].topics[0] == fetched(THEIRS)
    assert [(one.committed_offset, one.error_code) for one in answered[1].topics[1].partitions] == [(-1, OF_TOPIC)]
    assert (answered[2].error_code, answered[2].topics) == (OF_GROUP, [])


def test_a_group_that_is_asked_for_twice_is_shown_each_time_as_asked() -> None:
    wanted = [
        of.OffsetFetchRequestGroup(group_id="g", topics=None),
        of.OffsetFetchRequestGroup(group_id="g", topics=[of.OffsetFetchRequestTopics(name=THEIRS)]),
    ]
    answer = of.OffsetFetchResponse(
        groups=[
            of.OffsetFetchResponseGroup(group_id="g", topics=[fetched(THEIRS), fetched(OTHERS)]),
            of.OffsetFetchResponseGroup(group_id="g", topics=[fetched(THEIRS)]),
        ]
    )

    answered = shown(Api.OFFSET_FETCH, answer, T, G, body=of.OffsetFetchRequest(groups=wanted)).groups

    assert [one.topics for one in answered] == [[fetched(THEIRS)]] * 2


def test_a_new_topics_configs_are_shown_to_who_may_know_them() -> None:
    made = ct.CreatableTopicResult(name=THEIRS, num_partitions=3, replication_factor=2, configs=[])
    answer = ct.CreateTopicsResponse(topics=[made])

    hidden = shown(Api.CREATE_TOPICS, answer).topics[0]

    assert (hidden.error_code, hidden.topic_config_error_code, hidden.num_partitions) == (Error.NONE, OF_TOPIC, -1)
    assert shown(Api.CREATE_TOPICS, answer, T) == answer


# --- a whole controller ------------------------------------------------------------------------------------


def on_a_controller(
    folder: Path, may: Any, talk: Callable[[Connection], Awaitable[None]], *, is_active: bool = True
) -> None:
    async def main() -> None:
        config = NodeConfig(
            {
                "process.roles": "controller",
                "node.id": 101,
                "cluster.id": CLUSTER_ID,
                "listeners": f"127.0.0.1:{free_ports(1)[0]}",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,CLIENTS:SASL_SSL",  # users can be managed
                "controller.quorum.voters": "101@127.0.0.1:9" + ("" if is_active else ",102@127.0.0.1:10"),
                "log.dirs": str(folder),
                "controller.quorum.election.timeout.ms": 50,
            }
        )
        world = RealWorld(config, level="error")
        node = ControllerNode(world, config, may=may)
        connection = Connection(world, config.listener, "test")
        try:
            await node.start()
            await connection.open()
            if is_active:
                await until(lambda: node.controller.is_active and bool(node.controller.image.features))
            await talk(connection)
        finally:
            connection.close()
            await node.stop()
            world.close()
            await asyncio.sleep(0.01)  # transports close in the loop's next turns

    asyncio.run(main())


def test_a_controller_refuses_what_the_hook_forbids_and_decides_nothing(tmp_path: Path) -> None:
    answers: dict[Api, list[Error]] = {}
    by_part = {api_of(one): one for name in BY_PART for one in [TABLE[name].body]}

    async def talk(connection: Connection) -> None:
        for api in sorted(api for api, served in ON_CONTROLLERS.items() if served.questions):
            body = by_part.get(api) or request_type(api)()
            answers[api] = list(errors_in(await connection.send(exchange_of(api), body, timeout_ms=5000)))

    on_a_controller(tmp_path, nobody, talk)

    assert len(answers) > 15
    assert all(errors == [OF_CLUSTER] for errors in answers.values()), answers


def test_a_controller_carries_out_what_is_left(tmp_path: Path) -> None:
    async def talk(connection: Connection) -> None:
        body = iac.IncrementalAlterConfigsRequest(
            resources=[iac.AlterConfigsResource(resource_type=2, resource_name=name) for name in (OTHERS, THEIRS)]
        )
        answer = await connection.send(exchange_of(Api.INCREMENTAL_ALTER_CONFIGS), body, timeout_ms=5000)
        election = await connection.send(exchange_of(Api.ELECT_LEADERS), el.ElectLeadersRequest(), timeout_ms=5000)

        assert {answered.resource_name: answered.error_code for answered in answer.responses} == {
            THEIRS: Error.UNKNOWN_TOPIC_OR_PARTITION,
            OTHERS: OF_TOPIC,
        }
        assert election.error_code is OF_CLUSTER

    on_a_controller(tmp_path, only_theirs, talk)
