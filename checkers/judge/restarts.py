"""Whether a node that did not start again is the system's own failure: a pure function of what the run saw, and of what the system's file promises.

The rule is in docs/verdicts.md, "A node that does not start again". Its second start has to prove it, with nothing else in effect; whatever may have
come from elsewhere leaves it open.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from tribunal.checkers.api import Anomaly, table_of
from tribunal.checkers.guarantees import OF_SYSTEMS, Promise
from tribunal.checkers.judge import permitted
from tribunal.checkers.judge.tables import Permitted, Place
from tribunal.checkers.judge.timeline import Judgement
from tribunal.checkers.judge.waits import Waits
from tribunal.results.manifest import STARTS_AFTER, Setting
from tribunal.results.not_started import Attempt, NotStarted
from tribunal.results.rows import Fault, typed
from tribunal.results.signature import INVARIANT, RUN, Signature
from tribunal.results.store import Recording
from tribunal.results.verdict import Detail, Failure, Finding
from tribunal.results.violation import DoesNotStart, Invariant, Violation
from tribunal.results.words import of_violation

RULE: Final = permitted.OF_A_START
SOURCE: Final = "docs/verdicts.md#a-node-that-does-not-start-again"
UNSAID: Final = "not_started"
KILLED: Final = (-9, 128 + 9)  # somebody else ended it
NS: Final = 1_000_000

Meaning = Literal["broken", "permitted", "unsaid"]


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """A node that provably does not start again by itself.

    meaning:  the file promises it, says that it need not be, or does not say it of `unsaid`.
    fault:    the index of the fault that put it down; at_ns: when that fault was in effect.
    by:       of what is permitted: the fault after which it need not start; it may be another node's, which this one waits for.
    """

    violation: Violation
    meaning: Meaning
    node: int
    fault: int
    at_ns: int
    by: Fault | None = None
    unsaid: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What happened."""
        return of_violation(self.violation)


def of(recording: Recording) -> list[Restart]:
    """Return what is proven of a run's nodes that did not start again."""
    manifest = recording.manifest
    if manifest is None or not manifest.not_started:
        return []
    faults = typed(recording.table("faults"), Fault)
    return proven(manifest.not_started, faults, manifest.settings or {}, Waits.of(recording.table("waits")))


def proven(
    seen: Sequence[NotStarted], faults: Sequence[Fault], settings: Mapping[str, Setting], waits: Waits
) -> list[Restart]:
    """Return what is proven of nodes that did not start again."""
    by_index = {fault.index: fault for fault in faults}
    down = {one.node for one in seen if one.second is not None}
    found = []
    for one in seen:
        fault = by_index.get(one.fault)
        # Who is not ready, and is none of these, may be what it waits for, and so may a fault that is still in effect.
        is_alone = set(one.not_ready) <= down and not one.not_undone
        if fault is None or one.second is None or not (is_alone and _is_its_own(one, one.second, waits)):
            continue
        if fault.took_effect is not True or fault.injected_ns is None or _node(fault) != one.node:
            continue
        own = _struck(one, by_index)
        others = [
            struck
            for other in seen
            if other.node in down and other.node != one.node
            for struck in _struck(other, by_index)
        ]
        judged = _judged(one, one.second, fault.injected_ns, own, [*own, *others], settings)
        if judged is not None:
            found.append(judged)
    return found


