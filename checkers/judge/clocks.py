"""By how much the clock of who led was set back: a coordinator ends transactions that were left open by its own wall clock.

It counts a transaction's age from the clock of who led its partition of `__transaction_state` when it began, by the clock of who leads it now. Where the
later one shows less, the transaction is ended so much later.
"""

from collections.abc import Sequence

import msgspec

from tribunal.checkers.judge.incarnations import NEVER
from tribunal.checkers.judge.skews import Skew
from tribunal.checkers.judge.timeline import OBSERVATION_LAG_NS, Entry
from tribunal.results.metadata import NO_LEADER


class Leading(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which a node led."""

    node: int
    since_ns: int
    until_ns: int


def leading(entries: Sequence[Entry], since_ns: int, until_ns: int) -> list[Leading]:
    """Return who led between two moments, as it was observed, and up to the lag of observation before."""
    ends = [*(entry.at_ns for entry in entries), NEVER][1:]
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
    bounds = [bound for skew in found for bound in (skew.since_ns, skew.sure_ns, skew.until_ns) if bound < until_ns]
    times = [
        (one.node, at_ns) for one in led for at_ns in (one.since_ns, *bounds) if one.since_ns <= at_ns < one.until_ns
    ]
    back = [(first_ns - _shown(found, node, at_ns)[0], at_ns) for node, at_ns in times]
    most_ns, at_ns = max(back, key=lambda one: (one[0], -one[1]))
    return (most_ns, at_ns) if most_ns > 0 else None


def _shown(found: Sequence[Skew], node: int, at_ns: int) -> tuple[int, int]:
    own = [one.shown(at_ns) for one in found if one.node in (None, node)]
    return sum(least for least, _ in own), sum(most for _, most in own)
