"""End a node and start it within its session time-out, several times; nobody may mistake one incarnation for another (KIP-380)."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, back_in_service, incarnation
from tribunal.nemesis.bounce import BounceTarget, How, bounced


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How it ends, and how often."""

    how: How = "stop"
    times: int = 2


@asynccontextmanager
async def inject(cluster: BounceTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: each time its process ended and another began at once. Heal: a new incarnation, in its ISRs again."""
    former = incarnation(cluster, node)
    effect = Effect(node, await bounced(cluster, node, options.how))
    for number in range(1, options.times):
        effect.add_proof(f"again_{number}", await bounced(cluster, node, options.how))
    yield effect
    effect.heal = await back_in_service(cluster, node, former)


FAULT: Final = Fault(options=Options, inject=inject)
