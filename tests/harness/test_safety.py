"""Nothing is left behind: the journal of faults, heal, the refusal before it, clean, doctor."""

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tribunal.clusters.kinds import system
from tribunal.clusters.nodes.leftovers import JOURNAL, Started, mark, node_processes, note_started, started_at
from tribunal.clusters.nodes.line_journal import note
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
    """Start a process as a run starts its own, stopped like a paused node."""
    return a_process_that_names(run_dir, mark(run_dir))


def a_process_that_names(run_dir, environment):
    """Start a process with the run's folder on its command line, and write it into the run's journal."""
    node = subprocess.Popen(
        [sys.executable, "-c", "import os, signal, time; os.kill(os.getpid(), signal.SIGSTOP); time.sleep(600)",
         "broker", "--config", f"{run_dir.resolve()}/nodes/2/node.toml"], env={**os.environ, **environment},
    )  # fmt: skip
    while node.pid not in node_processes(run_dir):
        time.sleep(0.01)  # noqa: TID251
    note_started(run_dir, node.pid)
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


def test_a_journal_outlives_a_run_that_was_not_put_down_whole(tmp_path, bystander):
    """Its last steps failed: what it left is there for `tribunal heal`, and the next run says so."""
    run_dir = tmp_path / "20261121T000000Z-produce-consume-processes-7"
    run_dir.mkdir()
    program = (
        "import sys; from pathlib import Path; from tribunal.harness.fault_journal import FaultJournal; "
        "journal = FaultJournal(Path(sys.argv[1]), 'processes'); journal.__enter__(); sys.stdin.read(); "
        "journal.__exit__(); print(journal.left)"
    )
    harness = subprocess.Popen(
        [sys.executable, "-c", program, str(run_dir)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    node = a_stray_node(run_dir)
    bystander(node)

    said, _ = harness.communicate("", timeout=60)

    assert said == f"['process {node.pid}']\n"
    with pytest.raises(NotHealed, match="tribunal heal"):
        refuse_unless_healed(tmp_path)
    heal(tmp_path)
    assert node.wait() == -9
    assert unhealed(tmp_path) == []


def test_a_reused_process_id_is_not_the_harness(tmp_path):
    run_dir = a_dead_run(tmp_path)
    path = run_dir / FILE
    entry = msgspec.json.decode(path.read_bytes(), type=Entry)
    reused = msgspec.structs.replace(entry, harness_pid=os.getpid(), harness_started=started_at(os.getpid()) - 1)
    path.write_bytes(msgspec.json.encode(reused))

    assert len(unhealed(tmp_path)) == 1


def test_a_folder_that_is_not_there_is_not_called_healed(tmp_path, capsys):
    assert exit_code(["heal", "--out", str(tmp_path / "runs")]) == 64

    said = capsys.readouterr()
    assert said.err.strip().endswith(f"--out '{tmp_path / 'runs'}': there is no such folder")
    assert said.out == ""
    (tmp_path / "runs").mkdir()
    assert exit_code(["heal", "--out", str(tmp_path / "runs")]) == 0


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


@pytest.fixture
def bystander():
    processes = []
    yield processes.append
    for process in processes:
        process.kill()
        process.wait()


def test_a_forged_journal_ends_nothing_foreign(tmp_path, bystander):
    """Process id, start time and folder fit; but nothing that the run started has this environment."""
    run_dir = a_dead_run(tmp_path)
    foreign = a_process_that_names(run_dir, {})
    bystander(foreign)

    done = heal(tmp_path)

    assert foreign.poll() is None
    assert any(f"process {foreign.pid} names this folder" in line and "left alone" in line for line in done)


def test_a_reader_of_a_log_survives(tmp_path, bystander):
    run_dir = a_dead_run(tmp_path)
    (run_dir / "2.log").write_text("a line\n")
    reader = subprocess.Popen(
        ["tail", "-f", f"{run_dir}/2.log"], stdout=subprocess.DEVNULL, env={**os.environ, **mark(run_dir)}
    )
    bystander(reader)
    node = a_stray_node(run_dir)

    assert exit_code(["heal", "--out", str(tmp_path)]) == 0

    assert node.wait() == -9
    assert reader.poll() is None


def test_an_id_that_was_given_to_another_process_is_not_the_node(tmp_path, bystander):
    run_dir = a_dead_run(tmp_path)
    other = a_process_that_names(run_dir, mark(run_dir))
    bystander(other)
    (run_dir / JOURNAL).unlink()
    note(run_dir / JOURNAL, [Started(other.pid, started_at(other.pid) - 1)])
    with (run_dir / JOURNAL).open("ab") as journal:
        journal.write(b'{"pid":')

    heal(tmp_path)

    assert other.poll() is None


def a_users_own(run_dir, bystander):
    """Start a process of a user in a session of its own, whose output goes into the run's folder: his notes on it."""
    with (run_dir / "notes.txt").open("w") as notes:
        own = subprocess.Popen(["sleep", "600"], stdout=notes, start_new_session=True)
    bystander(own)
    return own


def test_who_writes_into_the_folder_survives_a_journal_that_names_his_session(tmp_path, bystander):
    """Whoever sends a run's folder can write every number there is into its journal."""
    run_dir = a_dead_run(tmp_path)
    own = a_users_own(run_dir, bystander)
    (run_dir / JOURNAL).write_bytes(msgspec.json.encode(Started(own.pid, started_at(own.pid))) + b"\n")

    heal(tmp_path)

    assert own.poll() is None


def test_a_line_that_another_folder_was_given_proves_nothing_here(tmp_path, bystander):
    run_dir, other = a_dead_run(tmp_path), a_dead_run(tmp_path, "20261121T000000Z-produce-consume-processes-8")
    own = a_users_own(run_dir, bystander)
    note_started(other, own.pid)
    (run_dir / JOURNAL).write_bytes((other / JOURNAL).read_bytes())

    heal(tmp_path)

    assert own.poll() is None


def test_a_session_whose_number_was_given_to_another_is_not_the_runs(tmp_path, bystander):
    run_dir = a_dead_run(tmp_path)
    own = a_users_own(run_dir, bystander)
    note(run_dir / JOURNAL, [Started(own.pid, started_at(own.pid) - 1)])

    heal(tmp_path)

    assert own.poll() is None


def test_a_node_that_wrote_over_its_environment_is_known_by_where_it_writes(tmp_path, bystander):
    run_dir = a_dead_run(tmp_path)
    node = a_users_own(run_dir, bystander)
    note_started(run_dir, node.pid)

    heal(tmp_path)

    assert node.wait() == -9


@pytest.mark.parametrize("line", [b'{"pid":1,"x":' + b"[" * 100_000, b'{"pid":1,"x":"\xff"}', b'{"pid":1e400}'])
def test_a_line_that_is_none_hides_no_other(tmp_path, bystander, line):
    run_dir = a_dead_run(tmp_path)
    node = a_stray_node(run_dir)
    bystander(node)
    (run_dir / JOURNAL).write_bytes(line + b"\n" + (run_dir / JOURNAL).read_bytes())

    heal(tmp_path)

    assert node.wait() == -9


def test_a_journal_of_another_folder_undoes_nothing(tmp_path, capsys, bystander):
    """As of a folder that was moved, or that somebody sent: what it names is another run's."""
    victim = a_dead_run(tmp_path / "elsewhere")
    node = a_stray_node(victim)
    bystander(node)
    (tmp_path / "runs" / "sent").mkdir(parents=True)
    (tmp_path / "runs" / "sent" / FILE).write_bytes((victim / FILE).read_bytes())

    assert exit_code(["heal", "--out", str(tmp_path / "runs")]) == 3

    assert node.poll() is None
    assert "is the journal of" in capsys.readouterr().err
    assert (victim / FILE).exists()


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
    runs = [f"20261121T00000{number}Z-some-simulated-1" for number in range(4)]
    for name in runs:
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").touch()
    (tmp_path / "something else").mkdir()

    assert exit_code(["clean", "--out", str(tmp_path), "--keep", "2"]) == 0

    assert sorted(path.name for path in tmp_path.iterdir()) == [*runs[2:], "something else"]
    a_dead_run(tmp_path, "20261121T000004Z-some-simulated-1")
    assert exit_code(["clean", "--out", str(tmp_path), "--keep", "0"]) == 3
    assert (tmp_path / runs[2]).exists()


def test_clean_removes_only_what_a_run_made(tmp_path):
    """Not a user's folder with a plan in it, and nothing that a link leads to."""
    name = "20261121T000000Z-some-simulated-1"
    for folder in ("thesis", f"kept/{name}"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "plan.json").touch()
    runs = tmp_path / "runs"
    runs.mkdir()
    (tmp_path / "thesis").rename(runs / "thesis")
    (runs / name).symlink_to(tmp_path / "kept" / name)

    assert exit_code(["clean", "--out", str(runs), "--keep", "0"]) == 0

    assert (runs / "thesis" / "plan.json").exists()
    assert (tmp_path / "kept" / name / "plan.json").exists()


def test_the_doctor_names_every_kind_and_every_fault(capsys):
    assert exit_code(["doctor", "--cluster", "processes"]) == 0
    printed = capsys.readouterr().out

    for word in ("processes", "simulated", "containers", "power-loss", "majorities-ring"):
        assert word in printed


def test_the_doctor_says_what_the_file_of_a_system_decides(monkeypatch, capsys):
    """Its column was empty: every fault counted as refused, for nobody had described a system."""
    (isolate,) = examined("isolate").faults
    (votes,) = examined("slow-zookeeper").faults

    assert isolate.depends_on == ("existing", "system")
    assert votes.depends_on == ()  # what a file describes has no ZooKeeper mode
    assert exit_code(["doctor", "--fault", "kill"]) == 0
    assert "○ where the file that describes it gives what the fault needs" in capsys.readouterr().out

    monkeypatch.setattr(system, "no_disks", lambda **_: "/dev/fuse is missing")
    (torn,) = examined("torn-loss").faults
    assert torn.depends_on == ()
    assert torn.refused["system"] == "cannot lose_part (/dev/fuse is missing)"
    assert exit_code(["doctor", "--fault", "torn-loss"]) == 3


def test_the_doctor_says_what_helps(monkeypatch, capsys):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")

    assert exit_code(["doctor", "--cluster", "containers"]) == 3
    assert "ensure_docker.sh" in capsys.readouterr().out
    assert examined("kill").faults[0].refused["containers"].startswith("no container engine")


def test_the_doctor_knows_no_such_fault(capsys):
    assert exit_code(["doctor", "--fault", "isolat"]) == 64
    assert "isolate" in capsys.readouterr().err


def run_of(folder):
    """Return the only run."""
    (path,) = (folder / "runs").iterdir()
    return path


@pytest.mark.e2e
@pytest.mark.timeout(120)
def test_a_harness_killed_in_the_middle_of_a_fault_leaves_no_node_and_its_guard_heals_the_run(tmp_path):
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

    deadline = time.monotonic() + 20
    while (unhealed(tmp_path / "runs") or node_processes(run_of(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.05)  # noqa: TID251
    assert node_processes(run_of(tmp_path)) == []
    assert unhealed(tmp_path / "runs") == []
    refuse_unless_healed(tmp_path / "runs")
    said = (run_of(tmp_path) / "heal.log").read_text()
    assert "(isolate broker " in said
    assert ": healed" in said


def test_clean_never_removes_a_run_with_a_violation_or_with_a_verdict_that_cannot_be_read(tmp_path, capsys):
    verdicts = ['{"verdict":"VIOLATION"}', '{"verd', '{"verdict":"PASS"}', None]
    runs = [f"20261121T00000{number}Z-some-simulated-1" for number in range(4)]
    for name, verdict in zip(runs, verdicts, strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").touch()
        if verdict is not None:
            (tmp_path / name / "verdict.json").write_text(verdict)

    assert exit_code(["clean", "--out", str(tmp_path), "--keep", "0"]) == 0

    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == runs[:2]
    assert "2 more with a violation stay" in capsys.readouterr().out
