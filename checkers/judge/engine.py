"""The judging pipeline: work items, kernels, fold, findings (the Spark stages of docs/contract.md).

Spark schedules and merges; the kernels read the files themselves (measured: eight checks on 10 M produces in
one pass of 11 CPU seconds, against more than 137 as Spark SQL). One job judges one run or a whole night.
`inline` runs the very same items in this process, without Java; `spark-sql` runs the SQL definitions instead of
the kernels and must agree.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tribunal.checkers.judge.hot_partitions import MARK
from tribunal.checkers.judge.judge import FOLDED, ROW, Row, folded, item_bytes, judge_item, second_look, work_items

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tribunal.checkers.spark.session import Prepared

ENGINES: Final = ("spark", "inline", "spark-sql")
# A task costs milliseconds; a megabyte of recording is judged in a tenth of a second.
TASK_BYTES: Final = 1 << 20
MOST_TASKS: Final = 4096
# A run without order here would depend on how Spark happened to schedule it.
ORDER: Final = (
    *("run_dir", "severity", "property", "kind", "topic", "partition", "log_offset", "value", "at_ns"),
    *("other_offset", "node", "detail"),
)


def findings(
    run_dirs: Sequence[Path], engine: str, master: str | None = None, prepared: "Prepared | None" = None
) -> list[Row]:
    """Judge runs; return rows of `work.ROW` as dicts, in a fixed order: few, for kernels cap their witnesses.

    engine:  spark, inline or spark-sql.
    master:  local[n], spark://host:port or sc://host:port; None: all cores of this machine.
    prepared:  a session that is starting already; it is left open.
    """
    items = [item for run_dir in run_dirs for item in work_items(run_dir)]
    if engine == "inline":
        rows, again = second_look([row for item in items for row in judge_item(*item)])
        rows += [row for item in again for row in judge_item(*item)]
        return in_order(folded(in_order(rows)))
    if prepared is not None:
        return with_spark(prepared.session(), engine, items)
    from tribunal.checkers.spark.session import session

    with session(master) as spark:
        return with_spark(spark, engine, items)


def with_spark(spark: "SparkSession", engine: str, items: Sequence[tuple[str, str]]) -> list[Row]:
    """Judge work items in a session that is open already."""
    if engine == "spark-sql":
        from tribunal.checkers.spark.sql import findings_by_sql

        spark.conf.set("spark.sql.adaptive.enabled", "true")
        whole = [(run_dir, name.partition(MARK)[0]) for run_dir, name in items]
        return in_order(row.asDict() for row in findings_by_sql(spark, list(dict.fromkeys(whole))).collect())
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    # Compiling generated code takes longer than to interpret a plan of two steps.
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    rows, again = second_look([row.asDict() for row in dataframe(spark, items).collect()])
    rows += [row.asDict() for row in dataframe(spark, again).collect()] if again else []
    return in_order(folded(in_order(rows)))


def dataframe(
    spark: "SparkSession", items: Sequence[tuple[str, str]], without: frozenset[str] = frozenset()
) -> "DataFrame":
    """Return the findings of work items as a DataFrame: stages 2 to 4, nothing computed yet."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(ROW)
    if not items:
        return spark.createDataFrame([], schema)
    dealt = _dealt(items)
    # The items travel with the code: one stage, no shuffle, one task a partition of this range.
    return spark.range(0, len(dealt), 1, len(dealt)).mapInArrow(partial(_judge_batches, dealt, without), schema)


def _dealt(items: Sequence[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Deal items out to tasks, the largest first: a few tasks a core level out what sizes do not tell."""
    sizes = [(item_bytes(*item), item) for item in items]
    wanted = -(-sum(size for size, _ in sizes) // TASK_BYTES)
    tasks: list[list[tuple[str, str]]] = [[] for _ in range(max(1, min(len(items), wanted, MOST_TASKS)))]
    for place, (_, item) in enumerate(sorted(sizes, reverse=True)):
        tasks[place % len(tasks)].append(item)
    return tasks


def _judge_batches(
    tasks: list[list[tuple[str, str]]], without: frozenset[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for task in batch.column(0).to_pylist():
            for item in tasks[task]:
                yield pa.RecordBatch.from_pylist(judge_item(*item, without=without), schema=ROW)


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Sort findings by what they are about; the unknown comes first."""
    return sorted(rows, key=_place)


def _place(row: Row) -> tuple[Any, ...]:
    return tuple((row[name] is not None, row[name] if row[name] is not None else 0) for name in ORDER)


def figures(rows: Iterable[Row]) -> dict[str, int]:
    """Fold: add the partitions' figures up."""
    total: dict[str, int] = {}
    for row in rows:
        if row["kind"] == "figures":
            for name, count in json.loads(row["detail"]).items():
                total[name] = total.get(name, 0) + count
    return dict(sorted(total.items()))


def folded_figures(rows: Iterable[Row]) -> dict[str, Any]:
    """Return what the folds have to say for the report, by property."""
    return {row["property"]: json.loads(row["detail"]) for row in rows if row["kind"] == FOLDED}
