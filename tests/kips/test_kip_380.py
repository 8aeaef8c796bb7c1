"""KIP-380 (detect outdated control requests and bounced brokers using broker generation), in its KRaft form.

In ZooKeeper mode the controller pushes state and generations are czxids: `test_kip_380_zookeeper.py`. With KRaft brokers pull metadata, so that control requests to an earlier incarnation cannot
exist; what remains are the requests of brokers, and the generation is the offset of the registration record (SPEC
3.12.9).
"""

import msgspec
import pytest

from replog.broker.lifecycle import Fenced, Lifecycle, Phase, Register
from replog.errors import Error
from replog.metadata import records as r
from replog.types import BrokerEpoch, NodeId
from replog.wire.apis import BROKER_APIS, Api
from replog.wire.messages import allocate_producer_ids as ids
from replog.wire.messages import broker_heartbeat as hb
from tests.cases.controllers import Box, incarnation, registration
from tests.identities import an_identity
from tests.kips.scenes import a_cluster, beat, fence, propose, register, unfence

HEALTHY = {"replicas": [1, 2, 3]}


def bounced(broker_id: int) -> tuple[Box, int]:
    """A cluster whose broker was restarted; and the epoch of its earlier incarnation."""
    box = a_cluster(HEALTHY)
    register(box, broker_id, clean=False)
    return box, 100 + broker_id


class TestGeneration:
    """ "Broker Registration in Zookeeper" and the motivation's definition."""

    def test_it_is_unique_and_grows_with_every_incarnation(self) -> None:
        """ "broker generation, which is a unique & monotonically increasing value that changes every time when a broker
        (re)-joins the cluster" """
        box = a_cluster(HEALTHY)

        epochs = [
            register(box, node, clean=True, process=number).broker_epoch for number in (1, 2, 3) for node in (2, 1)
        ]

        assert epochs == sorted(set(epochs))
        assert epochs[0] > 103

    def test_registering_and_getting_it_is_one_step(self) -> None:
        """ "needs to create the ephemeral znode [...] and get back the broker generation (czxid) atomically": the answer
        names the offset of the record that it waited for"""
        box = a_cluster(HEALTHY)

        answer = register(box, 2, clean=True)

        (offset,) = [
            box.offset - len(box.records) + index
            for index, record in enumerate(box.records)
            if isinstance(record, r.RegisterBrokerRecord)
        ]
        assert answer.broker_epoch == offset == box.image.broker_epoch(NodeId(2))

    def test_a_broker_that_only_lost_its_session_keeps_it(self) -> None:
        """ "changes every time when a broker (re)-joins": in KRaft a silent broker is fenced, not forgotten (SPEC
        3.11.6)"""
        box = a_cluster(HEALTHY)
        fence(box, 2)

        answer = beat(box, 2)

        assert (answer.error_code, answer.is_fenced) == (Error.NONE, False)
        assert box.image.broker_epoch(NodeId(2)) == 102


