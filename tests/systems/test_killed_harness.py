"""Nothing of a described system stays on this machine when the harness is killed with kill -9; containers and hosts have tests beside their own."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tribunal.clusters.kinds import system as kind
from tribunal.clusters.namespaces.spaces import way_in
from tribunal.clusters.nodes.leftovers import command_lines, own_processes
from tribunal.clusters.systems.disks import lacking
from tribunal.harness.fault_journal import refuse_unless_healed
from tribunal.harness.new import made_system

ROOT = Path(__file__).parents[2]
WITHIN_S = 60
APART = ("--set", "cluster.isolation=namespaces")
no_namespaces = pytest.mark.skipif(isinstance(way_in(), str), reason=str(way_in()))
no_disks = pytest.mark.skipif(bool(lacking()), reason=lacking() or "there are disks")
PLAIN = 'disk = "plain"'
FORGETFUL = 'disk = "forgetful"'
BEHIND_A_SHELL = 'start = ["sh", "-c", "\\"$0\\" \\"$@\\"; true", '


def waited_for(holds: Callable[[], bool]) -> bool:
    """Wait until something holds; return whether it did in time."""
    deadline = time.monotonic() + WITHIN_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)  # noqa: TID251
    return holds()


def serving(folder: Path) -> list[int]:
    """Return the processes of this machine that run the server of a folder, or a client of it."""
    return [
        pid for pid, words in command_lines() if any(str(folder) in word and word.endswith(".py") for word in words)
    ]


@pytest.mark.e2e
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("nodes", "start", "more"),
    [
        pytest.param(PLAIN, "start = [", (), id="loopback"),
        pytest.param(PLAIN, BEHIND_A_SHELL, (), id="loopback, behind a shell"),
        pytest.param(PLAIN, "start = [", APART, id="namespaces", marks=no_namespaces),
        pytest.param(PLAIN, BEHIND_A_SHELL, APART, id="namespaces, behind a shell", marks=no_namespaces),
        pytest.param(FORGETFUL, "start = [", APART, id="forgetful disks", marks=[no_namespaces, no_disks]),
    ],
)
def test_a_killed_harness_leaves_nothing(tmp_path: Path, nodes: str, start: str, more: tuple[str, ...]) -> None:
    """Nodes and clients, what keeps namespaces and disks: all ends, and the next run need not be healed before."""
    made_system("keeper", tmp_path)
    folder = tmp_path / "keeper"
    file = folder / "system.toml"
    file.write_text(file.read_text().replace("[nodes]\n", f"[nodes]\n{nodes}\n").replace("start = [", start))
    command = [sys.executable, "-m", "tribunal.harness.cli.main", "run", str(folder / "scenario.yaml")]

    with subprocess.Popen(
        [*command, "--cluster", "system", "--quiet", "--out", str(tmp_path / "runs"), "--set", "time=60s", *more],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as harness:
        # A node and at least two clients.
        began = waited_for(lambda: len(serving(folder)) > 2)
        (run_dir,) = (tmp_path / "runs").iterdir()
        noted = waited_for(lambda: len(own_processes(run_dir)) > 2)
        had = own_processes(run_dir)
        harness.kill()

    assert began
    assert noted
    assert waited_for(lambda: not serving(folder) and not (run_dir / "unhealed.json").exists())
    assert kind.leftovers(run_dir) == []
    assert not set(had) & {pid for pid, _ in command_lines()}
    refuse_unless_healed(tmp_path / "runs")
