"""KIP-966 (Eligible Leader Replicas), sentence by sentence: the conformance table of the protection of acknowledged records.

A docstring quotes the sentence. Where the text is silent or was decided otherwise, SPEC 0.1 (D4-D9, D11-D13, D16-D19)
says so; `docs/kips.md` has them all. What needs a whole cluster is in `tests/scenarios/test_unclean_recovery.py`.
"""

import inspect
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from replog.broker.isr import AlterPartitionAnswer, PartitionState, Propose
from replog.broker.lifecycle import Lifecycle, Register
from replog.broker.watermark import effective_min_isr, high_watermark
from replog.config.controller import ControllerConfig
from replog.config.network import NetworkConfig
from replog.controller.describe import page
from replog.controller.election import Rules, Wish, partition_change
from replog.controller.elr import LastKnownMode
from replog.controller.events import AskLogInfo, Emit, LogInfoAnswered, Probe
from replog.controller.policy import Strategy, strategy_of_old_option
from replog.controller.registration import Shutdown, how_it_ended
from replog.controller.unclean_recovery import Action, Recovery, decide
from replog.errors import Error
from replog.log.clean_shutdown import CLEAN_SHUTDOWN_FILE, LogDirectory, shutdown, startup
from replog.metadata import records as r
from replog.metadata.image import merged
from replog.types import NO_NODE, BrokerEpoch, LeaderRecoveryState, NodeId
from replog.wire.apis import Api
from replog.wire.codec import decode_request, encode_request
from replog.wire.messages import broker_registration as br
from replog.wire.messages import describe_topic_partitions as dtp
from replog.wire.messages import elect_designated_leaders as edl
from replog.wire.messages import get_replica_log_info as gl
from replog.wire.messages import metadata as md
from replog.wire.messages import update_features as uf
from replog.wire.records.metadata import decode_metadata_record, encode_metadata_record
from tests.cases.controllers import Box
from tests.cases.partitions import KEY, TOPIC, TOPIC_ID, nodes, partition
from tests.cases.replicas import NOW_MS as REPLICA_NOW_MS
from tests.cases.replicas import WALL_MS, a_log, a_replica, apply_metadata, record_batch, state
from tests.identities import an_identity
from tests.kips.scenes import (
    NOW_MS,
    a_cluster,
    a_leader,
    fence,
    fetch,
    lists,
    log_info,
    propose,
    reassign,
    register,
    set_topic,
    unfence,
)
from tribunal.clusters.simulated.disk import SimulatedDisk

HEALTHY: dict[str, Any] = {"replicas": [1, 2, 3]}
ELR_RULES = Rules(min_insync_replicas=3, elr_enabled=True, last_known_mode=LastKnownMode.ELR_MEMBERS)


def updated(before: dict[str, Any], isr: list[int], *, unclean: tuple[int, ...] = ()) -> Any:
    """The partition after an ELR update with a proposed ISR, everybody being acceptable."""
    known = partition(before)
    wish = Wish(target_isr=nodes(isr), unclean_shutdown=nodes(list(unclean)))
    change = partition_change(KEY, known, wish, ELR_RULES, lambda _: True)
    return known if change is None else merged(known, change)


class TestHighWatermark:
    """The section "Additional High Watermark advancement requirement"."""

    def test_it_advances_only_with_an_isr_of_at_least_min_isr(self) -> None:
        """ "High Watermark can only advance if the ISR size is larger or equal to min.insync.replicas" """
        enough, too_few = a_leader(isr=(1, 2)), a_leader(isr=(1,))

        fetch(enough, 2, 100)
        fetch(too_few, 2, 100)

        assert (enough.high_watermark, too_few.high_watermark) == (100, 50)

    def test_records_of_acks_1_wait_too_but_are_acknowledged(self, tmp_path: Path) -> None:
        """ "It applies to the ack=0/1 message replication as well. Note that the leader still acknowledges the client
        requests when the ack=1 messages have persisted in the leader log." """
        replica = a_replica(a_log(tmp_path, end=3, epochs=[[0, 0]]), high_watermark=3)
        replica.min_insync_replicas = 2
        apply_metadata(replica, state(leader=1, leader_epoch=1, isr=[1]))

        for acks in (0, 1):
            outcome, _ = replica.append(record_batch(0, 0), acks=acks, now_ms=REPLICA_NOW_MS, wall_ms=WALL_MS)
            assert not isinstance(outcome, Error)

        assert replica.append_error(-1) is Error.NOT_ENOUGH_REPLICAS
        assert (replica.log.log_end_offset, replica.high_watermark) == (5, 3)

    def test_the_committed_isr_is_what_counts(self) -> None:
        """ "The ISR membership refers to the latest ISR membership persisted by the controller, not the "maximal ISR" """
        leader = a_leader(isr=(1,))

        effects = fetch(leader, 2, 100)

        assert [type(effect) for effect in effects] == [Propose]
        assert (leader.maximal_isr, leader.high_watermark) == ((1, 2), 50)

    def test_all_of_the_maximal_isr_must_hold_a_record(self) -> None:
        """ "If maximal ISR > ISR, the message should be replicated to the maximal ISR before covering the message" """
        leader = a_leader(isr=(1, 2), end=60)
        fetch(leader, 3, 50)
        assert leader.maximal_isr == (1, 2, 3)

        fetch(leader, 2, 60)

        assert leader.high_watermark == 50

    def test_min_isr_is_capped_by_the_replication_factor(self) -> None:
        """ "the effective min.insync.replicas will be min(min.insync.replicas, replication factor)" """
        assert [effective_min_isr(3, factor) for factor in (1, 2, 3, 4)] == [1, 2, 3, 3]

    def test_an_elr_member_that_does_not_replicate_is_not_outrun(self) -> None:
        """ "in the new protocol we wait until the controller updates ISR=[0,2] to avoid advancing HWM beyond what ELR=[1]
        has" """
        leader = a_leader(isr=(1,), end=60)
        effects = fetch(leader, 3, 60)
        waiting = leader.high_watermark
        (proposal,) = [effect.proposal for effect in effects if isinstance(effect, Propose)]

        answer = AlterPartitionAnswer(
            error=Error.NONE, leader=NodeId(1), leader_epoch=5, partition_epoch=8, isr=nodes([1, 3])
        )
        leader.on_alter_partition_answer(proposal, answer, NOW_MS)

        assert (waiting, leader.high_watermark) == (50, 60)

    def test_no_feature_guards_it(self) -> None:
        """ "Note that, this new requirement is not guarded by any feature flags/Metadata version." """
        assert list(inspect.signature(high_watermark).parameters) == [
            "current",
            "leader_log_end_offset",
            "follower_log_end_offsets",
            "isr",
            "maximal_isr",
            "waiters",
            "min_isr",
        ]


