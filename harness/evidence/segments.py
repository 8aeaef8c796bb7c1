"""Whether a reader may go by what stands beside a recording's rows: the folder that they lie in, and what their files say of them.

The judge takes the rows of a partition from its folder, and goes by a file's statistics where they say that rows need not be read; so does
Spark. A recorder writes both from the rows. Who forges can say there what the rows do not, and every hash of rows stays as it was.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tribunal.results.recording import TABLES
from tribunal.results.store import Recording

FOLDER: Final = "recording"


def unknown_segments(recording: Recording) -> Iterator[str]:
    """Yield the files among a recording's that are no part of it: nobody reads them."""
    known = {path for parts in recording.files.values() for paths in parts.values() for path in paths}
    for path in sorted((recording.run_dir / FOLDER).rglob("*")):
        if path.is_file() and path not in known:
            yield path.relative_to(recording.run_dir).as_posix()


def false_segments(recording: Recording) -> Iterator[str]:
    """Yield where a segment lies in another folder than its rows belong to, or says of them what is not so."""
    for table, parts in recording.files.items():
        for topic_partition, paths in parts.items():
            for path in paths:
                place = path.relative_to(recording.run_dir).as_posix()
                try:
                    yield from (f"{place}: {words}" for words in _false(table, topic_partition, path))
                except (OSError, pa.ArrowException) as problem:
                    yield f"{place}: cannot be read: {problem}"


def _false(table: str, topic_partition: str, path: Path) -> Iterator[str]:
    with pq.ParquetFile(path) as file:
        for number in range(file.metadata.num_row_groups):
            rows = file.read_row_group(number, use_threads=False)
            if TABLES[table].by_partition and rows.num_rows:
                yield from _elsewhere(rows, topic_partition)
            yield from _misstated(rows, file.metadata.row_group(number))


def _elsewhere(rows: pa.Table, topic_partition: str) -> Iterator[str]:
    topics, numbers = (rows[name].unique().to_pylist() for name in ("topic", "partition"))
    found = sorted({f"{topic}-{number}" for topic in topics for number in numbers} - {topic_partition})
    if found:
        yield f"rows of {found[0]}, in the folder of {topic_partition}"


def _misstated(rows: pa.Table, group: pq.RowGroupMetaData) -> Iterator[str]:
    for leaf in range(group.num_columns):
        column = group.column(leaf)
        name = column.path_in_schema
        if column.has_column_index or column.bloom_filter_offset is not None:
            yield f"column {name}: an index, which no recorder writes"
        # (of a column of lists statistics speak of what stands in them, and nobody goes by them)
        if column.statistics is not None and rows.column_names.count(name) == 1:
            yield from (f"column {name}: {words}" for words in _other(rows[name], column.statistics))


def _other(values: pa.ChunkedArray, stated: pq.Statistics) -> Iterator[str]:
    if stated.has_null_count and stated.null_count != values.null_count:
        yield f"{stated.null_count} nulls stated, {values.null_count} found"
    if stated.has_min_max:
        plain = values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
        found = pc.min_max(plain).as_py()
        # (of words Arrow states those of a dictionary, some of which these rows may not use)
        if found["min"] is not None and not stated.min <= found["min"] <= found["max"] <= stated.max:
            yield f"{stated.min!r} to {stated.max!r} stated, {found['min']!r} to {found['max']!r} found"
