"""What replicas' logs held at several moments: photographs above the final logs of the log matrix.

Nodes report their log's end as they begin to follow or to lead a leader epoch, before and behind a cut, and while they lead; an answer to a
producer says that the node that gave it held the record. Between two reports a log only grows. So an offset was there from the first report
beyond it, was not there up to a report that ends short of it, and in between is not known: then it is drawn as unknown, never guessed. What is
there and is cut away later is not in any final log: only its place is known, and the record where the node itself had acknowledged it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tribunal.results.rows import Watermark, typed
from tribunal.results.store import Recording
from tribunal.results.verdict import Finding

MOST: Final = 3  # and the final logs


class Presence(Enum):
    """Whether a log reached beyond an offset at a moment."""

    THERE = "there"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class Report(NamedTuple):
    """A node's log ended here, or (`at_least`) reached this far and perhaps further."""

    at_ns: int
    log_end_offset: int
    at_least: bool = False


class Moment(NamedTuple):
    """When a photograph is taken, and what has just happened."""

    at_ns: int
    words: str


Reports = Mapping[int, Sequence[Report]]  # node -> what is known of its log's end, in order of time


def reports(recording: Recording, name: str, first: int, end: int) -> Reports:
    """Return what is known of the ends of a partition's logs; of answers to producers those for offsets in [first, end)."""
    rows = recording.table("watermarks", name)
    own = pc.and_(pc.equal(rows["source"].cast(pa.string()), "node"), pc.is_valid(rows["log_end_offset"]))
    found: dict[int, list[Report]] = {}
    # Before and behind a cut have the same time: the cut is what comes second.
    for row in sorted(typed(rows.filter(own), Watermark), key=lambda row: (row.at_ns, -(row.log_end_offset or 0))):
        node = row.observer.removeprefix("node-")
        if node.isdecimal():
            found.setdefault(int(node), []).append(Report(row.at_ns, row.log_end_offset or 0))
    for answered_by, at_ns, offset in _answers(recording, name, first, end):
        found.setdefault(answered_by, []).append(Report(at_ns, offset + 1, at_least=True))
    return {node: sorted(known, key=lambda one: one.at_ns) for node, known in found.items()}


def _answers(recording: Recording, name: str, first: int, end: int) -> Iterator[tuple[int, int, int]]:
    sends = recording.table("sends", name, ["outcome", "log_offset", "answered_by", "complete_ns"])
    inside = pc.and_(pc.greater_equal(sends["log_offset"], first), pc.less(sends["log_offset"], end))
    known = pc.and_(pc.and_(pc.is_valid(sends["answered_by"]), pc.is_valid(sends["complete_ns"])), inside)
    ok = pc.and_(known, pc.equal(sends["outcome"].cast(pa.string()), "ok"))
    for row in sends.filter(pc.fill_null(ok, False)).to_pylist():  # noqa: FBT003 - pyarrow's own signature
        yield row["answered_by"], row["complete_ns"], row["log_offset"]


def presence(known: Sequence[Report], offset: int, at_ns: int, *, finally_there: bool) -> Presence:
    """Return whether a log reached beyond an offset at a moment; `finally_there`: whether the final log does."""
    first, behind = (side(known, at_ns, key=lambda one: one.at_ns) for side in (bisect_left, bisect_right))
    # What an answer does not reach says nothing; what else there is decides: the last by then, or the first later.
    former = (known[place] for place in range(behind - 1, -1, -1))
    is_there = next((_reaches(one, offset) for one in former if _says(one, offset)), False)
    if is_there or any(not one.at_least for one in known[first:behind]):
        return Presence.THERE if is_there else Presence.ABSENT
    later = (known[place] for place in range(behind, len(known)))
    comes = next((_reaches(one, offset) for one in later if _says(one, offset)), finally_there)
    return Presence.UNKNOWN if comes else Presence.ABSENT


def _says(report: Report, offset: int) -> bool:
    return not report.at_least or _reaches(report, offset)


def _reaches(report: Report, offset: int) -> bool:
    return report.log_end_offset > offset


def least_end_later(known: Sequence[Report], at_ns: int) -> int | None:
    """Return the least offset at which a log ended later than a moment: what it held from there on was cut. None: nobody reported its end again."""
    behind = bisect_right(known, at_ns, key=lambda one: one.at_ns)
    return min((one.log_end_offset for one in islice(known, behind, None) if not one.at_least), default=None)


def moments(found: Reports, finding: Finding) -> list[Moment]:
    """Return when to look, in order of time: at the acknowledgement, at the election that lost the record, as copies went."""
    if finding.log_offset is None or finding.acknowledged_ns is None:
        return []
    chosen = {finding.acknowledged_ns: Moment(finding.acknowledged_ns, "the record is acknowledged")}
    election = finding.detail.election
    if election is not None and election.at_ns is not None:
        words = f"broker {election.leader} is elected, leader epoch {election.leader_epoch}"
        chosen.setdefault(election.at_ns, Moment(election.at_ns, words))
    gone = sorted(_goings(found, finding.log_offset, finding.acknowledged_ns))
    first_and_last = [*gone[:1], *gone[-1:]]
    for moment in reversed(first_and_last):
        if len(chosen) < MOST:
            chosen.setdefault(moment.at_ns, moment)
    return sorted(chosen.values())


def _goings(found: Reports, offset: int, since_ns: int) -> Iterator[Moment]:
    """Yield when a log that had reached beyond an offset first ended short of it."""
    for node, known in found.items():
        reached = False
        for report in known:
            if reached and not report.at_least and report.log_end_offset <= offset and report.at_ns >= since_ns:
                yield Moment(
                    report.at_ns,
                    f"broker {node}'s log ends at {report.log_end_offset}: offset {offset} is gone from it",
                )
                break
            reached = reached or report.log_end_offset > offset
