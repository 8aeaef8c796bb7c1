"""Malformed and out-of-range requests get the protocol's error, change nothing, and end nothing (issue 4, "Bad input")."""

import time
import typing
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.controller.admin_requests import ELECT_LEADERS
from replog.controller.controller import APIS
from replog.controller.topics import PARTITIONS_PER_REQUEST_MAX
from replog.errors import Error
from replog.wire.apis import Api
from replog.wire.codec import decode_response, encode_response
from replog.wire.error_codes import errors_in
from replog.wire.exchange import exchange_of
from replog.wire.layout import Wire
from replog.wire.messages import alter_configs as ac
from replog.wire.messages import alter_partition as ap
from replog.wire.messages import alter_partition_reassignments as apr
from replog.wire.messages import broker_heartbeat as bh
from replog.wire.messages import create_partitions as cp
from replog.wire.messages import create_topics as ct
from replog.wire.messages import delete_topics as dt
from replog.wire.messages import elect_designated_leaders as edl
from replog.wire.messages import elect_leaders as el
from replog.wire.messages import incremental_alter_configs as iac
from replog.wire.messages import unregister_broker as ub
from replog.wire.messages import update_features as uf
from tests.cases.controllers import Box, incarnation, registration
from tests.cases.partitions import TOPIC, TOPIC_ID, partition

NOBODY = UUID(int=4711)


def box() -> Box:
    found = Box(min_insync_replicas=2).features()
    for broker_id in (1, 2, 3):
        found.broker(broker_id)
    return found.topic(partition({"replicas": [1, 2, 3]})).activate()


def topic(**fields: Any) -> ct.CreateTopicsRequest:
    return ct.CreateTopicsRequest(
        topics=[ct.CreatableTopic(**({"name": "new", "num_partitions": 1, "replication_factor": 1} | fields))]
    )


def manual(*assignments: tuple[int, list[int]]) -> ct.CreateTopicsRequest:
    given = [ct.CreatableReplicaAssignment(partition_index=index, broker_ids=nodes) for index, nodes in assignments]
    return topic(num_partitions=-1, replication_factor=-1, assignments=given)


def proposal(topic_id: UUID = TOPIC_ID, **fields: Any) -> ap.AlterPartitionRequest:
    state = partition({"replicas": [1, 2, 3]})
    values = {
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "new_isr_with_epochs": [ap.BrokerState(broker_id=node, broker_epoch=100 + node) for node in (1, 2)],
    }
    data = ap.AlterPartitionRequestPartitionData(**(values | fields))
    return ap.AlterPartitionRequest(
        broker_id=1, broker_epoch=101, topics=[ap.AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[data])]
    )


def move(index: int, replicas: list[int] | None) -> apr.AlterPartitionReassignmentsRequest:
    wanted = apr.ReassignablePartition(partition_index=index, replicas=replicas)
    return apr.AlterPartitionReassignmentsRequest(topics=[apr.ReassignableTopic(name=TOPIC, partitions=[wanted])])


def config(name: str, value: str | None, *, kind: int = 2, of: str = TOPIC, operation: int = 0) -> Any:
    change = iac.AlterableConfig(name=name, config_operation=operation, value=value)
    resource = iac.AlterConfigsResource(resource_type=kind, resource_name=of, configs=[change])
    return iac.IncrementalAlterConfigsRequest(resources=[resource])


def grow(count: int, name: str = TOPIC) -> cp.CreatePartitionsRequest:
    return cp.CreatePartitionsRequest(topics=[cp.CreatePartitionsTopic(name=name, count=count, assignments=None)])


def members(*nodes: int) -> list[ap.BrokerState]:
    return [ap.BrokerState(broker_id=node, broker_epoch=-1) for node in nodes]


