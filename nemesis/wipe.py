"""Kill -9 and empty the disk; heal by starting the node on the new disk and letting it fetch everything again."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from nemesis.api import AsyncGenerator, Cluster, Effect, back_in_service, incarnation

NEEDS: Final = frozenset({"kill", "start", "wipe"})


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


@asynccontextmanager
async def fault(cluster: Cluster, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Bite: the process is gone, every log ends at 0 on another disk. Heal: a new incarnation in its ISRs."""
    former = incarnation(cluster, node)
    effect = Effect(node, await cluster.kill(node), lost_everything=True)
    effect.add_proof("wiped", await cluster.wipe(node))
    yield effect
    await cluster.start(node)
    effect.heal = await back_in_service(cluster, node, former)
