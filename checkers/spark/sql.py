"""The properties as SQL: the same text runs in Spark SQL and in DuckDB, over a recording's tables and a few small views.

Besides the tables (`commits` calls its column `group` `group_id`: a reserved word) a property's SQL uses the views of
`sql_views`. What comes out is judged by the very code that judges the kernels' anomalies, partition by partition. The graphs
of transactions are not found by SQL; their edges are (`tribunal.checkers.graphs.sql_edges`).
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from tribunal.checkers.spark.sql_steps import Steps
from tribunal.checkers.spark.sql_views import VIEWS, plain, small_views, view_schema
from tribunal.results.recording import NO_PARTITION, TABLES
from tribunal.results.store import Recording

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Keeps = Callable[["DataFrame"], "DataFrame"]
ANSWER: Final = ("kind", "log_offset", "value", "acks", "invoke_ns", "at_ns", "leader_epoch", "other_offset")
VIEW_PARTS: Final = 4
MAY_ANSWER: Final = ("node", "process", "detail")
# Below so many rows one task a query is cheapest: nothing is dealt out, and joins shuffle nothing.
WORTH_SPREADING_ROWS: Final = 200_000
# Below so many rows Spark takes longer to compile its plans to Java, and that Java to machine code, than to interpret them:
# one simulated run of 20,000 rows took 145 s of the JVM's CPU compiled and 86 s interpreted.
WORTH_COMPILING_ROWS: Final = 2_000_000
SPREAD: Final = {"spark.sql.adaptive.enabled": "true"}
IN_ONE_TASK: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}


def defined() -> frozenset[str]:
    """Return the properties that have a definition in SQL."""
    return frozenset(name for name, one in properties().items() if one.sql is not None)


def findings_by_sql(
    spark: "SparkSession", folders_of_runs: Sequence[str], names: frozenset[str] | None = None
) -> list[TableRow]:
    """Return the findings of the SQL definitions; what concerns whole runs and has no SQL is judged as ever.

    names:  the properties to judge; None: all that have a definition.
    """
    from tribunal.checkers.judge.engine import collected, dataframe

    run_dirs = sorted({Path(run_dir) for run_dir in folders_of_runs})
    sound = [run_dir for run_dir in run_dirs if not any(isinstance(one, Damage) for one in _looked_at(run_dir))]
    whole = dataframe(spark, [WholeRun(str(run_dir)) for run_dir in run_dirs], without=defined())
    recordings = _known_apart(Recording.open(run_dir, compare=False) for run_dir in sound)
    chosen = sorted(names if names is not None else defined())
    if not recordings or not chosen:
        return list(collected(whole))
    rows = sum(_rows(recording) for recording in recordings.values())
    compile_plans(spark, wanted=rows >= WORTH_COMPILING_ROWS)
    kept, settings = (_in_one_task, IN_ONE_TASK) if rows < WORTH_SPREADING_ROWS else (_spread, SPREAD)
    folders = {name: str(recording.run_dir) for name, recording in recordings.items()}
    with _set(spark, settings):
        views = _views(spark, recordings, kept)
        try:
            return list(collected(whole.unionByName(_judged(spark, views, chosen, kept, folders))))
        finally:
            for name in VIEWS:
                views[name].unpersist()


def _looked_at(run_dir: Path) -> list[TableRow]:
    return judge_item(WholeRun(str(run_dir)), without=frozenset(properties()))


def _known_apart(recordings: Iterable[Recording]) -> dict[str, Recording]:
    """Return recordings by what the views call them: the run_id, with a number where several have the same, as copies do."""
    found: dict[str, Recording] = {}
    for recording in recordings:
        name, number = recording.run_id, 1
        while name in found:
            name, number = f"{recording.run_id}#{number}", number + 1
        found[name] = recording
    return found


@contextlib.contextmanager
def _set(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is not None:
                spark.conf.set(name, was)


def _in_one_task(frame: "DataFrame") -> "DataFrame":
    # Rows of one partition stand where every join and window wants them. Computed at once: what is not travels with the tasks of all
    # that is made of it, more than Java's heap holds after some recordings.
    return frame.coalesce(1).localCheckpoint()


def _spread(frame: "DataFrame") -> "DataFrame":
    return frame.localCheckpoint()


def _views(spark: "SparkSession", recordings: Mapping[str, Recording], kept: Keeps) -> "dict[str, DataFrame]":
    """Return what the SQL is about, by name."""
    small = [
        {name: _called(rows, run_id) for name, rows in small_views(recording.run_dir).items()}
        for run_id, recording in recordings.items()
    ]
    views = {name: _frame(spark, [one[name] for one in small]) for name in small[0]}
    for name in VIEWS:
        if kept is _in_one_task:
            views[name] = _frame(spark, _tables(recordings, name))
        else:
            views[name] = _files(spark, recordings, name).coalesce(VIEW_PARTS).cache()
    return views


def _frame(spark: "SparkSession", tables: Sequence[pa.Table]) -> "DataFrame":
    # PySpark 4.3 takes an empty batch for the end: what a recording without rows is followed by would be lost.
    return _in_one_task(spark.createDataFrame(pa.concat_tables(tables).combine_chunks()))


def _tables(recordings: Mapping[str, Recording], name: str) -> list[pa.Table]:
    """Return the rows that recordings have in a table."""
    names = view_schema(name).names
    return [
        _called(plain(recording.table(name)).rename_columns(names), run_id) for run_id, recording in recordings.items()
    ]


def _called(rows: pa.Table, run_id: str) -> pa.Table:
    """Give all rows a run_id."""
    place = rows.schema.get_field_index("run_id")
    return rows.set_column(place, "run_id", pa.repeat(pa.scalar(run_id), rows.num_rows))


def _files(spark: "SparkSession", recordings: Mapping[str, Recording], name: str) -> "DataFrame":
    """Return a table of large recordings, which Spark reads from the files."""
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = view_schema(name)
    stored = pa.schema([pa.field(was.name, field.type) for was, field in zip(TABLES[name].arrow, schema, strict=True)])

    def read(several: Iterable[Recording]) -> "DataFrame":
        paths = [str(path) for recording in several for part in recording.files[name].values() for path in part]
        return spark.read.schema(from_arrow_schema(stored)).parquet(*paths).toDF(*schema.names)

    if all(run_id == recording.run_id for run_id, recording in recordings.items()):
        return read(recordings.values())
    each = (read([one]).withColumn("run_id", functions.lit(run_id)) for run_id, one in recordings.items())
    return reduce(lambda left, right: left.unionByName(right), each)


def _rows(recording: Recording) -> int:
    paths = (path for name in VIEWS for part in recording.files[name].values() for path in part)
    return sum(pq.ParquetFile(path).metadata.num_rows for path in paths)


def _judged(
    spark: "SparkSession",
    views: "Mapping[str, DataFrame]",
    names: Sequence[str],
    kept: Keeps,
    folders: Mapping[str, str],
) -> "DataFrame":
    """Return what the answers of properties come to, partition by partition."""
    from pyspark.sql.pandas.types import from_arrow_schema

    answers = Steps(properties()[name].sql or "" for name in names).frames(spark, views, kept)
    # Kept, each of them: the plan of all together would be the sum of theirs.
    shaped = (kept(_shaped(frame, name)) for name, frame in zip(names, answers, strict=True))
    return (
        reduce(lambda left, right: left.unionAll(right), shaped)
        .groupBy("property_name", "run_id", "topic", "partition")
        .applyInArrow(_judge(folders), from_arrow_schema(SCHEMA))
    )


def _shaped(answer: "DataFrame", name: str) -> "DataFrame":
    """Bring an answer into the shape of all answers: an anomaly's columns, with what it belongs to."""
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_type

    given = {*ANSWER, *(column for column in MAY_ANSWER if column in answer.columns)}
    return answer.select(
        functions.lit(name).alias("property_name"),
        "run_id",
        "topic",
        functions.col("partition").cast("int").alias("partition"),
        *(
            (functions.col(field.name) if field.name in given else functions.lit(None))
            .cast(from_arrow_type(field.type))
            .alias(field.name)
            for field in ANOMALY
        ),
    )


def _judge(folders: Mapping[str, str]) -> Callable[[pa.Table], pa.Table]:
    """Return what judges one partition's anomalies of one property, as they came out of SQL."""

    def judge(rows: pa.Table) -> pa.Table:
        first = rows.slice(0, 1).to_pylist()[0]
        place = NO_PARTITION if first["topic"] is None else f"{first['topic']}-{first['partition']}"
        answered = judged_answer(Path(folders[first["run_id"]]), place, first["property_name"], rows)
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
