"""Stop a node's execution (SIGSTOP); heal by letting it go on. Its memory, sockets and delusions stay."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.clusters.capabilities import CanPause
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, back_in_service, fenced, joined


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


@asynccontextmanager
async def inject(cluster: CanPause, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: stopped and silent. Heal: runs, answers, unfenced, in its ISRs again."""
    effect = Effect(node, await cluster.pause(node))
    yield effect
    effect.proof.facts["fenced_meanwhile"] = fenced(cluster, node)
    resumed = await cluster.resume(node)
    effect.heal = joined(resumed, "service", await back_in_service(cluster, node, None))


FAULT: Final = Fault(options=Options, inject=inject)
