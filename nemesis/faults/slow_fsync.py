"""Let every fsync of a running node take longer; heal by letting it be quick again."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.clusters.capabilities import DiskTrouble, Hurtable
from tribunal.nemesis.api import AsyncGenerator, Effect, all_back, joined

NEEDS: Final = frozenset({"trouble_disk"})


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much longer."""

    delay_ms: int = 200


@asynccontextmanager
async def fault(cluster: Hurtable, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Bite: the node says that it was held up by its disk. Heal: it no longer is, and everybody is back."""
    effect = Effect(node, await cluster.trouble_disk(node, DiskTrouble(fsync_delay_ms=options.delay_ms)))
    yield effect
    mended = await cluster.trouble_disk(node, DiskTrouble())
    effect.heal = joined(mended, "service", await all_back(cluster))
