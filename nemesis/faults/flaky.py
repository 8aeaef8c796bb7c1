"""Lose a share of what a node's links carry: it arrives late, by retransmission; heal by losing nothing."""

from contextlib import AbstractAsyncContextManager
from typing import Annotated, Final

import msgspec

from tribunal.clusters.capabilities import CanShapeLinks, Shape
from tribunal.nemesis.api import Effect, Fault
from tribunal.nemesis.link_groups import Others
from tribunal.nemesis.link_shape import shaped


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"others": "from"}):
    """Links to whom, and which share of the pieces is lost on the first try."""

    others: Others = "all"
    loss: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.2


def inject(cluster: CanShapeLinks, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """Lose in both directions."""
    return shaped(cluster, node, options.others, Shape(loss=options.loss))


FAULT: Final = Fault(options=Options, inject=inject)
