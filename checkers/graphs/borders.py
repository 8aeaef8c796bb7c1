"""Whether ranges of partitions' offsets, each looked at by itself, say of messages what one look at all of them says.

Whoever sees what was sent to and polled from some ranges says of them all that `send_poll.of_keys` says of partitions. That is what
all of it together says unless something goes over the end of a range: a reader, a value that was sent or read in two of them, a committed
message that nobody read though later ones were. So each says how it looks at its *border*. Who has all of them says where readers skipped
something from one range to a later one, or that there is more to it: then partitions are looked at as wholes.

A message of which nobody knows the offset stands in no range. Who looks at a range knows those of the row groups that it reads; a value
that was read and belongs to one that it does not know is in another one's border.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from tribunal.checkers.api import Array, distinct, is_among
from tribunal.checkers.graphs.circles import packed, unpacked
from tribunal.checkers.graphs.columns import OK, Integers
from tribunal.checkers.graphs.findings import Findings
from tribunal.checkers.graphs.send_poll import LogHistory, OfKeys, add_step, in_order, passed_over
from tribunal.checkers.graphs.send_poll import packed as codes
from tribunal.results.store import partition_order

READER: Final = 11  # numbers that are said of each reader of a partition
UNPLACED: Final = 3


class Border(msgspec.Struct, frozen=True):
    """What goes over the end of some partitions' ranges. Numbers are bytes; keys are counted as `names` has them.

    names:     partitions, `topic-p`.
    is_odd:    there are steps that stand in no range and are no sends: nobody knows where they belong.
    of_keys:   of each key: how many offsets hold something that was read or is committed, whether a committed transaction read any, and
               how many committed messages behind the last that it read nobody read.
    readers:   key, process, row and step of its first and of its last poll here; how many transactions of it polled here before it had
               moved here, and whether all of them began at the first offset that holds something; at which of these offsets its first one began; the
               row of the last one that moved it (-1: none), and at which offset that one ended.
    placed:    key and value of what was sent to here (as `circles.packed`); orphans: of what was read here and sent by nobody who is known.
    unplaced:  key, value and row of messages that may stand anywhere, as far as they are known here; found: key and value of those that were read here.
    """

    names: tuple[str, ...]
    is_odd: bool
    of_keys: bytes
    readers: bytes
    placed: bytes
    orphans: bytes
    unplaced: bytes
    found: bytes


def border(history: LogHistory, said: OfKeys, are_sent: Mapping[str, bool], *, is_odd: bool) -> Border:
    """Return the border of some ranges.

    history:   the messages in them, and those without an offset that are known; `said`: what they say by themselves.
    are_sent:  whether transactions sent anything to a partition, anywhere; to one that is not here none did.
    """
    sends, reads = history.sends, history.reads
    count = len(history.names)
    has_read, _, behind = passed_over(history, said.order, said.committed, said.read_by_ok)
    known = np.bincount(said.order.key, minlength=count)
    tail = np.bincount(history.message_key[behind], minlength=count)
    placed, unknown = np.flatnonzero(sends.offset >= 0), np.flatnonzero(sends.offset < 0)
    was_read = np.zeros(len(history.message_key), bool)
    was_read[history.seen] = True
    found = unknown[was_read[history.sent[unknown]]]
    is_sent = np.array([are_sent.get(history.name(key), False) for key in range(count)], bool)
    orphans = np.flatnonzero((history.writer < 0) & was_read)
    orphans = orphans[is_sent[history.message_key[orphans]]]
    rows = history.transactions.index[sends.operation[unknown]]
    return Border(
        tuple(history.name(key) for key in range(count)),
        is_odd or bool((reads.offset < 0).any()),
        np.stack([known, has_read, tail], axis=1).astype(np.int64).tobytes(),
        _readers(history, said, known).tobytes(),
        packed(sends.key[placed], sends.value[placed]),
        packed(history.message_key[orphans], history.message_value[orphans]),
        np.stack([sends.key[unknown], sends.value[unknown], rows], axis=1).tobytes(),
        packed(sends.key[found], sends.value[found]),
    )


def _readers(history: LogHistory, said: OfKeys, known: Integers) -> Integers:
    """Return how each process came into the range of each key and went out of it."""
    reads = history.reads
    if not reads.key.size:
        return np.zeros((0, READER), np.int64)
    order = in_order(reads)
    operation, key, at = reads.operation[order], reads.key[order], said.order.last[history.seen][order]
    step = np.zeros(operation.size, np.int64) if reads.step is None else reads.step[order]
    head = np.append(True, (operation[1:] != operation[:-1]) | (key[1:] != key[:-1]))
    tail = np.append(head[1:], True)
    first, last, first_step, last_step = at[head], at[tail], step[head], step[tail]
    operation, key = operation[head], key[head]
    process, moves = history.transactions.process[operation], history.outcome[operation] == OK
    line = codes(process, key)
    order = np.argsort(line, kind="stable")
    begins = np.flatnonzero(np.append(True, line[order][1:] != line[order][:-1]))
    ends = np.append(begins[1:], order.size) - 1
    places = np.arange(order.size)
    newest = np.maximum.accumulate(np.where(moves[order], places, -1))
    start = np.repeat(begins, ends - begins + 1)
    # Nothing here says from where these went there: whatever it was lies over the border.
    comes = np.append(-1, newest[:-1]) < start
    enters = np.logical_and.reduceat(~comes | (first[order] == 0), begins)
    entries = np.add.reduceat(comes.astype(np.int64), begins)
    moved = newest[ends] >= begins
    one, other, mover = order[begins], order[ends], order[np.maximum(newest[ends], 0)]
    rows = history.transactions.index
    columns = (
        key[one], process[one], rows[operation[one]], first_step[one], rows[operation[other]], last_step[other],
        entries, enters, first[one], np.where(moved, rows[operation[mover]], -1), np.where(moved, last[mover], -1),
    )  # fmt: skip
    return np.stack([column.astype(np.int64) for column in columns], axis=1)


def over_borders(every: Sequence[Border]) -> Findings | None:
    """Return what is found where readers go from one range to another; None: there may be more than that, or something else.

    every:  of all ranges, in their order.
    """
    if any(one.is_odd for one in every):
        return None
    names = list(dict.fromkeys(name for one in every for name in one.names))
    place_of = {name: number for number, name in enumerate(names)}
    numbers = [np.array([place_of[name] for name in one.names], np.int64) for one in every]
    known, has_read, tail = (np.zeros((len(every), len(names)), np.int64) for _ in range(3))
    for place, (one, own) in enumerate(zip(every, numbers, strict=True)):
        known[place, own], has_read[place, own], tail[place, own] = _numbers(one.of_keys, 3).T
    read_later = np.cumsum(has_read[::-1], axis=0)[::-1] - has_read
    if ((tail > 0) & (read_later > 0)).any() or not _are_once(every, numbers, len(names)):
        return None
    return _crossings(every, numbers, known, names)


def _crossings(
    every: Sequence[Border], numbers: Sequence[Integers], known: Integers, names: Sequence[str]
) -> Findings | None:
    """Compare where each reader came into a range with where it had been before."""
    readers = [_numbers(one.readers, READER) for one in every]
    range_of = np.repeat(np.arange(len(every)), [len(own) for own in readers])
    columns = np.concatenate([np.zeros((0, READER), np.int64), *readers]).T
    _, process, first_row, first_step, last_row, last_step, entries, enters, first_at, moved_row, last_at = columns
    key = np.concatenate([NONE, *(own[rows[:, 0]] for own, rows in zip(numbers, readers, strict=True))])
    order = np.lexsort((range_of, process, key))
    one, other = order[:-1], order[1:]
    is_same = (key[one] == key[other]) & (process[one] == process[other])
    one, other = one[is_same], other[is_same]
    before = np.cumsum(known, axis=0) - known  # how many offsets hold something in the ranges before
    at = before[range_of, key] + np.stack([first_at, last_at])
    moves_by = at[0, other] - at[1, one]
    within = first_row[other] == last_row[one]  # one transaction polled on both sides
    is_later = (first_row[other] > last_row[one]) | (within & (first_step[other] > last_step[one]))
    is_known = is_later & (first_at[other] >= 0) & (last_at[one] >= 0)
    goes_on = (moves_by == 1) & (enters[other] > 0) & (~within | (moved_row[one] == last_row[one]))
    if not (is_known & (goes_on | (~within & (entries[other] == 1)))).all():
        return None
    found = Findings()
    wrong = np.flatnonzero(moves_by != 1)
    rows = zip(
        *(column[wrong].tolist() for column in (first_row[other], key[other], moved_row[one], moves_by)), strict=True
    )
    for row, number, moved, by in sorted(rows, key=lambda own: (own[0], partition_order(names[own[1]]))):
        add_step(found, names[number], "poll", by, (moved, row), (row, *partition_order(names[number]), -1))
    return found


def _are_once(every: Sequence[Border], numbers: Sequence[Integers], count: int) -> bool:
    """Whether each value was sent once, and is in one range."""
    placed, orphans, found = (
        _by_key([getattr(one, name) for one in every], numbers, count) for name in ("placed", "orphans", "found")
    )
    unplaced = [_numbers(one.unplaced, UNPLACED) for one in every]
    keys = np.concatenate([NONE, *(own[rows[:, 0]] for own, rows in zip(numbers, unplaced, strict=True))])
    values = np.concatenate([np.zeros((0, 2), np.int64), *(rows[:, 1:] for rows in unplaced)])
    for key in range(count):
        of_key = np.unique(values[keys == key], axis=0)[:, 0]  # several know of one message
        sent = np.sort(np.concatenate([placed[key], of_key]), kind="stable")
        if (sent[1:] == sent[:-1]).any() or is_among(distinct(orphans[key]), sent).any():
            return False
        if distinct(found[key]).size < found[key].size:
            return False
    return True


def _by_key(columns: Sequence[bytes], numbers: Sequence[Integers], count: int) -> list[Array]:
    """Return what each range says of each key, one range after the other."""
    found: list[list[Integers]] = [[NONE] for _ in range(count)]
    for content, own in zip(columns, numbers, strict=True):
        keys, values = unpacked([content])
        bounds = np.searchsorted(keys, np.arange(own.size + 1))
        for number, key in enumerate(own.tolist()):
            found[key].append(values[bounds[number] : bounds[number + 1]])
    return [np.concatenate(own) for own in found]


NONE: Final = np.zeros(0, np.int64)


def _numbers(content: bytes, width: int) -> Integers:
    return np.frombuffer(content, np.int64).reshape(-1, width)
