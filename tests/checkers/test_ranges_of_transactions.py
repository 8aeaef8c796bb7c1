"""Runs with transactions and groups are judged in ranges as they are whole: verdict, findings and figures.

The runs are the simulator's, as they came and with anomalies put into them; `test_ranges` has random ones.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

import pytest

from tests.checkers.test_ranges import found_whole_and_cut
from tribunal.checkers.calibration.api import classes
from tribunal.checkers.calibration.case import Case
from tribunal.harness.campaign.calibrate import copy_with, injections
from tribunal.harness.catalog import scenario_file
from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.scenario import load
from tribunal.harness.simulated import conduct_simulated
from tribunal.results.store import Recording

SCENARIO = """
scenario: {name}
about: transactions, and consumers beside them
cluster: {{brokers: 3, controllers: 3, replication_factor: 3, min_insync_replicas: 2, profile: ci,
           settings: {{group.min.session.timeout.ms: 1000}}}}
workload: {{{workload}}}
time: {time}
steps:
  - {{kill: leader(p0), for: 2s}}
"""
RUNS = {
    "exactly": ("name: exactly-once, session_timeout_ms: 2500", "7s"),
    "messages": ("name: transactions", "7s"),
    "bank": ("name: bank", "5s"),
    "lists": ("name: list-append", "5s"),
}
M50 = "m50_open_transactions_stay"
SEED_OF_M50 = 7  # the one of docs/power.json


def simulated(folder: Path, scenario: str, *, seed: int = 1, on: tuple[str, ...] = ()) -> Path:
    folder.mkdir(parents=True)
    plan = made(load(scenario_file(scenario), {}), seed=seed, cluster="simulated", time_ms=None, mutants=on)
    conduct_simulated(plan, folder, Silent())
    return folder


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    base = tmp_path_factory.mktemp("transactions")

    @cache
    def made_once(name: str) -> Path:
        if name == "m50":
            return simulated(base / name, "unclean-transactions", seed=SEED_OF_M50, on=(M50,))
        path = base / f"{name}.yaml"
        workload, time = RUNS[name]
        path.write_text(SCENARIO.format(name=name, workload=workload, time=time))
        return simulated(base / name, str(path))

    return made_once


@pytest.mark.parametrize(
    ("name", "offsets"),
    [("exactly", 50), ("m50", 90), *(pytest.param(name, 20, marks=pytest.mark.nightly) for name in (*RUNS, "m50"))],
)
def test_a_run_with_transactions_is_judged_in_ranges_as_it_is_whole(
    run_of: Callable[[str], Path], name: str, offsets: int
) -> None:
    found = {kind for kind, severity, _ in found_whole_and_cut(run_of(name), offsets) if severity == "violation"}

    assert ("aborted_read" in found) == (name == "m50")


INJECTED = sorted(name for name, one in classes().items() if one.inject is not None)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*RUNS, "m50"])
def test_anomalies_in_a_run_with_transactions_are_found_in_ranges_as_they_are_whole(
    run_of: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    case, random = Case(Recording.open(run_of(name))), Random(name)
    for number, (one, injected) in enumerate(injections(case, [classes()[each] for each in INJECTED], 1, seed=0)):
        copy = copy_with(case, injected, tmp_path / f"{number}-{one.name}")
        assert found_whole_and_cut(copy, random.choice([1, 5, 16, 64])), one.name
