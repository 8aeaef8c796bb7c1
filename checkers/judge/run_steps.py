"""The steps of a run's transactions, as its partitions ask for them one after the other: each for its own.

All of them stand in one table, whose row groups have steps of any partition. Of few steps the table is read once for all partitions that one
job judges, and sorted by them. Of many, each partition reads it once, a row group at a time, and keeps its own; so no task holds more
than that, but what a partition reads grows with the run.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.api import STEPS, UNKNOWN, Array, Columns, distinct, is_among
from tribunal.checkers.judge.hot_partitions import groups, read_groups
from tribunal.checkers.judge.read_steps import TABLE, operations_in, step_count
from tribunal.checkers.judge.steps import COMMITTED, KINDS, OUTCOMES, WRITES, codes, committed_values, flat
from tribunal.results.store import Recording, read_files, row_count

AT_ONCE_BYTES: Final = 4 << 20  # of the table's files: of larger ones nobody looks at footers
AT_ONCE_TRANSACTIONS: Final = 1 << 19
AT_ONCE_STEPS: Final = 1 << 22  # where these differ by little a byte holds many
MADE: Final = ["process", "begin_ns", "end_ns", "outcome", "timeout_ms"]
Place = tuple[str, int]


class RunSteps:
    """The steps of one run's transactions."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._paths = [path for own in recording.files[TABLE].values() for path in own]

    @cached_property
    def made(self) -> pa.Table:
        """All transactions without their steps: columns MADE."""
        return self._recording.table(TABLE).select(MADE) if self._few else read_files(TABLE, self._paths, MADE)

    def in_partition(self, topic: str, partition: int) -> Columns:
        """Return the steps in one partition: STEPS' columns."""
        return self.of_sends(topic, partition, np.zeros(0, np.int64))[0]

    def committed(self, values: Array) -> Array:
        """Return which of these values committed transactions sent or appended, distinct and ascending."""
        return self.of_sends("", UNKNOWN, values)[1]

    def of_sends(self, topic: str, partition: int, values: Array) -> tuple[Columns, Array]:
        """Return the steps in one partition, and which of these values committed transactions sent or appended anywhere: in one pass."""
        wanted = distinct(values)
        if self._few is not None:
            committed = np.asarray(wanted[is_among(wanted, self._few.committed)])
            return Columns("steps", self._few.in_partition((topic, partition))), committed
        steps, found = [STEPS.empty_table()], np.zeros(wanted.size, bool)
        for first, rows, operations in self._in_pieces():
            own = _of_partition(pc.list_flatten(operations), topic, partition)
            if own.size:
                steps.append(_steps(rows, first, operations, own))
            if wanted.size:
                found[_committed(rows, operations, wanted)] = True
        return Columns("steps", pa.concat_tables(steps)), np.asarray(wanted[found])

    def sent(self) -> Array:
        """Return the values that transactions sent or appended, however they ended, distinct and ascending."""
        found = [np.zeros(0, np.int64)]
        for _, _, operations in self._in_pieces():
            steps = pc.list_flatten(operations)
            kind = codes(pc.struct_field(steps, "kind"), KINDS)
            value = pc.struct_field(steps, "value").filter(pc.is_in(kind, value_set=pa.array(WRITES)))
            found.append(distinct(pc.drop_null(value).to_numpy()))
        return distinct(np.concatenate(found))

    def _in_pieces(self) -> Iterator[tuple[int, pa.Table, pa.ListArray]]:
        """Yield columns MADE of the table a row group at a time, each with its first row and its steps."""
        first = 0
        for group in groups(TABLE, self._paths, by="begin_ns", only_footers=True):
            for rows in read_groups(TABLE, [group], MADE) if group.rows else ():
                yield first, rows, operations_in(group)
            first += group.rows

    @cached_property
    def _few(self) -> "_Few | None":
        if sum(path.stat().st_size for path in self._paths) > AT_ONCE_BYTES:
            return None
        if row_count(TABLE, self._paths) > AT_ONCE_TRANSACTIONS or step_count(self._paths) > AT_ONCE_STEPS:
            return None
        return _Few(self._recording.table(TABLE))


class _Few:
    """All steps, sorted by partition."""

    def __init__(self, txns: pa.Table) -> None:
        self.committed = committed_values(txns)
        self._topics: dict[str, int] = {}
        self._places, self._steps = np.zeros(0, np.int64), STEPS.empty_table()
        if txns.num_rows:
            self._sort(flat(txns))

    def _sort(self, steps: pa.Table) -> None:
        topics = steps["topic"].combine_chunks().dictionary_encode()
        topics = topics.combine_chunks() if isinstance(topics, pa.ChunkedArray) else topics
        self._topics = {topic: number for number, topic in enumerate(topics.dictionary.to_pylist())}
        partition = steps["partition"].cast(pa.int64()).fill_null(UNKNOWN).to_numpy()
        place = (topics.indices.fill_null(UNKNOWN).to_numpy(zero_copy_only=False).astype(np.int64) << 32) + partition
        order = np.argsort(place, kind="stable")
        self._places = place[order]
        self._steps = steps.select(STEPS.names).take(pa.array(order))

    def in_partition(self, place: Place) -> pa.Table:
        topic, partition = place
        if topic not in self._topics:
            return STEPS.empty_table()
        number = (self._topics[topic] << 32) + partition
        first, end = (int(np.searchsorted(self._places, number, side)) for side in ("left", "right"))
        return self._steps.slice(first, end - first)


def _committed(rows: pa.Table, operations: pa.ListArray, wanted: Array) -> Array:
    """Return the places among `wanted`, which ascend, of what committed transactions of a row group sent or appended."""
    steps = pc.list_flatten(operations)
    value = pc.struct_field(steps, "value").fill_null(UNKNOWN).to_numpy()
    place = np.minimum(np.searchsorted(wanted, value), wanted.size - 1)
    own = np.flatnonzero(wanted[place] == value)
    kind = codes(pc.struct_field(steps, "kind").take(pa.array(own)), KINDS).fill_null(UNKNOWN).to_numpy()
    outcome = codes(rows["outcome"], OUTCOMES).to_numpy()[pc.list_parent_indices(operations).to_numpy()[own]]
    return np.asarray(place[own[np.isin(kind, WRITES) & (outcome == COMMITTED)]])


def _of_partition(steps: pa.StructArray, topic: str, partition: int) -> Array:
    """Return which steps are in a partition."""
    own = np.flatnonzero(pc.struct_field(steps, "partition").fill_null(UNKNOWN).to_numpy() == partition)
    topics = pc.struct_field(steps, "topic")
    is_topic = pc.equal(topics.dictionary, topic).take(topics.indices.take(pa.array(own)))
    return np.asarray(own[is_topic.fill_null(False).to_numpy(zero_copy_only=False)])  # noqa: FBT003 - pyarrow's signature


def _steps(rows: pa.Table, first: int, operations: pa.ListArray, own: Array) -> pa.Table:
    """Return some steps of a row group as STEPS' columns; `rows`: columns MADE of it, `first`: its first row."""
    counts = np.bincount(pc.list_parent_indices(operations).to_numpy()[own], minlength=len(operations))
    ends = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    chosen = pa.ListArray.from_arrays(ends, pc.list_flatten(operations).take(pa.array(own)))
    steps = flat(rows.append_column("operations", chosen)).select(STEPS.names)
    return steps.set_column(0, STEPS.field("txn"), pc.add(steps["txn"], first)).cast(STEPS)
