"""Put another certificate into a running node's file, as who renews certificates does; there is nothing to mend."""

from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanRenewCertificates, CanResetLinks
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, all_back, joined
from tribunal.nemesis.link_groups import links_of
from tribunal.nemesis.load import load_goes_on


class RenewalTarget(CanRenewCertificates, CanResetLinks, Protocol):
    """A cluster whose nodes show certificates, over links."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the connections to the node are reset, so that all who come again are shown the new certificate."""

    reset: bool = True


@asynccontextmanager
async def inject(cluster: RenewalTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: new connections are shown the new certificate, and take it. Heal: clients are answered by now, and everybody is back."""
    before = cluster.answered_counts()
    effect = Effect(node, await cluster.renew_certificate(node, is_expired=False))
    if options.reset:
        effect.add_proof("reset", await cluster.reset(links_of(cluster.spec, node, "all", "in")))
    yield effect
    effect.heal = joined(await load_goes_on(cluster, before), "service", await all_back(cluster))


FAULT: Final = Fault(options=Options, inject=inject)
