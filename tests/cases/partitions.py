"""Between a case's words for a partition and `replog`'s values; used by several adapters."""

from typing import Any
from uuid import UUID

from replog.metadata.state import Partition
from replog.types import LeaderEpoch, LeaderRecoveryState, NodeId, PartitionEpoch, TopicIdPartition
from tests.cases.cases import only

TOPIC = "t"
TOPIC_ID = UUID(int=7)
KEY = TopicIdPartition(TOPIC_ID, 0)
FIELDS = {
    "replicas",
    "isr",
    "elr",
    "last_known",
    "leader",
    "leader_epoch",
    "partition_epoch",
    "recovery",
    "adding",
    "removing",
}
SETS = {"isr", "elr", "last_known", "adding", "removing"}


def nodes(ids: list[int]) -> tuple[NodeId, ...]:
    return tuple(NodeId(node) for node in ids)


def partition(given: dict[str, Any]) -> Partition:
    only(given, FIELDS, "partition")
    replicas = nodes(given["replicas"])
    return Partition(
        replicas=replicas,
        isr=nodes(given.get("isr", given["replicas"])),
        elr=nodes(given.get("elr", [])),
        last_known_elr=nodes(given.get("last_known", [])),
        adding_replicas=nodes(given.get("adding", [])),
        removing_replicas=nodes(given.get("removing", [])),
        leader=NodeId(given.get("leader", given["replicas"][0])),
        leader_epoch=LeaderEpoch(given.get("leader_epoch", 0)),
        partition_epoch=PartitionEpoch(given.get("partition_epoch", 0)),
        leader_recovery_state=LeaderRecoveryState(given.get("recovery", 0)),
    )


def shown(state: Partition) -> dict[str, Any]:
    """The partition in a case's words; sets as sorted lists."""
    return {
        "replicas": list(state.replicas),
        "isr": sorted(state.isr),
        "elr": sorted(state.elr),
        "last_known": sorted(state.last_known_elr),
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "recovery": int(state.leader_recovery_state),
        "adding": sorted(state.adding_replicas),
        "removing": sorted(state.removing_replicas),
    }


def matches(state: Partition, expected: dict[str, Any]) -> None:
    """Compare what the case names; what it leaves out is not asserted."""
    only(expected, FIELDS, "then.partition")
    actual = shown(state)
    wanted = {key: sorted(value) if key in SETS else value for key, value in expected.items()}
    assert {key: actual[key] for key in wanted} == wanted
