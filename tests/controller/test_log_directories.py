"""Replicas and the directories they lie in: assignment, failure, and who may lead then (KIP-858, SPEC 0.4)."""

from uuid import UUID

import msgspec
import pytest

from replog.controller import fencing
from replog.controller.describe import page
from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.state import LOST, UNASSIGNED, LeaderRecoveryState
from replog.types import NO_NODE, BrokerEpoch, NodeId
from replog.wire.messages import alter_partition as ap
from replog.wire.messages import alter_partition_reassignments as apr
from replog.wire.messages import assign_replicas_to_dirs as m
from replog.wire.messages import broker_heartbeat as bh
from replog.wire.messages import create_topics as ct
from replog.wire.messages import describe_topic_partitions as dtp
from replog.wire.messages import update_features as uf
from tests.cases.controllers import Box, log_dir
from tests.cases.partitions import TOPIC_ID, partition

A, B, ELSEWHERE = UUID(int=9001), UUID(int=9002), UUID(int=9099)


def two_disks(**settings: object) -> Box:
    """Broker 1 has directories A and B and leads; the others have one each."""
    box = Box(**({"min_insync_replicas": 2} | settings)).features().broker(1, log_dirs=(A, B)).broker(2).broker(3)
    return box.topic(partition({"replicas": [1, 2, 3]}), partition({"replicas": [1, 2, 3]})).activate()


def assign(box: Box, directory: UUID, *indexes: int, topic_id: UUID = TOPIC_ID, epoch: int = 101) -> list[Error]:
    topic = m.AssignReplicasToDirsRequestTopicData(
        topic_id=topic_id,
        partitions=[m.AssignReplicasToDirsRequestPartitionData(partition_index=index) for index in indexes],
    )
    wanted = m.AssignReplicasToDirsRequestDirectoryData(id_=directory, topics=[topic])
    answer = box.send(m.AssignReplicasToDirsRequest(broker_id=1, broker_epoch=epoch, directories=[wanted]))
    of_partitions = [each.error_code for one in answer.directories for each in one.topics[0].partitions]
    return of_partitions or [answer.error_code]


def beat(box: Box, *offline: UUID, broker_id: int = 1) -> bh.BrokerHeartbeatResponse:
    answer = box.send(
        bh.BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=100 + broker_id,
            current_metadata_offset=box.offset - 1,
            offline_log_dirs=list(offline),
        )
    )
    assert isinstance(answer, bh.BrokerHeartbeatResponse)
    return answer


def test_a_broker_says_where_its_replicas_lie_and_the_partition_remembers() -> None:
    box = two_disks()

    assert assign(box, A, 0) == [Error.NONE]
    assert assign(box, B, 1) == [Error.NONE]
    again = assign(box, B, 1)

    assert box.partition(0).directories == (A, UNASSIGNED, UNASSIGNED)
    assert box.partition(1).directories == (B, UNASSIGNED, UNASSIGNED)
    assert (again, box.records) == ([Error.NONE], [])
    assert box.partition(0).leader_epoch == partition({"replicas": [1, 2, 3]}).leader_epoch


def test_leaders_move_off_a_failed_directory_and_only_off_that() -> None:
    box = two_disks()
    assign(box, A, 0)
    assign(box, B, 1)

    answer = beat(box, A)

    assert not answer.is_fenced
    assert (box.partition(0).leader, box.partition(0).isr) == (2, (2, 3))
    assert (box.partition(1).leader, box.partition(1).isr) == (1, (1, 2, 3))
    assert box.image.brokers[NodeId(1)].log_dirs == (B,)


def test_every_heartbeat_names_a_failed_directory_but_it_fails_once() -> None:
    box = two_disks()
    assign(box, A, 0)

    beat(box, A)
    beat(box, A, ELSEWHERE)

    assert box.records == []


def test_whose_directory_failed_neither_leads_nor_joins_an_isr() -> None:
    box = two_disks()
    assign(box, A, 0)
    beat(box, A)
    leaderless = box.partition(0)

    proposal = ap.AlterPartitionRequestPartitionData(
        partition_index=0,
        leader_epoch=leaderless.leader_epoch,
        partition_epoch=leaderless.partition_epoch,
        new_isr_with_epochs=[ap.BrokerState(broker_id=node, broker_epoch=100 + node) for node in (2, 3, 1)],
    )
    topic = ap.AlterPartitionRequestTopicData(topic_id=TOPIC_ID, partitions=[proposal])
    answer = box.send(ap.AlterPartitionRequest(broker_id=2, broker_epoch=102, topics=[topic]))

    assert answer.topics[0].partitions[0].error_code is Error.INELIGIBLE_REPLICA


