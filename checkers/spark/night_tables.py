"""The night's tables as Spark DataFrames (stage 5 of the pipeline): trend, power, probes and findings, over all nights so far.

Each night adds its rows to those of the nights before it, so that a table grows from night to night; what compares nights (the figure before,
how often a mutant was found, a probe's rate) is a window over them. They are written as Parquet beside the runs, for whoever
asks more than one night can answer.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tribunal.checkers.spark.session import compile_plans
from tribunal.results.signature import renewed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tribunal.results.night import Night

FOLDER: Final = "tables"
NIGHT: Final = "night string, began string, shard string, "
SCHEMAS: Final = {
    "trend": NIGHT + "figure string, value double",
    "power": NIGHT + "mutant string, scenario string, found boolean, seen_by string, seeds long, seconds double",
    "probes": NIGHT + "probe string, count long, runs long, is_cold boolean",
    "findings": NIGHT + "signature string, state string, count long, scenario string, seed long",
}
# What is said of a night's row in the light of the others. A shard is compared with itself.
QUERIES: Final = {
    "trend": """
SELECT *, value - before AS change FROM (
  SELECT *, LAG(value) OVER (PARTITION BY night, shard, figure ORDER BY began) AS before FROM night_rows)
""",
    "power": """
SELECT *, SUM(CASE WHEN found THEN 1 ELSE 0 END) OVER whole AS nights_found, COUNT(*) OVER whole AS nights
FROM night_rows WINDOW whole AS (PARTITION BY night, mutant)
""",
    "probes": """
SELECT *, CASE WHEN runs > 0 THEN 1000.0D * count / runs END AS per_thousand_runs,
       SUM(count) OVER (PARTITION BY night, probe) AS count_of_all_nights
FROM night_rows
""",
    "findings": """
SELECT *, MIN(began) OVER (PARTITION BY night, signature) AS first_seen,
       SUM(count) OVER (PARTITION BY night, signature) AS count_of_all_nights
FROM night_rows
""",
}
Row = tuple[str | int | float | None, ...]


def write(spark: "SparkSession", nights: "Sequence[Night]", out: Path, before: Path | None = None) -> dict[str, Path]:
    """Write the tables below `out`/tables; return their folders.

    nights:  tonight's, one a shard.
    before:  the folder of the last night, whose tables are continued.
    """
    compile_plans(spark, wanted=False)  # a few rows
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    written = {}
    for name, table in tables(spark, nights, before).items():
        folder = out / FOLDER / name
        # A few rows: one file, and never of the folder that they were read from.
        table.coalesce(1).write.mode("overwrite").parquet(str(folder))
        written[name] = folder
    return written


def tables(spark: "SparkSession", nights: "Sequence[Night]", before: Path | None = None) -> dict[str, "DataFrame"]:
    """Return the tables by name, one row a night and thing."""
    found = {}
    for name, schema in SCHEMAS.items():
        rows = dict.fromkeys([*_before(spark, name, before), *(row for night in nights for row in _ROWS[name](night))])
        # As Arrow the rows go to Java as they are; as tuples they would need Python workers, whose start takes longer than the tables.
        frame = spark.createDataFrame(_arrow(sorted(rows, key=lambda row: tuple(map(str, row))), schema))
        frame.createOrReplaceTempView(f"night_{name}")
        found[name] = spark.sql(QUERIES[name].replace("night_rows", f"night_{name}"))
    return found


def _arrow(rows: Sequence[Row], schema: str) -> pa.Table:
    fields = [
        pa.field(*field.split()) for field in schema.replace("boolean", "bool").replace("long", "int64").split(", ")
    ]
    columns = zip(*rows, strict=True) if rows else ([] for _ in fields)
    return pa.table(
        [pa.array(values, field.type) for field, values in zip(fields, columns, strict=True)], pa.schema(fields)
    )


def _before(spark: "SparkSession", name: str, folder: Path | None) -> list[Row]:
    """Return the rows of the nights before, without what was said of them: it is said anew."""
    path = None if folder is None else folder / FOLDER / name
    if path is None or not path.is_dir():
        return []
    columns = [field.split()[0] for field in SCHEMAS[name].split(", ")]
    rows = (row.asDict() for row in spark.read.parquet(str(path)).select(*columns).collect())
    # Nights from before kinds existed identified findings by their sentences.
    return [tuple(renewed(value) if column == "signature" else value for column, value in row.items()) for row in rows]


def _place(night: "Night") -> Row:
    return (night.name, night.began, night.shard)


def _trend(night: "Night") -> list[Row]:
    return [(*_place(night), name, value) for name, value in night.figures.items()]


def _power(night: "Night") -> list[Row]:
    return [
        (*_place(night), one.mutant, one.scenario, one.found, "; ".join(one.seen_by), one.seeds, float(one.seconds))
        for one in night.canaries
    ]


def _probes(night: "Night") -> list[Row]:
    counts = dict.fromkeys(night.cold, 0) | night.probes
    return [(*_place(night), name, count, night.runs, name in night.cold) for name, count in counts.items()]


def _findings(night: "Night") -> list[Row]:
    return [
        (*_place(night), one.signature, one.state, one.count, ", ".join(one.scenarios), min(one.seeds, default=None))
        for one in night.found
    ]


_ROWS: Final = {"trend": _trend, "power": _power, "probes": _probes, "findings": _findings}
