"""Transactions on lists and registers keep the consistency that the system promises, and lists keep what was acknowledged.

Which consistency that is, the system's file says (`[promises] consistency`); where nobody said it, the strictest. Lists show their whole
history, registers one version: their order follows from what transactions read before they wrote, and from time where the model has it.
What the file permits to be lost from lists is PERMITTED (R13), and so is an order that only lost elements disturb.
What is written twice to one object, nobody can tell apart: of its order nothing is said. A list that nobody read after its last acknowledged append says nothing of that append: it is not judged. Whether a write of a
register was lost shows only under a model with real time; lists show it under any.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from typing import Final

import msgspec

from tribunal.checkers.api import Anomaly, Found, Kind, Meaning, PartitionRows, Property
from tribunal.checkers.graphs import list_append, rw_register
from tribunal.checkers.graphs.findings import Findings, Witness
from tribunal.checkers.graphs.models import RULES_OUT, forbids, ruled_out
from tribunal.checkers.graphs.operations import OPEN_END, Operation, Step
from tribunal.checkers.judge.calls import Calls, by_node, seconds, transactions
from tribunal.checkers.judge.lost_orders import is_of_order, split
from tribunal.checkers.judge.promised_losses import Permits, Row, found_in, missed, of_call, permitted_losses
from tribunal.checkers.judge.timeline import History, Judgement
from tribunal.checkers.properties.transactions import SENTENCES
from tribunal.results.manifest import PROMISED
from tribunal.results.object_transactions import LISTS, REGISTERS
from tribunal.results.verdict import Detail

STRICTEST: Final = "strict-serializable"
OWN_SENTENCES: Final = {
    "cyclic-versions": "two versions of a register each have to come before the other",
    "lost-update": "two transactions read the same version and both replaced it",
}
KINDS: Final = {
    **{
        name: Kind(
            Meaning.VIOLATION,
            (SENTENCES | OWN_SENTENCES).get(name, f"transactions depend on each other in a circle ({name})"),
        )
        for name in RULES_OUT
    },
    "element_lost": Kind(Meaning.PROMISED, "an element whose append was acknowledged is missing in the last read"),
    "ambiguous": Kind(Meaning.UNJUDGED, "a value was written twice, and nobody knows which of the two a read saw"),
    "undecided": Kind(Meaning.UNJUDGED, "the search for a circle took more than its budget"),
    "unread": Kind(Meaning.UNJUDGED, "nobody read an object after its last acknowledged change"),
}


def kernel(run: PartitionRows, history: History) -> Found:
    """Judge transactions on lists and those on registers, each by the same model.

    source:  Adya 1999; Alvaro and Kingsbury, "Elle" (2020).
    """
    lists, registers = transactions(run.table("operations"), (LISTS, REGISTERS))
    model = str(history.settings.get(f"{PROMISED}consistency", STRICTEST))
    found: list[Row] = []
    figures = {}
    if lists.operations:
        figures["transactions on lists"] = len(lists.operations)
        found += _of_lists(lists, model, permitted_losses(history))
    if registers.operations:
        figures["transactions on registers"] = len(registers.operations)
        unambiguous, doubled = _unambiguous(registers.operations, "register")
        found += [*_circles(registers, _registers(unambiguous, model)), *doubled]
        found += [Row(_unread("register", key)) for key, last in _last_reads(registers).items() if last.is_too_early]
    return found_in(found, figures)


def _unambiguous(operations: Sequence[Operation], sort: str) -> tuple[Sequence[Operation], list[Row]]:
    """Return transactions without the objects to which a value was written twice, and those objects: our workloads write each value once."""
    written = Counter((key, value) for one in operations for kind, key, value in one.steps if kind != "r")
    doubled = {key: value for (key, value), count in written.items() if count > 1}
    if not doubled:
        return operations, []
    kept = [
        msgspec.structs.replace(one, steps=tuple(step for step in one.steps if step[1] not in doubled))
        for one in operations
    ]
    return kept, [Row(Anomaly(kind="ambiguous", detail=f"{value} of {sort} {key}")) for key, value in doubled.items()]


class _LastRead(msgspec.Struct, frozen=True):
    """An object's last read, and whether a change of it was acknowledged after that read had begun."""

    read: Operation | None
    elements: frozenset[int]
    is_too_early: bool


