"""What a broker makes of control requests whose order or content KIP-380 leaves open: registrations, and topics created again."""

from typing import Any
from uuid import UUID

import pytest
from msgspec import structs

from replog.broker.isr import PartitionState
from replog.broker.metadata import BrokerMetadata
from replog.errors import Error
from replog.metadata.records import ConfigRecord
from replog.metadata.state import TOPIC_RESOURCE
from replog.types import BrokerEpoch, LeaderEpoch, LeaderRecoveryState, NodeId, PartitionEpoch
from replog.wire.messages import leader_and_isr as li
from replog.wire.messages import stop_replica as sr
from replog.wire.messages import update_metadata as um
from replog.zookeeper.broker import Answer, Assign, ControlledBroker, KeepOnly
from replog.zookeeper.requests import FULL, INCREMENTAL
from tests.identities import an_identity


def request(broker_epoch: int) -> li.LeaderAndIsrRequest:
    state = li.LeaderAndIsrPartitionState(leader=1, leader_epoch=5, isr=[1], replicas=[1, 2], partition_epoch=6)
    topic = li.LeaderAndIsrTopicState(topic_name="t", topic_id=UUID(int=7), partition_states=[state])
    return li.LeaderAndIsrRequest(controller_epoch=9, broker_epoch=broker_epoch, topic_states=[topic])


def a_broker(**hosting: Any) -> ControlledBroker:
    broker = ControlledBroker(BrokerMetadata(NodeId(1)), an_identity(), **{"hosted": lambda _: None, **hosting})
    broker.registered(BrokerEpoch(50))
    return broker


def test_the_first_of_a_registration_may_come_before_its_broker_knows_of_it() -> None:
    """ "Equal or greater: continue" (SPEC 3.12.2): the next one, which need not be complete, is no longer the first."""
    broker = a_broker()
    broker.handle(request(50))

    first = broker.handle(request(60))
    broker.registered(BrokerEpoch(60))
    second = broker.handle(request(60))

    assert [any(isinstance(effect, KeepOnly) for effect in each) for each in (first, second)] == [True, False]


def test_a_topic_created_again_begins_with_its_own_leader_epochs() -> None:
    """What is still hosted by its name is of the topic that is gone, and says nothing (KIP-516)."""
    hosted = PartitionState(
        leader=NodeId(1),
        leader_epoch=LeaderEpoch(9),
        partition_epoch=PartitionEpoch(9),
        replicas=(NodeId(1), NodeId(2)),
        isr=(NodeId(1),),
        recovery=LeaderRecoveryState.RECOVERED,
    )
    for hosted_id, is_assigned in ((UUID(int=7), False), (UUID(int=8), True)):
        broker = a_broker(hosted=lambda _: hosted, hosted_id=lambda _, known=hosted_id: known)

        effects = broker.handle(request(50))

        assert any(isinstance(effect, Assign) for effect in effects) is is_assigned
        (answer,) = (effect.body for effect in effects if isinstance(effect, Answer))
        error = Error.NONE if is_assigned else Error.STALE_CONTROLLER_EPOCH
        assert answer.partition_errors[0].error_code is error  # type: ignore[attr-defined]


LATE = 5  # the leader epoch that a late LeaderAndIsr names


