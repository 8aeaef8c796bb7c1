"""What readers had read at or beyond an offset before what stands there in the end was written, and whether its loss was permitted (R12).

Sorted once, for readers may lack very much. Nothing happens to a partition between some moments, and no loss on a disk begins or ends between some
offsets: of all of those the same is said, so only one of each is judged.
"""

import numpy as np

from tribunal.checkers.api import FAIL, TAIL, UNKNOWN, Array, Columns, PartitionRows, is_among
from tribunal.checkers.judge.leasts import Leasts
from tribunal.checkers.judge.timeline import Judgement, Record, Timeline
from tribunal.checkers.properties.consumers import polls_of


class ReadOn:
    """Who had read on, of one partition: asked of many offsets."""

    def __init__(self, rows: PartitionRows, timeline: Timeline) -> None:
        self._rows, self._timeline = rows, timeline
        self._former: dict[tuple[int, bytes | None], _Former] = {}

    def excuse(self, offset: int, epoch: int, readers: Array | None) -> Judgement | None:
        """Return what permitted the loss of the first thing that any of these readers had read at or beyond an offset, of those whose loss was permitted.

        Either a consumer received a record of an older leader epoch there or behind it, or it asked from beyond, or committed a position beyond, in an
        older epoch.

        epoch:    of what stands there in the end.
        readers:  distinct and ascending; None: everybody.
        """
        key = epoch, None if readers is None else readers.tobytes()
        if key not in self._former:
            self._former[key] = _Former(self._rows, self._timeline, epoch, readers)
        return self._former[key].excuse(offset)


class _Former:
    """What some readers had read in leader epochs before one: before which offset, when and in which epoch; the records first, then the positions by time."""

    def __init__(self, rows: PartitionRows, timeline: Timeline, epoch: int, readers: Array | None) -> None:
        self._timeline, self._epoch = timeline, epoch
        parts = zip(_received(rows, epoch, readers), _positions(rows, timeline, epoch, readers), strict=True)
        ends, self._at_ns, self._epochs = (np.concatenate(both) for both in parts)
        alike = np.stack([timeline.turns(self._at_ns), self._epochs], axis=1)
        _, sort = np.unique(alike, axis=0, return_inverse=True)
        order = np.argsort(sort, kind="stable")
        borders = np.flatnonzero(np.diff(sort[order])) + 1
        own = np.split(order, borders) if order.size else []
        self._alike = [Leasts(ends[some], some) for some in own]
        self._excusing: dict[tuple[int, int], list[Leasts]] = {}

    def excuse(self, offset: int) -> Judgement | None:
        """Return what permitted the loss of the first of them that lies at or beyond an offset."""
        stretch = self._timeline.stretch(offset)
        if stretch not in self._excusing:
            self._excusing[stretch] = [own for own in self._alike if self._judged(own.beyond(-1), offset)]
        rows = [row for own in self._excusing[stretch] if (row := own.beyond(offset)) is not None]
        return self._judged(min(rows, default=None), offset)

    def _judged(self, row: int | None, offset: int) -> Judgement | None:
        if row is None:
            return None
        at_ns = int(self._at_ns[row])
        there = Record(
            log_offset=offset,
            acks=None,
            invoke_ns=at_ns,
            leader_epoch=int(self._epochs[row]),
            exposed_ns=at_ns,  # what was read lay below the high watermark
            read_ns=at_ns,
            replaced_epoch=self._epoch,
        )
        judgement = self._timeline.judge(there)
        return None if judgement.promise.must_survive else judgement


def _received(rows: PartitionRows, epoch: int, readers: Array | None) -> tuple[Array, Array, Array]:
    reads, polls = rows.columns("reads"), rows.columns("polls")
    older = (reads["phase"] == TAIL) & (reads["leader_epoch"] != UNKNOWN) & (reads["leader_epoch"] < epoch)
    own = np.flatnonzero(older & _by(reads, readers))
    poll = polls_of(polls, np.arange(polls["process"].size), reads, own)
    own, poll = own[poll != UNKNOWN], poll[poll != UNKNOWN]
    at_ns = np.where(polls["complete_ns"] == UNKNOWN, polls["invoke_ns"], polls["complete_ns"])[poll]
    return reads["log_offset"][own] + 1, at_ns, reads["leader_epoch"][own]


def _positions(
    rows: PartitionRows, timeline: Timeline, epoch: int, readers: Array | None
) -> tuple[Array, Array, Array]:
    commits, polls = rows.columns("commits"), rows.columns("polls")
    committed = (commits["outcome"] != FAIL) & _by(commits, readers)
    asked = (polls["phase"] == TAIL) & _by(polls, readers)
    ends = np.concatenate([commits["committed_offset"][committed], polls["position"][asked]])
    at_ns = np.concatenate([commits["invoke_ns"][committed], polls["invoke_ns"][asked]])
    epochs = timeline.leader_epochs_at(at_ns)
    order = np.argsort(at_ns, kind="stable")
    own = order[(epochs[order] != UNKNOWN) & (epochs[order] < epoch)]
    return ends[own], at_ns[own], epochs[own]


def _by(rows: Columns, processes: Array | None) -> Array:
    return np.ones(rows["process"].size, bool) if processes is None else is_among(rows["process"], processes)
