"""Spark, Spark SQL and the inline engine agree; one small session for the whole module."""

import gc
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.checkers.random_runs import random_run
from tests.checkers.test_dealt_transactions import (
    KINDS_OF_MESSAGES,
    Log,
    OneAtATime,
    deal_all,
    logged,
    planted,
    planted_in,
)
from tests.checkers.test_dealt_transactions import recorded as recorded_lists
from tests.checkers.test_sql_edges import by_sql, txns
from tribunal.checkers.graphs.sql_edges import LISTS, MESSAGES
from tribunal.checkers.judge import engine
from tribunal.checkers.judge.items import work_items
from tribunal.checkers.judge.tables import FoundIn, Tables
from tribunal.checkers.spark import sql
from tribunal.checkers.spark.session import session
from tribunal.checkers.spark.sql import defined, findings_by_sql
from tribunal.checkers.spark.sql_views import txn_steps
from tribunal.harness.cli.main import exit_code

pytestmark = pytest.mark.spark
THOUSAND = 1_000
MODULES = 50_000  # objects of what a worker imports


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session("local[2]") as spark:
        yield spark


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [random_run(folder / f"run-{seed}", seed) for seed in range(10)]


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Recordings that hypothesis draws: small ones first, then whatever found something before."""
    folder, made = tmp_path_factory.mktemp("thousand"), []

    @settings(max_examples=THOUSAND, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=False))
    def draw(random: Random) -> None:
        made.append(random_run(folder / f"run-{len(made)}", random))

    draw()
    return made


def test_one_spark_job_judges_many_runs_like_the_inline_engine(spark: Any, runs: list[Path]) -> None:
    items = [item for run in runs for item in work_items(run)]

    tables = engine.judge_with_spark(spark, "spark", items)

    assert tables == engine.judge_runs(runs, "inline")
    assert len({row.place.run_dir for row in tables.figures}) == len(runs)


@pytest.mark.parametrize("kind", ["", "stale", "twice"])
def test_spark_judges_lists_in_parts_like_one_task(
    spark: Any, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(1)
    run_dir = recorded_lists(tmp_path / "run", planted(OneAtATime(random, 60).rows, kind, random))
    at_once = engine.judge_runs([run_dir], "inline")
    deal_all(monkeypatch, 100)

    tables = engine.judge_with_spark(spark, "spark", work_items(run_dir))

    assert tables == at_once
    assert bool(tables.findings) == bool(kind)


@pytest.mark.parametrize("kind", ["", "aborted", "two at one", "elsewhere", "before"])
def test_spark_judges_messages_in_parts_like_one_task(
    spark: Any, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(1)
    run_dir = logged(tmp_path / "run", planted_in(Log(random, 60).rows, kind, random))
    at_once = engine.judge_runs([run_dir], "inline")
    deal_all(monkeypatch, 40)

    tables = engine.judge_with_spark(spark, "spark", work_items(run_dir))

    assert tables == at_once
    assert not kind or KINDS_OF_MESSAGES[kind] in {row.finding.kind for row in tables.findings}


@pytest.mark.parametrize("bytes_in_plans", ["48MB", "0"], ids=["of a plan", "too many for a plan"])
def test_every_task_gets_its_own_items_and_no_others(spark: Any, runs: list[Path], bytes_in_plans: str) -> None:
    engine.judge_with_spark(spark, "spark", work_items(runs[0]))  # it sets what its jobs need
    tasks = [task for run in runs for task in engine.tasks_of(work_items(run))]
    spark.conf.set("spark.sql.execution.arrow.localRelationThreshold", bytes_in_plans)

    frame = spark.createDataFrame(engine.rows_of(tasks))

    assert len(tasks) > 1
    assert frame.rdd.glom().map(lambda rows: [bytes(row.task) for row in rows]).collect() == [[task] for task in tasks]


def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from (pa.RecordBatch.from_pydict({"objects": [gc.get_freeze_count()]}) for _ in batches)


def test_a_worker_looks_for_no_garbage_among_what_all_workers_have_imported(spark: Any) -> None:
    (row,) = spark.range(1).repartition(1).mapInArrow(frozen, "objects long").collect()

    assert row.objects > MODULES


def by_spark_sql(spark: Any, runs: list[Path], names: frozenset[str]) -> list[FoundIn]:
    tables = Tables()
    tables.add(findings_by_sql(spark, [str(run) for run in runs], names))
    tables.sort()
    return of_properties(tables, names)


def inline(runs: list[Path], names: frozenset[str]) -> list[FoundIn]:
    return of_properties(engine.judge_runs(runs, "inline"), names)


def of_properties(tables: Tables, names: frozenset[str]) -> list[FoundIn]:
    assert (tables.damages, tables.failures) == ([], [])
    return [row for row in tables.findings if row.finding.property_name in names]


def test_sql_definitions_in_spark_find_the_same(spark: Any, runs: list[Path]) -> None:
    names = frozenset({"exactly_once", "watermarks", "stale_epochs"})

    assert by_spark_sql(spark, runs, names) == inline(runs, names) != []


@pytest.mark.parametrize("rows", [pytest.param(10**9, id="in one task"), pytest.param(0, id="spread")])
def test_spark_sql_judges_copies_of_one_run_together(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """They have one run_id: a finding of one must not become another's. All properties see what their text sees."""
    monkeypatch.setattr(sql, "WORTH_SPREADING_ROWS", rows)
    names = frozenset({"stale_epochs", "watermarks"})
    copies = [random_run(tmp_path / str(place) / "run", seed) for place, seed in enumerate((5, 3, 6, 5))]

    found = by_spark_sql(spark, copies, names)

    assert found == inline(copies, names)
    assert {row.run_dir for row in found} == {str(copy) for copy in copies}
    assert spark.catalog.listTables() == []


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_spark_spark_sql_and_inline_agree_on_a_thousand_random_recordings(spark: Any, thousand: list[Path]) -> None:
    """DuckDB judges a thousand of its own, in test_sql: its SQL is the same text."""
    items = [item for run in thousand for item in work_items(run)]
    expected = engine.judge_runs(thousand, "inline")

    assert engine.judge_with_spark(spark, "spark", items) == expected
    by_sql_only = of_properties(expected, defined())
    assert by_spark_sql(spark, thousand, defined()) == by_sql_only
    assert len({row.finding.property_name for row in by_sql_only}) == len(defined())


