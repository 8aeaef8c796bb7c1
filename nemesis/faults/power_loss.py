"""Take a node's power away: it is killed, and what it had not synced is gone; heal by starting it again."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, back_in_service, incarnation, proven_losses
from tribunal.nemesis.kill_loop import PowerTarget


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


@asynccontextmanager
async def inject(cluster: PowerTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the process is gone and its files are as they were last synced. Heal: a new incarnation in its ISRs."""
    former = incarnation(cluster, node)
    begin_ns = cluster.now_ns()
    effect = Effect(node, await cluster.power_fail(node))
    effect.losses += proven_losses(cluster, node, effect.proof, begin_ns)
    yield effect
    await cluster.start(node)
    effect.heal = await back_in_service(cluster, node, former)


FAULT: Final = Fault(options=Options, inject=inject)
