"""`tribunal calibrate`: its table, its file, and when it fails."""

import json
import shutil

import pytest

from tests.checkers.recorded import Run
from tribunal.checkers.calibration.api import Injection
from tribunal.checkers.calibration.case import Place
from tribunal.checkers.judge.verdict import check
from tribunal.harness.campaign import calibrate
from tribunal.harness.campaign.calibrate import Measure, Outcome
from tribunal.harness.cli.calibrate import lines
from tribunal.harness.cli.main import exit_code
from tribunal.results.sensitivity import Figure

ACROSS = "high-watermark-back-at-node-across-epochs"


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


def test_it_prints_a_line_a_class(recorded, capsys):
    assert exit_code(["calibrate", str(recorded), "--classes", f"lost-acks-all,{ACROSS},changed-key"]) == 0

    printed = capsys.readouterr().out.splitlines()
    assert [line.split() for line in printed[1:5]] == [
        ["lost-acks-all", "1", "1", "100", "%"],
        [ACROSS, "1", "1", "100", "%"],
        ["changed-key", "1", "1", "100", "%"],
        ["all", "3", "3", "100", "%"],
    ]  # fmt: skip


def test_each_step_is_said_before_it_takes_its_time(recorded, capsys, monkeypatch):
    """Twelve copies were judged before a second word: a minute on a busy machine."""
    monkeypatch.setattr("tribunal.harness.cli.calibrate.EVERY_S", -1.0)

    assert exit_code(["calibrate", str(recorded), "--classes", "hole,changed-key"]) == 0

    assert capsys.readouterr().err.splitlines() == [
        "1 recording: it is judged as it is, then copies of it with anomalies of 2 classes",
        "run: being judged as it is",
        "run: 1 with an anomaly being judged: hole",
        "run: 1 anomaly judged, 1 seen",
        "run: 1 with an anomaly being judged: changed-key",
        "run: 2 anomalies judged, 2 seen",
    ]


def test_copies_of_two_runs_of_one_name_have_folders_of_their_own(recorded, tmp_path, monkeypatch):
    """Spark keeps what it has read by the files' names: the second run's copies were judged by the first one's rows."""
    other = tmp_path / "elsewhere" / recorded.name
    shutil.copytree(recorded, other)
    judged = []
    monkeypatch.setattr(
        calibrate, "check", lambda folders, *_, **__: judged.extend(folders) or check(folders, "inline")
    )

    options = calibrate.Options(per_class=1, seed=0, engine="inline", chosen=("hole",))
    calibrate.measure([recorded, other], options, tmp_path / "scratch")

    assert len(judged) == len(set(judged)) == 4


def test_a_miss_is_explained_by_what_the_judge_said_instead():
    injection = Injection(change="two records are gone", place=Place("t", 0), log_offset=4, since_ns=10**9)
    miss = Outcome(
        run="run", class_name="hole", injection=injection, verdict="PERMITTED", seen_by=[], instead=["permitted by R4"]
    )
    figures = {"hole": Figure(injected=2, seen=1), "lost-acks-all": Figure(injected=0, seen=0)}

    printed = lines(Measure(seed=0, engine="inline", runs=["run"], figures=figures, lacking={}, misses=[miss]))

    assert [line.split() for line in printed[1:4]] == [
        ["hole", "2", "1", "50", "%"],
        ["lost-acks-all", "0", "0", "no", "place", "in", "these", "runs"],
        ["all", "2", "1", "50", "%"],
    ]  # fmt: skip
    assert printed[4:] == [
        "missed hole: run, t-0@4 from 1.000 s to the end: two records are gone",
        "       the judge said PERMITTED: permitted by R4",
    ]


def test_figures_are_kept_and_a_class_that_fell_below_them_fails(recorded, tmp_path, capsys):
    kept = tmp_path / "figures.json"
    chosen = ["calibrate", str(recorded), "--classes", f"hole,{ACROSS}"]
    assert exit_code([*chosen, "--out", str(kept)]) == 0
    assert exit_code([*chosen, "--last", str(kept)]) == 0

    # Nothing is missed here, so what was seen the last time has to be more than there was.
    figures = json.loads(kept.read_text())
    figures["figures"][ACROSS]["seen"] = 2
    kept.write_text(json.dumps(figures))
    capsys.readouterr()

    assert exit_code([*chosen, "--last", str(kept), "--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["figures"][ACROSS] == {"injected": 1, "seen": 1}
    assert f"fell below the last figure: {ACROSS}: 1 of 1, last 2 of 1" in printed.err


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
    pytest.param(["--out", "nowhere/figures.json"], "there is no folder 'nowhere'", id="no folder, found out before it begins"),
    pytest.param(["--out", "."], "a folder, and a file is needed", id="a folder"),
])  # fmt: skip
def test_wrong_usage_is_said_in_one_line(recorded, capsys, arguments, said):
    assert exit_code(["calibrate", str(recorded), *arguments]) == 64

    assert said in capsys.readouterr().err


def test_a_damaged_recording_is_not_measured(recorded, capsys):
    (recorded / "recording" / "sends" / "tp=t-0" / "part-00001.parquet").write_bytes(b"none")

    assert exit_code(["calibrate", str(recorded)]) == 3