def _judged(
    one: NotStarted,
    second: Attempt,
    at_ns: int,
    own: Sequence[Fault],
    to_be_promised: Sequence[Fault],
    settings: Mapping[str, Setting],
) -> Restart | None:
    """Return what the file makes of it; None: a fault that nobody saw take effect may be what permits it."""
    said = {fault.kind: settings.get(f"{STARTS_AFTER}{fault.kind}") for fault in to_be_promised}
    need_not = [fault for fault in to_be_promised if said[fault.kind] is False]
    permitting = next((fault for fault in need_not if fault.took_effect is True), None)
    if need_not and permitting is None:
        return None
    unsaid = tuple(kind for kind, promised in said.items() if not isinstance(promised, bool))
    facts = DoesNotStart(
        faults=tuple(dict.fromkeys(fault.kind for fault in own)),
        within_ms=one.within_ms,
        first_ns=one.first.started_ns,
        second_ns=second.started_ns,
        exit_code=second.exit_code,
    )
    return Restart(
        violation=Violation(invariant=Invariant.LIVENESS, facts=facts, node=one.node),
        meaning="permitted" if permitting else "unsaid" if unsaid else "broken",
        node=one.node,
        fault=one.fault,
        at_ns=at_ns,
        by=permitting,
        unsaid=unsaid,
    )


def _is_its_own(one: NotStarted, second: Attempt, waits: Waits) -> bool:
    """Return whether its end is its own, or its silence was longer than a start may take, without the time in which it waited for a processor."""
    if second.how == "ended":
        return second.exit_code is not None and second.exit_code not in KILLED
    waited_ns = waits.within(second.started_ns, second.seen_ns, [one.node])
    return second.seen_ns - second.started_ns - waited_ns > one.within_ms * NS


def _struck(one: NotStarted, faults: Mapping[int, Fault]) -> list[Fault]:
    """Return what had hurt it: the fault that put it down first, then those that touched its disk, or behind which it did not start either."""
    return [faults[index] for index in (one.fault, *one.touched) if index in faults]


def _node(fault: Fault) -> int | None:
    last = (fault.resolved_target or "").rpartition(" ")[2]
    return int(last) if last.isdecimal() else None


def findings(restarts: Iterable[Restart]) -> list[Finding]:
    """Return what breaks a promise, and what a rule permits."""
    found = []
    for one in restarts:
        if one.meaning == "unsaid":
            continue
        is_broken = one.meaning == "broken"
        detail = (
            Detail()
            if is_broken
            else Detail(promise=OF_SYSTEMS[RULE], excuse=permitted.excuse(_judgement(one), Place("")))
        )
        found.append(
            Finding(
                property_name=INVARIANT,
                kind=one.violation.invariant.value,
                severity="violation" if is_broken else "permitted",
                explanation=one.words,
                node=one.node,
                rule=SOURCE if is_broken else RULE,
                detail=detail,
                violation=one.violation,
            )
        )
    return found


def failures(restarts: Iterable[Restart]) -> list[Failure]:
    """Return why there is no verdict: the system's file does not say whether its nodes start again."""
    return [
        Failure(signature=Signature(RUN, UNSAID), words=f"{one.words}; {_remedy(one)}")
        for one in restarts
        if one.meaning == "unsaid"
    ]


def _remedy(one: Restart) -> str:
    said = ", ".join(f"{kind} = true" for kind in one.unsaid)
    return f"whether it has to is for its system.toml to say: [promises] starts_after = {{ {said} }}, or false"


def permitted_faults(restarts: Iterable[Restart]) -> frozenset[int]:
    """Return the faults that were not undone because nodes need not start after them."""
    return frozenset(one.fault for one in restarts if one.meaning == "permitted")


def permitted_rows(restarts: Iterable[Restart], run_dir: Path) -> list[Permitted]:
    """Return the rows of `permitted.parquet`."""
    own = [one for one in restarts if one.meaning == "permitted"]
    if not own:
        return []
    anomalies = table_of(
        Anomaly(kind=one.violation.kind, at_ns=one.at_ns, node=one.node, detail=one.words) for one in own
    )
    judgements = {row: _judgement(one) for row, one in enumerate(own)}
    return [permitted.permitted(INVARIANT, anomalies, judgements, range(len(own)), Place(str(run_dir)))]


def _judgement(one: Restart) -> Judgement:
    assert one.by is not None  # of what is permitted
    node = _node(one.by)
    holders = () if node is None else (node,)
    return Judgement(Promise(RULE, ()), None, -1, one.by.injected_ns, (), holders=holders, by=one.by.kind)
