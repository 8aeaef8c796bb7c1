"""Counters: small amounts are added, and counters are read. No read shows less than was acknowledged, or more than was asked for."""

import asyncio
from random import Random
from typing import Final

import msgspec

from tribunal.clusters.api import TopicPartition
from tribunal.clusters.objects import ObjectOperation
from tribunal.workloads.api import Count, Percent, Stage, Workload, drawn_seed
from tribunal.workloads.objects import Caller, no_partitions, prepare_nothing, read_finally

AMOUNT_MAX: Final = 9  # different amounts: one that is missing is not made up for by another that counted twice


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a scenario may say: counters, processes, calls a second of all together, and the share of reads."""

    counters: Count = 1
    processes: Count = 5
    rate: Count = 60
    reads: Percent = 20
    calls_within_ms: Count = 6_000

    @property
    def partitions(self) -> int:
        """None: there is no log."""
        return 0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The workload with every choice made."""

    options: Options
    seeds: tuple[str, ...]
    delivery_timeout_ms: int


def plan(options: Options, random: Random) -> Plan:
    """Draw the processes' seeds."""
    seeds = tuple(drawn_seed(random) for _ in range(options.processes))
    return Plan(options=options, seeds=seeds, delivery_timeout_ms=options.calls_within_ms)


def operations(options: Options) -> frozenset[ObjectOperation]:
    """Return what it calls."""
    return frozenset({ObjectOperation.INCREMENT, ObjectOperation.READ_COUNTER})


async def run(stage: Stage, chosen: Plan) -> None:
    """Call until asked to stop."""
    await asyncio.gather(*(_work(stage, chosen, process) for process in range(1, len(chosen.seeds) + 1)))


async def _work(stage: Stage, chosen: Plan, process: int) -> None:
    options, random = chosen.options, Random(chosen.seeds[process - 1])
    caller = Caller(stage, process)
    try:
        while not stage.stopping.is_set():
            key = f"c{random.randrange(options.counters)}"
            if random.randrange(100) < options.reads:
                await caller.call(ObjectOperation.READ_COUNTER, key)
            else:
                await caller.call(ObjectOperation.INCREMENT, key, random.randint(1, AMOUNT_MAX))
            await asyncio.sleep(random.uniform(0.5, 1.5) * options.processes / options.rate)
    finally:
        await caller.close()


async def read_to_end(stage: Stage, chosen: Plan, timeout_ms: int) -> list[TopicPartition]:
    """Read every counter."""
    keys = [f"c{number}" for number in range(chosen.options.counters)]
    await read_finally(stage, ObjectOperation.READ_COUNTER, dict.fromkeys(keys), timeout_ms)
    return []


WORKLOAD: Final = Workload(
    options=Options,
    chosen=Plan,
    plan=plan,
    partitions=no_partitions,
    prepare=prepare_nothing,
    run=run,
    read_to_end=read_to_end,
    operations=operations,
    promised=("operations",),
)
