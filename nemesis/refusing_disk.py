"""What full and read-only disks share: a running node whose writes fail has to end by itself."""

from contextlib import asynccontextmanager
from typing import Final, Protocol

from tribunal.clusters.capabilities import CanTroubleDisk, DiskTrouble
from tribunal.nemesis.api import AsyncGenerator, Effect, Proof, back_in_service, came_true, incarnation, joined
from tribunal.nemesis.bounce import KillTarget

NOTICE_TIMEOUT_MS: Final = 10_000


class DiskTarget(KillTarget, CanTroubleDisk, Protocol):
    """What these faults ask of a cluster."""


@asynccontextmanager
async def refusing(cluster: DiskTarget, node: int, trouble: DiskTrouble) -> AsyncGenerator[Effect]:
    """Inject: a write was refused and the node ended. Heal: writes are taken, a new incarnation is in its ISRs."""
    former = incarnation(cluster, node)
    cluster.excuse(node, f"its disk is {trouble.writes}")
    effect = Effect(node, await cluster.trouble_disk(node, trouble))
    ended = await came_true(
        lambda: not cluster.alive(node), timeout_ms=NOTICE_TIMEOUT_MS, what="the node ended", cluster=cluster
    )
    effect.add_proof("ended", ended)
    yield effect
    if cluster.alive(node):
        await cluster.kill(node)
    mended = await cluster.trouble_disk(node, DiskTrouble())
    await cluster.start(node)
    cluster.excuse(node, None)
    back = await back_in_service(cluster, node, former)
    effect.heal = joined(Proof(holds=mended.holds, facts=mended.facts), "service", back)
