"""End markers of transactions, as records: behind what was sent in the transaction, since when they were seen to be there at the latest.

Nobody reads a marker, but a read_committed consumer receives a transaction's records only where its marker stands, and the last stable
offset passes them there only. What shows that lies below the high watermark, so each member of the ISR had the marker then.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from tribunal.checkers.api import OK, TAIL, UNKNOWN, Array, PartitionRows
from tribunal.checkers.judge.evidence import READ_COMMITTED, Sent, first_polls, polled_at_end
from tribunal.checkers.judge.timeline import Judgement, Record, Timeline

NEVER: Final = 1 << 62


class Seen(msgspec.Struct, frozen=True):
    """A moment at which a marker was there, and the leader epoch of who showed that; None: it is not known."""

    at_ns: int
    leader_epoch: int | None


def lost_marker(timeline: Timeline, rows: PartitionRows, sent: Sent, absent_ns: int | None) -> Judgement | None:
    """Return what may have taken a transaction's marker from a partition, or had kept it from being written there.

    It is written after the decision, nobody knows when; and a leader that was elected uncleanly aborts every transaction that its log
    leaves open, also one whose commit was decided (KIP-704).

    rows:  the partition's `polls`, `reads` and `watermarks`.
    """
    aborting = timeline.aborting(sent.since_ns, absent_ns, sent.leader_epoch)
    first = 0 if sent.log_offset is None else sent.log_offset + 1
    lost = timeline.permitting(sent.since_ns, absent_ns, first_offset=first, leader_epoch=sent.leader_epoch)
    # Of a record that nobody knows to stand: what was lost may have grown again, and ends that pass its offset say nothing of it.
    ends = [aborting, *([lost] if sent.leader_epoch is None else [])]
    end_epoch = min((one.leader_epoch for one in ends if one is not None), default=None)
    moments = [*_received(rows, sent, absent_ns), *_passed(timeline, rows, sent, end_epoch, absent_ns)]
    if not moments:
        return aborting or lost
    judgements = [timeline.judge(_record(seen, first, absent_ns)) for seen in moments]
    return None if any(one.promise.must_survive for one in judgements) else judgements[0]


def _record(seen: Seen, first_offset: int, absent_ns: int | None) -> Record:
    return Record(
        log_offset=NEVER,
        first_offset=first_offset,
        acks=None,
        invoke_ns=seen.at_ns,
        leader_epoch=seen.leader_epoch,
        exposed_ns=seen.at_ns,
        absent_ns=absent_ns,
    )


def _received(rows: PartitionRows, sent: Sent, absent_ns: int | None) -> Iterator[Seen]:
    """Yield the last time at which a read_committed consumer was surely given the record, and that in the newest leader epoch."""
    reads = rows.columns("reads")
    if sent.value is None:
        return
    order, values = rows.derived(_by_value)
    own = order[np.searchsorted(values, sent.value, "left") : np.searchsorted(values, sent.value, "right")]
    chosen = own[reads["phase"][own] == TAIL]
    given = {(int(reads["process"][row]), int(reads["poll_index"][row])) for row in chosen.tolist()}
    answers = rows.derived(_answers)
    waited, first = rows.derived(polled_at_end), rows.derived(first_polls)
    found: list[Seen] = []
    for poll in sorted(given & answers.keys()):
        if answers[poll].leader_epoch is not None:
            found.append(answers[poll])
        found += [Seen(times[poll], None) for times in (waited, first) if poll in times]
    found = [one for one in found if absent_ns is None or one.at_ns <= absent_ns]
    yield from sorted((one for one in found if one.leader_epoch is None), key=lambda one: one.at_ns)[-1:]
    known = [(one.leader_epoch, one.at_ns) for one in found if one.leader_epoch is not None]
    if known:
        epoch, at_ns = max(known)
        yield Seen(at_ns, epoch)


def _by_value(rows: PartitionRows) -> tuple[Array, Array]:
    """Return the reads in the order of their values, and these."""
    values = rows.columns("reads")["value"]
    order = np.argsort(values, kind="stable")
    return order, values[order]


def _answers(rows: PartitionRows) -> dict[tuple[int, int], Seen]:
    """Return when those polls were answered that asked for what is committed, and by whom."""
    polls = rows.columns("polls")
    own = np.flatnonzero((polls["isolation"] == READ_COMMITTED) & (polls["outcome"] == OK))
    names = ("process", "poll_index", "complete_ns", "leader_epoch")
    columns = zip(*(polls[name][own].tolist() for name in names), strict=True)
    return {
        (process, poll): Seen(at_ns, None if epoch == UNKNOWN else epoch) for process, poll, at_ns, epoch in columns
    }


def _passed(
    timeline: Timeline, rows: PartitionRows, sent: Sent, end_epoch: int | None, absent_ns: int | None
) -> Iterator[Seen]:
    """Yield the last time at which the last stable offset had passed the record, before anybody may have aborted or lost it.

    An answer that was on its way for long is no older than the end of the process that was asked: who was in the ISR later need not be all that held it.

    end_epoch:  the leader epoch in which somebody may have; None: nobody may.
    """
    if sent.log_offset is None:
        return
    seen = rows.columns("watermarks")
    own = (seen["last_stable_offset"] > sent.log_offset) & (seen["at_ns"] >= sent.since_ns)
    own &= seen["leader_epoch"] >= (0 if sent.leader_epoch is None else sent.leader_epoch)
    own &= seen["at_ns"] <= (NEVER if absent_ns is None else absent_ns)
    if end_epoch is not None:
        own &= seen["leader_epoch"] < end_epoch
    places = np.flatnonzero(own)
    last: Seen | None = None
    for row in places[np.argsort(-seen["at_ns"][places], kind="stable")].tolist():
        at_ns, asked_ns, node = (int(seen[name][row]) for name in ("at_ns", "asked_ns", "answered_by"))
        if last is not None and at_ns <= last.at_ns:
            break  # those that are left were observed before
        if UNKNOWN not in (asked_ns, node):
            at_ns = timeline.answered_by(node, asked_ns, at_ns)
        if last is None or at_ns > last.at_ns:
            last = Seen(at_ns, int(seen["leader_epoch"][row]))
    if last is not None:
        yield last
