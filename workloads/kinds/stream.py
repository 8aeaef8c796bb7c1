"""Streams: elements are published, each of them once, at several levels of acknowledgement, and read from an offset on. What was acknowledged stays where it stands."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from random import Random
from typing import Final

from tribunal.clusters.api import TopicPartition
from tribunal.clusters.objects import ObjectAnswer, ObjectOperation
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

ALL: Final = 100  # per cent


class Options(WithoutLog, frozen=True, forbid_unknown_fields=True):
    """What a scenario may say: streams, processes, calls a second of all together, and shares.

    reads:  of calls, those that read on.
    anew:   of reads, those that begin at the first offset again.
    one:    of publications, those that one node alone acknowledges.
    none:   of publications, those that nobody acknowledges.
    """

    streams: Several = 1
    processes: Users = 5
    rate: Count = 80
    reads: Percent = 30
    anew: Percent = 10
    one: Percent = 0
    none: Percent = 0
    calls_within_ms: Count = 6_000

    def __post_init__(self) -> None:
        if self.one + self.none > ALL:
            raise ValueError(f"one ({self.one}) and none ({self.none}) are shares of all publications: {ALL} at most")


Plan = CallPlan[Options]


def operations(options: Options) -> frozenset[ObjectOperation]:
    """Return what it calls."""
    shares = {
        ObjectOperation.PUBLISH: ALL - options.one - options.none,
        ObjectOperation.PUBLISH_ONE: options.one,
        ObjectOperation.PUBLISH_NONE: options.none,
    }
    return frozenset({ObjectOperation.READ_STREAM, *(level for level, share in shares.items() if share)})


async def run(stage: Stage, chosen: Plan) -> None:
    """Call until asked to stop."""

    def begin(caller: Caller, random: Random) -> Callable[[], Awaitable[None]]:
        return partial(_one, _Reader(caller), random, chosen.options)

    await call_until_stopped(stage, chosen, begin)


class _Reader:
    """One process, and how far it has read each stream."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._next: dict[str, int] = {}

    async def read_on(self, key: str, *, is_anew: bool = False) -> ObjectAnswer:
        """Read from where it stands, or from the first offset on."""
        begin = 0 if is_anew else self._next.get(key, 0)
        answer = await self.caller.call(ObjectOperation.READ_STREAM, key, begin)
        if answer.outcome == "ok":
            self._next[key] = max(begin, _last(answer) + 1)
        return answer


def _last(answer: ObjectAnswer) -> int:
    """Return the last offset that a read shows, -1 where it shows nothing."""
    entries = answer.value if isinstance(answer.value, Iterable) else ()
    return max((entry[0] for entry in entries if isinstance(entry, tuple)), default=-1)


async def _one(reader: _Reader, random: Random, options: Options) -> None:
    key = f"t{random.randrange(options.streams)}"
    is_read, is_anew = random.randrange(ALL) < options.reads, random.randrange(ALL) < options.anew
    level = random.randrange(ALL)
    if is_read:
        await reader.read_on(key, is_anew=is_anew)
    else:
        await reader.caller.call(_level(level, options), key, reader.caller.fresh())


def _level(drawn: int, options: Options) -> ObjectOperation:
    if drawn < options.one:
        return ObjectOperation.PUBLISH_ONE
    return ObjectOperation.PUBLISH_NONE if drawn < options.one + options.none else ObjectOperation.PUBLISH


async def read_to_end(stage: Stage, chosen: Plan, timeout_ms: int) -> list[TopicPartition]:
    """Read every stream from its first offset on until nothing more comes; who judges sees which one did not end."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_ms / 1000
    reader = _Reader(Caller(stage, FINAL_READER))
    try:
        for number in range(chosen.options.streams):
            answer = await reader.read_on(f"t{number}")
            while (answer.outcome != "ok" or _last(answer) >= 0) and loop.time() < deadline_s:
                if answer.outcome != "ok":
                    await asyncio.sleep(RETRY_MS / 1000)
                answer = await reader.read_on(f"t{number}")
    finally:
        await reader.caller.close()
    return []


WORKLOAD: Final = of_objects(Options, Plan, run=run, read_to_end=read_to_end, operations=operations)
