"""Give the load's clients another password while they work: the brokers know it first, the old one is refused from then on.

Who is logged in stays so unless `connections.max.reauth.ms` is set; whoever connects or logs in again needs the new one.
"""

import asyncio
from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanChangePasswords, CanResetLinks
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, all_back, joined
from tribunal.nemesis.link_groups import links_of
from tribunal.nemesis.load import load_goes_on

REAUTHENTICATION: Final = "connections.max.reauth.ms"


class RotationTarget(CanChangePasswords, CanResetLinks, Protocol):
    """A cluster whose load logs in by a password, over links."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether all connections of clients are reset, so that they log in anew; else the brokers' `connections.max.reauth.ms` asks them to."""

    reset: bool = True


@asynccontextmanager
async def inject(cluster: RotationTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: brokers take the new password and refuse the old. Heal: there is nothing to mend; clients are answered by now, and everybody is back."""
    before, began_ns = cluster.answered_counts(), cluster.now_ns()
    effect = Effect(node, await cluster.change_password())
    if options.reset:
        links = [link for broker in cluster.spec.broker_ids for link in links_of(cluster.spec, broker, "clients")]
        effect.add_proof("reset", await cluster.reset(links))
    yield effect
    if not options.reset:
        # Until then who logged in by the old password goes on, and would pass for somebody who knows the new one.
        left_ms = cluster.spec.timeout_ms(REAUTHENTICATION) - (cluster.now_ns() - began_ns) // 1_000_000
        await asyncio.sleep(max(0, left_ms) / 1000)
    effect.heal = joined(await load_goes_on(cluster, before), "service", await all_back(cluster))


FAULT: Final = Fault(options=Options, inject=inject)
