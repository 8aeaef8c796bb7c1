"""Counters count what was added to them: no read shows less than was acknowledged before it began, or more than anybody had asked for when it ended; none shows less than one before it.

A call of unknown end may have counted at any later moment, or never. What the system's own file permits to be lost is PERMITTED (R13). A
counter that nobody read after its last acknowledged increment says nothing of that one: it is not judged. The other ones are.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from tribunal.checkers.api import Anomaly, Found, Kind, Meaning, PartitionRows, Property, nothing
from tribunal.checkers.graphs.operations import Operation, by_key
from tribunal.checkers.judge.calls import OF_COUNTERS, Calls, by_node, calls, seconds
from tribunal.checkers.judge.promised_losses import Change, Permits, Row, found_in, missed, permitted_losses
from tribunal.checkers.judge.timeline import History, Judgement

KINDS: Final = {
    "too_low": Kind(Meaning.PROMISED, "a counter was read with less than had been acknowledged before"),
    "went_back": Kind(Meaning.PROMISED, "a counter was read with less than a read before it had shown"),
    "too_high": Kind(Meaning.VIOLATION, "a counter was read with more than anybody had added to it"),
    "unread": Kind(Meaning.UNJUDGED, "nobody read a counter after its last acknowledged increment"),
}


def kernel(run: PartitionRows, history: History) -> Found:
    """Compare each counter's reads with its increments, and with each other.

    source:  jepsen.checker/counter, of increments alone.
    """
    found = calls(run.table("operations"), OF_COUNTERS)
    if not found.operations:
        return Found(nothing())
    counters, permits = by_key(found.operations), permitted_losses(history)
    rows = [row for key, own in counters.items() for row in _Counter(str(key), own, found, permits).rows()]
    return found_in(rows, {"calls on counters": len(found.operations), "counters": len(counters)})


class _Read(msgspec.Struct, frozen=True):
    """A read and what it showed."""

    call: Operation
    value: int


class _Sums:
    """How much was added at the places before one in the history."""

    def __init__(self, added: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(added)
        self._places = [place for place, _ in ordered]
        self._sums = [0, *accumulate(amount for _, amount in ordered)]

    def before(self, place: int) -> int:
        """Return the sum of all that stands before it."""
        return self._sums[bisect_left(self._places, place)]


class _Counter:
    """One counter's history."""

    def __init__(self, key: str, own: Sequence[Operation], found: Calls, permits: Permits) -> None:
        self._key, self._found, self._permits = key, found, permits
        self._added = [one for one in own if one.function == "increment" and one.outcome != "fail"]
        self._known = [one for one in self._added if one.outcome == "ok"]
        self._reads = [
            _Read(one, one.steps[0][3] or 0) for one in own if one.function == "read-counter" and one.outcome == "ok"
        ]

    def rows(self) -> Iterator[Row]:
        """Yield what is wrong: of reads that show the same loss or the same surplus the first one."""
        acknowledged = _Sums((one.completed, _amount(one)) for one in self._known)
        asked = _Sums((one.invoked, _amount(one)) for one in self._added)
        deficit = surplus = 0
        for read in self._reads:  # in the order of their invocations
            least, most = acknowledged.before(read.call.invoked), asked.before(read.call.completed)
            if least - read.value > deficit:
                deficit = least - read.value
                words = f"{read.value}, and {least} had been acknowledged"
                yield Row(self._anomaly("too_low", read, words), self._excuse(read, deficit))
            if read.value - most > surplus:
                surplus = read.value - most
                yield Row(self._anomaly("too_high", read, f"{read.value}, and nobody had added more than {most}"))
        yield from self._gone_back(acknowledged)
        last = max((one.completed for one in self._known), default=-1)
        if self._known and not any(read.call.invoked > last for read in self._reads):
            yield Row(Anomaly(kind="unread", detail=f"counter {self._key}"))

    def _gone_back(self, acknowledged: _Sums) -> Iterator[Row]:
        """Yield reads that lack what an earlier one showed, though nobody had an acknowledgement of it."""
        begin = -1  # what was read before the last one that is named is not compared again
        highest = 0
        for number, read in enumerate(self._reads):
            earlier = None
            if read.value < highest:
                earlier = self._higher(self._reads[:number], read, begin)
            highest = max(highest, read.value)
            if earlier is None or read.value < acknowledged.before(read.call.invoked):
                continue
            begin = read.call.invoked
            before = self._found.recorded[earlier.call.index]
            words = f"{read.value}, and {earlier.value} at {seconds(before.complete_ns)}"
            yield Row(self._anomaly("went_back", read, words), self._excuse(read, 0))

    def _higher(self, reads: Sequence[_Read], than: _Read, begin: int = -1) -> _Read | None:
        """Return the last of the reads that ended before one and showed more."""
        higher = (
            one for one in reversed(reads) if begin < one.call.completed < than.call.invoked and one.value > than.value
        )
        return next(higher, None)

    def _excuse(self, read: _Read, deficit: int) -> Judgement | None:
        """Say why as much as is missing may be lost: all of the deficit, and all that an earlier read had shown more.

        What was read after a kill was not taken by it.
        """
        judgements: list[Judgement] = []
        before = [one for one in self._known if one.completed < read.call.invoked]
        if not self._covers(deficit, [self._change(one, read, None) for one in before], before, judgements):
            return None
        earlier = self._higher(self._reads[: self._reads.index(read)], read)
        if earlier is not None:
            shown = [one for one in self._added if one.invoked < earlier.call.completed]
            changes = [self._change(one, read, earlier) for one in shown]
            if not self._covers(earlier.value - read.value, changes, shown, judgements):
                return None
        return next(iter(judgements), None)

    def _covers(
        self, missing: int, changes: Sequence[Change], added: Sequence[Operation], judgements: list[Judgement]
    ) -> bool:
        """Whether the changes that may be lost come to what is missing; what permits it goes to `judgements`."""
        for change, one in zip(changes, added, strict=True):
            if missing <= 0:
                break
            judgement = self._permits(change)
            if judgement is not None:
                missing -= _amount(one)
                judgements.append(judgement)
        return missing <= 0

    def _change(self, one: Operation, lacking: _Read, seen: _Read | None) -> Change:
        """Return an increment as one that a read lacks, and an earlier one may have shown."""
        change = missed(self._found.recorded[one.index], self._found.recorded[lacking.call.index])
        if seen is None:
            return change
        read = self._found.recorded[seen.call.index]
        known = [ns for ns in (read.complete_ns, change.known_ns if one.outcome == "ok" else None) if ns is not None]
        return msgspec.structs.replace(change, known_ns=min(known, default=0), seen_ns=read.invoke_ns)

    def _anomaly(self, kind: str, read: _Read, words: str) -> Anomaly:
        call = self._found.recorded[read.call.index]
        return Anomaly(
            kind=kind, value=read.value, invoke_ns=call.invoke_ns, at_ns=call.complete_ns, process=call.process,
            detail=f"counter {self._key}: process {call.process} read{by_node(call)} at {seconds(call.complete_ns)} {words}",
        )  # fmt: skip


def _amount(one: Operation) -> int:
    amount: int = one.steps[0][2] or 0
    return amount


PROPERTY: Final = Property(tables=("operations",), kinds=KINDS, run_kernel=kernel)
