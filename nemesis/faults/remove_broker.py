"""Take a broker out of the cluster: its replicas go to others, it stops, it is forgotten; heal by adding it again."""

from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.api import ClusterError, TopicPartition
from tribunal.clusters.capabilities import CanReassign, CanUnregister
from tribunal.clusters.endings import all_done
from tribunal.clusters.spec import KRAFT
from tribunal.nemesis.api import (
    AsyncGenerator,
    Effect,
    Fault,
    Proof,
    all_back,
    back_in_service,
    came_true,
    incarnation,
    is_there,
    joined,
)
from tribunal.nemesis.bounce import StopTarget

MOVE_TIMEOUT_MS: Final = 25_000
FORGET_TIMEOUT_MS: Final = 10_000
DELETED_TIMEOUT_MS: Final = 2_000  # what the cluster knows already the harness sees a moment later

Placement = dict[TopicPartition, tuple[int, ...]]
TopicIds = dict[TopicPartition, str | None]


class RemovalTarget(StopTarget, CanReassign, CanUnregister, Protocol):
    """What this fault asks of a cluster."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


@asynccontextmanager
async def inject(cluster: RemovalTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: no partition is there, the committed metadata knows no such broker. Heal: both as before, in every ISR."""
    former = incarnation(cluster, node)
    before: Placement = {
        partition: state.replicas
        for partition, state in sorted(cluster.state.partitions.items())
        if node in state.replicas and len(state.replicas) > 1
    }
    without = {partition: tuple(one for one in replicas if one != node) for partition, replicas in before.items()}
    topic_ids = {partition: cluster.state.topic_ids.get(partition.topic) for partition in before}
    await _place(cluster, without, topic_ids)
    effect = Effect(node, await _placed(cluster, without, topic_ids))
    await cluster.stop(node)
    await cluster.unregister(node)
    forgotten = await came_true(
        lambda: node not in cluster.state.brokers,
        timeout_ms=FORGET_TIMEOUT_MS,
        what="the broker's registration is gone",
        cluster=cluster,
    )
    effect.add_proof("forgotten", forgotten)
    yield effect
    await cluster.start(node)
    effect.heal = await back_in_service(cluster, node, former)
    await _place(cluster, before, topic_ids)
    effect.heal = joined(effect.heal, "placement", await _placed(cluster, before, topic_ids))
    effect.heal = joined(effect.heal, "service", await all_back(cluster))


async def _place(cluster: RemovalTarget, wanted: Placement, topic_ids: TopicIds) -> None:
    await all_done(
        _reassign(cluster, partition, replicas, topic_ids[partition]) for partition, replicas in wanted.items()
    )


async def _reassign(
    cluster: RemovalTarget, partition: TopicPartition, replicas: Sequence[int], topic_id: str | None
) -> None:
    """Reassign what is there; `ClusterError` where the cluster refuses it for another reason than that it was deleted."""
    if not is_there(cluster, partition, topic_id):
        return
    try:
        await cluster.reassign(partition, replicas)
    except ClusterError:
        deleted = await came_true(
            lambda: not is_there(cluster, partition, topic_id),
            timeout_ms=DELETED_TIMEOUT_MS,
            what=f"{partition} is deleted",
            cluster=cluster,
        )
        if not deleted.holds:
            raise


async def _placed(cluster: RemovalTarget, wanted: Placement, topic_ids: TopicIds) -> Proof:
    def there(partition: TopicPartition, replicas: tuple[int, ...]) -> bool:
        if not is_there(cluster, partition, topic_ids[partition]):
            return True  # there is nothing to place
        return sorted(cluster.state.partitions[partition].replicas) == sorted(replicas)

    proof = await came_true(
        lambda: all(there(partition, replicas) for partition, replicas in wanted.items()),
        timeout_ms=MOVE_TIMEOUT_MS,
        what="every partition where it was asked to be",
        cluster=cluster,
    )
    # It is ordered: that the cluster does it is the cluster's part.
    return Proof(holds=proof.holds and bool(wanted), facts={**proof.facts, "partitions": len(wanted)}, undone=True)


FAULT: Final = Fault(options=Options, inject=inject, modes=(KRAFT,))