class TestEligibleLeaderReplicas:
    """The section "Eligible Leader Replicas"."""

    def test_the_isr_can_be_empty(self) -> None:
        """ "The ISR can be empty now. The proposal maintains the behavior of removing a replica out of ISR if it is lagging
        from the ISR or it is fenced by the controller." """
        box = a_cluster({"replicas": [1, 2, 3], "isr": [1], "elr": [2]}, fenced=(2, 3))

        after = fence(box, 1)

        assert (after.isr, after.leader) == ((), NO_NODE)

    @pytest.mark.parametrize("seed", range(20))
    def test_its_invariants_hold_whatever_comes(self, seed: int) -> None:
        """ "The member of ELR should not be in ISR."; "If ELR is not empty, the ISR is under min ISR."; "ELR + ISR size will
        not be dropped below the min ISR unless the controller discovers an ELR member has an unclean shutdown." """
        random, box = Random(seed), a_cluster(HEALTHY)
        for _ in range(30):
            happens = random.choice([fence, unfence, propose_at_random])
            after = happens(box, random.choice([1, 2, 3]))

            assert not set(after.isr) & set(after.elr)
            assert not after.elr or len(after.isr) < 2
            assert len(after.isr) + len(after.elr) >= 2

    def test_brokers_know_nothing_of_it(self) -> None:
        """ "Both the follower and the leader don't have any new behavior to handle ELR. They still refer to ISR" """
        assert PartitionState.__struct_fields__ == (
            "leader",
            "leader_epoch",
            "partition_epoch",
            "replicas",
            "isr",
            "recovery",
        )

    def test_an_alter_partition_updates_it(self) -> None:
        """ "When the controller receives the new ISR, it will trigger an ELR update." """
        box = a_cluster(HEALTHY)

        error = propose(box, [1])

        assert error is Error.NONE
        assert lists(box.partition()) == ([1], [2, 3], [])

    def test_a_fencing_updates_it(self) -> None:
        """ "The replica gets fenced. When it happens, the controller will trigger the ELR update with the new updated ISR." """
        box = a_cluster({"replicas": [1, 2, 3], "isr": [1, 2]})

        assert lists(fence(box, 2)) == ([1], [2], [])

    def test_an_unfenced_member_leads_when_the_isr_is_empty(self) -> None:
        """ "If the replica is an ELR member and ISR is empty, this replica will be elected as leader, added to ISR, and
        removed from ELR." """
        box = a_cluster({"replicas": [1, 2, 3], "isr": [], "elr": [2, 3], "leader": -1}, fenced=(1, 2, 3))

        after = unfence(box, 3)

        assert (after.leader, after.isr, after.elr) == (3, (3,), (2,))
        assert after.leader_recovery_state is LeaderRecoveryState.RECOVERED

    def test_an_unclean_registration_removes_the_broker_before_it_is_registered(self) -> None:
        """ "During the broker registration, if the broker had an unclean shutdown, the controller will remove the broker
        from ISR and ELR before persisting the registration record." """
        in_elr = a_cluster({"replicas": [1, 2, 3], "isr": [1], "elr": [2]}, unclean_recovery_manager=True)
        in_isr = a_cluster({"replicas": [1, 2, 3], "isr": [1], "elr": [2]}, unclean_recovery_manager=True)

        register(in_elr, 2, clean=False)
        register(in_isr, 1, clean=False)

        for box in (in_elr, in_isr):
            assert [type(record) for record in box.records] == [r.PartitionChangeRecord, r.RegisterBrokerRecord]
        assert lists(in_elr.partition()) == ([1], [], [2])
        assert 1 not in (*in_isr.partition().isr, *in_isr.partition().elr)

    def test_a_clean_registration_leaves_it_in_the_elr(self) -> None:
        """ "The controller will remove the ELR member if it registers with an unclean shutdown": and only then"""
        box = a_cluster({"replicas": [1, 2, 3], "isr": [1], "elr": [2]})

        register(box, 2, clean=True)

        assert lists(box.partition()) == ([1], [2], [])

    def test_an_isr_of_min_isr_empties_it(self) -> None:
        """ "When the proposed ISR is larger or equal to min ISR, the controller will update the ISR and empty the ELR." """
        before = {"replicas": [1, 2, 3, 4], "isr": [1, 2], "elr": [3], "last_known": [4]}

        after = updated(before, [1, 2, 4])

        assert lists(after) == ([1, 2, 4], [], [])

    def test_a_smaller_isr_retains_adds_and_removes_duplicates(self) -> None:
        """ "retain the current members of the ELR"; "add (the current ISR - the proposed ISR) to ELR"; "remove the duplicate
        member in both ISR and ELR from ELR" """
        before = {"replicas": [1, 2, 3, 4], "isr": [1, 2], "elr": [3, 4]}

        after = updated(before, [1, 3])

        assert lists(after) == ([1, 3], [2, 4], [])

    def test_the_example_of_four_brokers(self) -> None:
        """ "Here is an example that demonstrates most of the above ELR behaviors. The setup is 4 brokers with min ISR 3."
        (the figure is lost; SPEC 8.2 has the steps)"""
        whole = {"replicas": [0, 1, 2, 3]}
        one_left = updated(whole, [0, 1, 2])
        two_left = updated(whole | {"isr": [0, 1, 2]}, [0, 1])
        one_back = updated(whole | {"isr": [0, 1], "elr": [2]}, [0, 1, 3])

        assert [lists(after)[:2] for after in (one_left, two_left, one_back)] == [
            ([0, 1, 2], []),
            ([0, 1], [2]),
            ([0, 1, 3], []),
        ]

    def test_its_change_raises_no_leader_epoch(self) -> None:
        """ "Change of the ELR does not require a leader epoch bump. [...] The only case of the ELR changes alone is when an
        ELR broker registers after an unclean shutdown." """
        box = a_cluster({"replicas": [1, 2, 3], "isr": [1], "elr": [2], "leader_epoch": 6, "partition_epoch": 8})

        register(box, 2, clean=False)

        after = box.partition()
        assert (after.elr, after.leader_epoch, after.partition_epoch) == ((), 6, 9)

    def test_a_lowered_min_isr_removes_it(self) -> None:
        """ "When updating the config min.insync.replicas, if the new min ISR <= current ISR, the ELR will be removed." """
        box = a_cluster({"replicas": [1, 2, 3], "isr": [1], "elr": [2, 3]})
        before = box.partition()

        set_topic(box, "min.insync.replicas", "1")

        after = box.partition()
        assert lists(after) == ([1], [], [])
        assert (after.leader_epoch, after.partition_epoch) == (before.leader_epoch, before.partition_epoch + 1)

    def test_a_min_isr_still_above_the_isr_keeps_it(self) -> None:
        """ "if the new min ISR <= current ISR": else not (D5; the released software drops it on every change)"""
        box = a_cluster({"replicas": [1, 2, 3], "isr": [1], "elr": [2]})

        set_topic(box, "min.insync.replicas", "3")

        assert lists(box.partition()) == ([1], [2], [])

    def test_a_lowered_min_isr_keeps_it_while_nobody_is_in_sync(self) -> None:
        """ "if the new min ISR <= current ISR": an ISR of nobody never is (D5). Everybody was stopped in good order, the
        first comes back, an operator lowers min ISR as always, and who holds the records comes back later."""
        stopped = {"replicas": [1, 2, 3], "isr": [], "elr": [2, 3], "leader": -1, "last_known": [3]}
        box = a_cluster(stopped, fenced=(2, 3))

        set_topic(box, "min.insync.replicas", "1")

        assert lists(box.partition()) == ([], [2, 3], [3])
        register(box, 2, clean=True)
        after = unfence(box, 2)
        assert (after.leader, after.isr) == (2, (2,))
        assert after.leader_recovery_state is LeaderRecoveryState.RECOVERED

    def test_a_raised_min_isr_gives_the_leader_a_new_epoch(self) -> None:
        """Decision 0010: a leader that does not know the larger value commits nothing more that the others lack."""
        box = a_cluster(HEALTHY, min_insync_replicas=1)
        before = box.partition()

        set_topic(box, "min.insync.replicas", "2")

        after = box.partition()
        assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch + 1)
        assert lists(after) == ([1, 2, 3], [], [])
        assert [type(record) for record in box.records] == [r.ConfigRecord, r.PartitionChangeRecord]

    def test_a_proposal_from_before_min_isr_rose_is_refused(self) -> None:
        """Decision 0010: else the leader learns of an ISR of one, and does not know that it is too small."""
        box = a_cluster(HEALTHY, min_insync_replicas=1)
        old = box.partition().leader_epoch
        set_topic(box, "min.insync.replicas", "2")

        late = propose(box, [1], leader_epoch=old)

        assert late is Error.FENCED_LEADER_EPOCH
        assert lists(box.partition()) == ([1, 2, 3], [], [])
        assert propose(box, [1]) is Error.NONE
        assert lists(box.partition()) == ([1], [2, 3], [])

    @pytest.mark.parametrize(
        ("configured", "value", "elr"),
        [
            pytest.param(2, "1", True, id="lowered"),
            pytest.param(2, "2", True, id="the same"),
            pytest.param(3, "4", True, id="capped by the replication factor"),
            pytest.param(1, "2", False, id="without ELR"),
        ],
    )
    def test_a_min_isr_that_does_not_rise_keeps_the_leader_epoch(self, configured: int, value: str, elr: bool) -> None:
        """Decision 0010: only a larger effective value, beside ELR, has to be announced."""
        box = a_cluster(HEALTHY, min_insync_replicas=configured, elr=elr)
        before = box.partition()

        set_topic(box, "min.insync.replicas", value)

        assert box.partition() == before

    def test_turning_it_on_gives_leaders_new_epochs(self) -> None:
        """Decision 0010: before, each broker's own file had its say."""
        box = a_cluster(HEALTHY, elr=False)
        before = box.partition()
        on = uf.FeatureUpdateKey(feature="eligible.leader.replicas.version", max_version_level=1, upgrade_type=1)

        answer = box.send(uf.UpdateFeaturesRequest(feature_updates=[on]))

        assert answer.error_code is Error.NONE
        assert box.partition().leader_epoch == before.leader_epoch + 1

    def test_electable_leaders_are_isr_and_elr(self) -> None:
        """ "A new metric of Electable leaders will be added. It reflects the count of (ISR + ELR)." """
        assert partition({"replicas": [1, 2, 3], "isr": [1], "elr": [2, 3]}).electable_leaders == 3

    def test_a_completed_reassignment_leaves_only_final_replicas_in_it(self) -> None:
        """ "The controller will make sure than upon completion, the ELR only contains replicas in the final replica set." """
        reassigning = partition(
            {"replicas": [4, 2, 1, 3], "isr": [2, 4], "elr": [1, 3], "leader": 2, "adding": [4], "removing": [1, 3]}
        )
        rules = Rules(min_insync_replicas=2, elr_enabled=True, last_known_mode=LastKnownMode.LEADER)
        still_short = Rules(min_insync_replicas=3, elr_enabled=True, last_known_mode=LastKnownMode.LEADER)

        for in_force in (rules, still_short):
            change = partition_change(KEY, reassigning, Wish(target_isr=nodes([2, 4])), in_force, lambda _: True)
            after = reassigning if change is None else merged(reassigning, change)
            assert not after.is_reassigning
            assert set(after.elr) <= set(after.replicas) == {2, 4}

    def test_a_reassignment_completes_only_with_min_isr(self) -> None:
        """ "we propose to enforce that the reassignment can only be completed if the ISR size is larger or equal to min
        ISR" """
        box = a_cluster({"replicas": [1, 2], "isr": [1]}, brokers=(3,))
        reassign(box, [3, 2])

        propose(box, [1, 3])
        alone = box.partition()
        propose(box, [1, 3, 2])
        together = box.partition()

        assert alone.is_reassigning
        assert not together.is_reassigning
        assert (together.replicas, sorted(together.isr)) == ((3, 2), [2, 3])

    def test_a_cancel_needs_min_isr_too(self) -> None:
        """ "This min ISR requirement is also enforced when the reassignment is canceled." """
        state_of_it = {"replicas": [3, 1, 2], "isr": [1, 3], "leader": 1, "adding": [3]}
        box = a_cluster(state_of_it)

        refused = reassign(box, None)
        propose(box, [1, 2])
        done = reassign(box, None)

        assert refused is Error.INVALID_REPLICA_ASSIGNMENT
        assert done is Error.NONE
        assert sorted(box.partition().replicas) == [1, 2]

    def test_clients_metadata_does_not_show_it(self) -> None:
        """ "We don't want to embed the ELR info in the Metadata API." """
        shown = dtp.DescribeTopicPartitionsResponsePartition.__struct_fields__

        assert {"eligible_leader_replicas", "last_known_elr"} <= set(shown)
        assert not {"eligible_leader_replicas", "last_known_elr"} & set(md.MetadataResponsePartition.__struct_fields__)


