"""Orders of lists that losses undo (R10): is anything still out of order without the elements that were permitted to be lost.

An element is a record. One that a later read lacks was lost in between, or it was overtaken; it is dropped, with every edge that rests
on it, if its record was permitted to be lost between its append and that read. Dropped as well is what was written anew in its place, if only
readers lack it that hold the lost element. A circle without such edges stays a violation.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from tribunal.checkers.graphs import list_append
from tribunal.checkers.graphs.columns import FAIL, OK, Integers, ListSteps
from tribunal.checkers.graphs.findings import Findings
from tribunal.checkers.graphs.operations import OPEN_END
from tribunal.checkers.guarantees import Excuse, Promise
from tribunal.checkers.judge.incarnations import NEVER
from tribunal.checkers.judge.timeline import OBSERVATION_LAG_NS, History, Judgement

# What follows from the order of a list's elements, which a loss undoes: not what single transactions read.
CYCLES: Final = ("list-G0", "G0", "G1c", "G-single-item", "G-nonadjacent-item", "G2-item")
SIDES: Final[tuple[Literal["left", "right"], ...]] = ("left", "right")
OF_ORDER: Final = frozenset({*CYCLES, "incompatible-order", "lost-update"})


def is_of_order(kind: str) -> bool:
    """Whether an anomaly follows from the order of a list's elements."""
    return kind.removesuffix("-process").removesuffix("-realtime") in OF_ORDER


class Orders(msgspec.Struct, frozen=True):
    """What is still wrong without the lost elements, what is not, and the first loss of one."""

    kept: Findings
    permitted: Findings
    judgement: Judgement


class _Lacked(msgspec.Struct, frozen=True):
    """An element that reads lack which ended after it was appended: when the first surely had to have it, and when the last ended.

    wrongly:   the reads that surely had to have it.
    begun_ns:  when its transaction began.
    """

    key: int
    element: int
    wrongly_ns: int | None
    last_ns: int
    wrongly: tuple[int, ...]
    begun_ns: int


def permitted_orders(lists: ListSteps, found: Findings, history: History) -> Orders | None:
    """Take away what permitted losses explain of what was found; None: nothing."""
    if not any(map(is_of_order, found.counts)):
        return None
    lost: dict[tuple[int, int], Judgement] = {}
    reads = _reads(lists)
    lacked = list(_lacked(lists, reads))
    for one in lacked:
        judgement = history.lost_value(_partition(lists, one.key), one.element, one.last_ns)
        if judgement is None or judgement.promise.must_survive or judgement.at_ns is None:
            continue
        if one.wrongly_ns is None or one.wrongly_ns + OBSERVATION_LAG_NS >= judgement.at_ns:
            lost[one.key, one.element] = judgement
    if not lost:
        return None
    dropped: dict[int, list[int]] = {}
    lost_ns = _lost_ns(reads, lost)
    passed = [
        (one.key, one.element)
        for one in lacked
        if _is_passed_over(one, lost_ns)
        or (one.wrongly and history.written_anew(_partition(lists, one.key), one.element))
    ]
    for key, element in dict.fromkeys([*lost, *passed]):
        dropped.setdefault(key, []).append(element)
    kept, permitted = split(found, list_append.check(lists.without(dropped)))
    first = min(lost.values(), key=lambda one: one.at_ns or 0)
    named = replace(first, promise=Promise(rule=Excuse.ORDER_LOST, violations=()), by=first.promise.rule)
    return Orders(kept, permitted, named)


def _partition(lists: ListSteps, key: int) -> str:
    name = lists.names[key]
    assert isinstance(name, str), "a recording's lists are partitions"
    return name


class _Reads:
    """The committed reads of one list, in the order in which their transactions ended, and which of them hold an element."""

    def __init__(self, lists: ListSteps, rows: Integers) -> None:
        ended_ns = lists.transactions.completed[lists.txn[rows]]
        order = np.argsort(ended_ns, kind="stable")
        self.rows, self.ended_ns = rows[order], ended_ns[order]
        length = lists.length[self.rows]
        place = np.repeat(np.arange(self.rows.size), length)
        within = np.arange(place.size) - np.repeat(np.cumsum(length) - length, length)
        element = lists.elements[np.repeat(lists.first[self.rows], length) + within]
        order = np.argsort(element, kind="stable")
        self._elements, self._places = element[order], place[order]

    def holding(self, element: int) -> Integers:
        """Return the places of the reads that hold an element, ascending."""
        first, end = (int(np.searchsorted(self._elements, element, side)) for side in SIDES)
        return np.unique(self._places[first:end])


