"""KIP-380 and the ZooKeeper half of KIP-704: generations are czxids, the controller pushes (SPEC 3.12, 8.4)."""

from random import Random
from typing import Any
from uuid import UUID

import msgspec
import pytest

from replog.broker.metadata import BrokerMetadata
from replog.controller.events import Reply, Request
from replog.controller.policy import Settings
from replog.errors import Error
from replog.metadata.state import BROKER_RESOURCE, CLUSTER_DEFAULT
from replog.types import BrokerEpoch, LeaderRecoveryState, NodeId, TopicPartition
from replog.wire.apis import Api
from replog.wire.codec import decode_request, encode_request
from replog.wire.messages import alter_partition as ap
from replog.wire.messages import controlled_shutdown as cs
from replog.wire.messages import leader_and_isr as li
from replog.wire.messages import stop_replica as sr
from replog.wire.messages import update_metadata as um
from replog.zookeeper import paths, registration
from replog.zookeeper.broker import Answer, Assign, ControlledBroker, KeepOnly
from replog.zookeeper.control_queue import ControlQueue, ControlRequest
from replog.zookeeper.controller import (
    BrokersChanged,
    CloseChannel,
    Command,
    Loaded,
    OpenChannel,
    Write,
    ZooKeeperController,
)
from replog.zookeeper.operations import Create, SetData, Stat
from replog.zookeeper.versions import ProtocolVersion
from replog.zookeeper.znodes import (
    BrokerZnode,
    DamagedZnode,
    PartitionStateZnode,
    Registered,
    TopicZnode,
    partition_state,
)
from tests.identities import an_identity

T0 = TopicPartition("t", 0)
OLD, NEW = "2.1", "3.4"


def registered(epochs: dict[int, int]) -> dict[NodeId, Registered]:
    return {
        NodeId(node): Registered(node=NodeId(node), epoch=BrokerEpoch(epoch), znode=BrokerZnode(host="h", port=node))
        for node, epoch in epochs.items()
    }


def newly_elected(node: int, protocol: str) -> ZooKeeperController:
    return ZooKeeperController(
        Settings(cluster_id="c"),
        node_id=NodeId(node),
        epoch=7,
        protocol=ProtocolVersion.parse(protocol),
        new_topic_id=lambda: UUID(int=9),
        random=Random(0),
    )


def a_controller(
    epochs: dict[int, int],
    *,
    protocol: str = NEW,
    isr: tuple[int, ...] = (1, 2, 3),
    unclean: bool = False,
    recovery: int = 0,
) -> ZooKeeperController:
    """The controller of one partition t-0 on brokers 1, 2, 3, led by the first of its ISR."""
    controller = newly_elected(3, protocol)
    state = PartitionStateZnode(
        controller_epoch=6, leader=isr[0], leader_epoch=4, isr=list(isr), leader_recovery_state=recovery
    )
    configs = {(BROKER_RESOURCE, CLUSTER_DEFAULT): {"unclean.leader.election.enable": "true"}} if unclean else {}
    loaded = Loaded(
        registered=registered(epochs),
        topics={"t": TopicZnode(partitions={"0": [1, 2, 3]}, topic_id="AAAAAAAAAAAAAAAAAAAABw")},
        states={T0: (state, Stat(czxid=1, mzxid=100, version=5))},
        configs=configs,
        deletions=[],
        next_producer_id=None,
    )
    controller.activate(loaded, 0)
    return controller


def sent_to(effects: list[Any], node: int, kind: type) -> list[Any]:
    return [
        effect.request.body
        for effect in effects
        if isinstance(effect, Command) and effect.node == node and isinstance(effect.request.body, kind)
    ]


def states_written(effects: list[Any]) -> list[PartitionStateZnode]:
    return [
        partition_state(T0, operation.data)
        for effect in effects
        if isinstance(effect, Write)
        for operation in effect.operations
        if isinstance(operation, SetData) and operation.path == paths.state(T0)
    ]


