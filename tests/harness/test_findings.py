"""Past failures kept: what was fixed must stay fixed, what is known must still show."""

from pathlib import Path

import msgspec
import pytest

from tribunal.harness.campaign.findings import KnownFinding, RealRuns, add, all_findings, of_plan, rerun
from tribunal.harness.campaign.mutation_score import plan_of
from tribunal.harness.cli.main import exit_code
from tribunal.harness.cli.repeated import conducted
from tribunal.harness.scenario import BadScenario

REAL = RealRuns(conducted, Path("runs"))
ELECTED_UNCLEAN = "control_plane/clean_election_of_unclean_replica"


def finding(name="elr-ignored", mutants=("m01_no_elr",), state="known", max_runs=3, signature=ELECTED_UNCLEAN):
    plan = plan_of("last-replica-standing", 3, mutants)
    return of_plan(plan, name=name, about="one sentence", signature=signature, state=state, max_runs=max_runs)


def test_a_finding_reads_as_it_was_written(tmp_path):
    kept = finding()
    add(kept, tmp_path)

    (again,) = all_findings(tmp_path)
    assert msgspec.json.encode(again) == msgspec.json.encode(kept)


def test_a_known_finding_shows_and_without_its_bug_it_is_gone(tmp_path):
    shown, gone = rerun([finding(), finding(mutants=(), max_runs=1)], jobs=2, scratch=tmp_path, real=REAL)

    assert shown.outcome == "reproduced"
    assert gone.outcome == "gone"
    assert not shown.is_bad


def test_a_fixed_finding_that_shows_again_has_regressed(tmp_path):
    back = msgspec.structs.replace(finding(), state="fixed")

    (result,) = rerun([back], jobs=2, scratch=tmp_path, real=REAL)

    assert result.outcome == "regressed"
    assert result.is_bad


def test_never_over_another_one(tmp_path):
    add(finding(), tmp_path)

    with pytest.raises(BadScenario, match="there already"):
        add(finding(), tmp_path)


def test_a_bug_that_is_switched_on_is_not_fixed(tmp_path):
    with pytest.raises(BadScenario, match="--state known"):
        add(msgspec.structs.replace(finding(), state="fixed"), tmp_path)


@pytest.mark.parametrize("name", ["", "../x", "A", "a b", "-a", "x" * 65])
def test_a_name_is_a_plain_file_name(tmp_path, name):
    with pytest.raises(BadScenario, match="finding name"):
        add(msgspec.structs.replace(finding(), name=name), tmp_path)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        pytest.param({"finding_version": 9}, "finding version 9", id="newer"),
        pytest.param({"surprise": 1}, "not a finding", id="unknown field"),
        pytest.param({"name": "other"}, "calls itself", id="renamed"),
        pytest.param({"plan": {}}, "not a finding", id="no plan"),
    ],
)
def test_a_bad_file_is_named(tmp_path, capsys, change, line):
    content = {**msgspec.to_builtins(finding()), **change}
    (tmp_path / "elr-ignored.json").write_bytes(msgspec.json.encode(content))

    assert exit_code(["findings", "list", "--folder", str(tmp_path)]) == 64
    said = capsys.readouterr().err
    assert line in said
    assert "elr-ignored.json" in said
    assert said.count("\n") == 1


def test_struct_refuses_what_it_does_not_know():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": "x"}, KnownFinding)
