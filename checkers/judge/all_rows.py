"""What all rows of a partition say, where only those of some ranges of offsets are held: the others are read when somebody asks, piece by piece.

A rule asks where the log ends, which record stands next, whether there was a transaction. From the rows of some ranges alone the answer
would be another one than of the whole partition.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.api import FINAL, UNKNOWN, Array, PartitionRows, distinct, is_among
from tribunal.checkers.judge.hot_partitions import Range, groups, read_groups
from tribunal.checkers.properties.lost_writes import complete_readers
from tribunal.results.store import Recording

EVERYTHING: Final = Range(0, 1 << 62)


class AllRows:
    """Of a partition that is held as a whole: nothing has to be read for it."""

    def __init__(self, rows: PartitionRows, can_lead: Sequence[int]) -> None:
        self._rows = rows
        self._can_lead = np.asarray(sorted(can_lead), np.int64)

    def pieces(self, name: str, columns: Sequence[str]) -> Iterable[PartitionRows]:
        """Return all rows of a table, with these columns at least."""
        return (self._rows,)

    def held(self, offset: int) -> Range:
        """Return the longest stretch of offsets around this one of which all rows are held; empty where this one's are not."""
        return EVERYTHING

    @cached_property
    def _readers(self) -> Array:
        return complete_readers(self._rows.columns("polls"))

    @cached_property
    def is_read(self) -> bool:
        """Whether a complete final read received anything."""
        return self._readers.size > 0 and any(self._is_final(rows).any() for rows in self._reads())

    @cached_property
    def end(self) -> int:
        """Behind the last offset at which anything was sent, read or found in a log."""
        places = (
            int(rows.columns(name)["log_offset"].max(initial=-1))
            for name in ("sends", "reads", "logs")
            for rows in self.pieces(name, ("log_offset",))
        )
        return 1 + max(places, default=-1)

    @cached_property
    def longest_key(self) -> int:
        """How many bytes the longest key has."""
        return max((_longest(rows.table("sends")["key"]) for rows in self.pieces("sends", ("key",))), default=0)

    @cached_property
    def in_transactions(self) -> bool:
        """Whether anything was sent in a transaction."""
        return any((rows.columns("sends")["txn_id"] != UNKNOWN).any() for rows in self.pieces("sends", ("txn_id",)))

    def newest_of(self, keys: Set[str]) -> dict[str, int]:
        """Return the greatest offset in the final log of each of these keys that has one."""
        ordered = sorted(keys)
        values, of_key = self._keyed({key: number for number, key in enumerate(ordered)})
        newest = np.full(len(ordered), UNKNOWN, np.int64)
        if values.size:
            for offsets, there in self._final_records():
                place = np.minimum(np.searchsorted(values, there), values.size - 1)
                known = values[place] == there
                np.maximum.at(newest, of_key[place[known]], offsets[known])
        return {key: offset for key, offset in zip(ordered, newest.tolist(), strict=True) if offset != UNKNOWN}

    def final_epoch_from(self, offset: int) -> int | None:
        """Return the leader epoch of the first record of the final log at or behind an offset; None: none, or it is unknown."""
        return None  # everything is held

    def sent_before_ns(self, offset: int) -> int:
        """Return when the last record was sent that any log holds before an offset, at the earliest; 0 where nobody knows."""
        return 0  # everything is held

    def _reads(self) -> Iterable[PartitionRows]:
        return self.pieces("reads", ("process", "phase"))

    def _is_final(self, rows: PartitionRows) -> Array:
        reads = rows.columns("reads")
        return np.asarray((reads["phase"] == FINAL) & is_among(reads["process"], self._readers))

    def _of_leaders(self, rows: PartitionRows) -> Array:
        nodes = rows.columns("logs")["node"]
        return is_among(nodes, self._can_lead) if self._can_lead.size else np.ones(nodes.size, bool)

    def _keyed(self, numbers: dict[str, int]) -> tuple[Array, Array]:
        """Return the values that were sent with one of these keys, ascending, and the number of each one's key."""
        values, found = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for rows in self.pieces("sends", ("value", "key")):
            words = rows.words("sends", "key")
            own = np.array([*(numbers.get(word, UNKNOWN) for word in words), UNKNOWN], np.int64)
            of_key = own[rows.columns("sends")["key"]]
            values.append(rows.columns("sends")["value"][of_key != UNKNOWN])
            found.append(of_key[of_key != UNKNOWN])
        together = np.concatenate(values)
        order = np.argsort(together, kind="stable")
        return together[order], np.concatenate(found)[order]

    def _final_records(self) -> Iterator[tuple[Array, Array]]:
        """Yield offsets and values of the final log: what final reads received, or else what those that can lead hold."""
        if self.is_read:
            for rows in self.pieces("reads", ("process", "phase", "log_offset", "value")):
                own, reads = self._is_final(rows), rows.columns("reads")
                yield reads["log_offset"][own], reads["value"][own]
            return
        for rows in self.pieces("logs", ("node", "log_offset", "value")):
            own, logs = self._of_leaders(rows), rows.columns("logs")
            yield logs["log_offset"][own], logs["value"][own]


