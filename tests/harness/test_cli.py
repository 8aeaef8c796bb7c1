"""The command line: exit codes, and one clear line for what is wrong."""

import msgspec
import pytest

from harness.cli.main import exit_code
from harness.cli.screen import one_screen
from results.verdict import Finding, RunVerdict, Verdict


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        pytest.param(["run", "produce-consum"], "did you mean produce-consume?", id="scenario"),
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
        pytest.param(["list", "fault"], "did you mean faults", id="list"),
        pytest.param(["chek"], "check", id="command"),
    ],
)
def test_wrong_usage_is_64_and_one_line(arguments, line, capsys):
    code = exit_code(arguments)

    said = capsys.readouterr().err
    assert code == 64
    assert line in said
    assert said.startswith("tribunal: ")
    assert said.count("\n") == 1


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

    assert lines[0] == "VIOLATION  9 x lost (acks=all)"
    assert "t-0@803 value 41 acks=all acked 34.118 s" in lines[1]
    assert len(lines) <= 10
