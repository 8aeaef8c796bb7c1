"""Give a node's disk no room any more, by a mount: the kernel says ENOSPC; heal with its old disk."""

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
    return refusing_mount(cluster, node, "full")
