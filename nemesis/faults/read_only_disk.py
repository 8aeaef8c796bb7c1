"""Make a running node's disk read-only; heal by allowing writes and starting the node again."""

from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec

from tribunal.clusters.capabilities import DiskTrouble
from tribunal.nemesis.api import Effect, Fault
from tribunal.nemesis.refusing_disk import DiskTarget, refusing


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose."""


def inject(cluster: DiskTarget, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """A node that cannot write what it promised has to end."""
    return refusing(cluster, node, DiskTrouble(writes="read-only"))


FAULT: Final = Fault(options=Options, inject=inject)
