"""Drop messages of one Kafka API that a node sends or gets; heal by dropping no more."""

from contextlib import AbstractAsyncContextManager
from typing import Final

from tribunal.clusters.capabilities import CanHinderMessages, Fate
from tribunal.nemesis.api import Effect, Fault
from tribunal.nemesis.messages import Meant, hindered, refused, rule


class Options(Meant, frozen=True, forbid_unknown_fields=True):
    """Which messages."""


def inject(cluster: CanHinderMessages, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """The rest of the connection goes on."""
    return hindered(cluster, node, rule(node, options, Fate.DROPPED), must_meet=options.must_meet)


FAULT: Final = Fault(options=Options, inject=inject, refused=refused)
