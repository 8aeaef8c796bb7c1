"""What tail readers went through in one range of a hot partition, and what of it crosses ranges.

`consumers` and `skipped_records` follow each assigned consumer from record to record. Its turns (from its begin, or from an
answer that it was out of range, to the next one) are known by the polls. In each range a turn's first and last records are noted:
between two of these the final log holds nothing that lies in no range of them, or both are read again, with all ranges between.
Where a turn does not go up from range to range, all its ranges are read again together. So every record that is read again has the one before it beside it, or
nothing lies between the two. What was sent to one range and received in another is read again with all ranges that may hold it.

A reader of what is committed need not receive what is not known to be.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np

from tribunal.checkers.api import OK, TAIL, UNKNOWN, Array, Columns, Context, PartitionRows, distinct, is_among
from tribunal.checkers.judge.suspicions import Suspicions
from tribunal.checkers.properties.consumers import (
    OUT_OF_RANGE,
    READ_COMMITTED,
    assigned,
    call_keys,
    error_codes,
    polls_of,
)
from tribunal.checkers.properties.skipped_records import waits

POLL_OFFSETS: Final = 10_000  # so far behind its poll's position a record is expected at most
LISTED: Final = 1_000  # consumers, and turns that may concern a range; of more the whole partition is judged
NEVER: Final = np.iinfo(np.int64).max
COLUMNS: Final = (
    "process", "poll_index", "phase", "isolation", "position", "complete_ns", "leader_epoch", "high_watermark", "last_stable_offset",
)  # fmt: skip
FOLLOWING: Final = frozenset({"consumers", "skipped_records"})
RECEIVED: Final = "records received by assigned consumers"


class Turn(msgspec.Struct, frozen=True, array_like=True):
    """A consumer's turn: `since` a poll that is before it, up to another one (`call_keys`), by its place among all turns.

    position:         where it began, UNKNOWN where nobody knows.
    least, greatest:  positions that it asked from.
    """

    number: int
    since: int
    until: int
    position: int
    least: int
    greatest: int


class Tails(msgspec.Struct, frozen=True):
    """What ranges have to know of tail readers: looked up once for all of them.

    assigned:  those that `consumers` follows; committed: those that read what is committed alone.
    turns:     of all of them, ascending; of many those that may have received anything in the range.
    waits:     (position, end) of those who waited long at their ends: whether there was more is seen there.
    """

    assigned: tuple[int, ...]
    turns: tuple[Turn, ...]
    waits: tuple[tuple[int, int], ...]
    committed: tuple[int, ...] = ()


class Part(msgspec.Struct, frozen=True):
    """A turn's part in a range: the polls and offsets of its first and its last record, and where the turn began."""

    first_call: int
    first: int
    last_call: int
    last: int
    position: int


class Followed(msgspec.Struct, frozen=True, kw_only=True):
    """What the sieve says of one range's tail readers.

    clean:            nothing inside of the range is suspect.
    received:         how many records assigned consumers received here; is_read: whether any consumer received one.
    whole:            too much would have to be listed: the ranges say nothing.
    first, last:      offsets of the final log, -1: it holds nothing here.
    parts:            by turn; waits: those of `Tails.waits` that this range may answer.
    """

    clean: bool
    whole: bool
    is_read: bool = False
    received: int = 0
    first: int = -1
    last: int = -1
    parts: dict[int, Part] = msgspec.field(default_factory=dict)
    waits: list[int] = msgspec.field(default_factory=list)


def tails(rows: PartitionRows, context: Context) -> Tails | None:
    """Look up what ranges have to know of a partition's tail readers, by all its polls; None: they have to be judged as a whole."""
    polls = rows.columns("polls")
    tail = np.flatnonzero(polls["phase"] == TAIL)
    keys = call_keys(polls["process"][tail], polls["poll_index"][tail])
    if tail.size == 0 or distinct(keys).size < keys.size:
        return None
    who = assigned(rows, context)
    turns = _turns(polls, who, error_codes(rows, OUT_OF_RANGE))
    if who.size > LISTED:
        return None
    long = tuple(sorted({(own.position, own.end) for own in waits(polls, who)}))
    committed = distinct(polls["process"][tail][polls["isolation"][tail] == READ_COMMITTED])
    return Tails(tuple(who.tolist()), turns, long, tuple(committed.tolist()))


