"""What a run leaves whose harness is killed with -9 is removed by the run's guard, without anybody's asking."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tribunal.clusters.api import ClusterError, Kind
from tribunal.clusters.nodes.leftovers import mark, note_started
from tribunal.clusters.nodes.node_process import process_exists
from tribunal.harness import fault_journal
from tribunal.harness.fault_journal import FILE, FaultJournal, NotHealed, refuse_unless_healed, undone
from tribunal.harness.guard import LOG

ROOT = Path(__file__).parents[2]
PROGRAM = (
    "import sys; from pathlib import Path; from tribunal.harness.fault_journal import FaultJournal; "
    "from tribunal.harness.guard import Guard\n"
    "with Guard(Path(sys.argv[1])) as guard, FaultJournal(Path(sys.argv[1]), 'processes'):\n"
    "    print(guard.pid, flush=True); sys.stdin.read()"
)
WITHIN_S = 20


@pytest.fixture
def stray() -> Iterator[list[subprocess.Popen[bytes]]]:
    """What a test starts and nobody ends."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def started(environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a process that outlives whoever started it."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, **environment})


def harness_of(run_dir: Path) -> tuple[subprocess.Popen[str], int]:
    """Start a harness that has this run; return it and the id of the run's guard."""
    harness = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(run_dir)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert harness.stdout is not None
    return harness, int(harness.stdout.readline())


def gone(pid: int) -> bool:
    """Wait until there is no such process."""
    deadline = time.monotonic() + WITHIN_S
    while process_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.02)  # noqa: TID251
    return not process_exists(pid)


def test_a_killed_harness_leaves_nothing(tmp_path: Path, stray: list[subprocess.Popen[bytes]]) -> None:
    """A node that did not end with its harness is ended, a bystander is not; the next run need not be healed before."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    harness, guard = harness_of(run_dir)
    node, bystander = started(dict(mark(run_dir))), started({})
    stray += [node, bystander]
    note_started(run_dir, node.pid)

    harness.kill()
    harness.communicate()

    assert node.wait(WITHIN_S) == -9
    assert gone(guard)
    assert bystander.poll() is None
    refuse_unless_healed(tmp_path)
    assert f"process {node.pid} killed" in (run_dir / LOG).read_text()


def test_the_guard_of_a_run_that_is_over_touches_nothing(tmp_path: Path, stray: list[subprocess.Popen[bytes]]) -> None:
    """What an orderly end could not remove stays for `tribunal heal`, and so does the journal that says so."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    harness, guard = harness_of(run_dir)
    node = started(dict(mark(run_dir)))
    stray.append(node)
    note_started(run_dir, node.pid)

    harness.communicate("", timeout=WITHIN_S)

    assert gone(guard)
    assert node.poll() is None
    assert (run_dir / FILE).exists()
    assert not (run_dir / LOG).exists()


class Engine:
    """What a run may leave in an engine: what it was asked for is there a moment later, or it does not answer yet."""

    def __init__(self, there: list[list[str]], *, is_silent_at_first: bool = False) -> None:
        self._there = there
        self._is_silent = is_silent_at_first

    def left(self, run_dir: Path) -> list[str]:
        """Return what is there now; one more thing is removed, or has come."""
        return self._there.pop(0) if self._there else []

    def sweep(self, run_dir: Path) -> list[str]:
        """Remove what is there."""
        if self._is_silent:
            self._is_silent = False
            raise ClusterError("no engine answers")
        return [f"{one} removed" for one in self.left(run_dir)]

    @property
    def kind(self) -> Kind:
        """As a kind of cluster."""
        return Kind(launch=None, capabilities=frozenset(), leftovers=self.left, sweep=self.sweep)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("engine", "done"),
    [
        pytest.param(Engine([[], ["late"]]), ["late removed"], id="it comes when it was looked for"),
        pytest.param(Engine([["one"]], is_silent_at_first=True), ["one removed"], id="nobody answers at first"),
    ],
)
def test_what_comes_late_is_undone_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine, done: list[str]
) -> None:
    """What is left counts when all rounds are over."""
    monkeypatch.setattr(fault_journal, "LATE_S", 0.0)
    monkeypatch.setattr(fault_journal, "all_clusters", lambda: {"engine": engine.kind})
    FaultJournal(tmp_path, "engine").__enter__()

    said = undone(tmp_path)

    assert said[:-1] == done
    assert not (tmp_path / FILE).exists()


def test_what_is_left_when_all_rounds_are_over_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the journal stays for `tribunal heal`."""
    monkeypatch.setattr(fault_journal, "LATE_S", 0.0)
    monkeypatch.setattr(fault_journal, "all_clusters", lambda: {"engine": Engine([["stays"]] * 9).kind})
    FaultJournal(tmp_path, "engine").__enter__()

    with pytest.raises(NotHealed, match="cannot undo stays"):
        undone(tmp_path)

    assert (tmp_path / FILE).exists()


def test_a_guard_that_somebody_ended_keeps_no_run_from_its_end(tmp_path: Path) -> None:
    """The run ends as without one."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    harness, guard = harness_of(run_dir)

    os.kill(guard, 9)
    harness.communicate("", timeout=WITHIN_S)

    assert harness.returncode == 0
    assert not (run_dir / FILE).exists()
