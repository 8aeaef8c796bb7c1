"""Take a node's power away while it writes: a part of what it had not synced is on its disk; heal by starting it again."""

from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanLosePart, CanStart, PartKept
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, back_in_service, incarnation


class LossTarget(CanLosePart, CanStart, Protocol):
    """What this fault asks of a cluster."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which part had reached the disk (each file's first bytes, or some of its pages), and the seed of chance (drawn by the plan)."""

    kept: PartKept = "torn"
    seed: int = 0


@asynccontextmanager
async def inject(cluster: LossTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the process is gone and its files are between their last sync and their end. Heal: a new incarnation in service."""
    former = incarnation(cluster, node)
    effect = Effect(node, await cluster.lose_part(node, options.kept, options.seed))
    yield effect
    await cluster.start(node)
    effect.heal = await back_in_service(cluster, node, former)


FAULT: Final = Fault(options=Options, inject=inject)
