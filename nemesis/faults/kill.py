"""Kill -9; heal by starting the node again. Loses no data: what is written is in the page cache."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, back_in_service, incarnation
from tribunal.nemesis.bounce import KillTarget


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


@asynccontextmanager
async def inject(cluster: KillTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the process is gone and its port refuses. Heal: a new incarnation registered, in its ISRs again."""
    former = incarnation(cluster, node)
    effect = Effect(node, await cluster.kill(node))
    yield effect
    await cluster.start(node)
    effect.heal = await back_in_service(cluster, node, former)


FAULT: Final = Fault(options=Options, inject=inject)
