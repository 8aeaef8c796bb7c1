"""Sets keep what was added: every element whose addition was acknowledged before the last read, or that a read before it had shown, stands in it; no read shows any that nobody added.

What the system's own file permits to be lost is PERMITTED (R13). A set that nobody read after its last acknowledged addition says nothing of
that addition: it is not judged. The other ones are.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tribunal.checkers.api import Anomaly, Found, Kind, Meaning, PartitionRows, Property, nothing
from tribunal.checkers.graphs.operations import Operation, by_key
from tribunal.checkers.judge.calls import OF_SETS, Calls, by_node, calls, first_acknowledged, seconds
from tribunal.checkers.judge.promised_losses import Permits, Row, found_in, missed, of_call, permitted_losses
from tribunal.checkers.judge.timeline import History

KINDS: Final = {
    "element_lost": Kind(
        Meaning.PROMISED,
        "an element whose addition was acknowledged, or that a read had shown, is missing in the last read",
    ),
    "element_unknown": Kind(Meaning.VIOLATION, "an element was read that nobody added, or whose addition was refused"),
    "unread": Kind(Meaning.UNJUDGED, "nobody read a set after its last acknowledged addition"),
}


def kernel(run: PartitionRows, history: History) -> Found:
    """Compare each set's last read with what was added.

    source:  jepsen.checker/set.
    """
    found = calls(run.table("operations"), OF_SETS)
    if not found.operations:
        return Found(nothing())
    sets = by_key(found.operations)
    permits = permitted_losses(history)
    rows = [row for key, own in sets.items() for row in _of_set(str(key), own, found, permits)]
    return found_in(rows, {"calls on sets": len(found.operations), "sets": len(sets)})


def _of_set(key: str, own: Sequence[Operation], found: Calls, permits: Permits) -> Iterator[Row]:
    acknowledged = first_acknowledged(own, "add")
    additions = [one for one in own if one.function == "add"]
    reads = [one for one in own if one.function == "read-all" and one.outcome == "ok"]
    shown = _first_shown(reads)
    yield from _unknown(key, additions, shown, found)
    last = max(reads, key=lambda one: one.invoked, default=None)
    owed = (
        {} if last is None else {element: one for element, one in acknowledged.items() if one.completed < last.invoked}
    )
    if len(owed) < len(acknowledged):
        yield Row(Anomaly(kind="unread", detail=f"set {key}"))
    if last is None:
        return
    owed = _shown_before(last, additions, shown) | owed
    lacking = frozenset(owed.keys() - set(last.steps[0][3] or ()))
    seen = _seen_by(lacking, reads)
    for element in sorted(lacking):
        call, read = found.recorded[owed[element].index], found.recorded[last.index]
        change = missed(call, read, [found.recorded[one.index] for one in seen.get(element, ())])
        is_acknowledged = element in acknowledged and acknowledged[element].completed < last.invoked
        known_ns = call.complete_ns if is_acknowledged else change.known_ns
        words = f"set {key}: {element} of process {call.process}{by_node(call)}, {'acknowledged' if is_acknowledged else 'shown'} at {seconds(known_ns)}"
        words += f", is missing in the read at {seconds(read.complete_ns)}"
        anomaly = msgspec.structs.replace(of_call("element_lost", element, call, words), at_ns=known_ns)
        yield Row(anomaly, permits(change))


def _first_shown(reads: Sequence[Operation]) -> dict[int, Operation]:
    """Return of each element the read that was the first to end of those that show it."""
    first: dict[int, Operation] = {}
    for one in sorted(reads, key=lambda one: one.completed):
        for element in one.steps[0][3] or ():
            first.setdefault(element, one)
    return first


def _shown_before(
    last: Operation, additions: Sequence[Operation], shown: Mapping[int, Operation]
) -> dict[int, Operation]:
    """Return the additions, whatever became of them, of what a read had shown before the last one began."""
    found: dict[int, Operation] = {}
    for one in additions:
        first = shown.get(one.steps[0][2])
        if first is not None and one.outcome != "fail" and one.invoked <= first.completed < last.invoked:
            found.setdefault(one.steps[0][2], one)
    return found


def _unknown(key: str, additions: Sequence[Operation], shown: Mapping[int, Operation], found: Calls) -> Iterator[Row]:
    """Yield what some read shows, at the first of them, that nobody had added by then, or whose addition surely had no effect."""
    offered: dict[int, list[Operation]] = {}
    for one in additions:
        offered.setdefault(one.steps[0][2], []).append(one)
    for element in sorted(shown):
        own = offered.get(element, [])
        tried = [one for one in own if one.outcome != "fail"]
        if any(one.invoked <= shown[element].completed for one in tried):
            continue
        at_ns = found.recorded[shown[element].index].complete_ns
        words = f"set {key}: {element} was read at {seconds(at_ns)}, and nobody added it"
        words += " before that" if tried else ": its addition had been refused" if own else ""
        yield Row(Anomaly(kind="element_unknown", value=element, at_ns=at_ns, detail=words))


def _seen_by(elements: frozenset[int], reads: Sequence[Operation]) -> dict[int, list[Operation]]:
    """Return the reads that saw each of some elements."""
    found: dict[int, list[Operation]] = {}
    for one in reads if elements else ():
        for element in elements.intersection(one.steps[0][3] or ()):
            found.setdefault(element, []).append(one)
    return found


PROPERTY: Final = Property(tables=("operations",), kinds=KINDS, run_kernel=kernel)