def propose_at_random(box: Box, node: int) -> Any:
    """The leader, if there is one, lets an active replica in or takes one out."""
    now = box.partition()
    if now.leader != NO_NODE:
        isr = [member for member in now.isr if member != node or node == now.leader]
        if node not in now.isr and box.image.is_active(NodeId(node)):
            isr.append(NodeId(node))
        propose(box, isr)
    return box.partition()


class TestLastKnown:
    """ "We also record the last-known ELR members." """

    def test_who_leaves_the_elr_by_an_unclean_shutdown_is_remembered(self) -> None:
        """ "when an ELR member has an unclean shutdown, it will be removed from ELR and added to the LastKnownELR" """
        lost = {"replicas": [1, 2, 3], "isr": [], "elr": [2, 3], "leader": -1}
        box = a_cluster(lost, fenced=(1, 2, 3), unclean_recovery_manager=True)

        register(box, 2, clean=False)

        assert lists(box.partition())[1:] == ([3], [2])

    def test_it_is_cleaned_at_min_isr(self) -> None:
        """ "The LastKnownELR will be cleaned when ISR reaches the min ISR." """
        box = a_cluster({"replicas": [1, 2, 3], "isr": [1], "last_known": [2, 3]}, unclean_recovery_manager=True)

        propose(box, [1, 2])

        assert lists(box.partition()) == ([1, 2], [], [])

    def test_it_is_in_the_metadata_log(self) -> None:
        """ "LastKnownELR is stored in the metadata log." """
        change = r.PartitionChangeRecord(
            partition_id=0, topic_id=TOPIC_ID, eligible_leader_replicas=[1], last_known_elr=[2, 3]
        )
        created = r.partition_record(TOPIC_ID, 0, partition({"replicas": [1, 2], "isr": [], "last_known": [2]}))

        for record in (change, created):
            assert decode_metadata_record(encode_metadata_record(record)) == record

    def test_the_last_leader_is_recorded_when_it_is_fenced(self) -> None:
        """ "The last known leader will be tracked."; "The controller will record the last ISR member(the leader) when it is
        fenced." """
        box = a_cluster({"replicas": [1, 2, 3], "isr": [1], "elr": [2]}, fenced=(2, 3))

        assert lists(fence(box, 1)) == ([], [1, 2], [1])

    def test_the_last_leader_is_forgotten_with_the_next(self) -> None:
        """ "It will be cleaned when a new leader is elected." """
        lost = {"replicas": [1, 2, 3], "isr": [], "elr": [2], "last_known": [1], "leader": -1}
        box = a_cluster(lost, fenced=(1, 2, 3))

        after = unfence(box, 2)

        assert (after.leader, after.last_known_elr) == (2, ())


