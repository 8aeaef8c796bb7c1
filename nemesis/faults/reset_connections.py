"""Reset a node's connections once; new ones are welcome, so there is nothing to mend."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.clusters.capabilities import CanResetLinks
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, all_back
from tribunal.nemesis.link_groups import Others, links_of


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"others": "from"}):
    """Connections with whom."""

    others: Others = "all"


@asynccontextmanager
async def inject(cluster: CanResetLinks, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: there were connections, and they are gone. Heal: everybody is back."""
    links = links_of(cluster.spec, node, options.others)
    effect = Effect(node, await cluster.reset(links))
    yield effect
    effect.heal = await all_back(cluster)


FAULT: Final = Fault(options=Options, inject=inject)
