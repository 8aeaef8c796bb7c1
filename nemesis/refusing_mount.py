"""What disks that the kernel makes full or read-only share: a node whose writes fail has to end by itself."""

from contextlib import asynccontextmanager
from typing import Final, Literal, Protocol

from tribunal.clusters.capabilities import CanMountDisk
from tribunal.nemesis.api import AsyncGenerator, Effect, Proof, back_in_service, came_true, incarnation, joined
from tribunal.nemesis.bounce import KillTarget

NOTICE_TIMEOUT_MS: Final = 15_000


class MountTarget(KillTarget, CanMountDisk, Protocol):
    """What these faults ask of a cluster."""


@asynccontextmanager
async def refusing_mount(
    cluster: MountTarget, node: int, writes: Literal["full", "read-only"]
) -> AsyncGenerator[Effect]:
    """Inject: a write of our own is refused and the node ended. Heal: writes are taken, a new incarnation is in its ISRs."""
    former = incarnation(cluster, node)
    cluster.excuse(node, f"its disk is {writes}")
    effect = Effect(node, await cluster.mount_disk(node, writes))
    ended = await came_true(
        lambda: not cluster.alive(node), timeout_ms=NOTICE_TIMEOUT_MS, what="the node ended", cluster=cluster
    )
    effect.add_proof("ended", ended)
    yield effect
    if cluster.alive(node):
        await cluster.kill(node)
    mended = await cluster.mend_mount(node)
    try:
        await cluster.start(node)
    finally:
        cluster.excuse(node, None)  # also where it does not start: the run may go on to its end
    back = await back_in_service(cluster, node, former)
    effect.heal = joined(Proof(holds=mended.holds, facts=mended.facts), "service", back)
