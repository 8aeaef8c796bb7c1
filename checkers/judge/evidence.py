"""From an anomaly to the record it is about: when it was acknowledged, exposed, read, last seen, replaced.

Only for anomalies that a rule may excuse; there are few of them, so looking things up one by one is fine.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from tribunal.checkers.api import OK, TAIL, UNKNOWN, Anomaly, Array, Columns, PartitionRows, is_among, sends_by_value
from tribunal.checkers.judge.timeline import OBSERVATION_LAG_NS, Record, Timeline
from tribunal.checkers.properties.lost_writes import final_reads
from tribunal.results.recording import WORDS

READ_COMMITTED: Final = WORDS["polls", "isolation"].index("read_committed")


class Evidence:
    """What one partition's rows say about any of its records."""

    def __init__(
        self,
        rows: PartitionRows,
        *,
        can_lead: Sequence[int],
        log_start_may_move: bool,
        is_compacted: bool = False,
    ) -> None:
        self._reads = rows.columns("reads")
        self._by_value = np.argsort(self._reads["value"], kind="stable")
        self._polled_ns = _poll_times(rows)
        self._rows = rows
        self._fetched_since: dict[tuple[int, int], int] | None = None
        self._exposures = _exposures(rows)
        final = _final(rows, can_lead)
        self._final_offsets, self._final_epochs = _final_epochs(*final)
        starts = rows.columns("polls")["log_start_offset"]
        self._log_start = int(starts.max(initial=0)) if log_start_may_move else 0
        self._newest = _newest_of_keys(rows, *final) if is_compacted else None

    def record(self, anomaly: Anomaly) -> Record:
        """Return the record that an anomaly is about; one that `moved` is looked for where it was acknowledged only."""
        offset = UNKNOWN if anomaly.log_offset is None else anomaly.log_offset
        times = self._read_times(anomaly.value, offset if anomaly.kind == "moved" else None)
        invoke_ns = anomaly.invoke_ns or self._sent_ns(anomaly.value)
        exposed_ns, exposed_epoch = self._exposed(offset, invoke_ns)
        return Record(
            log_offset=offset,
            acks=anomaly.acks,
            invoke_ns=invoke_ns,
            complete_ns=anomaly.at_ns if anomaly.kind in ("lost", "moved") else None,
            leader_epoch=anomaly.leader_epoch,
            exposed_ns=exposed_ns,
            exposed_epoch=exposed_epoch,
            read_ns=min(times, default=None),
            seen_ns=self._fetched_after(anomaly.value, offset if anomaly.kind == "moved" else None),
            replaced_epoch=self._replaced_epoch(offset),
            below_log_start=0 <= offset < self._log_start or self._is_superseded(anomaly.value, offset),
        )

    def records_between(self, anomaly: Anomaly, timeline: Timeline) -> list[Record]:
        """Return one record per stretch of offsets that a watermark's step back uncovered."""
        assert anomaly.log_offset is not None
        assert anomaly.other_offset is not None
        assert anomaly.invoke_ns is not None
        assert anomaly.at_ns is not None
        offsets = timeline.offsets_of_interest(anomaly.log_offset, anomaly.other_offset)
        shown_ns, epoch = anomaly.invoke_ns, anomaly.leader_epoch
        replaced_by = epoch
        if epoch is None:
            replaced_by = timeline.leader_epoch_at(anomaly.at_ns + OBSERVATION_LAG_NS)
        return [
            Record(
                log_offset=offset,
                acks=None,
                invoke_ns=shown_ns,
                leader_epoch=epoch,
                exposed_ns=shown_ns,
                since_ns=self._exposed(offset, 0)[0],
                replaced_epoch=replaced_by,
            )
            for offset in offsets
        ]

    def _sent_ns(self, value: int | None) -> int:
        """Return when a record was sent; 0 where nobody knows: what joined the ISR before held nothing of it."""
        sends = self._rows.columns("sends")
        if value is None or sends["value"].size == 0:
            return 0
        row = int(self._rows.derived(sends_by_value).rows(np.array([value]))[0])
        return 0 if row == UNKNOWN else int(sends["invoke_ns"][row])

    def _is_superseded(self, value: int | None, offset: int) -> bool:
        """Whether the final log holds a newer record of its key: then compaction may have taken it."""
        if self._newest is None or value is None:
            return False
        key_of, newest = self._newest
        # Of one whose offset nobody knows any record of its key may be the newer one.
        return newest.get(key_of.get(value, UNKNOWN), UNKNOWN) > offset

    def _read_times(self, value: int | None, offset: int | None) -> list[int]:
        return [self._polled_ns[poll] for poll in self._polls_of(value, offset) if poll in self._polled_ns]

    def _fetched_after(self, value: int | None, offset: int | None) -> int | None:
        """Return the latest time at which the record was surely in the log still, as its readers show it.

        A client fetches ahead: what a poll hands out may have left its broker long before, and the broker may be gone since.
        """
        if self._fetched_since is None:
            self._fetched_since = _fetched_since(self._rows)
        polls = self._polls_of(value, offset)
        return max((self._fetched_since[poll] for poll in polls if poll in self._fetched_since), default=None)

    def _polls_of(self, value: int | None, offset: int | None) -> list[tuple[int, int]]:
        if value is None:
            return []
        values, order = self._reads["value"], self._by_value
        first = np.searchsorted(values, value, "left", sorter=order)
        last = np.searchsorted(values, value, "right", sorter=order)
        rows = [row for row in order[first:last].tolist() if self._reads["phase"][row] == TAIL]
        if offset is not None:
            rows = [row for row in rows if self._reads["log_offset"][row] == offset]
        return [(int(self._reads["process"][row]), int(self._reads["poll_index"][row])) for row in rows]

    def _exposed(self, offset: int, since_ns: int) -> tuple[int | None, int | None]:
        at_ns, high_watermark, epochs = self._exposures
        if offset == UNKNOWN:
            return None, None
        beyond = np.flatnonzero((high_watermark > offset) & (at_ns >= since_ns))
        if beyond.size == 0:
            return None, None
        epoch = int(epochs[beyond[0]])
        return int(at_ns[beyond[0]]), None if epoch == UNKNOWN else epoch

    def _replaced_epoch(self, offset: int) -> int | None:
        place = int(np.searchsorted(self._final_offsets, offset))
        if offset == UNKNOWN or place == self._final_offsets.size:
            return None
        epoch = int(self._final_epochs[place])
        return None if epoch == UNKNOWN else epoch


