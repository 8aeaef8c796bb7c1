"""A group's positions that went back or were not there: which commits had to be known, and whether all of them were permitted to be lost (R11).

Looks at one partition's `commits` again, for the few fetches, commits and transactions that a property found to be wrong.
"""

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tribunal.checkers.api import OK, UNKNOWN, Anomaly, Array, Context, PartitionRows
from tribunal.checkers.judge.orders import Order
from tribunal.checkers.judge.remembered import NEVER, Remembered, by_order
from tribunal.checkers.judge.steps import ABORTED, COMMITTED, POLL
from tribunal.checkers.judge.timeline import Deposed, Judgement
from tribunal.checkers.properties.group_offsets import COMMIT, INVENTED, SIDES, answered, effective, prove
from tribunal.results.admin_apis import AdminApi
from tribunal.results.rows import Commit, typed


class Positions:
    """What a partition's groups committed."""

    def __init__(self, rows: PartitionRows, context: Context, remembered: Remembered, orders: Sequence[Order]) -> None:
        self._orders = orders
        self._rows = rows
        self._context = context
        self._remembered = remembered
        self._commits = rows.columns("commits")
        self._groups = rows.words("commits", "group")
        self._of_groups: dict[int, tuple[Array, Array]] = {}
        self._fetches: dict[int, dict[int, Array]] = {}  # of each group, by what was fetched
        self._seen: dict[int, int] = {}
        self._typed: dict[int, Commit] = {}
        # Which commits are known to be lost, whenever they were asked for: by group, whether it matters who fetched them, and what matters of when that was.
        self._known_lost: dict[tuple[int, bool, Hashable], NDArray[np.bool_]] = {}

    def excuse(self, anomaly: Anomaly) -> Judgement | None:
        """Return what permitted the loss of the positions in question, if all of it was, or who ordered it."""
        return self._lost(anomaly) or self._ordered(anomaly)

    def _ordered(self, anomaly: Anomaly) -> Judgement | None:
        """Look for an order that set or deleted the group's position, or with the group what it knew of generations."""
        match anomaly.kind:
            case "offset_forgotten" | "offset_stale" | "offset_invented":
                return self._fetched_by_order(anomaly)
            case "offset_beyond_end":
                return self._set_beyond(anomaly)
            case "stale_generation":
                return self._counted_anew(anomaly)
            case _:
                return None

    def _fetched_by_order(self, anomaly: Anomaly) -> Judgement | None:
        """Look for an order before the fetch, which may have been carried out behind the newest commit."""
        fetch = self._found(anomaly, is_commit=False)
        if fetch is None:
            return None
        group, value = self._groups[int(self._commits["group"][fetch])], anomaly.log_offset
        own = (self._commits["group"] == self._commits["group"][fetch]) & (self._commits["kind"] == COMMIT)
        own &= (self._commits["committed_offset"] == anomaly.other_offset) & (self._commits["outcome"] == OK)
        since_ns = int(self._commits["invoke_ns"][own].max(initial=0))
        for order in self._orders:
            sets = order.api == AdminApi.ALTER_OFFSET
            # An order of which nobody knows to what offset explains one that others had committed, not one out of nowhere.
            offsets = (value,) if anomaly.kind == INVENTED else (None, value)
            fits = order.log_offset in offsets if sets else value is None
            if fits and order.group in (None, group) and order.may_be_done(since_ns, anomaly.at_ns):
                return by_order(order)
        return None

    def _set_beyond(self, anomaly: Anomaly) -> Judgement | None:
        """Look for an order that set the group's position to this very offset, and may have been carried out since its process committed another one."""
        commit = self._found(anomaly, is_commit=True)
        if commit is None:
            return None
        commits, group = self._commits, self._groups[int(self._commits["group"][commit])]
        own = (commits["group"] == commits["group"][commit]) & (commits["process"] == anomaly.process)
        own &= answered(commits) & (commits["invoke_ns"] < anomaly.invoke_ns)
        own &= commits["committed_offset"] != anomaly.log_offset
        since_ns = int(commits["invoke_ns"][own].max(initial=0))
        for order in self._orders:
            sets = order.api == AdminApi.ALTER_OFFSET and order.log_offset == anomaly.log_offset
            if sets and order.group in (None, group) and order.may_be_done(since_ns, anomaly.at_ns):
                return by_order(order)
        return None

    def _counted_anew(self, anomaly: Anomaly) -> Judgement | None:
        """Look for an order that deleted the group behind its last commit of a later generation: the next one begins with the first."""
        stale = self._found(anomaly, is_commit=True)
        if stale is None:
            return None
        later = self._later_generations(stale)
        since_ns = int(self._commits["invoke_ns"][later].max(initial=0))
        group = self._groups[int(self._commits["group"][stale])]
        deletions = (one for one in self._orders if one.api == AdminApi.DELETE_GROUP and one.group == group)
        found = (by_order(one) for one in deletions if one.may_be_done(since_ns, anomaly.at_ns))
        return next(found, None)

    def _lost(self, anomaly: Anomaly) -> Judgement | None:
        match anomaly.kind:
            case "offset_forgotten" | "offset_stale":
                return self._of_fetch(anomaly)
            case "stale_generation":
                return self._of_generation(anomaly)
            case "processed_twice":
                assert anomaly.log_offset is not None
                return self._of_processed(anomaly.log_offset, UNKNOWN if anomaly.value is None else anomaly.value)
            case _:
                return None

    def _found(self, anomaly: Anomaly, *, is_commit: bool) -> int | None:
        return self._places.get((anomaly.process, anomaly.invoke_ns, anomaly.at_ns, is_commit))

    @cached_property
    def _places(self) -> dict[tuple[int | None, int | None, int | None, bool], int]:
        """The first row of each process, with these times, that is a commit or not."""
        names = ("process", "invoke_ns", "complete_ns")
        columns = (*(self._commits[name].tolist() for name in names), (self._commits["kind"] == COMMIT).tolist())
        found: dict[tuple[int | None, int | None, int | None, bool], int] = {}
        for row, key in enumerate(zip(*columns, strict=True)):
            found.setdefault(key, row)
        return found

    def _of_fetch(self, anomaly: Anomaly) -> Judgement | None:
        fetch = self._found(anomaly, is_commit=False)
        if fetch is None:
            return None
        commits = self._commits
        writes, _ = self._of_group(int(commits["group"][fetch]))
        done, outcome = self._effective
        value = commits["committed_offset"][fetch]
        returned = writes[(commits["committed_offset"][writes] == value) & (value != UNKNOWN)]
        since_ns = int(commits["invoke_ns"][returned].max(initial=-1))
        missing = writes[(outcome[writes] == COMMITTED) & (done[writes] < commits["invoke_ns"][fetch])]
        missing = missing[commits["invoke_ns"][missing] > since_ns]
        deposed = self._deposed(fetch)
        if deposed is not None:
            # What was committed behind its election no deposed coordinator can know, unless it answered that itself.
            behind = done[missing] >= deposed.written_ns
            by_itself = commits["answered_by"][missing] == commits["answered_by"][fetch]
            missing = missing[~behind | (by_itself & (done[missing] < (deposed.judgement.at_ns or 0)))]
            if missing.size == 0:
                return deposed.judgement
        return self._all_lost(missing, int(commits["complete_ns"][fetch]), int(commits["invoke_ns"][fetch]))

    def _of_group(self, group: int) -> tuple[Array, Array]:
        """Return the rows of a group's commits and fetches; when these commits had taken effect is proven by now, as far as it can be."""
        if group not in self._of_groups:
            commits = self._commits
            own = np.flatnonzero(commits["group"] == group)
            _, outcome = self._effective
            writes = own[(commits["kind"][own] == COMMIT) & (outcome[own] != ABORTED)]
            fetches = own[(commits["kind"][own] != COMMIT) & (commits["outcome"][own] == OK)]
            prove(commits, self._effective, writes, fetches)
            self._of_groups[group] = (writes, fetches)
        return self._of_groups[group]

    @cached_property
    def _effective(self) -> tuple[Array, Array]:
        """When each commit had surely taken effect, and whether it did; of a group's own commits more is known behind `_of_group`."""
        return effective(self._commits, self._context)

    def _deposed(self, fetch: int) -> Deposed | None:
        """Return the election that who answered a fetch may not have known of; None where nobody recorded who that was."""
        node = int(self._commits["answered_by"][fetch])
        if node == UNKNOWN:
            return None
        group = self._groups[int(self._commits["group"][fetch])]
        return self._remembered.coordinator_deposed(group, node, int(self._commits["invoke_ns"][fetch]))

    def _all_lost(self, missing: Array, absent_ns: int, asked_ns: int | None = None) -> Judgement | None:
        """Return what permitted the loss of all these commits; what was fetched before `asked_ns` (None: nothing is said of it) had not been lost by then."""
        if missing.size == 0:
            return None
        rows = missing[np.argsort(self._commits["invoke_ns"][missing], kind="stable")]
        group = int(self._commits["group"][rows[0]])
        key = (group, asked_ns is None, self._remembered.absence(self._groups[group], absent_ns))
        known = self._known_lost.setdefault(key, np.zeros(self._commits["group"].size, bool))
        newest: Judgement | None = None
        for row in [*rows[:-1][~known[rows[:-1]]].tolist(), int(rows[-1])]:
            seen_ns = None if asked_ns is None else self._seen_ns(row, asked_ns)
            commit = self._commit(row)
            newest = self._remembered.position_lost(commit, absent_ns, seen_ns)
            if newest is None:
                return None
            is_seen = asked_ns is not None and int(self._commits["committed_offset"][row]) in self._fetched(group)
            known[row] = not is_seen and self._remembered.transaction_of(commit) is None
        return newest

    def _seen_ns(self, commit: int, asked_ns: int) -> int | None:
        """Return the last moment whose log is known to have had a position, as it was fetched after it had been committed and before a moment."""
        commits, group = self._commits, int(self._commits["group"][commit])
        fetches = self._fetched(group).get(int(commits["committed_offset"][commit]), np.zeros(0, np.int64))
        later = commits["invoke_ns"][fetches] > commits["complete_ns"][commit]
        own = fetches[later & (commits["complete_ns"][fetches] < asked_ns)]
        return max(map(self._position_seen_ns, own.tolist()), default=None)

    def _fetched(self, group: int) -> dict[int, Array]:
        """Return a group's fetches by what they fetched."""
        if group not in self._fetches:
            _, fetches = self._of_group(group)
            offsets = self._commits["committed_offset"][fetches]
            order = np.argsort(offsets, kind="stable")
            values, first = np.unique(offsets[order], return_index=True)
            self._fetches[group] = dict(zip(values.tolist(), np.split(fetches[order], first[1:]), strict=False))
        return self._fetches[group]

    def _position_seen_ns(self, fetch: int) -> int:
        """Return the earliest moment whose log a fetch may have been answered from: asked once of each."""
        if fetch not in self._seen:
            node = int(self._commits["answered_by"][fetch])
            group = self._groups[int(self._commits["group"][fetch])]
            at_ns = int(self._commits["invoke_ns"][fetch])
            self._seen[fetch] = self._remembered.position_seen(group, at_ns, None if node == UNKNOWN else node)
        return self._seen[fetch]

    def _commit(self, row: int) -> Commit:
        if row not in self._typed:
            self._typed[row] = typed(self._rows.table("commits").slice(row, 1), Commit)[0]
        return self._typed[row]

    def _of_generation(self, anomaly: Anomaly) -> Judgement | None:
        """Look for the first commit of a later generation: whoever forgot that generation forgot it, too."""
        stale = self._found(anomaly, is_commit=True)
        if stale is None:
            return None
        commits, rows = self._commits, self._later_generations(stale)
        first = rows[[np.argmin(commits["complete_ns"][rows])]] if rows.size else rows
        return self._all_lost(first, int(commits["complete_ns"][stale]))

    def _later_generations(self, stale: int) -> Array:
        """Return the group's commits of later generations that had been answered before this one was made."""
        commits = self._commits
        later = (commits["group"] == commits["group"][stale]) & answered(commits)
        later &= commits["generation"] > commits["generation"][stale]
        later &= commits["complete_ns"] < commits["invoke_ns"][stale]
        return np.flatnonzero(later)

    def _of_processed(self, log_offset: int, value: int) -> Judgement | None:
        """Look at the commit of every transaction that consumed the record, but for the last one."""
        steps, commits = self._context.steps(), self._commits
        polled, offsets = self._polled
        first, end = (int(np.searchsorted(offsets, log_offset, side)) for side in SIDES)
        chosen = polled[first:end]
        chosen = chosen[steps["value"][chosen] == value]
        txns = {int(steps["txn"][row]): row for row in chosen.tolist()}
        by_group: dict[int, list[int]] = {}
        for row in txns.values():
            end_ns = NEVER if steps["end_ns"][row] == UNKNOWN else steps["end_ns"][row]
            own = self._committed.get(int(steps["process"][row]), np.zeros(0, np.int64))
            times = commits["invoke_ns"][own]
            within = own[np.searchsorted(times, steps["begin_ns"][row]) : np.searchsorted(times, end_ns, "right")]
            for commit in within[-1:].tolist():
                by_group.setdefault(int(commits["group"][commit]), []).append(commit)
        return _all(self._in_turn(group, own, log_offset) for group, own in by_group.items() if len(own) > 1)

    @cached_property
    def _polled(self) -> tuple[Array, Array]:
        """The steps by which committed transactions took something, by the offset that they took."""
        steps = self._context.steps()
        own = np.flatnonzero((steps["kind"] == POLL) & (steps["outcome"] == COMMITTED))
        own = own[np.argsort(steps["log_offset"][own], kind="stable")]
        return own, steps["log_offset"][own]

    @cached_property
    def _committed(self) -> dict[int, Array]:
        """The commits of each process, in order of time."""
        commits = self._commits
        own = np.flatnonzero(commits["kind"] == COMMIT)
        own = own[np.lexsort((commits["invoke_ns"][own], commits["process"][own]))]
        processes, first = np.unique(commits["process"][own], return_index=True)
        return dict(zip(processes.tolist(), np.split(own, first[1:]), strict=False))

    def _in_turn(self, group: int, own: list[int], log_offset: int) -> Judgement | None:
        times = self._commits["invoke_ns"]
        own.sort(key=lambda row: int(times[row]))
        return _all(
            self._remembered.position_lost(self._commit(first), int(times[second]))
            or self._set_back(self._groups[group], log_offset, int(times[first]), int(times[second]))
            for first, second in pairwise(own)
        )

    def _set_back(self, group: str, log_offset: int, since_ns: int, until_ns: int) -> Judgement | None:
        """Look for an order that set the group's position to a record or before it, or deleted it, between two commits."""
        for order in self._orders:
            sets = order.api == AdminApi.ALTER_OFFSET and order.log_offset is not None
            fits = not sets or (order.log_offset or 0) <= log_offset
            if fits and order.group in (None, group) and order.may_be_done(since_ns, until_ns):
                return by_order(order)
        return None


def _all(judgements: Iterable[Judgement | None]) -> Judgement | None:
    """Return the last one if there are any and each of them excuses."""
    last: Judgement | None = None
    for last in judgements:
        if last is None:
            return None
    return last