def _registers(operations: Sequence[Operation], model: str) -> Findings:
    return rw_register.check(
        operations,
        model,
        writes_follow_reads=True,
        sequential_keys=forbids(model, "G0-process"),
        linearizable_keys=forbids(model, "G0-realtime"),
    )


def _of_lists(lists: Calls, model: str, permits: Permits) -> Iterator[Row]:
    """Judge lists; what follows from the order of elements that were permitted to be lost (as R10) is permitted with them."""
    last = _last_reads(lists)
    yield from (Row(_unread("list", key)) for key, one in last.items() if one.is_too_early)
    lost = list(_lost(lists, last, permits))
    unambiguous, doubled = _unambiguous(lists.operations, "list")
    yield from doubled
    found = list_append.check(unambiguous, model)
    taken = {(one.key, one.element): one.judgement for one in lost if one.judgement is not None}
    if taken and any(map(is_of_order, found.counts)):
        found, permitted = split(found, list_append.check(_without(unambiguous, taken.keys()), model))
        first = min(taken.values(), key=lambda one: one.at_ns or 0)
        for row in _circles(lists, permitted):
            yield msgspec.structs.replace(row, judgement=first)
    yield from _circles(lists, found)
    yield from (Row(_missing(lists, one), judgement=one.judgement) for one in lost if one.is_acknowledged)


def _without(operations: Sequence[Operation], gone: Set[tuple[Hashable, int]]) -> list[Operation]:
    """Return the transactions as if some elements had never been appended."""

    def steps(one: Operation) -> Iterator[Step]:
        for kind, key, value in one.steps:
            if kind == "r":
                yield kind, key, value and tuple(element for element in value if (key, element) not in gone)
            elif (key, value) not in gone:
                yield kind, key, value

    return [msgspec.structs.replace(one, steps=tuple(steps(one))) for one in operations]


def _circles(calls: Calls, found: Findings) -> Iterator[Row]:
    for kind, witnesses in found.witnesses.items():
        weakest, _ = ruled_out([kind])
        for place, witness in enumerate(witnesses):
            more = "" if place else _more(found.counts[kind] - len(witnesses))
            words = _words(calls, witness) + (f"; rules out {', '.join(weakest)}" if weakest else "") + more
            first = calls.recorded[witness.operations[0]] if witness.operations else None
            yield Row(
                Anomaly(
                    kind=kind,
                    invoke_ns=None if first is None else first.invoke_ns,
                    at_ns=None if first is None else first.complete_ns,
                    process=None if first is None else first.process,
                    detail=words,
                ),
                detail=Detail(edges=witness.edges or None, rules_out=tuple(weakest) or None),
            )
    if found.undecided:
        yield Row(Anomaly(kind="undecided", detail=", ".join(sorted(set(found.undecided)))))


def _more(count: int) -> str:
    return f" ({count} more like this)" if count > 0 else ""


def _words(calls: Calls, witness: Witness) -> str:
    """Say what was found, and behind it what the transactions did."""
    shown = [
        f"T{place} of process {call.process}{by_node(call)}, {seconds(call.invoke_ns)} to {seconds(call.complete_ns)}: "
        + (call.result if call.outcome == "ok" and call.result else f"{call.argument or ''} ({call.outcome})")
        for place in dict.fromkeys(witness.operations)
        for call in [calls.recorded[place]]
    ]
    return "; ".join([witness.words, *shown])


