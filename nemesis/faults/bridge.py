"""Cut the cluster into halves that see each other only through the target; heal by mending the links."""

from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec

from tribunal.clusters.api import CutMode
from tribunal.clusters.capabilities import CanCutLinks
from tribunal.nemesis.api import Effect, Fault
from tribunal.nemesis.link_groups import bridge
from tribunal.nemesis.partition import partitioned


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What becomes of the bytes."""

    mode: CutMode = CutMode.HOLD


def inject(cluster: CanCutLinks, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """Leave the target's links uncut."""
    return partitioned(cluster, node, bridge(cluster.spec, node), options.mode)


FAULT: Final = Fault(options=Options, inject=inject)
