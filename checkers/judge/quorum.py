"""When the metadata quorum committed nothing although a majority of its voters ran unhurt.

A leader of the quorum writes a NoOpRecord where nothing else is written, twice a second if no setting says otherwise, so a recording in which
these records stand shows each silence. Voters elect a leader within some fetch and election time-outs (KIP-595); 20 s, or five times both together where
that is longer, leave room for a slow machine; for how long one of these voters, the harness or all of the machine waited for a processor meanwhile is
recorded, and comes on top. What is not known proves nothing: a controller whose disk was touched may lack its vote
(KIP-853 names voters by directory), so it counts as hurt to the end.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import Final

import msgspec
import pyarrow as pa

from tribunal.checkers.judge.cuts import with_cuts
from tribunal.checkers.judge.incarnations import DOWN, NEVER, begun_ns, concerns, undone_ns
from tribunal.checkers.judge.presence import OfRun, Span, without
from tribunal.checkers.judge.timeline import NodeSettings
from tribunal.checkers.judge.waits import Waits
from tribunal.results.manifest import integer
from tribunal.results.rows import CUT_OFF, Fault, NodeEvent, Phase, typed

AT_LEAST_NS: Final = 20_000_000_000  # the time to heal
TIMEOUTS: Final = 5
FETCH_MS: Final = ("controller.quorum.fetch.timeout.ms", 2_000)
ELECTION_MS: Final = ("controller.quorum.election.timeout.ms", 1_000)
IDLE_MS: Final = ("metadata.max.idle.interval.ms", 500)
NO_OP: Final = "NoOpRecord"
FINAL_READ: Final = "final-read"  # the observers are stopped in it
PASSES: Final = frozenset({
    "bridge", "brokers-from-controllers", "change-release", "clients-from-brokers", "clock-drift", "clock-jump", "clock-strobe", CUT_OFF,
    "delay-messages", "drop-messages", "duplicate-messages", "flaky", "half-open", "halves", "hold-messages", "isolate", "kill",
    "majorities-ring", "narrow", "pause", "power-loss", "remove-voter", "reset-connections", "rolling-restart", "single-link", "slow",
    "slow-fsync", "stop", "storm", "swizzle",
})  # fmt: skip
"""The faults after which, once they are undone, a controller votes as before."""
BROKERS_ALONE: Final = frozenset(
    {"change-min-isr", "elect-leaders", "raise-metadata-version", "reassign", "remove-broker"}
)
"""The faults that no controller notices but by what it is asked to commit."""


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """The quorum committed nothing in [since_ns, until_ns), by the harness's clock, although these controllers ran and nothing hurt them: a majority.

    waited_ns:  how long one of them, the harness or the machine waited for a processor within it.
    """

    since_ns: int
    until_ns: int
    voters: tuple[int, ...]
    waited_ns: int


def silent(of_run: OfRun, settings: NodeSettings) -> list[Silence]:
    """Return each time for which a majority of the voters ran unhurt, and committed nothing for too long; in their order.

    of_run:   the tables of one run, whole: metadata, nodes, faults, phases, waits.
    returns:  none in ZooKeeper mode, and none of a recording without NoOpRecords: there silence is no sign.
    source:   KIP-595, KIP-996; docs/verdicts.md, "A quorum that commits nothing".
    """
    controllers = _Controllers(
        typed(of_run("nodes"), NodeEvent), typed(with_cuts(of_run("faults"), of_run("phases")), Fault)
    )
    idle_ms = integer(settings, *IDLE_MS)
    if not controllers.nodes or idle_ms <= 0 or settings.get("mode") == "zookeeper":
        return []
    allowed_ms = TIMEOUTS * (integer(settings, *FETCH_MS) + integer(settings, *ELECTION_MS))
    within_ns = max(AT_LEAST_NS, allowed_ms * 1_000_000) + 2 * idle_ms * 1_000_000
    waits, found = Waits.of(of_run("waits")), []
    for since_ns, until_ns in _gaps(of_run("metadata"), of_run("phases")):
        if until_ns - since_ns > within_ns:
            longest = max(controllers.calm(since_ns, until_ns, waits), key=_length, default=None)
            if longest is not None and _length(longest) > within_ns:
                found.append(longest)
    return found


def _length(silence: Silence) -> int:
    """Return how long nobody who had to act waited for a processor."""
    return silence.until_ns - silence.since_ns - silence.waited_ns


def _gaps(metadata: pa.Table, phases: pa.Table) -> Iterator[tuple[int, int]]:
    """Yield the times between two commits, and that after the last one, from the first NoOpRecord on."""
    rows = metadata.sort_by("metadata_offset").select(["at_ns", "record_type"]).to_pylist()
    idle_ns = [row["at_ns"] for row in rows if row["record_type"] == NO_OP and row["at_ns"] is not None]
    if not idle_ns:
        return
    ends = [row.end_ns for row in typed(phases, Phase) if row.name != FINAL_READ and row.end_ns is not None]
    seen = sorted({row["at_ns"] for row in rows if row["at_ns"] is not None and row["at_ns"] >= min(idle_ns)})
    yield from pairwise(seen)
    if max(ends, default=0) > seen[-1]:
        yield seen[-1], max(ends)


class _Controllers:
    """When each controller ran and nothing hurt it."""

    def __init__(self, events: Sequence[NodeEvent], faults: Sequence[Fault]) -> None:
        self.nodes = sorted({row.node for row in events if row.role != "broker"})
        ordered = sorted(events, key=lambda row: row.at_ns)
        self._unhurt = {
            node: [left for ran in _ran(node, ordered) for left in without(ran, list(_hurt(node, faults)))]
            for node in self.nodes
        }

    def calm(self, since_ns: int, until_ns: int, waits: Waits) -> Iterator[Silence]:
        """Yield the times in which all of some majority ran unhurt, cut to [since_ns, until_ns), and how long they waited in each."""
        for voters in combinations(self.nodes, len(self.nodes) // 2 + 1):
            spans = [Span(since_ns, until_ns)]
            for node in voters:
                both = [
                    Span(max(one.since_ns, own.since_ns), min(one.until_ns, own.until_ns))
                    for one in spans
                    for own in self._unhurt[node]
                ]
                spans = [one for one in both if one.since_ns < one.until_ns]
            for one in spans:
                waited_ns = waits.within(one.since_ns, one.until_ns, voters)
                yield Silence(since_ns=one.since_ns, until_ns=one.until_ns, voters=voters, waited_ns=waited_ns)


def _ran(node: int, events: Sequence[NodeEvent]) -> Iterator[Span]:
    began_ns: int | None = None
    for row in events:
        if row.node == node and row.event == "start" and began_ns is None:
            began_ns = row.at_ns
        elif row.node == node and row.event in DOWN and began_ns is not None:
            yield Span(began_ns, row.at_ns)
            began_ns = None
    if began_ns is not None:
        yield Span(began_ns, NEVER)


def _hurt(node: int, faults: Sequence[Fault]) -> Iterator[Span]:
    """Yield when faults hurt a controller; one whose beginning is not known hurt it all the time. Clocks decide elections, too."""
    for fault in faults:
        if fault.kind not in BROKERS_ALONE and concerns(fault, {node}):
            until_ns = undone_ns(fault, without_proof=True) if fault.kind in PASSES else NEVER
            yield Span(begun_ns(fault) or 0, until_ns)
