"""The SQL definitions in DuckDB find what the kernels find: every property, on random recordings with injected anomalies."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.checkers.random_runs import random_run
from tribunal.checkers.api import properties
from tribunal.checkers.judge import engine
from tribunal.checkers.judge.tables import FoundIn, Tables
from tribunal.checkers.spark.sql import defined, judged_answer
from tribunal.checkers.spark.sql_views import VIEWS, plain, small_views, view_schema
from tribunal.results.recording import NO_PARTITION
from tribunal.results.store import Recording


def by_duckdb(run_dir: Path, names: frozenset[str] | None = None) -> list[FoundIn]:
    recording = Recording.open(run_dir)
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("PRAGMA disable_optimizer")  # for a few rows it takes longer than what it saves
    for table in VIEWS:
        connection.register(table, plain(recording.table(table)).rename_columns(view_schema(table).names))
    for view, rows in small_views(run_dir).items():
        connection.register(view, rows)
    tables = Tables()
    for name in sorted(defined() if names is None else names):
        answer = connection.sql(properties()[name].sql).to_arrow_table()
        pairs = zip(answer["topic"].to_pylist(), answer["partition"].to_pylist(), strict=True)
        parts: dict[str, list[int]] = {}
        for row, (topic, partition) in enumerate(pairs):
            parts.setdefault(NO_PARTITION if topic is None else f"{topic}-{partition}", []).append(row)
        for part, rows in parts.items():
            tables.add(judged_answer(run_dir, part, name, answer.take(rows)))
    tables.sort()
    return tables.findings


def by_kernels(run_dir: Path) -> list[FoundIn]:
    tables = engine.judge_runs([run_dir], "inline")
    assert (tables.damages, tables.failures) == ([], [])
    return [row for row in tables.findings if row.finding.property_name != "transactions"]


def agree(run_dir: Path, *names: str) -> Counter[str]:
    """Return what both find, by kinds; `names`: the properties to ask, none: all."""
    found = [row for row in by_kernels(run_dir) if not names or row.finding.property_name in names]
    assert by_duckdb(run_dir, frozenset(names) or None) == found
    return Counter(row.finding.kind for row in found)


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param((503, 505, 506, 511, 517, 520), id="few"),
        pytest.param(range(500, 540), id="many", marks=pytest.mark.nightly),
    ],
)
def test_duckdb_and_kernels_agree_and_the_runs_hold_anomalies_of_every_property(
    tmp_path: Path, seeds: Iterable[int]
) -> None:
    found: Counter[str] = Counter()
    for seed in seeds:
        found += agree(random_run(tmp_path / str(seed), seed))

    silent = [name for name in defined() if not found.keys() & properties()[name].kinds.keys()]
    assert silent == []


def test_an_election_that_several_records_accuse_has_one_witness_in_whatever_order_they_are_found(
    tmp_path: Path,
) -> None:
    """Which of them was found first said who had held the record."""
    assert agree(random_run(tmp_path / "7003", 7003))["unclean_election_not_allowed"] > 1


def a_random_recording(random: Random) -> None:
    with TemporaryDirectory() as folder:
        agree(random_run(Path(folder) / "run", random))


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_duckdb_and_kernels_agree_on_some_random_recordings(random: Random) -> None:
    a_random_recording(random)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_duckdb_and_kernels_agree_on_a_thousand_random_recordings(random: Random) -> None:
    a_random_recording(random)
