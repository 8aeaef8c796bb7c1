"""Orders of lists that losses undo (R10): is anything still out of order without the elements that were permitted to be lost.

An element is a record. One that a later read lacks was lost in between, or it was overtaken; it is dropped, with every edge that rests
on it, if its record was permitted to be lost between its append and that read. Dropped as well is what was written anew in its place, if only
readers lack it that hold the lost element. A circle without such edges stays a violation.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from tribunal.checkers.graphs import list_append
from tribunal.checkers.graphs.columns import FAIL, OK, ListSteps
from tribunal.checkers.graphs.findings import Findings
from tribunal.checkers.graphs.operations import OPEN_END
from tribunal.checkers.guarantees import Excuse, Promise
from tribunal.checkers.judge.timeline import OBSERVATION_LAG_NS, History, Judgement

# What follows from the order of a list's elements, which a loss undoes: not what single transactions read.
CYCLES: Final = ("list-G0", "G0", "G1c", "G-single-item", "G-nonadjacent-item", "G2-item")
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
    lacked = list(_lacked(lists))
    for one in lacked:
        judgement = history.lost_value(_partition(lists, one.key), one.element, one.last_ns)
        if judgement is None or judgement.promise.must_survive or judgement.at_ns is None:
            continue
        if one.wrongly_ns is None or one.wrongly_ns + OBSERVATION_LAG_NS >= judgement.at_ns:
            lost[one.key, one.element] = judgement
    if not lost:
        return None
    dropped: dict[int, list[int]] = {}
    passed = [
        (one.key, one.element)
        for one in lacked
        if _is_passed_over(lists, one, lost)
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


def _lacked(lists: ListSteps) -> Iterator[_Lacked]:
    """Yield the elements that some read lacks although its transaction ended after they were appended."""
    transactions = lists.transactions
    reads = np.flatnonzero(lists.is_read & (transactions.outcome[lists.txn] == OK))
    elements = {
        row: frozenset(lists.elements[lists.first[row] : lists.first[row] + lists.length[row]].tolist())
        for row in reads.tolist()
    }
    by_key = reads[np.argsort(lists.key[reads], kind="stable")]
    keys = lists.key[by_key]
    for append in np.flatnonzero(~lists.is_read & (transactions.outcome[lists.txn] != FAIL)).tolist():
        key, element, writer = int(lists.key[append]), int(lists.value[append]), lists.txn[append]
        own = by_key[np.searchsorted(keys, key, "left") : np.searchsorted(keys, key, "right")]
        own = own[transactions.completed[lists.txn[own]] > transactions.invoked[writer]]
        lacking = [row for row in own.tolist() if element not in elements[row] and lists.txn[row] != writer]
        if not lacking:
            continue
        known = [int(transactions.completed[lists.txn[row]]) for row in own.tolist() if element in elements[row]]
        known_ns = min([int(transactions.completed[writer]), *known])
        rows = [row for row in lacking if transactions.invoked[lists.txn[row]] > known_ns]
        wrongly = [int(transactions.completed[lists.txn[row]]) for row in rows]
        last_ns = max(int(transactions.completed[lists.txn[row]]) for row in lacking)
        begun_ns = int(transactions.invoked[writer])
        yield _Lacked(key, element, min(wrongly, default=None), min(last_ns, OPEN_END), tuple(rows), begun_ns)


def _is_passed_over(lists: ListSteps, one: _Lacked, lost: dict[tuple[int, int], Judgement]) -> bool:
    """Whether each read that lacks an element holds another one that was lost before it was appended.

    Such a reader had read on beyond the place at which the log went on anew (as R12): it never sees what was written there.
    """
    return bool(one.wrongly) and all(
        any(
            (judgement := lost.get((one.key, element))) is not None
            and (judgement.at_ns or 0) <= one.begun_ns + OBSERVATION_LAG_NS
            for element in lists.elements[lists.first[row] : lists.first[row] + lists.length[row]].tolist()
        )
        for row in one.wrongly
    )


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
