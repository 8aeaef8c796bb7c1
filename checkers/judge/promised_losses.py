"""What a described system's file permits to be lost: `[promises] lost_ms = { kill = 600 }` (R13), `one_lost = ["kill"]` (R16).

A server that acknowledges before it has written says so in its file: a kill -9 of its only node may take what was acknowledged at most so
long before. Nothing else does: not a kill that was not proven, not another fault, not an earlier change, not one that was asked for
after the kill, and not one that somebody saw after the kill.

What one node alone has acknowledged (`publish-one`) others may never get: where the file says so, a fault of those that it names takes it, if it
struck the node that answered and was in effect, or begun, between the publication and the look that lacks it.
"""

from collections.abc import Callable, Sequence, Set

import msgspec

from tribunal.checkers.api import Anomaly, Found, table_of
from tribunal.checkers.guarantees import Promise
from tribunal.checkers.judge.calls import SENT
from tribunal.checkers.judge.incarnations import named
from tribunal.checkers.judge.timeline import History, Judgement
from tribunal.results.manifest import LOST_MS, ONE_LOST, integer
from tribunal.results.rows import ObjectCall
from tribunal.results.verdict import Detail

RULE = "R13"
RULE_OF_ONE = "R16"
KILL = "kill"
MS = 1_000_000


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is missing.

    invoked_ns:  when it was asked for.
    known_ns:    when it was surely made: its answer, or the end of the first read that saw it.
    seen_ns:     when the last read that saw it began; None: nobody saw it.
    missed_ns:   when the read that lacks it ended.
    """

    invoked_ns: int
    known_ns: int
    seen_ns: int | None
    missed_ns: int


Permits = Callable[[Change], Judgement | None]
PermitsOfOne = Callable[[Change, Set[int]], Judgement | None]


class Row(msgspec.Struct, frozen=True):
    """An anomaly, what permits it, and what is known of it."""

    anomaly: Anomaly
    judgement: Judgement | None = None
    detail: Detail = Detail()


def found_in(rows: Sequence[Row], figures: dict[str, int]) -> Found:
    """Return these rows and figures as a kernel does."""
    return Found(
        table_of(row.anomaly for row in rows),
        figures,
        judgements={number: row.judgement for number, row in enumerate(rows) if row.judgement is not None},
        details={number: row.detail for number, row in enumerate(rows)},
    )


def of_call(kind: str, value: int, call: ObjectCall, words: str) -> Anomaly:
    """Return what is wrong with an element, at the call that was acknowledged."""
    return Anomaly(
        kind=kind, value=value, invoke_ns=call.invoke_ns, at_ns=call.complete_ns, process=call.process, detail=words
    )


def missed(call: ObjectCall, by: ObjectCall, seen_by: Sequence[ObjectCall] = ()) -> Change:
    """Return the change of a call as one that another call lacks; it was acknowledged, or others saw it."""
    is_acknowledged = call.outcome == "ok" and call.function != SENT
    known = [one.complete_ns for one in (*seen_by, *([call] if is_acknowledged else []))]
    return Change(
        invoked_ns=call.invoke_ns,
        known_ns=min((at_ns for at_ns in known if at_ns is not None), default=0),
        seen_ns=max((one.invoke_ns for one in seen_by), default=None),
        missed_ns=by.complete_ns or 0,
    )


def permitted_losses(history: History) -> Permits:
    """Return what says which kill was permitted to take a change; None: none was."""
    within_ns = integer(history.settings, f"{LOST_MS}{KILL}", 0) * MS
    kills = [
        (fault.planned_ns, fault.injected_ns, fault.resolved_target or "")
        for fault in history.faults
        if fault.kind == KILL and fault.took_effect and within_ns
        if fault.planned_ns is not None and fault.injected_ns is not None
    ]

    def permits(change: Change) -> Judgement | None:
        for begun_ns, done_ns, target in kills:
            is_recent = change.known_ns >= begun_ns - within_ns and change.invoked_ns <= done_ns
            survived = change.seen_ns is not None and change.seen_ns > done_ns
            if is_recent and not survived and begun_ns <= change.missed_ns:
                return _judgement(RULE, KILL, _node(target), done_ns)
        return None

    return permits


def permitted_losses_of_one(history: History) -> PermitsOfOne:
    """Return what says which fault was permitted to take a change that one node alone had acknowledged; None: none was.

    The nodes are those that are known to have had it: which answered its publication, or showed it.
    """
    taking = [
        fault
        for fault in history.faults
        if fault.took_effect and history.settings.get(f"{ONE_LOST}{fault.kind}") is True
        if fault.planned_ns is not None and fault.injected_ns is not None
    ]

    def permits(change: Change, nodes: Set[int]) -> Judgement | None:
        for fault in taking:
            begun_ns, ended_ns = fault.planned_ns or 0, fault.healed_ns
            struck = frozenset(named(fault) & nodes)
            is_between = begun_ns <= change.missed_ns and (ended_ns is None or ended_ns >= change.invoked_ns)
            survived = change.seen_ns is not None and ended_ns is not None and change.seen_ns > ended_ns
            if struck and is_between and not survived:
                return _judgement(RULE_OF_ONE, fault.kind, tuple(sorted(struck)), fault.injected_ns or begun_ns)
        return None

    return permits


def _node(target: str) -> tuple[int, ...]:
    last = target.rpartition(" ")[2]
    return (int(last),) if last.isdecimal() else ()


def _judgement(rule: str, by: str, nodes: tuple[int, ...], at_ns: int) -> Judgement:
    return Judgement(Promise(rule, ()), None, -1, at_ns, (), holders=nodes, lost=nodes, by=by)
