"""Topics whose creation or deletion ended midway: what is many operations is several transactions, and any may be the last."""

from replog.controller.events import Reply, Request
from replog.errors import Error
from replog.metadata.state import TOPIC_RESOURCE
from replog.types import NodeId, TopicPartition
from replog.wire.messages import stop_replica as sr
from replog.wire.messages import update_metadata as um
from replog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from replog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from replog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from replog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from replog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from replog.wire.messages.elect_leaders import TopicPartitions as ElectTopicPartitions
from replog.zookeeper.control_queue import ControlRequest
from replog.zookeeper.controller import BrokersChanged, ControlAnswered, Effect, Loaded, Write, ZooKeeperController
from replog.zookeeper.operations import Create, Delete, Operation, SetData, Stat
from replog.zookeeper.requests import DELETED
from replog.zookeeper.znodes import PartitionStateZnode, TopicZnode
from tests.kips.test_kip_380_zookeeper import newly_elected, registered, sent_to

TOPIC = TopicZnode(partitions={"0": [1, 2], "1": [2, 1]}, topic_id="AAAAAAAAAAAAAAAAAAAABw")
STATE = (
    PartitionStateZnode(controller_epoch=6, leader=1, leader_epoch=4, isr=[1, 2]),
    Stat(czxid=1, mzxid=90, version=5),
)


def activated(
    *,
    topics: dict[str, TopicZnode],
    states: tuple[int, ...] = (),
    left: dict[str, list[int] | None] | None = None,
    deletions: tuple[str, ...] = (),
    configs: dict[tuple[int, str], dict[str, str]] | None = None,
    protocol: str = "3.4",
) -> tuple[ZooKeeperController, list[Effect]]:
    controller = newly_elected(1, protocol)
    loaded = Loaded(
        registered=registered({1: 10, 2: 20}),
        topics=topics,
        states={TopicPartition("t", index): STATE for index in states},
        configs=configs or {},
        deletions=list(deletions),
        next_producer_id=None,
        left=left or {},
    )
    return controller, controller.activate(loaded, 0)


def operations(effects: list[Effect]) -> list[Operation]:
    return [operation for effect in effects if isinstance(effect, Write) for operation in effect.operations]


def created(effects: list[Effect]) -> list[str]:
    return [operation.path for operation in operations(effects) if isinstance(operation, Create)]


def deleted(effects: list[Effect]) -> list[str]:
    return [operation.path for operation in operations(effects) if isinstance(operation, Delete)]


def written(effects: list[Effect]) -> list[str]:
    return [operation.path for operation in operations(effects) if isinstance(operation, SetData)]


def test_a_partition_without_its_state_is_given_one() -> None:
    _, effects = activated(topics={"t": TOPIC}, states=(0,), left={"t": [0, 1]})

    assert created(effects) == ["/brokers/topics/t/partitions/1/state"]


def test_a_topic_of_which_only_its_assignment_was_written_is_completed() -> None:
    _, effects = activated(topics={"t": TOPIC}, left={"t": None})

    assert created(effects) == [
        "/brokers/topics/t/partitions",
        "/brokers/topics/t/partitions/0",
        "/brokers/topics/t/partitions/0/state",
        "/brokers/topics/t/partitions/1",
        "/brokers/topics/t/partitions/1/state",
    ]


def test_a_deletion_that_all_replicas_have_done_ends() -> None:
    """The first transaction of it took partition 0 and the state of partition 1."""
    controller, effects = activated(topics={"t": TOPIC}, left={"t": [1]}, deletions=("t",))

    assert deleted(effects) == [
        "/brokers/topics/t/partitions/1",
        "/brokers/topics/t/partitions",
        "/brokers/topics/t",
        "/admin/delete_topics/t",
    ]
    assert controller.deleting == {}


def test_a_deletion_of_which_only_the_topic_is_left_ends() -> None:
    _, effects = activated(topics={"t": TOPIC}, left={"t": None}, deletions=("t",))

    assert deleted(effects) == ["/brokers/topics/t", "/admin/delete_topics/t"]


