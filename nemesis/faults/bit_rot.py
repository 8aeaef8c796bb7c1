"""Turn over a bit of a closed segment in each log of a running node; heal by giving back what it has not repaired itself."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.clusters.capabilities import CanRot, Rotten
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, all_back, came_true, joined


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long, from the end of its time, the node may still take to repair all of it by itself; 0: it need not (`log.scrub.bytes.per.second`)."""

    scrubbed_ms: int = 0


@asynccontextmanager
async def inject(cluster: CanRot, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: bytes on the disk are other ones than were written. Heal: they are what they were, and everybody is back."""
    effect = Effect(node, await cluster.rot(node))
    places = msgspec.convert(effect.proof.facts["rotten"], list[Rotten])
    yield effect
    scrubbed = None
    if options.scrubbed_ms:
        scrubbed = await came_true(
            lambda: not cluster.still_rotten(node, places),
            timeout_ms=options.scrubbed_ms,
            what="the node repaired its logs",
            cluster=cluster,
        )
    effect.heal = joined(await cluster.turn_back(node, places), "service", await all_back(cluster))
    if scrubbed is not None:
        effect.add_heal("scrubbed", scrubbed)


FAULT: Final = Fault(options=Options, inject=inject)
