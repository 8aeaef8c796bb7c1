"""Kill -9 and empty the disk; heal by starting the node on the new disk and letting it fetch everything again.

A controller's vote belongs to its disk (KIP-853): with another one it only observes. Where the cluster can, the old disk's
vote is taken away and the new one is given a vote, as an operator would do.
"""

from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanWipe
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, back_in_service, incarnation
from tribunal.nemesis.bounce import KillTarget, killed_with_other_disk
from tribunal.nemesis.votes import vote_again, with_votes


class WipeTarget(KillTarget, CanWipe, Protocol):
    """What this fault asks of a cluster."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


@asynccontextmanager
async def inject(cluster: WipeTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the process is gone, every log ends at 0 on another disk. Heal: a new incarnation in its ISRs."""
    former = incarnation(cluster, node)
    effect = await killed_with_other_disk(cluster, node, "wiped", cluster.wipe)
    yield effect
    await cluster.start(node)
    effect.heal = await back_in_service(cluster, node, former)
    voters = with_votes(cluster)
    if voters is not None and node in cluster.spec.controller_ids:
        effect.add_heal("vote", await vote_again(voters, node))


FAULT: Final = Fault(options=Options, inject=inject)