class TestUncleanShutdown:
    """The section "Detection of an unclean shutdown"."""

    @pytest.mark.parametrize("epoch", [pytest.param(77, id="registered"), pytest.param(-1, id="never registered")])
    def test_the_file_names_the_broker_epoch(self, epoch: int) -> None:
        """ "During the shutdown, write the current broker epoch in the CleanShutdownFile."; "if the broker shuts down before
        it receives the broker epoch, it will write -1"; "It will be a JSON file." """
        disk = SimulatedDisk(Random(0))
        disk.make_directory("d")

        shutdown(disk, [LogDirectory("d", {}, {})], BrokerEpoch(epoch))

        assert disk.read_file(f"d/{CLEAN_SHUTDOWN_FILE}") == b'{"version":0,"brokerEpoch":%d}' % epoch
        assert startup(disk, ["d"]).previous_broker_epoch == epoch

    def test_the_next_incarnation_registers_with_it(self) -> None:
        """ "During the start, the broker will try to read the broker epoch from the CleanShutdownFile. Then put this broker
        epoch in the broker registration request." """
        lifecycle = Lifecycle(
            identity=an_identity(incarnation=5),
            previous_broker_epoch=BrokerEpoch(77),
            heartbeat_interval_ms=2000,
            registration_timeout_ms=60_000,
            shutdown_timeout_ms=30_000,
            retry_ms=200,
            now_ms=0,
        )

        assert lifecycle.on_tick(0) == [Register(incarnation=UUID(int=5), previous_broker_epoch=BrokerEpoch(77))]
        assert set(br.BrokerRegistrationRequest.__struct_fields__) >= {"previous_broker_epoch"}

    @pytest.mark.parametrize("clean", [True, False])
    def test_an_equal_epoch_is_a_clean_shutdown(self, clean: bool) -> None:
        """ "The controller will verify the broker epoch in the request with its registration record. If it is the same, it
        is a clean shutdown." """
        box = a_cluster({"replicas": [1, 2, 3], "isr": [], "elr": [1, 2], "leader": -1}, fenced=(1, 2, 3))

        register(box, 1, clean=clean)

        assert (1 in box.partition().elr) is clean
        answer = [effect for effect in box.effects if isinstance(effect, Emit) and effect.event == "registered"]
        assert [one.fields["previous_broker_epoch"] for one in answer] == [101 if clean else -1]

    def test_the_file_goes_before_a_log_is_opened(self) -> None:
        """ "the CleanShutdownFile is removed after the log manager is initialized": D16, before: a crash while loading is
        no clean shutdown"""
        disk = SimulatedDisk(Random(0))
        disk.make_directory("d")
        shutdown(disk, [LogDirectory("d", {}, {})], BrokerEpoch(77))

        first = startup(disk, ["d"])
        disk.power_fail()
        disk.power_on()
        second = startup(disk, ["d"])

        assert (first.previous_broker_epoch, second.previous_broker_epoch) == (77, -1)

    def test_before_the_metadata_version_all_are_unclean(self) -> None:
        """ "It will be guarded by a new metadata version. Before that, the controller will treat all the registrations with
        unclean shutdowns." """
        outcomes = []
        for version in (22, 23):
            box = a_cluster(HEALTHY, elr=False, metadata_version=version)
            broker = box.image.brokers[NodeId(2)]
            outcomes.append(how_it_ended(box.controller.policy, broker, broker.epoch))

        assert outcomes == [Shutdown.UNCLEAN, Shutdown.CLEAN]


