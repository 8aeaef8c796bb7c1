"""Let a running node's wall clock jump; heal by setting it right."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.clusters.capabilities import CanSetClock, ClockSkew
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, all_back, joined


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far; negative: back."""

    offset_ms: int = 60_000

    def __post_init__(self) -> None:
        """Refuse what leaves the clock as it is: it would pass for a fault that took effect."""
        if not self.offset_ms:
            raise ValueError("offset_ms is 0: the clock would be right")


@asynccontextmanager
async def inject(cluster: CanSetClock, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the node's clock port reads otherwise than the machine's clock. Heal: it reads the same."""
    effect = Effect(node, await cluster.set_clock(node, ClockSkew(offset_ms=options.offset_ms)))
    yield effect
    right = await cluster.set_clock(node, ClockSkew())
    effect.heal = joined(right, "service", await all_back(cluster))


FAULT: Final = Fault(options=Options, inject=inject)
