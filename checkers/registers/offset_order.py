"""A register whose writes stand in a log: their order is known, so there is nothing to search for (etcd's idea).

Offsets say which writes happened, those of unknown outcome too, and in which order. Each read then has its place behind the
write that it saw. The history is linearizable iff nobody began after somebody had completed who comes later in that order: one
sort and one running minimum, however many clients there were.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tribunal.checkers.graphs.operations import OPEN_END, Operation, by_key
from tribunal.checkers.registers.linearizability import Answer, Linearization

Integers = NDArray[np.int64]
INITIAL: Final = -1


def is_ordered_by_offsets(operations: Sequence[Operation]) -> bool:
    """Tell whether offsets say of every write whether and where it happened; only plain writes and reads."""
    writes = [operation for operation in operations if operation.steps[0][0] == "write"]
    if not writes or any(operation.steps[0][0] not in ("write", "read") for operation in operations):
        return False
    perhaps = [operation for operation in writes if operation.outcome != "fail"]
    # A write that was answered and is not in the log is for the search to judge; and a value that was written twice, or is
    # what a register holds at first, does not say which version a read saw.
    is_known = all("offset" in o.extra and (o.outcome != "ok" or o.extra["offset"] is not None) for o in perhaps)
    values = [(o.steps[0][1], repr(o.steps[0][2])) for o in perhaps]
    is_plain = not any(isinstance(o.steps[0][2], list | dict | None) for o in perhaps)
    return is_known and is_plain and len({*values}) == len(values)


def check(operations: Sequence[Operation]) -> Linearization:
    """Judge every key by itself. An offset of None says that the write is not in the log."""
    for key, own in by_key(operations).items():
        culprit = _culprit(own)
        if culprit is not None:
            return Linearization(
                answer=Answer.ILLEGAL, key=key, ordered_until=culprit.invoked, culprit=culprit.index, configurations=1
            )
    return Linearization(answer=Answer.LINEARIZABLE, ordered_until=0, configurations=1)


def _culprit(operations: Sequence[Operation]) -> Operation | None:
    place: dict[object, int] = {None: INITIAL}
    for operation in operations:
        if operation.steps[0][0] == "write" and operation.extra.get("offset") is not None:
            place[operation.steps[0][2]] = operation.extra["offset"]
    judged, rank = [], []
    for operation in operations:
        step = operation.steps[0]
        if step[0] == "write" and operation.extra.get("offset") is not None:
            judged.append(operation)
            rank.append(2 * operation.extra["offset"])
        elif step[0] == "read" and operation.outcome == "ok":
            if step[3] not in place:
                return operation  # nobody wrote it
            judged.append(operation)
            rank.append(2 * place[step[3]] + 1)
    invoked = np.array([operation.invoked for operation in judged], np.int64)
    completed = np.array([operation.completed for operation in judged], np.int64)
    late = too_late(np.array(rank, np.int64), invoked, completed)
    return judged[late] if late is not None else None


def too_late(rank: Integers, invoked: Integers, completed: Integers) -> int | None:
    """Return the first operation that began after one with a greater rank had completed, or None.

    rank:  operations of equal rank (reads of one version) may stand in any order.
    """
    if rank.size == 0:
        return None
    order = np.argsort(rank, kind="stable")
    ranks = rank[order]
    behind = np.append(np.minimum.accumulate(completed[order][::-1])[::-1], OPEN_END)
    # The least completion among strictly greater ranks.
    after = behind[np.searchsorted(ranks, ranks, "right")]
    late = order[invoked[order] > after]
    return int(late[np.argmin(invoked[late])]) if late.size else None
