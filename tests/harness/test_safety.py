"""Nothing is left behind: the journal of faults, heal, the refusal before it, clean, doctor."""

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tribunal.clusters.nodes.leftovers import node_processes, started_at
from tribunal.clusters.nodes.node_process import process_exists
from tribunal.harness.cli.main import exit_code
from tribunal.harness.doctor import examined
from tribunal.harness.fault_journal import (
    FILE,
    ActiveFault,
    Entry,
    FaultJournal,
    NotHealed,
    heal,
    refuse_unless_healed,
    running,
    unhealed,
)

ROOT = Path(__file__).parents[2]
PAUSED = ActiveFault(index=0, kind="pause", target="broker 2", options={})


def a_dead_run(out, name="20261121T000000Z-produce-consume-processes-7", cluster="processes"):
    """Return the folder of a run whose harness is dead, with its journal."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    run_dir = out / name
    run_dir.mkdir(parents=True)
    (run_dir / "plan.json").write_text("{}")
    entry = Entry(run_dir=str(run_dir), cluster=cluster, harness_pid=ended.pid, harness_started=1, active=(PAUSED,))
    (run_dir / FILE).write_bytes(msgspec.json.encode(entry))
    return run_dir


def a_stray_node(run_dir):
    """Start a process that names the run's folder on its command line, stopped like a paused node."""
    node = subprocess.Popen(
        [sys.executable, "-c", "import os, signal, time; os.kill(os.getpid(), signal.SIGSTOP); time.sleep(600)",
         "broker", "--config", f"{run_dir.resolve()}/nodes/2/node.toml"],
    )  # fmt: skip
    while node_processes(run_dir) != [node.pid]:
        time.sleep(0.01)  # noqa: TID251
    return node


def test_a_journal_is_kept_as_long_as_its_run(tmp_path):
    run_dir = tmp_path / "run"
    run_dir.mkdir()

    with FaultJournal(run_dir, "processes") as journal:
        journal.injecting(PAUSED)
        (entry,) = running(tmp_path)
        assert entry.active == (PAUSED,)
        assert entry.title() == "run (pause broker 2)"
        refuse_unless_healed(tmp_path)  # what is running is not dead
        journal.healed(0)
        assert running(tmp_path)[0].active == ()

    assert running(tmp_path) == unhealed(tmp_path) == []


def test_a_reused_process_id_is_not_the_harness(tmp_path):
    run_dir = a_dead_run(tmp_path)
    path = run_dir / FILE
    entry = msgspec.json.decode(path.read_bytes(), type=Entry)
    reused = msgspec.structs.replace(entry, harness_pid=os.getpid(), harness_started=started_at(os.getpid()) - 1)
    path.write_bytes(msgspec.json.encode(reused))

    assert len(unhealed(tmp_path)) == 1


def test_the_next_run_refuses_until_healed(tmp_path, capsys):
    run_dir = a_dead_run(tmp_path)
    node = a_stray_node(run_dir)
    with pytest.raises(NotHealed, match="tribunal heal"):
        refuse_unless_healed(tmp_path)
    assert exit_code(["run", "produce-consume", "--out", str(tmp_path)]) == 3
    assert "pause broker 2" in capsys.readouterr().err

    assert exit_code(["heal", "--out", str(tmp_path)]) == 0

    node.wait()
    assert not process_exists(node.pid)
    assert f"process {node.pid} killed" in capsys.readouterr().out
    refuse_unless_healed(tmp_path)


def test_a_running_harness_is_left_alone(tmp_path):
    run_dir = tmp_path / "run"
    run_dir.mkdir()

    with FaultJournal(run_dir, "processes"):
        assert heal(tmp_path) == ["run (no fault in force): is running, left alone"]
        assert (run_dir / FILE).exists()


def test_a_damaged_journal_is_named(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / FILE).write_text("{")

    assert exit_code(["heal", "--out", str(tmp_path)]) == 3
    assert FILE in capsys.readouterr().err


def test_a_run_on_a_kind_of_cluster_that_is_not_known_here_is_not_called_healed(tmp_path, capsys):
    foreign = a_dead_run(tmp_path, "a", cluster="of-a-plugin")
    ours = a_dead_run(tmp_path, "b", cluster="simulated")

    assert exit_code(["heal", "--out", str(tmp_path)]) == 3
    assert "of-a-plugin" in capsys.readouterr().err
    assert (foreign / FILE).exists()
    assert not (ours / FILE).exists()  # what can be healed is


def test_a_run_that_ends_while_others_are_listed_is_no_obstacle(tmp_path, monkeypatch):
    gone = tmp_path / "run" / FILE
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter([gone]))

    refuse_unless_healed(tmp_path)


def test_clean_keeps_the_newest_and_refuses_before_heal(tmp_path, capsys):
    for number in range(4):
        (tmp_path / f"run-{number}").mkdir()
        (tmp_path / f"run-{number}" / "plan.json").touch()
    (tmp_path / "something else").mkdir()

    assert exit_code(["clean", "--out", str(tmp_path), "--keep", "2"]) == 0

    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-2", "run-3", "something else"]
    a_dead_run(tmp_path, "run-4")
    assert exit_code(["clean", "--out", str(tmp_path), "--keep", "0"]) == 3
    assert (tmp_path / "run-2").exists()


def test_the_doctor_names_every_kind_and_every_fault(capsys):
    assert exit_code(["doctor", "--cluster", "processes"]) == 0
    printed = capsys.readouterr().out

    for word in ("processes", "simulated", "containers", "power-loss", "majorities-ring"):
        assert word in printed


def test_the_doctor_says_what_helps(monkeypatch, capsys):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")

    assert exit_code(["doctor", "--cluster", "containers"]) == 3
    assert "ensure_docker.sh" in capsys.readouterr().out
    assert examined("kill").faults[0].refused["containers"].startswith("no container engine")


def test_the_doctor_knows_no_such_fault(capsys):
    assert exit_code(["doctor", "--fault", "isolat"]) == 64
    assert "isolate" in capsys.readouterr().err


@pytest.mark.e2e
@pytest.mark.timeout(120)
def test_a_harness_killed_in_the_middle_of_a_fault_leaves_a_journal_and_no_node(tmp_path):
    scenario = tmp_path / "small.yaml"
    scenario.write_text(
        "scenario: small\nabout: one fault\nworkload: {name: produce-consume, partitions: 1, rate: 50}\n"
        "time: 20s\nwarm_up: 200ms\nsteps:\n  - {isolate: leader(p0), from: nodes, for: 30s, after: 10ms}\n"
    )
    command = [sys.executable, "-m", "tribunal.harness.cli.main", "run", str(scenario), "--seed", "1", "--quiet"]
    harness = subprocess.Popen(
        [*command, "--out", str(tmp_path / "runs")],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    with harness:
        for line in harness.stderr:
            if "isolate broker" in line:
                break
        harness.kill()
        harness.stderr.read()

    (entry,) = unhealed(tmp_path / "runs")
    assert [fault.kind for fault in entry.active] == ["isolate"]
    deadline = time.monotonic() + 10
    while node_processes(Path(entry.run_dir)) and time.monotonic() < deadline:
        time.sleep(0.05)  # noqa: TID251
    assert node_processes(Path(entry.run_dir)) == []
    assert exit_code(["heal", "--out", str(tmp_path / "runs")]) == 0
    assert unhealed(tmp_path / "runs") == []
