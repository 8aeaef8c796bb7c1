"""etcd on trial, as `systems/etcd` describes it: linearizable reads are not accused."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tribunal.checkers.judge.verdict import check
from tribunal.clusters.kinds import system as kind
from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.run import Run, new_run_dir
from tribunal.harness.scenario import load
from tribunal.results.verdict import RunVerdict, Verdict

ETCD = Path(__file__).resolve().parents[2] / "systems" / "etcd"
pytestmark = pytest.mark.skipif(shutil.which("etcd") is None, reason="not installed: etcd (Debian: etcd-server)")


def judged(overrides: dict[str, str], out: Path) -> RunVerdict:
    """Run the scenario of etcd and judge it; nothing of it stays running."""
    plan = made(load(ETCD / "kill-and-pause.yaml", overrides), seed=1, cluster="system", time_ms=None, mutants=())
    run_dir = new_run_dir(plan, out)
    ending = asyncio.run(Run(plan, run_dir, Silent()).execute())
    assert ending.failure is None
    assert kind.leftovers(run_dir) == []
    (verdict,) = check([run_dir], "inline")
    return verdict


@pytest.mark.nightly
def test_reads_that_ask_the_leader_are_not_accused(tmp_path: Path) -> None:
    """Killed and paused nodes take nothing from etcd's registers."""
    verdict = judged({}, tmp_path)

    assert verdict.verdict is not Verdict.VIOLATION
    assert verdict.findings == []
