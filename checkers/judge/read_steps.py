"""Steps of transactions as they are read from a row group: only the fields that are asked for, words as numbers of a few words."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tribunal.checkers.judge.hot_partitions import Group
from tribunal.results.mirror import footers_here
from tribunal.results.store import readable

TABLE: Final = "txns"
OPERATIONS: Final = "operations"
WORDS: Final = ("kind", "topic")  # to read a text a step takes several times as long
FIELDS: Final = (*WORDS, "partition", "log_offset", "value")


def operations_in(group: Group, names: Sequence[str] = FIELDS) -> pa.ListArray:
    """Return some fields of a row group's steps, a list a transaction; WORDS are dictionaries."""
    with readable(TABLE, Path(group.path)) as (file, _):
        own = file.metadata.row_group(group.number)
        columns = {name: own.column(leaf(own, name)).path_in_schema for name in names}
        words = [column for name, column in columns.items() if name in WORDS]
        with pq.ParquetFile(group.path, metadata=file.metadata, read_dictionary=words) as again:
            return again.read_row_group(group.number, columns=list(columns.values()))[OPERATIONS].combine_chunks()


def step_count(paths: Sequence[Path]) -> int:
    """Return how many steps some files hold, by their footers; a transaction without any counts as one."""
    count = 0
    footers_here(*paths)
    for path in paths:
        with readable(TABLE, path, only_footer=True) as (file, _):
            groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
            count += sum(own.column(leaf(own, "partition")).num_values for own in groups)
    return count


def leaf(group: pq.RowGroupMetaData, name: str) -> int:
    """Return which column of a row group holds a field of the steps: lists name what they hold as their writer liked."""
    paths = ((place, group.column(place).path_in_schema.split(".")) for place in range(group.num_columns))
    return next(place for place, path in paths if path[0] == OPERATIONS and path[-1] == name)
