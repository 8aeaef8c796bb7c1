"""Delay messages of one Kafka API that a node sends or gets; heal by delaying no more."""

from contextlib import AbstractAsyncContextManager
from typing import Final

from tribunal.clusters.capabilities import Fate, Hurtable
from tribunal.nemesis.api import Effect
from tribunal.nemesis.messages import Meant, hindered, rule

NEEDS: Final = frozenset({"add_rule"})


class Options(Meant, frozen=True, forbid_unknown_fields=True):
    """Which messages, and by how much."""

    delay_ms: int = 300


def fault(cluster: Hurtable, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """What comes behind on the same connection waits too."""
    return hindered(cluster, node, rule(node, options, Fate.DELAYED, delay_ms=options.delay_ms))
