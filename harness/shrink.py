"""From a run that found something to a plan with as little in it as still finds the same.

Delta debugging over what a plan consists of: faults in ever smaller groups (Zeller and Hildebrandt's ddmin), then workers,
then rates, readers and the length of the run by halves. Every candidate is run in the
simulator, each in a process of its own, several at once; the first one (in order) that still shows the signature is
kept. A candidate that shows something else counts as no finding: what is sought must not change on the way.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from harness.plan import Plan, PlannedFault
from harness.sweep import SeedResult, swept

RATE_LEAST: Final = 1
TIME_LEAST_MS: Final = 1_000
WARM_UP_LEAST_MS: Final = 100


class Shrunk(NamedTuple):
    """What came of it."""

    plan: Plan
    result: SeedResult
    tried: int
    seconds: float


class NotFound(Exception):
    """The run to be shrunk does not show the finding again; the message says what it shows."""


class Shrinker:
    """Shrinks one plan.

    signature:  what a candidate must show; None: the first of what the plan itself shows.
    """

    def __init__(
        self,
        scratch: Path,
        *,
        signature: str | None = None,
        jobs: int = 1,
        budget_s: float = 60.0,
        told: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.signature = signature
        self._scratch = scratch
        self._jobs = jobs
        self._budget_s = budget_s
        self._told = told
        self._tried = 0
        self._began = time.monotonic()
        self._best: SeedResult | None = None

    def shrink(self, plan: Plan) -> Shrunk:
        """Return the smallest plan reached within the budget."""
        first = self._run([plan])[0]
        if self.signature is None and first.signatures:
            self.signature = first.signatures[0]
        if self.signature is None or self.signature not in first.signatures:
            raise NotFound(f"this plan shows {', '.join(first.signatures) or 'nothing'} when it is run again")
        self._best = first
        plan = self._without_later_rounds(plan)
        plan = self._first_that_shows(list(bold(plan))) or plan
        plan = self._faults(plan)
        size = -1
        while size != _size(plan) and not self._is_over():
            size = _size(plan)
            plan = self._take_while(plan, workers_removed)
            plan = self._take_while(plan, halved)
        plan = self._faults(plan)
        return Shrunk(plan, self._best, self._tried, round(time.monotonic() - self._began, 1))

    def _without_later_rounds(self, plan: Plan) -> Plan:
        """Drop what was planned in reserve: most faults of a plan are never reached."""
        must = tuple(fault for fault in plan.faults if fault.must)
        reserve = len(plan.faults) - len(must)
        smaller = msgspec.structs.replace(plan, faults=must)
        return self._first_that_shows([smaller]) or plan if reserve else plan

    def _faults(self, plan: Plan) -> Plan:
        """Minimize the list of faults by ddmin."""
        parts = 2
        while len(plan.faults) >= 1 and not self._is_over():
            smaller = self._first_that_shows(list(without_parts(plan, min(parts, len(plan.faults)))))
            if smaller is not None:
                plan, parts = smaller, max(parts - 1, 2)
                self._told(f"{len(plan.faults)} faults left")
            elif parts >= len(plan.faults):
                break
            else:
                parts = min(2 * parts, len(plan.faults))
        return plan

    def _take_while(self, plan: Plan, candidates: "Callable[[Plan], Iterator[Plan]]") -> Plan:
        """Take candidates as long as one of them shows the signature."""
        while not self._is_over():
            smaller = self._first_that_shows(list(candidates(plan)))
            if smaller is None:
                break
            plan = smaller
            self._told(f"{len(plan.faults)} faults, {rate_of(plan)} records/s, {plan.time_ms / 1000:.1f} s")
        return plan

    def _first_that_shows(self, plans: Sequence[Plan]) -> Plan | None:
        for start in range(0, len(plans), self._jobs):
            if self._is_over():
                return None
            some = plans[start : start + self._jobs]
            for plan, result in zip(some, self._run(some), strict=True):
                if self.signature in result.signatures:
                    self._best = result
                    return plan
        return None

    def _run(self, plans: Sequence[Plan]) -> list[SeedResult]:
        """Run candidates at the same time; results in their order."""
        named = [
            msgspec.structs.replace(plan, scenario=f"{plan.scenario}.{self._tried + index}")
            for index, plan in enumerate(plans)
        ]
        self._tried += len(named)
        by_name = {result.scenario: result for result in swept(
            named, jobs=self._jobs, budget_s=None, scratch=self._scratch
        ).results}  # fmt: skip
        return [by_name[plan.scenario] for plan in named]

    def _is_over(self) -> bool:
        return time.monotonic() - self._began >= self._budget_s


def without_parts(plan: Plan, count: int) -> Iterator[Plan]:
    """Yield the plan without each of `count` parts of its faults, the later parts first: what came last mattered least."""
    total = len(plan.faults)
    bounds = [total * index // count for index in range(count + 1)]
    for start, end in reversed(list(pairwise(bounds))):
        kept = [fault for index, fault in enumerate(plan.faults) if not start <= index < end]
        yield msgspec.structs.replace(plan, faults=_well_formed(kept))


def _well_formed(faults: Sequence[PlannedFault]) -> tuple[PlannedFault, ...]:
    """Let the first fault begin by itself: there is none before it that could last meanwhile."""
    return tuple(
        msgspec.structs.replace(fault, index=index, meanwhile=fault.meanwhile and index > 0)
        for index, fault in enumerate(faults)
    )


def bold(plan: Plan) -> Iterator[Plan]:
    """Yield the plan with hardly any load: where that still shows it, all that follows is faster."""
    workers = plan.workload_plan.get("workers", [])
    for worker in workers[:2]:
        yield _with_load(
            plan, workers=[{**worker, "rate_per_s": max(RATE_LEAST, worker["rate_per_s"] // 8)}], readers=0
        )


def workers_removed(plan: Plan) -> Iterator[Plan]:
    """Yield the plan without each of its workers, and without its readers."""
    workers = plan.workload_plan.get("workers", [])
    if len(workers) > 1:
        for index in range(len(workers) - 1, -1, -1):
            yield _with_load(plan, workers=[one for at, one in enumerate(workers) if at != index])
    if plan.workload_plan.get("readers", 0) > 0:
        yield _with_load(plan, readers=0)


def halved(plan: Plan) -> Iterator[Plan]:
    """Yield the plan with half of its rate, of its time, of each fault's duration and pause."""
    workers = plan.workload_plan.get("workers", [])
    if any(worker["rate_per_s"] > RATE_LEAST for worker in workers):
        slower = [{**worker, "rate_per_s": max(RATE_LEAST, worker["rate_per_s"] // 4)} for worker in workers]
        yield _with_load(plan, workers=slower)
    if plan.time_ms > TIME_LEAST_MS:
        yield msgspec.structs.replace(plan, time_ms=plan.time_ms // 2)
    if plan.warm_up_ms > WARM_UP_LEAST_MS:
        yield msgspec.structs.replace(plan, warm_up_ms=plan.warm_up_ms // 4)


def _with_load(plan: Plan, **changed: Any) -> Plan:
    return msgspec.structs.replace(plan, workload_plan={**plan.workload_plan, **changed})


def rate_of(plan: Plan) -> int:
    """Return the records per second that all workers produce together."""
    return sum(worker["rate_per_s"] for worker in plan.workload_plan.get("workers", []))


def _size(plan: Plan) -> int:
    workers = len(plan.workload_plan.get("workers", []))
    return len(plan.faults) * 1_000_000 + workers * 100_000 + rate_of(plan) * 100 + plan.time_ms // 100
