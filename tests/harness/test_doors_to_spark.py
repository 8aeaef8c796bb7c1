"""`tribunal check` takes one Spark, says plainly what it cannot take, and judges many runs in one job."""

import socket
import sys
from pathlib import Path

import pytest

from tests.checkers.recorded import Run
from tribunal.harness.cli.main import exit_code
from tribunal.results.verdict import Verdict, load


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        pytest.param(["--master", "yarn"], "begins with local or spark://", id="another master"),
        pytest.param(["--remote", "spark://127.0.0.1:1"], "begins with sc://", id="no Connect"),
        pytest.param(["--master", "local[1]", "--remote", "sc://127.0.0.1:1"], "one of them", id="both"),
        pytest.param(["--master", "local[1]", "--engine", "inline"], "needs no Spark", id="inline"),
    ],
)
def test_wrong_use_is_64(tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], reason: str) -> None:
    assert exit_code(["check", str(tmp_path), *options]) == 64

    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--master", "spark://127.0.0.1:9"], ["--remote", "sc://127.0.0.1:9"]])
def test_a_spark_that_is_not_there_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    run_dir = Run(tmp_path / "run").finish()

    assert exit_code(["check", str(run_dir), *option]) == 3
    assert "no Spark answers at" in capsys.readouterr().out


def test_spark_connect_without_its_packages_names_the_extra_that_brings_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = Run(tmp_path / "run").finish()
    monkeypatch.setitem(sys.modules, "grpc", None)

    with socket.create_server(("127.0.0.1", 0)) as server:
        code = exit_code(["check", str(run_dir), "--remote", f"sc://127.0.0.1:{server.getsockname()[1]}"])

    assert code == 3
    assert "replog[connect]" in capsys.readouterr().out


def test_many_runs_are_judged_in_one_call(tmp_path: Path) -> None:
    runs = []
    for number in range(3):
        run = Run(tmp_path / f"run-{number}")
        run.phase("faults", 0, 500)
        values = [run.send(sequence, 100 + sequence) for sequence in range(3)]
        run.final_read(dict(enumerate(values[: 3 - number])))
        runs.append(run.finish())

    assert exit_code(["check", *map(str, runs), "--engine", "inline"]) == 1
    verdicts = [load(run / "verdict.json").verdict for run in runs]
    assert verdicts == [Verdict.PASS, Verdict.VIOLATION, Verdict.VIOLATION]
