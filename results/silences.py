"""How long a partition acknowledged nothing although clients kept asking, and how long they kept asking in all.

An attempt is a send of one acks level; it is under way from its call to its answer, or to its client's giving up. One that was never given up waited as long
as any other did. Attempts with less than a second between them are one time of asking: it begins with the first and ends with the last of them.
A silence is a second or longer within such a time, and ends with an acknowledgement or with the time of asking. It begins with the time of asking, or where an
acknowledgement came before: with it if an attempt was under way that ends in a later tenth of a second, else with the next such attempt.
So a partition that answers at first or at last nobody is silent from the first attempt or to the last one; a client that rests makes no silence. Nothing is
promised of a topic from when its deletion was ordered, and what was asked of it later is no attempt.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tribunal.results.admin_apis import AdminApi
from tribunal.results.rows import Admin

LEAST_NS: Final = 1_000_000_000
TENTH_NS: Final = LEAST_NS // 10
NEVER: Final = int(np.iinfo(np.int64).max)
Array = npt.NDArray[np.int64]


class Attempts(NamedTuple):
    """Sends of one partition and acks level, in any order.

    ended_ns:  when each was answered or given up; below 0: never
    acknowledged:  which of them were
    """

    invoke_ns: Array
    ended_ns: Array
    acknowledged: npt.NDArray[np.bool_]

    def until(self, deleted_ns: int | None) -> "Attempts":
        """Return what was asked before the topic's deletion was ordered, and how it stood then."""
        if deleted_ns is None:
            return self
        own = self.invoke_ns < deleted_ns
        ended, done = self.ended_ns[own], self.acknowledged[own]
        return Attempts(self.invoke_ns[own], np.minimum(ended, deleted_ns), done & (ended <= deleted_ns))

    def taken(self, places: Array) -> "Attempts":
        """Return those at some places."""
        return Attempts(self.invoke_ns[places], self.ended_ns[places], self.acknowledged[places])


def joined(parts: Sequence[Attempts]) -> Attempts:
    """Return the attempts of several pieces as one."""
    if not parts:
        return Attempts(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_))
    return Attempts(
        np.concatenate([part.invoke_ns for part in parts]),
        np.concatenate([part.ended_ns for part in parts]),
        np.concatenate([part.acknowledged for part in parts]),
    )


class Silences(NamedTuple):
    """The silences of a partition, in order of time, and how long it was asked in all."""

    start_ns: Array
    end_ns: Array
    asked_ns: int


def deletion_ns(ordered: Iterable[Admin], topic: str) -> int | None:
    """Return when a topic's deletion was ordered first, by an order that may have been carried out."""
    own = (
        row.invoke_ns
        for row in ordered
        if row.api == AdminApi.DELETE_TOPIC and row.outcome != "fail" and row.topic in (None, topic)
    )
    return min(own, default=None)


def silences(attempts: Attempts) -> Silences:
    """Return the silences among attempts."""
    order = np.argsort(attempts.invoke_ns, kind="stable")
    invoke, ended, done = attempts.taken(order)
    if not invoke.size:
        return Silences(invoke, invoke, 0)
    last_ns = max(int(ended.max()), int(invoke.max()))
    ended = np.where(ended < 0, last_ns, ended)
    until = np.maximum.accumulate(ended)
    first = np.flatnonzero(np.append(True, invoke[1:] - until[:-1] >= LEAST_NS))
    begins, ends = invoke[first], until[np.append(first[1:], invoke.size) - 1]
    times = np.concatenate([begins, ended[done], ends])
    kinds = np.repeat([0, 1, 2], [begins.size, int(done.sum()), ends.size])
    order = np.lexsort((kinds, times))
    times, kinds = times[order], kinds[order]
    wide = np.flatnonzero((np.diff(times) >= LEAST_NS) & (kinds[:-1] != 2))
    start, end = times[wide], times[wide + 1]
    after_answer = np.flatnonzero(kinds[wide] == 1)
    start[after_answer] = np.maximum(start[after_answer], _next_asked(invoke, ended, start[after_answer]))
    own = end - start >= LEAST_NS
    return Silences(start[own], end[own], int((ends - begins).sum()))


def _next_asked(invoke: Array, ended: Array, at_ns: Array) -> Array:
    """Return the first call of an attempt that ends in a later tenth of a second; there is one, for the time of asking goes on."""
    order = np.argsort(ended, kind="stable")
    earliest = np.minimum.accumulate(invoke[order][::-1])[::-1]
    later_ns = at_ns - at_ns % TENTH_NS + TENTH_NS
    return np.asarray(earliest[np.searchsorted(ended[order], later_ns, "left")])


def bounding(attempts: Attempts) -> Array:
    """Return the places of those attempts that have the same silences as all of them: at most a few of each tenth of a second.

    Of those that begin in the same tenth and end in the same one: the first to begin, the last to begin and the last to end. Of the acknowledged ones of a tenth
    the first and the last.
    """
    invoke, ended, done = attempts
    known = np.where(ended < 0, NEVER, ended)
    groups = (invoke // TENTH_NS, known // TENTH_NS)
    rows = np.flatnonzero(done)
    chosen = [
        *_ends_of(np.lexsort((invoke, groups[1], groups[0])), *groups),
        *_ends_of(np.lexsort((known, groups[1], groups[0])), *groups),
        *_ends_of(rows[np.argsort(known[rows], kind="stable")], groups[1]),
    ]
    return np.unique(np.concatenate(chosen))


def _ends_of(order: Array, *groups: Array) -> tuple[Array, Array]:
    """Return the first and the last place of each group, which stand together in this order."""
    new = np.zeros(max(0, order.size - 1), np.bool_)
    for group in groups:
        new |= group[order][1:] != group[order][:-1]
    return order[np.append(True, new)[: order.size]], order[np.append(new, True)[: order.size]]
