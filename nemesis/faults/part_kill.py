"""Cut one broker off while another loses power, then cut off the third and bring the crashed one back."""

from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanCutLinks
from tribunal.nemesis.api import Effect, Fault
from tribunal.nemesis.combine import aimed
from tribunal.nemesis.faults import isolate
from tribunal.nemesis.kill_loop import PowerTarget, changing_sides, struck


class PartTarget(PowerTarget, CanCutLinks, Protocol):
    """What this fault asks of a cluster."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the first part is away."""

    phase_ms: int = 2_000


def inject(cluster: PartTarget, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """The target is away first; the next brokers by id are the one that loses power and the one that is away then."""
    return changing_sides(
        cluster, node, lambda one: aimed(isolate.FAULT, one, isolate.Options(others="nodes")), options.phase_ms
    )


FAULT: Final = Fault(options=Options, inject=inject, struck=struck)
