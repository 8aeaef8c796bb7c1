"""Clog a random half of the brokers one by one, then unclog them in another order (FoundationDB's swizzle)."""

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import Final

import msgspec

from tribunal.clusters.api import CutMode, Link
from tribunal.clusters.capabilities import CanCutLinks
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, all_back
from tribunal.nemesis.link_groups import links_of


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long between one and the next, and the seed of all chance (drawn by the plan)."""

    gap_ms: int = 300
    seed: int = 0


@asynccontextmanager
async def inject(cluster: CanCutLinks, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: each cut stops its probes. Heal: all links pass, everybody is back. The target is clogged first."""
    random = Random(f"{options.seed}/swizzle")
    others = [broker for broker in cluster.spec.broker_ids if broker != node]
    clogged = [node, *random.sample(others, len(cluster.spec.broker_ids) // 2)]
    links = {one: links_of(cluster.spec, one, "nodes") for one in clogged}
    effect = Effect(node, await cluster.cut(links[node], CutMode.HOLD))
    for one in clogged[1:]:
        await asyncio.sleep(options.gap_ms / 1000)
        cut_already = {link for before in clogged[: clogged.index(one)] for link in links[before]}
        effect.add_proof(f"clog_{one}", await cluster.cut(_without(links[one], cut_already), CutMode.HOLD))
    yield effect
    order = random.sample(clogged, len(clogged))
    for index, one in enumerate(order):
        still = {link for later in order[index + 1 :] for link in links[later]}
        effect.add_heal(f"unclog_{one}", await cluster.heal(_without(links[one], still)))
        await asyncio.sleep(options.gap_ms / 1000)
    effect.add_heal("service", await all_back(cluster))


def _without(links: list[Link], others: set[Link]) -> list[Link]:
    return [link for link in links if link not in others]


FAULT: Final = Fault(options=Options, inject=inject)
