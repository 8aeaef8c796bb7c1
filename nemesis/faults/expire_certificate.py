"""Let a running node's certificate expire: whoever comes anew refuses it. Heal by renewing it, without a restart.

The node itself connects to others as before: a broker goes on with its heartbeats and leads, but nobody can write to it or follow it.
"""

from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanRenewCertificates, CanResetLinks
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, all_back, joined
from tribunal.nemesis.link_groups import links_of
from tribunal.nemesis.load import load_goes_on


class ExpiryTarget(CanRenewCertificates, CanResetLinks, Protocol):
    """A cluster whose nodes show certificates, over links."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the connections to the node are reset, so that nobody goes on over one that was opened before."""

    reset: bool = True


@asynccontextmanager
async def inject(cluster: ExpiryTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the node shows an expired certificate, which is refused. Heal: it shows one that is taken, and everybody is back."""
    before = cluster.answered_counts()
    effect = Effect(node, await cluster.renew_certificate(node, is_expired=True))
    if options.reset:
        effect.add_proof("reset", await cluster.reset(links_of(cluster.spec, node, "all", "in")))
    yield effect
    renewed = await cluster.renew_certificate(node, is_expired=False)
    effect.heal = joined(renewed, "service", await all_back(cluster))
    effect.add_heal("load", await load_goes_on(cluster, before))


FAULT: Final = Fault(options=Options, inject=inject)
