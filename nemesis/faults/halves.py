"""Cut the cluster into halves, the target in the smaller one; heal by mending the links."""

from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec

from tribunal.clusters.api import CutMode
from tribunal.clusters.capabilities import CanCutLinks
from tribunal.nemesis.api import Effect, Fault
from tribunal.nemesis.link_groups import between, halves
from tribunal.nemesis.partition import partitioned


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What becomes of the bytes."""

    mode: CutMode = CutMode.HOLD


def inject(cluster: CanCutLinks, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """Halve brokers and controllers each for themselves."""
    return partitioned(cluster, node, between(*halves(cluster.spec, node)), options.mode)


FAULT: Final = Fault(options=Options, inject=inject)
