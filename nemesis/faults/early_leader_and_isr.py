"""Send a broker's former life a LeaderAndIsr of one partition while it is away; the next life gets it first (KIP-380, third)."""

from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanReassign, CanShapeLinks
from tribunal.clusters.spec import ZOOKEEPER
from tribunal.nemesis.api import AsyncGenerator, ClusterError, Effect, Fault, back_in_service, incarnation
from tribunal.nemesis.bounce import KillTarget
from tribunal.nemesis.stale_incarnation import epoch_of, new_registration, slow_zookeeper, victim


class EarlyTarget(KillTarget, CanReassign, CanShapeLinks, Protocol):
    """What this fault asks of a cluster."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


@asynccontextmanager
async def inject(cluster: EarlyTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Bite: killed, restarted, and told of one partition for its former life. Heal: it hosts all as before."""
    broker, controller = victim(cluster, node)
    former, epoch = incarnation(cluster, broker), epoch_of(cluster, broker)
    partition = next((one for one, state in sorted(cluster.state.partitions.items()) if broker in state.replicas), None)
    if partition is None:
        raise ClusterError(f"broker {broker} has no replica")
    replicas = cluster.state.partitions[partition].replicas
    effect = Effect(broker, await cluster.kill(broker))
    # The same replicas in another order: a change of this one partition, told to all of them.
    await cluster.reassign(partition, (*replicas[1:], replicas[0]))
    async with slow_zookeeper(cluster, controller):
        await cluster.start(broker)
        effect.add_proof("life", await new_registration(cluster, broker, epoch))
        yield effect
    effect.heal = await back_in_service(cluster, broker, former)


FAULT: Final = Fault(options=Options, inject=inject, modes=(ZOOKEEPER,))
