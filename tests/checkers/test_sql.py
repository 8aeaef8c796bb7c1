"""The SQL definitions in DuckDB answer what the kernels answer, on random recordings with injected anomalies."""

from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from checkers.api import PartitionRows, properties
from checkers.sql import VIEWS, small_views
from checkers.work import PartitionJudge
from results.recording import TABLES
from results.store import Recording
from tests.checkers.random_runs import random_run

COMPARED = ("kind", "log_offset", "value", "acks", "invoke_ns", "at_ns", "leader_epoch", "other_offset")


def by_kernel(run_dir: Path, name: str) -> Counter[tuple[object, ...]]:
    recording = Recording.open(run_dir)
    rows = PartitionRows({table: recording.table(table, "t-0") for table in VIEWS})
    judge = PartitionJudge(recording, "t-0", rows)
    anomalies = properties()[name].kernel(rows, judge.context).anomalies
    return Counter(tuple(row[column] for column in COMPARED) for row in anomalies.to_pylist())


def by_duckdb(run_dir: Path, name: str) -> Counter[tuple[object, ...]]:
    recording = Recording.open(run_dir)
    connection = duckdb.connect()
    for table in VIEWS:
        rows = recording.table(table)
        connection.register(table, rows.cast(plain(table)))
    for view, rows in small_views(run_dir).items():
        connection.register(view, rows)
    answer = connection.sql(properties()[name].SQL).to_arrow_table().to_pylist()
    return Counter(tuple(row[column] for column in COMPARED) for row in answer)


def plain(table: str) -> pa.Schema:
    return pa.schema(
        [pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in TABLES[table].arrow]
    )


PARTITION_PROPERTIES = [name for name, module in properties().items() if hasattr(module, "kernel")]


@pytest.mark.parametrize("name", PARTITION_PROPERTIES)
def test_duckdb_and_kernel_agree(tmp_path: Path, name: str) -> None:
    found: Counter[object] = Counter()
    for seed in range(25):
        run_dir = random_run(tmp_path / str(seed), seed)
        expected = by_duckdb(run_dir, name)
        assert by_kernel(run_dir, name) == expected, f"seed {seed}"
        found.update(row[0] for row in expected)

    assert found, "the random runs hold no anomalies of this property"