def _unread(sort: str, key: Hashable) -> Anomaly:
    return Anomaly(kind="unread", detail=f"{sort} {key}")


def _last_reads(calls: Calls) -> dict[Hashable, _LastRead]:
    """Return the last read of each object that an acknowledged transaction changed; it saw nothing of its own changes."""
    changed: dict[Hashable, int] = {}
    last: dict[Hashable, tuple[Operation, Sequence[int]]] = {}
    for one in calls.operations:  # in the order of their invocations
        own: set[Hashable] = set()
        for kind, key, value in one.steps if one.outcome == "ok" else ():
            if kind != "r":
                own.add(key)
                changed[key] = max(changed.get(key, 0), one.completed)
            elif key not in own:
                last[key] = one, value if isinstance(value, tuple) else ()
    found = {}
    for key, completed in changed.items():
        read, elements = last.get(key, (None, ()))
        found[key] = _LastRead(read, frozenset(elements), read is None or completed > read.invoked)
    return found


class _Lost(msgspec.Struct, frozen=True, kw_only=True):
    """An element that the last read of its list lacks: it was acknowledged, or seen by somebody."""

    key: Hashable
    element: int
    writer: Operation
    read: Operation
    is_acknowledged: bool
    judgement: Judgement | None


def _lost(calls: Calls, last: Mapping[Hashable, _LastRead], permits: Permits) -> Iterator[_Lost]:
    """Yield what lists lack; permitted is only what went with all of its transaction, and of which nobody who is still there knew."""
    seen = _seen(calls)
    ends_of = {element: [reader.completed for reader in readers] for element, readers in seen.items()}
    missing: dict[int, list[tuple[Hashable, int, _LastRead]]] = {}
    kept: set[int] = set()  # transactions some of whose appends are there
    for one in calls.operations:
        for kind, key, value in one.steps if one.outcome != "fail" else ():
            end = last.get(key)
            if kind == "r" or end is None or end.read is None:
                continue
            known = (one.completed if one.outcome == "ok" else OPEN_END, *ends_of.get((key, value), ()))
            if value in end.elements:
                kept.add(one.index)
            elif min(known) < end.read.invoked:  # (an append beside that read is not owed to it)
                missing.setdefault(one.index, []).append((key, value, end))
    by_index = {one.index: one for one in calls.operations}
    for index, own in missing.items():
        writer, call = by_index[index], calls.recorded[index]
        for key, element, end in own:
            assert end.read is not None
            readers = seen.get((key, element), [])
            change = missed(call, calls.recorded[end.read.index], [calls.recorded[reader.index] for reader in readers])
            is_whole = index not in kept and not any(reader.index in kept for reader in readers)
            yield _Lost(
                key=key,
                element=element,
                writer=writer,
                read=end.read,
                is_acknowledged=writer.outcome == "ok",
                judgement=permits(change) if is_whole else None,
            )


def _seen(calls: Calls) -> dict[tuple[Hashable, int], list[Operation]]:
    """Return who read each element, but for its own transaction."""
    found: dict[tuple[Hashable, int], list[Operation]] = {}
    for one in calls.operations:
        own = {(key, value) for kind, key, value in one.steps if kind != "r"}
        for kind, key, value in one.steps if one.outcome == "ok" else ():
            for element in (value or ()) if kind == "r" else ():
                if (key, element) not in own:
                    found.setdefault((key, element), []).append(one)
    return found


def _missing(calls: Calls, one: _Lost) -> Anomaly:
    call, last = calls.recorded[one.writer.index], calls.recorded[one.read.index]
    words = f"list {one.key}: {one.element} of process {call.process}{by_node(call)}, acknowledged at {seconds(call.complete_ns)}"
    words += f", is missing in the read at {seconds(last.complete_ns)}"
    return of_call("element_lost", one.element, call, words)


PROPERTY: Final = Property(tables=("operations",), kinds=KINDS, run_kernel=kernel)