def read_back(api: Api, version: int, body: msgspec.Struct) -> Any:
    return decode_request(memoryview(encode_request(api, version, 1, "c", body))[4:]).body


class TestRequests:
    """ "Public Interfaces"."""

    @pytest.mark.parametrize(
        ("api", "first", "body"),
        [
            (Api.LEADER_AND_ISR, 2, li.LeaderAndIsrRequest(broker_epoch=50)),
            (Api.UPDATE_METADATA, 5, um.UpdateMetadataRequest(broker_epoch=50)),
            (Api.STOP_REPLICA, 1, sr.StopReplicaRequest(broker_epoch=50)),
            (Api.CONTROLLED_SHUTDOWN, 2, cs.ControlledShutdownRequest(broker_id=1, broker_epoch=50)),
        ],
    )
    def test_they_carry_the_generation(self, api: Api, first: int, body: msgspec.Struct) -> None:
        assert read_back(api, first, body).broker_epoch == 50
        assert read_back(api, first - 1, body).broker_epoch == -1

    def test_topics_are_named_once(self) -> None:
        controller = a_controller({1: 10, 2: 20, 3: 30})

        effects = controller.handle(BrokersChanged(registered({1: 11, 2: 20, 3: 30})), 0)

        (first, *_) = sent_to(effects, 1, li.LeaderAndIsrRequest)
        assert [topic.topic_name for topic in first.topic_states] == ["t"]
        assert first.ungrouped_partition_states == []

    def test_a_stale_one_is_not_sent_again(self) -> None:
        queue = ControlQueue(NodeId(1), BrokerEpoch(50))
        stale, next_one = (ControlRequest(body=li.LeaderAndIsrRequest(broker_epoch=50), version=7) for _ in range(2))
        queue.put(stale)
        queue.put(next_one)

        done = queue.on_answer(stale, Error.STALE_BROKER_EPOCH)

        assert not done
        assert queue.next is next_one


class TestRegistration:
    """ "Broker Registration in Zookeeper"."""

    def test_created_and_read_in_one_transaction(self) -> None:
        operations = registration.transaction(NodeId(1), BrokerZnode(host="h", port=1))

        assert isinstance(operations[0], Create)
        assert operations[0].ephemeral
        assert isinstance(operations[1], SetData)
        assert registration.epoch_of(["/brokers/ids/1", Stat(czxid=77, mzxid=77, version=1)]) == 77


class TestBrokerChanges:
    """ "Controller Detects Bounced Broker"."""

    def test_new_dead_and_bounced_are_distinguished_in_order(self) -> None:
        controller = a_controller({1: 10, 2: 20})

        effects = controller.handle(BrokersChanged(registered({1: 11, 3: 30})), 0)

        channels = [effect for effect in effects if isinstance(effect, OpenChannel | CloseChannel)]
        assert [type(each).__name__ for each in channels] == [
            "CloseChannel",  # the live set first: 2 is dead,
            "CloseChannel",  # 1 has bounced
            "OpenChannel",  # then 3 is new,
            "OpenChannel",  # and 1 starts, last
        ]
        assert channels[-1].broker.broker_id == 1
        assert channels[-1].broker.epoch == 11

    def test_a_bounced_broker_is_sent_everything_with_its_new_generation(self) -> None:
        controller = a_controller({1: 10, 2: 20, 3: 30})

        effects = controller.handle(BrokersChanged(registered({1: 11, 2: 20, 3: 30})), 0)

        (first, *_) = sent_to(effects, 1, li.LeaderAndIsrRequest)
        assert first.broker_epoch == 11
        assert [state.partition_index for state in first.topic_states[0].partition_states] == [0]
        assert first.topic_states[0].partition_states[0].leader == 2

    def test_a_leader_that_restarted_between_two_controllers_leads_in_a_new_epoch(self) -> None:
        controller = a_controller({1: 500, 2: 20, 3: 30})

        partition = controller.image.topics_by_name["t"].partitions[0]

        assert partition.leader == 2
        assert partition.leader_epoch == 5
        assert 1 not in partition.isr