def _reads(lists: ListSteps) -> dict[int, _Reads]:
    """Return the committed reads of each list, by its key."""
    rows = np.flatnonzero(lists.is_read & (lists.transactions.outcome[lists.txn] == OK))
    rows = rows[np.argsort(lists.key[rows], kind="stable")]
    keys, first = np.unique(lists.key[rows], return_index=True)
    return {key: _Reads(lists, own) for key, own in zip(keys.tolist(), np.split(rows, first[1:]), strict=False)}


def _lacked(lists: ListSteps, reads: Mapping[int, _Reads]) -> Iterator[_Lacked]:
    """Yield the elements that some read lacks although its transaction ended after they were appended.

    Of an element that all of them hold no read is looked at: what holds it is counted against what might.
    """
    transactions = lists.transactions
    for append in np.flatnonzero(~lists.is_read & (transactions.outcome[lists.txn] != FAIL)).tolist():
        key, element, writer = int(lists.key[append]), int(lists.value[append]), int(lists.txn[append])
        own = reads.get(key)
        if own is None:
            continue
        begun_ns = int(transactions.invoked[writer])
        first = int(np.searchsorted(own.ended_ns, begun_ns, "right"))
        holding = own.holding(element)
        holding = holding[np.searchsorted(holding, first) :]
        if holding.size == own.rows.size - first:
            continue
        lacks = lists.txn[own.rows[first:]] != writer
        lacks[holding - first] = False
        if not lacks.any():
            continue
        known_ns = min(int(transactions.completed[writer]), *own.ended_ns[holding[:1]].tolist(), OPEN_END)
        rows, ended_ns = own.rows[first:][lacks], own.ended_ns[first:][lacks]
        is_wrong = transactions.invoked[lists.txn[rows]] > known_ns
        wrongly_ns = int(ended_ns[is_wrong][0]) if is_wrong.any() else None
        last_ns = min(int(ended_ns[-1]), OPEN_END)
        yield _Lacked(key, element, wrongly_ns, last_ns, tuple(rows[is_wrong].tolist()), begun_ns)


def _lost_ns(reads: Mapping[int, _Reads], lost: Mapping[tuple[int, int], Judgement]) -> dict[int, int]:
    """Return when the first of the lost elements was lost that a read holds, by its row."""
    found: dict[int, int] = {}
    for (key, element), judgement in lost.items():
        at_ns = judgement.at_ns or 0
        for row in reads[key].rows[reads[key].holding(element)].tolist():
            found[row] = min(found.get(row, at_ns), at_ns)
    return found


def _is_passed_over(one: _Lacked, lost_ns: Mapping[int, int]) -> bool:
    """Whether each read that lacks an element holds another one that was lost before it was appended.

    Such a reader had read on beyond the place at which the log went on anew (as R12): it never sees what was written there.

    lost_ns:  when the first of the lost elements was lost that a read holds, by its row.
    """
    latest_ns = one.begun_ns + OBSERVATION_LAG_NS
    return bool(one.wrongly) and all(lost_ns.get(row, NEVER) <= latest_ns for row in one.wrongly)


def split(found: Findings, again: Findings) -> tuple[Findings, Findings]:
    """Return what is found still, with all that is of no order, and what was found before only."""
    kept, permitted = Findings(), Findings()
    for kind, witnesses in found.witnesses.items():
        if not is_of_order(kind):
            kept.witnesses[kind], kept.counts[kind] = witnesses, found.counts[kind]
            continue
        left = again.counts.get(kind, 0)
        if left:
            kept.witnesses[kind], kept.counts[kind] = again.witnesses[kind], left
        still = {witness.operations for witness in again.witnesses.get(kind, ())}
        gone = [witness for witness in witnesses if witness.operations not in still]
        if gone and found.counts[kind] > left:
            permitted.witnesses[kind], permitted.counts[kind] = gone, max(len(gone), found.counts[kind] - left)
    for kind, witnesses in again.witnesses.items():
        if is_of_order(kind) and kind not in kept.witnesses:
            kept.witnesses[kind], kept.counts[kind] = witnesses, again.counts[kind]
    kept.undecided = [*found.undecided]
    return kept, permitted