def test_the_mark_of_a_topic_that_is_gone_is_taken_away() -> None:
    """Else the next topic of this name would be deleted by the next controller."""
    _, effects = activated(topics={}, deletions=("t",))

    assert deleted(effects) == ["/admin/delete_topics/t"]


def test_the_configuration_of_a_topic_that_is_gone_is_not_inherited() -> None:
    controller, _ = activated(topics={}, configs={(TOPIC_RESOURCE, "t"): {"min.insync.replicas": "2"}})

    assert (TOPIC_RESOURCE, "t") not in controller.image.configs


def test_brokers_are_sent_again_what_an_earlier_controller_was_deleting() -> None:
    _, effects = activated(topics={"t": TOPIC}, states=(0, 1), deletions=("t",))

    for node in (1, 2):
        (first, *_) = sent_to(effects, node, um.UpdateMetadataRequest)
        (topic,) = first.topic_states
        assert [state.leader for state in topic.partition_states] == [DELETED, DELETED]


def test_a_replica_that_was_only_stopped_is_not_taken_for_deleted() -> None:
    """The broker was leaving when the deletion began; it may end before it has deleted anything."""
    for protocol in ("2.1", "2.5", "3.4"):
        controller, _ = activated(topics={"t": TOPIC}, states=(0, 1), deletions=("t",), protocol=protocol)
        before = dict(controller.deleting["t"])
        errors = [sr.StopReplicaPartitionError(topic_name="t", partition_index=0, error_code=Error.NONE)]
        answer = sr.StopReplicaResponse(partition_errors=errors)

        for delete in (False, True):
            single = sr.StopReplicaPartitionState(partition_index=0, leader_epoch=4, delete_partition=delete)
            body = sr.StopReplicaRequest(
                delete_partitions=delete and protocol != "3.4",
                topic_states=[sr.StopReplicaTopicState(topic_name="t", partition_states=[single])]
                if protocol == "3.4"
                else [],
                topics=[sr.StopReplicaTopicV1(name="t", partition_indexes=[0])] if protocol == "2.5" else [],
                ungrouped_partitions=[sr.StopReplicaPartitionV0(topic_name="t", partition_index=0)]
                if protocol == "2.1"
                else [],
            )
            request = ControlRequest(body=body, version=controller.protocol.versions.stop_replica)
            controller.handle(ControlAnswered(node=NodeId(2), request=request, response=answer), 0)
            gone = {} if not delete else {(0, 2): None}
            assert controller.deleting["t"] == {key: None for key in before if key not in gone}


def test_a_topic_that_was_completed_is_deleted_like_any_other() -> None:
    controller, _ = activated(topics={"t": TOPIC}, left={"t": None}, protocol="2.5")
    wanted = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    controller.handle(Request(token=1, body=wanted, received_ms=0), 0)
    body = sr.StopReplicaRequest(
        delete_partitions=True, topics=[sr.StopReplicaTopicV1(name="t", partition_indexes=[0, 1])]
    )
    errors = [sr.StopReplicaPartitionError(topic_name="t", partition_index=index) for index in (0, 1)]

    effects = [
        effect
        for node in (1, 2)
        for effect in controller.handle(
            ControlAnswered(
                node=NodeId(node),
                request=ControlRequest(body=body, version=2),
                response=sr.StopReplicaResponse(partition_errors=errors),
            ),
            0,
        )
    ]

    assert deleted(effects)[-3:] == ["/brokers/topics/t/partitions", "/brokers/topics/t", "/admin/delete_topics/t"]


def test_a_topic_has_its_settings_before_it_is_there() -> None:
    """The next controller completes a topic, not its settings, which nobody else knows."""
    controller, _ = activated(topics={})
    topic = CreatableTopic(
        name="t",
        num_partitions=1,
        replication_factor=2,
        configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
    )

    effects = controller.handle(Request(token=1, body=CreateTopicsRequest(topics=[topic]), received_ms=0), 0)

    paths = created(effects)
    assert paths.index("/config/topics/t") < paths.index("/brokers/topics/t")


