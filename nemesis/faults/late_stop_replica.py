"""Let a broker leave without getting its StopReplica, so that the next incarnation gets it (KIP-380, first assumption)."""

from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanHinderMessages, CanShapeLinks
from tribunal.clusters.spec import ZOOKEEPER
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, incarnation
from tribunal.nemesis.bounce import BounceTarget, bounced
from tribunal.nemesis.stale_incarnation import (
    STOP_REPLICA,
    back_without_delay,
    epoch_of,
    held,
    met,
    reregistered,
    slow_watches,
    victim,
)


class LateTarget(BounceTarget, CanHinderMessages, CanShapeLinks, Protocol):
    """What this fault asks of a cluster."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


@asynccontextmanager
async def inject(cluster: LateTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the request was held until its receiver was gone, and repeated. Heal: the next incarnation hosts everything."""
    broker, controller = victim(cluster, node)
    former, epoch = incarnation(cluster, broker), epoch_of(cluster, broker)
    rule = cluster.add_rule(held(STOP_REPLICA, controller, broker))
    async with slow_watches(cluster, controller) as late:
        effect = Effect(broker, late.proof)
        effect.add_proof("bounce", await bounced(cluster, broker, "stop"))
        effect.add_proof("held", await met(cluster, rule))
        effect.add_proof("life", await reregistered(cluster, broker, epoch))
        yield effect
    cluster.remove_rule(rule)
    effect.heal = await back_without_delay(cluster, broker, former, late)


FAULT: Final = Fault(options=Options, inject=inject, modes=(ZOOKEEPER,))
