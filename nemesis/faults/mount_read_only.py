"""Mount a node's disk read-only: the kernel says EROFS; heal by mounting it as before."""

from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec

from tribunal.nemesis.api import Effect, Fault
from tribunal.nemesis.refusing_mount import MountTarget, refusing_mount


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


def inject(cluster: MountTarget, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """A node that cannot write what it promised has to end."""
    return refusing_mount(cluster, node, "read-only")


FAULT: Final = Fault(options=Options, inject=inject)
