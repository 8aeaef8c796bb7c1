"""From a run that found something to a plan with as little in it as still finds the same.

Delta debugging over what a plan consists of: faults in ever smaller groups (Zeller and Hildebrandt's ddmin), then clients,
nodes and partitions, then records, rates, the length of the run and each fault's duration and pause by halves. Every
candidate is run in the simulator, each in a process of its own, several at once; the first one (in order) that still shows the signature is
kept. A candidate that shows something else counts as no finding: what is sought must not change on the way.
A described system's candidates are run on its nodes, each again and again (`repetition.py`): processes and objects are taken away there.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tribunal.harness.campaign.runners import LocalRunner, Runner
from tribunal.harness.campaign.sweep import SeedResult
from tribunal.harness.plan import Plan, PlannedFault
from tribunal.results.signature import Signature, gravity, texts

RATE_LEAST: Final = 1
RECORDS_MOST: Final = 64  # as many a worker may have when they are first counted
TIME_LEAST_MS: Final = 1_000
WARM_UP_LEAST_MS: Final = 100
DURATION_LEAST_MS: Final = 100
SAID_EVERY_S: Final = 10  # whoever waits wants to know that it goes on
# How workloads of calls name how many objects they have.
OBJECTS: Final = ("keys", "sets", "queues", "counters", "locks", "streams")


class Shrunk(NamedTuple):
    """What came of it; interrupted: it might have become smaller still."""

    plan: Plan
    result: SeedResult
    tried: int
    seconds: float
    interrupted: bool = False


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
        signature: Signature | None = None,
        runner: Runner | None = None,
        budget_s: float = 60.0,
        notify: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.signature = signature
        self._scratch = scratch
        self._runner = runner or LocalRunner(1)
        self._budget_s = budget_s
        self._say = notify
        self._tried = 0
        self._began = self._spoke_at = time.monotonic()
        self._best: tuple[Plan, SeedResult] | None = None

    def shrink(self, plan: Plan) -> Shrunk:
        """Return the smallest plan reached within the budget, or until somebody interrupts."""
        ((_, first),) = self._run([plan])
        if self.signature is None and first.signatures:
            self.signature = min(first.signatures, key=gravity)
        if self.signature is None or self.signature not in first.signatures:
            why = "".join(f" ({reason})" for reason in first.reasons[:1])
            raise NotFound(
                f"this plan shows {', '.join(texts(first.signatures)) or 'nothing'} when it is run again{why}"
            )
        self._best = (plan, first)
        interrupted = False
        try:
            self._make_smaller(plan)
        except KeyboardInterrupt:
            interrupted = True
        smallest, result = self._best
        return Shrunk(smallest, result, self._tried, round(time.monotonic() - self._began, 1), interrupted)

    def _make_smaller(self, plan: Plan) -> None:
        """Go through all kinds of candidates until none shows the signature; each that does is the best so far."""
        plan = self._without_later_rounds(plan)
        plan = self._first_that_shows(list(bold(plan))) or plan
        plan = self._take_while(plan, others_removed)
        plan = self._take_while(plan, fewer_nodes)
        plan = self._faults(plan)
        size: Size | None = None
        while size != size_of(plan) and not self._is_over():
            size = size_of(plan)
            for candidates in (
                others_removed,
                workers_removed,
                fewer_records,
                fewer_calls,
                halved,
                sooner,
                fewer_nodes,
            ):
                plan = self._take_while(plan, candidates)
        self._faults(plan)

    def _without_later_rounds(self, plan: Plan) -> Plan:
        """Drop what was planned in reserve: most faults of a plan are never reached."""
        must = _well_formed([fault for fault in plan.faults if fault.must])
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
                self._notify(f"{len(plan.faults)} faults left")
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
            self._notify(said(plan))
        return plan

    def _first_that_shows(self, plans: Sequence[Plan]) -> Plan | None:
        left = list(plans)
        while left:
            if self._is_over():
                return None
            count = self._runner.jobs
            some, left = left[:count], left[count:]
            for plan, result in self._run(some, cut_at=self._began + self._budget_s):
                if self.signature in result.signatures:
                    self._best = (plan, result)
                    return plan
            self._say_that_it_goes_on()
        return None

    def _run(self, plans: Sequence[Plan], cut_at: float | None = None) -> list[tuple[Plan, SeedResult]]:
        """Run candidates at the same time; results in their order, without those that were cut off."""
        named = [
            msgspec.structs.replace(plan, scenario=f"{plan.scenario}.{self._tried + index}")
            for index, plan in enumerate(plans)
        ]
        self._tried += len(named)
        by_name = {result.scenario: result for result in self._runner.swept(
            named, budget_s=None, scratch=self._scratch, cut_at=cut_at
        ).results}  # fmt: skip
        return [
            (plan, by_name[name.scenario]) for plan, name in zip(plans, named, strict=True) if name.scenario in by_name
        ]

    def _notify(self, line: str) -> None:
        self._spoke_at = time.monotonic()
        self._say(line)

    def _say_that_it_goes_on(self) -> None:
        """Say how far it is where nothing that was tried has shown the finding for a while."""
        if self._best is not None and time.monotonic() - self._spoke_at >= SAID_EVERY_S:
            left_s = max(0.0, self._budget_s - (time.monotonic() - self._began))
            self._notify(f"{self._tried} plans tried, {left_s:.0f} s are left; smallest: {said(self._best[0])}")

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
        msgspec.structs.replace(
            fault,
            index=index,
            meanwhile=fault.meanwhile and index > 0,
            origin=fault.index if fault.origin is msgspec.UNSET else fault.origin,
        )
        for index, fault in enumerate(faults)
    )


Worker = dict[str, object]  # as the plan has it: each workload's workers have more than is looked at here


class _Load(msgspec.Struct, frozen=True):
    """What of a workload's plan can be made smaller; a workload may have none of it."""

    workers: tuple[Worker, ...] = ()
    readers: int = 0
    partitions: int = 1


