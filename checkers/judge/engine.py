"""The judging pipeline: work items, kernels, fold, findings (the Spark stages of docs/contract.md).

Spark schedules and merges; the kernels read the files themselves (measured: eight checks on 10 M produces in
one pass of 11 CPU seconds, against more than 137 as Spark SQL). One job judges one run or a whole night.
`inline` runs the very same items in this process, without Java; `spark-sql` runs the SQL definitions instead of
the kernels and must agree.
"""

import gc
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from tribunal.checkers.api import properties
from tribunal.checkers.judge.items import ImportedHistory, WorkItem, item_bytes, work_items
from tribunal.checkers.judge.judge import Histories, fold, judge_item, second_look
from tribunal.checkers.judge.stored import reason, through_mirrors
from tribunal.checkers.judge.tables import SCHEMA, TableRow, Tables, arrow_batch, read_row
from tribunal.results.plugins import BadPlugin
from tribunal.results.storage import NoStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tribunal.checkers.spark.session import Prepared

ENGINES: Final = ("spark", "inline", "spark-sql")
# A task costs milliseconds; a megabyte of recording is judged in a tenth of a second.
TASK_BYTES: Final = 1 << 20
MOST_TASKS: Final = 4096
Urls = Mapping[str, str]  # of runs in storage, by the folders that mirror them here
NOWHERE: Final[Urls] = MappingProxyType({})


def judge_runs(
    run_dirs: Sequence[Path],
    engine: str,
    master: str | None = None,
    prepared: "Prepared | None" = None,
    stored: Urls = NOWHERE,
) -> Tables:
    """Judge runs; return tables in a fixed order: few rows, for kernels cap their witnesses.

    engine:  spark, inline or spark-sql.
    master:  local[n], spark://host:port or sc://host:port; None: all cores of this machine.
    prepared:  a session that is starting already; it is left open.
    stored:    runs that Spark's tasks read from storage.
    Raises BadPlugin when a user's own property cannot be used, NoStorage when a task cannot read from storage.
    """
    properties()  # a user's own that cannot be used is refused here; a worker of Spark's would die of it
    items = [item for run_dir in run_dirs for item in work_items(run_dir)]
    if engine == "inline":
        return judge_inline(items)
    if prepared is not None:
        return judge_with_spark(prepared.session(), engine, items, stored)
    from tribunal.checkers.spark.session import session

    with session(master) as spark:
        return judge_with_spark(spark, engine, items, stored)


def judge_inline(items: Sequence[WorkItem]) -> Tables:
    """Judge work items in this process."""
    tables = Tables()
    histories = Histories()
    tables.add(answer for item in items for answer in judge_item(item, histories=histories))
    while again := second_look(tables):
        tables.add(answer for item in again for answer in judge_item(item))
    return _finished(tables)


def judge_with_spark(spark: "SparkSession", engine: str, items: Sequence[WorkItem], stored: Urls = NOWHERE) -> Tables:
    """Judge work items in a session that is open already."""
    from tribunal.checkers.spark.session import compile_plans

    tables = Tables()
    if engine == "spark-sql":
        from tribunal.checkers.spark.sql import findings_by_sql

        imported = [item for item in items if isinstance(item, ImportedHistory)]  # no SQL is about these
        recorded = dict.fromkeys(item.run_dir for item in items if not isinstance(item, ImportedHistory))
        if imported:
            tables.add(collected(dataframe(spark, imported)))
        if recorded:
            tables.add(findings_by_sql(spark, list(recorded)))
        tables.sort()
        return tables
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    # A partition a row, those in the plan and those that are too many for it.
    spark.conf.set("spark.sql.leafNodeDefaultParallelism", str(MOST_TASKS))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    compile_plans(spark, wanted=False)  # a plan of two steps
    tables.add(collected(dataframe(spark, items, stored=stored)))
    while again := second_look(tables):
        tables.add(collected(dataframe(spark, again, stored=stored)))
    return _finished(tables)


def _finished(tables: Tables) -> Tables:
    tables.damages = list(dict.fromkeys(tables.damages))  # of a value that was sent twice each window's task says it
    tables.sort()
    fold(tables)
    tables.sort()
    return tables


def collected(answers: "DataFrame") -> Iterator[TableRow]:
    """Compute a DataFrame of answers. Raises NoStorage when a task could not read from storage, BadPlugin when it lacks a property."""
    try:
        rows = answers.collect()
    except Exception as problem:
        for kind in (NoStorage, BadPlugin):
            said = reason(problem, kind)
            if said is not None:
                raise kind(said) from None
        raise
    return (read_row(row.asDict(recursive=True)) for row in rows)


def dataframe(
    spark: "SparkSession", items: Sequence[WorkItem], without: frozenset[str] = frozenset(), stored: Urls = NOWHERE
) -> "DataFrame":
    """Return the answers of work items as a DataFrame, a column a table: stages 2 to 4, nothing computed yet."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(SCHEMA)
    if not items:
        return spark.createDataFrame([], schema)
    dealt_out = tasks_of(items)
    # One stage, no shuffle: a task gets its own items and no others.
    return spark.createDataFrame(rows_of(dealt_out)).mapInArrow(
        partial(judge_batches, without, dict(stored), wanted=tuple(properties())), schema
    )


def tasks_of(items: Sequence[WorkItem]) -> list[bytes]:
    """Return the tasks that items are dealt out to, as they travel."""
    return [msgspec.msgpack.encode(task) for task in _dealt(items)]


def rows_of(tasks: Sequence[bytes]) -> pa.Table:
    """Return what `judge_batches` is given: a row a task."""
    return pa.table({"task": pa.array(tasks, pa.binary())})


def _dealt(items: Sequence[WorkItem]) -> list[list[WorkItem]]:
    """Deal items out to tasks, the largest first: several tasks per core even out what sizes do not predict."""
    sizes = [item_bytes(item) for item in items]
    wanted = -(-sum(sizes) // TASK_BYTES)
    tasks: list[list[WorkItem]] = [[] for _ in range(max(1, min(len(items), wanted, MOST_TASKS)))]
    largest_first = sorted(zip(sizes, items, strict=True), key=lambda sized: -sized[0])
    for place, (_, item) in enumerate(largest_first):
        tasks[place % len(tasks)].append(item)
    return tasks


@cache
def _keep_modules() -> None:
    """Let no search for garbage look at what has been imported: Spark's workers do one after every task, of 60 ms for these modules."""
    gc.freeze()


def judge_batches(
    without: frozenset[str],
    stored: dict[str, str],
    batches: Iterable[pa.RecordBatch],
    *,
    wanted: Iterable[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Judge the tasks in these batches: what Spark's workers do.

    batches:  a row a task.
    wanted:   properties that are known where the judging was asked for. Raises BadPlugin where one is not known here: nobody would
             judge it, and the run would pass.
    """
    if lacking := sorted(set(wanted) - set(properties())):
        raise BadPlugin(
            f"{socket.gethostname()}: there is no property {lacking[0]!r}: install the package that brings it there"
        )
    _keep_modules()
    decoder, histories = msgspec.msgpack.Decoder(list[WorkItem]), Histories()
    for batch in batches:
        for task in batch.column(0).to_pylist():
            with through_mirrors(partial(judge_item, without=without, histories=histories), stored) as judge:
                for item in decoder.decode(task):
                    yield arrow_batch(judge(item))
