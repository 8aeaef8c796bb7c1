"""Recordings at URLs are judged by Spark's tasks as the same recordings here are, and each task fetches what it looks at."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from random import Random

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.checkers.random_runs import random_run
from tests.checkers.recorded import Run
from tests.checkers.spark_clusters import connect_server, standalone
from tests.checkers.test_dealt_transactions import Log, OneAtATime, deal_all, logged, planted, planted_in
from tests.checkers.test_dealt_transactions import recorded as recorded_lists
from tests.checkers.test_ranges import cut_everything
from tests.results.s3_server import s3_server
from tribunal.checkers.judge import engine
from tribunal.checkers.judge.items import Files, Rest, SieveRange, WholePartition, WholeRun, work_items
from tribunal.checkers.judge.judge import judge_item, second_look
from tribunal.checkers.judge.stored import through_mirrors
from tribunal.checkers.judge.tables import TableRow, Tables, read_row
from tribunal.results.mirror import Mirror, footers_here, here, mirrored
from tribunal.results.storage import LIST, NoStorage, Storage

ROOT = Path(__file__).resolve().parents[2]
Plain = dict[str, object]


def judged_by_tasks(folder: Path, url: str) -> Tables:
    """Judge a recording at a URL as driver and workers do, but in this process."""
    mirror = Mirror(url, folder)
    stored = {str(folder): url}

    def answers(items: list[engine.WorkItem]) -> Tables:
        batches = engine.rows_of(engine.tasks_of(items)).to_batches()
        found = engine.judge_batches(frozenset(), stored, batches)
        tables.add(read_row(row) for batch in found for row in batch.to_pylist(maps_as_pydicts="strict"))
        return tables

    tables = Tables()
    with mirrored([mirror]):
        answers(work_items(folder))
        while again := second_look(tables):
            answers(again)
        return engine._finished(tables)


def of(tables: Tables, folder: Path) -> str:
    """Return all answers as text, with one name for the run's folder."""
    tables.files = []
    return msgspec.json.encode(tables).decode().replace(str(folder), "RUN")