class TestEarlierGenerations:
    """ "Controller Rejects ControlledShutdownRequest Sent from Former Generations", and its KRaft equivalents."""

    def test_a_controlled_shutdown_of_an_earlier_incarnation_moves_nothing(self) -> None:
        """ "will reject the request if its broker generation is smaller [...] This guarantees controller will not attempt to
        send out control requests to move partitions and stop replicas" """
        box, former = bounced(1)
        unfence(box, 1)
        before = box.partition()

        answer = beat(box, 1, epoch=former, want_shut_down=True)

        assert answer.error_code is Error.STALE_BROKER_EPOCH
        assert (box.records, box.partition()) == ([], before)
        assert not box.image.brokers[NodeId(1)].in_controlled_shutdown

    def test_a_heartbeat_of_an_earlier_incarnation_is_no_contact(self) -> None:
        """ "with outdated broker epoch, it will respond back with STALE_BROKER_EPOCH error" """
        box, former = bounced(2)

        answer = beat(box, 2, epoch=former)

        assert answer.error_code is Error.STALE_BROKER_EPOCH
        assert box.image.brokers[NodeId(2)].fenced
        assert not box.controller.sessions.is_valid(NodeId(2), BrokerEpoch(former), box.now_ms)

    def test_a_proposal_of_an_earlier_incarnation_is_refused_whole(self) -> None:
        """the same of AlterPartition (SPEC 2.7.6: equality, a newer epoch is stale too)"""
        box = a_cluster(HEALTHY)

        errors = [propose(box, [1, 2], sender_epoch=epoch) for epoch in (100, 102)]

        assert errors == [Error.STALE_BROKER_EPOCH] * 2
        assert len(box.partition().isr) == 3

    def test_producer_ids_are_not_given_to_an_earlier_incarnation(self) -> None:
        """the same of AllocateProducerIds (SPEC 3.12.9)"""
        box, former = bounced(2)

        answers = [
            box.send(ids.AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch))
            for epoch in (former, box.image.broker_epoch(NodeId(2)))
        ]

        assert [answer.error_code for answer in answers] == [Error.STALE_BROKER_EPOCH, Error.NONE]

    def test_a_refused_broker_registers_again_and_asks_with_its_new_epoch(self) -> None:
        """ "If the broker just gets disconnected from zookeeper and re-connect during controlled shutdown, it will retry to
        send the ControlledShutdownRequest with newer broker epoch": in KRaft it registers again on that error"""
        lifecycle = Lifecycle(
            identity=an_identity(incarnation=incarnation(1).int),
            previous_broker_epoch=BrokerEpoch(-1),
            heartbeat_interval_ms=2000,
            registration_timeout_ms=60_000,
            shutdown_timeout_ms=30_000,
            retry_ms=200,
            now_ms=0,
        )
        lifecycle.on_tick(0)
        lifecycle.on_registration_answer(Error.NONE, BrokerEpoch(40), 1)
        lifecycle.on_tick(1)

        effects = lifecycle.on_heartbeat_answer(
            Error.STALE_BROKER_EPOCH, is_caught_up=False, is_fenced=True, should_shut_down=False, now_ms=2
        )

        assert lifecycle.phase is Phase.REGISTERING
        assert Fenced() not in effects
        assert [type(effect) for effect in lifecycle.on_tick(2)] == [Register]

    def test_no_control_request_reaches_a_broker(self) -> None:
        """ "A broker will [...] reject requests that are intended to be sent to the previous generations": with KRaft nothing
        is pushed; LeaderAndIsr, StopReplica and UpdateMetadata are not offered"""
        pushed = {Api.LEADER_AND_ISR, Api.STOP_REPLICA, Api.UPDATE_METADATA, Api.CONTROLLED_SHUTDOWN}
        assert not pushed & set(BROKER_APIS)


class TestBouncedBroker:
    """ "Controller Detects Bounced Broker"."""

    def test_a_fast_bounce_is_noticed(self) -> None:
        """ "If a broker bounces very quickly [...] controller will miss the broker restart": the new registration itself
        takes it out of the ISR, as a failure would"""
        box = a_cluster(HEALTHY)

        register(box, 2, clean=True)

        state = box.partition()
        assert 2 not in state.isr
        assert box.image.brokers[NodeId(2)].fenced

    def test_its_failure_is_handled_before_its_start(self) -> None:
        """ "bounced brokers: invoke onBrokerFailure(bounced brokers) first, then update broker generation in controller
        context for bounced brokers, finally invoke onBrokerStartUp(bounced brokers)" """
        box = a_cluster(HEALTHY)

        register(box, 1, clean=True)
        kinds = [type(record) for record in box.records]
        led_by = box.partition().leader
        unfence(box, 1)

        assert kinds == [r.PartitionChangeRecord, r.RegisterBrokerRecord]
        assert led_by == 2
        assert [type(record) for record in box.records] == [r.BrokerRegistrationChangeRecord]

    def test_two_incarnations_do_not_overlap(self) -> None:
        """ "a unique [...] value": while the session of an incarnation is valid another one is refused (SPEC 2.2.1)"""
        box = a_cluster(HEALTHY)
        beat(box, 1)

        answer = box.send(registration(1, incarnation_id=incarnation("x")))

        assert answer.error_code is Error.DUPLICATE_BROKER_REGISTRATION

    @pytest.mark.parametrize("message", [hb.BrokerHeartbeatRequest, ids.AllocateProducerIdsRequest])
    def test_requests_of_brokers_carry_their_generation(self, message: type[msgspec.Struct]) -> None:
        """ "This KIP will include the broker generation (broker_epoch) in" the requests between broker and controller"""
        assert "broker_epoch" in message.__struct_fields__


class TestErrorCode:
    """ "New Error Code"."""

    def test_it_has_number_77(self) -> None:
        """ "New error code STALE_BROKER_EPOCH (77)" """
        assert int(Error.STALE_BROKER_EPOCH) == 77