@pytest.mark.parametrize(("stopped", "is_again", "is_assigned"), [
    pytest.param({"leader_epoch": LATE + 1}, False, False, id="it is older than the order to go"),
    pytest.param({"leader_epoch": LATE}, False, True, id="it is as new as that"),
    pytest.param({"leader_epoch": LATE + 1}, True, True, id="the broker has registered again"),
    pytest.param({"leader_epoch": -2}, False, False, id="the topic was deleted"),
    pytest.param({"leader_epoch": LATE + 1, "topic_id": UUID(int=8)}, False, True, id="another topic of the name was ended"),
    pytest.param(None, False, True, id="nothing was ended"),
])  # fmt: skip
def test_a_replica_that_was_ended_is_not_brought_back_by_an_older_request(
    stopped: dict[str, Any] | None, is_again: bool, is_assigned: bool
) -> None:
    """A connection that broke may have held a request of the same controller for as long as it took to end the replica by another one."""
    ids = iter([(stopped or {}).get("topic_id", UUID(int=7))])
    broker = a_broker(hosted_id=lambda _: next(ids, None))
    if stopped is not None:
        state = sr.StopReplicaPartitionState(leader_epoch=stopped["leader_epoch"], delete_partition=True)
        topic = sr.StopReplicaTopicState(topic_name="t", partition_states=[state])
        broker.handle(sr.StopReplicaRequest(controller_epoch=9, broker_epoch=50, topic_states=[topic]))
    if is_again:
        broker.registered(BrokerEpoch(60))

    effects = broker.handle(request(60 if is_again else 50))

    assert any(isinstance(effect, Assign) for effect in effects) is is_assigned
    (answer,) = (effect.body for effect in effects if isinstance(effect, Answer))
    error = Error.NONE if is_assigned else Error.STALE_CONTROLLER_EPOCH
    assert answer.topics[0].partition_errors[0].error_code is error  # type: ignore[attr-defined]


def test_the_id_in_zookeeper_overrides_that_of_an_earlier_topic_of_the_name() -> None:
    broker = a_broker()
    state = um.UpdateMetadataPartitionState(leader=1, leader_epoch=5, isr=[1], replicas=[1, 2])
    without_id = um.UpdateMetadataRequest(
        controller_epoch=9,
        broker_epoch=50,
        topic_states=[um.UpdateMetadataTopicState(topic_name="t", partition_states=[state])],
    )
    for topic_id in (UUID(int=7), UUID(int=8)):
        broker.topic_ids["t"] = topic_id

        broker.handle(without_id)

        assert broker.metadata.image.topics_by_name["t"].topic_id == topic_id


def test_a_topic_keeps_its_settings_when_its_true_id_is_known() -> None:
    broker = a_broker()
    for topic_id in (UUID(int=0), UUID(int=7)):
        state = um.UpdateMetadataPartitionState(leader=1, leader_epoch=5, isr=[1], replicas=[1, 2])
        topic = um.UpdateMetadataTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])
        broker.handle(um.UpdateMetadataRequest(controller_epoch=9, broker_epoch=50, topic_states=[topic]))
        if topic_id == UUID(int=0):
            setting = ConfigRecord(
                resource_type=TOPIC_RESOURCE, resource_name="t", name="min.insync.replicas", value="2"
            )
            broker.metadata.replay([(broker.metadata.image.last_offset + 1, setting)])

    assert broker.metadata.image.topics_by_name["t"].topic_id == UUID(int=7)
    assert broker.metadata.image.topic_config("t", "min.insync.replicas") == "2"


def test_what_an_earlier_controller_did_not_take_away_is_given_up_once_the_next_names_all() -> None:
    """A reassignment is written before the replica that goes gets its request; a late copy of the request names all no more."""
    broker = a_broker()
    broker.handle(request(50))
    full = structs.replace(request(50), controller_epoch=10, type=FULL)

    names_all = [
        any(isinstance(effect, KeepOnly) for effect in broker.handle(each))
        for each in (structs.replace(full, type=INCREMENTAL, controller_epoch=9), full, full)
    ]

    assert names_all == [False, True, False]


def test_a_topic_that_was_deleted_while_this_broker_got_no_requests_is_removed() -> None:
    """Its session was lost meanwhile, or the controller's epoch ended; what comes later has changes only."""
    for broker_epoch, controller_epoch, is_known in ((50, 9, True), (60, 9, False), (50, 10, False)):
        broker = a_broker()
        state = um.UpdateMetadataPartitionState(leader=1, leader_epoch=5, isr=[1], replicas=[1, 2])
        for topics, registration, epoch in ((("t", "u"), 50, 9), (("u",), broker_epoch, controller_epoch)):
            named = [
                um.UpdateMetadataTopicState(topic_name=topic, topic_id=UUID(int=ord(topic)), partition_states=[state])
                for topic in topics
            ]
            broker.handle(
                um.UpdateMetadataRequest(controller_epoch=epoch, broker_epoch=registration, topic_states=named)
            )

        assert ("t" in broker.metadata.image.topics_by_name) is is_known
        assert "u" in broker.metadata.image.topics_by_name


