"""Does the harness find what it is for: each known bug switched on, sought by a sweep until found or the budget is gone.

A mutant's module names the scenario that is meant to find it (`SCENARIO`). A finding counts only if the same seed without
the mutant has none of the same signature: what our own build does wrong is no merit of the mutant. Some bugs harm
stability and nothing else; their module names a figure of the simulation (`FIGURE`) that must grow against the same
seeds without the mutant, and a violation would be a false accusation.
"""

import importlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tribunal.harness.campaign.sweep import SeedResult, Sweep, swept
from tribunal.harness.catalog import SIMULATED, scenario_file
from tribunal.harness.plan import Plan, made
from tribunal.harness.scenario import load
from tribunal.results.signature import Signature, gravity, texts
from tribunal.results.verdict import Verdict

DEFAULT_SCENARIO: Final = "produce-consume"
FIGURE_GROWTH: Final = 2  # elections more than without the mutant, over all seeds compared
FIGURE_SEEDS: Final = 3


class Power(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one mutant.

    seen_by:  the first finding's signatures in their text form, figures as `name a -> b`.
    what:     the gravest of them; None: a figure, or nothing.
    seeds:    how many were run until then, with the finding's own; verdicts: how many of them got which.
    """

    mutant: str
    scenario: str
    found: bool
    seen_by: list[str]
    what: Signature | None = None
    seed: int | None
    seeds: int
    verdicts: dict[str, int] = {}
    seconds: float
    run_dir: str = ""
    note: str = ""


def scenario_of(mutant: str) -> str:
    """Return the scenario that is meant to find a mutant."""
    module = importlib.import_module(f"replog.mutants.{mutant}")
    return str(getattr(module, "SCENARIO", DEFAULT_SCENARIO))


def figure_of(mutant: str) -> str | None:
    """Return the figure that a mutant harms, None where it is to be found as a violation."""
    return getattr(importlib.import_module(f"replog.mutants.{mutant}"), "FIGURE", None)


def power(
    mutants: Sequence[str],
    *,
    scenario: str | None,
    seeds: range,
    budget_s: float,
    jobs: int,
    scratch: Path,
    notify: Callable[[Power], None] = lambda result: None,
) -> list[Power]:
    """Seek each mutant; the budget is shared evenly, and what one leaves goes to those after it."""
    deadline = time.monotonic() + budget_s
    results = []
    for index, mutant in enumerate(mutants):
        share_s = (deadline - time.monotonic()) / (len(mutants) - index)
        name = scenario or scenario_of(mutant)
        seek = _sought_figure if figure_of(mutant) else sought
        results.append(seek(mutant, name, seeds, share_s, jobs, scratch))
        notify(results[-1])
    return results


def sought(mutant: str, scenario: str, seeds: range, budget_s: float, jobs: int, scratch: Path) -> Power:
    """Sweep a scenario with a mutant until a seed finds something that is the mutant's doing."""
    began = time.monotonic()
    excused: dict[Signature, None] = {}  # signatures that the unchanged build has too
    verdicts: Counter[str] = Counter()
    next_seed = seeds.start
    while next_seed < seeds.stop and time.monotonic() - began < budget_s:
        left_s = budget_s - (time.monotonic() - began)
        hit, ran = _first_finding(mutant, scenario, range(next_seed, seeds.stop), left_s, jobs, scratch, excused)
        verdicts += ran
        if hit is None:
            break
        next_seed = hit.seed + 1
        innocent = _alone(scenario, hit.seed, (), scratch)
        own = [name for name in hit.signatures if name not in innocent.signatures]
        if own:
            return Power(
                mutant=mutant, scenario=scenario, found=True, seen_by=texts(own), what=min(own, key=gravity), seed=hit.seed,
                seeds=verdicts.total(), verdicts=dict(verdicts), seconds=round(time.monotonic() - began, 1), run_dir=hit.run_dir,
            )  # fmt: skip
        excused.update(dict.fromkeys(hit.signatures))
    return Power(
        mutant=mutant, scenario=scenario, found=False, seen_by=[], seed=None, seeds=verdicts.total(),
        verdicts=dict(verdicts), seconds=round(time.monotonic() - began, 1), note=_excuse(excused),
    )  # fmt: skip


def _excuse(excused: dict[Signature, None]) -> str:
    return f"not counted, found without it too: {', '.join(texts(excused))}" if excused else ""


def _first_finding(
    mutant: str, scenario: str, seeds: range, budget_s: float, jobs: int, scratch: Path, excused: dict[Signature, None]
) -> tuple[SeedResult | None, Counter[str]]:
    """Return the first seed (in order of ending) with a finding of its own, and the verdicts of all that were run."""
    hits: list[SeedResult] = []

    def plans() -> Iterator[Plan]:
        for seed in seeds:
            if hits:
                return
            yield plan_of(scenario, seed, (mutant,))

    def notify(result: SeedResult, _: Sweep) -> None:
        if result.verdict is Verdict.VIOLATION and any(name not in excused for name in result.signatures):
            hits.append(result)

    account = swept(plans(), jobs=jobs, budget_s=budget_s, scratch=scratch / mutant, notify=notify)
    return (hits[0] if hits else None), account.verdicts


def _alone(scenario: str, seed: int, mutants: tuple[str, ...], scratch: Path) -> SeedResult:
    plan = plan_of(scenario, seed, mutants)
    (result,) = swept([plan], jobs=1, budget_s=None, scratch=scratch / "innocent").results
    return result


def _sought_figure(mutant: str, scenario: str, seeds: range, budget_s: float, jobs: int, scratch: Path) -> Power:
    """Compare a figure over a few seeds with and without the mutant; a loss would be a false accusation."""
    began = time.monotonic()
    name = figure_of(mutant) or ""
    compared = seeds[:FIGURE_SEEDS]
    sums = []
    accused: list[str] = []
    for mutants in ((), (mutant,)):
        plans = [plan_of(scenario, seed, mutants) for seed in compared]
        results = swept(plans, jobs=jobs, budget_s=budget_s / 2, scratch=scratch / mutant).results
        sums.append(sum(result.figures.get(name, 0) for result in results) / max(1, len(results)))
        accused += [str(signature) for result in results for signature in result.signatures]
    found = sums[1] >= sums[0] + FIGURE_GROWTH and not accused
    return Power(
        mutant=mutant, scenario=scenario, found=found, seen_by=[f"figure {name} {sums[0]:.1f} -> {sums[1]:.1f}"],
        seed=compared[0], seeds=len(compared), seconds=round(time.monotonic() - began, 1),
        note=f"must not be a violation, was one: {', '.join(accused)}" if accused else "",
    )  # fmt: skip


def plan_of(scenario: str, seed: int, mutants: tuple[str, ...]) -> Plan:
    """Plan one seed of a scenario, in the simulator."""
    return made(load(scenario_file(scenario), {}), seed=seed, cluster=SIMULATED, time_ms=None, mutants=mutants)
