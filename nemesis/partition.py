"""What all partitions share: cut, stay, mend, and wait until everybody is back."""

from collections.abc import Sequence
from contextlib import asynccontextmanager

from tribunal.clusters.api import CutMode, Link
from tribunal.clusters.capabilities import CanCutLinks
from tribunal.nemesis.api import AsyncGenerator, Effect, all_back, joined


@asynccontextmanager
async def partitioned(cluster: CanCutLinks, node: int, links: Sequence[Link], mode: CutMode) -> AsyncGenerator[Effect]:
    """Inject: probes stop passing. Heal: they pass, every broker serves, every ISR is full."""
    effect = Effect(node, await cluster.cut(links, mode))
    yield effect
    mended = await cluster.heal(links)
    effect.heal = joined(mended, "service", await all_back(cluster))