def test_what_zookeeper_said_of_ids_does_not_outlive_a_registration() -> None:
    """Topics may have been deleted and created again since; requests before 2.8 would give the new one the old id."""
    broker = a_broker()
    broker.topic_ids["t"] = UUID(int=7)

    broker.registered(BrokerEpoch(60))

    assert broker.topic_ids == {}


SOUND_STATE = {"leader": 1, "leader_epoch": 5, "isr": [1], "replicas": [1, 2], "partition_epoch": 6}
SOUND_METADATA = {"leader": 1, "leader_epoch": 5, "isr": [1], "replicas": [1, 2]}
SOUND_BROKER = {"id": 1, "endpoints": [um.UpdateMetadataEndpoint(port=9092, host="127.0.0.1")]}


def leader_and_isr(topic: str = "t", **changed: Any) -> li.LeaderAndIsrRequest:
    state = li.LeaderAndIsrPartitionState(**SOUND_STATE | changed)
    topics = [li.LeaderAndIsrTopicState(topic_name=topic, topic_id=UUID(int=7), partition_states=[state])]
    return li.LeaderAndIsrRequest(controller_id=1, controller_epoch=9, broker_epoch=50, topic_states=topics)


def update_metadata(topic: str = "t", broker: dict[str, Any] | None = None, **changed: Any) -> um.UpdateMetadataRequest:
    state = um.UpdateMetadataPartitionState(**SOUND_METADATA | changed)
    topics = [um.UpdateMetadataTopicState(topic_name=topic, topic_id=UUID(int=7), partition_states=[state])]
    brokers = [um.UpdateMetadataBroker(**SOUND_BROKER | (broker or {}))]
    return um.UpdateMetadataRequest(
        controller_id=1, controller_epoch=9, broker_epoch=50, topic_states=topics, live_brokers=brokers
    )


def stop_replica(topic: str = "t", **changed: Any) -> sr.StopReplicaRequest:
    state = sr.StopReplicaPartitionState(**{"partition_index": 0, "leader_epoch": 5} | changed)
    topics = [sr.StopReplicaTopicState(topic_name=topic, partition_states=[state])]
    return sr.StopReplicaRequest(controller_id=1, controller_epoch=9, broker_epoch=50, topic_states=topics)


def twice(request: Any) -> Any:
    """Let a request name its partition again."""
    (topic,) = request.topic_states
    return structs.replace(request, topic_states=[structs.replace(topic, partition_states=topic.partition_states * 2)])


def two_partitions(request: Any) -> Any:
    """Let a request name the next partition, too."""
    (topic,) = request.topic_states
    (state,) = topic.partition_states
    states = [state, structs.replace(state, partition_index=1)]
    return structs.replace(request, topic_states=[structs.replace(topic, partition_states=states)])


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(twice(leader_and_isr()), id="a partition twice, to be led"),
        pytest.param(twice(update_metadata()), id="a partition twice, to be known"),
        pytest.param(twice(stop_replica()), id="a partition twice, to be given up"),
        pytest.param(leader_and_isr("../../etc"), id="a folder outside of the log directory"),
        pytest.param(leader_and_isr("__cluster_metadata"), id="the folder of the metadata log"),
        pytest.param(leader_and_isr(partition_index=-1), id="a negative partition"),
        pytest.param(leader_and_isr(replicas=[1, 1]), id="a replica twice"),
        pytest.param(leader_and_isr(leader_epoch=-1), id="a negative leader epoch"),
        pytest.param(leader_and_isr(leader_recovery_state=5), id="a recovery state that there is not"),
        pytest.param(update_metadata(replicas=[]), id="a partition without replicas"),
        pytest.param(update_metadata("a/b"), id="a topic's name with a slash"),
        pytest.param(update_metadata(broker={"endpoints": [], "v0_host": "a" * 64, "v0_port": 1}), id="a host"),
        pytest.param(update_metadata(broker={"id": -5}), id="a negative broker"),
        pytest.param(stop_replica(".."), id="the folder above"),
        pytest.param(stop_replica(leader_epoch=-3), id="an epoch that is no sentinel"),
    ],
)
def test_what_no_controller_would_say_is_refused_whole_and_leaves_no_trace(refused: Any) -> None:
    """One UpdateMetadata without replicas ended the node (found by tests/fuzz/test_conversations.py)."""
    broker = a_broker()

    effects = broker.handle(refused)

    (answer,) = (effect.body for effect in effects if isinstance(effect, Answer))
    assert answer.error_code is Error.INVALID_REQUEST  # type: ignore[attr-defined]
    assert not any(isinstance(effect, Assign | KeepOnly) for effect in effects)
    assert broker.controller_epoch == -1
    assert not broker.metadata.image.topics_by_name


