"""Drawn clusters of the correct build under drawn faults, on real nodes: thirty nights' worth a kind, and no violation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tribunal.harness.catalog import all_clusters

ROOT = Path(__file__).parents[2]


def why_not(kind):
    return next((obstacle.reason for obstacle in all_clusters()[kind].obstacles() if obstacle.blocks), "")


@pytest.mark.e2e
@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("kind", ["processes", pytest.param("containers", marks=pytest.mark.containers)])
def test_a_rotating_swarm_finds_nothing_in_the_correct_build(tmp_path, kind, seed):
    if why_not(kind):
        pytest.skip(why_not(kind))
    words = ["run", "rotating-swarm", "--cluster", kind, "--seed", str(seed), "--engine", "inline", "-q", "--json"]
    environment = {"TRIBUNAL_BASE_IMAGE": "interpreter"} | os.environ | {"PYTHONPATH": str(ROOT)}

    done = subprocess.run(
        [sys.executable, "-m", "tribunal.harness.cli.main", *words, "--out", str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip

    verdict = json.loads(done.stdout)
    assert verdict["verdict"] in ("PASS", "PERMITTED", "INCONCLUSIVE"), verdict["claim"]