DECISIONS = [
    pytest.param([2], [], [], (1, 2), None, Action.ELECT, (2,), id="other ISR members: choose one"),
    pytest.param([], [2, 3], [], (1, 3), None, Action.ELECT, (3,), id="unfenced ELR members: choose one"),
    pytest.param([], [2], [], (1,), "Aggressive", Action.RECOVER, (), id="fenced ELR, Aggressive: recovery"),
    pytest.param([], [2], [], (1,), "Balanced", Action.WAIT, (2,), id="fenced ELR, Balanced: wait for them"),
    pytest.param([], [2], [], (1,), "None", Action.WAIT, (2,), id="fenced ELR, None: wait for them"),
    pytest.param([], [], [2, 3], (1,), "Aggressive", Action.RECOVER, (), id="no ELR, Aggressive: recovery"),
    pytest.param([], [], [2, 3], (2, 3), "Balanced", Action.RECOVER, (), id="no ELR, Balanced, all there: recovery"),
    pytest.param([], [], [2, 3], (1, 2), "Balanced", Action.WAIT, (3,), id="no ELR, Balanced: wait for all"),
    pytest.param([], [], [2, 3], (1, 2, 3), "None", Action.OPERATOR, (), id="no ELR, None: wait for the operator"),
]


class TestUncleanRecovery:
    """The section "Unclean recovery"."""

    @pytest.mark.parametrize(("isr", "elr", "last_known", "alive", "strategy", "action", "who"), DECISIONS)
    def test_the_decision_is_made_in_this_order(
        self,
        isr: list[int],
        elr: list[int],
        last_known: list[int],
        alive: tuple[int, ...],
        strategy: str | None,
        action: Action,
        who: tuple[int, ...],
    ) -> None:
        """ "the leader election decision will be made in the following order when the ISR and ELR meet the requirements" """
        lost = partition({"replicas": [1, 2, 3], "isr": isr, "elr": elr, "last_known": last_known, "leader": -1})
        strategies = [Strategy(strategy)] if strategy else list(Strategy)

        for each in strategies:
            assert decide(lost, each, lambda node: node in alive) == (action, who)

    @pytest.mark.parametrize(
        ("logs", "winner"),
        [
            pytest.param({1: (3, 90), 2: (4, 10), 3: (2, 500)}, 2, id="highest leader epoch"),
            pytest.param({1: (4, 90), 2: (4, 91), 3: (2, 500)}, 2, id="plus the longest log"),
            pytest.param({1: (4, 90), 2: (4, 90), 3: (4, 90)}, 1, id="equal: the first replica [C]"),
        ],
    )
    def test_the_longest_log_of_the_highest_epoch_wins(self, logs: dict[int, tuple[int, int]], winner: int) -> None:
        """ "The one with the highest leader epoch plus the longest log end offset will be the new leader." """
        search = a_search(Strategy.BALANCED, last_known=[1, 2, 3])

        for node, (last, end) in logs.items():
            answer(search, node, last=last, end=end)

        assert search.winner(lambda _: True, 0) == winner

    @pytest.mark.parametrize(
        "wrong",
        [
            pytest.param({"broker_epoch": 99}, id="broker epoch: rebooted after its response"),
            pytest.param({"current": 3}, id="leader epoch in its metadata: stale response"),
            pytest.param({"error": Error.KAFKA_STORAGE_ERROR}, id="error"),
        ],
    )
    def test_answers_are_verified(self, wrong: dict[str, Any]) -> None:
        """ "Replica's broker epoch. This can avoid electing a broker that has rebooted after it made the response. The
        current partition leader epoch in the replica's metadata cache. This is to fence stale GetReplicaLogInfo
        responses." """
        search = a_search(Strategy.AGGRESSIVE)

        taken = answer(search, 1, **wrong)

        assert not taken
        assert search.winner(lambda _: True, 10**9) == NO_NODE
        assert 1 in search.to_ask(lambda _: True, 10**9)

    def test_balanced_ends_when_all_last_known_have_replied(self) -> None:
        """ "In Balance mode, all the LastKnownELR members have replied, plus the replicas replied within the timeout." """
        search = a_search(Strategy.BALANCED, last_known=[1, 2])
        for node in (1, 2, 3):
            search.asked(NodeId(node), 0)
        answer(search, 3, end=999)
        late = search.winner(lambda _: True, 10**9)
        answer(search, 1, end=5)
        answer(search, 2, end=7)

        assert late == NO_NODE
        assert search.winner(lambda _: True, 10**9) == 3

    def test_balanced_starts_only_with_all_last_known_unfenced(self) -> None:
        """ "Due to this requirement, the controller will only start the recovery if the LastKnownELR members are all
        unfenced." """
        lost = {"replicas": [1, 2, 3], "isr": [], "last_known": [1, 2], "leader": -1}
        box = a_cluster(lost, fenced=(2,), unclean_recovery_manager=True)
        before = [effect for effect in box.effects if isinstance(effect, AskLogInfo)]

        unfence(box, 2)

        assert before == []
        assert [int(effect.broker_id) for effect in box.effects if isinstance(effect, AskLogInfo)] == [1, 2, 3]

    def test_aggressive_takes_whoever_replied_in_time_or_first_after_it(self) -> None:
        """ "In Aggressive mode, any replicas replied within a fixed amount of time OR the first response received after the
        timeout." """
        in_time, too_late = a_search(Strategy.AGGRESSIVE), a_search(Strategy.AGGRESSIVE)
        answer(in_time, 2, end=5)
        answer(in_time, 3, end=7)
        early = in_time.winner(lambda _: True, 29_999)
        nobody = too_late.winner(lambda _: True, 30_000)
        answer(too_late, 2, end=1)

        assert (early, nobody) == (NO_NODE, NO_NODE)
        assert in_time.winner(lambda _: True, 30_000) == 3
        assert too_late.winner(lambda _: True, 30_001) == 2

    def test_a_new_registration_voids_the_answer(self) -> None:
        """ "If the controller receives the new broker registration, the controller can reject the response because the
        broker epoch in the request mismatches with the broker registration." """
        lost = {"replicas": [1, 2, 3], "isr": [], "last_known": [1, 2, 3], "leader": -1}
        box = a_cluster(lost, unclean_recovery_manager=True)
        register(box, 1, clean=False)
        unfence(box, 1)

        probes = reply(box, 1, epoch=101)

        assert "log_info_refused" in probes
        assert box.partition().leader == NO_NODE

    def test_a_new_controller_starts_anew(self) -> None:
        """ "The controller does not store anything in the metadata log, every controller failover will result in a new
        unclean recovery." """
        lost = {"replicas": [1, 2, 3], "isr": [], "last_known": [1, 2, 3], "leader": -1}
        box = a_cluster(lost, unclean_recovery_manager=True)
        reply(box, 1, epoch=101)
        written = list(box.records)

        box.controller.deactivate()
        box.activate()

        assert written == []
        assert [int(effect.broker_id) for effect in box.effects if isinstance(effect, AskLogInfo)] == [1, 2, 3]

    @pytest.mark.parametrize(
        ("held", "recovery"),
        [
            pytest.param({"isr": [2], "elr": [1]}, 0, id="ISR member: clean"),
            pytest.param({"isr": [], "elr": [2, 3], "leader": -1}, 0, id="ELR member of an empty ISR: clean"),
            pytest.param({"isr": [1], "elr": [3]}, 1, id="another replica: unclean"),
        ],
    )
    def test_an_operator_can_select_a_leader(self, held: dict[str, Any], recovery: int) -> None:
        """ "The kafka-leader-election.sh tool will be upgraded to allow manual leader election. It can directly select a
        leader." (D9: our own request)"""
        box = a_cluster({"replicas": [1, 2, 3], "leader": held["isr"][0] if held["isr"] else -1, **held})
        error = elect(box, edl.ElectionType.DESIGNATED, leader=2)

        after = box.partition()
        if held["isr"] == [2]:
            assert error is Error.ELECTION_NOT_NEEDED
        else:
            assert error is Error.NONE
        assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), recovery)

    @pytest.mark.parametrize("mode", [edl.ElectionType.LONGEST_LOG_AGGRESSIVE, edl.ElectionType.LONGEST_LOG_BALANCED])
    def test_an_operator_can_have_the_longest_log_found(self, mode: edl.ElectionType) -> None:
        """ "It can trigger an unclean recovery for the replica with the longest log in either Aggressive or Balance mode."
        (also without the manager)"""
        lost = {"replicas": [1, 2, 3], "isr": [], "last_known": [1], "leader": -1, "leader_epoch": 4}
        box = a_cluster(lost, fenced=(1,))

        error = elect(box, mode)

        assert error is Error.NONE
        asked = [int(effect.broker_id) for effect in box.effects if isinstance(effect, AskLogInfo)]
        assert asked == [2, 3]

    def test_the_old_option_is_mapped(self) -> None:
        """ "unclean.leader.election.enable.false -> unclean.recovery.strategy.Balanced"; "true ->
        unclean.recovery.strategy.Aggressive" """
        assert strategy_of_old_option(enabled=False) is Strategy.BALANCED
        assert strategy_of_old_option(enabled=True) is Strategy.AGGRESSIVE