@pytest.mark.parametrize(
    "sound",
    [
        pytest.param(two_partitions(leader_and_isr()), id="two partitions of a topic"),
        pytest.param(leader_and_isr(leader=-1, isr=[]), id="nobody leads"),
        pytest.param(update_metadata(leader=-2, replicas=[], isr=[]), id="a deleted partition"),
        pytest.param(stop_replica(leader_epoch=-2), id="the last word to a deleted replica"),
    ],
)
def test_what_a_controller_may_say_at_the_edge_is_carried_out(sound: Any) -> None:
    broker = a_broker()

    (answer,) = (effect.body for effect in broker.handle(sound) if isinstance(effect, Answer))

    assert answer.error_code is Error.NONE  # type: ignore[attr-defined]


@pytest.mark.parametrize("first", [1, 9, 2_000_000_000])
def test_a_controller_epoch_beyond_reason_makes_no_later_controller_stale(first: int) -> None:
    """One request with the last epoch that there is took a broker away from its controllers until it started again."""
    broker = a_broker()

    def error_of(controller_epoch: int) -> object:
        body = structs.replace(leader_and_isr(), controller_epoch=controller_epoch)
        (answer,) = (effect.body for effect in broker.handle(body) if isinstance(effect, Answer))
        return answer.error_code  # type: ignore[attr-defined]

    errors = [error_of(epoch) for epoch in (first, 2**31 - 1, first + 1001, first + 1, first + 1001, first + 1000)]

    assert errors == [
        Error.NONE,
        Error.INVALID_REQUEST,
        Error.INVALID_REQUEST,
        Error.NONE,
        Error.NONE,
        Error.STALE_CONTROLLER_EPOCH,
    ]
    assert broker.controller_epoch == first + 1001


@pytest.mark.parametrize(
    ("recovery", "leader", "is_assigned"),
    [
        pytest.param(LeaderRecoveryState.RECOVERING, 1, True, id="another recovery state"),
        pytest.param(LeaderRecoveryState.RECOVERED, 1, False, id="nothing new"),
        pytest.param(LeaderRecoveryState.RECOVERING, 2, False, id="another leader"),
    ],
)
def test_nobody_else_leads_in_a_leader_epoch_that_is_known(
    recovery: LeaderRecoveryState, leader: int, is_assigned: bool
) -> None:
    """A leader that was to follow in its own epoch met an assertion, which ends the broker; a follower would have been its second leader."""
    hosted = PartitionState(
        leader=NodeId(1),
        leader_epoch=LeaderEpoch(5),
        partition_epoch=PartitionEpoch(6),
        replicas=(NodeId(1), NodeId(2)),
        isr=(NodeId(1),),
        recovery=LeaderRecoveryState.RECOVERED,
    )
    broker = a_broker(hosted=lambda _: hosted, hosted_id=lambda _: UUID(int=7))
    sent = request(50)
    (state,) = sent.topic_states[0].partition_states
    said = structs.replace(state, leader=leader, leader_recovery_state=int(recovery))
    topic = structs.replace(sent.topic_states[0], partition_states=[said])

    effects = broker.handle(structs.replace(sent, topic_states=[topic]))

    assert any(isinstance(effect, Assign) for effect in effects) is is_assigned
