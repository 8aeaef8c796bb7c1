"""Hold messages of one Kafka API until the fault ends; heal by releasing them."""

from contextlib import AbstractAsyncContextManager
from typing import Final

from tribunal.clusters.capabilities import Fate, Hurtable
from tribunal.nemesis.api import Effect
from tribunal.nemesis.messages import Meant, hindered, rule

NEEDS: Final = frozenset({"add_rule"})


class Options(Meant, frozen=True, forbid_unknown_fields=True):
    """Which messages; `overtaking`: later ones pass, as over another connection."""

    overtaking: bool = True


def fault(cluster: Hurtable, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """They arrive late, even if their sender has died or been replaced meanwhile."""
    return hindered(cluster, node, rule(node, options, Fate.HELD, overtaking=options.overtaking))
