"""AlterPartition: a leader proposes its ISR, the controller checks and decides (SPEC 2.7).

Refusals follow the table of SPEC 2.7, first hit wins. The broker epoch of every proposed member is
compared with the registry: a proposal made before a follower's restart must not let the restarted
follower in, whose log may be shorter (KIP-903).
"""

from typing import NamedTuple

from replog.controller.election import Wish, partition_change
from replog.controller.policy import Policy
from replog.errors import Error
from replog.metadata.image import Image
from replog.metadata.records import PartitionChangeRecord
from replog.metadata.state import Partition
from replog.types import NO_BROKER_EPOCH, LeaderRecoveryState, NodeId, TopicIdPartition
from replog.wire.messages.alter_partition import AlterPartitionRequestPartitionData


class Altered(NamedTuple):
    """Outcome for one partition: an error, a record, both (NEW_LEADER_ELECTED), or neither (no change)."""

    error: Error
    record: PartitionChangeRecord | None


def alter_partition(
    policy: Policy, sender: NodeId, key: TopicIdPartition, proposal: AlterPartitionRequestPartitionData
) -> Altered:
    """Check a proposal of `sender`, whose broker epoch is checked already, and decide on it."""
    partition = policy.image.partition(key.topic_id, key.partition)
    if partition is None:
        return Altered(Error.UNKNOWN_TOPIC_OR_PARTITION, None)
    error = refusal(policy.image, partition, sender, proposal)
    if error is not Error.NONE:
        return Altered(error, None)
    topic = policy.image.topics[key.topic_id].name
    wish = Wish(
        target_isr=proposed_isr(proposal),
        leader_recovery_state=LeaderRecoveryState(proposal.leader_recovery_state),
        election=policy.election(topic),
    )
    record = partition_change(
        key, partition, wish, policy.rules(topic), policy.image.fit(partition, policy.image.is_active)
    )
    if record is not None and record.leader not in (sender, -2):
        # A reassignment completed without the sender: it has to wait for its metadata (SPEC 2.7.4).
        return Altered(Error.NEW_LEADER_ELECTED, record)
    return Altered(Error.NONE, record)


def proposed_isr(proposal: AlterPartitionRequestPartitionData) -> tuple[NodeId, ...]:
    """Return the ids of the proposed ISR (`translate.py` has turned older forms into this one)."""
    return tuple(NodeId(member.broker_id) for member in proposal.new_isr_with_epochs)


def refusal(image: Image, partition: Partition, sender: NodeId, proposal: AlterPartitionRequestPartitionData) -> Error:
    """Return why a proposal is refused, NONE when it is not (SPEC 2.7, rows 2-11)."""
    if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        return Error.NOT_CONTROLLER  # the broker knows more than we do: we are not the controller any more
    if proposal.leader_epoch < partition.leader_epoch:
        return Error.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return Error.INVALID_REQUEST
    if proposal.partition_epoch < partition.partition_epoch:
        return Error.INVALID_UPDATE_VERSION
    if not _is_well_formed(partition, sender, proposal):
        return Error.INVALID_REQUEST
    for member in proposal.new_isr_with_epochs:
        if not _may_be_in_isr(image, partition, NodeId(member.broker_id), member.broker_epoch):
            return Error.INELIGIBLE_REPLICA
    return Error.NONE


def _is_well_formed(partition: Partition, sender: NodeId, proposal: AlterPartitionRequestPartitionData) -> bool:
    isr = proposed_isr(proposal)
    if len(set(isr)) != len(isr) or any(node not in partition.replicas for node in isr) or sender not in isr:
        return False
    if proposal.leader_recovery_state == LeaderRecoveryState.RECOVERED:
        return True
    # KIP-704: only the controller starts a recovery, and nobody joins before it is over.
    recovering = partition.leader_recovery_state is LeaderRecoveryState.RECOVERING
    return proposal.leader_recovery_state == LeaderRecoveryState.RECOVERING and recovering and len(isr) == 1


def _may_be_in_isr(image: Image, partition: Partition, broker_id: NodeId, broker_epoch: int) -> bool:
    if not (image.is_active(broker_id) and image.is_online(partition, broker_id)):
        return False
    # KIP-903: -1 is a leader that does not know (an old version, or a follower that never fetched).
    return broker_epoch in (NO_BROKER_EPOCH, image.broker_epoch(broker_id))
