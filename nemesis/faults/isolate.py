"""Cut a node off from others, both ways or one way; heal by mending the links."""

from contextlib import asynccontextmanager
from typing import Final, Literal

import msgspec

from tribunal.clusters.api import CLIENTS, CutMode, Link
from tribunal.nemesis.api import (
    AsyncGenerator,
    Cluster,
    Effect,
    Proof,
    back_in_service,
    came_true,
    fenced,
    joined,
    memberships,
)

NEEDS: Final = frozenset({"cut"})
GRACE_MS: Final = 3_000

Others = Literal["all", "nodes", "brokers", "controllers", "clients"]


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"others": "from"}):
    """From whom, in which directions, and what becomes of the bytes."""

    others: Others = "all"
    direction: Literal["both", "in", "out"] = "both"
    mode: CutMode = CutMode.HOLD


def links_of(cluster: Cluster, node: int, options: Options) -> list[Link]:
    """Return the directed pairs to cut."""
    spec = cluster.spec
    others: dict[Others, tuple[int, ...]] = {
        "all": (*spec.broker_ids, *spec.controller_ids, CLIENTS),
        "nodes": spec.node_ids,
        "brokers": spec.broker_ids,
        "controllers": spec.controller_ids,
        "clients": (CLIENTS,),
    }
    pairs = [other for other in others[options.others] if other != node]
    outward = [Link(node, other) for other in pairs if options.direction != "in"]
    inward = [Link(other, node) for other in pairs if options.direction != "out"]
    return outward + inward


@asynccontextmanager
async def fault(cluster: Cluster, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Bite: probes stop passing, and the session expires or an ISR changes. Heal: probes pass, the node is back."""
    links = links_of(cluster, node, options)
    before = memberships(cluster, node)
    effect = Effect(node, await cluster.cut(links, options.mode))
    yield effect
    if options.others != "clients" and node in cluster.spec.broker_ids:
        effect.add_proof("consequence", await _consequence(cluster, node, before))
    mended = await cluster.heal(links)
    effect.heal = joined(mended, "service", await back_in_service(cluster, node, None))


async def _consequence(cluster: Cluster, node: int, before: dict[str, bool]) -> Proof:
    """Wait until the cluster has noticed: who is cut off cannot keep its session or its place in the ISRs."""
    spec = cluster.spec
    longest = max(spec.timeout_ms("broker.session.timeout.ms"), spec.timeout_ms("replica.lag.time.max.ms") * 3 // 2)
    return await came_true(
        lambda: fenced(cluster, node) or memberships(cluster, node) != before,
        timeout_ms=longest + GRACE_MS,
        what="session expired or ISR changed",
        cluster=cluster,
    )
