"""Restart one broker after the other, the target first, each when the one before is back; nothing is left to mend."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, Proof, all_back, back_in_service, incarnation, joined
from tribunal.nemesis.bounce import BounceTarget, How, end
from tribunal.nemesis.link_groups import from_target


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How each ends, and whether controllers follow."""

    how: How = "stop"
    controllers: bool = False


@asynccontextmanager
async def inject(cluster: BounceTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: every node ended and came back as a new incarnation. Heal: every ISR is full."""
    spec = cluster.spec
    nodes = from_target(spec.broker_ids, node) + (list(spec.controller_ids) if options.controllers else [])
    effect = Effect(node, Proof(holds=True, facts={"nodes": nodes}))
    for one in nodes:
        former = incarnation(cluster, one)
        ended = await end(cluster, one, options.how)
        await cluster.start(one)
        effect.add_proof(f"node_{one}", joined(ended, "back", await back_in_service(cluster, one, former)))
    yield effect
    effect.heal = await all_back(cluster)


FAULT: Final = Fault(options=Options, inject=inject)
