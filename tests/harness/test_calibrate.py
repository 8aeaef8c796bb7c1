"""`tribunal calibrate`: its table, its file, and when it fails."""

import json

import pytest

from tests.checkers.recorded import Run
from tribunal.harness.cli.main import exit_code

MISSED = "high-watermark-back-at-node-across-epochs"  # a class that the judge does not see yet


@pytest.fixture
def recorded(tmp_path):
    run = Run(tmp_path / "run")
    values = [run.send(number, at=100 * number) for number in range(6)]
    run.watermark(6, 600, epoch=0)
    run.change(7000, leader=2, isr=[1, 2, 3])
    for at in (8000, 30_000):
        run.watermark(6, at, epoch=1, observer="node-2")
    run.final_read(dict(enumerate(values)), at=40_000, epoch=0)
    for node in (1, 2, 3):
        run.log(node, dict(enumerate(values)))
    run.phase("faults", 0, 700)
    return run.finish()


def test_it_prints_a_line_a_class_and_explains_each_miss(recorded, capsys):
    assert exit_code(["calibrate", str(recorded), "--classes", f"lost-acks-all,{MISSED},changed-key"]) == 0

    printed = capsys.readouterr().out.splitlines()
    assert [line.split() for line in printed[1:5]] == [
        ["lost-acks-all", "1", "1", "100", "%"],
        [MISSED, "1", "0", "0", "%"],
        ["changed-key", "1", "1", "100", "%"],
        ["all", "3", "2", "67", "%"],
    ]  # fmt: skip
    assert printed[5].startswith(f"missed {MISSED}: run, t-0@")
    assert printed[6] == "       the judge said PASS: nothing of it"


def test_figures_are_kept_and_a_class_that_fell_below_them_fails(recorded, tmp_path, capsys):
    kept = tmp_path / "figures.json"
    assert exit_code(["calibrate", str(recorded), "--classes", f"hole,{MISSED}", "--out", str(kept)]) == 0
    assert exit_code(["calibrate", str(recorded), "--classes", f"hole,{MISSED}", "--last", str(kept)]) == 0

    figures = json.loads(kept.read_text())
    figures["figures"][MISSED]["seen"] = 1
    kept.write_text(json.dumps(figures))
    capsys.readouterr()

    assert exit_code(["calibrate", str(recorded), "--last", str(kept), "--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["figures"][MISSED] == {"injected": 1, "seen": 0}
    assert f"fell below the last figure: {MISSED}: 0 of 1, last 1 of 1" in printed.err


@pytest.mark.spark
@pytest.mark.parametrize("engine", [
    "spark",
    # Each copy is judged by all SQL definitions on its own: a minute of CPU and more each.
    pytest.param("spark-sql", marks=[pytest.mark.nightly, pytest.mark.timeout(1800)]),
])  # fmt: skip
def test_every_engine_sees_the_same(recorded, capsys, engine):
    chosen = ["calibrate", str(recorded), "--classes", "lost-acks-all,hole,replica-has-a-hole", "--json"]
    assert exit_code(chosen) == 0
    inline = json.loads(capsys.readouterr().out)

    assert exit_code([*chosen, "--engine", engine]) == 0

    assert json.loads(capsys.readouterr().out)["figures"] == inline["figures"]
    assert sum(one["injected"] for one in inline["figures"].values()) == 3


@pytest.mark.parametrize(("arguments", "said"), [
    pytest.param(["--classes", "hoel"], "unknown class 'hoel'", id="unknown class"),
    pytest.param(["--engine", "duck"], "unknown engine 'duck'", id="unknown engine"),
    pytest.param(["--last", "nowhere.json"], "nowhere.json", id="no last figures"),
])  # fmt: skip
def test_wrong_usage_is_said_in_one_line(recorded, capsys, arguments, said):
    assert exit_code(["calibrate", str(recorded), *arguments]) == 64

    assert said in capsys.readouterr().err


def test_a_damaged_recording_is_not_measured(recorded, capsys):
    (recorded / "recording" / "sends" / "tp=t-0" / "part-00001.parquet").write_bytes(b"none")

    assert exit_code(["calibrate", str(recorded)]) == 3