def test_an_imported_history_which_no_sql_is_about_is_judged_as_ever(spark: Any, tmp_path: Path) -> None:
    history = tmp_path / "history"
    history.write_text(
        '{"process": 0, "type": "invoke", "f": "txn", "mops": [["append", 1, 1]]}\n'
        '{"process": 0, "type": "fail", "f": "txn", "mops": [["append", 1, 1]]}\n'
        '{"process": 1, "type": "invoke", "f": "txn", "mops": [["r", 1, null]]}\n'
        '{"process": 1, "type": "ok", "f": "txn", "mops": [["r", 1, [1]]]}\n'
    )
    imported = tmp_path / "imported"
    assert exit_code(["import", str(history), "--format", "corpus", "-o", str(imported)]) == 0

    tables = engine.judge_with_spark(spark, "spark-sql", work_items(imported))

    assert tables == engine.judge_runs([imported], "inline")
    assert [row.finding.kind for row in tables.findings] == ["G1a"]


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("text", [pytest.param(LISTS, id="lists"), pytest.param(MESSAGES, id="messages")])
def test_spark_and_duckdb_draw_the_same_edges(spark: Any, text: str) -> None:
    table = txns(
        ("committed", [("append", 0, None, 1), ("send", 0, 0, 10)]),
        ("info", [("append", 0, None, 2), ("send", 0, 1, 11)]),
        ("committed", [("read", 0, None, 1), ("poll", 0, 0, 10), ("poll", 0, 1, 11)]),
        ("committed", [("read", 1, None, None), ("append", 1, None, 3), ("poll", 0, 0, 10)]),
    )
    steps = txn_steps(table)
    run_id = pa.array(["r"] * steps.num_rows)
    spark.createDataFrame(steps.append_column("run_id", run_id)).createOrReplaceTempView("txn_steps")

    assert {(row.source, row.target, row.kind) for row in spark.sql(text).collect()} == by_sql(text, table) != set()


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(defined()))
def test_every_sql_definition_in_spark_finds_the_same(spark: Any, runs: list[Path], name: str) -> None:
    names = frozenset({name})

    assert by_spark_sql(spark, runs, names) == inline(runs, names)
