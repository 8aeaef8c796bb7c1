"""KIP-903 (replicas with stale broker epoch should not be allowed to join the ISR), sentence by sentence.

The stored text is the page's change view, with old and new wording side by side; SPEC D10 takes the final form.
"""

import pytest

from replog.broker.isr import AlterPartitionAnswer, BrokerView, Propose, Refuse
from replog.errors import Error
from replog.types import BrokerEpoch, NodeId
from replog.wire.apis import Api, known_versions
from replog.wire.codec import decode_request, encode_request
from replog.wire.messages import alter_partition as ap
from replog.wire.messages import fetch as fm
from tests.kips.scenes import NOW_MS, a_cluster, a_leader, fetch, propose, register, unfence

REBOOTED = {3: BrokerView(epoch=BrokerEpoch(205), fenced=False, shutting_down=False)}


def proposed(effects: list[object]) -> list[tuple[tuple[int, int], ...]]:
    return [effect.proposal.isr for effect in effects if isinstance(effect, Propose)]


class TestFollower:
    """The section "Follower"."""

    def test_it_sends_its_epoch_in_fetch(self) -> None:
        """ "The follower will send its epoch id (received when registering) in the Fetch request." """
        body = fm.FetchRequest(replica_id=3, replica_state=fm.ReplicaState(replica_id=3, replica_epoch=103))

        read = decode_request(encode_request(Api.FETCH, 15, 1, "", body)[4:]).body

        assert (read.replica_state.replica_id, read.replica_state.replica_epoch) == (3, 103)

    @pytest.mark.parametrize("version", [14, 15])
    def test_the_replica_id_moved_into_the_state(self, version: int) -> None:
        """ "Deprecate this field. It is now in the ReplicaState. Also change the default value to -1." (D10: up to v14 the
        old field, from v15 on the tagged one)"""
        body = fm.FetchRequest(replica_id=3, replica_state=fm.ReplicaState(replica_id=3, replica_epoch=103))

        read = decode_request(encode_request(Api.FETCH, version, 1, "", body)[4:]).body

        assert (read.replica_id, read.replica_state.replica_epoch) == ((3, -1) if version == 14 else (-1, 103))

    def test_a_consumers_fetch_has_the_default_state(self) -> None:
        """ "The ReplicaState is a tagged field and will be the default value if it is from the consumers." """
        as_consumer = encode_request(Api.FETCH, 15, 1, "", fm.FetchRequest())
        state = fm.ReplicaState(replica_id=3, replica_epoch=103)
        as_replica = encode_request(Api.FETCH, 15, 1, "", fm.FetchRequest(replica_state=state))

        read = decode_request(as_consumer[4:]).body

        assert read.replica_state == fm.ReplicaState(replica_id=-1, replica_epoch=-1)
        assert len(as_consumer) < len(as_replica)


class TestLeader:
    """The section "Leader"."""

    def test_it_keeps_track_of_the_followers_epochs(self) -> None:
        """ "The leader will keep track of the follower epochs received through the Fetch request." """
        leader = a_leader()

        fetch(leader, 3, 10, broker_epoch=103)

        assert leader.followers[NodeId(3)].broker_epoch == 103

    def test_its_proposal_names_the_epochs_that_were_fetched_with(self) -> None:
        """ "The leader will include the proposed ISR follower epochs in the AlterPartition request." """
        leader = a_leader()

        effects = fetch(leader, 3, 60)

        assert proposed(effects) == [((1, 101), (2, 102), (3, 103))]

    @pytest.mark.parametrize(
        ("fetched_with", "known"),
        [pytest.param(206, 205, id="newer than its metadata"), pytest.param(103, 205, id="older than its metadata")],
    )
    def test_it_proposes_nobody_whose_epochs_disagree(self, fetched_with: int, known: int) -> None:
        """ "the leader will verify these epochs against the metadata cache. Before the broker epochs from the Fetch request
        and the metadata cache are consistent, the leader will not propose to include the broker in the ISR." """
        brokers = {3: BrokerView(epoch=BrokerEpoch(known), fenced=False, shutting_down=False)}
        leader = a_leader(brokers=brokers)

        effects = fetch(leader, 3, 60, broker_epoch=fetched_with)

        assert proposed(effects) == []

    def test_a_very_late_fetch_of_an_earlier_incarnation_does_not_count(self) -> None:
        """ "if the last fetch request comes super late, the leader already knows the new broker epoch and sends the
        AlterPartition with the new one, then the rebooted broker can still be added to ISR": not so"""
        leader = a_leader(brokers=REBOOTED)

        effects = fetch(leader, 3, 60, broker_epoch=103)

        assert effects == [Refuse(Error.NOT_LEADER_OR_FOLLOWER)]
        assert leader.followers[NodeId(3)].broker_epoch is None

    def test_an_ineligible_replica_takes_it_back_to_the_committed_isr(self) -> None:
        """ "The leader will discard the proposed ISR change and revert to the old committed ISR if the controller returns
        INELIGIBLE_REPLICA for the partition." """
        leader = a_leader()
        (proposal,) = [effect.proposal for effect in fetch(leader, 3, 60) if isinstance(effect, Propose)]

        effects = leader.on_alter_partition_answer(
            proposal, AlterPartitionAnswer(error=Error.INELIGIBLE_REPLICA), NOW_MS
        )

        assert proposed(list(effects)) == []
        assert (leader.pending, leader.maximal_isr, leader.isr) == (None, (1, 2), (1, 2))


