"""A hot partition as kernels in ranges see it: range after range of offsets, or row group after row group; little of it is held at once."""

from collections.abc import Iterator, Sequence

import numpy as np

from tribunal.checkers.api import PartitionRows
from tribunal.checkers.judge import hot_partitions
from tribunal.checkers.judge.hot_partitions import BIG, Group, Range, read_groups, rows_in
from tribunal.results.store import Recording


class RowsInRange:
    """The rows of one range of offsets, read when they are asked for."""

    def __init__(self, own: Range, beside: dict[str, list[Group]]) -> None:
        """`beside`: the row groups that may hold any of it, by table."""
        self._range = own
        self._beside = beside

    def rows(self, name: str, wanted: Sequence[str]) -> PartitionRows:
        """Return these columns of the rows of a table that have an offset in this range; `log_offset` and `value` are among them."""
        of_no_value = np.zeros(0, np.int64)  # rows without an offset are in no range
        return PartitionRows({name: rows_in(name, self._beside[name], [self._range], wanted, of_no_value)})


class RowsOfLarge:
    """A partition's rows, in ranges and in pieces. Footers are read once."""

    def __init__(self, recording: Recording, topic_partition: str, small: PartitionRows) -> None:
        self.small = small
        self._groups = {
            name: list(hot_partitions.groups(name, recording.files[name].get(topic_partition, []))) for name in BIG
        }

    def in_ranges(self) -> Iterator[RowsInRange]:
        """Yield ranges of offsets, ascending, that hold all rows which have an offset."""
        cut_into = hot_partitions.ranges_of(self._groups)
        beside = {name: hot_partitions.beside(own, cut_into) for name, own in self._groups.items()}
        for place, own in enumerate(cut_into):
            yield RowsInRange(own, {name: beside[name][place] for name in BIG})

    def in_pieces(self, name: str, wanted: Sequence[str]) -> Iterator[PartitionRows]:
        """Yield these columns of all rows of a table, a row group at a time."""
        return (PartitionRows({name: rows}) for rows in read_groups(name, self._groups[name], wanted))
