"""After the last fault: what is seen of a cluster whose full service does not come about.

Two looks, one when the time to heal is over, one as long again behind it; between them nothing is done to the cluster. What they mean is the
judge's (`checkers/judge/heal.py`).
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import suppress
from typing import cast

from tribunal.clusters.api import Cluster, FaultTarget, NotServing, PartitionState, TopicPartition, Unsettled, until
from tribunal.clusters.capabilities import LOSE_BYTES, OF_DISKS, CanStart
from tribunal.nemesis.api import AnyFault, came_true, fenced
from tribunal.results.heal import Look, PartitionSeen, Unhealed
from tribunal.results.not_started import Attempt
from tribunal.results.violation import CommittedPartition

Emptied = Set[tuple[TopicPartition, int]]


def alters_disks(fault: AnyFault) -> bool:
    """Return whether a fault may alter or refuse bytes on disks."""
    return bool(fault.needs & OF_DISKS)


def touched_by(fault: AnyFault, cluster: FaultTarget, node: int) -> Sequence[int]:
    """Return who may find another disk than it had written when it starts again, of a fault that is aimed at a node."""
    used = fault.needs | (fault.may_use & cluster.capabilities)
    return fault.struck(cluster.spec, node) if used & (OF_DISKS | LOSE_BYTES) else ()


async def tried_again(cluster: Cluster, down: NotServing) -> Attempt | None:
    """Start a node again that did not come to serve, or wait for it for longer where its process goes on; None: it serves.

    Nothing else may be in effect: else what hinders it may be that.
    """
    if cluster.alive(down.node):
        began_ns = cluster.now_ns()
        # Twice as long as a start may take: a busy machine may keep it from its processor.
        await came_true(
            lambda: not (cluster.alive(down.node) and fenced(cluster, down.node)),
            timeout_ms=2 * down.within_ms,
            what="ready, or ended",
            cluster=cluster,
        )
        if cluster.alive(down.node):
            silent = Attempt(started_ns=began_ns, seen_ns=cluster.now_ns(), how="silent")
            return silent if fenced(cluster, down.node) else None
    try:
        await cast("CanStart", cluster).start(down.node)  # the fault that put it down could
    except NotServing as problem:
        return problem.attempt
    return None


async def not_ready(cluster: Cluster, down: Collection[int]) -> tuple[int, ...]:
    """Wait until all nodes but these are ready; return those that are not."""
    others = [node for node in cluster.spec.broker_ids if node not in down]
    await came_true(
        lambda: not any(fenced(cluster, node) for node in others),
        timeout_ms=cluster.spec.recovery_timeout_ms,
        what="all other nodes ready",
        cluster=cluster,
    )
    return tuple(node for node in cluster.spec.broker_ids if fenced(cluster, node))


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
