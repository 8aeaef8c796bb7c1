"""Give a node's disk no room any more, by a mount: the kernel says ENOSPC; heal with its old disk."""

from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec

from tribunal.nemesis.api import Effect, Fault
from tribunal.nemesis.refusing_mount import MountTarget, refusing_mount


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


def inject(cluster: MountTarget, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """A node that cannot write what it promised has to end."""
    return refusing_mount(cluster, node, "full")


FAULT: Final = Fault(options=Options, inject=inject)
