"""After the last fault: what is seen of a cluster whose full service does not come about.

Two looks, one when the time to heal is over, one as long again behind it; between them nothing is done to the cluster. What they mean is the
judge's (`checkers/judge/heal.py`).
"""

import asyncio
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress

from tribunal.clusters.api import Cluster, PartitionState, TopicPartition, Unsettled, until
from tribunal.clusters.capabilities import OF_DISKS
from tribunal.nemesis.api import AnyFault
from tribunal.results.heal import Look, PartitionSeen, Unhealed
from tribunal.results.violation import CommittedPartition

Emptied = Set[tuple[TopicPartition, int]]


def alters_disks(fault: AnyFault) -> bool:
    """Return whether a fault may alter or refuse bytes on disks."""
    return bool(fault.needs & OF_DISKS)


async def observed(
    cluster: Cluster, *, not_undone: Sequence[int], on_disks: Sequence[int], emptied: Emptied = frozenset()
) -> Unhealed:
    """Look at a cluster that is not in full service, twice; not at all where no claim can come of it.

    emptied:  partitions and replicas whose own disk lost the whole log, where nothing takes these out of the ISR.
    """
    spec = cluster.spec
    known = Unhealed(
        timeout_ms=spec.recovery_timeout_ms,
        nodes=tuple(spec.node_ids),
        brokers=tuple(spec.broker_ids),
        not_undone=tuple(not_undone),
        on_disks=tuple(on_disks),
    )
    if not_undone or on_disks:
        return known
    first = await look(cluster, emptied)
    with suppress(Unsettled):  # as it was: the second look says so
        await until(
            lambda: cluster.state.is_fully_in_sync(spec),
            timeout_ms=spec.recovery_timeout_ms,
            what="every ISR full",
            cluster=cluster,
        )
    second = await look(cluster, emptied)
    return Unhealed(
        timeout_ms=known.timeout_ms,
        nodes=known.nodes,
        brokers=known.brokers,
        not_undone=(),
        on_disks=(),
        first=first,
        second=second,
    )


async def look(cluster: Cluster, emptied: Emptied = frozenset()) -> Look:
    """Return how the cluster stands now; `at_ns` is when the committed state was read."""
    nodes, brokers = cluster.spec.node_ids, cluster.spec.broker_ids
    answering = await asyncio.gather(*map(cluster.answers, nodes))
    ends = {node: await cluster.log_ends_now(node) for node in brokers}
    return Look(
        at_ns=cluster.now_ns(),
        answering=tuple(node for node, answers in zip(nodes, answering, strict=True) if answers),
        unfenced=tuple(node for node, broker in sorted(cluster.state.brokers.items()) if not broker.fenced),
        lacking=tuple(
            _seen(name, state, ends, emptied)
            for name, state in sorted(cluster.state.partitions.items())
            if state.leader < 0 or len(state.isr) != len(state.replicas)
        ),
    )


def _seen(
    name: TopicPartition, state: PartitionState, ends: Mapping[int, Mapping[str, int] | None], emptied: Emptied
) -> PartitionSeen:
    on_disk = {node: known for node in state.replicas if (known := ends.get(node)) is not None}
    return PartitionSeen(
        name=str(name),
        state=CommittedPartition(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=state.replicas,
            isr=state.isr,
            elr=state.elr,
            recovering=state.recovering,
        ),
        log_ends={node: known.get(str(name)) for node, known in on_disk.items()},
        emptied=tuple(node for node in state.replicas if (name, node) in emptied),
    )
