"""`tribunal run zookeeper-ensemble` with a real ZooKeeper that is killed, cut off and paused: nothing is lost."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tribunal.clusters.kinds import containers
from tribunal.clusters.maven_jars import NoJars
from tribunal.clusters.zookeeper.jars import class_path


@pytest.fixture(scope="module", autouse=True)
def _zookeeper() -> None:
    try:
        class_path()
    except NoJars as problem:
        pytest.skip(str(problem))


@pytest.mark.parametrize(
    ("kind", "time"),
    [
        ("processes", "9s"),
        pytest.param("processes", "25s", marks=pytest.mark.nightly),
        pytest.param("containers", "25s", marks=pytest.mark.nightly),
    ],
)
def test_nothing_is_lost(kind: str, time: str, tmp_path: Path) -> None:
    if kind == "containers" and (obstacles := containers.obstacles()):
        pytest.skip(obstacles[0].reason)
    assert shutil.which("java")

    done = subprocess.run(
        [sys.executable, "-m", "tribunal.harness.cli.main", "run", "zookeeper-ensemble", "--cluster", kind, "--seed", "20", "--time", time,
         "--engine", "inline", "--out", str(tmp_path), "--json", "-q"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip

    verdict = json.loads(done.stdout.splitlines()[-1])
    # (A leader whose session ends on a slow machine may lose what acks=1 acknowledged: R5.)
    assert verdict["verdict"] in {"PASS", "PERMITTED"}, done.stdout[-2000:]
    hurt = {fault["kind"] for fault in verdict["test"]["faults"] if fault["took_effect"] and fault["healed"]}
    assert {"kill", "isolate"} <= hurt
