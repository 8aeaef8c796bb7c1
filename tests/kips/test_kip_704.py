"""KIP-704 (send a hint to the partition leader to recover the partition), sentence by sentence.

Where the text speaks of LeaderAndIsr and ZooKeeper, its KRaft form is tested: the records, and what a broker does with
them. D3: the refusal window is the text's; the released software has none (`leader.recovery=off` mimics it).
"""

from pathlib import Path
from typing import Any

import pytest

from replog.broker.isr import AlterPartitionAnswer, LeaderState, Proposal, Propose
from replog.broker.partition import Partition
from replog.controller.election import Election, Rules, Wish, partition_change
from replog.controller.elr import LastKnownMode
from replog.errors import Error
from replog.log.batch import ControlType, batches, end_transaction
from replog.metadata import records as r
from replog.metadata.image import merged
from replog.types import ZERO_UUID, BrokerEpoch, LeaderRecoveryState, NodeId
from replog.wire.apis import Api
from replog.wire.codec import decode_request, encode_request
from replog.wire.messages import alter_partition as ap
from replog.wire.records.metadata import decode_metadata_record, encode_metadata_record
from replog.wire.translate import current_alter_partition
from tests.cases.partitions import KEY, TOPIC_ID, nodes, partition
from tests.cases.replicas import NOW_MS, WALL_MS, a_log, a_replica, apply_metadata, fetched_by, record_batch, state
from tests.kips.scenes import a_cluster, a_leader, fetch, propose, unfence

RECOVERING, RECOVERED = LeaderRecoveryState.RECOVERING, LeaderRecoveryState.RECOVERED


def a_recovering_leader(folder: Path, **past: Any) -> Partition:
    replica = a_replica(a_log(folder, end=6, epochs=[[0, 0]], **past), high_watermark=4)
    apply_metadata(replica, state(leader=1, leader_epoch=3, isr=[1], recovery=1))
    return replica


def a_follower_of_one(folder: Path, recovery: int) -> Partition:
    replica = a_replica(a_log(folder, end=6, epochs=[[0, 0]]), high_watermark=4)
    apply_metadata(replica, state(leader=2, leader_epoch=3, isr=[2], recovery=recovery))
    return replica


class TestController:
    """The sections "Proposed Changes" and "Controller"."""

    def test_an_unclean_election_has_an_isr_of_one_that_recovers(self) -> None:
        """ "when the controller performs unclean leader election the ISR size is 1 and the leader recovery state field will
        be RECOVERING" """
        lost = {"replicas": [1, 2, 3], "isr": [], "elr": [1], "leader": -1}
        box = a_cluster(lost, fenced=(1, 2, 3), unclean_leader_election=True)

        after = unfence(box, 2)

        assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), RECOVERING)

    def test_the_states_are_zero_and_one(self) -> None:
        """ "an int8 and will have the values of RECOVERED (0) and RECOVERING (1)" """
        assert (int(RECOVERED), int(RECOVERING)) == (0, 1)

    def test_the_decision_is_in_the_metadata_log(self) -> None:
        """ "The controller will persist the decision that it elected a leader through the unclean leader election strategy
        [...] using the PartitionRecord and PartitionChangeRecord." """
        created = r.partition_record(TOPIC_ID, 0, partition({"replicas": [1, 2], "isr": [1], "recovery": 1}))
        change = r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2, leader_recovery_state=1)

        for record in (created, change):
            read = decode_metadata_record(encode_metadata_record(record))
            assert isinstance(read, r.PartitionRecord | r.PartitionChangeRecord)
            assert read.leader_recovery_state == 1

    def test_the_defaults_say_recovered_and_no_change(self) -> None:
        """ "the default value for all of the leader recovery state field in the protocol is RECOVERED"; "-1 if it didn't
        change" """
        assert r.PartitionRecord().leader_recovery_state == 0
        assert r.PartitionChangeRecord().leader_recovery_state == -1

    def test_while_recovering_the_next_leader_is_elected_uncleanly(self) -> None:
        """ "if the leader changes while a partition is still recovering, the new leader must be elected using the unclean
        leader election strategy" """
        recovering = partition({"replicas": [1, 2, 3], "isr": [1], "leader": 1, "recovery": 1})
        rules = Rules(min_insync_replicas=1, elr_enabled=False, last_known_mode=LastKnownMode.LEADER)
        outcomes = []
        for election in (Election.ONLINE, Election.UNCLEAN):
            wish = Wish(target_isr=(), election=election)
            change = partition_change(KEY, recovering, wish, rules, lambda node: node != 1)
            assert change is not None
            outcomes.append(merged(recovering, change))

        assert [(after.leader, after.leader_recovery_state) for after in outcomes] == [(-1, 1), (2, 1)]

    def test_the_leader_ends_the_recovery_by_alter_partition(self) -> None:
        """ "Topic partition leaders will inform the controller that they have recovered from unclean leader election using
        the AlterPartition request." """
        box = a_cluster({"replicas": [1, 2, 3], "isr": [1], "leader": 1, "recovery": 1, "leader_epoch": 4})

        error = propose(box, [1], recovery=0)

        after = box.partition()
        assert error is Error.NONE
        assert (after.leader_recovery_state, after.leader_epoch) == (RECOVERED, 4)

    @pytest.mark.parametrize(
        ("before", "isr"),
        [
            pytest.param(1, [1, 2], id="the size of the ISR is greater than 1 and the state is RECOVERING"),
            pytest.param(0, [1], id="the state is changing from RECOVERED to RECOVERING"),
        ],
    )
    def test_what_is_refused(self, before: int, isr: list[int]) -> None:
        """ "The controller will validate the LeaderRecoveryState field and return an INVALID_REQUEST error when" """
        box = a_cluster({"replicas": [1, 2, 3], "isr": [1], "leader": 1, "recovery": before})

        assert propose(box, isr, recovery=1) is Error.INVALID_REQUEST

    def test_version_0_means_recovered(self) -> None:
        """ "If the controllers receives an AlterPartition with a version of 0, it will assume that the leader has recovered
        from the unclean leader election." """
        old = ap.AlterPartitionRequestPartitionData(new_isr=[1], leader_recovery_state=0)
        body = ap.AlterPartitionRequest(
            broker_id=1, topics=[ap.AlterPartitionRequestTopicData(topic_name="t", partitions=[old])]
        )

        current = current_alter_partition(body, 0, lambda _: TOPIC_ID)

        assert current.topics[0].topic_id == TOPIC_ID != ZERO_UUID
        assert current.topics[0].partitions[0].leader_recovery_state == RECOVERED

    def test_the_field_is_in_the_request(self) -> None:
        """ "LeaderRecoveryState [...] versions 1+ [...] 1 if the partition is recovering" """
        one = ap.AlterPartitionRequestPartitionData(leader_recovery_state=1)
        body = ap.AlterPartitionRequest(topics=[ap.AlterPartitionRequestTopicData(partitions=[one])])

        read = decode_request(encode_request(Api.ALTER_PARTITION, 3, 1, "", body)[4:]).body

        assert read.topics[0].partitions[0].leader_recovery_state == 1


