"""Sets: elements are added, each of them once, and sets are read whole. What was acknowledged has to stand in the last read."""

from functools import partial
from random import Random
from typing import Final

from tribunal.clusters.api import TopicPartition
from tribunal.clusters.objects import ObjectOperation
from tribunal.workloads.api import Count, Percent, Several, Stage, Users
from tribunal.workloads.objects import (
    Caller,
    CallPlan,
    WithoutLog,
    call_until_stopped,
    of_objects,
    read_finally,
)


class Options(WithoutLog, frozen=True, forbid_unknown_fields=True):
    """What a scenario may say: sets, processes, calls a second of all together, and the share of reads."""

    sets: Several = 1
    processes: Users = 5
    rate: Count = 60
    reads: Percent = 5
    calls_within_ms: Count = 6_000


Plan = CallPlan[Options]


def operations(options: Options) -> frozenset[ObjectOperation]:
    """Return what it calls."""
    return frozenset({ObjectOperation.ADD, ObjectOperation.READ_ALL})


async def run(stage: Stage, chosen: Plan) -> None:
    """Call until asked to stop."""
    await call_until_stopped(stage, chosen, lambda caller, random: partial(_one, caller, random, chosen.options))


async def _one(caller: Caller, random: Random, options: Options) -> None:
    key = f"s{random.randrange(options.sets)}"
    if random.randrange(100) < options.reads:
        await caller.call(ObjectOperation.READ_ALL, key)
    else:
        await caller.call(ObjectOperation.ADD, key, caller.fresh())


async def read_to_end(stage: Stage, chosen: Plan, timeout_ms: int) -> list[TopicPartition]:
    """Read every set."""
    keys = [f"s{number}" for number in range(chosen.options.sets)]
    await read_finally(stage, ObjectOperation.READ_ALL, dict.fromkeys(keys), timeout_ms)
    return []


WORKLOAD: Final = of_objects(Options, Plan, run=run, read_to_end=read_to_end, operations=operations)
