"""Stop a node in good order (SIGTERM); heal by starting it again."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, Proof, back_in_service, incarnation
from tribunal.nemesis.bounce import StopTarget


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


@asynccontextmanager
async def inject(cluster: StopTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the process has ended. Heal: a new incarnation registered, in its ISRs again."""
    former, asked_ns = incarnation(cluster, node), cluster.now_ns()
    await cluster.stop(node)
    took_ms = (cluster.now_ns() - asked_ns) // 1_000_000
    effect = Effect(node, Proof(holds=not cluster.alive(node), facts={"signal": "SIGTERM", "took_ms": took_ms}))
    yield effect
    await cluster.start(node)
    effect.heal = await back_in_service(cluster, node, former)


FAULT: Final = Fault(options=Options, inject=inject)
