"""Locks: processes acquire them, hold them for a while and release them. Nobody acquires a lock that another surely holds."""

import asyncio
from collections import deque
from functools import partial
from random import Random
from typing import Final

from tribunal.clusters.api import TopicPartition
from tribunal.clusters.objects import ObjectOperation
from tribunal.workloads.api import Count, Several, Stage, Users
from tribunal.workloads.objects import (
    FINAL_READER,
    RETRY_MS,
    Caller,
    CallPlan,
    WithoutLog,
    of_each_process,
    of_objects,
    pause,
)

RELEASES_MAX: Final = 5  # one whose answer was lost may have released it, and then each further one is refused


class Options(WithoutLog, frozen=True, forbid_unknown_fields=True):
    """What a scenario may say: locks, processes, acquisitions a second that all together try, and how long a lock is held on average."""

    locks: Several = 2
    processes: Users = 5
    rate: Count = 60
    held_ms: Count = 50
    calls_within_ms: Count = 6_000


Plan = CallPlan[Options]


def operations(options: Options) -> frozenset[ObjectOperation]:
    """Return what it calls."""
    return frozenset({ObjectOperation.ACQUIRE, ObjectOperation.RELEASE})


async def run(stage: Stage, chosen: Plan) -> None:
    """Call until asked to stop."""
    await of_each_process(chosen, partial(_work, stage, chosen.options))


async def _work(stage: Stage, options: Options, process: int, random: Random) -> None:
    caller = _Holder(stage, process)
    try:
        while not stage.stopping.is_set():
            await caller.release_one()
            await caller.hold(f"m{random.randrange(options.locks)}", random.uniform(0.5, 1.5) * options.held_ms)
            await pause(options, random)
        await caller.release_all()
    finally:
        await caller.close()


class _Holder(Caller):
    """A process, and what it may still hold: acquisitions and releases whose end nobody knows, and releases that were refused.

    A refusal may mean that nobody answered: while nodes are hurt, what may be held is not given up.
    """

    def __init__(self, stage: Stage, process: int) -> None:
        super().__init__(stage, process)
        self._left: deque[tuple[str, int]] = deque()  # lock, holder
        self._next_s = 0.0

    async def hold(self, key: str, held_ms: float) -> bool:
        """Acquire a lock, hold it for a while and release it; return whether it was acquired."""
        holder = self.fresh()
        outcome = (await self.call(ObjectOperation.ACQUIRE, key, holder)).outcome
        if outcome == "ok":
            await asyncio.sleep(held_ms / 1000)
            await self._release(key, holder)
        elif outcome == "info":
            self._left.append((key, holder))
        return outcome == "ok"

    async def release_one(self) -> None:
        """Ask for one of the releases that are left, not more often than calls are retried."""
        now_s = asyncio.get_running_loop().time()
        if self._left and now_s >= self._next_s:
            self._next_s = now_s + RETRY_MS / 1000
            await self._release(*self._left.popleft())

    async def release_all(self) -> None:
        """Ask for all of them, some times, when nothing is hurt any more."""
        for _ in range(RELEASES_MAX):
            asked, self._left = self._left, deque()
            for key, holder in asked:
                await self._release(key, holder)
            if not self._left:
                break
            await asyncio.sleep(RETRY_MS / 1000)

    async def _release(self, key: str, holder: int) -> None:
        if (await self.call(ObjectOperation.RELEASE, key, holder)).outcome != "ok":
            self._left.append((key, holder))


async def read_to_end(stage: Stage, chosen: Plan, timeout_ms: int) -> list[TopicPartition]:
    """Acquire every lock once more; who judges sees which could not be had."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_ms / 1000
    reader = _Holder(stage, FINAL_READER)
    try:
        for number in range(chosen.options.locks):
            while not await reader.hold(f"m{number}", 0):
                if loop.time() > deadline_s:
                    break
                await asyncio.sleep(RETRY_MS / 1000)
                await reader.release_one()  # it may have acquired it itself, with an answer that was lost
        await reader.release_all()
    finally:
        await reader.close()
    return []


WORKLOAD: Final = of_objects(Options, Plan, run=run, read_to_end=read_to_end, operations=operations)
