"""The command line: exit codes, and one clear line for what is wrong."""

import os
import shlex
import subprocess
import sys
from importlib.metadata import version

import msgspec
import pytest

from tribunal.harness.catalog import scenario_file
from tribunal.harness.cli.main import exit_code
from tribunal.harness.cli.screen import again, one_screen
from tribunal.harness.plan import ExecutedFault, encoded, made
from tribunal.harness.scenario import load
from tribunal.results.verdict import Coverage, Finding, RunVerdict, Verdict


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        pytest.param(["run", "produce-consum"], "did you mean produce-consume or ", id="scenario"),
        pytest.param(["run", "produce-consume", "--cluster", "process"], "did you mean processes?", id="cluster"),
        pytest.param(["run", "produce-consume", "--sed", "1"], "--seed", id="option"),
        pytest.param(["run", "produce-consume", "--seed", "x"], "--seed", id="seed"),
        pytest.param(["run", "produce-consume", "--mutant", "M999"], "unknown mutant 'M999'", id="mutant"),
        pytest.param(["run", "produce-consume", "--time", "soon"], "duration 'soon'", id="time"),
        pytest.param(["run", "produce-consume", "--set", "nothing"], "write name=value", id="set"),
        pytest.param(["run", "produce-consume", "--set", "workload.rat=1"], "did you mean rate?", id="workload option"),
        pytest.param(["run", "produce-consume", "--engine", "spak"], "unknown engine", id="engine"),
        pytest.param(["run"], "name a scenario", id="nothing"),
        pytest.param(["run", "--plan", "/nowhere/plan.json"], "No such file", id="plan"),
        pytest.param(["check", "/nowhere"], "no run in", id="run"),
        pytest.param(["serve", "nowhere"], "'nowhere' does not exist", id="serve"),
        pytest.param(["bundle", "nowhere"], "'nowhere' does not exist", id="bundle"),
        pytest.param(["verify", "nowhere"], "'nowhere' does not exist", id="verify"),
        pytest.param(["explain", "nowhere"], "'nowhere' does not exist", id="explain"),
        pytest.param(["run", "--schedule", "nowhere"], "nowhere: No such file", id="schedule"),
        pytest.param(["list", "fault"], "did you mean faults", id="list"),
        pytest.param(
            ["sweep", "x", "--cluster", "system"],
            "sweep takes no --cluster: it runs in the simulator",
            id="a simulation elsewhere",
        ),
        pytest.param(
            ["shrink", "x", "--cluster", "system"],
            "shrink takes no --cluster: it goes by the plan",
            id="a plan elsewhere",
        ),
        pytest.param(
            ["check", "x", "--cluster", "system"],
            "check takes no --cluster: it looks at what was run",
            id="a recording elsewhere",
        ),
        pytest.param(["chek"], "check", id="command"),
        pytest.param(["run", "produce-consume", "--set", "time=[1"], "--set time: not YAML", id="set without an end"),
        pytest.param(["run", "produce-consume", "--time", "1.2.3s"], "duration '1.2.3s'", id="time of three parts"),
        pytest.param(["sweep", "produce-consume", "--budget", "..s"], "duration '..s'", id="budget without a digit"),
        pytest.param(["sweep", "produce-consume", "--seeds", "²:³"], "seeds '²:³'", id="seeds raised to a power"),
        pytest.param(["sweep", "produce-consume", "--seeds", "5:1"], "seeds '5:1': no seed", id="seeds that go back"),
        pytest.param(["sweep", "produce-consume", "--seeds", "7:7"], "first:end, the end", id="seeds without any"),
        pytest.param(["sweep", "produce-consume", "--seeds", "9" * 5000], "seeds", id="seed of no size"),
        pytest.param(
            ["run", "produce-consume", "--set", "cluster.brokers=100"],
            "1 to 99 brokers, not 100",
            id="too many brokers",
        ),
        pytest.param(
            ["run", "produce-consume", "--set", "cluster.brokers=2"], "3 replicas on 2 brokers", id="too few brokers"
        ),
        pytest.param(["replay", "produce-consume:²"], "no seed", id="seed raised to a power"),
        pytest.param(["sweep", "produce-consume", "produce-consume"], "named twice", id="one scenario twice"),
        pytest.param(
            ["sweep", "produce-consume", "voter-disk-loss", "--mode", "zookeeper"],
            "scenario voter-disk-loss: step 2",
            id="one of several scenarios cannot be run so",
        ),
    ],
)
def test_wrong_usage_is_64_and_one_line(arguments, line, capsys):
    code = exit_code(arguments)

    said = capsys.readouterr().err
    assert code == 64
    assert line in said
    assert said.startswith("tribunal: ")
    assert said.count("\n") == 1


