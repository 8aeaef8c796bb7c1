"""Give the load's clients another password while they work: the brokers know it first, the old one is refused from then on.

Who is logged in stays so unless `connections.max.reauth.ms` is set; whoever connects or logs in again needs the new one.
"""

from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanChangePasswords, CanResetLinks
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, all_back
from tribunal.nemesis.link_groups import links_of


class RotationTarget(CanChangePasswords, CanResetLinks, Protocol):
    """A cluster whose load logs in by a password, over links."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the node's connections with clients are reset, so that all of these log in anew."""

    reset: bool = True


@asynccontextmanager
async def inject(cluster: RotationTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: brokers take the new password and refuse the old. Heal: there is nothing to mend, and everybody is back."""
    effect = Effect(node, await cluster.change_password())
    if options.reset:
        effect.add_proof("reset", await cluster.reset(links_of(cluster.spec, node, "clients")))
    yield effect
    effect.heal = await all_back(cluster)


FAULT: Final = Fault(options=Options, inject=inject)