REFUSED = {
    "FETCH of a consumer": lambda replica: (
        replica.fetch_as_consumer(
            current_leader_epoch=-1,
            fetch_offset=0,
            last_fetched_epoch=-1,
            isolation=0,
            leader_only=False,
            max_bytes=1 << 20,
            at_least_one=True,
        ).error
    ),
    "FETCH of a replica": lambda replica: fetched_by(replica, 2, 0)[0].error,
    "PRODUCE": lambda replica: replica.append_error(1),
    "LIST_OFFSETS": lambda replica: (
        replica.list_offset(
            current_leader_epoch=-1, timestamp=-1, isolation=0, is_replica=False, leader_only=True
        ).error
    ),
    "DELETE_RECORDS": lambda replica: replica.delete_records(1),
    "OFFSET_FOR_LEADER_EPOCH": lambda replica: replica.end_of_epoch(current_leader_epoch=-1, leader_epoch=0).error,
}


class TestLeader:
    """The section "Topic Partition Leader"."""

    @pytest.mark.parametrize("request_of", list(REFUSED))
    def test_it_refuses_requests_until_it_has_recovered(self, request_of: str, tmp_path: Path) -> None:
        """ "While the leader is recovering from an unclean leader election it will return a NOT_LEADER_OR_FOLLOWER error for
        the FETCH, PRODUCE, LIST_OFFSETS, DELETE_RECORDS and OFFSET_FOR_LEADER_EPOCH requests." """
        replica = a_recovering_leader(tmp_path)

        while_recovering = REFUSED[request_of](replica)
        apply_metadata(replica, state(leader=1, leader_epoch=3, partition_epoch=1, isr=[1], recovery=0))

        assert while_recovering is Error.NOT_LEADER_OR_FOLLOWER
        assert REFUSED[request_of](replica) is not Error.NOT_LEADER_OR_FOLLOWER

    def test_the_refusal_can_be_switched_off(self, tmp_path: Path) -> None:
        """D3: the released software serves at once; `leader.recovery=off`."""
        log = a_log(tmp_path, end=6, epochs=[[0, 0]])
        replica = a_replica(log, high_watermark=4, refuses_while_recovering=False)

        apply_metadata(replica, state(leader=1, leader_epoch=3, isr=[1], recovery=1))

        assert replica.append_error(1) is Error.NONE

    def test_open_transactions_are_aborted(self, tmp_path: Path) -> None:
        """ "One of the ways Kafka is going to use this feature is to abort all pending transaction when recovering from
        unclean leader election." """
        replica = a_recovering_leader(tmp_path, transactions={2: 9, 4: 7})

        written = replica.log.read(6, max_bytes=1 << 20, end_offset=replica.log.log_end_offset, at_least_one=True)
        markers = [(header.producer_id, end_transaction(written, header)) for header in batches(written)]

        assert [producer for producer, _ in markers] == [9, 7]
        assert all(marker is not None and marker.control_type is ControlType.ABORT for _, marker in markers)
        assert replica.log.producers.open_transactions == []

    def test_then_it_proposes_recovered_to_the_controller(self, tmp_path: Path) -> None:
        """ "Once the leader has recovered it will change the leader recovery state to RECOVERED." """
        replica = a_replica(a_log(tmp_path, end=6, epochs=[[0, 0]]), high_watermark=4)

        effects = apply_metadata(replica, state(leader=1, leader_epoch=3, isr=[1], recovery=1))

        (proposal,) = [effect.proposal for effect in effects if isinstance(effect, Propose)]
        assert (proposal.isr, proposal.recovery) == (((1, 101),), RECOVERED)

    def test_no_follower_joins_before_it_has_recovered(self) -> None:
        """ "the ISR size is 1 while the leader recovery state field is RECOVERING. This means that the leader will not allow
        followers to join the ISR until it has recovered" """
        recovering, recovered = a_leader(isr=(1,), recovery=1), a_leader(isr=(1,), recovery=0)

        joined = [fetch(leader, 2, 100) for leader in (recovering, recovered)]

        assert [any(isinstance(effect, Propose) for effect in effects) for effects in joined] == [False, True]

    def test_an_answer_never_starts_a_recovery(self) -> None:
        """ "The broker does not take the value in this field as a trigger to start recovery. That happens through either the
        LeaderAndIsr request or the relevant record in Kraft mode." """
        leader = a_leader(isr=(1,))
        leader.pending = a_proposal(leader)

        leader.on_alter_partition_answer(
            leader.pending,
            AlterPartitionAnswer(
                error=Error.NONE,
                leader=NodeId(1),
                leader_epoch=5,
                partition_epoch=8,
                isr=nodes([1]),
                recovery=RECOVERING,
            ),
            NOW_MS,
        )

        assert leader.state.recovery is RECOVERED

    def test_the_record_starts_it_whatever_the_version(self, tmp_path: Path) -> None:
        """ "it will perform recovery irrespective of the IBP": no version is asked for, D3's switch is all there is"""
        replica = a_recovering_leader(tmp_path, transactions={2: 9})

        assert replica.is_recovering
        assert replica.log.log_end_offset == 7