def test_a_last_copy_in_a_failed_directory_waits_in_the_elr_and_nobody_leads() -> None:
    box = Box(min_insync_replicas=1).features().broker(1, log_dirs=(A, B)).broker(2)
    box.topic(partition({"replicas": [1, 2], "isr": [1]})).activate()
    assign(box, A, 0)

    beat(box, A)
    found = box.partition(0)
    box.tick(400_000)

    assert (found.leader, found.isr, found.elr) == (NO_NODE, (), (1,))
    assert box.partition(0).leader == NO_NODE


def test_a_replica_made_anew_elsewhere_is_no_longer_eligible_and_leads_as_the_last_known_leader() -> None:
    """Its ELR membership was the lost copy's: the new one begins empty, so whoever leads with it has to recover."""
    box = Box(min_insync_replicas=1).features().broker(1, log_dirs=(A, B)).broker(2)
    box.topic(partition({"replicas": [1, 2], "isr": [1]})).activate()
    assign(box, A, 0)
    beat(box, A)

    assert assign(box, B, 0) == [Error.NONE]

    found = box.partition(0)
    assert (found.leader, found.isr, found.elr, found.last_known_elr) == (1, (1,), (), ())
    assert found.leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert found.directory_of(NodeId(1)) == B


def test_a_replica_made_anew_elsewhere_does_not_lead_before_those_who_are_eligible() -> None:
    box = Box(min_insync_replicas=2).features().broker(1, log_dirs=(A, B)).broker(2, fenced=True)
    box.topic(partition({"replicas": [1, 2], "isr": [1], "elr": [2]})).activate()
    assign(box, A, 0)
    beat(box, A)

    assert assign(box, B, 0) == [Error.NONE]

    found = box.partition(0)
    assert (found.leader, found.isr, found.elr) == (NO_NODE, (), (2,))


def test_with_the_recovery_manager_a_replica_made_anew_elsewhere_leads_only_if_the_manager_says_so() -> None:
    box = Box(min_insync_replicas=1, unclean_recovery_manager=True).features().broker(1, log_dirs=(A, B)).broker(2)
    box.topic(partition({"replicas": [1, 2], "isr": [1]})).activate()
    assign(box, A, 0)
    beat(box, A)

    assert assign(box, B, 0) == [Error.NONE]

    assert (box.partition(0).leader, box.partition(0).isr) == (NO_NODE, ())


@pytest.mark.parametrize("directory", [LOST, ELSEWHERE], ids=["lost", "not the broker's"])
def test_a_replica_that_never_was_assigned_leaves_by_naming_a_lost_directory(directory: UUID) -> None:
    box = two_disks()

    assert assign(box, directory, 0) == [Error.NONE]

    assert (box.partition(0).leader, box.partition(0).isr) == (2, (2, 3))
    assert box.partition(0).directory_of(NodeId(1)) == directory


def test_a_broker_without_any_directory_is_fenced() -> None:
    box = two_disks()
    assign(box, A, 0, 1)

    answer = beat(box, A, B)
    again = beat(box, A, B)

    assert (answer.is_fenced, again.is_fenced) == (True, True)
    assert box.records == []
    assert [box.partition(index).leader for index in (0, 1)] == [2, 2]


def test_a_failed_directory_shows_as_an_offline_replica() -> None:
    box = two_disks()
    assign(box, A, 0)
    beat(box, A)

    answer = page(box.image, dtp.DescribeTopicPartitionsRequest(), 10, lambda _: True)

    assert [each.offline_replicas for each in answer.topics[0].partitions] == [[1], []]


def test_directories_follow_their_replicas_through_a_reassignment() -> None:
    box = two_disks()
    assign(box, A, 0)

    box.write([r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[3, 1], isr=[3, 1], leader=3)])

    assert box.partition(0).directories == (UNASSIGNED, A)


