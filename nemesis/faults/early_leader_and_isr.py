"""Send a LeaderAndIsr of one partition to a broker's previous incarnation; the next incarnation gets it first (KIP-380, third)."""

from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanReassign, CanShapeLinks
from tribunal.clusters.spec import ZOOKEEPER
from tribunal.nemesis.api import AsyncGenerator, ClusterError, Effect, Fault, incarnation
from tribunal.nemesis.bounce import KillTarget
from tribunal.nemesis.stale_incarnation import back_without_delay, epoch_of, reregistered, slow_watches, victim


class EarlyTarget(KillTarget, CanReassign, CanShapeLinks, Protocol):
    """What this fault asks of a cluster."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


@asynccontextmanager
async def inject(cluster: EarlyTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: killed, restarted, and sent one partition that was meant for its previous incarnation. Heal: it hosts all as before."""
    broker, controller = victim(cluster, node)
    former, epoch = incarnation(cluster, broker), epoch_of(cluster, broker)
    partition = next((one for one, state in sorted(cluster.state.partitions.items()) if broker in state.replicas), None)
    if partition is None:
        raise ClusterError(f"broker {broker} has no replica")
    replicas = cluster.state.partitions[partition].replicas
    effect = Effect(broker, await cluster.kill(broker))
    # The same replicas in another order: a change of this one partition, sent to all of them.
    await cluster.reassign(partition, (*replicas[1:], replicas[0]))
    async with slow_watches(cluster, controller) as late:
        effect.add_proof("late", late.proof)
        await cluster.start(broker)
        effect.add_proof("life", await reregistered(cluster, broker, epoch))
        yield effect
    effect.heal = await back_without_delay(cluster, broker, former, late)


FAULT: Final = Fault(options=Options, inject=inject, modes=(ZOOKEEPER,))
