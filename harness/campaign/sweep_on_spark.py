"""Seeds on a Spark cluster: each is a job of one task, and its result comes back as soon as it has ended.

A worker that is lost loses the seeds that it ran, and Spark runs these again elsewhere; the same seeds give the same results as
on one machine. Of a run that found nothing only its result travels, and the states that it came to if a search asks for them.
"""

import contextlib
import io
import shutil
import tarfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from tribunal.checkers.spark.session import NoSpark, compile_plans
from tribunal.harness.campaign.seed_task import RESULTS, CannotRun, run_tasks
from tribunal.harness.campaign.sweep import Interrupts, SeedResult, Sweep, run_name, states_file
from tribunal.harness.plan import Plan, encoded

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

POLL_S: Final = 0.1
THREADS: Final = 1000
UNKNOWN_SLOTS: Final = 8  # where the cluster does not say how many tasks it runs at once
SPARE: Final = 1  # a seed that waits in Spark costs a slot no pause
Ended = TypeVar("Ended")


class SparkRunner:
    """Runs each plan as a task of a cluster.

    python:  the interpreter on the workers; empty: the one that Spark runs there.
    jobs:    seeds at once; None: as many as the cluster has cores, those of workers that come later too.
    """

    def __init__(self, spark: "SparkSession", *, python: str = "", jobs: int | None = None) -> None:
        compile_plans(spark, wanted=False)
        self.cpu_s = 0.0
        self._spark = spark
        self._python = python
        self._jobs = jobs

    @property
    def jobs(self) -> int:
        """How many plans run at once."""
        return self._jobs or _slots(self._spark)

    def swept(
        self,
        plans: Iterable[Plan],
        *,
        budget_s: float | None,
        scratch: Path,
        notify: Callable[[SeedResult, Sweep], None] = lambda result, sweep: None,
        account: Sweep | None = None,
        cut_at: float | None = None,
        notes_states: bool = False,
    ) -> Sweep:
        """Run plans as `tribunal.harness.campaign.sweep.swept` does. Raises NoSpark, in one line, when workers cannot."""
        sweep = Sweep() if account is None else account
        deadline = None if budget_s is None else time.monotonic() + budget_s
        waiting, exhausted = iter(plans), False
        running: dict[Future[Row], Plan] = {}
        interrupts = Interrupts()
        pool = ThreadPoolExecutor(THREADS, thread_name_prefix="seed")
        try:
            while running or not exhausted:
                interrupts.check()
                if cut_at is not None and time.monotonic() >= cut_at:
                    break
                exhausted = exhausted or (deadline is not None and time.monotonic() >= deadline)
                while not exhausted and len(running) < (self._jobs or self.jobs + SPARE):
                    plan = next(waiting, None)
                    if plan is None:
                        exhausted = True
                    else:
                        running[pool.submit(self._run, plan, notes_states)] = plan
                for ended in failures_last(wait(running, POLL_S, FIRST_COMPLETED).done):
                    result = _received(ended, running.pop(ended), scratch)
                    self.cpu_s += result.cpu_ms / 1000
                    sweep.add(result)
                    notify(result, sweep)
        finally:
            interrupts.close()
            pool.shutdown(wait=False, cancel_futures=True)
            if running:
                _cancel(self._spark)
        interrupts.check()  # one that came while the last result was reported
        return sweep

    def _run(self, plan: Plan, notes_states: bool) -> "Row":  # noqa: FBT001 - a thread's arguments
        rows = [(encoded(plan), self._python, notes_states)]
        frame = self._spark.createDataFrame(rows, "plan binary, python string, notes_states boolean")
        (row,) = frame.mapInArrow(run_tasks, RESULTS).collect()
        return row


def failures_last(ended: "Iterable[Future[Ended]]") -> "list[Future[Ended]]":
    """Return seeds that have ended, those without a result last: the first of these ends the sweep, and no finding is lost by it."""
    return sorted(ended, key=lambda one: one.exception() is not None)


def _received(ended: "Future[Row]", plan: Plan, scratch: Path) -> SeedResult:
    """Return a seed's result, its folder laid down where it says."""
    try:
        row = ended.result()
    except Exception as problem:
        raise NoSpark(f"the cluster ran no seeds: {reason_of(problem)}") from problem
    result = msgspec.json.decode(row.result, type=SeedResult)
    folder = scratch / run_name(plan)
    if row.states is not None:
        scratch.mkdir(parents=True, exist_ok=True)
        states_file(folder).write_bytes(row.states)
    if row.run is None:
        return result
    shutil.rmtree(folder, ignore_errors=True)  # of the same seed without its mutant, say
    with tarfile.open(fileobj=io.BytesIO(row.run), mode="r:gz") as archive:
        archive.extractall(folder, filter="data")
    return msgspec.structs.replace(result, run_dir=str(folder))


def reason_of(problem: Exception) -> str:
    """Return the line that matters of what Spark says of a task that failed."""
    lines = [line for line in str(problem).splitlines() if line.strip()] or [type(problem).__name__]
    named = f"{CannotRun.__name__}: "  # the line of code that raised it has the name alone
    return next((line.partition(named)[2] for line in lines if named in line), lines[0].strip())


def _slots(spark: "SparkSession") -> int:
    """Return how many tasks the cluster runs at once, as far as it says."""
    if _is_remote(spark):
        return UNKNOWN_SLOTS
    return int(spark.sparkContext.defaultParallelism)


def _cancel(spark: "SparkSession") -> None:
    """End what still runs on the cluster: nobody waits for it any more."""
    with contextlib.suppress(Exception):  # a cluster that is gone has ended it
        if _is_remote(spark):
            spark.interruptAll()
        else:
            spark.sparkContext.cancelAllJobs()


def _is_remote(spark: "SparkSession") -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")
