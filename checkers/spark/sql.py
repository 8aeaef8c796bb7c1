"""The properties as SQL: the same text runs in Spark SQL and in DuckDB, over a recording's tables and a few small views.

Besides the tables (`commits` calls its column `group` `group_id`: a reserved word) a property's SQL uses the views of
`sql_views`. What comes out is judged by the very code that judges the kernels' anomalies, partition by partition. The graphs
of transactions are not found by SQL; their edges are (`tribunal.checkers.graphs.sql_edges`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tribunal.checkers.api import ANOMALY, Found, PartitionRows, properties
from tribunal.checkers.judge.items import WholeRun
from tribunal.checkers.judge.judge import judge_item, judged_of_run
from tribunal.checkers.judge.partition import PartitionJudge
from tribunal.checkers.judge.tables import SCHEMA, Damage, Figures, TableRow, arrow_batch
from tribunal.checkers.spark.session import compile_plans
from tribunal.checkers.spark.sql_views import VIEWS, small_views, view_schema
from tribunal.results.recording import NO_PARTITION, TABLES, DamagedRecording
from tribunal.results.store import Recording

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ANSWER: Final = ("kind", "log_offset", "value", "acks", "invoke_ns", "at_ns", "leader_epoch", "other_offset")
VIEW_PARTS: Final = 4
MAY_ANSWER: Final = ("node", "process", "detail")
# Below so many rows Spark takes longer to compile its plans to Java, and that Java to machine code, than to interpret them:
# one simulated run of 20,000 rows took 145 s of the JVM's CPU compiled and 86 s interpreted.
WORTH_COMPILING_ROWS: Final = 2_000_000


def defined() -> frozenset[str]:
    """Return the properties that have a definition in SQL."""
    return frozenset(name for name, one in properties().items() if one.sql is not None)


def findings_by_sql(
    spark: "SparkSession", folders_of_runs: Sequence[str], names: frozenset[str] | None = None
) -> "DataFrame":
    """Return the findings of the SQL definitions; what concerns whole runs and has no SQL is judged as ever.

    names:  the properties to judge; None: all that have a definition.
    """
    from tribunal.checkers.judge.engine import dataframe

    run_dirs = sorted({Path(run_dir) for run_dir in folders_of_runs})
    sound = [run_dir for run_dir in run_dirs if not any(isinstance(one, Damage) for one in _looked_at(run_dir))]
    whole = dataframe(spark, [WholeRun(str(run_dir)) for run_dir in run_dirs], without=defined())
    if not sound:
        return whole
    recordings = {recording.run_id: recording for recording in (Recording.open(d, compare=False) for d in sound)}
    if len(recordings) < len(sound):
        raise DamagedRecording("", None, "two runs have the same run_id: judge them one by one")
    _make_views(spark, list(recordings.values()))
    folders = {run_id: str(recording.run_dir) for run_id, recording in recordings.items()}
    parts = [whole, *(_by_property(spark, name, folders) for name in sorted(names if names is not None else defined()))]
    return reduce(lambda left, right: left.unionByName(right), parts)


def _looked_at(run_dir: Path) -> list[TableRow]:
    return judge_item(WholeRun(str(run_dir)), without=frozenset(properties()))


def _make_views(spark: "SparkSession", recordings: Sequence[Recording]) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    compile_plans(spark, wanted=sum(_rows(recording) for recording in recordings) >= WORTH_COMPILING_ROWS)
    for name in VIEWS:
        schema = view_schema(name)
        stored = pa.schema(
            [pa.field(was.name, field.type) for was, field in zip(TABLES[name].arrow, schema, strict=True)]
        )
        paths = [str(path) for recording in recordings for part in recording.files[name].values() for path in part]
        rows = spark.read.schema(from_arrow_schema(stored)).parquet(*paths).toDF(*schema.names)
        # Every common table expression is computed anew wherever it is named: read the files once.
        rows.coalesce(VIEW_PARTS).cache().createOrReplaceTempView(name)
    small = [small_views(recording.run_dir) for recording in recordings]
    for name in small[0]:
        together = pa.concat_tables([views[name] for views in small])
        frame = spark.createDataFrame(together.to_pylist(), from_arrow_schema(together.schema))
        frame.createOrReplaceTempView(name)


def _rows(recording: Recording) -> int:
    paths = (path for name in VIEWS for part in recording.files[name].values() for path in part)
    return sum(pq.ParquetFile(path).metadata.num_rows for path in paths)


def _by_property(spark: "SparkSession", name: str, folders: Mapping[str, str]) -> "DataFrame":
    from pyspark.sql.pandas.types import from_arrow_schema

    anomalies = spark.sql(properties()[name].sql or "")
    return anomalies.groupBy("run_id", "topic", "partition").applyInArrow(
        _judge(name, folders), from_arrow_schema(SCHEMA)
    )


def _judge(name: str, folders: Mapping[str, str]) -> Callable[[pa.Table], pa.Table]:
    """Return what judges one partition's anomalies of one property, as they came out of SQL."""

    def judge(rows: pa.Table) -> pa.Table:
        first = rows.slice(0, 1).to_pylist()[0]
        place = NO_PARTITION if first["topic"] is None else f"{first['topic']}-{first['partition']}"
        answered = judged_answer(Path(folders[first["run_id"]]), place, name, rows)
        return pa.Table.from_batches([arrow_batch(answered)], schema=SCHEMA)

    return judge


def judged_answer(run_dir: Path, topic_partition: str, name: str, rows: pa.Table) -> list[TableRow]:
    """Distinguish violations from permitted losses among one partition's answer of a property's SQL."""
    chosen = properties()[name]
    found = Found(as_anomalies(rows))
    if topic_partition == NO_PARTITION:
        judged = judged_of_run(name, run_dir, found)
    elif chosen.kernel is None:
        judged = judged_of_run(name, run_dir, found, topic_partition)
    else:
        recording = Recording.open(run_dir, compare=False)
        own = PartitionRows({table: recording.table(table, topic_partition) for table in VIEWS})
        judged = PartitionJudge(recording, topic_partition, own).explained(chosen, found)
    return [one for one in judged if not isinstance(one, Figures)]


def as_anomalies(rows: pa.Table) -> pa.Table:
    """Bring a SQL answer into the shape of a kernel's anomalies."""
    columns = {*ANSWER, *(name for name in MAY_ANSWER if name in rows.column_names)}
    arrays = [
        rows[field.name].cast(field.type) if field.name in columns else pa.nulls(rows.num_rows, field.type)
        for field in ANOMALY
    ]
    return pa.Table.from_arrays(arrays, schema=ANOMALY)
