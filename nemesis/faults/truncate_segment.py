"""Kill a node and cut a third off the last segment of each of its logs; heal by starting it again."""

from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec

from tribunal.clusters.capabilities import Damage
from tribunal.nemesis.api import Effect, Fault
from tribunal.nemesis.dead_disk import DamageTarget, damaged


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


def inject(cluster: DamageTarget, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """Recovery has to find the damage: what is behind it is lost on this disk."""
    return damaged(cluster, node, Damage.TRUNCATED)


FAULT: Final = Fault(options=Options, inject=inject)
