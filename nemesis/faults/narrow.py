"""Give a node's links little bandwidth; heal by lifting the bound."""

from contextlib import AbstractAsyncContextManager
from typing import Annotated, Final

import msgspec

from tribunal.clusters.capabilities import CanShapeLinks, Shape
from tribunal.nemesis.api import Effect, Fault
from tribunal.nemesis.link_groups import Others
from tribunal.nemesis.link_shape import shaped


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"others": "from"}):
    """Links to whom, and how many bytes a second each carries."""

    others: Others = "all"
    bytes_per_s: Annotated[int, msgspec.Meta(ge=1)] = 375_000  # 3000 kbit/s, as in Kafka's round-trip fault test


def inject(cluster: CanShapeLinks, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """Bound each link by itself."""
    return shaped(cluster, node, options.others, Shape(bytes_per_s=options.bytes_per_s))


FAULT: Final = Fault(options=Options, inject=inject)
