"""Transactions of which something is missing, as wholes: which partitions lack their part, and whether all of it was permitted to be lost (R9)."""

from collections.abc import Callable, Sequence
from typing import Final

from tribunal.checkers.api import PartitionRows, distinct, is_among
from tribunal.checkers.judge.evidence import Sent
from tribunal.checkers.judge.remembered import Place, Remembered
from tribunal.checkers.judge.steps import WRITE_KINDS
from tribunal.checkers.judge.timeline import Judgement
from tribunal.checkers.properties.atomicity import committed_final_reads
from tribunal.checkers.properties.lost_writes import complete_readers
from tribunal.results.rows import Transaction
from tribunal.results.store import Recording

TABLES: Final = ("polls", "reads")


class Ends:
    """What final reads with isolation read_committed showed of a run's transactions."""

    def __init__(
        self, recording: Recording, remembered: Remembered, compacted: Callable[[Place, int, int], Judgement | None]
    ) -> None:
        """`compacted`: what let compaction take a value that is missing at an offset of a partition; None: nothing did."""
        self._recording = recording
        self._remembered = remembered
        self._compacted = compacted
        self._visible: dict[Place, frozenset[int]] = {}
        self._read_ns: dict[Place, int | None] = {}
        self._starts: dict[Place, int] = {}

    def excuse(self, begin_ns: int | None) -> Judgement | None:
        """Return what permitted the loss of an end, of the transactions that began at a moment or of all that are visible by halves."""
        halves = [
            (row, parts)
            for row in self._remembered.transactions
            if begin_ns is None or row.begin_ns == begin_ns
            if row.outcome != "aborted" and (parts := self._missing(row))
        ]
        found: list[Judgement] = []
        for row, parts in halves:
            judgement = self._of_parts(row, parts)
            if judgement is None:
                return None
            found.append(judgement)
        return min(found, key=lambda one: one.at_ns or 0, default=None)

    def _of_parts(self, row: Transaction, parts: Sequence[tuple[Place, Sent]]) -> Judgement | None:
        """Return what permitted that these parts are missing: of each, its end was lost, or compaction took it."""
        taken = [self._taken(place, sent) for place, sent in parts]
        by_order = [one for one in taken if one is not None]
        missing = {place: sent for (place, sent), one in zip(parts, taken, strict=True) if one is None}
        if not missing:
            return by_order[0]
        # A part that nobody knows to have been written explains nothing by being absent.
        missing = {place: sent for place, sent in missing.items() if self._is_written(place, sent)} or missing
        absent_ns = [self._read_ns[place] for place in missing]
        last_ns = max((at_ns for at_ns in absent_ns if at_ns is not None), default=None)
        return self._remembered.end_lost(row, missing, last_ns)

    def _missing(self, row: Transaction) -> list[tuple[Place, Sent]]:
        """Return the parts that no reader sees of a transaction of which readers see others."""
        sends = [
            ((step.topic, step.partition), Sent(since_ns=row.begin_ns, value=step.value, log_offset=step.log_offset))
            for step in row.operations or ()
            if step.kind in WRITE_KINDS
            and step.topic is not None
            and step.partition is not None
            and step.value is not None
        ]
        shown = [sent.value in self._shown(place) for place, sent in sends]
        if not any(shown):
            return []
        return [part for part, seen in zip(sends, shown, strict=True) if not seen]

    def _taken(self, place: Place, sent: Sent) -> Judgement | None:
        if sent.value is None or sent.log_offset is None or not self._is_written(place, sent):
            return None
        return self._compacted(place, sent.value, sent.log_offset)

    def _is_written(self, place: Place, sent: Sent) -> bool:
        """Whether a part stands in the partition's log, as far as it was answered, and as the log still begins before it."""
        return sent.log_offset is not None and sent.log_offset >= self._starts[place]

    def _shown(self, place: Place) -> frozenset[int]:
        if place not in self._visible:
            name = f"{place[0]}-{place[1]}"
            rows = PartitionRows({table: self._recording.table(table, name) for table in TABLES})
            read, polls = committed_final_reads(rows), rows.columns("polls")
            final = is_among(polls["process"], distinct(complete_readers(polls)))
            self._read_ns[place] = int(polls["complete_ns"][final].max(initial=0)) or None
            self._starts[place] = int(polls["log_start_offset"][final].max(initial=0))
            self._visible[place] = frozenset([] if read is None else rows.columns("reads")["value"][read].tolist())
        return self._visible[place]
