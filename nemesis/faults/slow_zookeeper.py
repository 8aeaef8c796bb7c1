"""Let a broker hear late from ZooKeeper; heal by letting it hear in time. Aimed at the controller, broker changes come late."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.clusters.api import Link
from tribunal.clusters.capabilities import Hurtable, Shape
from tribunal.nemesis.api import AsyncGenerator, Effect, all_back

NEEDS: Final = frozenset({"zookeeper", "shape"})


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How late what ZooKeeper says comes; requests to it are as fast as ever."""

    delay_ms: int = 450


@asynccontextmanager
async def fault(cluster: Hurtable, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Bite: the links from all servers of the ensemble are slow. Heal: they are not, and everybody is back."""
    links = from_ensemble(cluster, node)
    effect = Effect(node, await cluster.shape(links, Shape(delay_ms=options.delay_ms)))
    yield effect
    effect.heal = await cluster.shape(links, Shape())
    effect.add_heal("service", await all_back(cluster))


def from_ensemble(cluster: Hurtable, node: int) -> list[Link]:
    """Return the links by which a broker hears from ZooKeeper."""
    return [Link(server, node) for server in cluster.spec.controller_ids]