def test_a_replica_is_out_of_the_isr_before_it_is_out_of_the_assignment() -> None:
    """What is done of many at once may end between the two; a leader that is no replica gets no request (as in Kafka)."""
    controller, _ = activated(topics={"t": TOPIC}, states=(0, 1))
    moved = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[2])])
    body = AlterPartitionReassignmentsRequest(topics=[moved])

    effects = controller.handle(Request(token=1, body=body, received_ms=0), 0)

    assert written(effects) == ["/brokers/topics/t/partitions/0/state", "/brokers/topics/t"]


def test_a_partition_is_in_the_assignment_before_it_has_a_state() -> None:
    """The next controller completes what is assigned; of a state that nobody assigned it knows nothing."""
    controller, _ = activated(topics={"t": TOPIC}, states=(0, 1))
    body = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=3)])

    effects = controller.handle(Request(token=1, body=body, received_ms=0), 0)

    assert written(effects) == ["/brokers/topics/t"]
    assert [type(operation) for operation in operations(effects)] == [SetData, Create, Create]


def test_a_topic_that_is_being_deleted_grows_no_more() -> None:
    controller, _ = activated(topics={"t": TOPIC}, states=(0, 1), deletions=("t",))
    body = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=3) for name in ("t", "u")])

    effects = controller.handle(Request(token=1, body=body, received_ms=0), 0)

    assert operations(effects) == []
    (answer,) = (effect.body for effect in effects if isinstance(effect, Reply))
    assert [(result.name, result.error_code) for result in answer.results] == [  # type: ignore[attr-defined]
        ("u", Error.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", Error.INVALID_TOPIC_EXCEPTION),
    ]


def being_deleted() -> ZooKeeperController:
    """A controller that deletes a topic led by 1, whose replicas have not all confirmed it."""
    controller, _ = activated(topics={"t": TOPIC}, states=(0, 1))
    body = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    controller.handle(Request(token=1, body=body, received_ms=0), 0, version=6)
    return controller


def test_what_is_being_deleted_gets_no_leader_when_its_own_is_gone() -> None:
    """Its other replica may have deleted its log: it would lead without a record, and nobody would be told."""
    controller = being_deleted()

    gone = controller.handle(BrokersChanged(registered({2: 20})), 5)
    back = controller.handle(BrokersChanged(registered({1: 30, 2: 20})), 9)

    assert written(gone) == written(back) == []
    (topic,) = controller.image.topics.values()
    assert [(one.leader, one.isr) for one in topic.partitions.values()] == [(1, (1, 2)), (1, (1, 2))]


def test_what_is_not_being_deleted_gets_a_leader_then() -> None:
    controller, _ = activated(topics={"t": TOPIC}, states=(0, 1))

    gone = controller.handle(BrokersChanged(registered({2: 20})), 5)

    assert sorted(written(gone)) == [f"/brokers/topics/t/partitions/{index}/state" for index in (0, 1)]


def test_nobody_elects_or_reassigns_what_is_being_deleted() -> None:
    controller = being_deleted()
    elect = ElectLeadersRequest(election_type=0, topic_partitions=[ElectTopicPartitions(topic="t", partitions=[0])])
    move = [ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[2, 1])])]

    elected = controller.handle(Request(token=2, body=elect, received_ms=0), 0, version=2)
    moved = controller.handle(
        Request(token=3, body=AlterPartitionReassignmentsRequest(topics=move), received_ms=0), 0, version=0
    )

    (answer,) = (effect.body for effect in elected if isinstance(effect, Reply))
    assert isinstance(answer, ElectLeadersResponse)
    errors = [one.error_code for result in answer.replica_election_results for one in result.partition_result]
    assert errors == [Error.INVALID_TOPIC_EXCEPTION]
    (answer,) = (effect.body for effect in moved if isinstance(effect, Reply))
    assert isinstance(answer, AlterPartitionReassignmentsResponse)
    assert [one.error_code for topic in answer.responses for one in topic.partitions] == [
        Error.UNKNOWN_TOPIC_OR_PARTITION
    ]
    assert written(elected) == written(moved) == []
