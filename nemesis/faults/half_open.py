"""Close connections at the far end only, so that a node goes on taking them for open; heal by resetting them."""

from contextlib import asynccontextmanager
from typing import Final, Literal

import msgspec

from tribunal.clusters.capabilities import CanHalfOpenLinks
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, all_back, joined
from tribunal.nemesis.link_groups import Direction, Others, links_of


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"others": "from"}):
    """Connections with whom, and who takes them for open: the node or the others."""

    others: Others = "all"
    believer: Literal["node", "others"] = "node"


@asynccontextmanager
async def inject(cluster: CanHalfOpenLinks, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: some connections have one end only. Heal: probes pass over new ones, everybody is back."""
    direction: Direction = "out" if options.believer == "node" else "in"
    links = links_of(cluster.spec, node, options.others, direction)
    effect = Effect(node, await cluster.half_open(links))
    yield effect
    closed = await cluster.close_half_open(links)
    effect.heal = joined(closed, "service", await all_back(cluster))


FAULT: Final = Fault(options=Options, inject=inject)