def a_search(strategy: Strategy, last_known: list[int] | None = None) -> Recovery:
    """A recovery of replicas 1, 2, 3 in leader epoch 4 that began at 0 and may take 30 s."""
    lost = partition(
        {"replicas": [1, 2, 3], "isr": [], "last_known": last_known or [], "leader": -1, "leader_epoch": 4}
    )
    return Recovery(KEY, lost, strategy, now_ms=0, timeout_ms=30_000)


def answer(search: Recovery, node: int, **said: Any) -> bool:
    registered = {NodeId(each): BrokerEpoch(100 + each) for each in (1, 2, 3)}
    return search.on_answer(NodeId(node), log_info(**({"broker_epoch": 100 + node} | said)), registered, 0)


def reply(box: Box, node: int, *, epoch: int, end: int = 10) -> list[str]:
    """Let a broker answer the controller's question; return the probes."""
    info = gl.PartitionLogInfo(
        partition=0,
        current_leader_epoch=box.partition().leader_epoch,
        last_written_leader_epoch=0,
        log_end_offset=end,
    )
    request = gl.GetReplicaLogInfoRequest(
        broker_id=node,
        topic_partitions=[gl.GetReplicaLogInfoRequestTopicPartitions(topic_id=TOPIC_ID, partitions=[0])],
    )
    response = gl.GetReplicaLogInfoResponse(
        broker_epoch=epoch,
        topic_partition_log_info_list=[gl.TopicPartitionLogInfo(topic_id=TOPIC_ID, partition_log_info=[info])],
    )
    box.log_info(LogInfoAnswered(broker_id=NodeId(node), request=request, response=response))
    return [effect.name for effect in box.effects if isinstance(effect, Probe)]


