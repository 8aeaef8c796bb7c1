"""Take a node's power away while it writes: a part of what it had not synced is on its disk; heal by starting it again."""

from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanLosePart, CanStart, PartKept, PartLost
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, back_in_service, incarnation
from tribunal.nemesis.file_patterns import must_be_below


class LossTarget(CanLosePart, CanStart, Protocol):
    """What this fault asks of a cluster."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which part had reached the disk (each file's first bytes, some of its pages, nothing), of which files (of others all), and the seed of chance (drawn by the plan)."""

    kept: PartKept = "torn"
    files: str = "**/*"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what leads out of the node's folder, or nowhere."""
        must_be_below(self.files)


@asynccontextmanager
async def inject(cluster: LossTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the process is gone and its files are between their last sync and their end. Heal: a new incarnation in service."""
    former = incarnation(cluster, node)
    effect = Effect(
        node, await cluster.lose_part(node, PartLost(files=options.files, kept=options.kept, seed=options.seed))
    )
    yield effect
    await cluster.start(node)
    effect.heal = await back_in_service(cluster, node, former)


FAULT: Final = Fault(options=Options, inject=inject)
