"""What a graph checker says: anomalies by class, each with the operations that show it."""

import msgspec

from tribunal.results.verdict import TransactionEdge
from tribunal.results.words import of_edge

WITNESSES_MAX = 8


class Witness(msgspec.Struct, frozen=True):
    """One example: the operations' places in the history and the fact in words; of a circle its edges, in order."""

    operations: tuple[int, ...]
    words: str
    edges: tuple[TransactionEdge, ...] = ()


class Contradiction(msgspec.Struct, frozen=True):
    """Several values, by their numbers, that were seen at one offset of a partition; `writers` are those of them that are known."""

    key: str
    log_offset: int
    values: tuple[int, ...]
    writers: tuple[int, ...]
    words: str


class Findings:
    """Anomalies by name; examples are capped, counts are not, nor are contradictions: a permitted loss may explain each."""

    def __init__(self) -> None:
        self.contradictions: list[Contradiction] = []
        self.counts: dict[str, int] = {}
        self.witnesses: dict[str, list[Witness]] = {}
        self.undecided: list[str] = []

    def add_circle(self, anomaly: str, edges: tuple[TransactionEdge, ...]) -> None:
        """Count one circle of transactions."""
        words = "; ".join(of_edge(edge) for edge in edges)
        self.add(anomaly, tuple(edge.source for edge in edges), words, edges)

    def add(
        self, anomaly: str, operations: tuple[int, ...], words: str, edges: tuple[TransactionEdge, ...] = ()
    ) -> None:
        """Count one case of an anomaly; keep it as an example while there are few."""
        self.counts[anomaly] = self.counts.get(anomaly, 0) + 1
        kept = self.witnesses.setdefault(anomaly, [])
        if len(kept) < WITNESSES_MAX:
            kept.append(Witness(operations, words, edges))

    @property
    def anomalies(self) -> set[str]:
        """The names of all anomalies found."""
        return set(self.counts)
