"""How the transactions ended in which the records of one range of a hot partition were sent.

A transaction's row is written when it has ended. So those of a range's sends lie in few row groups of `txns`, by their times; where any
of them lies elsewhere all row groups are read. A value is sent once, and so in one transaction.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from tribunal.checkers.api import UNKNOWN, Array, distinct
from tribunal.checkers.judge.hot_partitions import Group, Groups, Range, groups, read_groups
from tribunal.checkers.judge.read_steps import TABLE, operations_in
from tribunal.checkers.judge.steps import COMMITTED, KINDS, OUTCOMES, WRITES, codes
from tribunal.results.store import Recording

Cut = Sequence[tuple[Range, Groups]]


def with_transactions(recording: Recording, topic_partition: str, ranges: Cut) -> list[tuple[Range, Groups]]:
    """Add the row groups of transactions that overlap in time with what may have been sent to each range, as far as footers say it."""
    ended = [one for one in _ended(_paths(recording)) if one.rows]
    sent = recording.files["sends"].get(topic_partition, []) if ended else []
    known = groups("sends", sent, by="invoke_ns", only_footers=True)
    spans = {(one.path, one.number): (one.first, one.last) for one in known}
    return [(own, {**beside, TABLE: tuple(_beside(ended, beside["sends"], spans))}) for own, beside in ranges]


def _paths(recording: Recording) -> list[Path]:
    return [path for paths in recording.files[TABLE].values() for path in paths]


def _ended(paths: Sequence[Path]) -> Iterator[Group]:
    """Yield the row groups of transactions: from when the first of each began to when the last had begun or ended."""
    times = [groups(TABLE, paths, by=column, only_footers=True) for column in ("begin_ns", "end_ns")]
    for began, ended in zip(*times, strict=True):
        yield Group(began.path, began.number, began.first, max(began.last, ended.last), ended.unknown, began.rows)


def _beside(
    ended: Sequence[Group], sends: Iterable[Group], spans: Mapping[tuple[str, int], tuple[int, int]]
) -> Iterator[Group]:
    own = [spans[one.path, one.number] for one in sends] if ended else []
    first, last = min((one[0] for one in own), default=0), max((one[1] for one in own), default=-1)
    return (one for one in ended if one.first <= last and one.last >= first)


def outcomes_of(run_dir: Path, beside: Sequence[Group], values: Array) -> Array:
    """Return how the transaction ended that sent each of these values (`steps`), UNKNOWN where none did.

    beside:  the row groups to read first.
    """
    wanted = distinct(values)
    found = np.full(wanted.size, UNKNOWN, np.int8)
    _look(beside, wanted, found)
    if (found == UNKNOWN).any():
        read = {(one.path, one.number) for one in beside}
        # (a task that reads from storage sees no other tables' files, so it cannot open the recording)
        paths = sorted((run_dir / "recording" / TABLE).glob("tp=*/part-*.parquet"))
        _look([one for one in _ended(paths) if (one.path, one.number) not in read], wanted, found)
    return np.asarray(found[np.searchsorted(wanted, values)])


def _look(chosen: Sequence[Group], wanted: Array, found: Array) -> None:
    """Note what some row groups say of these values, which ascend; what was committed by any is."""
    pieces = ((group, rows) for group in chosen for rows in read_groups(TABLE, [group], ["outcome"]))
    for group, rows in pieces if wanted.size else ():
        operations = operations_in(group, ["kind", "value"])
        steps = pc.list_flatten(operations)
        outcome = codes(rows["outcome"], OUTCOMES).to_numpy(zero_copy_only=False)
        outcome = outcome[pc.list_parent_indices(operations).to_numpy()]
        kind = codes(pc.struct_field(steps, "kind"), KINDS).fill_null(UNKNOWN).to_numpy(zero_copy_only=False)
        value = pc.struct_field(steps, "value").fill_null(UNKNOWN).to_numpy(zero_copy_only=False)
        place = np.minimum(np.searchsorted(wanted, value), wanted.size - 1)
        own = np.flatnonzero((wanted[place] == value) & np.isin(kind, WRITES))
        own = own[found[place[own]] != COMMITTED]
        order = own[np.argsort(outcome[own] == COMMITTED, kind="stable")]  # (of several rows the last one counts)
        found[place[order]] = outcome[order]
