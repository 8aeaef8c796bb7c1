"""Registers, each under a key: read, written, and set if they hold what was read before. Judged as linearizable."""

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
    """What a scenario may say: registers, processes, calls a second of all together, and the shares of reads and of cas.

    cas:  0 for a system without compare-and-set.
    """

    keys: Several = 3
    processes: Users = 5
    rate: Count = 60
    reads: Percent = 40
    cas: Percent = 20
    calls_within_ms: Count = 6_000  # how long the last calls may take


Plan = CallPlan[Options]


def operations(options: Options) -> frozenset[ObjectOperation]:
    """Return what it calls."""
    cas = {ObjectOperation.CAS} if options.cas else set()
    return frozenset({ObjectOperation.READ, ObjectOperation.WRITE, *cas})


async def run(stage: Stage, chosen: Plan) -> None:
    """Call until asked to stop."""
    await call_until_stopped(
        stage, chosen, lambda caller, random: partial(_one, caller, random, chosen.options, dict[str, int]())
    )


async def _one(caller: Caller, random: Random, options: Options, known: dict[str, int]) -> None:
    """Make one call; `known` is what this process saw last of each register."""
    key = f"r{random.randrange(options.keys)}"
    share = random.randrange(100)
    if share < options.reads:
        answer = await caller.call(ObjectOperation.READ, key)
        if answer.outcome == "ok" and isinstance(answer.value, int):
            known[key] = answer.value
        return
    new = caller.fresh()
    if share < options.reads + options.cas and key in known:
        answer = await caller.call(ObjectOperation.CAS, key, (known[key], new))
    else:
        answer = await caller.call(ObjectOperation.WRITE, key, new)
    if answer.outcome == "ok":
        known[key] = new


async def read_to_end(stage: Stage, chosen: Plan, timeout_ms: int) -> list[TopicPartition]:
    """Read every register."""
    keys = [f"r{number}" for number in range(chosen.options.keys)]
    await read_finally(stage, ObjectOperation.READ, dict.fromkeys(keys), timeout_ms)
    return []


WORKLOAD: Final = of_objects(Options, Plan, run=run, read_to_end=read_to_end, operations=operations)
