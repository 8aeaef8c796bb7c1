"""Hold messages of one Kafka API until the fault ends; heal by releasing them."""

from contextlib import AbstractAsyncContextManager
from typing import Final

from tribunal.clusters.capabilities import CanHinderMessages, Fate
from tribunal.nemesis.api import Effect, Fault
from tribunal.nemesis.messages import Meant, hindered, refused, rule


class Options(Meant, frozen=True, forbid_unknown_fields=True):
    """Which messages; `overtaking`: later ones pass, as over another connection."""

    overtaking: bool = True


def inject(cluster: CanHinderMessages, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """They arrive late, even if their sender has died or been replaced meanwhile."""
    return hindered(
        cluster, node, rule(node, options, Fate.HELD, overtaking=options.overtaking), must_meet=options.must_meet
    )


FAULT: Final = Fault(options=Options, inject=inject, refused=refused)
