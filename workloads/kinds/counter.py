"""Counters: small amounts are added, and counters are read. No read shows less than was acknowledged, or more than was asked for."""

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

AMOUNT_MAX: Final = 9  # different amounts: one that is missing is not made up for by another that counted twice


class Options(WithoutLog, frozen=True, forbid_unknown_fields=True):
    """What a scenario may say: counters, processes, calls a second of all together, and the share of reads."""

    counters: Several = 1
    processes: Users = 5
    rate: Count = 60
    reads: Percent = 20
    calls_within_ms: Count = 6_000


Plan = CallPlan[Options]


def operations(options: Options) -> frozenset[ObjectOperation]:
    """Return what it calls."""
    return frozenset({ObjectOperation.INCREMENT, ObjectOperation.READ_COUNTER})


async def run(stage: Stage, chosen: Plan) -> None:
    """Call until asked to stop."""
    await call_until_stopped(stage, chosen, lambda caller, random: partial(_one, caller, random, chosen.options))


async def _one(caller: Caller, random: Random, options: Options) -> None:
    key = f"c{random.randrange(options.counters)}"
    if random.randrange(100) < options.reads:
        await caller.call(ObjectOperation.READ_COUNTER, key)
    else:
        await caller.call(ObjectOperation.INCREMENT, key, random.randint(1, AMOUNT_MAX))


async def read_to_end(stage: Stage, chosen: Plan, timeout_ms: int) -> list[TopicPartition]:
    """Read every counter."""
    keys = [f"c{number}" for number in range(chosen.options.counters)]
    await read_finally(stage, ObjectOperation.READ_COUNTER, dict.fromkeys(keys), timeout_ms)
    return []


WORKLOAD: Final = of_objects(Options, Plan, run=run, read_to_end=read_to_end, operations=operations)
