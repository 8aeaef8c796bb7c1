"""Orders of lists that losses undo (R10): is anything still out of order without the elements that were permitted to be lost.

An element is a record. One that a later read lacks was lost in between, or it was overtaken; it is dropped, with every edge that rests
on it, if its record was permitted to be lost between its append and that read. A circle without such edges stays a violation.
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
    """An element that reads lack which ended after it was appended: when the first surely had to have it, and when the last ended."""

    key: int
    element: int
    wrongly_ns: int | None
    last_ns: int


def permitted_orders(lists: ListSteps, found: Findings, history: History) -> Orders | None:
    """Take away what permitted losses explain of what was found; None: nothing."""
    if not any(map(is_of_order, found.counts)):
        return None
    lost: dict[tuple[int, int], Judgement] = {}
    for one in _lacked(lists):
        name = lists.names[one.key]
        assert isinstance(name, str), "a recording's lists are partitions"
        judgement = history.lost_value(name, one.element, one.last_ns)
        if judgement is None or judgement.promise.must_survive or judgement.at_ns is None:
            continue
        if one.wrongly_ns is None or one.wrongly_ns + OBSERVATION_LAG_NS >= judgement.at_ns:
            lost[one.key, one.element] = judgement
    if not lost:
        return None
    dropped: dict[int, list[int]] = {}
    for key, element in lost:
        dropped.setdefault(key, []).append(element)
    kept, permitted = _split(found, list_append.check(lists.without(dropped)))
    first = min(lost.values(), key=lambda one: one.at_ns or 0)
    named = replace(first, promise=Promise(rule=Excuse.ORDER_LOST, violations=()), by=first.promise.rule)
    return Orders(kept, permitted, named)


def _lacked(lists: ListSteps) -> Iterator[_Lacked]:
    """Yield the elements that some read lacks although its transaction ended after they were appended."""
    transactions = lists.transactions
    reads = np.flatnonzero(lists.is_read & (transactions.outcome[lists.txn] == OK))
    elements = {
        row: frozenset(lists.elements[lists.first[row] : lists.first[row] + lists.length[row]].tolist())
        for row in reads.tolist()
    }
    for append in np.flatnonzero(~lists.is_read & (transactions.outcome[lists.txn] != FAIL)).tolist():
        key, element, writer = int(lists.key[append]), int(lists.value[append]), lists.txn[append]
        own = reads[
            (lists.key[reads] == key) & (transactions.completed[lists.txn[reads]] > transactions.invoked[writer])
        ]
        lacking = [row for row in own.tolist() if element not in elements[row] and lists.txn[row] != writer]
        if not lacking:
            continue
        known = [int(transactions.completed[lists.txn[row]]) for row in own.tolist() if element in elements[row]]
        known_ns = min([int(transactions.completed[writer]), *known])
        wrongly = [
            int(transactions.completed[lists.txn[row]])
            for row in lacking
            if transactions.invoked[lists.txn[row]] > known_ns
        ]
        last_ns = max(int(transactions.completed[lists.txn[row]]) for row in lacking)
        yield _Lacked(key, element, min(wrongly, default=None), min(last_ns, OPEN_END))


def _split(found: Findings, again: Findings) -> tuple[Findings, Findings]:
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