class TestBroker:
    """ "Broker Rejects Control Requests Applied to Former Generations"."""

    def request(self, broker_epoch: int, recovery: int = 0) -> li.LeaderAndIsrRequest:
        state = li.LeaderAndIsrPartitionState(
            leader=1, leader_epoch=5, isr=[1], replicas=[1, 2], partition_epoch=6, leader_recovery_state=recovery
        )
        topic = li.LeaderAndIsrTopicState(topic_name="t", topic_id=UUID(int=7), partition_states=[state])
        return li.LeaderAndIsrRequest(controller_epoch=9, broker_epoch=broker_epoch, topic_states=[topic])

    def a_broker(self) -> ControlledBroker:
        broker = ControlledBroker(BrokerMetadata(NodeId(1)), an_identity(), lambda _: None)
        broker.registered(BrokerEpoch(50))
        return broker

    def test_an_earlier_generation_leaves_no_trace(self) -> None:
        broker = self.a_broker()
        before = broker.known_epochs

        (_, answer) = broker.handle(self.request(49))

        assert isinstance(answer, Answer)
        assert answer.body == li.LeaderAndIsrResponse(error_code=Error.STALE_BROKER_EPOCH)
        assert broker.known_epochs == before

    def test_only_the_first_of_this_generation_may_drop_checkpoints(self) -> None:
        broker = self.a_broker()

        unknown = broker.handle(self.request(-1))
        first = broker.handle(self.request(50))
        second = broker.handle(self.request(50))

        assert [any(isinstance(effect, KeepOnly) for effect in each) for each in (unknown, first, second)] == [
            False,
            True,
            False,
        ]

    def test_recovery_is_taken_whatever_the_own_protocol_version(self) -> None:
        (assigned, *_) = self.a_broker().handle(self.request(50, recovery=1))

        assert isinstance(assigned, Assign)
        assert assigned.state.recovery is LeaderRecoveryState.RECOVERING
        assert ProtocolVersion.parse("2.8").of(Api.ALTER_PARTITION) == 0


class TestUpgrade:
    """ "Compatibility" of both."""

    def test_versions_follow_the_operators_promise(self) -> None:
        old, new = ProtocolVersion.parse(OLD), ProtocolVersion.parse("2.2")

        assert [old.of(api) for api in (Api.LEADER_AND_ISR, Api.UPDATE_METADATA, Api.STOP_REPLICA)] == [1, 4, 0]
        assert [new.of(api) for api in (Api.LEADER_AND_ISR, Api.UPDATE_METADATA, Api.STOP_REPLICA)] == [2, 5, 1]
        assert (old.of(Api.CONTROLLED_SHUTDOWN), new.of(Api.CONTROLLED_SHUTDOWN)) == (1, 2)

    def test_the_old_one_says_nothing_of_recovery(self) -> None:
        controller = a_controller({1: 10, 2: 20, 3: 30}, protocol="3.1", isr=(1,), unclean=True)

        effects = controller.handle(BrokersChanged(registered({2: 20, 3: 30})), 0)

        assert states_written(effects)[-1].leader_recovery_state == 0
        assert states_written(effects)[-1].leader == 2


