"""Whose wall clock was wrong by how much, as far as faults set it.

Two things go by it: a coordinator ends transactions that were left open by its own, and a broker deletes records by their age.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from tribunal.checkers.judge.incarnations import NEVER, named, undone_ns
from tribunal.results.rows import Fault
from tribunal.results.unreadable import UNREADABLE

CLOCK: Final = "clock"
STROBE: Final = "clock-strobe"


class Skew(msgspec.Struct, frozen=True, kw_only=True):
    """By how much a node's clock was ahead at least and at most, from one moment on and before another. node None: nobody knows whose.

    since_ns:  when it may have been set at the earliest; it surely was at `sure_ns`, when the fault was proven.
    until_ns:  when it was right again, which may be long before full service was back; where that is not known, when the fault was healed.
    """

    node: int | None
    since_ns: int
    sure_ns: int
    until_ns: int
    least_ns: int
    most_ns: int

    def shown(self, at_ns: int) -> tuple[int, int]:
        """Return by how much the clock was ahead at a moment at least and at most."""
        if not self.since_ns <= at_ns < self.until_ns:
            return 0, 0
        return (self.least_ns, self.most_ns) if at_ns >= self.sure_ns else (min(self.least_ns, 0), max(self.most_ns, 0))

    @property
    def span_ns(self) -> int:
        """By how much at most it makes anything older: written by a clock that is behind, or looked at by one that is ahead."""
        return min(max(self.most_ns, 0) - min(self.least_ns, 0), NEVER)


class _Facts(msgspec.Struct, frozen=True):
    """What the proof of a clock's fault says; what it does not say is unknown."""

    offset_ms: int | None = None
    drift_ppm: int | None = None


class _Service(msgspec.Struct, frozen=True):
    """How long a proof of a heal waited for full service, in vain or not."""

    took_ms: int | None = None
    waited_ms: int | None = None


class _Healed(msgspec.Struct, frozen=True):
    """What the proof of a clock's heal says behind its being right."""

    service: _Service | None = None


def skews(faults: Iterable[Fault]) -> Iterator[Skew]:
    """Yield what faults did to clocks; of one that does several things nobody knows whose clock it set, nor how far."""
    for fault in faults:
        if CLOCK not in f"{fault.kind} {fault.proof or ''}" or fault.injected_ns is None:
            continue
        nodes = named(fault)
        is_of_one = fault.kind.startswith(CLOCK) and len(nodes) == 1
        # A clock is set before it is proven to be wrong.
        since_ns = fault.injected_ns if fault.planned_ns is None else min(fault.planned_ns, fault.injected_ns)
        until_ns = _right_ns(fault) if is_of_one else undone_ns(fault, without_proof=False)
        least_ns, most_ns = _reach(fault, until_ns) if is_of_one else (-NEVER, NEVER)
        node = min(nodes) if is_of_one else None
        yield Skew(
            node=node,
            since_ns=since_ns,
            sure_ns=fault.injected_ns,
            until_ns=until_ns,
            least_ns=least_ns,
            most_ns=most_ns,
        )


def _right_ns(fault: Fault) -> int:
    """Return when a clock was surely right again: set right first, the fault then waited for full service, and its proof says for how long."""
    undone = undone_ns(fault, without_proof=False)
    if undone == NEVER or fault.injected_ns is None:
        return undone
    try:
        service = msgspec.json.decode(fault.heal_proof or "{}", type=_Healed).service
    except UNREADABLE:
        return undone
    waited_ms = 0 if service is None else max(service.took_ms or 0, service.waited_ms or 0)
    # Milliseconds are rounded: half of one is missing at most.
    return min(undone, max(fault.injected_ns, undone - max(waited_ms - 1, 0) * 1_000_000))


def _facts(fault: Fault) -> _Facts:
    """Return what a proof says of a clock; one that nobody can read says nothing of it."""
    try:
        return msgspec.json.decode(fault.proof or "{}", type=_Facts)
    except UNREADABLE:
        return _Facts()


def _reach(fault: Fault, until_ns: int) -> tuple[int, int]:
    """Return by how much a clock was ahead at least and at most; one that drifts may do so as if it had since the run began (a simulated one does)."""
    facts = _facts(fault)
    if facts.offset_ms is None and facts.drift_ppm is None:
        return -NEVER, NEVER
    offset_ns = (facts.offset_ms or 0) * 1_000_000
    drift_ns = min(until_ns, NEVER) * (facts.drift_ppm or 0) // 1_000_000
    ends = [offset_ns, offset_ns + drift_ns, *([-offset_ns] if fault.kind == STROBE else [])]
    return min(ends), max(ends)
