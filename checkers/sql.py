"""The properties as SQL: views over a recording's tables, in Spark SQL and in DuckDB.

Besides the recording's tables a property's SQL may use three small views: `can_lead` (run_id, topic, partition, node:
final ISR and ELR), `committed` (run_id, value: sent in a committed transaction) and `complete_runs` (run_id). The
anomalies are then judged by the very code that judges the kernels' anomalies, partition by partition.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from checkers.api import ANOMALY, Found, PartitionRows, properties
from checkers.work import ROW, PartitionJudge, Row, committed_values, history_of, judge_item
from results.recording import NO_PARTITION, TABLES, DamagedRecording
from results.store import Recording, partition_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CAN_LEAD: Final = pa.schema(
    [("run_id", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("node", pa.int32())]
)
COMMITTED: Final = pa.schema([("run_id", pa.string()), ("value", pa.int64())])
COMPLETE_RUNS: Final = pa.schema([("run_id", pa.string())])
ANSWER: Final = ("log_offset", "value", "acks", "invoke_ns", "at_ns", "leader_epoch", "other_offset")
VIEWS: Final = ("sends", "polls", "reads", "watermarks", "logs")


def small_views(run_dir: Path) -> dict[str, pa.Table]:
    """Return the views that need more than SQL to make, for one run."""
    recording = Recording.open(run_dir, compare=False)
    run = recording.run_id
    history = history_of(recording)
    leaders = []
    for name in recording.partitions(*VIEWS):
        topic, partition = partition_order(name)
        can_lead = history.timeline(topic, partition).can_lead
        leaders += [{"run_id": run, "topic": topic, "partition": partition, "node": node} for node in can_lead]
    committed = [{"run_id": run, "value": value} for value in committed_values(recording.table("txns"))]
    complete = [{"run_id": run}] if recording.complete else []
    return {
        "can_lead": pa.Table.from_pylist(leaders, schema=CAN_LEAD),
        "committed": pa.Table.from_pylist(committed, schema=COMMITTED),
        "complete_runs": pa.Table.from_pylist(complete, schema=COMPLETE_RUNS),
    }


def findings_by_sql(spark: "SparkSession", items: Sequence[tuple[str, str]]) -> "DataFrame":
    """Return the findings of the SQL definitions; what concerns whole runs and has no SQL is judged as ever."""
    from checkers.engine import dataframe

    run_dirs = sorted({Path(run_dir) for run_dir, _ in items})
    sound = [run_dir for run_dir in run_dirs if not any(row["kind"] == "damaged" for row in _looked_at(run_dir))]
    whole = dataframe(spark, [(str(run_dir), NO_PARTITION) for run_dir in run_dirs])
    if not sound:
        return whole
    recordings = {recording.run_id: recording for recording in (Recording.open(d, compare=False) for d in sound)}
    if len(recordings) < len(sound):
        raise DamagedRecording("", None, "two runs have the same run_id: judge them one by one")
    _make_views(spark, list(recordings.values()))
    folders = {run_id: str(recording.run_dir) for run_id, recording in recordings.items()}
    names = [name for name, module in properties().items() if hasattr(module, "kernel")]
    parts = [whole, *(_by_property(spark, name, folders) for name in names)]
    return reduce(lambda left, right: left.unionByName(right), parts)


def _looked_at(run_dir: Path) -> list[Row]:
    return judge_item(str(run_dir), NO_PARTITION)


def _make_views(spark: "SparkSession", recordings: Sequence[Recording]) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    for name in VIEWS:
        plain = pa.schema([_plain(field) for field in TABLES[name].arrow])
        paths = [str(path) for recording in recordings for part in recording.files[name].values() for path in part]
        rows = spark.read.schema(from_arrow_schema(plain)).parquet(*paths)
        # Every common table expression is computed anew wherever it is named: read the files once.
        rows.coalesce(spark.sparkContext.defaultParallelism).cache().createOrReplaceTempView(name)
    small = [small_views(recording.run_dir) for recording in recordings]
    for name in small[0]:
        together = pa.concat_tables([views[name] for views in small])
        frame = spark.createDataFrame(together.to_pylist(), from_arrow_schema(together.schema))
        frame.createOrReplaceTempView(name)


def _plain(field: pa.Field) -> pa.Field:
    return pa.field(field.name, pa.string()) if pa.types.is_dictionary(field.type) else field


def _by_property(spark: "SparkSession", name: str, folders: Mapping[str, str]) -> "DataFrame":
    from pyspark.sql.pandas.types import from_arrow_schema

    anomalies = spark.sql(properties()[name].SQL)
    return anomalies.groupBy("run_id", "topic", "partition").applyInArrow(_judge(name, folders), from_arrow_schema(ROW))


def _judge(name: str, folders: Mapping[str, str]) -> Callable[[pa.Table], pa.Table]:
    """Return what judges one partition's anomalies of one property, as they came out of SQL."""

    def judge(rows: pa.Table) -> pa.Table:
        first = rows.slice(0, 1).to_pylist()[0]
        answered = judged_answer(Path(folders[first["run_id"]]), f"{first['topic']}-{first['partition']}", name, rows)
        return pa.Table.from_pylist(answered, schema=ROW)

    return judge


def judged_answer(run_dir: Path, topic_partition: str, name: str, rows: pa.Table) -> list[Row]:
    """Tell violations from permitted losses among one partition's answer of a property's SQL."""
    module = properties()[name]
    recording = Recording.open(run_dir, compare=False)
    own = PartitionRows({table: recording.table(table, topic_partition) for table in VIEWS})
    judge = PartitionJudge(recording, topic_partition, own)
    topic, partition = partition_order(topic_partition)
    place = dict.fromkeys(ROW.names) | {"run_dir": str(run_dir), "topic": topic, "partition": partition}
    found = Found(as_anomalies(rows))
    judged = judge.explained(module, found)
    return [place | {"property": name} | row for row in judged if row["kind"] != "figures"]


def as_anomalies(rows: pa.Table) -> pa.Table:
    """Bring a SQL answer into the shape of a kernel's anomalies."""
    columns = {"kind", *ANSWER}
    arrays = [
        rows[field.name].cast(field.type) if field.name in columns else pa.nulls(rows.num_rows, field.type)
        for field in ANOMALY
    ]
    return pa.Table.from_arrays(arrays, schema=ANOMALY)