def elect(box: Box, mode: edl.ElectionType, *, leader: int = -1) -> Error:
    wanted = edl.DesignatedPartition(partition=0, designated_leader=leader)
    body = edl.ElectDesignatedLeadersRequest(
        election_type=mode, topics=[edl.DesignatedTopic(topic=TOPIC, partitions=[wanted])]
    )
    return Error(box.send(body).replica_election_results[0].partition_results[0].error_code)


class TestPublicInterfaces:
    """The section "Public Interfaces"."""

    def test_registrations_carry_the_previous_epoch_from_version_3_on(self) -> None:
        """ "BrokerRegistration API (coming with ELR)" """
        body = br.BrokerRegistrationRequest(broker_id=1, cluster_id="C", previous_broker_epoch=7)

        carried = {
            version: decode_request(encode_request(Api.BROKER_REGISTRATION, version, 1, "", body)[4:]).body
            for version in (2, 3)
        }

        assert {version: read.previous_broker_epoch for version, read in carried.items()} == {2: -1, 3: 7}

    def test_a_caller_lists_topics_or_gets_all(self) -> None:
        """ "The caller can list the topics interested or keep the field empty if requests all of the topics." """
        image = two_topics().image

        assert names_and_indexes(image, ["b"]) == [("b", [0, 1])]
        assert names_and_indexes(image, []) == [("a", [0, 1]), ("b", [0, 1])]

    def test_pages_end_at_the_limit_and_go_on_at_the_cursor(self) -> None:
        """ "The caller can specify the maximum number of partitions to be included in the response."; "If there are more
        partitions than the limit, these partitions and their topics will not be sent back. In this case, the Cursor field
        will be populated. The caller can include this cursor in the next request." """
        image = two_topics().image

        first = page(image, dtp.DescribeTopicPartitionsRequest(response_partition_limit=3), 2000, lambda _: True)
        assert first.next_cursor is not None
        cursor = dtp.DescribeTopicPartitionsRequestCursor(
            topic_name=first.next_cursor.topic_name, partition_index=first.next_cursor.partition_index
        )
        second = page(image, dtp.DescribeTopicPartitionsRequest(cursor=cursor), 2000, lambda _: True)

        assert shown(first) == [("a", [0, 1]), ("b", [0])]
        assert shown(second) == [("b", [1])]
        assert second.next_cursor is None

    def test_the_server_has_a_limit_of_its_own(self) -> None:
        """ "There is also a server-side config to control the maximum number of partitions to return.
        max.request.partition.size.limit" """
        first = page(two_topics().image, dtp.DescribeTopicPartitionsRequest(), 1, lambda _: True)

        assert shown(first) == [("a", [0])]
        assert NetworkConfig(listeners="").request_partition_count_max == 2000

    def test_what_a_caller_may_not_describe_is_not_described(self) -> None:
        """ "ACL: Describe Topic" (D17: one hook)"""
        request = dtp.DescribeTopicPartitionsRequest(topics=[dtp.TopicRequest(name=name) for name in "ab"])

        answer = page(two_topics().image, request, 2000, lambda name: name == "a")

        assert [(topic.name, topic.error_code) for topic in answer.topics] == [
            ("a", Error.NONE),
            ("b", Error.TOPIC_AUTHORIZATION_FAILED),
        ]

    def test_no_topic_ids_are_asked_for(self) -> None:
        """ "It is an admin client facing API, so there is no topic id supported." """
        assert dtp.TopicRequest.__struct_fields__ == ("name",)

    def test_of_more_than_1000_partitions_only_the_first_are_served(self) -> None:
        """ "Limit: 1000 partitions per request. If more than 1000 partitions are included, only the first 1000 will be
        served. Others will be returned with REQUEST_LIMIT_REACHED." """
        box = Box().features().broker(1)
        box.topic(*[partition({"replicas": [1]})] * 1002).activate()
        wanted = [edl.DesignatedPartition(partition=index, designated_leader=1) for index in range(1002)]

        answered = box.send(
            edl.ElectDesignatedLeadersRequest(topics=[edl.DesignatedTopic(topic=TOPIC, partitions=wanted)])
        )

        errors = [one.error_code for one in answered.replica_election_results[0].partition_results]
        assert errors == [Error.ELECTION_NOT_NEEDED] * 1000 + [Error.REQUEST_LIMIT_REACHED] * 2

    def test_configs_have_these_defaults(self) -> None:
        """ "Balanced is the default value."; "False is the default value."; "5 min is the default value." """
        defaults = ControllerConfig()

        assert defaults.unclean_recovery_strategy == "Balanced"
        assert defaults.unclean_recovery_manager_enabled is False
        assert defaults.unclean_recovery_timeout_ms == 5 * 60 * 1000


