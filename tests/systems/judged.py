"""A described system on trial: its nodes started, or its scenario run and judged, and nothing of it stays."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tribunal.checkers.judge.verdict import check
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds import system as kind
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.spec import ClusterSpec
from tribunal.clusters.systems.cluster import SystemCluster
from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.run import Run, new_run_dir
from tribunal.harness.scenario import load
from tribunal.results.verdict import RunVerdict

CLUSTER_ID: Final = "tribunalSystemsQQQQQQQ"


def context_of(spec: ClusterSpec, run: Path) -> RunContext:
    """Return what a run of a system has, in a folder that is there."""
    return RunContext(spec, run, RunClock(), CLUSTER_ID)


async def started(spec: ClusterSpec, run: Path) -> SystemCluster:
    """Start a system's nodes in a folder that is there; whoever asked closes them."""
    return await kind.launch(spec, run, RunClock(), CLUSTER_ID)


def judged_in(folder: Path, scenario: str, overrides: Mapping[str, str], out: Path, *, seed: int = 1) -> RunVerdict:
    """Run a scenario of a system's folder and judge it; nothing of it stays running."""
    plan = made(load(folder / scenario, dict(overrides)), seed=seed, cluster="system", time_ms=None, mutants=())
    run_dir = new_run_dir(plan, out)
    ending = asyncio.run(Run(plan, run_dir, Silent()).execute())
    assert ending.failure is None, ending.failure
    assert kind.leftovers(run_dir) == []
    (verdict,) = check([run_dir], "inline")
    return verdict
