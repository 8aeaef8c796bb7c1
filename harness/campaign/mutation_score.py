"""Does the harness find what it is for: each known bug switched on, sought by a sweep until found or the budget is gone.

A mutant's module names the scenario that is meant to find it (`SCENARIO`). A finding counts only if the same seed without
the mutant has none of the same signature: what our own build does wrong is no merit of the mutant. Some bugs harm
stability and nothing else; their module names a figure of the simulation (`FIGURE`) that must grow against the same
seeds without the mutant (by `FIGURE_GROWTH`), and a violation would be a false accusation.

It can also be sought by the swarm alone: by scenarios of random faults that know of no bug, in the mode of the bug's own scenario; or by a
guided search that begins with these, with a corpus of its own.

Each bug that is sought so has seeds of its own, drawn from the first seed and its name: what the first runs have in common would be all that a
small budget buys. Where some scenarios never call the code that a bug replaced and others do, the time goes to the others.

Of a bug that was missed it is recorded whether it came to do anything: a run repeats itself bit by bit, so one with the bug whose
trace is that of the same plan without it never came to where the bug is. So what was never reached is known apart from what nobody judges.
"""

import importlib
import math
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

import msgspec
from msgspec.structs import replace

from tribunal.clusters.spec import ZOOKEEPER
from tribunal.harness.campaign.corpus import Corpus
from tribunal.harness.campaign.runners import Runner
from tribunal.harness.campaign.search import ROUND, Ran, Search, Searched
from tribunal.harness.campaign.sweep import SeedResult, Sweep
from tribunal.harness.catalog import SIMULATED, faults, scenario_file
from tribunal.harness.plan import Plan, made
from tribunal.harness.scenario import load
from tribunal.results.power import By, Power
from tribunal.results.signature import Signature, gravity, texts
from tribunal.results.verdict import Verdict

DEFAULT_SCENARIO: Final = "produce-consume"
SWARMS: Final = ("wide-swarm", "rotating-swarm", "wide-swarm-exactly-once", "operated-swarm")
FIGURE_GROWTH: Final = 2  # elections more than without the mutant, on average, where its module says nothing else
FIGURE_SEEDS: Final = 3
COMPARED: Final = 8  # runs of a bug that was missed: two rounds of a search
SEEDS: Final = 1 << 31
TRIES_BEFORE_PASSED_OVER: Final = 2  # of a scenario that never calls the bug's code
SOUGHT_BY: Final = {one.value: one for one in By}
Runs = Iterable[tuple[Plan, SeedResult]]


def scenario_of(mutant: str) -> str:
    """Return the scenario that is meant to find a mutant."""
    module = importlib.import_module(f"replog.mutants.{mutant}")
    return str(getattr(module, "SCENARIO", DEFAULT_SCENARIO))


def figure_of(mutant: str) -> str | None:
    """Return the figure that a mutant harms, None where it is to be found as a violation."""
    return getattr(importlib.import_module(f"replog.mutants.{mutant}"), "FIGURE", None)


def figure_growth_of(mutant: str) -> float:
    """Return by how much that figure has to grow on average to be the mutant's doing."""
    return float(getattr(importlib.import_module(f"replog.mutants.{mutant}"), "FIGURE_GROWTH", FIGURE_GROWTH))


def mode_of(mutant: str) -> str:
    """Return the mode that the mutant's own scenario runs in."""
    return load(scenario_file(scenario_of(mutant)), {}).spec.mode


