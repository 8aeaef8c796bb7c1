"""What workloads of operations on objects share: a process that calls, and writes down how each call ended."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from random import Random
from typing import Generic, Protocol, TypeVar

import msgspec

from tribunal.clusters.api import TopicPartition
from tribunal.clusters.endings import side_by_side
from tribunal.clusters.objects import ObjectAnswer, ObjectOperation, ObjectValue
from tribunal.workloads.api import LoadOptions, Stage, Workload, drawn_seed

NO_ACKS = -1  # the tally's level of what is acknowledged or not, and nothing between
RETRY_MS = 200
FINAL_READER = 999  # the process that reads when all is quiet


class CallOptions(LoadOptions, Protocol):
    """What the options of all of them have."""

    @property
    def processes(self) -> int:
        """How many call."""

    @property
    def rate(self) -> int:
        """Calls a second of all together."""

    @property
    def calls_within_ms(self) -> int:
        """How long the last calls may take."""


class WithoutLog(msgspec.Struct, frozen=True):
    """Options of a workload without partitions."""

    @property
    def partitions(self) -> int:
        """None: there is no log."""
        return 0


Options = TypeVar("Options", bound=CallOptions)


class CallPlan(msgspec.Struct, Generic[Options], frozen=True, kw_only=True):
    """The workload with every choice made: a seed for each process."""

    options: Options
    seeds: tuple[str, ...]
    delivery_timeout_ms: int


def drawn_plan(options: Options, random: Random) -> CallPlan[Options]:
    """Draw the processes' seeds."""
    seeds = tuple(drawn_seed(random) for _ in range(options.processes))
    return CallPlan(options=options, seeds=seeds, delivery_timeout_ms=options.calls_within_ms)


class Caller:
    """One process: it has one call under way at most."""

    def __init__(self, stage: Stage, process: int) -> None:
        self.process = stage.first_process + process
        self._stage = stage
        self._client = stage.clients.objects(str(self.process))
        self._sequence = 0

    def fresh(self) -> int:
        """Return a value that nobody else writes: what is read says who wrote it."""
        self._sequence += 1
        return self._sequence * 10_000 + self.process

    async def call(self, operation: ObjectOperation, key: str, value: ObjectValue = None) -> ObjectAnswer:
        """Call and record; a call that is given up counts as one that nobody saw the end of."""
        invoke_ns = self._stage.now_ns()
        try:
            answer = await self._client.call(operation, key, value)
        except BaseException:
            self._record(operation, key, value, invoke_ns, ObjectAnswer(outcome="info", error="given up"), None)
            raise
        self._record(operation, key, value, invoke_ns, answer, self._stage.now_ns())
        return answer

    def _record(
        self,
        operation: ObjectOperation,
        key: str,
        value: ObjectValue,
        invoke_ns: int,
        answer: ObjectAnswer,
        complete_ns: int | None,
    ) -> None:
        self._stage.tally[NO_ACKS, answer.outcome] += 1
        if answer.error is not None:
            self._stage.errors[answer.error] += 1
        self._stage.sink.row(
            "operations",
            process=self.process,
            function=operation.value,
            key=key,
            argument=_json(value),
            result=_json(answer.value) if answer.outcome == "ok" else None,
            invoke_ns=invoke_ns,
            complete_ns=complete_ns,
            outcome=answer.outcome,
            error=answer.error,
            answered_by=answer.node,
        )

    async def until_ok(
        self, operation: ObjectOperation, key: str, deadline_s: float, value: ObjectValue = None
    ) -> bool:
        """Call until it succeeds; False when the event loop's clock says that time is over."""
        loop = asyncio.get_running_loop()
        while (await self.call(operation, key, value)).outcome != "ok":
            if loop.time() > deadline_s:
                return False
            await asyncio.sleep(RETRY_MS / 1000)
        return True

    async def close(self) -> None:
        """Release everything."""
        await self._client.close()


async def of_each_process(
    chosen: CallPlan[Options], work: Callable[[int, Random], Coroutine[object, None, None]]
) -> None:
    """Do the work of all processes at once; each draws from its own seed."""
    await side_by_side(work(process, Random(seed)) for process, seed in enumerate(chosen.seeds, start=1))


async def pause(options: CallOptions, random: Random) -> None:
    """Rest as long as a process has to between two of its calls."""
    await asyncio.sleep(random.uniform(0.5, 1.5) * options.processes / options.rate)


async def call_until_stopped(
    stage: Stage, chosen: CallPlan[Options], begin: Callable[[Caller, Random], Callable[[], Awaitable[None]]]
) -> None:
    """Let every process do one thing after the other until asked to stop; `begin` returns what a process does each time."""

    async def work(process: int, random: Random) -> None:
        caller = Caller(stage, process)
        step = begin(caller, random)
        try:
            while not stage.stopping.is_set():
                await step()
                await pause(chosen.options, random)
        finally:
            await caller.close()

    await of_each_process(chosen, work)


def of_objects(
    options: type[Options],
    chosen: type[CallPlan[Options]],
    *,
    run: Callable[[Stage, CallPlan[Options]], Coroutine[object, None, None]],
    read_to_end: Callable[[Stage, CallPlan[Options], int], Awaitable[list[TopicPartition]]],
    operations: Callable[[Options], frozenset[ObjectOperation]],
) -> Workload[Options, CallPlan[Options]]:
    """Return a workload of operations on objects: it has no partitions, prepares nothing, and fills the table `operations`.

    run, read_to_end, operations:  those of `Workload`.
    """
    return Workload(
        options=options,
        chosen=chosen,
        plan=drawn_plan,
        partitions=_no_partitions,
        prepare=_prepare_nothing,
        run=run,
        read_to_end=read_to_end,
        operations=operations,
        promised=("operations",),
    )


def _no_partitions(chosen: object) -> list[TopicPartition]:
    """Return none: there is no log."""
    return []


async def _prepare_nothing(stage: Stage, chosen: object, replication_factor: int) -> None:
    """Prepare nothing: an object that nobody wrote reads as none, or as empty."""


async def read_finally(
    stage: Stage, operation: ObjectOperation, reads: Mapping[str, ObjectValue], timeout_ms: int
) -> None:
    """Read every object once more, when nothing is written any more; who judges sees which could not be read.

    reads:  what is given to the operation, by object.
    """
    deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
    reader = Caller(stage, FINAL_READER)
    try:
        for key, value in reads.items():
            await reader.until_ok(operation, key, deadline_s, value)
    finally:
        await reader.close()


def _json(value: ObjectValue) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
