"""A larger min ISR has to be known to the leaders before the controller may count by it (decision 0010, M88).

The ELR holds whoever left an ISR that was below min ISR: beside such an ISR the leader commits nothing. A leader whose
metadata lag believes the smaller value and does commit. Therefore the event that raises min ISR also gives the partitions
new leader epochs: in its old one the leader commits only what all of this moment's ISR holds, because no smaller ISR that
it proposes is accepted any more; the new one it learns from the metadata log, behind the new min ISR.
"""

from collections.abc import Mapping
from typing import Final

from replog.controller.election import Wish
from replog.controller.fencing import changes
from replog.controller.policy import Policy
from replog.metadata.image import in_order
from replog.metadata.records import MetadataRecord
from replog.metadata.state import Partition
from replog.types import TopicIdPartition

UNKNOWN: Final = 0  # what each leader's own file says, before the cluster has one value for all


def min_isr_by_topic(policy: Policy) -> dict[str, int]:
    """Return min.insync.replicas of every topic, as configured now."""
    return {name: policy.min_insync_replicas(name) for name in policy.image.topics_by_name}


def renewed_leader_epochs(policy: Policy, before: Mapping[str, int]) -> list[MetadataRecord]:
    """Return new leader epochs for all partitions whose min ISR has risen.

    before: min.insync.replicas by topic, as configured until now.
    """
    if not policy.elr_enabled:
        return []

    def renewed(topic: str, _: Partition) -> Wish:
        return Wish(election=policy.election(topic), new_leader_epoch=True)

    return changes(policy, _raised(policy, before), renewed, policy.image.is_active)


def of_all(policy: Policy) -> list[MetadataRecord]:
    """Return new leader epochs for all partitions: from now on the cluster has one min ISR, before each broker's own file had its say."""
    return renewed_leader_epochs(policy, dict.fromkeys(policy.image.topics_by_name, UNKNOWN))


def _raised(policy: Policy, before: Mapping[str, int]) -> list[TopicIdPartition]:
    topics = {name: policy.image.topics_by_name[name] for name in before}
    keys = [
        TopicIdPartition(topic.topic_id, index)
        for name, topic in topics.items()
        if before[name] < policy.min_insync_replicas(name)
        for index, partition in topic.partitions.items()
        if before[name] < len(partition.replicas)  # else the replication factor caps both values
    ]
    return in_order(keys)
