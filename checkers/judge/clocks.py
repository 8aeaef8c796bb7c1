"""Whose wall clock was wrong by how much, as far as faults set it: a coordinator ends transactions that were left open by its own.

It counts a transaction's age from the clock of who led its partition of `__transaction_state` when it began, by the clock of who leads it now. Where the
later one shows less, the transaction is ended so much later. Nothing else is judged by a node's clock.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from tribunal.checkers.judge.incarnations import NEVER
from tribunal.checkers.judge.timeline import OBSERVATION_LAG_NS, Entry
from tribunal.results.metadata import NO_LEADER
from tribunal.results.rows import Fault

CLOCK: Final = "clock"
DRIFT: Final = "clock-drift"
STROBE: Final = "clock-strobe"


class Skew(msgspec.Struct, frozen=True, kw_only=True):
    """By how much a node's clock was ahead at least and at most, from one moment on and before another. node None: nobody knows whose."""

    node: int | None
    since_ns: int
    until_ns: int
    least_ns: int
    most_ns: int


class _Facts(msgspec.Struct, frozen=True):
    """What the proof of a clock's fault says; what it does not say is unknown."""

    offset_ms: int | None = None
    drift_ppm: int | None = None


class Leading(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which a node led."""

    node: int
    since_ns: int
    until_ns: int


def skews(faults: Iterable[Fault]) -> Iterator[Skew]:
    """Yield what faults did to clocks; of one that does several things nobody knows whose clock it set, nor how far."""
    for fault in faults:
        if CLOCK not in f"{fault.kind} {fault.proof or ''}" or fault.injected_ns is None:
            continue
        target = fault.resolved_target or ""
        is_of_one = fault.kind.startswith(CLOCK) and target.isdigit()
        since_ns, until_ns = fault.injected_ns, NEVER if fault.healed_ns is None else fault.healed_ns
        least_ns, most_ns = _reach(fault, until_ns - since_ns) if is_of_one else (-NEVER, NEVER)
        node = int(target) if is_of_one else None
        yield Skew(node=node, since_ns=since_ns, until_ns=until_ns, least_ns=least_ns, most_ns=most_ns)


def _reach(fault: Fault, lasted_ns: int) -> tuple[int, int]:
    facts = msgspec.json.decode(fault.proof or "{}", type=_Facts)
    if facts.offset_ms is None and facts.drift_ppm is None:
        return -NEVER, NEVER
    offset_ns = (facts.offset_ms or 0) * 1_000_000
    drift_ns = min(lasted_ns, NEVER) * (facts.drift_ppm or 0) // 1_000_000
    ends = [offset_ns, offset_ns + drift_ns, *([-offset_ns] if fault.kind == STROBE else [])]
    return min(ends), max(ends)


def leading(entries: Sequence[Entry], since_ns: int, until_ns: int) -> list[Leading]:
    """Return who led between two moments, as it was observed, and up to the lag of observation before."""
    ends = [*(entry.at_ns for entry in entries[1:]), NEVER]
    return [
        Leading(node=entry.state.leader, since_ns=max(since_ns, entry.at_ns - OBSERVATION_LAG_NS), until_ns=end_ns)
        for entry, end_ns in zip(entries, ends, strict=True)
        if entry.state.leader != NO_LEADER and end_ns >= since_ns and entry.at_ns - OBSERVATION_LAG_NS <= until_ns
    ]


def set_back(entries: Sequence[Entry], found: Sequence[Skew], since_ns: int, until_ns: int) -> tuple[int, int] | None:
    """Return by how much less than at first the clock of who led showed at most, between two moments, and since when; None: never less."""
    led = leading(entries, since_ns, until_ns)
    if not led:
        return None
    first_ns = max(_shown(found, one.node, one.since_ns)[1] for one in led if one.since_ns <= led[0].since_ns)
    bounds = [bound for skew in found for bound in (skew.since_ns, skew.until_ns) if bound < until_ns]
    times = [
        (one.node, at_ns) for one in led for at_ns in (one.since_ns, *bounds) if one.since_ns <= at_ns < one.until_ns
    ]
    back = [(first_ns - _shown(found, node, at_ns)[0], at_ns) for node, at_ns in times]
    most_ns, at_ns = max(back, key=lambda one: (one[0], -one[1]))
    return (most_ns, at_ns) if most_ns > 0 else None


def _shown(found: Sequence[Skew], node: int, at_ns: int) -> tuple[int, int]:
    own = [one for one in found if one.node in (None, node) and one.since_ns <= at_ns < one.until_ns]
    return sum(one.least_ns for one in own), sum(one.most_ns for one in own)
