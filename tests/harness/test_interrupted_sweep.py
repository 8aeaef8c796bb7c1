"""A sweep that is interrupted says what it had found, keeps it, and leaves nothing else behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tribunal.harness.campaign.sweep import Keeper, SeedResult, swept
from tribunal.harness.catalog import scenario_file
from tribunal.harness.plan import made
from tribunal.harness.scenario import load
from tribunal.results.verdict import Verdict

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, tempfile
tempfile.tempdir = sys.argv.pop(1)
from tribunal.results import scratch
scratch.MEMORY = tempfile.tempdir
from tribunal.harness.cli.main import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)])
def test_what_was_found_is_said_and_kept(tmp_path, number):
    memory = tmp_path / "memory"
    memory.mkdir()
    options = [
        "--seeds",
        "1:100",
        "--jobs",
        "2",
        "--mutant",
        "M01",
        "--out",
        str(tmp_path / "kept"),
        "--json",
    ]
    command = [sys.executable, "-c", PROGRAM, str(memory), "sweep", "last-replica-standing", *options]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    with process:
        found = next(line for line in process.stderr if line.startswith("found"))
        # Ctrl-C reaches the children too; who ends a job ends its first process.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        report, rest = json.load(process.stdout), process.stderr.read()

    assert process.returncode == 130
    assert report["interrupted"]
    assert report["seeds"] >= 1
    folder = found.split("kept in ")[1].strip()
    assert folder in {kept[0] for kept in report["kept"].values()}
    assert json.loads((Path(folder) / "verdict.json").read_bytes())["verdict"] == "VIOLATION"
    assert list(memory.iterdir()) == []
    assert "Traceback" not in rest


def test_an_interrupt_that_comes_while_the_last_result_is_reported_is_not_lost(tmp_path):
    """Notifying takes a minute where a program is called with it; the sweep ended then as if nobody had asked for anything."""
    scenario = load(scenario_file("last-replica-standing"), {})
    plan = made(scenario, seed=1, cluster="simulated", time_ms=1_000, mutants=())

    with pytest.raises(KeyboardInterrupt):
        swept([plan], jobs=1, budget_s=None, scratch=tmp_path, notify=lambda *_: os.kill(os.getpid(), signal.SIGTERM))


def result(folder, *signatures):
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(str(folder))
    return SeedResult(
        scenario="s", seed=1, verdict=Verdict.VIOLATION, claim="", signatures=list(signatures), run_dir=str(folder)
    )


def test_three_runs_of_a_finding_are_kept_and_the_others_let_go(tmp_path):
    keeper = Keeper(tmp_path / "out")

    kept = [keeper.keep(result(tmp_path / f"s-{seed}", "lost")) for seed in range(5)]

    assert kept == [tmp_path / "out" / f"s-{seed}" for seed in range(3)] + [None, None]
    assert keeper.folders == {"lost": [str(folder) for folder in kept[:3]]}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_run_that_shows_something_new_besides_is_kept(tmp_path):
    keeper = Keeper(tmp_path / "out")
    for seed in range(3):
        keeper.keep(result(tmp_path / f"s-{seed}", "lost"))

    assert keeper.keep(result(tmp_path / "s-9", "lost", "moved")) == tmp_path / "out" / "s-9"
    assert keeper.folders["moved"] == [str(tmp_path / "out" / "s-9")]


def test_what_an_earlier_sweep_kept_stays(tmp_path):
    first = Keeper(tmp_path / "out").keep(result(tmp_path / "a" / "s-1", "lost"))
    second = Keeper(tmp_path / "out").keep(result(tmp_path / "b" / "s-1", "lost"))

    assert (first, second) == (tmp_path / "out" / "s-1", tmp_path / "out" / "s-1.2")
    assert (first / "plan.json").read_text() != (second / "plan.json").read_text()


def test_a_seed_without_a_finding_has_nothing_to_keep(tmp_path):
    passed = SeedResult(scenario="s", seed=1, verdict=Verdict.PASS, claim="")

    assert Keeper(tmp_path / "out").keep(passed) is None
    assert not (tmp_path / "out").exists()
