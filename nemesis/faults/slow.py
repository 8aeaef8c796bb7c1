"""Make a node's links slow, with jitter; heal by making them fast again."""

from contextlib import AbstractAsyncContextManager
from typing import Annotated, Final

import msgspec

from tribunal.clusters.capabilities import CanShapeLinks, Shape
from tribunal.nemesis.api import Effect, Fault
from tribunal.nemesis.link_groups import Others
from tribunal.nemesis.link_shape import shaped


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"others": "from"}):
    """Links to whom, and how late bytes come each way."""

    others: Others = "all"
    delay_ms: Annotated[int, msgspec.Meta(ge=0)] = 100
    jitter_ms: Annotated[int, msgspec.Meta(ge=0)] = 50

    def __post_init__(self) -> None:
        """Refuse what hinders nothing: it would pass for a fault that took effect."""
        if not self.delay_ms and not self.jitter_ms:
            raise ValueError("delay_ms and jitter_ms are 0: nothing would be late")


def inject(cluster: CanShapeLinks, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """Delay both directions."""
    return shaped(cluster, node, options.others, Shape(delay_ms=options.delay_ms, jitter_ms=options.jitter_ms))


FAULT: Final = Fault(options=Options, inject=inject)
