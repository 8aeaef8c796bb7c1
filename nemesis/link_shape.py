"""What all faults share that make links worse without cutting them."""

from contextlib import asynccontextmanager

from tribunal.clusters.capabilities import CanShapeLinks, Shape
from tribunal.nemesis.api import AsyncGenerator, Effect, all_back, joined
from tribunal.nemesis.link_groups import Others, links_of


@asynccontextmanager
async def shaped(cluster: CanShapeLinks, node: int, others: Others, shape: Shape) -> AsyncGenerator[Effect]:
    """Inject: timed probes are late by what the shape says. Heal: they are not, and everybody is back."""
    links = links_of(cluster.spec, node, others)
    effect = Effect(node, await cluster.shape(links, shape))
    yield effect
    mended = await cluster.shape(links, Shape())
    effect.heal = joined(mended, "service", await all_back(cluster))
