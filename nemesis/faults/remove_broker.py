"""Take a broker out of the cluster: its replicas go to others, it stops, it is forgotten; heal by adding it again."""

import asyncio
from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.api import PartitionState, TopicPartition
from tribunal.clusters.capabilities import CanReassign, CanUnregister
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
    joined,
)
from tribunal.nemesis.bounce import StopTarget

MOVE_TIMEOUT_MS: Final = 25_000
FORGET_TIMEOUT_MS: Final = 10_000

Placement = dict[TopicPartition, tuple[int, ...]]


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
    await _place(cluster, without)
    effect = Effect(node, await _placed(cluster, without))
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
    await _place(cluster, before)
    effect.heal = joined(effect.heal, "placement", await _placed(cluster, before))
    effect.heal = joined(effect.heal, "service", await all_back(cluster))


async def _place(cluster: RemovalTarget, wanted: Placement) -> None:
    await asyncio.gather(*(cluster.reassign(partition, replicas) for partition, replicas in wanted.items()))


async def _placed(cluster: RemovalTarget, wanted: Placement) -> Proof:
    def there(partition: TopicPartition, replicas: tuple[int, ...]) -> bool:
        state: PartitionState | None = cluster.state.partitions.get(partition)
        return state is None or sorted(state.replicas) == sorted(replicas)

    proof = await came_true(
        lambda: all(there(partition, replicas) for partition, replicas in wanted.items()),
        timeout_ms=MOVE_TIMEOUT_MS,
        what="every partition where it was asked to be",
        cluster=cluster,
    )
    return Proof(holds=proof.holds and bool(wanted), facts={**proof.facts, "partitions": len(wanted)})


FAULT: Final = Fault(options=Options, inject=inject, modes=(KRAFT,))
