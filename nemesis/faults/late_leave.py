"""Hold a broker's ControlledShutdown until its next incarnation has begun, then let it arrive (KIP-380, second assumption)."""

from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanHinderMessages
from tribunal.clusters.spec import ZOOKEEPER
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, all_back, back_in_service, incarnation
from tribunal.nemesis.bounce import BounceTarget, bounced
from tribunal.nemesis.stale_incarnation import CONTROLLED_SHUTDOWN, heal, held, met, victim


class LateTarget(BounceTarget, CanHinderMessages, Protocol):
    """What this fault asks of a cluster."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


@asynccontextmanager
async def inject(cluster: LateTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the request came after the next incarnation was in all its ISRs. Heal: that incarnation goes on."""
    broker, _ = victim(cluster, node)
    former = incarnation(cluster, broker)
    rule = cluster.add_rule(held(CONTROLLED_SHUTDOWN, broker, None))
    effect = Effect(broker, await bounced(cluster, broker, "stop"))
    effect.add_proof("held", await met(cluster, rule))
    effect.add_proof("next_life", await back_in_service(cluster, broker, former))
    effect.add_proof("before", await all_back(cluster))
    cluster.remove_rule(rule)
    yield effect
    await heal(cluster, effect)


FAULT: Final = Fault(options=Options, inject=inject, modes=(ZOOKEEPER,))