def power(  # noqa: PLR0913 - how they are sought
    mutants: Sequence[str],
    *,
    scenario: str | None,
    by: By = By.OWN,
    seeds: range,
    budget_s: float,
    runner: Runner,
    scratch: Path,
    round_size: int = ROUND,
    each_s: float = math.inf,
    each_cpu_s: float = math.inf,
    notify: Callable[[Power], None] = lambda result: None,
    accuse: Callable[[SeedResult], None] = lambda result: None,
) -> list[Power]:
    """Seek each mutant; the budget is shared evenly, and what one leaves goes to those after it.

    scenario:    instead of the scenarios of `by`; then the results are of no kind of search.
    seeds:       of a bug's own scenario, and of one that is given; for others of `by` each bug draws as many from the first of these and its name.
    each_s:      no mutant gets more, whatever others have left.
    each_cpu_s:  no run begins for a mutant that has had so much CPU time: the same effort on a busy machine as on a quiet one.
    accuse:      gets each run without a bug that is a violation: it counts for no mutant, and is a finding of this build.
    """
    deadline = time.monotonic() + budget_s
    innocents = Innocents(runner, scratch / "innocent", accuse)
    results = []
    for index, mutant in enumerate(mutants):
        share_s = min(each_s, (deadline - time.monotonic()) / (len(mutants) - index))
        scenarios = scenarios_of(mutant, by, scenario)
        began_s = _cpu_s(runner)
        runs: Runs = ()
        drawn = seeds if by is By.OWN or scenario is not None else own_seeds(mutant, seeds)
        if figure_of(mutant) and by is By.SEARCH and scenario is None:
            found = _searched_figure(
                mutant, scenarios, drawn.start, share_s, innocents, scratch, round_size=round_size, cpu_s=each_cpu_s
            )
        elif figure_of(mutant):
            found = _sought_figure(mutant, scenarios[0], seeds, share_s, runner, scratch)
        elif by is By.SEARCH:
            found, runs = _searched(
                mutant, scenarios, drawn.start, share_s, innocents, scratch, round_size=round_size, cpu_s=each_cpu_s
            )
        else:
            found, runs = _sought(mutant, scenarios, drawn, share_s, innocents, scratch, cpu_s=each_cpu_s)
        found = replace(found, by=by if scenario is None else None, cpu_seconds=round(_cpu_s(runner) - began_s, 1))
        results.append(found if found.found else _compared(found, runs, innocents))
        notify(results[-1])
    return results


def own_seeds(mutant: str, seeds: range) -> range:
    """Return as many seeds that are the mutant's own."""
    first = Random(f"{seeds.start}/power/{mutant}").randrange(SEEDS - len(seeds))
    return range(first, first + len(seeds))


def scenarios_of(mutant: str, by: By, scenario: str | None) -> tuple[str, ...]:
    """Return where a mutant is sought: in the scenario that is given, in its own, or in the swarms that its mode has."""
    if scenario is not None:
        return (scenario,)
    if by is By.OWN:
        return (scenario_of(mutant),)
    mode = mode_of(mutant)
    return tuple(name for name in SWARMS if _is_possible(name, mode))


def _is_possible(scenario: str, mode: str) -> bool:
    """Return whether there is in this mode what the scenario's faults disturb."""
    known = faults()
    return all(mode in known[step.kind].modes for step in load(scenario_file(scenario), {}).steps)


def _cpu_s(runner: Runner) -> float:
    """Return the CPU time of this process and of the runs that have ended, wherever they ran."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime + runner.cpu_s


def sought(mutant: str, scenario: str, seeds: range, budget_s: float, runner: Runner, scratch: Path) -> Power:
    """Sweep a scenario with a mutant until a seed finds something that is the mutant's doing."""
    found, _ = _sought(mutant, [scenario], seeds, budget_s, Innocents(runner, scratch / "innocent"), scratch)
    return found