@pytest.mark.parametrize("offsets", [0, 3])
@pytest.mark.parametrize("seed", [3, 12])
def test_tasks_judge_a_recording_at_a_url_like_the_one_that_was_put_there(
    tmp_path: Path, seed: int, offsets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = random_run(tmp_path / "run", seed)
    if offsets:
        cut_everything(monkeypatch, offsets)
    expected = of(engine.judge_runs([run_dir], "inline"), run_dir)
    url = Storage(f"file://{tmp_path}/there").put(run_dir, "run")

    found = of(judged_by_tasks(tmp_path / "mirror", url), tmp_path / "mirror")

    assert '"findings":[{' in expected
    assert found == expected


@pytest.mark.parametrize("kind", ["", "stale", "swapped"])
def test_tasks_judge_lists_at_a_url_like_those_that_were_put_there(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(1)
    run_dir = recorded_lists(tmp_path / "run", planted(OneAtATime(random, 60).rows, kind, random))
    expected = of(engine.judge_runs([run_dir], "inline"), run_dir)
    deal_all(monkeypatch, 20)
    url = Storage(f"file://{tmp_path}/there").put(run_dir, "run")

    found = of(judged_by_tasks(tmp_path / "mirror", url), tmp_path / "mirror")

    assert ('"findings":[{' in expected) == bool(kind)
    assert found == expected


@pytest.mark.parametrize("kind", ["aborted", "elsewhere"])
def test_tasks_judge_messages_at_a_url_like_those_that_were_put_there(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(1)
    run_dir = logged(tmp_path / "run", planted_in(Log(random, 60).rows, kind, random))
    expected = of(engine.judge_runs([run_dir], "inline"), run_dir)
    deal_all(monkeypatch, 20)
    url = Storage(f"file://{tmp_path}/there").put(run_dir, "run")

    found = of(judged_by_tasks(tmp_path / "mirror", url), tmp_path / "mirror")

    assert '"findings":[{' in expected
    assert found == expected


def test_a_transaction_that_is_in_none_of_the_row_groups_of_its_time_is_looked_for_in_all_of_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_everything(monkeypatch, 2)
    run = Run(tmp_path / "run")
    values = [run.send(at, 100 + at, txn_id="x") for at in range(4)]
    run.recorder.row("txns", process=7, txn_id="x", begin_ns=0, end_ns=1, outcome="aborted", operations=[])
    run.final_read(dict(enumerate(values)))
    run_dir = run.finish()
    expected = of(engine.judge_runs([run_dir], "inline"), run_dir)
    url = Storage(f"file://{tmp_path}/there").put(run_dir, "run")

    assert of(judged_by_tasks(tmp_path / "mirror", url), tmp_path / "mirror") == expected


def test_a_task_fetches_what_it_looks_at_and_no_more(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for partition in range(3):
        run.send(partition, 100 + partition, partition=partition)
    url = Storage(f"file://{tmp_path}/there").put(run.finish())
    mirror = Mirror(url, tmp_path / "mirror")

    with mirrored([mirror]):
        assert not any(path.endswith(".parquet") for path in brought(mirror))
        judge_item(WholePartition(str(mirror.folder), "t-1"))

    assert "recording/sends/tp=t-1/part-00001.parquet" in brought(mirror)
    assert not [path for path in brought(mirror) if "tp=t-0" in path or "tp=t-2" in path]


@pytest.mark.parametrize("in_transactions", [False, True])
def test_who_deals_a_hot_partition_out_fetches_footers_and_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_transactions: bool
) -> None:
    cut_everything(monkeypatch, 3)
    run = Run(tmp_path / "run")
    if in_transactions:
        run.recorder.row("txns", process=7, txn_id="x", begin_ns=0, end_ns=1, outcome="committed", operations=[])
    values = [run.send(0, 100 + at, offset=at) for at in range(10)]
    run.final_read(dict(enumerate(values)))
    url = Storage(f"file://{tmp_path}/there").put(run.finish())
    mirror = Mirror(url, tmp_path / "mirror")

    with mirrored([mirror]):
        items = work_items(mirror.folder)
        hot = {
            path for path in brought(mirror) if "tp=t-0" in path and path.split("/")[1] in {"sends", "reads", "logs"}
        }

        assert len([item for item in items if isinstance(item, SieveRange)]) == 4
        assert hot == set()
        judge_item(next(item for item in items if isinstance(item, SieveRange)))
        assert "recording/sends/tp=t-0/part-00001.parquet" in brought(mirror)


@pytest.mark.parametrize(
    ("columns", "rows"), [(2, 40_000), (4000, 100)], ids=["a short footer", "one longer than what is fetched at first"]
)
def test_a_footer_is_that_of_the_whole_file(tmp_path: Path, columns: int, rows: int) -> None:
    path = tmp_path / "run" / "part-00001.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({f"column {at}": list(range(rows)) for at in range(columns)}), path)
    mirror = Mirror(Storage(f"file://{tmp_path}/there").put(path.parent), tmp_path / "mirror")

    with mirrored([mirror]):
        footers_here(mirror.folder / path.name)
        footer = pq.read_metadata(mirror.folder / path.name)

        assert footer.equals(pq.read_metadata(path))
        assert (mirror.folder / path.name).read_bytes() != path.read_bytes()
        here(mirror.folder / path.name)

    assert (mirror.folder / path.name).read_bytes() == path.read_bytes()


def test_a_segment_of_another_size_has_no_footer(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.send(0, 100)
    mirror = Mirror(Storage(f"file://{tmp_path}/there").put(run.finish()), tmp_path / "mirror")
    (sends,) = (tmp_path / "there").glob("recording/sends/tp=t-0/*.parquet")
    sends.write_bytes(sends.read_bytes() + b"PAR1")

    with mirrored([mirror]), pytest.raises(NoStorage, match=r"part-00001.parquet is not as it was put there"):
        footers_here(mirror.folder / sends.relative_to(tmp_path / "there"))


def test_a_task_that_names_its_segments_makes_files_for_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What else is judged may be excused by what stands in any partition, and sees all of them."""
    run = Run(tmp_path / "run")
    for partition in range(3):
        run.send(partition, 100 + partition, partition=partition)
    cut_everything(monkeypatch, 3)
    folder = run.finish()
    url = Storage(f"file://{tmp_path}/there").put(folder)
    seen: dict[type, list[set[str]]] = {}

    def look(item: engine.WorkItem) -> list[TableRow]:
        own = {path.parent.name for path in Path(item.run_dir).rglob("*.parquet")}
        seen.setdefault(type(item), []).append({name for name in own if name.startswith("tp=t-")})
        return []

    for item in work_items(folder):
        with through_mirrors(look, {str(folder): url}) as judge:
            judge(item)

    assert max(map(len, seen[SieveRange])) == max(map(len, seen[Files])) == 1
    assert {len(own) for kind in (WholeRun, Rest) for own in seen[kind]} == {3}


def brought(mirror: Mirror) -> set[str]:
    paths = {path.relative_to(mirror.folder).as_posix() for path in mirror.folder.rglob("*") if path.is_file()}
    return paths - set(mirror._missing)


def test_a_segment_that_is_not_as_it_was_put_there_ends_the_judging(tmp_path: Path) -> None:
    """Also of a recording that was cut off, which no manifest is compared with, and inside of a property's kernel."""
    run = Run(tmp_path / "run")
    run.send(0, 100)
    url = Storage(f"file://{tmp_path}/there").put(run.cut_off())
    mirror = Mirror(url, tmp_path / "mirror")
    (sends,) = (tmp_path / "there").glob("recording/sends/tp=t-0/*.parquet")
    sends.write_bytes(sends.read_bytes()[:-1] + b"!")

    with through_mirrors(partial(judge_item), {str(mirror.folder): url}) as judge:
        judge(WholeRun(str(mirror.folder), files_apart=True))
        with pytest.raises(NoStorage, match=r"part-00001.parquet is not as it was put there.*\(asked by "):
            judge(WholePartition(str(mirror.folder), "t-0"))


def test_a_folder_that_is_not_whole_has_no_mirror(tmp_path: Path) -> None:
    url = Storage(f"file://{tmp_path}/there").put(random_run(tmp_path / "run", 1))
    (tmp_path / "there" / LIST).unlink()

    with pytest.raises(NoStorage, match=f"it has no {LIST}"):
        Mirror(url, tmp_path / "mirror")


def check(*arguments: str, without: tuple[str, ...] = ()) -> tuple[int, Plain, str]:
    """Run `tribunal check` in a process of its own; return its exit code, its verdict and what else it said."""
    command = [sys.executable, "-W", "ignore", "-m", "tribunal.harness.cli.main", "check", "--json", *arguments]
    env = {name: value for name, value in os.environ.items() if name not in without}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240, check=False, env=env)
    lines = ended.stdout.splitlines()
    return ended.returncode, msgspec.json.decode(lines[-1]) if lines else {}, ended.stderr


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(560)
@pytest.mark.parametrize("kind", ["standalone", "connect"])
def test_a_cluster_judges_recordings_in_s3_like_this_machine(tmp_path: Path, kind: str) -> None:
    seed = Random(kind).choice([3, 12, 20])
    run_dir = random_run(tmp_path / "run", seed)
    here = check(str(run_dir), "--engine", "inline")
    (tmp_path / "cluster").mkdir()
    with s3_server() as address:
        url = Storage(address).put(run_dir, "nights/run")
        if kind == "connect":
            with connect_server(tmp_path / "cluster") as remote:
                there = check(url, "--remote", remote)
        else:
            with standalone(tmp_path / "cluster") as cluster:
                there = check(url, "--master", cluster.url)

    assert here[0] == there[0] == 1, there[2]
    assert there[1] | {"engine": ""} == here[1] | {"engine": ""}


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(280)
def test_workers_without_credentials_are_one_line_with_their_name(tmp_path: Path) -> None:
    run_dir = random_run(tmp_path / "run", 3)
    (tmp_path / "cluster").mkdir()
    with standalone(tmp_path / "cluster", workers=1) as cluster, s3_server() as address:
        url = Storage(address).put(run_dir, "nights/run")

        code, _, said = check(url, "--master", cluster.url)

    assert code == 3
    assert said.splitlines()[-1].startswith(f"tribunal: {url}")
    assert "(asked by " in said.splitlines()[-1]