def a_proposal(leader: LeaderState) -> Proposal:
    return Proposal(
        leader_epoch=leader.state.leader_epoch,
        partition_epoch=leader.state.partition_epoch,
        isr=((NodeId(1), BrokerEpoch(101)),),
        recovery=leader.state.recovery,
    )


class TestFollower:
    """The section "Topic Partition Follower"."""

    def test_it_refuses_consumers_while_its_leader_recovers(self, tmp_path: Path) -> None:
        """ "Follower will return a NOT_LEADER_OR_FOLLOWER error while the leader it sill recovering." """
        replica = a_follower_of_one(tmp_path, 1)

        assert replica.reader_error(-1, leader_only=False) is Error.NOT_LEADER_OR_FOLLOWER

    def test_the_same_leader_epoch_is_not_ignored(self, tmp_path: Path) -> None:
        """ "until it receives another request with RECOVERED. The follower will not ignore request that have the same leader
        epoch." """
        replica = a_follower_of_one(tmp_path, 1)

        apply_metadata(replica, state(leader=2, leader_epoch=3, partition_epoch=1, isr=[2], recovery=0))

        assert replica.reader_error(-1, leader_only=False) is Error.NONE


class TestCompatibility:
    """The section "Compatibility, Deprecation, and Migration Plan"."""

    def test_recovering_comes_only_with_an_isr_of_one(self) -> None:
        """ "if the leader recovery state field is RECOVERING then the ISR is guarantee to have a size of 1" """
        box = a_cluster({"replicas": [1, 2, 3], "isr": [1], "leader": 1, "recovery": 1})

        both = propose(box, [1, 2], recovery=0)

        after = box.partition()
        assert both is Error.NONE  # recovered and grown in one step
        assert (after.isr, after.leader_recovery_state) == ((1, 2), RECOVERED)

    def test_producers_may_send_again(self, tmp_path: Path) -> None:
        """ "This is backward compatible because the clients will retry this error." """
        replica = a_recovering_leader(tmp_path)
        first, _ = replica.append(record_batch(0, 0), acks=1, now_ms=NOW_MS, wall_ms=WALL_MS)

        apply_metadata(replica, state(leader=1, leader_epoch=3, partition_epoch=1, isr=[1], recovery=0))
        second, _ = replica.append(record_batch(0, 0), acks=1, now_ms=NOW_MS, wall_ms=WALL_MS)

        assert first is Error.NOT_LEADER_OR_FOLLOWER
        assert not isinstance(second, Error)
