"""Reset a node's connections once; new ones are welcome, so there is nothing to mend."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.clusters.capabilities import Hurtable
from tribunal.nemesis.api import AsyncGenerator, Effect, all_back
from tribunal.nemesis.faults import isolate

NEEDS: Final = frozenset({"reset"})


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"others": "from"}):
    """Connections with whom."""

    others: isolate.Others = "all"


@asynccontextmanager
async def fault(cluster: Hurtable, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Bite: there were connections, and they are gone. Heal: everybody is back."""
    links = isolate.links_of(cluster, node, isolate.Options(others=options.others))
    effect = Effect(node, await cluster.reset(links))
    yield effect
    effect.heal = await all_back(cluster)
