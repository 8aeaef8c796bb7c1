"""Commands that are given URLs: recordings are judged from storage, and what a sweep finds is put there."""

import json
import os
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from tests.checkers.recorded import Run
from tests.harness.test_search import SMALL
from tests.results.s3_server import BUCKET, KEY, SECRET, objects, s3_server, system
from tribunal.harness.campaign.corpus import Corpus, Entry
from tribunal.harness.campaign.variations import fresh
from tribunal.harness.cli.main import exit_code
from tribunal.harness.cli.night import stored_name
from tribunal.harness.cli.stored import Kept
from tribunal.harness.scenario import scenario
from tribunal.results.night import Night, Swept
from tribunal.results.night_files import save
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
        (["check", "s3://b/run", "--master", "spark://h:1", "--engine", "spark-sql"], 64, "take --engine spark"),
        (["check", f"s3://{KEY}:{SECRET}@b/run", "--engine", "inline"], 64, "has no credentials"),
        (["nightly", "--copy-to", "/mnt/nights"], 64, "a URL of storage, such as s3://"),
        (["nightly", "--nights", f"s3://{KEY}:{SECRET}@b/nights"], 64, "has no credentials"),
        (["trends", f"s3://{KEY}:{SECRET}@b/nights"], 64, "has no credentials"),
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


def corpus_put(url: str, folder: Path, runs: int) -> list[int]:
    """Go on with a corpus that is kept at a URL; return which entries it had, and put it back with one more."""
    folder.mkdir()
    kept = Kept(url, folder)
    corpus = Corpus(kept.folder)
    before = [entry.number for entry in corpus.entries]
    plan = fresh(scenario(SMALL), Random(1), (), composed=False).plan
    corpus.take(Entry(number=runs - 1, parent=None, how="", plan=plan, new=[str(runs)], requests={}))
    corpus.runs = runs
    corpus.save()
    kept.put(runs, folder / "otherwise")
    return before


def test_a_corpus_goes_on_from_storage_and_an_upload_that_is_interrupted_costs_its_own_runs_only(
    tmp_path: Path,
) -> None:
    url = f"file://{tmp_path}/corpora/one"

    first = corpus_put(url, tmp_path / "1", 4)
    second = corpus_put(url, tmp_path / "2", 8)
    Storage(f"{url}/0000000012").put_file(a_run(tmp_path / "run") / "manifest.json")  # and no list
    third = corpus_put(url, tmp_path / "3", 16)

    assert [first, second, third] == [[], [3], [3, 7]]
    assert Storage(url).folders() == ["0000000016"]


def test_a_search_that_added_nothing_leaves_the_corpus_as_it_is(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/corpus"
    corpus_put(url, tmp_path / "1", 4)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "corpus").rglob("*")}

    Kept(url, tmp_path).put(4, tmp_path / "otherwise")

    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "corpus").rglob("*")} == before


def test_a_corpus_that_storage_does_not_take_is_kept_on_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "corpus").mkdir()
    kept = Kept(f"file://{tmp_path}/corpus/one", tmp_path)
    (kept.folder / "corpus.json").write_text("{}")
    (tmp_path / "corpus" / "one").touch()  # a file where the folder is to be

    place = kept.put(4, tmp_path / "otherwise")

    assert (Path(place) / "corpus.json").is_file()
    assert "kept in" in capsys.readouterr().err


def test_a_site_is_published_into_storage_as_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, statement = tmp_path / "runs", tmp_path / "campaign.yaml"
    statement.write_text("campaign: A small one\nsystem: replog\nversion: one\n")
    assert exit_code(["check", str(a_run(runs / "run")), "--engine", "inline"]) == 1

    with s3_server() as address:
        order = ["publish", str(runs), "--statement", str(statement), "--evidence", "0", "-o", f"{address}/sites/one"]
        assert exit_code(order) == 0
        again = exit_code(order)
        page = system(os.environ["AWS_ENDPOINT_URL"]).open_input_stream(f"{BUCKET}/sites/one/index.html")
        kind, text = page.metadata()["Content-Type"], page.readall()
        Storage(f"{address}/sites/one").fetch(tmp_path / "copy")

    assert f"{address}/sites/one/index.html" in capsys.readouterr().out
    assert again == 64
    assert kind == b"text/html"
    assert (tmp_path / "copy" / "index.html").read_bytes() == text


