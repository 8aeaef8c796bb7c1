"""Streams keep what was acknowledged where it stands: nothing is lost, made up, repeated, passed over, or put before what was acknowledged earlier; an offset has one element.

What is acknowledged by all that the system promises (`publish`) has to stand where the stream is read to its end; so has what one node alone acknowledged (`publish-one`),
unless the system's own file permits its loss (R16); what nobody acknowledges (`publish-none`) is owed to nobody. A stream that nobody read from its first
offset to its end after the last acknowledgement says nothing of what was acknowledged behind that reading's beginning. Of one where nothing was acknowledged somebody
has to have read so behind the last publication: else nothing of it was judged.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from tribunal.checkers.api import Anomaly, Found, Kind, Meaning, PartitionRows, Property, nothing
from tribunal.checkers.graphs.operations import OPEN_END, Operation, by_key
from tribunal.checkers.judge.calls import ACKNOWLEDGED, OF_STREAMS, PUBLISHING, Calls, by_node, calls, seconds
from tribunal.checkers.judge.promised_losses import (
    Change,
    Row,
    found_in,
    missed,
    of_call,
    permitted_losses,
    permitted_losses_of_one,
)
from tribunal.checkers.judge.timeline import History, Judgement
from tribunal.results.object_values import Entry
from tribunal.results.rows import ObjectCall

KINDS: Final = {
    "element_lost": Kind(
        Meaning.PROMISED,
        "an element whose publication was acknowledged is missing where a stream was read to its end",
    ),
    "entry_changed": Kind(Meaning.PROMISED, "two reads saw different elements at one offset"),
    "element_twice": Kind(Meaning.PROMISED, "an element that was published once stands at two offsets"),
    "element_unknown": Kind(
        Meaning.VIOLATION, "an element was read that nobody published, or whose publication was refused"
    ),
    "offset_wrong": Kind(Meaning.VIOLATION, "an element stands at another offset than its acknowledgement said"),
    "offsets_back": Kind(
        Meaning.VIOLATION, "a read shows an offset before the one it was to begin at, or offsets that do not ascend"
    ),
    "out_of_order": Kind(
        Meaning.VIOLATION,
        "an element stands before one whose publication had been acknowledged before its own was asked for",
    ),
    "passed_over": Kind(Meaning.VIOLATION, "a read passed over an element that stood there, and stands there yet"),
    "unread": Kind(
        Meaning.UNJUDGED,
        "nobody read a stream from its beginning to its end after its last acknowledged publication (or the last one, where none was)",
    ),
}
LEVEL_ONE: Final = "publish-one"
Excuses = Callable[[Operation, Change, Sequence[ObjectCall]], Judgement | None]


class _Reading(msgspec.Struct, frozen=True):
    """Reads of one process that follow each other from the first offset to the end: what they saw, by offset."""

    first: Operation
    last: Operation
    entries: Mapping[int, int]


def kernel(run: PartitionRows, history: History) -> Found:
    """Compare what was published to each stream with what readers saw, entry by entry."""
    found = calls(run.table("operations"), OF_STREAMS)
    if not found.operations:
        return Found(nothing())
    streams, excuses = by_key(found.operations), _excuses(history, found)
    rows = [row for key, own in streams.items() for row in _Stream(str(key), own, found, excuses).judged()]
    return found_in(rows, {"calls on streams": len(found.operations), "streams": len(streams)})


def _excuses(history: History, found: Calls) -> Excuses:
    """Return what says whether the loss of an element is permitted; the last argument is who saw it."""
    of_all, of_one = permitted_losses(history), permitted_losses_of_one(history)

    def excused(one: Operation, change: Change, seen_by: Sequence[ObjectCall]) -> Judgement | None:
        if (judgement := of_all(change)) is not None:
            return judgement
        if one.function == "publish" and one.outcome == "ok":
            return None
        own = found.recorded[one.index]
        return of_one(change, {call.answered_by for call in (own, *seen_by) if call.answered_by is not None})

    return excused


class _Stream:
    """One stream's calls."""

    def __init__(self, key: str, own: Sequence[Operation], found: Calls, excuses: Excuses) -> None:
        self._key = key
        self._found = found
        self._excuses = excuses
        self._reads = [one for one in own if one.function == "read-stream" and one.outcome == "ok"]
        self._published: dict[int, Operation] = {}  # by element, other than in vain
        self._refused: set[int] = set()
        for one in own:
            if one.function in PUBLISHING and one.outcome == "fail":
                self._refused.add(one.steps[0][2])
            elif one.function in PUBLISHING:
                self._published.setdefault(one.steps[0][2], one)
        self._acknowledged = {
            element: one
            for element, one in self._published.items()
            if one.function in ACKNOWLEDGED and one.outcome == "ok"
        }
        # Of each entry the reads that saw it first: the one that ended first, and the one that began last.
        self._shown: dict[Entry, Operation] = {}
        self._shown_last: dict[Entry, Operation] = {}
        for one in sorted(self._reads, key=lambda one: one.completed):
            for entry in _entries(one):
                self._shown.setdefault(entry, one)
                last = self._shown_last.get(entry)
                if last is None or one.invoked > last.invoked:
                    self._shown_last[entry] = one

    def judged(self) -> Iterator[Row]:
        """Yield what is wrong with it."""
        yield from self._offsets_back()
        yield from self._unknown()
        yield from self._changed()
        reading = max(_readings(self._reads), key=lambda one: one.first.invoked, default=None)
        yield from self._twice(reading)
        owed_since = max((one.completed for one in self._acknowledged.values()), default=None)
        if owed_since is None:  # nothing is owed, and nothing was judged where nobody looked behind all of it
            owed_since = max((one.invoked for one in self._published.values()), default=None)
        if owed_since is not None and (reading is None or reading.first.invoked < owed_since):
            yield Row(Anomaly(kind="unread", detail=f"stream {self._key}"))
        if reading is not None:
            yield from self._lost(reading)
            yield from self._wrong_offsets(reading)
            yield from self._out_of_order(reading)
            yield from self._passed_over(reading)

    def _call(self, one: Operation) -> ObjectCall:
        return self._found.recorded[one.index]

    def _by(self, one: Operation) -> str:
        call = self._call(one)
        return f"process {call.process}{by_node(call)}"

    def _offsets_back(self) -> Iterator[Row]:
        for one in self._reads:
            before = (one.steps[0][2] or 0) - 1
            for offset, element in _entries(one):
                if offset <= before:
                    call = self._call(one)
                    words = f"stream {self._key}: the read of {self._by(one)} from {one.steps[0][2] or 0} on shows {element} at {offset}, behind {before}"
                    yield Row(of_call("offsets_back", element, call, words))
                    break
                before = offset

    def _unknown(self) -> Iterator[Row]:
        for (offset, element), one in sorted(self._shown.items()):
            published = self._published.get(element)
            if published is not None and published.invoked <= one.completed:
                continue
            call = self._call(one)
            words = f"stream {self._key}: {element} was read at {offset} at {seconds(call.complete_ns)}, and nobody had published it"
            words += ": its publication was refused" if published is None and element in self._refused else ""
            yield Row(of_call("element_unknown", element, call, words))

    def _changed(self) -> Iterator[Row]:
        by_offset: dict[int, list[int]] = {}
        for offset, element in self._shown:
            by_offset.setdefault(offset, []).append(element)
        for offset, elements in sorted(by_offset.items()):
            for before, after, by in self._replaced(offset, elements):
                was, now = self._call(self._shown[offset, before]), self._call(by)
                words = f"stream {self._key}: at {offset} {before} was read by {self._by(self._shown[offset, before])} at {seconds(was.complete_ns)},"
                words += f" and {after} by {self._by(by)} at {seconds(now.complete_ns)}"
                yield Row(of_call("entry_changed", before, was, words), self._excused_change((offset, before), now))

    def _replaced(self, offset: int, elements: Sequence[int]) -> Iterator[tuple[int, int, Operation]]:
        """Yield of an offset's elements, in the order in which they were shown, each that does not stand there in the end; what does instead, and who saw that.

        A node that was cut off may show what it alone has when others have shown already what stays.
        """
        stands = max(elements, key=lambda element: self._shown_last[offset, element].invoked)
        for before, after in pairwise([*elements, stands]):
            if before != stands:
                by = self._shown_last if before == elements[-1] else self._shown
                yield before, after, by[offset, after]

    def _excused_change(self, entry: Entry, now: ObjectCall) -> Judgement | None:
        published = self._published.get(entry[1])
        if published is None:
            return None
        seen_by = [self._call(self._shown[entry]), self._call(self._shown_last[entry])]
        return self._excuses(published, missed(self._call(published), now, seen_by), seen_by)

    def _twice(self, reading: _Reading | None) -> Iterator[Row]:
        first: dict[int, int] = {}
        for (offset, element), one in sorted(self._shown.items(), key=lambda shown: shown[1].completed):
            if first.setdefault(element, offset) != offset:
                call = self._call(one)
                words = f"stream {self._key}: {element} stands at {first[element]}, and in the read of {self._by(one)} at {seconds(call.complete_ns)} at {offset}"
                excused = None if reading is None else self._excused_places(element, (first[element], offset), reading)
                yield Row(of_call("element_twice", element, call, words), excused)

    def _excused_places(self, element: int, offsets: Sequence[int], reading: _Reading) -> Judgement | None:
        """Return what permits that an element stands no more where it was shown, at each of these offsets but for one where it stands in the end; None: nothing, or it stands at all."""
        gone = [offset for offset in offsets if reading.entries.get(offset) != element]
        found = [self._excused_change((offset, element), self._call(reading.last)) for offset in gone]
        return None if None in found else next(iter(found), None)

    def _lost(self, reading: _Reading) -> Iterator[Row]:
        there = set(reading.entries.values())
        end = self._call(reading.last)
        places: dict[int, list[Entry]] = {}  # at which those that are missing were seen
        for entry in self._shown:
            if entry[1] not in there:
                places.setdefault(entry[1], []).append(entry)
        for element, one in self._acknowledged.items():
            if element in there or one.completed >= reading.first.invoked:
                continue
            shown_by = [shown[entry] for shown in (self._shown, self._shown_last) for entry in places.get(element, ())]
            if any(read.invoked > reading.last.completed for read in shown_by):
                continue  # it is there: who read to the end was answered by a node that did not have it yet
            call, seen_by = self._call(one), [self._call(read) for read in shown_by]
            words = f"stream {self._key}: {element} of {self._by(one)}, acknowledged at {seconds(call.complete_ns)}"
            words += " by one node" if one.function == LEVEL_ONE else ""
            words += f", is missing where the stream was read to its end at {seconds(end.complete_ns)}"
            excused = self._excuses(one, missed(call, end, seen_by), seen_by)
            yield Row(of_call("element_lost", element, call, words), excused)

    def _wrong_offsets(self, reading: _Reading) -> Iterator[Row]:
        for offset, element in reading.entries.items():
            one = self._acknowledged.get(element)
            said = None if one is None else one.steps[0][3]
            if one is not None and said is not None and said != offset:
                call = self._call(one)
                words = f"stream {self._key}: {element} of {self._by(one)}, acknowledged at {said}, stands at {offset}"
                yield Row(of_call("offset_wrong", element, call, words))

    def _out_of_order(self, reading: _Reading) -> Iterator[Row]:
        """Yield each element that stands before one which had been acknowledged before it was asked for."""
        earliest, behind = OPEN_END, 0  # of what stands behind: when the first of it was acknowledged, and what that is
        places: dict[int, int] = {}  # where each stands first: that it stands there again is said already
        for offset, element in sorted(reading.entries.items()):
            places.setdefault(element, offset)
        for element, offset in reversed(places.items()):
            one = self._published.get(element)
            if one is None:
                continue
            if earliest < one.invoked:
                call, other = self._call(one), self._call(self._acknowledged[behind])
                words = f"stream {self._key}: {element} stands at {offset}, before {behind}, which was acknowledged at {seconds(other.complete_ns)};"
                words += f" {element} was asked for at {seconds(call.invoke_ns)}"
                yield Row(of_call("out_of_order", element, call, words))
            if element in self._acknowledged and self._acknowledged[element].completed < earliest:
                earliest, behind = self._acknowledged[element].completed, element

    def _passed_over(self, reading: _Reading) -> Iterator[Row]:
        """Yield what a read did not show between its begin and the last entry it has that stands there yet, and what was known to stand there before.

        Behind that the read may have followed what is lost since: that is judged by itself.
        """
        offsets = sorted(reading.entries)
        known = [self._known((offset, reading.entries[offset])) for offset in offsets]
        for one in self._reads:
            shown = dict(_entries(one))
            kept = [offset for offset, element in shown.items() if reading.entries.get(offset) == element]
            if not kept:
                continue
            begin, end = bisect_left(offsets, one.steps[0][2] or 0), bisect_right(offsets, max(kept))
            for place in range(begin, end):
                if known[place] < one.invoked and offsets[place] not in shown:
                    element, call = reading.entries[offsets[place]], self._call(one)
                    words = f"stream {self._key}: the read of {self._by(one)} at {seconds(call.complete_ns)} passed over {element} at {offsets[place]}"
                    yield Row(of_call("passed_over", element, call, words))
                    break

    def _known(self, entry: Entry) -> int:
        """Return when an entry was surely there: acknowledged, or shown to somebody."""
        shown, published = self._shown.get(entry), self._acknowledged.get(entry[1])
        return min(one.completed if one is not None else OPEN_END for one in (shown, published))


def _entries(one: Operation) -> Sequence[Entry]:
    entries: Sequence[Entry] | None = one.steps[0][3]
    return entries or ()


def _readings(reads: Sequence[Operation]) -> Iterable[_Reading]:
    """Return each process' reads that follow each other from the first offset to the last empty answer; what failed in between was asked again."""
    ended: dict[int, _Reading] = {}  # by where the first of them stands
    under_way: dict[int, tuple[Operation, int, dict[int, int]]] = {}
    for one in sorted(reads, key=lambda one: one.invoked):
        begin = one.steps[0][2] or 0
        first, place, seen = under_way.pop(one.process, (one, 0, {}))
        if begin == 0:
            first, seen = one, {}
        elif begin != place:
            continue
        entries = _entries(one)
        seen.update(entries)
        if not entries:
            ended[first.index] = _Reading(first, one, seen)
        under_way[one.process] = (first, max([begin, *(offset + 1 for offset, _ in entries)]), seen)
    return ended.values()


PROPERTY: Final = Property(tables=("operations",), kinds=KINDS, run_kernel=kernel)
