"""What disks that refuse requests share: a running node of ours whose writes fail has to end by itself; of others nobody knows."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Protocol

from tribunal.clusters.capabilities import CanTroubleDisk, DiskTrouble
from tribunal.nemesis.api import AsyncGenerator, Effect, Proof, back_in_service, came_true, incarnation, joined
from tribunal.nemesis.bounce import KillTarget

NOTICE_TIMEOUT_MS: Final = 10_000


class DiskTarget(KillTarget, CanTroubleDisk, Protocol):
    """What faults by which writes are refused ask of a cluster."""


def refusing(cluster: DiskTarget, node: int, trouble: DiskTrouble) -> AbstractAsyncContextManager[Effect]:
    """Inject: a write was refused and the node ended. Heal: writes are taken, a new incarnation is in its ISRs."""
    return refused(
        cluster,
        node,
        f"its disk is {trouble.writes}",
        lambda: cluster.trouble_disk(node, trouble),
        lambda: cluster.trouble_disk(node, DiskTrouble()),
    )


@asynccontextmanager
async def refused(
    cluster: KillTarget,
    node: int,
    why: str,
    harm: Callable[[], Awaitable[Proof]],
    mend: Callable[[], Awaitable[Proof]],
) -> AsyncGenerator[Effect]:
    """Inject: requests were refused. Heal: none is any more, and the node serves in a new incarnation, also where it went on meanwhile."""
    former = incarnation(cluster, node)
    cluster.excuse(node, why)
    effect = Effect(node, await harm())
    if not cluster.spec.system:  # what one that we did not write makes of it is its own affair
        ended = await came_true(
            lambda: not cluster.alive(node), timeout_ms=NOTICE_TIMEOUT_MS, what="the node ended", cluster=cluster
        )
        effect.add_proof("ended", ended)
    yield effect
    effect.proof.facts["alive_at_the_end"] = cluster.alive(node)
    effect.heal = await mended(cluster, node, former, mend)


async def mended(cluster: KillTarget, node: int, former: str | None, mend: Callable[[], Awaitable[Proof]]) -> Proof:
    """End a node that goes on, mend its disk and start it; return the proof that requests are taken and a new incarnation serves."""
    if cluster.alive(node):
        await cluster.kill(node)
    proof = await mend()
    try:
        await cluster.start(node)
    finally:
        cluster.excuse(node, None)  # also where it does not start: the run may go on to its end
    back = await back_in_service(cluster, node, former)
    return joined(Proof(holds=proof.holds, facts=proof.facts), "service", back)