def _sought(
    mutant: str,
    scenarios: Sequence[str],
    seeds: range,
    budget_s: float,
    innocents: "Innocents",
    scratch: Path,
    *,
    cpu_s: float = math.inf,
) -> tuple[Power, Runs]:
    """Try the scenarios by turns, seed by seed; a night gives a million seeds, so tries are made when their turn comes."""
    began, runner = time.monotonic(), innocents.runner
    spent_at_s = runner.cpu_s + cpu_s
    results: list[SeedResult] = []
    excused: dict[Signature, None] = {}  # signatures that the unchanged build has too
    verdicts: Counter[str] = Counter()
    mode = mode_of(mutant)
    names = [load(scenario_file(given), {}).name for given in scenarios]  # a file may be given
    left = range(len(scenarios) * len(seeds))
    while left and time.monotonic() - began < budget_s and runner.cpu_s < spent_at_s:
        left_s = budget_s - (time.monotonic() - began)
        ran = Sweep()
        tries = (
            (scenarios[number % len(scenarios)], seeds[number // len(scenarios)])
            for number in left
            if not _is_passed_over(names[number % len(scenarios)], (*results, *ran.results))
        )
        plans = (plan_of(scenario, seed, (mutant,), mode) for scenario, seed in tries)
        hits = _findings(plans, left_s, runner, scratch / mutant, excused, spent_at_s, ran)
        verdicts += ran.verdicts
        results += ran.results
        if not hits:
            break
        numbers = {id(one): seeds.index(one.seed) * len(scenarios) + names.index(one.scenario) for one in ran.results}
        left = range(max(numbers.values()) + 1, left.stop)
        for hit in sorted(hits, key=lambda one: numbers[id(one)]):  # several that ran at once may have one
            which = names.index(hit.scenario)
            innocent = innocents.of(plan_of(scenarios[which], hit.seed, (), mode))
            own = [name for name in hit.signatures if name not in innocent.signatures]
            if own:
                found = Power(
                    mutant=mutant, scenario=hit.scenario, found=True, seen_by=texts(own), what=min(own, key=gravity),
                    seed=hit.seed, seeds=verdicts.total(), verdicts=dict(verdicts),
                    seconds=round(time.monotonic() - began, 1), run_dir=hit.run_dir,
                )  # fmt: skip
                return found, ()
            excused.update(dict.fromkeys(hit.signatures))
    missed = Power(
        mutant=mutant, scenario=", ".join(names), found=False, seen_by=[], seed=None, seeds=verdicts.total(),
        verdicts=dict(verdicts), seconds=round(time.monotonic() - began, 1), note=_excuse(excused),
    )  # fmt: skip
    return missed, ((plan_of(scenarios[names.index(one.scenario)], one.seed, (mutant,), mode), one) for one in results)


def searched(
    mutant: str,
    scenarios: Sequence[str],
    seed: int,
    budget_s: float,
    runner: Runner,
    scratch: Path,
    round_size: int = ROUND,
) -> Power:
    """Search from scenarios until a run finds something that is the mutant's doing; seeds are runs of the search."""
    innocents = Innocents(runner, scratch / "innocent")
    found, _ = _searched(mutant, scenarios, seed, budget_s, innocents, scratch, round_size=round_size)
    return found


def _searched(
    mutant: str,
    scenarios: Sequence[str],
    seed: int,
    budget_s: float,
    innocents: "Innocents",
    scratch: Path,
    *,
    round_size: int,
    cpu_s: float = math.inf,
) -> tuple[Power, Runs]:
    began, runner = time.monotonic(), innocents.runner
    spent_at_s = runner.cpu_s + cpu_s
    runs: list[tuple[Plan, SeedResult]] = []
    excused: dict[Signature, None] = {}
    search = _search_for(
        mutant, scenarios, seed, runner, scratch, round_size, lambda ran, _: runs.append((ran.chosen.plan, ran.result))
    )

    def is_found(ran: Ran) -> bool:
        is_violation = ran.result.verdict is Verdict.VIOLATION
        return is_violation and any(name not in excused for name in ran.result.signatures)

    own: list[Signature] = []
    ran = None
    while not own:  # also with no time left: of the last round there may be others to compare
        left_s, left_cpu_s = budget_s - (time.monotonic() - began), spent_at_s - runner.cpu_s
        ran = search.run(budget_s=max(0.0, left_s), cpu_budget_s=max(0.0, left_cpu_s), is_found=is_found)
        if ran is None:
            break
        innocent = innocents.of(ran.chosen.plan)
        own = [name for name in ran.result.signatures if name not in innocent.signatures]
        excused.update(dict.fromkeys(innocent.signatures))
    hit = ran if own else None
    found = Power(
        mutant=mutant, scenario=", ".join(scenarios), found=hit is not None, seen_by=texts(own),
        what=min(own, key=gravity) if own else None, seed=hit.number if hit else None, seeds=search.searched.runs,
        verdicts=dict(search.account.verdicts), seconds=round(time.monotonic() - began, 1),
        run_dir=hit.result.run_dir if hit else "", note=hit.chosen.how if hit else _excuse(excused),
    )  # fmt: skip
    return found, runs


def _search_for(
    mutant: str,
    scenarios: Sequence[str],
    seed: int,
    runner: Runner,
    scratch: Path,
    round_size: int,
    notify: Callable[[Ran, Searched], None] = lambda ran, searched: None,
) -> Search:
    """Return a search with a corpus of the bug's own."""
    wanted = [load(scenario_file(name), _overrides(mode_of(mutant))) for name in scenarios]
    folder = scratch / mutant
    return Search(
        wanted, Corpus(folder / "corpus"), seed=seed, runner=runner, scratch=folder, mutants=(mutant,),
        round_size=round_size, notify=notify,
    )  # fmt: skip


def _searched_figure(
    mutant: str,
    scenarios: Sequence[str],
    seed: int,
    budget_s: float,
    innocents: "Innocents",
    scratch: Path,
    *,
    round_size: int,
    cpu_s: float = math.inf,
) -> Power:
    """Search until a run's figure is as much larger with the bug as it has to be, and so on average with other seeds of its plan too.

    One pair of runs says little: another course of events alone may elect once more. A violation would be a false accusation.
    """
    began, runner = time.monotonic(), innocents.runner
    spent_at_s = runner.cpu_s + cpu_s
    name, growth = figure_of(mutant) or "", figure_growth_of(mutant)
    search = _search_for(mutant, scenarios, seed, runner, scratch, round_size)
    accused: dict[Signature, None] = {}

    def is_found(ran: Ran) -> bool:
        is_worth_it = ran.result.entered and ran.result.figures.get(name, 0) >= growth
        return ran.result.verdict is Verdict.VIOLATION or (is_worth_it and ran.result.verdict is not Verdict.ERROR)

    hit, seen = None, ""
    while hit is None:
        left_s, left_cpu_s = budget_s - (time.monotonic() - began), spent_at_s - runner.cpu_s
        ran = search.run(budget_s=max(0.0, left_s), cpu_budget_s=max(0.0, left_cpu_s), is_found=is_found)
        if ran is None:
            break
        plan = ran.chosen.plan
        innocent = innocents.of(plan)
        accused.update(dict.fromkeys(one for one in ran.result.signatures if one not in innocent.signatures))
        if ran.result.figures.get(name, 0) < innocent.figures.get(name, 0) + growth:
            continue
        random = Random(f"{plan.seed}/figure")
        again = [replace(plan, seed=random.randrange(SEEDS)) for _ in range(FIGURE_SEEDS)]
        results = runner.swept(again, budget_s=None, scratch=scratch / mutant).results
        means = [
            sum(one.figures.get(name, 0) for one in these) / FIGURE_SEEDS
            for these in (map(innocents.of, again), results)
        ]
        if means[1] >= means[0] + growth:
            hit, seen = ran, f"figure {name} {means[0]:.1f} -> {means[1]:.1f}"
    return Power(
        mutant=mutant, scenario=", ".join(scenarios), found=hit is not None and not accused,
        seen_by=[seen] if hit else [], seed=hit.number if hit else None, seeds=search.searched.runs,
        verdicts=dict(search.account.verdicts), seconds=round(time.monotonic() - began, 1),
        note=f"must not be a violation, was one: {', '.join(texts(accused))}" if accused else (hit.chosen.how if hit else ""),
    )  # fmt: skip


class Innocents:
    """Runs without a bug. Each plan is run once, however many bugs were sought with it: searches begin alike.

    accuse:  gets each that is a violation, once.
    """

    def __init__(
        self, runner: Runner, scratch: Path, accuse: Callable[[SeedResult], None] = lambda result: None
    ) -> None:
        self.runner = runner
        self._scratch = scratch
        self._accuse = accuse
        self._known: dict[bytes, SeedResult] = {}

    def of(self, plan: Plan) -> SeedResult:
        """Return what the plan comes to when nothing is switched on."""
        alone = replace(plan, spec=replace(plan.spec, mutants=()))
        key = msgspec.json.encode(alone)
        if key not in self._known:
            (self._known[key],) = self.runner.swept([alone], budget_s=None, scratch=self._scratch).results
            if self._known[key].verdict is Verdict.VIOLATION:
                self._accuse(self._known[key])
        return self._known[key]


def _compared(missed: Power, runs: Runs, innocents: Innocents) -> Power:
    """Take note of whether the bug changed any run; one that died has no trace that could be compared.

    Where the bug's code was never called the run without it need not be run to be known as the same.
    """
    first = islice(((plan, one) for plan, one in runs if one.trace_hash), COMPARED)
    compared = changed = 0
    for plan, one in sorted(first, key=lambda ran: ran[1].entered):
        trace = innocents.of(plan).trace_hash if one.entered else one.trace_hash
        compared += bool(trace)
        changed += bool(trace) and trace != one.trace_hash
        if changed:
            break
    return replace(missed, compared=compared, changed=changed)


def _excuse(excused: dict[Signature, None]) -> str:
    return f"not counted, found without it too: {', '.join(texts(excused))}" if excused else ""


def _findings(
    wanted: Iterator[Plan],
    budget_s: float,
    runner: Runner,
    scratch: Path,
    excused: dict[Signature, None],
    spent_at_s: float,
    account: Sweep,
) -> list[SeedResult]:
    """Run plans until one has a finding of its own; return it, and those of the runs beside it that have one, too. `account` is of all that were run."""
    hits: list[SeedResult] = []

    def plans() -> Iterator[Plan]:
        while not hits and runner.cpu_s < spent_at_s and (plan := next(wanted, None)) is not None:
            yield plan

    def notify(result: SeedResult, _: Sweep) -> None:
        if result.verdict is Verdict.VIOLATION and any(name not in excused for name in result.signatures):
            hits.append(result)

    runner.swept(plans(), budget_s=budget_s, scratch=scratch, notify=notify, account=account)
    return hits


def _is_passed_over(scenario: str, results: Sequence[SeedResult]) -> bool:
    """Return whether a scenario's runs have never called the bug's code, and those of another have."""
    own = [one.entered for one in results if one.scenario == scenario]
    return len(own) >= TRIES_BEFORE_PASSED_OVER and not any(own) and any(one.entered for one in results)


def _sought_figure(mutant: str, scenario: str, seeds: range, budget_s: float, runner: Runner, scratch: Path) -> Power:
    """Compare a figure over a few seeds with and without the mutant; a loss would be a false accusation."""
    began = time.monotonic()
    name = figure_of(mutant) or ""
    compared = seeds[:FIGURE_SEEDS]
    sums = []
    ran = []
    accused: list[str] = []
    for mutants in ((), (mutant,)):
        plans = [plan_of(scenario, seed, mutants, mode_of(mutant)) for seed in compared]
        results = runner.swept(plans, budget_s=budget_s / 2, scratch=scratch / mutant).results
        ran.append(len(results))
        sums.append(sum(result.figures.get(name, 0) for result in results) / max(1, len(results)))
        accused += [str(signature) for result in results for signature in result.signatures]
    found = all(ran) and sums[1] >= sums[0] + figure_growth_of(mutant) and not accused
    return Power(
        mutant=mutant, scenario=scenario, found=found, seen_by=[f"figure {name} {sums[0]:.1f} -> {sums[1]:.1f}"],
        seed=compared[0], seeds=min(ran), seconds=round(time.monotonic() - began, 1),
        note=f"must not be a violation, was one: {', '.join(accused)}" if accused else "",
    )  # fmt: skip


def plan_of(scenario: str, seed: int, mutants: tuple[str, ...], mode: str = "") -> Plan:
    """Plan one seed of a scenario, in the simulator; in another mode than its own only where that is ZooKeeper's."""
    wanted = load(scenario_file(scenario), _overrides(mode))
    return made(wanted, seed=seed, cluster=SIMULATED, time_ms=None, mutants=mutants)


def _overrides(mode: str) -> dict[str, str]:
    return {"cluster.mode": ZOOKEEPER} if mode == ZOOKEEPER else {}
