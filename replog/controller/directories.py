"""Log directories of replicas: which copy lies where, and what goes when a directory fails (KIP-858).

Where a new replica of a broker with one directory lies is known beforehand. A broker with several reports where each lies
(AssignReplicasToDirs) and, with its heartbeats, which directories have failed; so does one whose only directory is another
than before. A replica in a directory that its broker no longer has may neither lead nor be in an ISR. One of which nobody
has said where it lies counts as online.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from replog.controller.election import Election
from replog.controller.fencing import leaders_for, leaving_partitions
from replog.controller.policy import Policy
from replog.controller.turn import Turn
from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.image import Image
from replog.metadata.state import Broker
from replog.types import NO_NODE, ZERO_UUID, NodeId, TopicIdPartition
from replog.wire.messages import assign_replicas_to_dirs as m


def fail(policy: Policy, broker: Broker, offline: Iterable[UUID]) -> list[r.MetadataRecord]:
    """Return the records that take a broker's replicas in failed directories out of their ISRs.

    Directories that are not the broker's (any more) are no news: every heartbeat names all that have failed.
    """
    failed = [directory for directory in broker.log_dirs if directory in set(offline)]
    if not failed:
        return []
    image = policy.image
    keys = []
    for key in image.isr_members.of(broker.broker_id):
        partition = image.topics[key.topic_id].partitions[key.partition]
        if partition.directory_of(broker.broker_id) in failed:
            keys.append(key)
    records = leaving_partitions(policy, broker.broker_id, keys)
    remaining = [directory for directory in broker.log_dirs if directory not in failed]
    if not remaining:
        return records  # a broker without any directory is fenced; an empty list would say "as before"
    change = r.BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=remaining)
    return [*records, change]


def assign(turn: Turn, broker: Broker, body: m.AssignReplicasToDirsRequest) -> m.AssignReplicasToDirsResponse:
    """Note where a broker's replicas lie; those that went to a failed directory leave their ISRs."""
    return m.AssignReplicasToDirsResponse(
        directories=[_assigned_to(turn, broker, directory) for directory in body.directories]
    )


def _assigned_to(
    turn: Turn, broker: Broker, directory: m.AssignReplicasToDirsRequestDirectoryData
) -> m.AssignReplicasToDirsResponseDirectoryData:
    topics = []
    for topic in directory.topics:
        partitions = []
        for wanted in topic.partitions:
            key = TopicIdPartition(topic.topic_id, wanted.partition_index)
            error = _assign(turn, broker, key, directory.id_)
            partitions.append(
                m.AssignReplicasToDirsResponsePartitionData(partition_index=wanted.partition_index, error_code=error)
            )
        topics.append(m.AssignReplicasToDirsResponseTopicData(topic_id=topic.topic_id, partitions=partitions))
    return m.AssignReplicasToDirsResponseDirectoryData(id_=directory.id_, topics=topics)


def _assign(turn: Turn, broker: Broker, key: TopicIdPartition, directory: UUID) -> Error:
    error = _refusal(turn.image, broker.broker_id, key)
    if error is not Error.NONE:
        return error
    partition = turn.image.topics[key.topic_id].partitions[key.partition]
    before = partition.directory_of(broker.broker_id)
    if broker.has_online(directory) and not broker.has_online(before):
        # The copy that counted is gone with its directory; what lies in the new one began empty.
        turn.append(leaving_partitions(turn.policy, broker.broker_id, [key], distrust=turn.policy.elr_enabled))
    if before != directory:
        known = partition.directories or (ZERO_UUID,) * len(partition.replicas)
        moved = _replaced(known, partition.replicas.index(broker.broker_id), directory)
        turn.append(
            [r.PartitionChangeRecord(partition_id=key.partition, topic_id=key.topic_id, directories=list(moved))]
        )
    if not broker.has_online(directory) and broker.broker_id in partition.isr:
        turn.append(leaving_partitions(turn.policy, broker.broker_id, [key]))
    elif partition.leader == NO_NODE and not broker.has_online(before):
        # It seemed offline when its broker was unfenced, so nobody looked at it then. As an empty copy it may lead where anybody
        # may, and as the last known leader, once ISR and ELR are empty (KIP-966: "elect the LastKnownLeader once it is unfenced").
        # Without ELR the last member stays in the ISR, whatever it lost: it is not elected as if it were whole.
        topic = turn.image.topics[key.topic_id].name
        if turn.policy.elr_enabled or turn.policy.election(topic) is Election.UNCLEAN:
            turn.append(leaders_for(turn.policy, [key]))
    return Error.NONE


def _refusal(image: Image, broker_id: NodeId, key: TopicIdPartition) -> Error:
    if key.topic_id not in image.topics:
        return Error.UNKNOWN_TOPIC_ID
    partition = image.partition(key.topic_id, key.partition)
    if partition is None:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    return Error.NONE if broker_id in partition.replicas else Error.NOT_LEADER_OR_FOLLOWER


def _replaced(directories: Sequence[UUID], position: int, directory: UUID) -> tuple[UUID, ...]:
    return (*directories[:position], directory, *directories[position + 1 :])
