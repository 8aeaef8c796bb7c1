"""Sets keep what was added: every element whose addition was acknowledged before the last read stands in it; no read shows any that nobody added.

What the system's own file permits to be lost is PERMITTED (R13). A set that nobody read after its last acknowledged addition says nothing of
that addition: it is not judged. The other ones are.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from tribunal.checkers.api import Anomaly, Found, Kind, Meaning, PartitionRows, Property, nothing
from tribunal.checkers.graphs.operations import Operation, by_key
from tribunal.checkers.judge.calls import OF_SETS, Calls, by_node, calls, first_acknowledged, seconds
from tribunal.checkers.judge.promised_losses import Permits, Row, found_in, missed, of_call, permitted_losses
from tribunal.checkers.judge.timeline import History

KINDS: Final = {
    "element_lost": Kind(Meaning.PROMISED, "an element whose addition was acknowledged is missing in the last read"),
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
    reads = [one for one in own if one.function == "read-all" and one.outcome == "ok"]
    yield from _unknown(key, [one for one in own if one.function == "add"], reads, found)
    last = max(reads, key=lambda one: one.invoked, default=None)
    owed = (
        {} if last is None else {element: one for element, one in acknowledged.items() if one.completed < last.invoked}
    )
    if len(owed) < len(acknowledged):
        yield Row(Anomaly(kind="unread", detail=f"set {key}"))
    if last is None:
        return
    read = found.recorded[last.index]
    for element in sorted(owed.keys() - set(last.steps[0][3] or ())):
        call = found.recorded[owed[element].index]
        words = f"set {key}: {element} of process {call.process}{by_node(call)}, acknowledged at {seconds(call.complete_ns)}"
        words += f", is missing in the read at {seconds(read.complete_ns)}"
        change = missed(call, read, _seen_ns(element, reads, found))
        yield Row(of_call("element_lost", element, call, words), permits(change))


def _unknown(key: str, additions: Sequence[Operation], reads: Sequence[Operation], found: Calls) -> Iterator[Row]:
    """Yield what some read shows, at the first of them, that nobody had added by then, or whose addition surely had no effect."""
    first: dict[int, Operation] = {}
    for one in sorted(reads, key=lambda one: one.completed):
        for element in one.steps[0][3] or ():
            first.setdefault(element, one)
    offered: dict[int, list[Operation]] = {}
    for one in additions:
        offered.setdefault(one.steps[0][2], []).append(one)
    for element in sorted(first):
        own = offered.get(element, [])
        tried = [one for one in own if one.outcome != "fail"]
        if any(one.invoked <= first[element].completed for one in tried):
            continue
        at_ns = found.recorded[first[element].index].complete_ns
        words = f"set {key}: {element} was read at {seconds(at_ns)}, and nobody added it"
        words += " before that" if tried else ": its addition had been refused" if own else ""
        yield Row(Anomaly(kind="element_unknown", value=element, at_ns=at_ns, detail=words))


def _seen_ns(element: int, reads: Sequence[Operation], found: Calls) -> int | None:
    """Return when the last read that saw an element began."""
    seen = [found.recorded[one.index].invoke_ns for one in reads if element in (one.steps[0][3] or ())]
    return max(seen, default=None)


PROPERTY: Final = Property(tables=("operations",), kinds=KINDS, run_kernel=kernel)