def _turns(polls: Columns, who: Array, out_of_range: Array) -> tuple[Turn, ...]:
    asked = np.flatnonzero((polls["phase"] == TAIL) & is_among(polls["process"], who))
    keys = call_keys(polls["process"][asked], polls["poll_index"][asked])
    order = np.argsort(keys)
    asked, keys = asked[order], keys[order]
    # (a process's first poll may be its poll 0)
    begins = call_keys(who, np.zeros(who.size, np.int64)) - 1
    since = np.sort(np.append(begins, keys[is_among(polls["error"][asked], out_of_range)]))
    good = np.flatnonzero((polls["outcome"][asked] == OK) & (polls["position"][asked] != UNKNOWN))
    first = np.searchsorted(keys[good], since)
    ends = np.append(since, NEVER)[1:]
    positions = np.full(since.size, UNKNOWN, np.int64)
    if good.size:
        at = good[np.minimum(first, good.size - 1)]
        begun = (first < good.size) & (keys[at] <= ends)
        positions = np.where(begun, polls["position"][asked][at], UNKNOWN)
    of_turn, asked_from = np.searchsorted(since, keys) - 1, polls["position"][asked]
    known = asked_from != UNKNOWN
    least, greatest = np.full(since.size, NEVER), np.full(since.size, UNKNOWN)
    np.minimum.at(least, of_turn[known], asked_from[known])
    np.maximum.at(greatest, of_turn[known], asked_from[known])
    columns = (since, ends, positions, least, greatest)
    return tuple(
        Turn(number, *own) for number, own in enumerate(zip(*(column.tolist() for column in columns), strict=True))
    )


def by_range(known: Tails, spans: Sequence[tuple[int, int]]) -> list[Tails] | None:
    """Return what ranges (first offset, end) have to know, each of those turns alone that may concern it where there are many; None: even so there are too many."""
    if len(known.turns) <= LISTED:
        return [known] * len(spans)
    least, greatest = (np.array([getattr(one, name) for one in known.turns]) for name in ("least", "greatest"))
    found = []
    for first, end in spans:
        near = np.flatnonzero((least < end) & (greatest >= first - POLL_OFFSETS)).tolist()
        if len(near) > LISTED:
            return None
        found.append(msgspec.structs.replace(known, turns=tuple(known.turns[place] for place in near)))
    return found


def follow(first: int, final: Array, hidden: Array, sent: Array, rows: PartitionRows, known: Tails) -> Followed:
    """Look at what tail readers received in one range, which begins at an offset.

    final:   whether the final log holds each offset; sent: the send of each offset.
    hidden:  where it surely holds what is not known to be committed: who reads that alone need not receive it.
    rows:    sends, reads, and the polls that the reads came with.
    """
    reads = rows.columns("reads")
    tail = np.flatnonzero(reads["phase"] == TAIL)
    there = np.flatnonzero(final) + first
    own = tail[is_among(reads["process"][tail], np.asarray(known.assigned, np.int64))]
    parts, ascends = _parts(first, final, hidden, reads, own, known)
    whole = parts is None or len(parts) > LISTED
    return Followed(
        clean=ascends and _in_time(first, sent, rows, tail),
        whole=whole,
        is_read=tail.size > 0,
        received=int(own.size),
        first=int(there[0]) if there.size else -1,
        last=int(there[-1]) if there.size else -1,
        parts={} if whole or parts is None else parts,
        waits=[
            place for place, (position, end) in enumerate(known.waits) if position < first + final.size and end > first
        ],
    )


