"""Make a running node's disk read-only; heal by allowing writes and starting the node again."""

from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec

from tribunal.clusters.capabilities import DiskTrouble, Hurtable
from tribunal.nemesis.api import Effect
from tribunal.nemesis.refusing_disk import refusing

NEEDS: Final = frozenset({"trouble_disk", "start"})


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


def fault(cluster: Hurtable, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """A node that cannot write what it promised has to end."""
    return refusing(cluster, node, DiskTrouble(writes="read-only"))
