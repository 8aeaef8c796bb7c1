"""Mount a node's disk read-only: the kernel says EROFS; heal by mounting it as before."""

from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec

from tribunal.clusters.capabilities import Hurtable
from tribunal.nemesis.api import Effect
from tribunal.nemesis.refusing_mount import refusing_mount

NEEDS: Final = frozenset({"mount_disk", "start"})


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


def fault(cluster: Hurtable, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """A node that cannot write what it promised has to end."""
    return refusing_mount(cluster, node, "read-only")
