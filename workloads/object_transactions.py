"""What workloads of transactions on objects share: several processes read and change a few objects in steps drawn from the seed."""

from collections.abc import Callable
from functools import partial
from random import Random

import msgspec

from tribunal.clusters.api import TopicPartition
from tribunal.clusters.objects import ObjectOperation
from tribunal.results.object_transactions import Step, StepKind, Steps
from tribunal.workloads.api import Count, Percent, Several, Stage, Users, Workload
from tribunal.workloads.objects import (
    Caller,
    CallPlan,
    WithoutLog,
    call_until_stopped,
    of_objects,
    read_finally,
)


class Options(WithoutLog, frozen=True, forbid_unknown_fields=True):
    """What a scenario may say: objects, processes, transactions a second of all together, the most steps of one (a read before a change not counted), and the share of reads."""

    keys: Several = 5
    processes: Users = 5
    rate: Count = 60
    steps: Count = 4
    reads: Percent = 50
    calls_within_ms: Count = 6_000  # how long the last transactions may take


Plan = CallPlan[Options]


class Objects(msgspec.Struct, frozen=True, kw_only=True):
    """What transactions are about: the operation that clients have for it, how such objects are called, how they are changed.

    read_first:  how many of a hundred changes follow a read of the same object. A register shows one version: which one replaced which is known
                 of those that were read by who replaced them.
    """

    operation: ObjectOperation
    letter: str
    change: StepKind
    read_first: int

    def keys(self, options: Options) -> list[str]:
        """Return all objects."""
        return [f"{self.letter}{number}" for number in range(options.keys)]


async def run(stage: Stage, chosen: Plan, objects: Objects) -> None:
    """Make transactions until asked to stop."""
    await call_until_stopped(
        stage, chosen, lambda caller, random: partial(_one, caller, random, chosen.options, objects)
    )


async def _one(caller: Caller, random: Random, options: Options, objects: Objects) -> None:
    steps = drawn(caller.fresh, objects, options, random)
    await caller.call(objects.operation, touched(steps), steps)


def drawn(fresh: Callable[[], int], objects: Objects, options: Options, random: Random) -> Steps:
    """Draw one transaction; `fresh` returns a value that nobody else writes."""
    keys, most, steps = objects.keys(options), random.randint(1, options.steps), list[Step]()
    while len(steps) < most:
        key = random.choice(keys)
        if random.randrange(100) < options.reads:
            steps.append(Step(StepKind.READ, key, None))
            continue
        if random.randrange(100) < objects.read_first:
            steps.append(Step(StepKind.READ, key, None))
        steps.append(Step(objects.change, key, fresh()))
    return tuple(steps)


def touched(steps: Steps) -> str:
    """Return the names of all objects of a transaction."""
    return " ".join(sorted({step.key for step in steps}))


async def read_to_end(stage: Stage, chosen: Plan, timeout_ms: int, objects: Objects) -> list[TopicPartition]:
    """Read every object in a transaction of its own."""
    reads = {key: (Step(StepKind.READ, key, None),) for key in objects.keys(chosen.options)}
    await read_finally(stage, objects.operation, reads, timeout_ms)
    return []


def workload(objects: Objects) -> Workload[Options, Plan]:
    """Return the workload of transactions on such objects."""
    return of_objects(
        Options,
        Plan,
        run=partial(run, objects=objects),
        read_to_end=partial(read_to_end, objects=objects),
        operations=lambda options: frozenset({objects.operation}),
    )
