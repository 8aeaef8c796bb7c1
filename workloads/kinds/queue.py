"""Queues: elements are put in, each of them once, taken out and acknowledged; what nobody acknowledged comes again. Nothing is lost, made up or given out again."""

import asyncio
from functools import partial
from random import Random
from typing import Final

from tribunal.clusters.api import TopicPartition
from tribunal.clusters.objects import ObjectOperation
from tribunal.workloads.api import Count, Percent, Several, Stage, Users
from tribunal.workloads.objects import (
    FINAL_READER,
    RETRY_MS,
    Caller,
    CallPlan,
    WithoutLog,
    call_until_stopped,
    of_objects,
)


class Options(WithoutLog, frozen=True, forbid_unknown_fields=True):
    """What a scenario may say: queues, processes, calls a second of all together, and shares.

    takes:       of calls, those that take an element out.
    forgotten:   of elements taken out, those that are not acknowledged.
    redeliver:   of calls, those that ask for what was taken out and not acknowledged to be given out again.
    """

    queues: Several = 1
    processes: Users = 5
    rate: Count = 80
    takes: Percent = 50
    forgotten: Percent = 15
    redeliver: Percent = 3
    calls_within_ms: Count = 6_000


Plan = CallPlan[Options]


def operations(options: Options) -> frozenset[ObjectOperation]:
    """Return what it calls."""
    return frozenset(
        {ObjectOperation.ENQUEUE, ObjectOperation.DEQUEUE, ObjectOperation.ACKNOWLEDGE, ObjectOperation.REDELIVER}
    )


async def run(stage: Stage, chosen: Plan) -> None:
    """Call until asked to stop."""
    await call_until_stopped(stage, chosen, lambda caller, random: partial(_one, caller, random, chosen.options))


async def _one(caller: Caller, random: Random, options: Options) -> None:
    key = f"q{random.randrange(options.queues)}"
    share = random.randrange(100)
    forgets = random.randrange(100) < options.forgotten
    if share < options.redeliver:
        await caller.call(ObjectOperation.REDELIVER, key)
    elif share < options.redeliver + options.takes:
        taken = await caller.call(ObjectOperation.DEQUEUE, key)
        if isinstance(taken.value, int) and not forgets:
            await caller.call(ObjectOperation.ACKNOWLEDGE, key, taken.value)
    else:
        await caller.call(ObjectOperation.ENQUEUE, key, caller.fresh())


async def read_to_end(stage: Stage, chosen: Plan, timeout_ms: int) -> list[TopicPartition]:
    """Have everything given out again that is not acknowledged, and take and acknowledge until nothing comes; who judges sees which queue did not end."""
    deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
    reader = Caller(stage, FINAL_READER)
    try:
        for number in range(chosen.options.queues):
            key = f"q{number}"
            if await reader.until_ok(ObjectOperation.REDELIVER, key, deadline_s):
                await _emptied(reader, key, deadline_s)
    finally:
        await reader.close()
    return []


async def _emptied(reader: Caller, key: str, deadline_s: float) -> None:
    loop = asyncio.get_running_loop()
    while loop.time() < deadline_s:
        taken = await reader.call(ObjectOperation.DEQUEUE, key)
        if taken.outcome != "ok":
            await asyncio.sleep(RETRY_MS / 1000)
            await reader.until_ok(ObjectOperation.REDELIVER, key, deadline_s)  # it may have taken one
        elif isinstance(taken.value, int):
            await reader.call(ObjectOperation.ACKNOWLEDGE, key, taken.value)
        else:
            return


WORKLOAD: Final = of_objects(Options, Plan, run=run, read_to_end=read_to_end, operations=operations)
