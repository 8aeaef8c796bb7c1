"""Delay messages of one Kafka API that a node sends or gets; heal by delaying no more."""

from contextlib import AbstractAsyncContextManager
from typing import Annotated, Final

import msgspec

from tribunal.clusters.capabilities import CanHinderMessages, Fate
from tribunal.nemesis.api import Effect, Fault
from tribunal.nemesis.messages import Meant, hindered, refused, rule


class Options(Meant, frozen=True, forbid_unknown_fields=True):
    """Which messages, and by how much."""

    delay_ms: Annotated[int, msgspec.Meta(ge=1)] = 300


def inject(cluster: CanHinderMessages, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """What comes behind on the same connection waits too."""
    return hindered(
        cluster, node, rule(node, options, Fate.DELAYED, delay_ms=options.delay_ms), must_meet=options.must_meet
    )


FAULT: Final = Fault(options=Options, inject=inject, refused=refused)
