"""Show in under a minute what all of this is for: a subtle known bug, found, shrunk, run again and explained.

The bug is one that no single failure shows. Seeds are tried until one finds it, the plan is shrunk, and what remains is run
once more into a folder of its own, judged and reported like any other run.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tribunal.harness.campaign.mutation_score import plan_of, scenario_of, sought
from tribunal.harness.campaign.runners import LocalRunner
from tribunal.harness.campaign.shrink import Shrinker, said
from tribunal.harness.catalog import mutant_named
from tribunal.harness.evidence.explain import explained, lines
from tribunal.harness.plan import Plan, encoded
from tribunal.harness.progress import Silent

MUTANT: Final = "M01"
SEEDS: Final = range(200)
FIND_S: Final = 30.0
SHRINK_S: Final = 15.0


class Shown(NamedTuple):
    """What the demonstration came to: the minimal run's folder, and the sentences that explain it."""

    run_dir: Path
    story: list[str]
    seconds: float


class NothingFound(Exception):
    """The bug was not found in time; the message says how many seeds were tried."""


def demonstrate(out: Path, scratch: Path, jobs: int, notify: Callable[[str], None], mutant: str = MUTANT) -> Shown:
    """Find, shrink, explain and report a known bug."""
    began = time.monotonic()
    module, runner = mutant_named(mutant), LocalRunner(jobs)
    scenario = scenario_of(module)
    notify(f"looking for {module} with {scenario}")
    found = sought(module, scenario, SEEDS, FIND_S, runner, scratch)
    if found.seed is None or found.what is None:
        raise NothingFound(f"{module} was not found in {found.seeds} seeds of {scenario}; {found.note}")
    what = found.what
    notify(f"found by seed {found.seed} after {found.seeds} seeds, {found.seconds} s: {what}")
    plan = plan_of(scenario, found.seed, (module,))
    shrinker = Shrinker(scratch / "shrink", signature=what, runner=runner, budget_s=SHRINK_S)
    shrunk = shrinker.shrink(plan)
    if shrunk.interrupted:
        raise KeyboardInterrupt
    small = shrunk.plan
    small = msgspec.structs.replace(small, scenario=plan.scenario)
    notify(f"shrunk from {said(plan)}")
    notify(f"         to {said(small)}")
    run_dir = out / f"demo-{module}-{found.seed}"
    story = recorded(small, run_dir)
    return Shown(run_dir, story, round(time.monotonic() - began, 1))


def recorded(plan: Plan, run_dir: Path) -> list[str]:
    """Run a plan into a folder, judge and report it; return the story of the gravest finding."""
    from tribunal.harness.cli.session import judged, write_report
    from tribunal.harness.simulated import conduct_simulated

    shutil.rmtree(run_dir, ignore_errors=True)
    run_dir.mkdir(parents=True)
    (run_dir / "plan.json").write_bytes(encoded(plan))
    judged(conduct_simulated(plan, run_dir, Silent())[0], "inline")
    write_report(run_dir)
    first = next(explained(run_dir), None)
    return [] if first is None else list(lines(first))