class TestRecovery:
    """KIP-704, "ZooKeeper Controller" and "ZooKeeper State"."""

    def test_an_unclean_election_is_written_and_sent_to_replicas(self) -> None:
        controller = a_controller({1: 10, 2: 20, 3: 30}, isr=(1,), unclean=True)

        effects = controller.handle(BrokersChanged(registered({2: 20, 3: 30})), 0)

        assert states_written(effects)[-1].isr == [2]
        assert states_written(effects)[-1].leader_recovery_state == 1
        (request, *_) = sent_to(effects, 2, li.LeaderAndIsrRequest)
        assert request.topic_states[0].partition_states[0].leader_recovery_state == 1

    def test_a_missing_property_means_recovered(self) -> None:
        data = b'{"controller_epoch":6,"leader":1,"version":1,"leader_epoch":4,"isr":[1]}'

        assert partition_state(T0, data).leader_recovery_state == 0

    @pytest.mark.parametrize(
        "data",
        [b"", b"{}", b"[]", b'{"version":2,"leader":1,"leader_epoch":0,"isr":[1],"controller_epoch":1}', b"\xff"],
    )
    def test_a_damaged_znode_is_named(self, data: bytes) -> None:
        with pytest.raises(DamagedZnode, match="/brokers/topics/t/partitions/0/state"):
            partition_state(T0, data)

    def test_version_6_has_the_field(self) -> None:
        state = li.LeaderAndIsrPartitionState(leader_recovery_state=1)
        body = li.LeaderAndIsrRequest(topic_states=[li.LeaderAndIsrTopicState(partition_states=[state])])

        found = [
            read_back(Api.LEADER_AND_ISR, version, body).topic_states[0].partition_states[0].leader_recovery_state
            for version in (5, 6)
        ]

        assert found == [0, 1]

    @pytest.mark.parametrize(
        ("isr", "recovery", "error"),
        [
            pytest.param([2], 0, Error.NONE, id="recovered"),
            pytest.param([2, 3], 1, Error.INVALID_REQUEST, id="recovering with others"),
        ],
    )
    @pytest.mark.parametrize("version", [0, 1])
    def test_the_leader_ends_it_by_alter_partition(
        self, version: int, isr: list[int], recovery: int, error: Error
    ) -> None:
        """Version 0 has no field: the leader has recovered, whatever it would say."""
        controller = a_controller({1: 10, 2: 20, 3: 30}, isr=(1,), unclean=True)
        controller.handle(BrokersChanged(registered({2: 20, 3: 30})), 0)
        partition = controller.image.topics_by_name["t"].partitions[0]
        body = proposal(partition.leader_epoch, partition.partition_epoch, isr, recovery)

        effects = controller.handle(
            Request(token=1, body=read_back(Api.ALTER_PARTITION, version, body), received_ms=0), 0, version
        )

        (answer,) = (effect.body for effect in effects if isinstance(effect, Reply))
        assert isinstance(answer, ap.AlterPartitionResponse)
        expected = error if version == 1 else Error.NONE
        assert answer.topics[0].partitions[0].error_code is expected

    def test_a_proposal_whose_answer_was_lost_is_granted_again(self) -> None:
        controller = a_controller({1: 10, 2: 20, 3: 30})
        body = proposal(4, 5, [1, 2], 0, leader=1, broker_epoch=10)
        asked = Request(token=1, body=read_back(Api.ALTER_PARTITION, 1, body), received_ms=0)

        answers = [
            effect.body for _ in range(2) for effect in controller.handle(asked, 0, 1) if isinstance(effect, Reply)
        ]

        assert [answer.topics[0].partitions[0].error_code for answer in answers] == [Error.NONE] * 2  # type: ignore[attr-defined]
        assert [answer.topics[0].partitions[0].partition_epoch for answer in answers] == [6, 6]  # type: ignore[attr-defined]


def proposal(
    leader_epoch: int, partition_epoch: int, isr: list[int], recovery: int, leader: int = 2, broker_epoch: int = 20
) -> ap.AlterPartitionRequest:
    partition = ap.AlterPartitionRequestPartitionData(
        leader_epoch=leader_epoch, partition_epoch=partition_epoch, new_isr=isr, leader_recovery_state=recovery
    )
    topic = ap.AlterPartitionRequestTopicData(topic_name="t", partitions=[partition])
    return ap.AlterPartitionRequest(broker_id=leader, broker_epoch=broker_epoch, topics=[topic])
