"""Let others forget their connections with a node that goes on believing in them; heal by telling it."""

from contextlib import asynccontextmanager
from typing import Final, Literal

import msgspec

from tribunal.clusters.capabilities import Hurtable
from tribunal.nemesis.api import AsyncGenerator, Effect, all_back, joined
from tribunal.nemesis.faults import isolate

NEEDS: Final = frozenset({"half_open"})


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"others": "from"}):
    """Connections with whom, and who goes on believing: the node or the others."""

    others: isolate.Others = "all"
    believer: Literal["node", "others"] = "node"


@asynccontextmanager
async def fault(cluster: Hurtable, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Bite: some connections have one end only. Heal: probes pass over new ones, everybody is back."""
    direction: Literal["in", "out"] = "out" if options.believer == "node" else "in"
    links = isolate.links_of(cluster, node, isolate.Options(others=options.others, direction=direction))
    effect = Effect(node, await cluster.half_open(links))
    yield effect
    told = await cluster.close_half_open(links)
    effect.heal = joined(told, "service", await all_back(cluster))
