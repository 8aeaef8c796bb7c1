"""The invariants of docs/invariants.md, as far as a state of this world shows them.

I6 is judged where it is decided: a leader elected without an acknowledged record has lost it, whatever comes after.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Final

from replog.types import NO_NODE, NodeId
from tribunal.harness.explore.partition.broker import Seen, Stored
from tribunal.harness.explore.partition.controller import Known
from tribunal.harness.explore.partition.events import Tally
from tribunal.harness.explore.partition.words import log_words
from tribunal.results.explored import Broken

INVARIANTS: Final = ("I4", "I6", "I7", "I8", "I9", "I10", "I12", "I14")


def broken(known: Known, seen: Mapping[NodeId, Seen], tally: Tally) -> list[Broken]:
    """Return the invariants of docs/invariants.md that do not hold."""
    return [
        *_shape(known, tally),
        *_holders(known, seen, tally.committed),
        *_leaders(seen, tally.committed),
        *_agreement(seen),
    ]


def _shape(known: Known, tally: Tally) -> Iterator[Broken]:
    """Yield what is wrong with the committed state alone (I7, I10, I12)."""
    partition = known.partition
    isr, elr = set(partition.isr), set(partition.elr)
    if isr & elr or not isr | elr <= set(partition.replicas):
        yield Broken(invariant="I7", words=f"ISR {sorted(isr)} and ELR {sorted(elr)} overlap")
    if elr and len(isr) >= known.min_isr:
        words = f"ELR {sorted(elr)} stands beside an ISR of {len(isr)}, min ISR {known.min_isr}"
        yield Broken(invariant="I7", words=words)
    if partition.leader != NO_NODE and partition.leader not in isr:
        yield Broken(invariant="I10", words=f"leader {partition.leader} is not in the ISR {sorted(isr)}")
    if known.is_recovering and len(isr) > 1:
        yield Broken(invariant="I12", words=f"RECOVERING with an ISR of {sorted(isr)}")
    if known.is_recovering and not tally.forgiven:
        # KIP-966: ISR and ELR together hold min ISR brokers, so that many have to crash before nobody may be trusted.
        yield Broken(invariant="I6", words=f"{partition.leader} was elected uncleanly after {tally.kills} crash(es)")


def _holders(known: Known, seen: Mapping[NodeId, Seen], committed: Stored) -> Iterator[Broken]:
    """Yield who may lead, or leads, and lacks what is committed (I8, I9, I6)."""
    partition = known.partition
    for node in (*partition.elr, *partition.isr):
        if seen[node].has_lost or not _lacks(seen[node].stored, committed):
            continue  # what was lost with its disk's tail the controller learns from its registration
        which, place = ("I8", "ELR") if node in partition.elr else ("I9", "ISR")
        words = (
            f"{node} is in the {place} and holds {log_words(seen[node].stored)}; committed is {log_words(committed)}"
        )
        yield Broken(invariant=which, words=words)
    leader = seen.get(partition.leader)
    if leader is not None and not leader.has_lost and _lacks(leader.stored, committed):
        words = f"{partition.leader} is elected with {log_words(leader.stored)}; committed was {log_words(committed)}"
        yield Broken(invariant="I6", words=words)


def _leaders(seen: Mapping[NodeId, Seen], committed: Stored) -> Iterator[Broken]:
    """Yield leaders that show as committed what another did not, or share an epoch (I4, I10)."""
    for node, one in seen.items():
        shown = one.stored[: one.high_watermark]
        if one.leads and shown != committed[: len(shown)]:
            words = f"{node} shows {log_words(shown)} as committed, another had shown {log_words(committed)}"
            yield Broken(invariant="I4", words=words)
    leaders = [(one.leader_epoch, node) for node, one in sorted(seen.items()) if one.leads]
    for (epoch, node), (other_epoch, other) in combinations(leaders, 2):
        if epoch == other_epoch:
            yield Broken(invariant="I10", words=f"{node} and {other} both lead in epoch {epoch}")


def _agreement(seen: Mapping[NodeId, Seen]) -> Iterator[Broken]:
    """Yield logs that differ below both high watermarks (I14)."""
    for one, two in combinations(seen.values(), 2):
        both = min(one.high_watermark, two.high_watermark)
        if one.stored[:both] != two.stored[:both]:
            words = f"logs differ below {both}: {log_words(one.stored)}, {log_words(two.stored)}"
            yield Broken(invariant="I14", words=words)


def _lacks(stored: Stored, committed: Stored) -> bool:
    return stored[: len(committed)] != committed
