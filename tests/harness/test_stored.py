"""Commands that are given URLs: recordings are judged from storage, and what a sweep finds is put there."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.checkers.recorded import Run
from tests.results.s3_server import BUCKET, KEY, SECRET, objects, s3_server
from tribunal.harness.cli.main import exit_code
from tribunal.results.storage import LIST, Storage


def a_run(folder: Path) -> Path:
    """A run that lost acknowledged writes: more than a screen shows."""
    run = Run(folder)
    run.phase("faults", 0, 500)
    values = [run.send(sequence, 100 + sequence) for sequence in range(40)]
    run.final_read(dict(enumerate(values[:2])))
    for node in (1, 2, 3):
        run.log(node, dict(enumerate(values[:2])))
    return run.finish()


def test_a_recording_in_storage_is_judged_as_the_one_that_was_put_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = a_run(tmp_path / "run")
    here = exit_code(["check", str(run_dir), "--engine", "inline", "--json"]), json.loads(capsys.readouterr().out)
    (run_dir / "verdict.json").unlink()

    with s3_server() as address:
        url = Storage(address).put(run_dir, "nights/run")
        before = objects()
        there = exit_code(["check", url, "--engine", "inline", "--json"]), json.loads(capsys.readouterr().out)
        shown = exit_code(["check", url, "--engine", "inline"])

        assert objects() == before  # evidence is not changed

    assert here[0] == shown == 1
    assert there == here
    said = capsys.readouterr().out
    assert "tribunal-runs-" not in said  # the copy is gone by now
    assert f"a copy of {url} on this machine" in said


def test_a_folder_that_is_not_whole_is_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with s3_server() as address:
        Storage(f"{address}/run").put_file(a_run(tmp_path / "run") / "manifest.json")

        assert exit_code(["check", f"{address}/run", "--engine", "inline"]) == 3

    assert f"no folder stands there as a whole: it has no {LIST}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["check", "s3://b/run", "--master", "spark://h:1"], 64, "is fetched to this machine"),
        (["check", f"s3://{KEY}:{SECRET}@b/run", "--engine", "inline"], 64, "has no credentials"),
        (["sweep", "produce-consume", "--out", f"s3://b/n?secret_key={SECRET}"], 64, "has no credentials"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(arguments) == code

    said = capsys.readouterr().err
    assert words in said
    assert SECRET not in said


def test_a_sweep_asks_storage_before_its_first_seed(capsys: pytest.CaptureFixture[str]) -> None:
    with s3_server() as address:
        missing = address.replace(BUCKET, "missing")

        assert exit_code(["sweep", "produce-consume", "--seeds", "0:1", "--out", missing]) == 3

    assert capsys.readouterr().err == f"tribunal: {missing}: there is no bucket missing\n"


@pytest.mark.nightly
def test_what_a_sweep_finds_is_put_into_storage_and_judged_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["sweep", "produce-consume", "--mutant", "M44", "--time", "2s", "--seeds", "0:2", "--jobs", "1", "--json"]
    assert exit_code([*options, "--out", str(tmp_path / "here")]) == 1
    here = json.loads(capsys.readouterr().out)

    with s3_server() as address:
        assert exit_code([*options, "--out", f"{address}/nights/one"]) == 1
        there = json.loads(capsys.readouterr().out)
        kept = {url for urls in there["kept"].values() for url in urls}
        Storage(min(kept)).fetch(tmp_path / "copy")
        assert exit_code(["check", min(kept), "--engine", "inline"]) == 1
        stored = objects()

    assert there["recordings"] == here["recordings"]
    assert {url.rpartition("/")[2] for url in kept} == {
        Path(one).name for folders in here["kept"].values() for one in folders
    }
    assert list((tmp_path / "copy").rglob("*.parquet"))
    assert all(pq.ParquetFile(path).metadata for path in (tmp_path / "copy").rglob("*.parquet"))
    assert f"{BUCKET}/nights/one/guards.csv" in stored
    assert not [name for name, content in stored.items() if SECRET.encode() in content or KEY.encode() in content]
