"""The judging pipeline: work items, kernels, fold, findings (the Spark stages of CONTRACT.md).

Spark schedules and merges; the kernels read the files themselves (SPARK.md: eight checks on 10 M produces in
one pass of 11 CPU seconds, against more than 137 as Spark SQL). One job judges one run or a whole night.
`inline` runs the very same items in this process, without Java; `spark-sql` runs the SQL definitions instead of
the kernels and must agree.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from checkers.work import ROW, Row, judge_item, work_items

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENGINES: Final = ("spark", "inline", "spark-sql")
ITEMS: Final = pa.schema([("run_dir", pa.string()), ("topic_partition", pa.string())])
# A run without order here would depend on how Spark happened to schedule it.
ORDER: Final = ("run_dir", "severity", "property", "kind", "topic", "partition", "log_offset", "value", "at_ns")


def findings(run_dirs: Sequence[Path], engine: str, master: str | None = None) -> list[Row]:
    """Judge runs; return rows of `work.ROW` as dicts, in a fixed order: few, for kernels cap their witnesses.

    engine:  spark, inline or spark-sql.
    master:  local[n], spark://host:port or sc://host:port; None: all cores of this machine.
    """
    items = [item for run_dir in run_dirs for item in work_items(run_dir)]
    if engine == "inline":
        return in_order(row for item in items for row in judge_item(*item))
    from checkers.spark import session

    with session(master) as spark:
        return in_order(with_spark(spark, engine, items))


def with_spark(spark: "SparkSession", engine: str, items: Sequence[tuple[str, str]]) -> list[Row]:
    """Judge work items in a session that is open already."""
    if engine == "spark-sql":
        from checkers.sql import findings_by_sql

        return [row.asDict() for row in findings_by_sql(spark, items).collect()]
    return [row.asDict() for row in dataframe(spark, items).collect()]


def dataframe(spark: "SparkSession", items: Sequence[tuple[str, str]]) -> "DataFrame":
    """Return the findings of work items as a DataFrame: stages 2 to 4, nothing computed yet."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(ROW)
    if not items:
        return spark.createDataFrame([], schema)
    work = spark.createDataFrame([tuple(item) for item in items], "run_dir string, topic_partition string")
    # Many small tasks level out partitions of unlike size; a task costs milliseconds.
    tasks = min(len(items), max(2, math.isqrt(len(items)) * 4))
    return work.repartition(tasks).mapInArrow(_judge_batches, schema)


def _judge_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for item in batch.to_pylist():
            rows = judge_item(item["run_dir"], item["topic_partition"])
            yield pa.RecordBatch.from_pylist(rows, schema=ROW)


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
