"""A described system on trial: its scenario is run and judged, and nothing of it stays."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from tribunal.checkers.judge.verdict import check
from tribunal.clusters.kinds import system as kind
from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.run import Run, new_run_dir
from tribunal.harness.scenario import load
from tribunal.results.verdict import RunVerdict


def judged_in(folder: Path, scenario: str, overrides: Mapping[str, str], out: Path, *, seed: int = 1) -> RunVerdict:
    """Run a scenario of a system's folder and judge it; nothing of it stays running."""
    plan = made(load(folder / scenario, dict(overrides)), seed=seed, cluster="system", time_ms=None, mutants=())
    run_dir = new_run_dir(plan, out)
    ending = asyncio.run(Run(plan, run_dir, Silent()).execute())
    assert ending.failure is None, ending.failure
    assert kind.leftovers(run_dir) == []
    (verdict,) = check([run_dir], "inline")
    return verdict
