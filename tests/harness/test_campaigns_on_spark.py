"""Sweeps, searches, power, shrinking and likelihood on Spark come to what they come to on this machine."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.checkers.spark_clusters import standalone
from tribunal.checkers.spark.session import NoSpark
from tribunal.clusters.simulated.guards import counted as counted_guards
from tribunal.harness.campaign.corpus import Corpus
from tribunal.harness.campaign.likelihood import Measured
from tribunal.harness.campaign.mutation_score import plan_of, power
from tribunal.harness.campaign.runners import LocalRunner, Runner
from tribunal.harness.campaign.search import Search
from tribunal.harness.campaign.shrink import Shrinker
from tribunal.harness.campaign.sweep import Sweep
from tribunal.harness.cli import simulate
from tribunal.harness.cli.cluster import place, runner_at
from tribunal.harness.cli.main import exit_code
from tribunal.harness.plan import Plan, encoded
from tribunal.harness.scenario import scenario
from tribunal.results.verdict import EXIT_ERROR

ROOT = Path(__file__).resolve().parents[2]
MUTANT = "m44_acks_local"
SMALL = {
    "scenario": "small",
    "cluster": {"controllers": 1, "profile": "ci"},
    "workload": {"name": "produce-consume", "partitions": 1, "rate": 100, "readers": 1},
    "time": "3s",
    "warm_up": "100ms",
    "steps": [{"isolate": "leader(p0)", "from": "nodes", "for": "1.4x session"}],
}
NOISE = ("wall_ms", "cpu_ms", "run_dir")


def results(found: Sequence[object]) -> list[dict[str, Any]]:
    """Return results without what no two runs have alike."""
    every: list[dict[str, Any]] = sorted(
        msgspec.json.decode(msgspec.json.encode(found)), key=lambda one: (one["scenario"], one["seed"])
    )
    return [{name: value for name, value in one.items() if name not in (*NOISE, "guards")} for one in every]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def campaigns(runner: Runner, folder: Path, small: Path) -> dict[str, object]:
    """Return what a search, measurements of power and of likelihood and a shrinking come to."""
    search = Search([scenario(SMALL)], Corpus(folder / "corpus"), seed=3, runner=runner, scratch=folder, round_size=2)
    search.run(runs=2)
    (powered,) = power(
        [MUTANT], scenario=str(small), seeds=range(1), budget_s=600, runner=runner, scratch=folder / "power"
    )
    shrinker = Shrinker(folder / "shrink", runner=runner, budget_s=0)
    shrunk = shrinker.shrink(plan_of(str(small), 1, (MUTANT,)))
    return {
        "search": results(search.account.results),
        "corpus": files(folder / "corpus"),
        "used CPU": search.searched.cpu_s > 0 and powered.cpu_seconds > 0,
        "power": (powered.found, powered.verdicts, powered.seen_by, powered.seed),
        "shrink": results([shrunk.result]),
        "signature": shrinker.signature,
        "likelihood": Measured(shrunk.plan, folder / "likelihood", runner=runner, each=1).likelihood(2, 3_000_000_000),
    }


def small_file(folder: Path) -> Path:
    path = folder / "small.yaml"
    path.write_text(json.dumps(SMALL))
    return path


@pytest.mark.nightly
@pytest.mark.spark
def test_campaigns_come_to_the_same_on_spark(tmp_path: Path) -> None:
    small = small_file(tmp_path)

    with counted_guards() as guards:  # as the commands do: a search goes by what runs came to
        here = campaigns(LocalRunner(2, guards), tmp_path / "here", small)
    with runner_at(place("local[1]", None, "", with_packages=False), None) as runner:
        there = campaigns(runner, tmp_path / "there", small)

    assert len(here["corpus"]) > 1
    assert here["used CPU"]
    assert here["power"][0]
    assert there == here


def test_a_runner_for_a_cluster_that_is_not_there_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(encoded(plan_of(str(small_file(tmp_path)), 1, ())))
    nowhere = ["--master", "spark://127.0.0.1:9"]

    for command in (
        ["search", "produce-consume", "--corpus", str(tmp_path / "corpus"), "--out", str(tmp_path / "out")],
        ["power", "--mutant", "M44"],
        ["shrink", str(path)],
    ):
        assert exit_code([*command, *nowhere]) == EXIT_ERROR
        said = capsys.readouterr()
        assert "no Spark answers at spark://127.0.0.1:9" in said.out + said.err


class FirstAlone(LocalRunner):
    """A cluster that goes away when its first plan has ended."""

    def swept(self, plans: Iterable[Plan], **options: Any) -> Sweep:
        super().swept(islice(plans, 1), **options)
        raise NoSpark("the cluster ran no seeds: it is gone")


def test_a_sweep_whose_cluster_goes_away_says_what_had_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulate, "runner_at", lambda *_: nullcontext(FirstAlone(1)))
    words = ["sweep", str(small_file(tmp_path)), "--mutant", "M44", "--seeds", "1:4", "--out", str(tmp_path / "out")]

    assert exit_code([*words, "--json"]) == EXIT_ERROR

    said = capsys.readouterr()
    account = json.loads(said.out)
    assert (account["seeds"], account["interrupted"]) == (1, True)
    assert list(account["recordings"]) == ["small:1"]
    assert account["findings"] == {"lost_writes/lost": ["small:1"]}
    assert said.err.splitlines()[-1] == "tribunal: the cluster ran no seeds: it is gone"
    assert (tmp_path / "out" / "guards.csv").exists()


def command(folder: Path, *words: str, code: int) -> dict[str, Any]:
    """Return the JSON that a command prints; it runs in a folder of its own."""
    folder.mkdir(exist_ok=True)
    completed = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tribunal", *words, "--json"], cwd=folder, capture_output=True, text=True,
        timeout=800, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert completed.returncode == code, completed.stderr[-2000:]
    content: dict[str, Any] = json.loads(completed.stdout.removeprefix("[").removesuffix("]\n"))
    return content


def campaign_commands(folder: Path, small: Path, *options: str) -> dict[str, object]:
    """Return what the three commands come to."""
    folder.mkdir()
    plan = folder / "plan.json"
    plan.write_bytes(encoded(plan_of(str(small), 1, (MUTANT,))))
    searched = command(
        folder, "search", str(small), "--runs", "12", "--round", "6", "--corpus", "corpus", *options, code=0
    )
    powered = command(folder, "power", "--mutant", "M44", "--scenario", str(small), "--seeds", "0:1", *options, code=0)
    shrunk = command(folder, "shrink", str(plan), "--budget", "20m", "--jobs", "3", *options, code=0)
    return {
        "corpus": files(folder / "corpus"),
        "search": [searched[name] for name in ("runs", "new", "verdicts", "findings")],
        "power": [powered[name] for name in ("found", "seen_by", "seed")],
        "shrink": [shrunk[name] for name in ("signature", "faults", "nodes", "tried")],
        "plan": (folder / "plan.min.json").read_bytes(),
    }


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_cluster_comes_to_the_same_when_a_worker_is_killed(tmp_path: Path) -> None:
    small = small_file(tmp_path)
    here = campaign_commands(tmp_path / "here", small)
    spark = tmp_path / "spark"
    spark.mkdir()

    with standalone(spark, workers=3) as cluster:
        found: list[dict[str, object]] = []
        there = tmp_path / "there"
        running = threading.Thread(
            target=lambda: found.append(campaign_commands(there, small, "--master", cluster.url))
        )
        running.start()
        while running.is_alive() and not (there / "corpus" / "corpus.json").exists():  # after the first round
            threading.Event().wait(0.05)
        was_running = running.is_alive()
        cluster.kill(0)
        running.join()

    assert was_running
    assert found == [here]
