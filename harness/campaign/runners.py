"""Where plans are run: on this machine here, on a Spark cluster in `sweep_on_spark.py`. Whoever runs plans takes either."""

import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from tribunal.clusters.simulated.guards import Guards
from tribunal.harness.campaign.sweep import SeedResult, Sweep, swept
from tribunal.harness.plan import Plan


class Runner(Protocol):
    """Runs plans, several at once; the same plans give the same results wherever that is."""

    @property
    def jobs(self) -> int:
        """How many plans run at once."""

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all runs that have ended, judging included."""

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
        """Run plans as `tribunal.harness.campaign.sweep.swept` does."""


class LocalRunner:
    """Runs each plan in a process of its own on this machine."""

    def __init__(self, jobs: int, guards: Guards | None = None) -> None:
        self.jobs = jobs
        self._guards = guards

    @property
    def cpu_s(self) -> float:
        """CPU seconds of this process's children that have ended: those that were given up as well."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

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
        """Run plans as `tribunal.harness.campaign.sweep.swept` does."""
        return swept(
            plans, jobs=self.jobs, budget_s=budget_s, scratch=scratch, notify=notify, account=account,
            guards=self._guards, cut_at=cut_at, notes_states=notes_states,
        )  # fmt: skip


class SayingRunner(LocalRunner):
    """Says now and then how many runs have ended so far: what is sought may take minutes, and whoever waits wants to know that it goes on."""

    def __init__(self, jobs: int, say: Callable[[str], None], every_s: float) -> None:
        super().__init__(jobs)
        self._say = say
        self._every_s = every_s
        self._ended = 0
        self._said = time.monotonic()

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
        """Run plans as `tribunal.harness.campaign.sweep.swept` does."""

        def notified(result: SeedResult, sweep: Sweep) -> None:
            notify(result, sweep)
            self._ended += 1
            if time.monotonic() - self._said > self._every_s:
                self._said = time.monotonic()
                self._say(f"{self._ended} runs have ended")

        return super().swept(
            plans, budget_s=budget_s, scratch=scratch, notify=notified, account=account, cut_at=cut_at,
            notes_states=notes_states,
        )  # fmt: skip
