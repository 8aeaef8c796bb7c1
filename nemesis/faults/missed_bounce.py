"""Restart a broker in good order before the controller knows that it went (KIP-380, fourth assumption)."""

from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanShapeLinks
from tribunal.clusters.spec import ZOOKEEPER
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, incarnation
from tribunal.nemesis.bounce import BounceTarget, bounced
from tribunal.nemesis.stale_incarnation import back_without_delay, epoch_of, reregistered, slow_watches, victim


class MissedTarget(BounceTarget, CanShapeLinks, Protocol):
    """What this fault asks of a cluster."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


@asynccontextmanager
async def inject(cluster: MissedTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: it is registered anew while everything reaches the controller late. Heal: it hosts what it hosted, in its ISRs."""
    broker, controller = victim(cluster, node)
    former, epoch = incarnation(cluster, broker), epoch_of(cluster, broker)
    async with slow_watches(cluster, controller) as late:
        effect = Effect(broker, late.proof)
        effect.add_proof("bounce", await bounced(cluster, broker, "stop"))
        effect.add_proof("life", await reregistered(cluster, broker, epoch))
        yield effect
    effect.heal = await back_without_delay(cluster, broker, former, late)


FAULT: Final = Fault(options=Options, inject=inject, modes=(ZOOKEEPER,))
