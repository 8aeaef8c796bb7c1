"""Faults made of faults: functions that take faults with their targets and return one.

They are `Aimed`: each has its target and options already (`aimed`); entering it with a cluster injects, leaving heals. What
happens together is healed together too: a heal may have to wait for what another one mends.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random

from tribunal.clusters.endings import failure_of
from tribunal.nemesis.api import Aimed, Asked, Effect, Fault, FaultTarget, Options, Proof


def aimed(fault: Fault[Asked, Options], node: int, options: Options) -> Aimed:
    """Return a fault with its target and options; its proof names it."""

    @asynccontextmanager
    async def named(cluster: FaultTarget) -> AsyncGenerator[Effect]:
        async with fault.aimed(node, options)(cluster) as effect:
            effect.proof.facts.setdefault("fault", f"{fault.name} {node}")
            yield effect

    return named


def together(*faults: Aimed) -> Aimed:
    """Inject all at the same time; heal all at the same time."""

    @asynccontextmanager
    async def fault(cluster: FaultTarget) -> AsyncGenerator[Effect]:
        assert faults
        leave = asyncio.Event()
        parts = [_Part(one, cluster, leave) for one in faults]
        try:
            effects = [await part.entered for part in parts]
            total = Effect(effects[0].node, Proof(holds=True, facts={}))
            for effect in effects:
                take_losses(total, effect)
            yield total
            leave.set()
            # Who does not heal keeps no other one from it.
            ended = await asyncio.gather(*(part.task for part in parts), return_exceptions=True)
        finally:
            for part in parts:
                part.task.cancel()  # where the run was broken off: nobody writes down what it would do yet
        for index, effect in enumerate(effects):
            take(total, f"part_{index}", effect)
        if (problem := failure_of(ended)) is not None:
            raise problem

    return fault


def take(total: Effect, name: str, part: Effect) -> None:
    """Let a fault that is over count as a part of another."""
    total.add_proof(name, part.proof)
    total.add_heal(name, part.heal or Proof(holds=False, facts={"missing": "a heal"}))
    take_losses(total, part)


def take_losses(total: Effect, part: Effect) -> None:
    """Let what a part has lost count at once: whatever becomes of its heal, that is gone."""
    total.losses += [loss for loss in part.losses if loss not in total.losses]


def one_of(random: Random, *faults: Aimed) -> Aimed:
    """Draw one."""
    return random.choice(faults)


def with_odds(random: Random, odds: float, fault: Aimed) -> Aimed:
    """Inject with these odds, else do nothing."""
    return fault if random.random() < odds else idle


@asynccontextmanager
async def idle(cluster: FaultTarget) -> AsyncGenerator[Effect]:
    """Do nothing: a time without faults is a part of a plan too."""
    effect = Effect(0, Proof(holds=True, facts={"fault": "idle"}))
    yield effect
    effect.heal = Proof(holds=True, facts={})


def held_for(lasts_ms: int, fault: Aimed) -> Aimed:
    """Inject, hold, heal, all before the body begins: for what is followed by something else."""

    @asynccontextmanager
    async def held(cluster: FaultTarget) -> AsyncGenerator[Effect]:
        async with fault(cluster) as effect:
            await asyncio.sleep(lasts_ms / 1000)
        yield effect

    return held


class _Part:
    """One of several faults, in a task of its own."""

    def __init__(self, fault: Aimed, cluster: FaultTarget, leave: asyncio.Event) -> None:
        self.entered: asyncio.Future[Effect] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._live(fault, cluster, leave))

    async def _live(self, fault: Aimed, cluster: FaultTarget, leave: asyncio.Event) -> None:
        try:
            async with fault(cluster) as effect:
                self.entered.set_result(effect)
                await leave.wait()
        except BaseException as problem:
            if not self.entered.done():
                self.entered.set_exception(problem)
                return
            raise
