"""Queues give out what was put in: every element whose enqueueing was acknowledged, none that nobody put in, and none again that was acknowledged.

An element may be given out several times until it is acknowledged, and has to be once more when it is given back. A queue that nobody took from until it was empty, after what is not acknowledged was
given back to it, says nothing of what it still holds: what nobody received is not judged. An element whose enqueueing was not acknowledged is owed to nobody,
also where it was given out: queues give out what they have, and promise what they have confirmed. What the system's own file permits to be lost is
PERMITTED (R13), an enqueueing as well as an acknowledgement; of what was given out after a kill the kill took nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tribunal.checkers.api import Anomaly, Found, Kind, Meaning, PartitionRows, Property, nothing
from tribunal.checkers.graphs.operations import Operation, by_key
from tribunal.checkers.judge.calls import OF_QUEUES, Calls, by_node, calls, first_acknowledged, seconds
from tribunal.checkers.judge.promised_losses import Permits, Row, found_in, missed, of_call, permitted_losses
from tribunal.checkers.judge.timeline import History

KINDS: Final = {
    "element_lost": Kind(
        Meaning.PROMISED, "an element whose enqueueing was acknowledged is gone, and nobody acknowledged it"
    ),
    "element_again": Kind(Meaning.PROMISED, "an element was given out again after its acknowledgement"),
    "element_unknown": Kind(Meaning.VIOLATION, "an element was given out that nobody had put in"),
    "unaccounted": Kind(Meaning.UNJUDGED, "elements are missing, and calls of unknown end may have taken them"),
    "not_emptied": Kind(Meaning.UNJUDGED, "nobody took from a queue until it was empty"),
}


def kernel(run: PartitionRows, history: History) -> Found:
    """Compare what was put into each queue with what came out."""
    found = calls(run.table("operations"), OF_QUEUES)
    if not found.operations:
        return Found(nothing())
    queues, permits = by_key(found.operations), permitted_losses(history)
    rows = [row for key, own in queues.items() for row in _of_queue(str(key), own, found, permits)]
    return found_in(rows, {"calls on queues": len(found.operations), "queues": len(queues)})


def _of_queue(key: str, own: Sequence[Operation], found: Calls, permits: Permits) -> Iterator[Row]:
    given: dict[int, list[Operation]] = {}
    tried: dict[int, Operation] = {}  # by which each was put in at first, other than in vain
    for one in own:
        if one.function == "dequeue" and one.outcome == "ok" and isinstance(one.steps[0][3], int):
            given.setdefault(one.steps[0][3], []).append(one)
        elif one.function == "enqueue" and one.outcome != "fail":
            tried.setdefault(one.steps[0][2], one)
    first_given = {element: min(takers, key=lambda one: one.completed) for element, takers in given.items()}
    there = {
        element for element, one in tried.items() if element in given and one.invoked <= first_given[element].completed
    }
    yield from _never_given(key, own, first_acknowledged(own, "enqueue"), given, found, permits)
    yield from _given_again(key, own, given, found, permits)
    for element in sorted(given.keys() - there):
        call = found.recorded[first_given[element].index]
        words = f"queue {key}: {element} was given out at {seconds(call.complete_ns)}, and nobody had put it in"
        yield Row(
            Anomaly(kind="element_unknown", value=element, at_ns=call.complete_ns, process=call.process, detail=words)
        )


def _never_given(
    key: str,
    own: Sequence[Operation],
    put: dict[int, Operation],
    given: dict[int, list[Operation]],
    found: Calls,
    permits: Permits,
) -> Iterator[Row]:
    """Yield what nobody received, where a queue was empty after everything that was not acknowledged had been given back."""
    back = [one for one in own if one.function == "redeliver" and one.outcome == "ok"]
    changes = [one.completed for one in own if one.function == "enqueue" and one.outcome == "ok"]
    last = max(back, key=lambda one: one.invoked, default=None)
    empty = None
    if last is not None and last.invoked > max(changes, default=-1):
        empty = next((one for one in own if _is_empty(one) and one.invoked > last.completed), None)
    if empty is None:
        if changes:
            yield Row(Anomaly(kind="not_emptied", detail=f"queue {key}"))
        return
    assert last is not None
    gone, kept = _gone(own, put, given, last, found)
    if kept:
        words = f"queue {key}: {len(kept)} were given out before the last redelivery to who went on calling, and may be kept by them"
        yield Row(Anomaly(kind="unaccounted", value=kept[0], detail=words))
    rows = [_lost(key, put[element], given.get(element, ()), found, empty, permits) for element in gone]
    yield from (row for row in rows if row.judgement is not None)
    rest = [row for row in rows if row.judgement is None]
    doubtful = sum(one.function == "dequeue" and one.outcome == "info" for one in own)
    if len(rest) > doubtful:  # each of those may have taken one
        yield from rest
    elif rest:
        words = (
            f"queue {key}: {len(rest)} are missing, and {doubtful} calls that may have taken one have an unknown end"
        )
        yield Row(Anomaly(kind="unaccounted", value=rest[0].anomaly.value, detail=words))


def _gone(
    own: Sequence[Operation],
    put: Mapping[int, Operation],
    given: Mapping[int, Sequence[Operation]],
    last: Operation,
    found: Calls,
) -> tuple[list[int], list[int]]:
    """Return what was put in, is not acknowledged as far as anybody knows, and did not come again after all had been given back; and of it what somebody may still keep.

    Where a redelivery gives back what its own caller holds and what those hold that are gone (channels of AMQP), who goes on calling keeps its own.
    """
    done_with = {one.steps[0][2] for one in own if one.function == "acknowledge" and one.outcome != "fail"}
    calling = {one.process for one in found.operations if one.invoked > last.completed} - {last.process}
    gone: list[int] = []
    kept: list[int] = []
    for element in sorted(put.keys() - done_with):
        takers = given.get(element, ())
        if not any(taken.completed > last.invoked for taken in takers):
            (kept if any(taken.process in calling for taken in takers) else gone).append(element)
    return gone, kept


def _lost(
    key: str, one: Operation, takers: Sequence[Operation], found: Calls, empty: Operation, permits: Permits
) -> Row:
    """Return an element that is gone: it was acknowledged, and still there when it was given out last."""
    call, seen = found.recorded[one.index], found.recorded[empty.index]
    change = missed(call, seen, [found.recorded[taken.index] for taken in takers])
    words = f"queue {key}: {one.steps[0][2]} of process {call.process}{by_node(call)}, acknowledged at {seconds(call.complete_ns)}"
    words += f", is gone: the queue was empty at {seconds(seen.complete_ns)}"
    return Row(of_call("element_lost", one.steps[0][2], call, words), permits(change))


def _is_empty(one: Operation) -> bool:
    return one.function == "dequeue" and one.outcome == "ok" and one.steps[0][3] is None


def _given_again(
    key: str, own: Sequence[Operation], given: dict[int, list[Operation]], found: Calls, permits: Permits
) -> Iterator[Row]:
    """Yield what was asked for after it had been acknowledged, and came."""
    for one in own:
        if one.function != "acknowledge" or one.outcome != "ok":
            continue
        element = one.steps[0][2]
        again = next((taken for taken in given.get(element, ()) if taken.invoked > one.completed), None)
        if again is None:
            continue
        call, other = found.recorded[one.index], found.recorded[again.index]
        words = f"queue {key}: {element} was acknowledged by process {call.process}{by_node(call)} at {seconds(call.complete_ns)}"
        words += f" and given out again to process {other.process}{by_node(other)} at {seconds(other.complete_ns)}"
        yield Row(of_call("element_again", element, call, words), permits(missed(call, other)))


PROPERTY: Final = Property(tables=("operations",), kinds=KINDS, run_kernel=kernel)