def two_topics() -> Box:
    box = Box().features().broker(1)
    for number, name in enumerate("ba"):
        box.topic(*[partition({"replicas": [1]})] * 2, name=name, topic_id=UUID(int=number + 1))
    return box


def shown(answer: dtp.DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [each.partition_index for each in topic.partitions]) for topic in answer.topics]


def names_and_indexes(image: Any, names: list[str]) -> list[tuple[str | None, list[int]]]:
    request = dtp.DescribeTopicPartitionsRequest(topics=[dtp.TopicRequest(name=name) for name in names])
    return shown(page(image, request, 2000, lambda _: True))


def update_elr(box: Box, level: int) -> Error:
    update = uf.FeatureUpdateKey(
        feature="eligible.leader.replicas.version", max_version_level=level, upgrade_type=1 if level else 2
    )
    return Error(box.send(uf.UpdateFeaturesRequest(feature_updates=[update])).error_code)


class TestCompatibility:
    """The section "Compatibility, Deprecation, and Migration Plan"."""

    def test_old_records_have_an_empty_elr_until_the_next_change(self) -> None:
        """ "when it loads the partition states, it will populate the ELR as empty if the PartitionChangeRecord uses an old
        version. In the next partition update, the controller will record the current ELR." """
        box = a_cluster({"replicas": [1, 2, 3], "isr": [1, 2]})
        old = encode_metadata_record(r.partition_record(TOPIC_ID, 0, box.partition()), 1)
        loaded = decode_metadata_record(old)
        assert isinstance(loaded, r.PartitionRecord)
        assert not loaded.eligible_leader_replicas

        fence(box, 2)

        (change,) = [record for record in box.records if isinstance(record, r.PartitionChangeRecord)]
        assert change.eligible_leader_replicas == [2]

    def test_a_downgrade_ignores_and_then_removes_it(self) -> None:
        """ "Once the eligible.leader.replicas.version is downgraded, all the ELR related fields will be removed on the next
        partition change. The controller will also ignore the ELR fields." """
        held = {"replicas": [1, 2, 3], "isr": [1], "elr": [2, 3]}
        ignoring, changing = a_cluster(held), a_cluster(held)

        for box in (ignoring, changing):
            assert update_elr(box, 0) is Error.NONE
            assert lists(box.partition()) == ([1], [2, 3], [])
        fence(ignoring, 1)
        propose(changing, [1, 2])

        assert ignoring.partition().leader == NO_NODE  # an unfenced ELR member is not elected any more
        assert lists(changing.partition()) == ([1, 2], [], [])

    def test_it_needs_its_metadata_version(self) -> None:
        """ "It will be guarded by a new metadata version and the eligible.leader.replicas.version." """
        box = a_cluster(HEALTHY, elr=False, metadata_version=22)

        assert update_elr(box, 1) is Error.INVALID_UPDATE_VERSION


WITHOUT_MANAGER = [
    pytest.param([2, 3], [], [], (2, 3), False, 2, 0, id="other ISR members: one of them"),
    pytest.param([], [2, 3], [], (1, 3), False, 3, 0, id="unfenced ELR members: one of them"),
    pytest.param([], [2], [], (1,), False, -1, 0, id="fenced ELR members, disabled: the first to be unfenced"),
    pytest.param([], [2], [], (1, 3), True, 1, 1, id="fenced ELR members, enabled: unclean (D4: the first)"),
    pytest.param([], [], [2], (1, 3), True, 1, 1, id="no ELR members, enabled: unclean"),
    pytest.param([], [], [2], (2, 3), False, 2, 1, id="no ELR members, disabled: the last known leader (D12)"),
    pytest.param([], [], [2], (1, 3), False, -1, 0, id="no ELR members, disabled: nobody else"),
]


class TestDeliveryPlan:
    """The section "Delivery plan": "When the Unclean Recover has not shipped or it is disabled" """

    @pytest.mark.parametrize(("isr", "elr", "last_known", "alive", "enabled", "leader", "recovery"), WITHOUT_MANAGER)
    def test_without_the_manager_leaders_are_elected_in_this_order(
        self,
        isr: list[int],
        elr: list[int],
        last_known: list[int],
        alive: tuple[int, ...],
        enabled: bool,
        leader: int,
        recovery: int,
    ) -> None:
        """ "If there are other ISR members, elect one of them." and so on"""
        first, *others = alive
        fenced = tuple(node for node in (1, 2, 3) if node not in others)
        lost = {"replicas": [1, 2, 3], "isr": isr, "elr": elr, "last_known": last_known, "leader": -1}
        box = a_cluster(lost, fenced=fenced, unclean_leader_election=enabled)
        if box.partition().leader != NO_NODE:
            pytest.fail("nothing is decided before somebody is unfenced")

        after = unfence(box, first)

        assert (after.leader, int(after.leader_recovery_state)) == (leader, recovery)
