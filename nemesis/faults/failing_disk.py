"""Let a running node's disk fail: it answers writes, syncs or reads with EIO; heal with a disk that works, and by starting the node again."""

from contextlib import AbstractAsyncContextManager
from typing import Final, Literal, Protocol

import msgspec

from tribunal.clusters.capabilities import CanFailDisk
from tribunal.nemesis.api import Effect, Fault
from tribunal.nemesis.bounce import KillTarget
from tribunal.nemesis.refusing_disk import refused


class FailingTarget(KillTarget, CanFailDisk, Protocol):
    """What this fault asks of a cluster."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which requests fail."""

    requests: Literal["writes", "syncs", "reads"] = "writes"


def inject(cluster: FailingTarget, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """A node may end, wait, or go on without its disk; what it acknowledged has to be there all the same."""
    return refused(
        cluster,
        node,
        f"its disk fails at {options.requests}",
        lambda: cluster.fail_disk(node, options.requests),
        lambda: cluster.fail_disk(node, "nothing"),
    )


FAULT: Final = Fault(options=Options, inject=inject)
