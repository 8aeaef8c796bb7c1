"""Messages of transactions are dealt out by offsets: each task has a range of every partition's, and reads what was recorded when these were sent and polled.

Row groups of `txns` have steps of all partitions. So who had all messages of some partitions would read all row groups, and so would all others. But
what is sent at some time has offsets of its own, and is mostly polled soon after. Tasks that see each row group once say which offsets of which
partitions it has (`offsets_in`); then ranges are cut such that each has as many steps as the others (`by_offsets`).
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.api import Array
from tribunal.checkers.graphs.circles import BEGINNING, END
from tribunal.checkers.graphs.columns import Integers
from tribunal.checkers.judge import steps as flat_steps
from tribunal.checkers.judge.hot_partitions import Group

NOTHING: Final = -1


class Extent(msgspec.Struct, frozen=True):
    """Offsets of a partition from `first` on and before `end`; `are_sent`: transactions sent something to it, wherever."""

    topic: str
    partition: int
    first: int
    end: int
    are_sent: bool


class Spread(msgspec.Struct, frozen=True):
    """What a row group has of a partition: the first and the last offset, and the last one that was sent to (-1: none).

    steps:  those with an offset; where there are none the first stands behind the last. sends: with an offset or without.
    """

    topic: str
    partition: int
    first: int
    last: int
    last_sent: int
    steps: int
    sends: int


class OffsetsIn(msgspec.Struct, frozen=True):
    """What a row group has of each partition; `has_unplaced`: it has steps of which nobody knows an offset."""

    group: Group
    spreads: tuple[Spread, ...]
    has_unplaced: bool


def offsets_in(group: Group, steps: pa.StructArray) -> OffsetsIn:
    """Say which offsets of which partitions a row group has; `steps`: fields kind, topic, partition and log_offset of all of its steps."""
    offset = pc.struct_field(steps, "log_offset").fill_null(NOTHING).to_numpy()
    topics = pc.struct_field(steps, "topic")
    topics = topics if pa.types.is_dictionary(topics.type) else topics.dictionary_encode()
    topic = topics.indices.fill_null(NOTHING).to_numpy().astype(np.int64)
    partition = pc.struct_field(steps, "partition").fill_null(NOTHING).to_numpy()
    number, pairs = pd.factorize((topic << 32) + partition)
    kind = flat_steps.codes(pc.struct_field(steps, "kind"), flat_steps.KINDS).fill_null(NOTHING).to_numpy()
    is_send, placed = kind == flat_steps.SEND, offset >= 0
    sends = np.bincount(number[is_send], minlength=pairs.size)
    has_unplaced = not bool(placed.all())
    if has_unplaced:
        number, offset, is_send = number[placed], offset[placed], is_send[placed]
    first, last, last_sent = np.full(pairs.size, END), np.full(pairs.size, NOTHING), np.full(pairs.size, NOTHING)
    np.minimum.at(first, number, offset)
    np.maximum.at(last, number, offset)
    np.maximum.at(last_sent, number[is_send], offset[is_send])
    count = np.bincount(number, minlength=pairs.size)
    words = topics.dictionary.to_pylist()
    columns = (column.tolist() for column in (pairs >> 32, pairs & 0xFFFFFFFF, first, last, last_sent, count, sends))
    spreads = (Spread(words[topic] if topic >= 0 else "", *own) for topic, *own in zip(*columns, strict=True))
    return OffsetsIn(group, tuple(spreads), has_unplaced)


def by_offsets(groups: Sequence[OffsetsIn], at_once: int) -> list[tuple[tuple[Extent, ...], tuple[Group, ...]]]:
    """Cut all partitions' offsets into ranges with so many steps together, and return each with the row groups that may have any of it.

    groups:  of all transactions, in the order of their rows.

    It is cut between two row groups: behind what was sent to until then. A range has at least what one row group sent.
    """
    lines = _Lines(groups)
    ends = lines.cuts(at_once)
    cut = [(tuple(lines.extents(*own)), lines.groups(*own)) for own in pairwise(ends)]
    found = [(extents, own) for extents, own in cut if extents and own.size]
    if not found:
        return []
    # What has no offset may stand in any range: somebody has to say that it is there.
    seen = np.concatenate([own for _, own in found])
    loose = np.setdiff1d(np.array([place for place, one in enumerate(groups) if one.has_unplaced], np.int64), seen)
    extents, own = found[-1]
    found[-1] = extents, np.union1d(own, loose)
    return [(extents, tuple(groups[place].group for place in own.tolist())) for extents, own in found]


class _Lines:
    """All partitions' offsets, each a line; a cut is one point on each of them."""

    def __init__(self, groups: Sequence[OffsetsIn]) -> None:
        self._names = list(dict.fromkeys((own.topic, own.partition) for one in groups for own in one.spreads))
        number = {name: place for place, name in enumerate(self._names)}
        rows = [
            (place, number[own.topic, own.partition], own.first, own.last + 1, own.last_sent + 1, own.steps, own.sends)
            for place, one in enumerate(groups)
            for own in one.spreads
        ]
        every = np.array(rows, np.int64).reshape(-1, 7)
        self._sends = np.bincount(every[:, 1], every[:, 6], minlength=len(self._names))
        self._of_group, self._key, self._first, self._end, sent, self._steps, _ = every[every[:, 5] > 0].T
        # Of a partition that no transaction sends to, what was polled until then says where it is cut.
        reached = np.where(self._sends[self._key] > 0, sent, self._end)
        behind = np.zeros((len(groups) + 1, len(self._names)), np.int64)
        np.maximum.at(behind, (self._of_group + 1, self._key), reached)
        self._behind = np.maximum.accumulate(behind, axis=0)

    def cuts(self, at_once: int) -> list[Integers]:
        """Return cuts with so many steps between them, about, and both ends."""
        before = np.zeros(len(self._behind))
        for key in np.unique(self._key).tolist():
            own = self._key == key
            before += np.interp(self._behind[:, key], *filled(self._first[own], self._end[own], self._steps[own]))
        count = max(1, -(-int(self._steps.sum()) // at_once))
        wanted = self._steps.sum() * np.arange(1, count) / count
        above = np.clip(np.searchsorted(before, wanted), 1, len(before) - 1)
        is_nearer = wanted - before[above - 1] < before[above] - wanted
        places = np.unique(above - is_nearer)
        inner = [self._behind[place] for place in places.tolist() if 0 < place < len(self._behind) - 1]
        return [np.full(len(self._names), BEGINNING), *inner, np.full(len(self._names), END)]

    def extents(self, before: Integers, behind: Integers) -> Iterator[Extent]:
        """Yield what lies between two cuts."""
        columns = zip(self._names, before.tolist(), behind.tolist(), (self._sends > 0).tolist(), strict=True)
        return (Extent(*name, first, end, are_sent) for name, first, end, are_sent in columns if first < end)

    def groups(self, before: Integers, behind: Integers) -> Integers:
        """Return the row groups that may have anything between two cuts."""
        first, end = before[self._key], behind[self._key]
        return np.unique(self._of_group[(self._first < end) & (self._end > first) & (first < end)])


def filled(first: Integers, end: Integers, weight: Integers) -> tuple[Integers, Array]:
    """Return points, ascending, and how much lies before each of them, if so much lies evenly in each span; at least one span."""
    points = np.unique(np.concatenate([first, end]))
    dense = np.zeros(points.size)
    np.add.at(dense, np.searchsorted(points, first), weight / (end - first))
    np.add.at(dense, np.searchsorted(points, end), -weight / (end - first))
    return points, np.concatenate([[0.0], np.cumsum(np.cumsum(dense)[:-1] * np.diff(points))])
