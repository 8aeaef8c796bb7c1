"""Let a running node's wall clock jump to and fro without a rest; heal by setting it right."""

import asyncio
from contextlib import asynccontextmanager
from typing import Annotated, Final

import msgspec

from tribunal.clusters.capabilities import CanSetClock, ClockSkew
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, all_back, joined


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far, and how often."""

    offset_ms: int = 30_000
    period_ms: Annotated[int, msgspec.Meta(ge=1)] = 100

    def __post_init__(self) -> None:
        """Refuse what leaves the clock as it is: it would pass for a fault that took effect."""
        if not self.offset_ms:
            raise ValueError("offset_ms is 0: the clock would be right")


@asynccontextmanager
async def inject(cluster: CanSetClock, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the first jump is proven. Heal: the clock reads as the machine's."""
    effect = Effect(node, await cluster.set_clock(node, ClockSkew(offset_ms=options.offset_ms)))
    strobe = asyncio.ensure_future(_strobe(cluster, node, options, effect))
    try:
        yield effect
    finally:
        strobe.cancel()
    await asyncio.wait([strobe])
    right = await cluster.set_clock(node, ClockSkew())
    effect.heal = joined(right, "service", await all_back(cluster))
    if not strobe.cancelled():
        strobe.result()  # it ends by itself only where a jump failed: the clock had a rest, which is another fault


async def _strobe(cluster: CanSetClock, node: int, options: Options, effect: Effect) -> None:
    sign, count = -1, 1
    while True:
        await asyncio.sleep(options.period_ms / 1000)
        await cluster.set_clock(node, ClockSkew(offset_ms=sign * options.offset_ms))
        sign, count = -sign, count + 1
        effect.proof.facts["jumps"] = count


FAULT: Final = Fault(options=Options, inject=inject)
