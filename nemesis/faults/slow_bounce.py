"""End a node for longer than its session time-out; heal by starting it again."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, back_in_service, came_true, fenced, incarnation
from tribunal.nemesis.bounce import BounceTarget, How, end

GRACE_MS: Final = 3_000


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How it ends."""

    how: How = "kill"


@asynccontextmanager
async def inject(cluster: BounceTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: it is gone, and a broker is fenced. Heal: a new incarnation, in its ISRs again."""
    former = incarnation(cluster, node)
    effect = Effect(node, await end(cluster, node, options.how))
    yield effect
    if node in cluster.spec.broker_ids:
        wait_ms = cluster.spec.timeout_ms("broker.session.timeout.ms") + GRACE_MS
        expired = await came_true(
            lambda: fenced(cluster, node), timeout_ms=wait_ms, what="session expired", cluster=cluster
        )
        effect.add_proof("session", expired)
    await cluster.start(node)
    effect.heal = await back_in_service(cluster, node, former)


FAULT: Final = Fault(options=Options, inject=inject)
