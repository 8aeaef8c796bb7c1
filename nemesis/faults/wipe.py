"""Kill -9 and empty the disk; heal by starting the node on the new disk and letting it fetch everything again.

A controller's vote belongs to its disk (KIP-853): with another one it only observes. Where the cluster can, the old disk's
vote is taken away and the new one is given a vote, as an operator would do.
"""

from contextlib import asynccontextmanager
from typing import Final, cast

import msgspec

from tribunal.clusters.capabilities import Hurtable
from tribunal.nemesis.api import AsyncGenerator, Cluster, Effect, back_in_service, incarnation
from tribunal.nemesis.votes import vote_again

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
    if (
        node in cluster.spec.controller_ids
        and "remove_voter" in cluster.capabilities
        and not cluster.spec.is_zookeeper_mode
    ):
        effect.add_heal("vote", await vote_again(cast(Hurtable, cluster), node))