class _Rate(msgspec.Struct, frozen=True):
    """What of a worker can be made smaller."""

    rate_per_s: int
    records_max: int | None = None


def _load_of(plan: Plan) -> _Load:
    return msgspec.convert(plan.workload_plan, _Load)


def _rate_of(worker: Worker) -> _Rate:
    return msgspec.convert(worker, _Rate)


def bold(plan: Plan) -> Iterator[Plan]:
    """Yield the plan with hardly any load: where that still shows it, all that follows is faster."""
    for worker in _load_of(plan).workers[:2]:
        slower = max(RATE_LEAST, _rate_of(worker).rate_per_s // 8)
        yield _with_load(plan, workers=[{**worker, "rate_per_s": slower}], readers=0)


def workers_removed(plan: Plan) -> Iterator[Plan]:
    """Yield the plan without each of its workers, and without its readers."""
    load = _load_of(plan)
    if len(load.workers) > 1:
        for index in range(len(load.workers) - 1, -1, -1):
            yield _with_load(plan, workers=[one for at, one in enumerate(load.workers) if at != index])
    if load.readers > 0:
        yield _with_load(plan, readers=0)


def others_removed(plan: Plan) -> Iterator[Plan]:
    """Yield the plan without the loads beside its own: all of them, then each."""
    if len(plan.beside) > 1:
        yield msgspec.structs.replace(plan, beside=())
    for index in range(len(plan.beside)):
        yield msgspec.structs.replace(plan, beside=(*plan.beside[:index], *plan.beside[index + 1 :]))


def fewer_nodes(plan: Plan) -> Iterator[Plan]:
    """Yield the plan with one controller, with as many brokers as replicas, with the first partition alone."""
    spec = plan.spec
    if spec.system:
        return  # it has the nodes that its file says
    if spec.controllers > 1:
        yield msgspec.structs.replace(plan, spec=msgspec.structs.replace(spec, controllers=1))
    if spec.brokers > spec.replication_factor:
        yield msgspec.structs.replace(plan, spec=msgspec.structs.replace(spec, brokers=spec.brokers - 1))
    load = _load_of(plan)
    if load.partitions > 1:
        aimed = {fault.target.partition for fault in plan.faults} - {None, 0}
        workers = [{**worker, "partitions": [0]} for worker in load.workers]
        if not aimed:
            yield _with_load(plan, partitions=1, workers=workers)


def fewer_records(plan: Plan) -> Iterator[Plan]:
    """Yield the plan with a few records a worker, then with half as many."""
    workers = [(worker, _rate_of(worker).records_max) for worker in _load_of(plan).workers]
    most = max((limit or 2 * RECORDS_MOST for _, limit in workers), default=0)
    for count in dict.fromkeys((most // 8, most // 2)):
        if 0 < count < most:
            fewer = [{**worker, "records_max": min(count, limit or count)} for worker, limit in workers]
            yield _with_load(plan, workers=fewer)


class _Calling(msgspec.Struct, frozen=True):
    """What a workload of calls on objects draws beforehand: a seed for each process."""

    seeds: tuple[str, ...] = ()
    options: dict[str, object] = {}


class _Pace(msgspec.Struct, frozen=True):
    """What of its options can be made smaller, beside its objects."""

    processes: int = 1
    rate: int = 1


def fewer_calls(plan: Plan) -> Iterator[Plan]:
    """Yield the plan of a described system with one process, with half of them; with one object, with half; with an eighth of the rate, with half."""
    if not plan.spec.has_objects:
        return
    calling = msgspec.convert(plan.workload_plan, _Calling)
    pace, count = msgspec.convert(calling.options, _Pace), len(calling.seeds)
    for fewer in _smaller(count):
        rate = max(RATE_LEAST, pace.rate * fewer // count)  # each goes on at its pace
        options = {**calling.options, "processes": fewer, "rate": rate}
        yield _with_load(plan, seeds=calling.seeds[:fewer], options=options)
    for name in OBJECTS:
        objects = calling.options.get(name, 1)
        for fewer in _smaller(objects) if isinstance(objects, int) else ():
            yield _with_load(plan, options={**calling.options, name: fewer})
    for rate in dict.fromkeys((max(RATE_LEAST, pace.rate // 8), max(RATE_LEAST, pace.rate // 2))):
        if rate < pace.rate:
            yield _with_load(plan, options={**calling.options, "rate": rate})


def _smaller(count: int) -> Iterable[int]:
    return (fewer for fewer in dict.fromkeys((1, count // 2)) if 0 < fewer < count)


def processes_of(plan: Plan) -> int:
    """Return how many processes call a described system."""
    return len(msgspec.convert(plan.workload_plan, _Calling).seeds)


def _objects_of(plan: Plan) -> int:
    """Return how many objects they call."""
    options = msgspec.convert(plan.workload_plan, _Calling).options
    return sum(value for name in OBJECTS if isinstance(value := options.get(name), int))


def sooner(plan: Plan) -> Iterator[Plan]:
    """Yield the plan with an eighth of every fault's duration and pause, with half, then with half of each one's alone."""
    half = tuple(_halved_fault(fault, lasts=True, after=True) for fault in plan.faults)
    eighth = tuple(
        _halved_fault(_halved_fault(fault, lasts=True, after=True), lasts=True, after=True) for fault in half
    )
    for shorter in (eighth, half):
        if shorter != plan.faults:
            yield msgspec.structs.replace(plan, faults=shorter)
    for index, fault in enumerate(plan.faults):
        for lasts in (True, False):
            changed = _halved_fault(fault, lasts=lasts, after=not lasts)
            if changed != fault and len(plan.faults) > 1:
                yield msgspec.structs.replace(plan, faults=(*plan.faults[:index], changed, *plan.faults[index + 1 :]))


def _halved_fault(fault: PlannedFault, *, lasts: bool, after: bool) -> PlannedFault:
    return msgspec.structs.replace(
        fault,
        lasts_ms=_halved_ms(fault.lasts_ms) if lasts else fault.lasts_ms,
        after_ms=_halved_ms(fault.after_ms) if after else fault.after_ms,
    )


def _halved_ms(duration_ms: int) -> int:
    return duration_ms if duration_ms < 2 * DURATION_LEAST_MS else duration_ms // 2


def halved(plan: Plan) -> Iterator[Plan]:
    """Yield the plan with half of its time, with less of its rate and of its warm-up."""
    workers = [(worker, _rate_of(worker).rate_per_s) for worker in _load_of(plan).workers]
    if any(rate > RATE_LEAST for _, rate in workers):
        slower = [{**worker, "rate_per_s": max(RATE_LEAST, rate // 4)} for worker, rate in workers]
        yield _with_load(plan, workers=slower)
    if plan.time_ms > TIME_LEAST_MS:
        yield msgspec.structs.replace(plan, time_ms=plan.time_ms // 2)
    if plan.warm_up_ms > WARM_UP_LEAST_MS:
        yield msgspec.structs.replace(plan, warm_up_ms=plan.warm_up_ms // 4)


def _with_load(plan: Plan, **changed: object) -> Plan:
    return msgspec.structs.replace(plan, workload_plan={**plan.workload_plan, **changed})


def rate_of(plan: Plan) -> int:
    """Return the records per second that all workers produce together, of a described system the calls of all processes."""
    if plan.spec.has_objects:
        return msgspec.convert(msgspec.convert(plan.workload_plan, _Calling).options, _Pace).rate
    return sum(_rate_of(worker).rate_per_s for worker in _load_of(plan).workers)


def records_of(plan: Plan) -> int | None:
    """Return how many records all workers produce together at most; None where nothing limits them."""
    if plan.spec.has_objects:
        return None
    limits = [_rate_of(worker).records_max for worker in _load_of(plan).workers]
    known = [limit for limit in limits if limit is not None]
    return sum(known) if len(known) == len(limits) else None


def said(plan: Plan) -> str:
    """Return a plan's size in words."""
    records = records_of(plan)
    load = f"{rate_of(plan)} records/s" if records is None else f"{records} records"
    nodes = f"{plan.spec.brokers}+{plan.spec.controllers} nodes"
    if plan.spec.has_objects:
        load, nodes = f"{rate_of(plan)} calls/s", f"{plan.time_ms / 1000:g} s"
    lasting_ms = sum(fault.lasts_ms + fault.after_ms for fault in plan.faults)
    return f"{len(plan.faults)} faults of {lasting_ms / 1000:.1f} s in all, {load}, {nodes}"


Size = tuple[int, ...]


def size_of(plan: Plan) -> Size:
    """Return what a shrinker makes smaller: two plans alike in it are as small as each other."""
    spec, load = plan.spec, _load_of(plan)
    durations = sum(fault.lasts_ms + fault.after_ms for fault in plan.faults)
    records = records_of(plan)
    return (
        len(plan.faults),
        spec.brokers + spec.controllers,
        len(plan.beside),
        load.partitions,
        len(load.workers) + load.readers + (processes_of(plan) + _objects_of(plan) if spec.has_objects else 0),
        -1 if records is None else records,
        rate_of(plan),
        plan.time_ms + plan.warm_up_ms,
        durations,
    )
