"""Kill -9 in the middle of an orderly end; heal by starting the node again."""

import asyncio
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, Proof, back_in_service, incarnation
from tribunal.nemesis.bounce import BounceTarget


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long after the request to end."""

    after_ms: int = 20


@asynccontextmanager
async def inject(cluster: BounceTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the process was still there when it was killed; one that has ended by then is not. Heal: a new incarnation, in its ISRs again."""
    former = incarnation(cluster, node)
    ending = asyncio.ensure_future(cluster.stop(node))
    try:
        await asyncio.sleep(options.after_ms / 1000)
        ending_still = cluster.alive(node)
        gone = await cluster.kill(node) if ending_still else Proof(holds=False, facts={"process": "ended"})
        await ending
    finally:
        ending.cancel()  # where the run was broken off
    effect = Effect(node, gone)
    effect.add_proof("middle", Proof(holds=ending_still, facts={"ending_still": ending_still}))
    yield effect
    await cluster.start(node)
    effect.heal = await back_in_service(cluster, node, former)


FAULT: Final = Fault(options=Options, inject=inject)
