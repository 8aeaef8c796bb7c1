"""Transactions on lists and registers keep the consistency that the system promises, and lists keep what was acknowledged.

Which consistency that is, the system's file says (`[promises] consistency`); where nobody said it, the strictest. Lists show their whole
history, registers one version: their order follows from what transactions read before they wrote, and from time where the model has it.
A list that nobody read after its last acknowledged append says nothing of that append: it is not judged. Whether a write of a
register was lost shows only under a model with real time; lists show it under any.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from tribunal.checkers.api import Anomaly, Found, Kind, Meaning, PartitionRows, Property, nothing, table_of
from tribunal.checkers.graphs import list_append, rw_register
from tribunal.checkers.graphs.findings import Findings, Witness
from tribunal.checkers.graphs.models import RULES_OUT, forbids, ruled_out
from tribunal.checkers.graphs.operations import Operation
from tribunal.checkers.judge.calls import Calls, seconds, transactions
from tribunal.checkers.judge.timeline import History
from tribunal.checkers.properties.transactions import SENTENCES
from tribunal.results.manifest import PROMISED
from tribunal.results.object_transactions import LISTS, REGISTERS
from tribunal.results.verdict import Detail

STRICTEST: Final = "strict-serializable"
OWN_SENTENCES: Final = {
    "cyclic-versions": "two versions of a register each have to come before the other",
    "lost-update": "two transactions read the same version and both replaced it",
}
NOT_OF_OBJECTS: Final = frozenset({"future-read"})
KINDS: Final = {
    **{
        name: Kind(
            Meaning.VIOLATION,
            (SENTENCES | OWN_SENTENCES).get(name, f"transactions depend on each other in a circle ({name})"),
        )
        for name in RULES_OUT
        if name not in NOT_OF_OBJECTS
    },
    "element_lost": Kind(Meaning.VIOLATION, "an element whose append was acknowledged is missing in the last read"),
    "undecided": Kind(Meaning.UNJUDGED, "the search for a circle took more than its budget"),
    "unread": Kind(Meaning.UNJUDGED, "nobody read an object after its last acknowledged change"),
}


def kernel(run: PartitionRows, history: History) -> Found:
    """Judge transactions on lists and those on registers, each by the same model.

    source:  Adya 1999; Alvaro and Kingsbury, "Elle" (2020).
    """
    rows = run.table("operations")
    lists, registers = transactions(rows, LISTS), transactions(rows, REGISTERS)
    model = str(history.settings.get(f"{PROMISED}consistency", STRICTEST))
    found: list[tuple[Anomaly, Detail]] = []
    figures = {}
    if lists.operations:
        figures["transactions on lists"] = len(lists.operations)
        found += _circles(lists, list_append.check(lists.operations, model))
        found += [(one, Detail()) for one in _lost_and_unread(lists, "list")]
    if registers.operations:
        figures["transactions on registers"] = len(registers.operations)
        found += _circles(registers, _registers(registers.operations, model))
        found += [(one, Detail()) for one in _lost_and_unread(registers, "register")]
    if not found:
        return Found(nothing(), figures)
    details = {row: detail for row, (_, detail) in enumerate(found)}
    return Found(table_of(one for one, _ in found), figures, details=details)


def _registers(operations: Sequence[Operation], model: str) -> Findings:
    found = rw_register.check(
        operations,
        model,
        writes_follow_reads=True,
        sequential_keys=forbids(model, "G0-process"),
        linearizable_keys=forbids(model, "G0-realtime"),
    )
    written = {(key, value) for one in operations for kind, key, value in one.steps if kind == "w"}
    for one in operations:
        for kind, key, value in one.steps:
            if one.outcome == "ok" and kind == "r" and value is not None and (key, value) not in written:
                found.add("phantom", (one.index,), f"{value} of {key} was read, and nobody wrote it")
    return found


def _circles(calls: Calls, found: Findings) -> Iterator[tuple[Anomaly, Detail]]:
    for kind, witnesses in found.witnesses.items():
        weakest, _ = ruled_out([kind])
        for place, witness in enumerate(witnesses):
            more = "" if place else _more(found.counts[kind] - len(witnesses))
            words = _words(calls, witness) + (f"; rules out {', '.join(weakest)}" if weakest else "") + more
            first = calls.recorded[witness.operations[0]] if witness.operations else None
            yield (
                Anomaly(
                    kind=kind,
                    invoke_ns=None if first is None else first.invoke_ns,
                    at_ns=None if first is None else first.complete_ns,
                    process=None if first is None else first.process,
                    detail=words,
                ),
                Detail(edges=witness.edges or None, rules_out=tuple(weakest) or None),
            )
    if found.undecided:
        yield Anomaly(kind="undecided", detail=", ".join(sorted(set(found.undecided)))), Detail()


def _more(count: int) -> str:
    return f" ({count} more like this)" if count > 0 else ""


def _words(calls: Calls, witness: Witness) -> str:
    """Say what was found, and behind it what the transactions did."""
    shown = [
        f"T{place} of process {call.process}, {seconds(call.invoke_ns)} to {seconds(call.complete_ns)}: "
        + (call.result if call.outcome == "ok" and call.result else f"{call.argument or ''} ({call.outcome})")
        for place in dict.fromkeys(witness.operations)
        for call in [calls.recorded[place]]
    ]
    return "; ".join([witness.words, *shown])


def _lost_and_unread(calls: Calls, sort: str) -> Iterator[Anomaly]:
    """Compare each object's last read with the acknowledged changes before it."""
    changes: dict[Hashable, list[tuple[Operation, int]]] = {}
    last: dict[Hashable, tuple[Operation, Sequence[int]]] = {}
    for one in calls.operations:  # in the order of their invocations
        if one.outcome != "ok":
            continue
        changed: set[Hashable] = set()
        for kind, key, value in one.steps:
            if kind != "r":
                changes.setdefault(key, []).append((one, value))
                changed.add(key)
            elif key not in changed:
                last[key] = one, value if isinstance(value, tuple) else ()
    for key, own in changes.items():
        read, elements = last.get(key, (None, ()))
        if read is None or any(one.completed > read.invoked for one, _ in own):
            yield Anomaly(kind="unread", detail=f"{sort} {key}")
        elif sort == "list":
            seen = frozenset(elements)
            for one, element in own:
                if element not in seen:
                    yield _lost(calls, f"list {key}: {element}", element, one, read)


def _lost(calls: Calls, name: str, element: int, one: Operation, read: Operation) -> Anomaly:
    call, last = calls.recorded[one.index], calls.recorded[read.index]
    return Anomaly(
        kind="element_lost",
        value=element,
        invoke_ns=call.invoke_ns,
        at_ns=call.complete_ns,
        process=call.process,
        detail=f"{name} of process {call.process}, acknowledged at {seconds(call.complete_ns)}, "
        f"is missing in the read at {seconds(last.complete_ns)}",
    )


PROPERTY: Final = Property(tables=("operations",), kinds=KINDS, run_kernel=kernel)