def test_an_assignment_is_refused_piece_by_piece() -> None:
    box = two_disks()

    assert assign(box, A, 0, 5) == [Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert assign(box, A, 0, topic_id=UUID(int=4711)) == [Error.UNKNOWN_TOPIC_ID]
    assert assign(box, A, 0, epoch=100) == [Error.STALE_BROKER_EPOCH]


def test_who_holds_no_replica_assigns_none() -> None:
    box = Box().features().broker(1, log_dirs=(A, B)).broker(2).topic(partition({"replicas": [2]})).activate()

    assert assign(box, A, 0) == [Error.NOT_LEADER_OR_FOLLOWER]


def test_directories_are_forgotten_with_the_metadata_version_that_brought_them() -> None:
    box = two_disks()
    assign(box, A, 0)
    lowered = {"eligible.leader.replicas.version": 0, "metadata.version": 16}
    updates = [uf.FeatureUpdateKey(feature=n, max_version_level=v, upgrade_type=3) for n, v in lowered.items()]

    answer = box.send(uf.UpdateFeaturesRequest(feature_updates=updates))

    assert answer.error_code is Error.NONE
    assert box.partition(0).directories == ()


def test_directories_need_their_metadata_version() -> None:
    box = Box().features(elr=False, metadata_version=16).broker(1, log_dirs=(A, B))
    box.topic(partition({"replicas": [1]})).activate()

    assert assign(box, A, 0) == [Error.UNSUPPORTED_VERSION]


# --- brokers with one directory: what is known beforehand --------------------------------------------------


def one_disk_each(*, elr: bool = True, metadata_version: int = 25, **settings: object) -> Box:
    box = Box(min_insync_replicas=1, **settings).features(elr=elr, metadata_version=metadata_version)
    return box.broker(1, log_dirs=(A, B)).broker(2).broker(3).activate()


def made(box: Box, *replicas: int) -> tuple[UUID, ...]:
    assignment = ct.CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
    wanted = ct.CreatableTopic(name="new", num_partitions=-1, replication_factor=-1, assignments=[assignment])
    assert box.send(ct.CreateTopicsRequest(topics=[wanted])).topics[0].error_code is Error.NONE
    return box.image.topics_by_name["new"].partitions[0].directories


def test_where_a_new_replica_lies_is_known_beforehand_if_there_is_one_directory() -> None:
    assert made(one_disk_each(), 1, 2, 3) == (UNASSIGNED, log_dir(2), log_dir(3))


def test_below_the_metadata_version_of_directories_nothing_is_said() -> None:
    assert made(one_disk_each(elr=False, metadata_version=16), 2, 3) == ()


def test_a_replica_that_is_added_lies_in_its_brokers_one_directory() -> None:
    box = one_disk_each()
    made(box, 2)

    partition = apr.ReassignablePartition(partition_index=0, replicas=[3, 1])
    topic = apr.ReassignableTopic(name="new", partitions=[partition])
    box.send(apr.AlterPartitionReassignmentsRequest(topics=[topic]))

    found = box.image.topics_by_name["new"].partitions[0]
    assert [found.directory_of(NodeId(node)) for node in (3, 1, 2)] == [log_dir(3), UNASSIGNED, log_dir(2)]


@pytest.mark.parametrize(
    ("elr", "unclean", "leader"),
    [(True, False, 2), (True, True, 2), (False, False, NO_NODE), (False, True, 2)],
    ids=["last known leader", "anybody", "last in the ISR", "anybody, without ELR"],
)
def test_a_copy_made_anew_in_the_only_directory_leads_as_last_known_leader_or_where_anybody_may(
    elr: bool, unclean: bool, leader: int
) -> None:
    """Its broker was wiped: until it has said where the empty copy lies it is fit for nothing."""
    box = one_disk_each(elr=elr, unclean_leader_election=unclean)
    made(box, 2)
    policy = box.controller.policy
    box.write(fencing.fence(policy, box.image.brokers[NodeId(2)]))
    wiped = msgspec.structs.replace(box.image.brokers[NodeId(2)], epoch=BrokerEpoch(500), log_dirs=(ELSEWHERE,))
    box.write([r.registration_record(wiped)])
    box.write(fencing.unfence(policy, wiped))
    before = box.image.topics_by_name["new"].partitions[0].leader

    wanted = m.AssignReplicasToDirsRequestDirectoryData(
        id_=ELSEWHERE,
        topics=[
            m.AssignReplicasToDirsRequestTopicData(
                topic_id=box.image.topics_by_name["new"].topic_id,
                partitions=[m.AssignReplicasToDirsRequestPartitionData(partition_index=0)],
            )
        ],
    )
    box.send(m.AssignReplicasToDirsRequest(broker_id=2, broker_epoch=500, directories=[wanted]))

    found = box.image.topics_by_name["new"].partitions[0]
    assert (before, found.leader, found.directories) == (NO_NODE, leader, (ELSEWHERE,))
