"""Histories of other tools come in and are judged; ours go out and come in again."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.checkers.recorded import Run
from tribunal.checkers.judge.verdict import check
from tribunal.harness.cli.main import exit_code
from tribunal.results.history import load
from tribunal.results.verdict import Verdict
from tribunal.results.verdict import load as verdict_of

JEPSEN = """
{:process 0, :type :invoke, :f :txn, :value [[:append 1 1] [:r 2 nil]], :index 0, :time 1}
{:process 1, :type :invoke, :f :txn, :value [[:append 2 1] [:r 1 nil]], :index 1, :time 2}
{:process :nemesis, :type :info, :f :kill, :index 2, :time 3}
{:process 0, :type :ok, :f :txn, :value [[:append 1 1] [:r 2 %s]], :index 3, :time 4}
{:process 1, :type :ok, :f :txn, :value [[:append 2 1] [:r 1 []]], :index 4, :time 5}
{:process 2, :type :invoke, :f :txn, :value [[:r 1 nil] [:r 2 nil]], :index 5, :time 6}
{:process 2, :type :ok, :f :txn, :value [[:r 1 [1]] [:r 2 [1]]], :index 6, :time 7}
"""


def imported(folder: Path, text: str, form: str, *more: str) -> int:
    source = folder / "history"
    source.write_text(text)
    return exit_code(["import", str(source), "--format", form, "-o", str(folder / "imported"), *more])


@pytest.mark.parametrize(
    ("read", "verdict"),
    [
        pytest.param("[]", Verdict.VIOLATION, id="write skew"),
        pytest.param("[1]", Verdict.PASS, id="one after the other"),
    ],
)
def test_an_edn_history_is_judged_by_the_graph_checkers(tmp_path: Path, read: str, verdict: Verdict) -> None:
    assert imported(tmp_path, JEPSEN % read, "jepsen-edn") == 0

    (judged,) = check([tmp_path / "imported"], "inline")

    assert judged.verdict is verdict
    if verdict is Verdict.VIOLATION:
        assert {finding.kind for finding in judged.violations} <= {"G-nonadjacent-item", "G2-item"}
        assert "repeatable-read" in judged.violations[0].detail.rules_out
    assert verdict_of(tmp_path / "imported" / "verdict.json") == judged


@pytest.mark.parametrize("read", [pytest.param("[]", id="violation"), pytest.param("[1]", id="pass")])
def test_the_report_of_an_imported_history_knows_that_it_has_no_cluster(tmp_path: Path, read: str) -> None:
    assert imported(tmp_path, JEPSEN % read, "jepsen-edn") == 0
    check([tmp_path / "imported"], "inline")

    assert exit_code(["report", str(tmp_path / "imported")]) == 0

    page = (tmp_path / "imported" / "report.html").read_text()
    assert "<dt>operations</dt><dd>3 (3 ok)</dd>" in page
    assert "<dt>processes</dt><dd>3</dd>" in page
    assert "no cluster ran here" in page
    assert "no recording" not in page
    assert "No fault was injected" not in page
    assert "manifest" not in page


def test_an_imported_history_shows_the_operations_that_no_order_explains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A finding named T3 and T4, and nothing said which operations these are; `explain` knew of no recording."""
    assert imported(tmp_path, JEPSEN % "[]", "jepsen-edn") == 0
    check([tmp_path / "imported"], "inline")
    capsys.readouterr()

    assert exit_code(["explain", str(tmp_path / "imported")]) == 0
    said = capsys.readouterr().out
    assert exit_code(["report", str(tmp_path / "imported")]) == 0
    page = (tmp_path / "imported" / "report.html").read_text()

    assert "VIOLATION  G2-item" in said
    assert "T3       process 0      ok    0.000000 to 0.000000 s     append 1 1, r 2 []" in said
    assert '<th scope="row">T4</th><td>1</td><td>ok</td>' in page
    assert "A circle that no order explains: G2-item" in page
    assert "T4 of process 1, ok: append 2 1, r 1 []" in page


def test_of_an_imported_history_in_which_nothing_is_wrong_no_operation_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported(tmp_path, JEPSEN % "[1]", "jepsen-edn") == 0
    check([tmp_path / "imported"], "inline")

    assert exit_code(["explain", str(tmp_path / "imported")]) == 0
    assert "there is no story to show" in capsys.readouterr().out
    assert exit_code(["report", str(tmp_path / "imported")]) == 0
    assert "findings name" not in (tmp_path / "imported" / "report.html").read_text()


