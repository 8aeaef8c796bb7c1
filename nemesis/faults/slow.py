"""Make a node's links slow, with jitter; heal by making them fast again."""

from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec

from tribunal.clusters.capabilities import Hurtable, Shape
from tribunal.nemesis.api import Effect
from tribunal.nemesis.faults.isolate import Others
from tribunal.nemesis.link_shape import shaped

NEEDS: Final = frozenset({"shape"})


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"others": "from"}):
    """Links to whom, and how late bytes come each way."""

    others: Others = "all"
    delay_ms: int = 100
    jitter_ms: int = 50


def fault(cluster: Hurtable, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """Delay both directions."""
    return shaped(cluster, node, options.others, Shape(delay_ms=options.delay_ms, jitter_ms=options.jitter_ms))
