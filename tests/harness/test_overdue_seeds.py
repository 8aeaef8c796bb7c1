"""A seed is given up by the CPU that it used: a busy machine gives little of it, and that is no fault of the seed."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tribunal.harness.campaign import sweep
from tribunal.harness.campaign.sweep import SeedResult, cpu_s, swept
from tribunal.harness.catalog import SIMULATED, scenario_file
from tribunal.harness.plan import Plan, made
from tribunal.harness.scenario import load
from tribunal.results.verdict import Verdict


def sleeping(plan: Plan, run_dir: Path, *, notes_states: bool = False) -> SeedResult:
    time.sleep(1.5)  # noqa: TID251 - a process that gets no CPU
    return SeedResult(scenario=plan.scenario, seed=plan.seed, verdict=Verdict.PASS, claim="slept", run_dir=str(run_dir))


def working(plan: Plan, run_dir: Path, *, notes_states: bool = False) -> SeedResult:
    while True:
        pass


def one_seed(folder: Path) -> SeedResult:
    plan = made(load(scenario_file("produce-consume"), {}), seed=1, cluster=SIMULATED, time_ms=1000, mutants=())
    results: list[SeedResult] = []
    swept([plan], jobs=1, budget_s=None, scratch=folder, notify=lambda result, _: results.append(result))
    (result,) = results
    return result


def test_a_seed_that_gets_no_cpu_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "SEED_CPU_S", 1)
    monkeypatch.setattr(sweep, "run_seed", sleeping)

    assert one_seed(tmp_path).verdict is Verdict.PASS


def test_a_seed_that_waits_for_ever_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "SEED_CPU_S", 0.2)
    monkeypatch.setattr(sweep, "SEED_TIMEOUT_S", 0.5)
    monkeypatch.setattr(sweep, "run_seed", sleeping)

    found = one_seed(tmp_path)

    assert found.verdict is Verdict.ERROR
    assert "the process was ended: no result after" in found.claim


def test_a_seed_that_works_for_ever_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "SEED_CPU_S", 0.5)
    monkeypatch.setattr(sweep, "run_seed", working)

    found = one_seed(tmp_path)

    assert found.verdict is Verdict.ERROR
    assert "the process was ended: no result after" in found.claim


def talking(plan: Plan, run_dir: Path, *, notes_states: bool = False) -> SeedResult:
    return SeedResult(scenario=plan.scenario, seed=plan.seed, verdict=Verdict.PASS, claim="said " * 100_000)


def test_a_seed_that_says_more_than_a_pipe_holds_is_received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for somebody to listen, who waited for its end: for an hour, and then it was an error."""
    monkeypatch.setattr(sweep, "SEED_CPU_S", 1)
    monkeypatch.setattr(sweep, "SEED_TIMEOUT_S", 3)
    monkeypatch.setattr(sweep, "run_seed", talking)

    found = one_seed(tmp_path)

    assert (found.verdict, len(found.claim)) == (Verdict.PASS, 500_000)


def test_the_cpu_of_a_process_that_is_gone_is_none() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    assert cpu_s(ended.pid) == 0.0


def test_no_seed_begins_that_would_outlast_a_night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a night of ten minutes took fourteen: a seed took a minute and a half, and one began in the last second."""
    monkeypatch.setattr(sweep, "run_seed", sleeping)
    plans = (
        made(load(scenario_file("produce-consume"), {}), seed=seed, cluster=SIMULATED, time_ms=1000, mutants=())
        for seed in range(9)
    )
    account = swept(plans, jobs=1, budget_s=2.5, scratch=tmp_path, ends_in_time=True)

    assert len(account.results) == 1
