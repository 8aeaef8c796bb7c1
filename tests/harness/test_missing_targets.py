"""A target by state that is not there yet is waited for; one that never comes makes the run no test of what was asked."""

import json

from tribunal.harness.cli.main import exit_code

SCENARIO = """scenario: small
about: a target by state
workload: {{name: produce-consume, rate: 40, partitions: 1}}
time: 6s
warm_up: 500ms
steps:
{steps}
"""


def run(tmp_path, capsys, *steps):
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO.format(steps="\n".join(f"  - {step}" for step in steps)))
    words = ["--cluster", "simulated", "--seed", "3", "--engine", "inline", "--json", "--out", str(tmp_path / "runs")]
    code = exit_code(["run", str(path), *words])
    return code, json.loads(capsys.readouterr().out)


def test_a_target_that_is_not_there_yet_is_waited_for(tmp_path, capsys):
    """The broker that is cut off leaves the ISR after a while: only then somebody is outside of it."""
    cut, killed = (
        "{isolate: follower(p0), from: nodes, for: 5s}",
        "{kill: outsider(p0), for: 1s, after: 0ms, meanwhile: true}",
    )

    code, verdict = run(tmp_path, capsys, cut, killed)

    assert code in (0, 2), verdict["claim"]
    faults = {fault["kind"]: fault for fault in verdict["test"]["faults"]}
    assert faults["kill"]["took_effect"]
    assert faults["kill"]["resolved_target"] == faults["isolate"]["resolved_target"]


def test_a_target_that_never_comes_is_said(tmp_path, capsys):
    code, verdict = run(tmp_path, capsys, "{kill: elr_member(p0), for: 1s}")

    assert (code, verdict["verdict"]) == (2, "INCONCLUSIVE")
    assert "target 'elr_member(p0)' fits no node that runs" in json.dumps(verdict)
