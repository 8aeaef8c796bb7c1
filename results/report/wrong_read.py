"""The first wrong read: when a consumer was first given something else at the offset where the record had been acknowledged, or read.

That is the moment at which a user could have noticed. A consumer that reads on beyond the offset without the record is
not counted: it may have read the record before.
"""

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.results.rows import Poll, Read, typed
from tribunal.results.store import Recording
from tribunal.results.verdict import Finding


class WrongRead(msgspec.Struct, frozen=True, kw_only=True):
    """Who was given what; `value` is None for a record without a value of ours."""

    at_ns: int
    process: int
    poll_index: int
    log_offset: int
    value: int | None


def wrong_read(recording: Recording, finding: Finding) -> WrongRead | None:
    """Return the first read of another record at a finding's offset, after the record was acknowledged; else after it was first read."""
    if finding.topic is None or finding.log_offset is None or finding.value is None:
        return None
    name = f"{finding.topic}-{finding.partition}"
    reads = recording.table("reads", name)
    there = pc.fill_null(pc.equal(reads["log_offset"], finding.log_offset), False)  # noqa: FBT003 - pyarrow's own signature
    rows = typed(reads.filter(there), Read)
    wanted = {(row.process, row.poll_index): row for row in rows if row.value != finding.value}
    if not wanted:
        return None
    polls = recording.table("polls", name)
    readers = pa.array(sorted({row.process for row in rows}), polls["process"].type)
    own = pc.is_in(polls["process"], value_set=readers)
    times = {
        (row.process, row.poll_index): row.complete_ns
        for row in typed(polls.filter(own), Poll)
        if row.complete_ns is not None
    }
    known_ns = finding.acknowledged_ns
    if known_ns is None:
        right = [(row.process, row.poll_index) for row in rows if row.value == finding.value]
        known_ns = min((times[place] for place in right if place in times), default=0)
    answered = sorted((times[place], place) for place in wanted if times.get(place, -1) >= known_ns)
    if not answered:
        return None
    at_ns, place = answered[0]
    read = wanted[place]
    return WrongRead(
        at_ns=at_ns, process=read.process, poll_index=read.poll_index, log_offset=read.log_offset, value=read.value
    )