def _parts(
    first: int, final: Array, hidden: Array, reads: Columns, own: Array, known: Tails
) -> tuple[dict[int, Part] | None, bool]:
    """Return the parts of turns, and whether nothing was passed over or received again in any of them; None: of a turn that is not known here."""
    if own.size == 0:
        return {}, True
    calls, offsets = call_keys(reads["process"][own], reads["poll_index"][own]), reads["log_offset"][own]
    order = np.lexsort((offsets, calls))
    calls, offsets = calls[order], offsets[order]
    turn = np.searchsorted(np.array([one.since for one in known.turns], np.int64), calls) - 1
    if (turn < 0).any() or (calls > np.array([one.until for one in known.turns], np.int64)[turn]).any():
        return None, False
    committed = is_among(reads["process"][own][order], np.asarray(known.committed, np.int64)).astype(np.int8)
    # How much the final log holds before each offset, and how much of that a reader of what is committed has to receive.
    before = np.zeros((2, final.size + 1), np.int64)
    before[0, 1:], before[1, 1:] = np.cumsum(final), np.cumsum(final & ~hidden)
    follows = turn[1:] == turn[:-1]
    place = offsets - first
    steps = (place[1:] > place[:-1]) & (before[committed[1:], place[1:]] == before[committed[1:], place[:-1] + 1])
    begins = np.append(0, 1 + np.flatnonzero(~follows))
    ends = np.append(begins[1:], turn.size) - 1
    columns = (turn[begins], calls[begins], offsets[begins], calls[ends], offsets[ends])
    parts = {
        known.turns[place].number: Part(call, begun, last_call, last, known.turns[place].position)
        for place, call, begun, last_call, last in zip(*(column.tolist() for column in columns), strict=True)
    }
    return parts, bool((steps | ~follows).all())


def _in_time(first: int, sent: Array, rows: PartitionRows, tail: Array) -> bool:
    """Whether each record came with a poll that is here, which ended after it was sent and showed ends behind it."""
    sends, reads, polls = rows.columns("sends"), rows.columns("reads"), rows.columns("polls")
    tail = tail[reads["value"][tail] != UNKNOWN]
    if tail.size == 0:
        return True
    asked = np.flatnonzero(polls["phase"] == TAIL)
    poll = polls_of(polls, asked, reads, tail)
    send = sent[reads["log_offset"][tail] - first]
    if (poll == UNKNOWN).any() or (send == UNKNOWN).any():
        return False
    done_ns = polls["complete_ns"][poll]
    late = (done_ns == UNKNOWN) | (done_ns >= sends["invoke_ns"][send])
    return bool(late.all()) and _before_ends(polls, poll, reads, tail)


def _before_ends(polls: Columns, poll: Array, reads: Columns, tail: Array) -> bool:
    epochs, offsets = reads["leader_epoch"][tail], reads["log_offset"][tail]
    own = (epochs != UNKNOWN) & (polls["leader_epoch"][poll] == epochs)
    high, stable = polls["high_watermark"][poll], polls["last_stable_offset"][poll]
    beyond = (high != UNKNOWN) & (offsets >= high)
    beyond |= (polls["isolation"][poll] == READ_COMMITTED) & (stable != UNKNOWN) & (offsets >= stable)
    return not bool((own & beyond).any())


def places_of_suspects(followed: Sequence[Followed], dependent: Iterable[Sequence[int]]) -> list[list[int]] | None:
    """Return which ranges have to be read again, in components that do not depend on each other; None: all, as a whole.

    dependent:  ranges that hold the same values, of which one holds any that were sent to another one.
    """
    if any(own.whole for own in followed):
        return None
    suspicions = Suspicions(not own.clean for own in followed)
    holding = np.cumsum([0, *(own.first >= 0 for own in followed)])  # how many ranges hold anything before each
    by_turn: dict[int, list[tuple[int, Part]]] = {}
    by_wait: dict[int, list[int]] = {}
    for place, own in enumerate(followed):
        for turn, part in own.parts.items():
            by_turn.setdefault(turn, []).append((place, part))
        for wait in own.waits:
            by_wait.setdefault(wait, []).append(place)
    for places in (*by_wait.values(), *dependent):
        suspicions.join(places)
    for parts in by_turn.values():
        for first, end in _crossed(followed, holding, parts):
            suspicions.join(range(first, end + 1))
    return suspicions.components()


def _crossed(
    followed: Sequence[Followed], holding: Array, parts: Sequence[tuple[int, Part]]
) -> Iterator[tuple[int, int]]:
    """Yield the ranges, from the first to the last one, of what a turn passed over between ranges or received again."""
    (first, begun), (last, _) = parts[0], parts[-1]
    if any(before.last_call > after.first_call for (_, before), (_, after) in pairwise(parts)):
        yield first, last
    for (one, before), (other, after) in pairwise(parts):
        between = holding[other] > holding[one + 1]
        if between or followed[one].last > before.last or 0 <= followed[other].first < after.first:
            yield one, other
    if begun.position != UNKNOWN and begun.position < begun.first:
        passed = [
            place
            for place in range(first + 1)
            if followed[place].last >= begun.position and 0 <= followed[place].first < begun.first
        ]
        if passed:
            yield passed[0], first
