"""`tribunal bisect` asks each commit's own code, also where that had other names and distinguished findings by sentences."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tribunal.clusters.api import ClusterError
from tribunal.harness.campaign.bisect import PROBE, bisected
from tribunal.harness.catalog import scenario_file
from tribunal.harness.plan import encoded, made
from tribunal.harness.scenario import load

PLAN = """
import msgspec

class Plan(msgspec.Struct):
    seed: int

def read_plan(path):
    return Plan(seed=int(path.read_text()))
"""
SWEEP = """
from types import SimpleNamespace

def swept(plans, *, jobs, budget_s, scratch):
    shown = {{7: "lost_writes/lost", 8: {second!r}}}
    return SimpleNamespace(findings={{shown[plan.seed]: [plan] for plan in plans if plan.seed in shown}})
"""
SENTENCE = "I4: produce-consume-#: committed # to # of epoch #, # has nothing"
KIND = "invariant/differs/I4"


def commit_of(tree: Path, plan: str, sweep: str, second: str) -> Path:
    """Write a commit's tree: as much of it as is asked."""
    for name, text in ((plan, PLAN), (sweep, SWEEP.format(second=second))):
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for folder in path.relative_to(tree).parents:
            (tree / folder / "__init__.py").touch()
    return tree


def asked(tree: Path, signature: str, seeds: int) -> int:
    plan = tree / "plan.json"
    plan.write_text("7")
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, str(PROBE), str(plan), signature, str(seeds)]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=False).returncode


@pytest.mark.parametrize(
    ("plan", "sweep", "second"),
    [
        pytest.param("harness/plan.py", "harness/sweep.py", SENTENCE, id="before there was one import name"),
        pytest.param(
            "tribunal/harness/plan.py", "tribunal/harness/campaign/sweep.py", SENTENCE, id="before there were kinds"
        ),
        pytest.param("tribunal/harness/plan.py", "tribunal/harness/campaign/sweep.py", KIND, id="as it is now"),
    ],
)
def test_a_commit_is_asked_by_its_own_names_and_in_its_own_words(tmp_path, plan, sweep, second):
    tree = commit_of(tmp_path, plan, sweep, second)

    assert asked(tree, KIND, seeds=2) == 1
    assert asked(tree, "lost_writes/lost", seeds=1) == 1
    assert asked(tree, KIND, seeds=1) == 0
    assert asked(tree, "lost_writes/phantom", seeds=2) == 0


def test_a_commit_that_has_nothing_that_sweeps_cannot_be_asked(tmp_path):
    """The environment has something that does, of another version."""
    assert asked(tmp_path, KIND, seeds=1) == 125


def test_installed_from_a_wheel_there_are_no_commits_to_ask(tmp_path, monkeypatch):
    """git took the clone that the environment happened to lie in, and asked commits of somebody else's program."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    monkeypatch.setattr("tribunal.harness.campaign.bisect.ROOT", tmp_path / "site-packages")
    plan = made(load(scenario_file("produce-consume"), {}), seed=1, cluster="simulated", time_ms=None, mutants=())
    (tmp_path / "plan.json").write_bytes(encoded(plan))

    with pytest.raises(ClusterError, match="is no clone of tribunal"):
        bisected(tmp_path / "plan.json", "lost_writes/lost", "HEAD~1", "HEAD", lambda line: None)
