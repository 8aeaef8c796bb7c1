"""Transactions of which something is missing, as wholes: which partitions lack their part, and whether all of it was permitted to be lost (R9)."""

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

    def __init__(self, recording: Recording, remembered: Remembered) -> None:
        self._recording = recording
        self._remembered = remembered
        self._visible: dict[Place, frozenset[int]] = {}
        self._read_ns: dict[Place, int | None] = {}
        self._starts: dict[Place, int] = {}

    def excuse(self, begin_ns: int | None) -> Judgement | None:
        """Return what permitted the loss of an end, of the transactions that began at a moment or of all that are visible by halves."""
        halves = [
            (row, missing)
            for row in self._remembered.transactions
            if begin_ns is None or row.begin_ns == begin_ns
            if row.outcome != "aborted" and (missing := self._missing(row))
        ]
        found: list[Judgement] = []
        for row, missing in halves:
            # A part that nobody knows to have been written explains nothing by being absent.
            missing = {place: sent for place, sent in missing.items() if self._is_written(place, sent)} or missing
            absent_ns = [self._read_ns[place] for place in missing]
            last_ns = max((at_ns for at_ns in absent_ns if at_ns is not None), default=None)
            judgement = self._remembered.end_lost(row, missing, last_ns)
            if judgement is None:
                return None
            found.append(judgement)
        return min(found, key=lambda one: one.at_ns or 0, default=None)

    def _missing(self, row: Transaction) -> dict[Place, Sent]:
        """Return the partitions that show nothing of a transaction of which others show something, with the last that it sent there."""
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
            return {}
        return {place: sent for (place, sent), seen in zip(sends, shown, strict=True) if not seen}

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
