"""What a graph checker says: anomalies by class, each with the operations that show it."""

from collections.abc import Iterable
from typing import Final

import msgspec

from tribunal.results.store import partition_order
from tribunal.results.verdict import TransactionEdge
from tribunal.results.words import of_edge

WITNESSES_MAX = 8


Place = tuple[int, str, int, int]  # an operation's row or -1, topic and partition or "" and -1, and a number
NOWHERE: Final[Place] = (-1, "", -1, -1)


class Witness(msgspec.Struct, frozen=True):
    """One example: the operations' places in the history and the fact in words; of a circle its edges, in order.

    place:  where it comes among the examples of its kind, of those that are looked for in parts of a history.
    """

    operations: tuple[int, ...]
    words: str
    edges: tuple[TransactionEdge, ...] = ()
    place: Place = NOWHERE


class Contradiction(msgspec.Struct, frozen=True):
    """Several values, by their numbers, that were seen at one offset of a partition; `writers` are those of them that are known."""

    key: str
    log_offset: int
    values: tuple[int, ...]
    writers: tuple[int, ...]
    words: str


class AbortedMessage(msgspec.Struct, frozen=True):
    """A message of an aborted transaction, by its number, that transactions polled at one offset of a partition.

    writer:  the row of the transaction that sent it.
    reader:  the row of the first that polled it; step: where in that one.
    count:   how many polls there were of it.
    """

    key: str
    log_offset: int
    value: int
    writer: int
    reader: int
    step: int
    count: int
    words: str


class Findings:
    """Anomalies by name; examples are capped, counts are not, nor are contradictions and aborted messages: a permitted loss may explain each."""

    def __init__(self) -> None:
        self.contradictions: list[Contradiction] = []
        self.aborted: dict[tuple[str, int, int], AbortedMessage] = {}  # by key, offset, value
        self.counts: dict[str, int] = {}
        self.witnesses: dict[str, list[Witness]] = {}
        self.undecided: list[str] = []

    def add_circle(self, anomaly: str, edges: tuple[TransactionEdge, ...]) -> None:
        """Count one circle of transactions."""
        words = "; ".join(of_edge(edge) for edge in edges)
        self.add(anomaly, tuple(edge.source for edge in edges), words, edges)

    def add(
        self,
        anomaly: str,
        operations: tuple[int, ...],
        words: str,
        edges: tuple[TransactionEdge, ...] = (),
        place: Place = NOWHERE,
    ) -> None:
        """Count one case of an anomaly; keep it as an example while there are few."""
        self.counts[anomaly] = self.counts.get(anomaly, 0) + 1
        kept = self.witnesses.setdefault(anomaly, [])
        if len(kept) < WITNESSES_MAX:
            kept.append(Witness(operations, words, edges, place))

    def add_aborted(self, message: AbortedMessage) -> None:
        """Count what was polled of an aborted transaction; who polled it first stands for all."""
        place = (message.key, message.log_offset, message.value)
        known = self.aborted.get(place)
        if known is not None:
            first = min(known, message, key=lambda one: (one.reader, one.step))
            message = msgspec.structs.replace(first, count=known.count + message.count)
        self.aborted[place] = message

    @property
    def anomalies(self) -> set[str]:
        """The names of all anomalies found."""
        return set(self.counts)


class OfPart(msgspec.Struct, frozen=True):
    """What is found in a part of a history, as it travels."""

    counts: dict[str, int]
    witnesses: dict[str, list[Witness]]
    contradictions: list[Contradiction]
    aborted: list[AbortedMessage] = []

    @classmethod
    def of(cls, found: Findings) -> "OfPart":
        """Return it."""
        return cls(found.counts, found.witnesses, found.contradictions, [*found.aborted.values()])


def joined(parts: Iterable[OfPart]) -> Findings:
    """Put parts of a history together: of each kind the first examples of all of them, as if they had been looked for at once."""
    found = Findings()
    for part in parts:
        found.contradictions += part.contradictions
        for message in part.aborted:
            found.add_aborted(message)
        for name, count in part.counts.items():
            found.counts[name] = found.counts.get(name, 0) + count
            found.witnesses.setdefault(name, []).extend(part.witnesses[name])
    for name, witnesses in found.witnesses.items():
        found.witnesses[name] = sorted(witnesses, key=lambda one: one.place)[:WITNESSES_MAX]
    found.contradictions.sort(key=lambda one: (*partition_order(one.key), one.log_offset))
    return found
