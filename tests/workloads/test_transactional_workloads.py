"""The workloads with groups and transactions on whole clusters: the correct build is judged right, and there was work."""

import subprocess
import sys
from pathlib import Path

import pytest

from tribunal.harness.campaign.mutation_score import plan_of
from tribunal.harness.campaign.sweep import swept
from tribunal.results.store import Recording
from tribunal.results.verdict import Verdict, load

ROOT = Path(__file__).resolve().parents[2]
FINE = (Verdict.PASS, Verdict.PERMITTED)
NAMES = ("bank", "transactions", "consumer-group", "exactly-once", "list-append", "idempotent-retries")
QUIET = """\
scenario: quiet
cluster:
  {settings: {group.min.session.timeout.ms: 1000, transaction.max.timeout.ms: 6000,
              transaction.abort.timed.out.transaction.cleanup.interval.ms: 1000}}
workload: {name: WORKLOAD}
time: 12s
steps:
  - {kill: leader(p0), for: 1.2x session}
"""


def scenario(folder: Path, workload: str) -> str:
    path = folder / "quiet.yaml"
    path.write_text(QUIET.replace("WORKLOAD", workload))
    return str(path)


@pytest.mark.parametrize("name", NAMES)
def test_a_leaders_death_breaks_no_promise(tmp_path: Path, name: str) -> None:
    (result,) = swept([plan_of(scenario(tmp_path, name), 3, ())], jobs=1, budget_s=None, scratch=tmp_path).results

    assert result.verdict in FINE, result.reasons
    assert result.simulated_ms > 10_000


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", [*NAMES, "small-segments", "unreplicated-markers", "markers-under-way", "impatient-producers"]
)
def test_its_scenario_breaks_no_promise(tmp_path: Path, name: str) -> None:
    results = swept((plan_of(name, seed, ()) for seed in range(20)), jobs=2, budget_s=None, scratch=tmp_path).results

    assert [(result.seed, result.reasons) for result in results if result.verdict not in FINE] == []


@pytest.mark.e2e
@pytest.mark.nightly
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", NAMES)
def test_librdkafka_does_the_same_on_processes(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-m", "tribunal.harness.cli.main", "run", scenario(tmp_path, name), "--seed", "1"]
    command += ["--engine", "inline", "--out", str(tmp_path / "runs")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    (made,) = (tmp_path / "runs").iterdir()
    recording = Recording.open(made)
    assert load(made / "verdict.json").verdict in FINE, done.stderr[-2_000:]
    work = {
        "consumer-group": lambda: sum(row["outcome"] == "ok" for row in recording.table("commits").to_pylist()),
        "idempotent-retries": lambda: recording.table("sends").num_rows,
    }
    committed = sum(row["outcome"] == "committed" for row in recording.table("txns").to_pylist())
    assert work.get(name, lambda: committed)() >= 10