def test_jepsens_json_says_the_same_as_its_edn(tmp_path: Path) -> None:
    events = [
        {"process": 0, "type": "invoke", "f": "send", "value": [["send", 0, 5]]},
        {"process": 0, "type": "fail", "f": "send", "value": [["send", 0, 5]]},
        {"process": 1, "type": "invoke", "f": "poll", "value": [["poll"]]},
        {"process": 1, "type": "ok", "f": "poll", "value": [["poll", {"0": [[0, 5]]}]]},
    ]
    assert imported(tmp_path, "\n".join(map(json.dumps, events)), "jepsen-json") == 0

    (judged,) = check([tmp_path / "imported"], "inline")

    assert "G1a" in {finding.kind for finding in judged.violations}


@pytest.mark.parametrize(
    ("text", "form", "reason"),
    [
        pytest.param("{:type :ok", "jepsen-edn", "stays open", id="truncated EDN"),
        pytest.param('{"type": "ok", ', "jepsen-json", "line 1", id="truncated JSON"),
        pytest.param('{"type": "done"}', "corpus", "type is 'done'", id="unknown type"),
        pytest.param('{"type": "ok", "process": [1]}', "corpus", "process is", id="odd process"),
        pytest.param("[1, 2]", "corpus", "not an operation", id="numbers"),
        pytest.param("", "corpus", "no operations", id="nothing"),
        pytest.param('{"type": "ok", "mops": [["r", [1], 1]]}', "corpus", "cannot be a key", id="list as key"),
        pytest.param('{"type": "ok", "mops": [["poll", [1]]]}', "corpus", "a poll returns", id="odd poll"),
        pytest.param("[" * 100_000, "jepsen-json", "", id="deep JSON"),
    ],
)
def test_hostile_input_is_one_line_and_exit_code_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, form: str, reason: str
) -> None:
    assert imported(tmp_path, text, form) == 3

    printed = capsys.readouterr().err
    assert reason in printed
    assert printed.count("\n") == 1
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([{"type": "ok", "process": 0, "mops": [["r", 1, [1]]]}], id="completion without invocation"),
        pytest.param(
            [{"type": "invoke", "process": 0, "f": "txn", "mops": [["append", 1, 1], ["r", 1, 7]]},
             {"type": "ok", "process": 0, "f": "txn", "mops": [["append", 1, 1], ["r", 1, 7]]}], id="a read of a number"),
        pytest.param([{"type": "invoke", "process": 0, "f": "dance"}], id="unknown operation"),
    ],
)  # fmt: skip
def test_a_history_that_contradicts_itself_is_an_error_never_a_pass(tmp_path: Path, events: list[Any]) -> None:
    assert imported(tmp_path, "\n".join(map(json.dumps, events)), "corpus") == 0

    (judged,) = check([tmp_path / "imported"], "inline")

    assert judged.verdict is Verdict.ERROR
    assert len(judged.reasons) == 1


def test_an_export_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(tmp_path / "run")
    run.send(0, 100)
    run.finish()
    out = tmp_path / "out.edn"

    assert exit_code(["export", str(tmp_path / "run"), "-o", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"file": str(out), "format": "edn", "operations": len(out.read_text().splitlines())}
    assert printed["operations"] >= 2
    assert exit_code(["export", str(tmp_path / "run"), "--json"]) == 64


@pytest.mark.parametrize("form", ["edn", "json"])
def test_a_run_goes_out_and_comes_in_again(tmp_path: Path, form: str) -> None:
    run = Run(tmp_path / "run")
    values = [run.send(sequence, 100 + sequence // 2) for sequence in range(4)]
    run.final_read(dict(enumerate(values)))
    run.finish()

    assert exit_code(["export", str(tmp_path / "run"), "--format", form, "-o", str(tmp_path / "out")]) == 0
    assert imported(tmp_path, (tmp_path / "out").read_text(), f"jepsen-{form}") == 0

    events, _ = load(tmp_path / "imported")
    assert [event["type"] for event in events].count("invoke") == 6
    assert len({event["process"] for event in events if event["f"] == "send"}) == 2  # two sends at a time
    (judged,) = check([tmp_path / "imported"], "inline")
    assert judged.verdict is Verdict.PASS
