"""Objects that need no search: bank, counter, set and long fork are judged in one pass over the history."""

from collections.abc import Callable, Hashable, Sequence
from itertools import combinations
from typing import Final

from tribunal.checkers.graphs.findings import Findings
from tribunal.checkers.graphs.operations import Datum, Operation


def bank(operations: Sequence[Operation]) -> Findings:
    """Report reads whose balances do not add up to what the first read showed (transfers move money, never make it)."""
    found = Findings()
    total: int | None = None
    for operation in operations:
        balances = _result(operation, "read")
        if not isinstance(balances, dict):
            continue
        held = sum(balances.values())
        total = held if total is None else total
        if held != total:
            found.add("wrong-total", (operation.index,), f"balances add up to {held}, not {total}")
    return found


def counter(operations: Sequence[Operation]) -> Findings:
    """Report reads outside of what the additions before and beside them allow."""
    found = Findings()
    additions = [o for o in operations if o.function == "add" and o.outcome != "fail"]
    for operation in operations:
        value = _result(operation, "read")
        if value is None:
            continue
        sure = [o for o in additions if o.outcome == "ok" and o.completed < operation.invoked]
        maybe = [
            o for o in additions
            if o.invoked < operation.completed and (o.outcome != "ok" or o.completed >= operation.invoked)
        ]  # fmt: skip
        base = sum(o.steps[0][2] for o in sure)
        low = base + sum(min(0, o.steps[0][2]) for o in maybe)
        high = base + sum(max(0, o.steps[0][2]) for o in maybe)
        if not low <= value <= high:
            found.add("out-of-bounds", (operation.index,), f"read {value}, possible are {low} to {high}")
    return found


def set_of_elements(operations: Sequence[Operation]) -> Findings:
    """Report elements whose addition was acknowledged before the last read and which it lacks; and those nobody added."""
    found = Findings()
    reads = [o for o in operations if isinstance(_result(o, "read"), list)]
    if not reads:
        return found
    last = reads[-1]
    seen = {_plain(element) for element in _result(last, "read")}
    additions = [(_plain(o.steps[0][2]), o) for o in operations if o.function == "add"]
    lost = {element: o for element, o in reversed(additions) if o.outcome == "ok" and o.completed < last.invoked}
    for element, operation in reversed(lost.items()):
        if element not in seen:
            found.add("lost", (operation.index, last.index), f"{element!r} was added and is missing")
    for element in sorted(seen - {element for element, _ in additions}, key=repr):
        found.add("unexpected", (last.index,), f"{element!r} was never added")
    return found


def long_fork(operations: Sequence[Operation]) -> Findings:
    """Report pairs of reads of the same keys of which each saw a write that the other missed (keys are written once)."""
    found = Findings()
    groups: dict[tuple[Datum, ...], list[tuple[Operation, frozenset[Datum]]]] = {}
    for operation in operations:
        if operation.outcome == "ok" and all(step[0] == "r" for step in operation.steps):
            keys = tuple(sorted((step[1] for step in operation.steps), key=repr))
            groups.setdefault(keys, []).append(
                (operation, frozenset(s[1] for s in operation.steps if s[2] is not None))
            )
    for reads in groups.values():
        distinct = {seen: operation for operation, seen in reversed(reads)}
        for (one, first), (other, second) in combinations(distinct.items(), 2):
            if one - other and other - one:
                words = f"one saw {sorted(one - other)} and not {sorted(other - one)}, the other the reverse"
                found.add("long-fork", (first.index, second.index), words)
    return found


def _result(operation: Operation, function: str) -> Datum:
    if operation.function != function or operation.outcome != "ok":
        return None
    return operation.steps[0][3] if len(operation.steps[0]) > 3 else None


def _plain(element: Datum) -> Hashable:
    return tuple(element) if isinstance(element, list) else element


FOLDS: Final[dict[str, Callable[[Sequence[Operation]], Findings]]] = {
    "bank": bank,
    "counter": counter,
    "set": set_of_elements,
    "set-full": set_of_elements,
    "long-fork": long_fork,
}