BAD = {
    "topic: negative partitions": (topic(num_partitions=-2), Error.INVALID_PARTITIONS),
    "topic: no partitions": (topic(num_partitions=0), Error.INVALID_PARTITIONS),
    "topic: too many partitions": (topic(num_partitions=2**31 - 1), Error.POLICY_VIOLATION),
    "topic: negative factor": (topic(replication_factor=-2), Error.INVALID_REPLICATION_FACTOR),
    "topic: factor beyond brokers": (topic(replication_factor=32767), Error.INVALID_REPLICATION_FACTOR),
    "topic: no name": (topic(name=""), Error.INVALID_TOPIC_EXCEPTION),
    "topic: name too long": (topic(name="x" * 250), Error.INVALID_TOPIC_EXCEPTION),
    "topic: name with a slash": (topic(name="../x"), Error.INVALID_TOPIC_EXCEPTION),
    "topic: the metadata log": (topic(name="__cluster_metadata"), Error.TOPIC_AUTHORIZATION_FAILED),
    "topic: duplicate replicas": (manual((0, [1, 1])), Error.INVALID_REPLICA_ASSIGNMENT),
    "topic: unknown replicas": (manual((0, [1, 9])), Error.INVALID_REPLICA_ASSIGNMENT),
    "topic: a gap": (manual((1, [1])), Error.INVALID_REPLICA_ASSIGNMENT),
    "topic: negative index": (manual((-1, [1])), Error.INVALID_REPLICA_ASSIGNMENT),
    "topic: no replicas": (manual((0, [])), Error.INVALID_REPLICA_ASSIGNMENT),
    "topic: twice": (ct.CreateTopicsRequest(topics=topic().topics * 2), Error.INVALID_REQUEST),
    "grow: negative": (grow(-1), Error.INVALID_PARTITIONS),
    "grow: too far": (grow(2**31 - 1), Error.POLICY_VIOLATION),
    "grow: unknown topic": (grow(5, "nobody"), Error.UNKNOWN_TOPIC_OR_PARTITION),
    "delete: unknown id": (
        dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name=None, topic_id=NOBODY)]),
        Error.UNKNOWN_TOPIC_ID,
    ),
    "delete: name and id": (
        dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name=TOPIC, topic_id=TOPIC_ID)]),
        Error.INVALID_REQUEST,
    ),
    "delete: neither": (dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name=None)]), Error.INVALID_REQUEST),
    "elect: unknown type": (el.ElectLeadersRequest(election_type=9), Error.INVALID_REQUEST),
    "elect: negative partition": (
        el.ElectLeadersRequest(topic_partitions=[el.TopicPartitions(topic=TOPIC, partitions=[-1])]),
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "designate: unknown type": (edl.ElectDesignatedLeadersRequest(election_type=99), Error.INVALID_REQUEST),
    "move: negative partition": (move(-1, [1]), Error.UNKNOWN_TOPIC_OR_PARTITION),
    "move: to nobody": (move(0, []), Error.INVALID_REPLICA_ASSIGNMENT),
    "move: twice to one": (move(0, [1, 1, 2]), Error.INVALID_REPLICA_ASSIGNMENT),
    "move: to strangers": (move(0, [1, 2, -3]), Error.INVALID_REPLICA_ASSIGNMENT),
    "move: nothing to cancel": (move(0, None), Error.NO_REASSIGNMENT_IN_PROGRESS),
    "isr: unknown topic id": (proposal(NOBODY), Error.UNKNOWN_TOPIC_ID),
    "isr: unknown partition": (proposal(partition_index=-1), Error.UNKNOWN_TOPIC_OR_PARTITION),
    "isr: twice": (proposal(new_isr_with_epochs=members(1, 1)), Error.INVALID_REQUEST),
    "isr: empty": (proposal(new_isr_with_epochs=[]), Error.INVALID_REQUEST),
    "isr: a stranger": (proposal(new_isr_with_epochs=members(1, 9)), Error.INVALID_REQUEST),
    "isr: unknown recovery state": (proposal(leader_recovery_state=7), Error.INVALID_REQUEST),
    "config: unknown": (config("no.such", "1"), Error.INVALID_CONFIG),
    "config: out of range": (config("min.insync.replicas", "0"), Error.INVALID_CONFIG),
    "config: no number": (config("retention.ms", "soon"), Error.INVALID_CONFIG),
    "config: no number for Java": (config("retention.ms", "1_000"), Error.INVALID_CONFIG),
    "config: no fraction for Java": (config("min.cleanable.dirty.ratio", "0_0.5"), Error.INVALID_CONFIG),
    "config: unknown operation": (config("retention.ms", "1", operation=7), Error.INVALID_REQUEST),
    "config: unknown resource type": (config("retention.ms", "1", kind=99), Error.INVALID_REQUEST),
    "config: one topic twice": (
        iac.IncrementalAlterConfigsRequest(resources=config("retention.ms", "1").resources * 2),
        Error.INVALID_REQUEST,
    ),
    "config: one topic replaced twice": (
        ac.AlterConfigsRequest(resources=[ac.AlterConfigsResource(resource_type=2, resource_name=TOPIC)] * 2),
        Error.INVALID_REQUEST,
    ),
    "config: unknown broker": (config("retention.ms", "1", kind=4, of="x"), Error.INVALID_REQUEST),
    "heartbeat: unknown broker": (bh.BrokerHeartbeatRequest(broker_id=-5, broker_epoch=1), Error.STALE_BROKER_EPOCH),
    "register: other cluster": (
        registration(4, incarnation_id=incarnation("x"), cluster="other"),
        Error.INCONSISTENT_CLUSTER_ID,
    ),
    "register: no features": (
        registration(4, incarnation_id=incarnation("x"), features={}),
        Error.UNSUPPORTED_VERSION,
    ),
    "unregister: unknown": (ub.UnregisterBrokerRequest(broker_id=-1), Error.BROKER_ID_NOT_REGISTERED),
    "feature: unknown": (
        uf.UpdateFeaturesRequest(feature_updates=[uf.FeatureUpdateKey(feature="x", max_version_level=1)]),
        Error.INVALID_UPDATE_VERSION,
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_request_gets_its_error_and_changes_nothing(what: str) -> None:
    body, error = BAD[what]
    asked = box()
    before = list(asked.image.snapshot())

    answer = asked.send(body)

    assert error in errors_in(answer)
    assert asked.records == []
    assert list(asked.image.snapshot()) == before


def test_what_one_request_creates_is_bounded_however_many_topics_it_names() -> None:
    """Each of them was: one request of some kilobytes gave thousands of topics ten thousand partitions each."""
    asked = box()
    asked.send(topic())
    there_are = {TOPIC: 1, "new": 1}
    most = PARTITIONS_PER_REQUEST_MAX

    def grown(*counts: int) -> list[Error]:
        wanted = [
            cp.CreatePartitionsTopic(name=name, count=count, assignments=None)
            for name, count in zip(there_are, counts, strict=True)
        ]
        return [one.error_code for one in asked.send(cp.CreatePartitionsRequest(topics=wanted)).results]

    assert grown(1 + most // 2, 2 + most // 2) == [Error.POLICY_VIOLATION] * 2
    assert [len(asked.image.topics_by_name[name].partitions) for name in there_are] == [1, 1]
    assert grown(1 + most // 2, 1 + most // 2) == [Error.NONE] * 2
    assert [len(asked.image.topics_by_name[name].partitions) for name in there_are] == [1 + most // 2] * 2


def test_a_list_does_not_grow_beyond_what_a_record_can_hold() -> None:
    """Its record would be in the metadata log, and nobody could read it."""
    asked = box()
    name = "leader.replication.throttled.replicas"
    asked.send(config(name, "1:" + "2" * 30_000, operation=2))
    before = asked.image.topic_config(TOPIC, name)

    answer = asked.send(config(name, "3:" + "4" * 30_000, operation=2))

    assert answer.responses[0].error_code is Error.INVALID_CONFIG
    assert asked.image.topic_config(TOPIC, name) == before is not None


NAMES = [f"no such topic {number}" for number in range(20_000)]


@pytest.mark.parametrize(
    "body",
    [
        ct.CreateTopicsRequest(topics=[ct.CreatableTopic(name=name, num_partitions=0) for name in NAMES]),
        cp.CreatePartitionsRequest(topics=[cp.CreatePartitionsTopic(name=name, assignments=None) for name in NAMES]),
        uf.UpdateFeaturesRequest(feature_updates=[uf.FeatureUpdateKey(feature=name) for name in NAMES]),
    ],
    ids=lambda body: type(body).__name__,
)
def test_looking_for_what_is_named_twice_does_not_hold_up_the_controller(body: Any) -> None:
    """A request of two megabytes kept it busy for minutes: its quorum elected another one, which got the request next."""
    asked = box()
    before_s = time.process_time()

    asked.send(body)

    assert time.process_time() - before_s < 3


@pytest.mark.parametrize("version", [0, 1, 2])
def test_elections_that_were_not_held_are_said_so_in_every_version(version: int) -> None:
    """Version 0 has no error at the top: each partition carries it (as in Kafka), or no client would notice."""
    wanted = [el.TopicPartitions(topic=TOPIC, partitions=[0, 1]), el.TopicPartitions(topic="u", partitions=[5])]
    body = el.ElectLeadersRequest(topic_partitions=wanted)
    refusal = ELECT_LEADERS.served.refused(body, Error.REQUEST_TIMED_OUT)

    frame = encode_response(Api.ELECT_LEADERS, version, 1, refusal)
    answer = decode_response(exchange_of(Api.ELECT_LEADERS), version, frame[4:])[1]

    assert [
        (topic.topic, one.partition_id, one.error_code)
        for topic in answer.replica_election_results
        for one in topic.partition_result
    ] == [(TOPIC, 0, Error.REQUEST_TIMED_OUT), (TOPIC, 1, Error.REQUEST_TIMED_OUT), ("u", 5, Error.REQUEST_TIMED_OUT)]
    assert ELECT_LEADERS.served.refused(el.ElectLeadersRequest(topic_partitions=None), Error.NOT_CONTROLLER) is not None


EXTREMES = st.sampled_from([-(2**31), -2, -1, 0, 1, 2, 3, 2**15 - 1, 2**31 - 1])


def anything(kind: Any) -> st.SearchStrategy[Any]:
    """A message of this type with values that nobody sends: extremes, duplicates, empty and strange names."""

    def of(hint: Any) -> st.SearchStrategy[Any]:
        base, *marks = typing.get_args(hint) if typing.get_origin(hint) is typing.Annotated else (hint,)
        arguments = typing.get_args(base)
        if typing.get_origin(base) is list:
            return st.lists(of(arguments[0]), max_size=3)
        if arguments:  # X | None
            nullable = any(isinstance(mark, Wire) and mark.nullable for mark in marks)
            known = [of(one) for one in arguments if one is not type(None)]
            return st.one_of(*known, *([st.none()] if nullable else []))
        if isinstance(base, type) and issubclass(base, msgspec.Struct):
            return anything(base)
        return {
            bool: st.booleans(),
            str: st.sampled_from(["", TOPIC, "x", "metadata.version", "min.insync.replicas", "1", "\u2603"]),
            UUID: st.sampled_from([UUID(int=0), TOPIC_ID, NOBODY]),
        }.get(base, EXTREMES)

    hints = typing.get_type_hints(kind, include_extras=True)
    fields = {name: of(hints[name]) for name in kind.__struct_fields__}
    return st.builds(kind, **fields)


@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("kind", APIS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_no_request_whatever_it_says_ends_the_controller(kind: type, data: st.DataObject) -> None:
    asked = box()

    answer = asked.send(data.draw(anything(kind)))
    again = Box().replay(*asked.image.snapshot())

    assert answer is not None
    assert list(again.image.snapshot()) == list(asked.image.snapshot())


def moves(*wanted: tuple[int, list[int]]) -> apr.AlterPartitionReassignmentsRequest:
    partitions = [apr.ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in wanted]
    half = len(partitions) // 2
    topics = [apr.ReassignableTopic(name=TOPIC, partitions=part) for part in (partitions[:half], partitions[half:])]
    return apr.AlterPartitionReassignmentsRequest(topics=topics)


def errors_of(answer: apr.AlterPartitionReassignmentsResponse) -> set[Error]:
    return {Error(one.error_code) for topic in answer.responses for one in topic.partitions}


def test_a_partition_whose_reassignment_is_asked_for_again_and_again_is_not_changed() -> None:
    """Each change of mind would be a record of the metadata log, and one request holds millions."""
    world = box()

    answer = world.send(moves(*[(0, [1, 2]), (0, [2, 3])] * 500))

    assert errors_of(answer) == {Error.INVALID_REQUEST}
    assert world.records == []


def test_a_partition_whose_reassignment_is_asked_for_once_is_reassigned() -> None:
    world = box()

    answer = world.send(moves((0, [2, 3])))

    assert errors_of(answer) == {Error.NONE}
    assert len(world.records) == 1
