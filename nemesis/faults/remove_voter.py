"""Take a controller's vote while it runs, and give it back (KIP-853); it observes meanwhile."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.clusters.capabilities import CanChangeVoters
from tribunal.clusters.spec import KRAFT
from tribunal.nemesis.api import AsyncGenerator, ClusterError, Effect, Fault, Proof, all_back, joined
from tribunal.nemesis.votes import give_vote, voting


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


@asynccontextmanager
async def inject(cluster: CanChangeVoters, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the committed voter set is without the node. Heal: it is in it again, and brokers serve."""
    if node not in cluster.spec.controller_ids:
        raise ClusterError(f"node {node} is no controller: only a controller has a vote")
    await cluster.remove_voter(node)
    effect = Effect(node, await voting(cluster, node, votes=False))
    yield effect
    voted = await give_vote(cluster, node)  # it may have been the leader: the next one has to know of it first
    effect.heal = joined(Proof(holds=voted.holds, facts=voted.facts), "service", await all_back(cluster))


FAULT: Final = Fault(options=Options, inject=inject, modes=(KRAFT,))