class TestController:
    """The section "Controller"."""

    def test_all_epochs_must_match_the_registrations(self) -> None:
        """ "The controller will make sure all the broker epochs in the ISR match with the latest broker epochs before
        persisting this change. If not, it will reject the request with the error code INELIGIBLE_REPLICA." """
        box = a_cluster({"replicas": [1, 2, 3], "isr": [1, 2]})

        stale = propose(box, [1, 2, 3], epochs={3: 99})
        written = list(box.records)
        current = propose(box, [1, 2, 3])

        assert (stale, written) == (Error.INELIGIBLE_REPLICA, [])
        assert current is Error.NONE

    def test_members_that_stay_are_checked_as_well(self) -> None:
        """ "all the broker epochs in the ISR": not only those of newcomers (SPEC 2.7.5)"""
        box = a_cluster({"replicas": [1, 2, 3], "isr": [1, 2, 3]})

        assert propose(box, [1, 2], epochs={2: 99}) is Error.INELIGIBLE_REPLICA

    def test_an_unchecked_epoch_passes(self) -> None:
        """ "It will be -1 if the epoch check is not supported." """
        box = a_cluster({"replicas": [1, 2, 3], "isr": [1, 2]})

        assert propose(box, [1, 2, 3], epochs={2: -1, 3: -1}) is Error.NONE

    def test_a_delayed_proposal_does_not_let_a_rebooted_broker_in(self) -> None:
        """ "the race scenario between the broker reboot and the delayed AlterPartition request" (SPEC 8.3)"""
        box = a_cluster({"replicas": [1, 2, 3], "isr": [1, 2]})
        before = {node: 100 + node for node in (1, 2, 3)}
        register(box, 3, clean=False)
        unfence(box, 3)

        error = propose(box, [1, 2, 3], epochs=before)

        assert error is Error.INELIGIBLE_REPLICA
        assert 3 not in box.partition().isr


class TestPublicInterfaces:
    """The section "Public Interfaces"."""

    def test_alter_partition_has_epochs_from_version_3_on(self) -> None:
        """ "NewIsr [...] versions 0-2"; "NewIsrWithEpochs [...] versions 3+"; "BrokerEpoch [...] default -1" """
        partition = ap.AlterPartitionRequestPartitionData(
            new_isr=[1, 2], new_isr_with_epochs=[ap.BrokerState(broker_id=1, broker_epoch=101)]
        )
        body = ap.AlterPartitionRequest(topics=[ap.AlterPartitionRequestTopicData(partitions=[partition])])

        read = {
            version: decode_request(encode_request(Api.ALTER_PARTITION, version, 1, "", body)[4:]).body
            for version in (2, 3)
        }
        by_version = {version: one.topics[0].partitions[0] for version, one in read.items()}

        assert (by_version[2].new_isr, by_version[2].new_isr_with_epochs) == ([1, 2], [])
        assert (by_version[3].new_isr, by_version[3].new_isr_with_epochs[0].broker_epoch) == ([], 101)
        assert ap.BrokerState(broker_id=1).broker_epoch == -1

    def test_versions_are_negotiated(self) -> None:
        """ "The AlterPartition request will be protected by the ApiVersion bump. The brokers can use the
        controller-supported version accordingly." """
        assert known_versions(Api.ALTER_PARTITION).last == 3
        assert known_versions(Api.FETCH).last >= 15
