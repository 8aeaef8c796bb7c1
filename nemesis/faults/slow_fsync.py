"""Let every fsync of a running node take longer; heal by letting it be quick again."""

from contextlib import asynccontextmanager
from typing import Annotated, Final

import msgspec

from tribunal.clusters.capabilities import CanTroubleDisk, DiskTrouble
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, all_back, joined


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much longer."""

    delay_ms: Annotated[int, msgspec.Meta(ge=1)] = 200


@asynccontextmanager
async def inject(cluster: CanTroubleDisk, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the node says that it was held up by its disk. Heal: it no longer is, and everybody is back."""
    effect = Effect(node, await cluster.trouble_disk(node, DiskTrouble(fsync_delay_ms=options.delay_ms)))
    yield effect
    mended = await cluster.trouble_disk(node, DiskTrouble())
    effect.heal = joined(mended, "service", await all_back(cluster))


FAULT: Final = Fault(options=Options, inject=inject)
