"""Let requests of one Kafka API arrive twice; heal by doubling no more."""

from contextlib import AbstractAsyncContextManager
from typing import Final

from tribunal.clusters.capabilities import CanHinderMessages, Fate
from tribunal.nemesis.api import Effect, Fault
from tribunal.nemesis.messages import Meant, hindered, refused, rule


class Options(Meant, frozen=True, forbid_unknown_fields=True):
    """Which messages."""


def inject(cluster: CanHinderMessages, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """Answers to the second copy reach nobody."""
    return hindered(cluster, node, rule(node, options, Fate.DUPLICATED), must_meet=options.must_meet)


FAULT: Final = Fault(options=Options, inject=inject, refused=refused)
