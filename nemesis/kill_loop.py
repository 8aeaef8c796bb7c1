"""What part-kill and pause-kill share: while one part is away another node loses power, then the parts change roles.

With three brokers: the target is away while writes go on with the other two; one of these (the victim) loses what it
had not synced; the target comes back, the third goes away, the victim is started: target and victim are a majority
that never saw all of the writes together (Jepsen's NATS tests, where it lost acknowledged writes).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from tribunal.clusters.api import NotServing
from tribunal.clusters.capabilities import CanPowerFail, CanStart
from tribunal.clusters.spec import ClusterSpec
from tribunal.nemesis.api import (
    Aimed,
    ClusterError,
    Effect,
    Proof,
    all_back,
    back_in_service,
    incarnation,
    proven_losses,
)
from tribunal.nemesis.combine import take
from tribunal.nemesis.link_groups import from_target


class PowerTarget(CanPowerFail, CanStart, Protocol):
    """A cluster whose nodes lose power and come back."""


def struck(spec: ClusterSpec, node: int) -> list[int]:
    """Return whose disks may be changed: the target's, and the victim's, which loses power."""
    return from_target(spec.broker_ids, node)[:2]


@asynccontextmanager
async def changing_sides(
    cluster: PowerTarget, node: int, away: Callable[[int], Aimed], phase_ms: int
) -> AsyncGenerator[Effect]:
    """Inject and heal: every single fault took effect, and healed."""
    circle = from_target(cluster.spec.broker_ids, node)
    if len(circle) < 3 or node not in circle:
        raise ClusterError("this needs a broker among at least three as its target")
    victim, other = circle[1], circle[2]
    effect = Effect(node, Proof(holds=True, facts={"away_first": node, "crasher": victim, "away_then": other}))
    former = incarnation(cluster, victim)
    async with away(node)(cluster) as first:
        await asyncio.sleep(phase_ms / 1000)
        begin_ns = cluster.now_ns()
        crashed = await cluster.power_fail(victim)
        effect.add_proof("crash", crashed)
        effect.losses += proven_losses(cluster, victim, crashed, begin_ns)
    down: NotServing | None = None
    async with away(other)(cluster) as second:
        try:
            await cluster.start(victim)
        except NotServing as problem:
            down = problem  # the run goes on without the victim, not without the other
        else:
            yield effect
    if down is not None:
        raise down
    take(effect, "first", first)
    take(effect, "second", second)
    effect.add_heal("crasher", await back_in_service(cluster, victim, former))
    effect.add_heal("service", await all_back(cluster))
