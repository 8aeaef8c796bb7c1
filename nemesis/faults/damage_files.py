"""Kill a node and damage some of its files, which ones a pattern says; heal by starting it again."""

from contextlib import asynccontextmanager
from typing import Annotated, Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanDamageFiles, FileDamage, HowDamaged
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, back_in_service, incarnation
from tribunal.nemesis.bounce import KillTarget
from tribunal.nemesis.file_patterns import must_be_below


class DamageTarget(KillTarget, CanDamageFiles, Protocol):
    """What this fault asks of a cluster."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which files (a pattern below the node's data folder), what becomes of them, how many; and the seed of chance (drawn by the plan)."""

    files: str = "**/*"
    how: HowDamaged = "bit-flip"
    most: Annotated[int, msgspec.Meta(ge=1)] = 1
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what leads out of the node's folder, or nowhere."""
        must_be_below(self.files)


@asynccontextmanager
async def inject(cluster: DamageTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the process is gone and its files are other ones. Heal: a new incarnation in service."""
    former = incarnation(cluster, node)
    effect = Effect(node, await cluster.kill(node))
    damage = FileDamage(files=options.files, how=options.how, most=options.most, seed=options.seed)
    effect.add_proof("damage", await cluster.damage_files(node, damage))
    yield effect
    await cluster.start(node)
    effect.heal = await back_in_service(cluster, node, former)


FAULT: Final = Fault(options=Options, inject=inject)
