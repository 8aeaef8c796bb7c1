"""Delay everything from ZooKeeper to a broker; heal by mending the links. Aimed at the controller, broker changes come late."""

from contextlib import asynccontextmanager
from typing import Annotated, Final

import msgspec

from tribunal.clusters.capabilities import CanShapeLinks, Shape
from tribunal.clusters.spec import ZOOKEEPER
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, all_back
from tribunal.nemesis.link_groups import from_ensemble


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How late what ZooKeeper says comes; requests to it are as fast as ever."""

    delay_ms: Annotated[int, msgspec.Meta(ge=1)] = 450


@asynccontextmanager
async def inject(cluster: CanShapeLinks, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the links from all servers of the ensemble are slow. Heal: they are not, and everybody is back."""
    links = from_ensemble(cluster.spec, node)
    effect = Effect(node, await cluster.shape(links, Shape(delay_ms=options.delay_ms)))
    yield effect
    effect.heal = await cluster.shape(links, Shape())
    effect.add_heal("service", await all_back(cluster))


FAULT: Final = Fault(options=Options, inject=inject, modes=(ZOOKEEPER,))