def test_a_reader_that_goes_away_is_no_verdict(monkeypatch):
    """`tribunal check RUN | head` ended with 1, as a VIOLATION does, whatever the verdict was."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as pipe:
        monkeypatch.setattr("sys.stdout", pipe)
        code = exit_code(["list", "clusters"])
        monkeypatch.undo()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, writer)  # what the pipe still holds
        os.close(nowhere)

    assert code == 3


@pytest.mark.parametrize(
    ("content", "line"),
    [
        pytest.param(b"scenario: \xff\xfe", "not text", id="bytes"),
        pytest.param(b"about: 2026-02-30", "day is out of range", id="no such day"),
        pytest.param(b"[" * 5000, "brackets nested deeper than 100", id="too deep"),
    ],
)
@pytest.mark.parametrize("command", ["run", "sweep", "nightly"])
def test_a_file_that_is_no_yaml_is_64_and_one_line(command, content, line, tmp_path, capsys):
    path = tmp_path / "odd.yaml"
    path.write_bytes(content)

    code = exit_code([command, str(path)])

    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (64, 1)
    assert line in said


@pytest.mark.parametrize(
    ("cluster", "fault", "line"),
    [
        pytest.param("processes", "kil", "unknown fault 'kil'; did you mean kill", id="no such fault"),
        pytest.param("apache-kafka", "clock-jump", "apache-kafka cannot set_clock", id="not on this kind"),
        pytest.param("processes", "late-leave", "strikes what only ZooKeeper mode has", id="not in this mode"),
        pytest.param("proceses", "kill", "did you mean processes", id="no such kind"),
    ],
)
@pytest.mark.parametrize("again_by", ["--plan", "--schedule"])
def test_a_plan_that_cannot_be_run_again_is_64_before_anything_starts(again_by, cluster, fault, line, tmp_path, capsys):
    planned = made(load(scenario_file("produce-consume"), {}), seed=1, cluster="processes", time_ms=None, mutants=())
    faults = (msgspec.structs.replace(planned.faults[0], kind=fault, options={}),)
    (tmp_path / "plan.json").write_bytes(encoded(msgspec.structs.replace(planned, cluster=cluster, faults=faults)))
    executed = ExecutedFault(
        index=0, kind=fault, planned_target="broker 1", resolved=1, role="broker", options={}, started_ms=0, lasted_ms=1
    )
    (tmp_path / "schedule.jsonl").write_bytes(msgspec.json.encode(executed) + b"\n")
    file = {"--plan": "plan.json", "--schedule": "schedule.jsonl"}[again_by]

    code = exit_code(["run", again_by, str(tmp_path / file), "--out", str(tmp_path / "runs")])

    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (64, 1)
    assert line in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", ["report", "explain", "bundle"])
def test_a_verdict_that_cannot_be_read_is_named_in_one_line(command, tmp_path, capsys):
    (tmp_path / "recording").mkdir()
    (tmp_path / "verdict.json").write_text('{"')

    code = exit_code([command, str(tmp_path)])

    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (3, 1)
    assert "verdict.json: not a verdict" in said


def test_one_run_of_many_that_cannot_be_reported_does_not_hide_the_others(tmp_path, capsys):
    (tmp_path / "broken" / "recording").mkdir(parents=True)
    (tmp_path / "broken" / "verdict.json").write_text('{"')

    code = exit_code(["report", str(tmp_path)])

    assert code == 0
    assert "broken cannot be reported" in capsys.readouterr().err
    assert "broken/verdict.json" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize("kind", ["scenarios", "faults", "workloads", "checkers", "mutants", "clusters"])
def test_everything_listed_says_what_it_is(kind, capsys):
    code = exit_code(["list", kind, "--json"])

    found = msgspec.json.decode(capsys.readouterr().out, type=dict[str, str])
    assert code == 0
    assert all(found.values())


def test_a_verdict_fits_one_screen(tmp_path):
    lost = Finding(
        property_name="lost-writes",
        kind="lost",
        severity="violation",
        explanation="acknowledged, missing in the final read",
        topic="t",
        partition=0,
        log_offset=803,
        value=41,
        acks=-1,
        acknowledged_ns=34_118_000_000,
    )
    verdict = RunVerdict(run_id="r", verdict=Verdict.VIOLATION, claim="9 x lost (acks=all)", findings=[lost] * 9)

    lines = one_screen(verdict, tmp_path, None).splitlines()

    said = "VIOLATION  9 records that had to survive are lost: acknowledged with acks=all, and no rule permits it."
    assert lines[:2] == [said, "  9 x lost (acks=all)"]
    assert "t-0@803 value 41 acks=all acked 34.118 s" in lines[2]
    assert len(lines) <= 10


@pytest.mark.parametrize(
    ("acks", "words"),
    [
        pytest.param(None, "t-0 at 12.547 s", id="an election"),
        pytest.param(-1, "acks=all acked 12.547 s", id="a record"),
    ],
)
def test_only_of_a_record_it_is_said_that_it_was_acknowledged(acks, words, tmp_path):
    """It said `produce-consume-0  acked 12.547 s  a clean election of a replica that had shut down uncleanly`."""
    found = Finding(
        property_name="control_plane", kind="k", severity="violation", explanation="wrong", topic="t", partition=0, acks=acks,
        acknowledged_ns=12_547_000_000,
    )  # fmt: skip
    verdict = RunVerdict(run_id="r", verdict=Verdict.VIOLATION, claim="", findings=[found])

    assert words in " ".join(one_screen(verdict, tmp_path, None).split())


@pytest.mark.parametrize(("verdict", "said"), [(Verdict.VIOLATION, True), (Verdict.PASS, False)])
def test_after_a_violation_the_command_that_explains_it_is_there_to_paste(verdict, said, tmp_path):
    plan = made(load(scenario_file("produce-consume"), {}), seed=1, cluster="simulated", time_ms=None, mutants=())

    lines = one_screen(RunVerdict(run_id="r", verdict=verdict, claim=""), tmp_path / "my run", plan).splitlines()

    assert (f"explain   tribunal explain {shlex.quote(str(tmp_path / 'my run'))}" in lines) is said


def test_what_was_judged_is_said_also_where_nothing_was_counted(tmp_path):
    """SQL counts nothing beside the cells."""
    verdict = RunVerdict(run_id="r", verdict=Verdict.PASS, claim="", coverage=Coverage(cells=8, judged=8))

    lines = one_screen(verdict, tmp_path, None).splitlines()

    assert "judged    in 8 of 8 cells (a property in a partition)" in lines


def test_a_replay_that_is_traced_prints_one_json_document(capsys):
    code = exit_code(["replay", "produce-consume:1", "--until", "60", "--trace", "all", "--json"])

    shown = capsys.readouterr()
    assert code == 0
    assert msgspec.json.decode(shown.out)["event"] == 60
    assert len(shown.err.splitlines()) > 10  # the trace


def test_the_line_to_paste_names_a_folder_with_spaces_as_one_word(tmp_path):
    plan = made(load(scenario_file("produce-consume"), {}), seed=1, cluster="simulated", time_ms=None, mutants=())
    folder = tmp_path / "my runs"

    line = again(plan, folder)

    assert shlex.split(line.partition("   (")[0])[-1] == str(folder / "plan.json")


ROUND = "steps=[{kill: leader(p0), for: 1s}, {pause: leader(p0), for: 1s}]"


def test_a_time_too_short_for_the_first_round_is_stretched(tmp_path, capsys):
    words = ["run", "produce-consume", "--cluster", "simulated", "--seed", "1", "--engine", "inline", "--time", "1s"]
    words += ["--set", ROUND, "--set", "workload.rate=30", "--out", str(tmp_path)]

    assert exit_code(words) == 0

    out, err = capsys.readouterr()
    assert "faults 2/2 effective, heals 2/2" in out
    assert "the time for faults is over; the first round of faults goes on to its end" in err


INTERRUPTED_WHILE_LOADING = """
import os, signal, sys
MODULE = sys.argv.pop(1)
class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == MODULE:
            HOW
sys.meta_path.insert(0, Interrupts())
from tribunal.harness.cli.entry import main
main()
"""
MODULES = ["tribunal.harness.cli.main", "tribunal.harness.cli.verdicts", "tribunal.harness.cli.session"]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("how", ["raise KeyboardInterrupt", "os.kill(os.getpid(), signal.SIGTERM)"])
def test_an_interrupt_in_the_first_second_is_a_line_and_130(how, module):
    code = INTERRUPTED_WHILE_LOADING.replace("HOW", how)
    words = [module, "run", "produce-consume"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (130, "tribunal: interrupted before anything was begun\n")


def test_the_version_is_that_of_the_distribution(capsys):
    assert exit_code(["--version"]) == 0

    assert capsys.readouterr().out.startswith(f"tribunal {version('replog')} (of the distribution replog, Python 3.")


@pytest.mark.parametrize("words", [["-h"], ["run", "-h"], ["findings", "-h"], ["findings", "list", "-h"]])
def test_help_has_a_short_option(words, capsys):
    assert exit_code(words) == 0

    assert "Usage:" in capsys.readouterr().out