def _newest_of_keys(rows: PartitionRows, source: Columns, chosen: Array) -> tuple[dict[int, int], dict[int, int]]:
    """Return each value's key, and each key's greatest offset in the final log; records without a key have none."""
    sends = rows.columns("sends")
    keyed = sends["key"] != UNKNOWN
    key_of = dict(zip(sends["value"][keyed].tolist(), sends["key"][keyed].tolist(), strict=True))
    newest: dict[int, int] = {}
    for offset, value in zip(source["log_offset"][chosen].tolist(), source["value"][chosen].tolist(), strict=True):
        key = key_of.get(value, UNKNOWN)
        if key != UNKNOWN:
            newest[key] = max(newest.get(key, UNKNOWN), offset)
    return key_of, newest


def _poll_times(rows: PartitionRows) -> dict[tuple[int, int], int]:
    polls = rows.columns("polls")
    keys = zip(polls["process"].tolist(), polls["poll_index"].tolist(), strict=True)
    times = np.where(polls["complete_ns"] == UNKNOWN, polls["invoke_ns"], polls["complete_ns"])
    return dict(zip(keys, times.tolist(), strict=True))


def _fetched_since(rows: PartitionRows) -> dict[tuple[int, int], int]:
    """Return for polls when the one before it at the same position had come to the end of what its broker showed, empty.

    Only then is it known that nothing was in the client's hands already.
    """
    polls = rows.columns("polls")
    committed = polls["isolation"] == READ_COMMITTED
    shown_end = np.where(committed, polls["last_stable_offset"], polls["high_watermark"])
    at_end = (polls["record_count"] == 0) & (polls["outcome"] == OK) & (shown_end != UNKNOWN)
    at_end &= polls["position"] >= shown_end
    found: dict[tuple[int, int], int] = {}
    waited: dict[int, tuple[int, int]] = {}  # per process: a position, and since when it was at the end there
    for row in np.lexsort((polls["poll_index"], polls["process"])).tolist():
        process, position = int(polls["process"][row]), int(polls["position"][row])
        since = waited.pop(process, None)
        if since is not None and since[0] == position:
            found[process, int(polls["poll_index"][row])] = since[1]
            waited[process] = since
        if at_end[row]:
            waited[process] = (position, int(polls["invoke_ns"][row]))
    return found


def _exposures(rows: PartitionRows) -> tuple[Array, Array, Array]:
    """Return time, high watermark and leader epoch of every observation, by time."""
    seen = rows.columns("watermarks")
    known = np.flatnonzero(seen["high_watermark"] != UNKNOWN)
    order = known[np.argsort(seen["at_ns"][known], kind="stable")]
    return seen["at_ns"][order], seen["high_watermark"][order], seen["leader_epoch"][order]


def _final_epochs(source: Columns, chosen: Array) -> tuple[Array, Array]:
    """Return offsets, ascending, and leader epochs of the final log, by final reads or else by the logs."""
    offsets, first = np.unique(source["log_offset"][chosen], return_index=True)
    return offsets, source["leader_epoch"][chosen][first]


def _final(rows: PartitionRows, can_lead: Sequence[int]) -> tuple[Columns, Array]:
    """Return where the final log is to be found: in final reads or else in the logs of those that may lead, if that is known."""
    reads, logs = rows.columns("reads"), rows.columns("logs")
    final = rows.derived(final_reads)
    if final.size:
        return reads, final
    known = logs["log_offset"] != UNKNOWN
    return logs, known & is_among(logs["node"], np.asarray(can_lead, np.int64)) if can_lead else known
