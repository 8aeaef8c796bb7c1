"""Counters count what was added to them: no read shows less than was acknowledged before it began, or more than anybody had asked for when it ended; none shows less than one before it.

A call of unknown end may have counted at any later moment, or never. Once a read has shown it, it stands in for nothing that is
acknowledged behind that read. What the system's own file permits to be lost is PERMITTED (R13). A counter that nobody read after its
last acknowledged increment says nothing of that one: it is not judged. The other ones are.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import cached_property
from itertools import accumulate
from typing import Final

import msgspec

from tribunal.checkers.api import Anomaly, Found, Kind, Meaning, PartitionRows, Property, nothing
from tribunal.checkers.graphs.operations import Operation, by_key
from tribunal.checkers.judge.calls import OF_COUNTERS, Calls, by_node, calls, seconds
from tribunal.checkers.judge.promised_losses import Change, Permits, Row, found_in, missed, permitted_losses
from tribunal.checkers.judge.timeline import History, Judgement

FOR_EVER: Final = 1 << 62
NOTHING: Final = -FOR_EVER
KINDS: Final = {
    "too_low": Kind(
        Meaning.PROMISED,
        "a counter was read with less than had been acknowledged before, or shown before and acknowledged since",
    ),
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
    """A read, what it showed, and how much less that is than all that anybody had asked for when it ended: no more was lost by then."""

    call: Operation
    value: int
    lacks: int


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
        asked = _Sums((one.invoked, _amount(one)) for one in self._added)
        self._reads = [  # in the order of their invocations
            _Read(one, value, max(0, asked.before(one.completed) - value))
            for one in own
            if one.function == "read-counter" and one.outcome == "ok"
            for value in [one.steps[0][3] or 0]
        ]
        self._asked = asked
        self._acknowledged = _Sums((one.completed, _amount(one)) for one in self._known)
        self._begun = _Sums((one.invoked, _amount(one)) for one in self._known)

    def rows(self) -> Iterator[Row]:
        """Yield what is wrong: of reads that show the same loss or the same surplus the first one."""
        deficit = surplus = 0
        too_low: set[int] = set()
        for number, read in enumerate(self._reads):
            least, most = self._acknowledged.before(read.call.invoked), self._asked.before(read.call.completed)
            if least - read.value > deficit:
                deficit = least - read.value
                too_low.add(number)
                words = f"{read.value}, and {least} had been acknowledged"
                earlier = self._owed_more(number) or self._higher(number)
                yield Row(self._anomaly("too_low", read, words), self._excuse(number, deficit, earlier))
            if read.value - most > surplus:
                surplus = read.value - most
                yield Row(self._anomaly("too_high", read, f"{read.value}, and nobody had added more than {most}"))
        yield from self._gone_back(too_low)
        last = max((one.completed for one in self._known), default=-1)
        if self._known and not any(read.call.invoked > last for read in self._reads):
            yield Row(Anomaly(kind="unread", detail=f"counter {self._key}"))

    def _gone_back(self, too_low: Set[int]) -> Iterator[Row]:
        """Yield reads that lack what an earlier one showed, or what was acknowledged behind it, but for those that are named as too low.

        A loss that is named, or permitted, leaves the counter too low for ever: that says nothing of what is lost later.
        """
        begin = -1  # what was read before the last one that is named is not compared again
        by_end = sorted(self._reads, key=lambda one: one.call.completed)
        ended = highest = 0
        shown = NOTHING  # the most that a read showed beyond what was being acknowledged until it ended
        for number, read in enumerate(self._reads):
            while ended < len(by_end) and by_end[ended].call.completed < read.call.invoked:
                highest = max(highest, by_end[ended].value)
                shown = max(shown, self._shown(by_end[ended]) - self._begun.before(by_end[ended].call.completed))
                ended += 1
            is_back = read.value < highest
            is_low = shown + self._acknowledged.before(read.call.invoked) > read.value
            if number not in too_low and is_back:
                yield from self._lacking("went_back", number, self._higher(number, begin))
            elif number not in too_low and is_low:
                yield from self._lacking("too_low", number, self._owed_more(number, begin))
            if is_back or is_low or number in too_low:
                begin, highest, shown = read.call.invoked, 0, NOTHING

    def _lacking(self, kind: str, number: int, earlier: _Read | None) -> Iterator[Row]:
        """Yield a read that lacks what an earlier one showed, or what was acknowledged since."""
        if earlier is None:
            return
        read, before = self._reads[number], self._found.recorded[earlier.call.index]
        since = self._since(earlier, read)
        words = f"{read.value}, and {earlier.value} at {seconds(before.complete_ns)}"
        words += f" and {since} acknowledged since" if kind == "too_low" else ""
        yield Row(self._anomaly(kind, read, words), self._excuse(number, 0, earlier))

    def _higher(self, number: int, begin: int = -1) -> _Read | None:
        """Return the last of the reads that ended before one and showed more."""
        than = self._reads[number]
        higher = (one for one in self._before(number) if begin < one.call.completed and one.value > than.value)
        return next(higher, None)

    def _owed_more(self, number: int, begin: int = -1) -> _Read | None:
        """Return the last of the reads that ended before one and showed more than it, together with what was acknowledged since."""
        than = self._reads[number]
        before = (one for one in self._before(number) if begin < one.call.completed)
        return next((one for one in before if self._shown(one) + self._since(one, than) > than.value), None)

    def _shown(self, read: _Read) -> int:
        """Return what a read showed; where that is more than anybody had asked for, what had been asked for."""
        return min(read.value, self._asked.before(read.call.completed))

    def _since(self, earlier: _Read, read: _Read) -> int:
        """Return how much was asked for behind one read, and acknowledged before another one began; at least: what a read overlaps is left out."""
        return self._acknowledged.before(read.call.invoked) - self._begun.before(earlier.call.completed)

    def _before(self, number: int) -> Iterator[_Read]:
        """Yield the reads that ended before one began, the last first."""
        invoked = self._reads[number].call.invoked
        earlier = (self._reads[place] for place in range(number - 1, -1, -1))
        return (one for one in earlier if one.call.completed < invoked)

    def _excuse(self, number: int, deficit: int, earlier: _Read | None) -> Judgement | None:
        """Say why as much as is missing may be lost: all of the deficit, and all that an earlier read had shown more, or was acknowledged since.

        What was read after a kill was not taken by it: by then no more was lost than that read lacked.
        """
        read = self._reads[number]
        judgements: list[Judgement] = []
        before = [one for one in self._may_be_lost if one.completed < read.call.invoked]
        if not self._covers(deficit, [self._change(one, read) for one in before], before, judgements):
            return None
        for seen in self._fullest(number):
            seen_ns = self._found.recorded[seen.call.index].invoke_ns
            changes = [msgspec.structs.replace(self._change(one, read), seen_ns=seen_ns) for one in before]
            if not self._covers(deficit - seen.lacks, changes, before, judgements):
                return None
        if earlier is not None:
            shown = [one for one in self._may_be_lost if one.invoked < earlier.call.completed]
            since = [one for one in before if one.invoked > earlier.call.completed]
            changes = [
                *(self._change(one, read, earlier) for one in shown),
                *(self._change(one, read) for one in since),
            ]
            least = max(earlier.value, self._shown(earlier) + self._since(earlier, read))
            if not self._covers(least - read.value, changes, [*shown, *since], judgements):
                return None
        return next(iter(judgements), None)

    def _fullest(self, number: int) -> Iterator[_Read]:
        """Yield the reads that ended before one began and lacked less than all between them: the others bound no loss further."""
        least: int | None = None
        for one in self._before(number):
            if least is None or one.lacks < least:
                least = one.lacks
                yield one

    @cached_property
    def _may_be_lost(self) -> list[Operation]:
        """The increments that any kill may have taken: few, and looked for once."""
        found = self._found.recorded
        return [
            one
            for one in self._added
            if self._permits(
                Change(
                    invoked_ns=found[one.index].invoke_ns,
                    known_ns=FOR_EVER if one.outcome != "ok" else found[one.index].complete_ns or 0,
                    seen_ns=None,
                    missed_ns=FOR_EVER,
                )
            )
        ]

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

    def _change(self, one: Operation, lacking: _Read, *seen_by: _Read) -> Change:
        """Return an increment as one that a read lacks, and earlier ones may have shown."""
        found = self._found.recorded
        seen = [found[read.call.index] for read in seen_by]
        return missed(found[one.index], found[lacking.call.index], seen)

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
