"""What faults on a dead node's disk share: kill, harm the disk, count what it lost, start again."""

from contextlib import asynccontextmanager
from typing import Protocol

from tribunal.clusters.capabilities import CanDamageLogs, Damage
from tribunal.nemesis.api import AsyncGenerator, Effect, back_in_service, incarnation, proven_losses
from tribunal.nemesis.bounce import KillTarget


class DamageTarget(KillTarget, CanDamageLogs, Protocol):
    """What these faults ask of a cluster."""


@asynccontextmanager
async def damaged(cluster: DamageTarget, node: int, damage: Damage) -> AsyncGenerator[Effect]:
    """Inject: the process is gone and logs end earlier on its disk. Heal: a new incarnation, in its ISRs again."""
    former = incarnation(cluster, node)
    begin_ns = cluster.now_ns()
    effect = Effect(node, await cluster.kill(node))
    harm = await cluster.damage(node, damage)
    effect.add_proof("damage", harm)
    effect.losses += proven_losses(cluster, node, harm, begin_ns)
    yield effect
    await cluster.start(node)
    effect.heal = await back_in_service(cluster, node, former)
