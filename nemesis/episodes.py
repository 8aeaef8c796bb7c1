"""Episodes of faults one after another for as long as the body lasts; the last one is healed before the end."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from tribunal.clusters.capabilities import CanCutLinks, CanPause, FaultTarget
from tribunal.nemesis.api import Aimed, Effect, Proof, all_back
from tribunal.nemesis.bounce import BounceTarget
from tribunal.nemesis.combine import take, take_losses

POLL_MS: Final = 50


class EpisodeTarget(BounceTarget, CanPause, CanCutLinks, Protocol):
    """A cluster with what episodes are made of everywhere."""


@asynccontextmanager
async def episodes(
    cluster: FaultTarget, node: int, episode: Callable[[int], tuple[Aimed, int]], gap_ms: Callable[[int], int]
) -> AsyncGenerator[Effect]:
    """Go from episode to episode: `episode(n)` gives the n-th fault and its ms, `gap_ms(n)` the rest behind it."""
    effect = Effect(node, Proof(holds=True, facts={"episodes": 0}))
    effect.heal = Proof(holds=True, facts={})
    leave = asyncio.Event()
    going = asyncio.create_task(_go(cluster, effect, episode, gap_ms, leave))
    try:
        yield effect
        leave.set()
        await going
    finally:
        going.cancel()  # where the run was broken off: nobody writes down what it would do yet
    effect.add_heal("service", await all_back(cluster))


async def _go(
    cluster: FaultTarget,
    effect: Effect,
    episode: Callable[[int], tuple[Aimed, int]],
    gap_ms: Callable[[int], int],
    leave: asyncio.Event,
) -> None:
    number = 0
    while number == 0 or not leave.is_set():
        fault, lasts_ms = episode(number)
        one = Effect(effect.node, Proof(holds=False, facts={"missing": "its begin"}))
        try:
            async with fault(cluster) as one:
                take_losses(effect, one)
                await _rest(lasts_ms, leave if number else None)
        finally:
            take(effect, f"episode_{number}", one)  # also of one that does not heal
        number += 1
        effect.proof.facts["episodes"] = number
        await _rest(gap_ms(number), leave)


async def _rest(duration_ms: int, leave: asyncio.Event | None) -> None:
    """Let time pass; not longer than the fault lasts, except in the first episode: one there has to be."""
    for _ in range(max(1, duration_ms // POLL_MS)):
        if leave is not None and leave.is_set():
            return
        await asyncio.sleep(POLL_MS / 1000)