def test_the_shards_of_a_night_are_merged_from_storage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    urls = []
    for number in (1, 2):
        swept = [Swept(scenario="small", runs=number, seconds=1.0, simulated_ms=1, verdicts={"PASS": number})]
        shard = Night(
            name="a small one", began="2026-11-21T02:00:00Z", commit="c", lock_sha256="l", shard=f"{number}/2", budget_s=1.0,
            first_seed=7, seconds=1.0, swept=swept, canaries=[], past=[],
        )  # fmt: skip
        save(shard, tmp_path / str(number))
        urls.append(Storage(f"file://{tmp_path}/nights").put(tmp_path / str(number), stored_name(shard)))

    code = exit_code(["merge", *urls, "-o", str(tmp_path / "whole"), "--json"])

    assert [url.rpartition("/")[2] for url in urls] == [f"a-small-one-2026-11-21T020000Z-{part}of2" for part in (1, 2)]
    assert code == 0
    assert json.loads(capsys.readouterr().out)["swept"][0]["runs"] == 3
    assert exit_code(["merge", urls[0], f"{urls[1]}-lost", "-o", str(tmp_path / "half")]) == 3


def test_old_runs_in_storage_are_removed_but_for_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor anything that is no run, what was not put there to the end, and a run whose verdict is not as it was put there."""
    names = [f"20261120T02000{second}Z-produce-consume-replog-{second}" for second in range(7)]
    for name, verdict in zip(names, ["PASS", "VIOLATION", "PASS", "PASS", "PASS", None, "PASS"], strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").write_text("{}")
        if verdict is not None:
            (tmp_path / name / "verdict.json").write_text(json.dumps({"verdict": verdict}))
    (tmp_path / "a-night").mkdir()
    (tmp_path / "a-night" / "nightly.json").write_text("{}")

    with s3_server() as address:
        storage = Storage(f"{address}/runs")
        for name in [*names, "a-night"]:
            storage.put(tmp_path / name, name)
        s3 = system(os.environ["AWS_ENDPOINT_URL"])
        s3.delete_file(f"{BUCKET}/runs/{names[0]}/stored.json")
        with s3.open_output_stream(f"{BUCKET}/runs/{names[2]}/verdict.json") as damaged:
            damaged.write(b"")
        assert exit_code(["clean", "--out", f"{address}/runs", "--keep", "2", "--json"]) == 0
        cleaned = json.loads(capsys.readouterr().out)
        left = {path.split("/")[2] for path in objects()}
        assert exit_code(["clean", "--out", "s3://no-such-bucket/runs"]) == 3

    assert cleaned == {
        "removed": [f"{address}/runs/{name}" for name in names[3:5]],
        "kept": 2,
        "with_violation": [f"{address}/runs/{name}" for name in names[1:3]],
    }
    assert left == {*names, "a-night"} - {*names[3:5]}


@pytest.mark.nightly
def test_shards_of_a_night_are_put_into_storage_and_merged_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small, night = tmp_path / "small.yaml", tmp_path / "nightly.yaml"
    small.write_text(json.dumps(SMALL))
    night.write_text(f"nightly: a small one\nsweeps: {{{small}: 1}}\n")

    with s3_server() as address:
        for shard in ("1/2", "2/2"):
            order = [
                "nightly",
                str(night),
                "--budget",
                "1s",
                "--engine",
                "inline",
                "--shard",
                shard,
                "--first-seed",
                "7",
            ]
            exit_code([*order, "--out", str(tmp_path / shard[0]), "--copy-to", f"{address}/nights"])
        names = Storage(f"{address}/nights").folders()
        capsys.readouterr()
        exit_code(["merge", *(f"{address}/nights/{name}" for name in names), "-o", str(tmp_path / "whole"), "--json"])

    whole = json.loads(capsys.readouterr().out)
    assert [name[:11] + name[-5:] for name in names] == ["a-small-one-1of2", "a-small-one-2of2"]
    assert sum(one["runs"] for one in whole["swept"]) >= 2
    assert not whole["errors"]


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
