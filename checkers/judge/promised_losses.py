"""What a described system's file permits to be lost (R13): `[promises] lost_ms = { kill = 600 }`.

A server that acknowledges before it has written says so in its file: a kill -9 of its only node may take what was acknowledged at most so
long before. Nothing else does: not a kill that was not proven, not another fault, not an earlier change, not one that was asked for
after the kill, and not one that somebody saw after the kill.
"""

from collections.abc import Callable, Sequence

import msgspec

from tribunal.checkers.api import Anomaly, Found, table_of
from tribunal.checkers.guarantees import Promise
from tribunal.checkers.judge.timeline import History, Judgement
from tribunal.results.manifest import LOST_MS, integer
from tribunal.results.rows import ObjectCall
from tribunal.results.verdict import Detail

RULE = "R13"
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
    known = [one.complete_ns for one in (*seen_by, *([call] if call.outcome == "ok" else []))]
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
                return _judgement(target, done_ns)
        return None

    return permits


def _judgement(target: str, at_ns: int) -> Judgement:
    last = target.rpartition(" ")[2]
    node = (int(last),) if last.isdecimal() else ()
    return Judgement(Promise(RULE, ()), None, -1, at_ns, (), holders=node, lost=node, by=KILL)
