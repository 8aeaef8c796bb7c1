"""What disks that the kernel makes full or read-only share: a node whose writes fail has to end by itself."""

from contextlib import asynccontextmanager
from typing import Final, Literal, Protocol

from tribunal.clusters.capabilities import CanMountDisk
from tribunal.nemesis.api import AsyncGenerator, Effect, came_true, incarnation
from tribunal.nemesis.bounce import KillTarget
from tribunal.nemesis.refusing_disk import mended

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
    effect.heal = await mended(cluster, node, former, lambda: cluster.mend_mount(node))