def _longest(keys: pa.ChunkedArray) -> int:
    return (pc.max(pc.binary_length(keys.cast(pa.large_binary()))).as_py() or 0) if len(keys) else 0


class RowsOfRanges(AllRows):
    """Of a partition of which some ranges are held: the rest is in the files."""

    def __init__(
        self, rows: PartitionRows, can_lead: Sequence[int], recording: Recording, name: str, held: Sequence[Range]
    ) -> None:
        """`name`: the partition (`topic-p`); `held`: its ranges that are held, ascending."""
        super().__init__(rows, can_lead)
        self._recording = recording
        self._name = name
        self._held = _joined(held)
        self._epochs: dict[int, int | None] = {}
        self._sent: dict[int, int] = {}

    def pieces(self, name: str, columns: Sequence[str]) -> Iterator[PartitionRows]:
        """Read all rows of a table, one row group after the other."""
        found = groups(name, self._recording.files[name].get(self._name, []))
        return (PartitionRows({name: rows}) for rows in read_groups(name, found, columns))

    def held(self, offset: int) -> Range:
        """Return the stretch of ranges that holds an offset."""
        return next((own for own in self._held if own.first <= offset < own.end), Range(offset, offset))

    def final_epoch_from(self, offset: int) -> int | None:
        """Look for the first record of the final log from an offset on, in the row groups that may hold it."""
        if offset not in self._epochs:
            self._epochs[offset] = self._epoch_from(offset)
        return self._epochs[offset]

    def _epoch_from(self, offset: int) -> int | None:
        name, chosen, columns = (
            ("reads", self._is_final, ("process", "phase", "log_offset", "leader_epoch"))
            if self.is_read
            else ("logs", self._of_leaders, ("node", "log_offset", "leader_epoch"))
        )
        best, epoch = EVERYTHING.end, UNKNOWN
        found = groups(name, self._recording.files[name].get(self._name, []))
        for group in sorted((one for one in found if one.last >= offset), key=lambda one: one.first):
            if group.first >= best:
                break
            for table in read_groups(name, [group], columns):
                rows = PartitionRows({name: table})
                own = rows.columns(name)
                places = np.flatnonzero(chosen(rows) & (own["log_offset"] >= offset))
                if places.size and own["log_offset"][places].min() < best:
                    place = places[np.argmin(own["log_offset"][places])]
                    best, epoch = int(own["log_offset"][place]), int(own["leader_epoch"][place])
        return None if epoch == UNKNOWN else epoch

    def sent_before_ns(self, offset: int) -> int:
        """Look for the last record with a value that any log holds before an offset, in the row groups that may hold it."""
        if offset not in self._sent:
            self._sent[offset] = self._sent_ns(self._logged_before(offset))
        return self._sent[offset]

    def _logged_before(self, offset: int) -> Array:
        """Return the values that logs hold at the last offset before this one at which any holds a value."""
        best, values = UNKNOWN, [np.zeros(0, np.int64)]
        found = groups("logs", self._recording.files["logs"].get(self._name, []))
        for group in sorted((one for one in found if one.first < offset), key=lambda one: -one.last):
            if group.last < best:
                break
            for table in read_groups("logs", [group], ("log_offset", "value")):
                logs = PartitionRows({"logs": table}).columns("logs")
                before = np.flatnonzero((logs["log_offset"] < offset) & (logs["value"] != UNKNOWN))
                last = int(logs["log_offset"][before].max(initial=UNKNOWN))
                if last > best:
                    best, values = last, []
                if last == best:
                    values.append(logs["value"][before[logs["log_offset"][before] == last]])
        return distinct(np.concatenate(values))

    def _sent_ns(self, values: Array) -> int:
        """Return when the first of some values was sent; 0 where that is unknown of any."""
        times: dict[int, int] = {}
        for rows in self.pieces("sends", ("value", "invoke_ns")) if values.size else ():
            sends = rows.columns("sends")
            own = np.flatnonzero(is_among(sends["value"], values))
            times |= dict(zip(sends["value"][own].tolist(), sends["invoke_ns"][own].tolist(), strict=True))
        return min((times.get(value, 0) for value in values.tolist()), default=0)


def _joined(held: Sequence[Range]) -> list[Range]:
    """Return ranges, those that follow each other as one."""
    found: list[Range] = []
    for own in sorted(held, key=lambda one: one.first):
        if found and found[-1].end == own.first:
            found[-1] = Range(found[-1].first, own.end)
        else:
            found.append(own)
    return found
