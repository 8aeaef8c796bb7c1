"""Faults made of faults: functions that take faults with their targets and return one.

Here a `Fault` has its target and options already (`aimed`); entering it with a cluster injects, leaving heals. What
happens together is healed together too: a heal may have to wait for what another one mends.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from types import ModuleType
from typing import Any

from tribunal.nemesis.api import Cluster, Effect, Proof

Fault = Callable[[Cluster], AbstractAsyncContextManager[Effect]]


def aimed(module: ModuleType, node: int, **options: Any) -> Fault:
    """Return a fault of a module with its target and options."""
    name = module.__name__.rpartition(".")[2].replace("_", "-")

    @asynccontextmanager
    async def fault(cluster: Cluster) -> AsyncGenerator[Effect]:
        async with module.fault(cluster, node, module.Options(**options)) as effect:
            effect.proof.facts.setdefault("fault", f"{name} {node}")
            yield effect

    return fault


def together(*faults: Fault) -> Fault:
    """Inject all at the same time; heal all at the same time."""

    @asynccontextmanager
    async def fault(cluster: Cluster) -> AsyncGenerator[Effect]:
        assert faults
        leave = asyncio.Event()
        parts = [_Part(one, cluster, leave) for one in faults]
        effects = [await part.entered for part in parts]
        whole = Effect(effects[0].node, Proof(holds=True, facts={}))
        yield whole
        leave.set()
        await asyncio.gather(*(part.task for part in parts))
        for index, effect in enumerate(effects):
            take(whole, f"part_{index}", effect)

    return fault


def take(whole: Effect, name: str, part: Effect) -> None:
    """Let a fault that is over count as a part of another."""
    whole.add_proof(name, part.proof)
    whole.add_heal(name, part.heal or Proof(holds=False, facts={"missing": "a heal"}))
    whole.losses += part.losses
    whole.lost_everything = whole.lost_everything or part.lost_everything


def one_of(random: Random, *faults: Fault) -> Fault:
    """Draw one."""
    return random.choice(faults)


def with_odds(random: Random, odds: float, fault: Fault) -> Fault:
    """Inject with these odds, else do nothing."""
    return fault if random.random() < odds else idle


@asynccontextmanager
async def idle(cluster: Cluster) -> AsyncGenerator[Effect]:
    """Do nothing: a time without faults is a part of a plan too."""
    effect = Effect(0, Proof(holds=True, facts={"fault": "idle"}))
    yield effect
    effect.heal = Proof(holds=True, facts={})


def held_for(lasts_ms: int, fault: Fault) -> Fault:
    """Inject, hold, heal, all before the body begins: for what is followed by something else."""

    @asynccontextmanager
    async def whole(cluster: Cluster) -> AsyncGenerator[Effect]:
        async with fault(cluster) as effect:
            await asyncio.sleep(lasts_ms / 1000)
        yield effect

    return whole


class _Part:
    """One of several faults, in a task of its own."""

    def __init__(self, fault: Fault, cluster: Cluster, leave: asyncio.Event) -> None:
        self.entered: asyncio.Future[Effect] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._live(fault, cluster, leave))

    async def _live(self, fault: Fault, cluster: Cluster, leave: asyncio.Event) -> None:
        try:
            async with fault(cluster) as effect:
                self.entered.set_result(effect)
                await leave.wait()
        except BaseException as problem:
            if not self.entered.done():
                self.entered.set_exception(problem)
                return
            raise
