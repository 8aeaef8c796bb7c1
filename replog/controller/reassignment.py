"""Reassignment of replicas: start, change of mind, cancel (SPEC 2.10).

Only the wish is made here. A reassignment completes inside `partition_change`, with whichever
change first brings the ISR where it has to be.
"""

from typing import NamedTuple

from replog.controller.election import Election, Wish, partition_change
from replog.controller.elr import effective_min_isr
from replog.controller.policy import Policy
from replog.controller.topics import invalid_replicas
from replog.errors import Error
from replog.metadata.records import PartitionChangeRecord
from replog.metadata.state import Nodes, Partition
from replog.types import NodeId, TopicIdPartition
from replog.wire.messages import list_partition_reassignments as m


class Reassigned(NamedTuple):
    """Outcome for one partition; no error and no record: nothing to change."""

    error: Error
    message: str | None
    record: PartitionChangeRecord | None


def reassign(
    policy: Policy, topic: str, index: int, target: Nodes | None, *, allow_replication_factor_change: bool
) -> Reassigned:
    """Start a reassignment to `target`, or cancel the running one (None)."""
    known = policy.image.topics_by_name.get(topic)
    partition = known.partitions.get(index) if known else None
    if known is None or partition is None:
        return refused(Error.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    key = TopicIdPartition(known.topic_id, index)
    if target is None:
        return _cancel(policy, topic, key, partition)
    wrong = invalid_replicas(policy.image, target)
    if wrong:
        return refused(Error.INVALID_REPLICA_ASSIGNMENT, wrong)
    if not allow_replication_factor_change and len(target) != _final_count(partition):
        message = f"The replication factor is changed from {_final_count(partition)} to {len(target)}."
        return refused(Error.INVALID_REPLICATION_FACTOR, message)
    return Reassigned(Error.NONE, None, _changed(policy, topic, key, partition, start(partition, target)))


def start(partition: Partition, target: Nodes) -> Wish:
    """Return the wish that begins a reassignment: the difference against all current replicas."""
    removing = tuple(sorted(set(partition.replicas) - set(target)))
    adding = tuple(sorted(set(target) - set(partition.replicas)))
    return Wish(target_replicas=(*target, *removing), adding_replicas=adding, removing_replicas=removing)


def cancel(partition: Partition) -> Wish:
    """Return the wish that goes back to the replicas before the running reassignment."""
    replicas = tuple(node for node in partition.replicas if node not in partition.adding_replicas)
    isr = tuple(node for node in partition.isr if node not in partition.adding_replicas)
    return Wish(target_replicas=replicas, target_isr=isr, adding_replicas=(), removing_replicas=())


def _cancel(policy: Policy, topic: str, key: TopicIdPartition, partition: Partition) -> Reassigned:
    if not partition.is_reassigning:
        return refused(Error.NO_REASSIGNMENT_IN_PROGRESS, None)
    wish = cancel(partition)
    replicas, isr = wish.target_replicas or (), wish.target_isr or ()
    if not isr and not policy.unclean_enabled(topic):
        message = "No replica that would remain is in the ISR: unclean leader election is needed, but not enabled."
        return refused(Error.INVALID_REPLICA_ASSIGNMENT, message)
    if not isr and not any(map(policy.image.fit(partition, policy.image.is_active), replicas)):
        return refused(Error.INVALID_REPLICA_ASSIGNMENT, f"None of the replicas {list(replicas)} could lead.")
    # KIP-966: "This min ISR requirement is also enforced when the reassignment is canceled."
    min_isr = effective_min_isr(policy.min_insync_replicas(topic), len(replicas))
    if max(len(isr), 1) < min_isr:
        message = f"The ISR would be {list(isr)}, below min.insync.replicas {min_isr}."
        return refused(Error.INVALID_REPLICA_ASSIGNMENT, message)
    return Reassigned(Error.NONE, None, _changed(policy, topic, key, partition, wish))


def _changed(
    policy: Policy, topic: str, key: TopicIdPartition, partition: Partition, wish: Wish
) -> PartitionChangeRecord | None:
    election = policy.election(topic)
    if wish.target_isr == () and policy.unclean_enabled(topic):
        election = Election.UNCLEAN  # the operator's cancel decides, not the recovery manager
    wish = Wish(
        target_isr=wish.target_isr,
        target_replicas=wish.target_replicas,
        adding_replicas=wish.adding_replicas,
        removing_replicas=wish.removing_replicas,
        election=election,
    )
    return partition_change(
        key, partition, wish, policy.rules(topic), policy.image.fit(partition, policy.image.is_active)
    )


def _final_count(partition: Partition) -> int:
    return len(partition.replicas) - len(partition.removing_replicas)


def refused(error: Error, message: str | None) -> Reassigned:
    """Return the outcome for a partition that is not changed."""
    return Reassigned(error, message, None)


def ongoing(policy: Policy, request: m.ListPartitionReassignmentsRequest) -> list[m.OngoingTopicReassignment]:
    """Return the reassignments that are under way, of all or of the named partitions."""
    wanted = None
    if request.topics is not None:
        wanted = {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
    found: dict[str, list[m.OngoingPartitionReassignment]] = {}
    for key in policy.image.reassigning():
        topic = policy.image.topics[key.topic_id]
        if wanted is None or (topic.name, key.partition) in wanted:
            found.setdefault(topic.name, []).append(_ongoing(key.partition, topic.partitions[key.partition]))
    return [m.OngoingTopicReassignment(name=name, partitions=found[name]) for name in sorted(found)]


def _ongoing(index: int, partition: Partition) -> m.OngoingPartitionReassignment:
    def ids(nodes: tuple[NodeId, ...]) -> list[int]:
        return [int(node) for node in nodes]

    return m.OngoingPartitionReassignment(
        partition_index=index,
        replicas=ids(partition.replicas),
        adding_replicas=ids(partition.adding_replicas),
        removing_replicas=ids(partition.removing_replicas),
    )
