"""Recordings that cannot be believed: ERROR with table, row and reason by every way of judging, never a PASS."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.checkers.recorded import Run
from tribunal.checkers.judge import files
from tribunal.checkers.judge import hot_partitions as ranges
from tribunal.checkers.judge.verdict import check
from tribunal.results.verdict import RunVerdict, Verdict

Change = Callable[[pa.Table], pa.Table]


def a_run(folder: Path, *, finish: bool = False) -> Path:
    """A run without fault; it has no manifest unless it is finished, so that only the rows themselves can tell."""
    run = Run(folder)
    run.phase("faults", 0, 500)
    values = [run.send(sequence, 100 + sequence) for sequence in range(4)]
    run.final_read(dict(enumerate(values)))
    for node in (1, 2, 3):
        run.log(node, dict(enumerate(values)))
    return run.finish() if finish else run.cut_off()


def rewritten(run_dir: Path, table: str, change: Change) -> None:
    (path,) = (run_dir / "recording" / table).glob("tp=t-0/part-*.parquet")
    pq.write_table(change(pq.ParquetFile(path).read()), path)


def with_cell(column: str, row: int, value: Any) -> Change:
    def change(rows: pa.Table) -> pa.Table:
        cells = rows[column].to_pylist()
        cells[row] = value
        place = rows.column_names.index(column)
        return rows.set_column(place, rows.schema.field(column), pa.array(cells, rows.schema.field(column).type))

    return change


def as_floats(column: str, row: int, value: float) -> Change:
    def change(rows: pa.Table) -> pa.Table:
        cells = rows[column].cast(pa.float64()).to_pylist()
        cells[row] = value
        return rows.set_column(rows.column_names.index(column), column, pa.array(cells, pa.float64()))

    return change


def judged(run_dir: Path) -> RunVerdict:
    (verdict,) = check([run_dir], "inline")
    return verdict


BAD = [
    pytest.param("sends", with_cell("invoke_ns", 2, None), "table sends, row 2: completed without invoke", id="ok without invoke"),
    pytest.param("sends", with_cell("complete_ns", 1, 5), "table sends, row 1: time goes back", id="completed before invoked"),
    pytest.param("sends", with_cell("invoke_ns", 3, 1), "table sends, row 3: time goes back", id="a process goes back"),
    pytest.param("sends", with_cell("value", 3, 7 << 40), "table sends, row 3: value 7696581394432 was sent twice", id="sent twice"),
    pytest.param("sends", with_cell("outcome", 0, "maybe"), "table sends, row 0: outcome is 'maybe'", id="unknown outcome"),
    pytest.param("sends", as_floats("invoke_ns", 0, float("nan")), "table sends: part-00001.parquet: column invoke_ns has type double", id="NaN"),
    pytest.param("reads", as_floats("log_offset", 0, 0.5), "table reads: part-00001.parquet: column log_offset has type double", id="wrong type"),
    pytest.param("reads", with_cell("log_offset", 1, -4), "table reads, row 1: log_offset: negative", id="negative offset"),
    pytest.param("polls", with_cell("complete_ns", 0, 0), "table polls, row 0: time goes back", id="a poll goes back"),
    pytest.param("polls", with_cell("outcome", 1, None), "table polls, row 1: outcome is unknown", id="no outcome"),
    pytest.param("logs", lambda rows: rows.drop_columns(["value"]), "table logs: part-00001.parquet: column value is missing", id="foreign table"),
    pytest.param("logs", with_cell("node", 0, None), "node is unknown", id="a log of nobody"),
]  # fmt: skip


@pytest.fixture(params=[pytest.param(False, id="whole"), pytest.param(True, id="in ranges")])
def in_ranges(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A hot partition is sieved range by range, and a large recording's files are dealt out, by code of their own: it has to see the same."""
    if request.param:
        monkeypatch.setattr(files, "DEALT_BYTES", 0)
        monkeypatch.setattr(files, "TOGETHER_BYTES", 1)
        monkeypatch.setattr(files, "TOGETHER_VALUES", 2)
        monkeypatch.setattr(ranges, "HOT_ROWS", 1)
        monkeypatch.setattr(ranges, "BIG_BYTES", 1)
        monkeypatch.setattr(ranges, "RANGE_OFFSETS", 2)
    return bool(request.param)


def test_the_run_is_sound_before_it_is_spoilt(tmp_path: Path, in_ranges: bool) -> None:
    assert judged(a_run(tmp_path / "run", finish=True)).verdict is Verdict.PASS


@pytest.mark.parametrize(("table", "change", "reason"), BAD)
def test_bad_rows_are_an_error_that_names_them(
    tmp_path: Path, in_ranges: bool, table: str, change: Change, reason: str
) -> None:
    run_dir = a_run(tmp_path / "run")
    rewritten(run_dir, table, change)

    verdict = judged(run_dir)

    assert verdict.verdict is Verdict.ERROR
    if in_ranges:
        reason = re.sub(r", row \d+", "", reason)  # there the row is one of the range, which is named behind it
    stated = [re.sub(r", row \d+", "", line) if in_ranges else line for line in verdict.reasons]
    assert any(reason in line for line in stated), stated
    assert verdict.findings == []


@pytest.mark.parametrize("table", ["sends", "reads", "logs", "polls"])
def test_a_truncated_file_is_an_error_that_names_its_table(tmp_path: Path, in_ranges: bool, table: str) -> None:
    run_dir = a_run(tmp_path / "run")
    path = next((run_dir / "recording" / table).glob("tp=t-0/part-*.parquet"))
    path.write_bytes(path.read_bytes()[:-30])

    verdict = judged(run_dir)

    assert verdict.verdict is Verdict.ERROR
    assert any(f"table {table}: {path.name}: not a readable Parquet file" in stated for stated in verdict.reasons)


def test_a_file_of_somebody_else_is_an_error(tmp_path: Path, in_ranges: bool) -> None:
    run_dir = a_run(tmp_path / "run")
    path = next((run_dir / "recording/reads").glob("tp=t-0/part-*.parquet"))
    pq.write_table(pa.table({"colour": ["red"]}), path)

    verdict = judged(run_dir)

    assert verdict.verdict is Verdict.ERROR
    assert any("table reads" in stated for stated in verdict.reasons)
