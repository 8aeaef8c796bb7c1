"""Let a broker leave without hearing StopReplica, so that it is sent to the next life (KIP-380, first assumption)."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.clusters.capabilities import Hurtable
from tribunal.nemesis.api import AsyncGenerator, Effect, back_in_service, incarnation
from tribunal.nemesis.bounce import bounced
from tribunal.nemesis.stale_incarnation import STOP_REPLICA, epoch_of, hears_late, held, met, new_life, victim

NEEDS: Final = frozenset({"zookeeper", "add_rule", "shape", "stop", "start"})


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


@asynccontextmanager
async def fault(cluster: Hurtable, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Bite: the request was held until its receiver was gone, and repeated. Heal: the next life hosts everything."""
    broker, controller = victim(cluster, node)
    former, epoch = incarnation(cluster, broker), epoch_of(cluster, broker)
    rule = cluster.add_rule(held(STOP_REPLICA, controller, broker))
    async with hears_late(cluster, controller) as late:
        effect = Effect(broker, late)
        effect.add_proof("bounce", await bounced(cluster, broker, "stop"))
        effect.add_proof("held", await met(cluster, rule))
        effect.add_proof("life", await new_life(cluster, broker, epoch))
        yield effect
    cluster.remove_rule(rule)
    effect.heal = await back_in_service(cluster, broker, former)
