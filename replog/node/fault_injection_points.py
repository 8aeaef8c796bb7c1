"""Named points in the shell where a seed of the simulator may make things late or fail (FoundationDB's "buggify").

At a point only that may happen which the world could do there anyhow, only more often than any fault from outside
would hit it: an answer that comes while something else has happened, a sync that is noticed late, a connection that is
lost just then. So correct code outlives all of them. Real nodes never see one. Each strike is counted as a probe.
"""

import asyncio
from typing import Final

from replog.ports import World

LINGER_MS: Final = (1, 20, 300)


def strikes(world: World, point: str) -> bool:
    """Return whether what is about to happen here is to fail."""
    if not world.entropy.strikes(point):
        return False
    world.journal.probe(f"point {point}")
    return True


async def linger(world: World, point: str) -> None:
    """Rest here for a while, if the seed says so."""
    if strikes(world, point):
        await asyncio.sleep(world.entropy.random("points").choice(LINGER_MS) / 1000)
