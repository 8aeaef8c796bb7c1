"""From an anomaly to the record it is about: when it was acknowledged, exposed, read, last seen, replaced.

Only for anomalies that a rule may excuse; there are few of them, so looking things up one by one is fine.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np

from tribunal.checkers.api import (
    FINAL,
    OK,
    TAIL,
    UNKNOWN,
    Anomaly,
    Array,
    Columns,
    PartitionRows,
    is_among,
    sends_by_value,
)
from tribunal.checkers.judge.all_rows import AllRows
from tribunal.checkers.judge.led import NOBODY, UNKNOWN_TOPIC, Leaders
from tribunal.checkers.judge.orders import APPLIED_NS, MOST_BYTES, TopicOrders
from tribunal.checkers.judge.timeline import OBSERVATION_LAG_NS, Record, Timeline
from tribunal.checkers.properties.lost_writes import complete_readers, earlier_readers, final_reads
from tribunal.checkers.properties.shown_end import read_end
from tribunal.checkers.properties.watermarks import said_by
from tribunal.results.recording import WORDS

_ABSENT: Final = frozenset(
    {"lost", "lost_after_read", "withdrawn", "moved", "offset_conflict"}
)  # found by the final read
ACROSS_EPOCHS: Final = frozenset(
    {"latest_offset_back", "high_watermark_below_former"}
)  # whose leader epoch is that of what was seen later
_SIDES: Final[tuple[Literal["left"], Literal["right"]]] = ("left", "right")
NODE: Final = WORDS["watermarks", "source"].index("node")
READ_COMMITTED: Final = WORDS["polls", "isolation"].index("read_committed")


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What a transaction sent to a partition, and from when on its marker may have been written there.

    value, log_offset:  of its record; None: unknown.
    leader_epoch:       of the log that the record stands in, None unknown.
    """

    since_ns: int
    value: int | None = None
    log_offset: int | None = None
    leader_epoch: int | None = None


class _Answered(NamedTuple):
    """When a record was acknowledged and by whom, and the leader epoch of the log that it is known to stand in; None: unknown."""

    written: int | None
    node: int | None
    complete_ns: int | None


class Evidence:
    """What one partition's rows say about any of its records."""

    def __init__(
        self,
        rows: PartitionRows,
        *,
        can_lead: Sequence[int],
        orders: TopicOrders,
        dumped: Mapping[int, int],
        begins: Mapping[int, int],
        all_rows: AllRows,
        leaders: Leaders,
    ) -> None:
        self._reads = rows.columns("reads")
        self._by_value = np.argsort(self._reads["value"], kind="stable")
        self._polled_ns = _poll_times(rows)
        self._rows = rows
        self._fetched_since: dict[tuple[int, int], int] | None = None
        self._leaders = leaders
        self._exposures = _exposures(rows, leaders)
        self._first_polls = first_polls(rows)
        self._earlier_polls = _earlier_polls(rows)
        self._answers = _answers(rows)
        self.absent_ns = _absent_ns(rows)
        self._can_lead = can_lead
        self._dumped = dumped
        self._log_begins = begins
        self._all = all_rows
        final = _final(rows, can_lead, all_rows)
        self._final_offsets, self._final_epochs, self._final_values = _final_epochs(*final)
        starts = rows.columns("polls")["log_start_offset"]
        self._log_start = int(starts.max(initial=0))
        self._orders = orders

    def record(self, anomaly: Anomaly) -> Record:
        """Return the record that an anomaly is about.

        One that `moved` is looked for where it was acknowledged only, and one of which another stands in its place where that is: what a
        producer sent again elsewhere was not there.
        """
        offset = UNKNOWN if anomaly.log_offset is None else anomaly.log_offset
        only_at = offset if anomaly.kind in ("moved", "offset_conflict") else None
        value = anomaly.value
        times = self._read_times(value, only_at)
        send = self._send(value)
        invoke_ns = anomaly.invoke_ns or self._of_send("invoke_ns", send) or 0
        answered = _Answered(
            self._written_in(value, offset),
            self._of_send("answered_by", send) if anomaly.kind in ("lost", "moved") else None,
            anomaly.at_ns if anomaly.kind == "lost" else None,
        )
        topic = self._topic(invoke_ns)
        exposures = [
            (at_ns, epoch)
            for at_ns, epoch in self._exposed(offset, invoke_ns)
            if epoch is None or not self._lacked_in(topic, epoch, offset, answered)
        ]
        exposed_ns, exposed_epoch = exposures[0] if exposures else (None, None)
        # An order takes records away: it puts no other one in their place.
        is_replaced = anomaly.kind == "offset_conflict"
        gone = not is_replaced and self._orders.is_deleted_before(self.absent_ns)
        there_ns = self._read_whole_ns(value, only_at) or invoke_ns
        taken_ns = None if gone or is_replaced else self._taken_ns(value, offset, invoke_ns, there_ns)
        leader_epoch = answered.written if anomaly.leader_epoch is None else anomaly.leader_epoch
        return Record(
            log_offset=offset,
            acks=anomaly.acks,
            invoke_ns=invoke_ns,
            complete_ns=anomaly.at_ns if anomaly.kind in ("lost", "moved") else None,
            leader_epoch=leader_epoch,
            exposed_ns=exposed_ns,
            exposed_epoch=exposed_epoch,
            exposed_later=tuple(exposures[1:]),
            read_ns=min(times, default=None),
            seen_ns=self._fetched_after(value, only_at),
            absent_ns=self.absent_ns if anomaly.kind in _ABSENT else None,
            answered_by=answered.node,
            stated=self._stated(invoke_ns - OBSERVATION_LAG_NS),  # a journal has its node's clock
            uncommitted_ns=self._uncommitted_ns(leader_epoch, offset),
            shown_epoch=self._shown_epoch(offset, invoke_ns, answered),
            seen_epoch=self._seen_epoch(value, only_at),
            replaced_epoch=self._replaced_epoch(offset),
            below_log_start=gone or taken_ns is not None,
            taken_ns=taken_ns,
        )

    def _shown_by(self, anomaly: Anomaly) -> tuple[int | None, int | None]:
        """Return the leader epoch in which a watermark had been as high as it was, and who said so, as far as that is recorded."""
        seen = self._rows.columns("watermarks")
        own = np.zeros(seen["at_ns"].size, bool)
        for column in ("high_watermark", "log_end_offset", "last_stable_offset"):
            own |= seen[column] == anomaly.other_offset
        own &= seen["at_ns"] == anomaly.invoke_ns
        epochs, nodes = (np.unique(seen[column][own]) for column in ("leader_epoch", "answered_by"))
        return _only(epochs), _only(nodes)

    def _stated(self, at_ns: int) -> dict[int, int]:
        """Return the last leader epoch that each node had stated by then: who knows of it no longer answers in one before."""
        places = ((node, int(np.searchsorted(times, at_ns))) for node, (times, _) in self._statements.items())
        return {node: int(self._statements[node][1][place - 1]) for node, place in places if place}

    @cached_property
    def _statements(self) -> dict[int, tuple[Array, Array]]:
        """For each node when it stated leader epochs, ascending, and the last epoch that it had stated then."""
        seen, found = self._rows.columns("watermarks"), {}
        known = np.flatnonzero((seen["source"] == NODE) & (seen["leader_epoch"] != UNKNOWN))
        known = known[np.argsort(seen["at_ns"][known], kind="stable")]
        for code, observer in enumerate(self._rows.words("watermarks", "observer")):
            own = known[seen["observer"][known] == code]
            node = observer.removeprefix("node-")
            if own.size and node.isdecimal():
                found[int(node)] = (seen["at_ns"][own], np.maximum.accumulate(seen["leader_epoch"][own]))
        return found

    def record_of(self, value: int, absent_ns: int) -> Record | None:
        """Return a record that a reader did not find at some time, whatever became of it; None: nobody sent it here."""
        send = self._send(value)
        if send == UNKNOWN:
            return None
        offset = self._of_send("log_offset", send)
        is_acknowledged = int(self._rows.columns("sends")["outcome"][send]) == OK
        times = [at_ns for at_ns in self._read_times(value, None) if at_ns <= absent_ns]
        return Record(
            log_offset=UNKNOWN if offset is None else offset,
            acks=self._of_acks(send) if is_acknowledged else None,
            invoke_ns=self._of_send("invoke_ns", send) or 0,
            complete_ns=self._of_send("complete_ns", send),
            leader_epoch=None if offset is None else self._written_in(value, offset),
            read_ns=min(times, default=None),
            absent_ns=absent_ns,
            answered_by=self._of_send("answered_by", send),
            stated=self._stated((self._of_send("invoke_ns", send) or 0) - OBSERVATION_LAG_NS),
        )

    def records_between(self, anomaly: Anomaly, timeline: Timeline) -> list[Record]:
        """Return one record per stretch of offsets that a watermark's step back uncovered."""
        assert anomaly.log_offset is not None
        assert anomaly.other_offset is not None
        assert anomaly.invoke_ns is not None
        offsets = timeline.offsets_of_interest(anomaly.log_offset, anomaly.other_offset)
        shown_ns, replaced_by = anomaly.invoke_ns, anomaly.leader_epoch
        epoch, answered_by = self._shown_by(anomaly)
        if epoch is None and anomaly.kind not in ACROSS_EPOCHS:
            epoch = anomaly.leader_epoch
        absent_ns = self._missed_ns(anomaly) if anomaly.at_ns is None else anomaly.at_ns
        if anomaly.at_ns is None:  # it was never seen to be back: nothing stands there in the end
            replaced_by = None
        elif replaced_by is None:
            replaced_by = timeline.leader_epoch_at(anomaly.at_ns + OBSERVATION_LAG_NS)
        return [
            Record(
                log_offset=offset,
                acks=None,
                invoke_ns=shown_ns,
                leader_epoch=epoch,
                answered_by=answered_by,
                stated=self._stated(
                    shown_ns - OBSERVATION_LAG_NS
                ),  # it may have been said a little before it was heard
                absent_ns=absent_ns,
                exposed_ns=shown_ns,
                since_ns=next((at_ns for at_ns, _ in self._exposed(offset, 0, shown_ns)), None),
                replaced_epoch=replaced_by,
            )
            for offset in offsets
        ]

    def _missed_ns(self, anomaly: Anomaly) -> int | None:
        """Return when final reads had come to their ends that lack what had been shown before; None: it was missed in logs, which are read last."""
        read, polls = self._rows.derived(read_end), self._rows.columns("polls")
        if read is None or (anomaly.invoke_ns or 0) > read.until_ns:
            return None
        own = (polls["invoke_ns"] == anomaly.invoke_ns) & (polls["high_watermark"] == anomaly.other_offset)
        return None if bool((polls["complete_ns"][own] > read.until_ns).any()) else read.until_ns

    def epoch_at(self, offset: int) -> int | None:
        """Return the leader epoch of what stands at an offset in the end; None: nothing does, or it is unknown."""
        place = int(np.searchsorted(self._final_offsets, offset))
        stands = place < self._final_offsets.size and self._final_offsets[place] == offset
        epoch = int(self._final_epochs[place]) if stands else UNKNOWN
        return None if epoch == UNKNOWN else epoch

    def _send(self, value: int | None) -> int:
        """Return the row of a record's send; -1 where nobody knows one: what joined the ISR before held nothing of it."""
        sends = self._rows.columns("sends")
        if value is None or sends["value"].size == 0:
            return UNKNOWN
        return int(self._rows.derived(sends_by_value).rows(np.array([value]))[0])

    def _of_acks(self, row: int) -> int:
        return int(self._rows.columns("sends")["acks"][row])

    def _of_send(self, column: str, row: int) -> int | None:
        if row == UNKNOWN or column not in self._rows.table("sends").column_names:
            return None
        value = int(self._rows.columns("sends")[column][row])
        return None if value == UNKNOWN else value

    def _written_in(self, value: int | None, offset: int) -> int | None:
        """Return the leader epoch of the log that the record was written to, as a reader or a replica's log has it at that offset."""
        if value is None or offset == UNKNOWN:
            return None
        for rows, order in ((self._reads, self._by_value), (self._rows.columns("logs"), self._logs_by_value)):
            own = _of_value(rows, order, value)
            epochs = rows["leader_epoch"][own[rows["log_offset"][own] == offset]]
            epochs = epochs[epochs != UNKNOWN]
            if epochs.size:
                return int(epochs.min())
        return None

    @cached_property
    def _logs_by_value(self) -> Array:
        return np.argsort(self._rows.columns("logs")["value"], kind="stable")

    def _shown_epoch(self, offset: int, since_ns: int, answered: _Answered) -> int | None:
        """Return the last leader epoch that showed something at the offset, older than what stands there in the end, which may be the record.

        What a high watermark has passed has the guarantee of acks=all: where nothing stands there, it was lost later than that.
        Where that cannot be said, nothing is known: markers and aborted records are seen in logs only, compaction leaves holes.
        """
        if offset == UNKNOWN or self._orders.is_compacted or not self._shows_all:
            return None
        topic = self._topic(since_ns)
        epochs = self._exposures.epochs[self._exposures.beyond(offset, since_ns, topic)]
        epochs = epochs[epochs != UNKNOWN]
        offsets, standing = self._standing
        place = int(np.searchsorted(offsets, offset))
        if place < offsets.size and offsets[place] == offset:
            epochs = epochs[epochs < standing[place]]
        elif offset < self._begins:
            return None  # what stood there may be gone by an order
        shown = np.sort(epochs)[::-1].tolist()
        return next((epoch for epoch in shown if not self._lacked_in(topic, epoch, offset, answered)), None)

    def _uncommitted_ns(self, leader_epoch: int | None, offset: int) -> int | None:
        """Return when a client last asked who answered in this leader epoch with a high watermark at or before an offset; None: nobody did.

        A leader's high watermark never goes back: it had not passed the offset when it was asked. Of a name that several topics had nothing is said.
        """
        if leader_epoch is None or offset == UNKNOWN or self._leaders.anew_ns:
            return None
        high_watermarks, last_asked_ns = self._asked.get(leader_epoch, (np.zeros(0, np.int64),) * 2)
        place = int(np.searchsorted(high_watermarks, offset, side="right"))
        return int(last_asked_ns[place - 1]) if place else None

    @cached_property
    def _asked(self) -> dict[int, tuple[Array, Array]]:
        """For each leader epoch the high watermarks that its leader answered clients with, ascending, and when one was last asked that had that or a lower one.

        A follower that serves readers (KIP-392) hears of the high watermark later.
        """
        seen = self._rows.columns("watermarks")
        known = (seen["leader_epoch"] != UNKNOWN) & (seen["high_watermark"] != UNKNOWN)
        led_by = self._leaders.leaders(np.zeros(known.size, np.int64), seen["leader_epoch"])
        known &= (seen["answered_by"] != UNKNOWN) & (seen["answered_by"] == led_by)
        own = np.flatnonzero(known & (seen["source"] != NODE) & (seen["asked_ns"] != UNKNOWN))
        own = own[np.argsort(seen["high_watermark"][own], kind="stable")]
        epochs = seen["leader_epoch"][own]
        rows = {epoch: own[epochs == epoch] for epoch in np.unique(epochs).tolist()}
        return {
            epoch: (seen["high_watermark"][some], np.maximum.accumulate(seen["asked_ns"][some]))
            for epoch, some in rows.items()
        }

    def _topic(self, since_ns: int) -> int | None:
        """Return of which topic what was sent at a moment is, UNKNOWN_TOPIC: of one of two; None: nobody knows when it was sent, or there was only one."""
        if since_ns == 0 or not self._leaders.anew_ns:
            return None
        return int(self._leaders.topics(np.array([since_ns]))[0])

    def _lacked_in(self, topic: int | None, epoch: int, offset: int, answered: _Answered) -> bool:
        """Whether a leader had stated, in its leader epoch, that its log ended at or before the offset of an older record.

        What it showed there later it had written itself. The record is older where a reader or a log has it of an older leader epoch, where
        who acknowledged it had stated no later one by then, as each leader does before it answers, or where that was before the end was
        stated (a node's journal has its own clock).
        """
        at_ns, ends, nodes = self._led_ends.get(epoch, (np.zeros(0, np.int64),) * 3)
        if topic is not None and topic != UNKNOWN_TOPIC:
            leader = int(self._leaders.leaders(np.array([topic]), np.array([epoch]))[0])
            own = is_among(self._leaders.topics(at_ns), np.array([UNKNOWN_TOPIC, topic]))
            own &= (nodes == leader) | (leader == NOBODY)
            at_ns, ends = at_ns[own], ends[own]
        short = ends <= offset
        if answered.written is not None:
            return answered.written < epoch and bool(short.any())
        if answered.complete_ns is None:
            return False
        known_ns = answered.complete_ns + OBSERVATION_LAG_NS
        led = None if answered.node is None else self._stated(known_ns).get(answered.node)
        if led is not None and led < epoch:
            return bool(short.any())
        return bool((short & (at_ns > known_ns)).any())

    @cached_property
    def _led_ends(self) -> dict[int, tuple[Array, Array, Array]]:
        """For each leader epoch when its leader stated where its log ended, where, and who that was: who follows shows no high watermark of its own."""
        seen = self._rows.columns("watermarks")
        own = (seen["source"] == NODE) & (seen["leader_epoch"] != UNKNOWN)
        own &= (seen["high_watermark"] != UNKNOWN) & (seen["log_end_offset"] != UNKNOWN)
        epochs = np.unique(seen["leader_epoch"][own]).tolist()
        rows = {epoch: np.flatnonzero(own & (seen["leader_epoch"] == epoch)) for epoch in epochs}
        nodes = said_by(self._rows)
        return {epoch: (seen["at_ns"][some], seen["log_end_offset"][some], nodes[some]) for epoch, some in rows.items()}

    @cached_property
    def _standing(self) -> tuple[Array, Array]:
        """Offsets, ascending, and leader epochs of all that stands in the end, markers too: by the logs of those that can lead, else by final reads.

        Logs are read last: where they begin by then some of what was read may be gone by an order.
        """
        logs = self._rows.columns("logs")
        own = np.flatnonzero(is_among(logs["node"], np.asarray(sorted(self._can_lead), np.int64)))
        offsets, first = np.unique(np.concatenate([logs["log_offset"][own], self._final_offsets]), return_index=True)
        return offsets, np.concatenate([logs["leader_epoch"][own], self._final_epochs])[first]

    @cached_property
    def _begins(self) -> int:
        """Where the log begins in the end: as it was shown, or as the logs of those that can lead do on their disks."""
        starts = [start for node, start in self._dumped.items() if node in self._can_lead]
        return max(self._log_start, min(starts, default=0))

    @cached_property
    def _final_start(self) -> int:
        """Where the final log begins: as it was shown; where nobody read it to its end, the logs on the disks are the final log."""
        return self._log_start if complete_readers(self._rows.columns("polls")).size else self._begins

    @cached_property
    def _shows_all(self) -> bool:
        """Whether nothing may stand in the end that neither reads nor logs show."""
        any_log = self._rows.columns("logs")["node"].size > 0 or bool(self._log_begins)
        return any_log or not self._all.in_transactions

    def stands(self, value: int, offset: int, newest_epoch: int | None = None) -> bool:
        """Whether the final log holds a value at an offset, as it was written in this leader epoch or before (None: in any)."""
        place = int(np.searchsorted(self._final_offsets, offset))
        is_there = place < self._final_offsets.size and self._final_offsets[place] == offset
        if not is_there or self._final_values[place] != value:
            return False
        return newest_epoch is None or int(self._final_epochs[place]) <= newest_epoch

    def sent_in_transaction(self, value: int, log_offset: int | None, begin_ns: int) -> Sent:
        """Return what is known of a record that a transaction sent, where it stands at an offset."""
        since_ns = max(begin_ns, self._of_send("invoke_ns", self._send(value)) or 0)
        epoch = None if log_offset is None else self._written_in(value, log_offset)
        return Sent(since_ns=since_ns, value=value, log_offset=log_offset, leader_epoch=epoch)

    def offset_of(self, value: int) -> int | None:
        """Return where a record was acknowledged."""
        return self._of_send("log_offset", self._send(value))

    def acknowledged_there(self, value: int, offset: int) -> Anomaly:
        """Return a record that was sent to an offset, as what is missing there."""
        send = self._send(value)
        sent = {name: self._of_send(name, send) for name in ("acks", "invoke_ns", "complete_ns")}
        is_known = send != UNKNOWN and int(self._rows.columns("sends")["outcome"][send]) == OK
        return Anomaly(
            kind="moved" if is_known else "offset_conflict",
            log_offset=offset,
            value=value,
            acks=(-1 if sent["acks"] is None else sent["acks"]) if is_known else None,
            invoke_ns=sent["invoke_ns"],
            at_ns=sent["complete_ns"],
        )

    def _seen_epoch(self, value: int | None, offset: int | None) -> int | None:
        epochs = [self._answers[poll] for poll in self._polls_of(value, offset) if poll in self._answers]
        return max(epochs, default=None)

    def _taken_ns(self, value: int | None, offset: int, sent_ns: int, there_ns: int) -> int | None:
        """Return since when an order let the record go that the log start has passed, or of whose key there is a newer one.

        there_ns:  when it was there still: what was in force before that alone has not taken it.
        """
        ordered_ns = self._ordered_ns(offset, sent_ns, there_ns) if 0 <= offset < self._final_start else None
        if ordered_ns is not None:
            return ordered_ns
        return self._superseded_ns(value, offset, max(sent_ns, there_ns - APPLIED_NS))

    def _ordered_ns(
        self, offset: int, sent_ns: int, there_ns: int, node: int | None = None, dumped_ns: int | None = None
    ) -> int | None:
        behind_bytes = (self._shown_end - offset - 1) * self._most_bytes
        absent_ns = self.absent_ns if dumped_ns is None else dumped_ns
        return self._orders.taken_ns(offset, sent_ns, there_ns, absent_ns, behind_bytes, node)

    def is_before_log_start(self, offsets: range, value: int | None, node: int | None, ended_ns: int) -> bool:
        """Whether records may be gone by an order, and stand before the log start that was shown, or of a replica before its own.

        Each replica deletes by age and size itself, and begins where the leader did when it got its first records. It goes on with that
        until its log is read from its disk, behind the final reads.

        ended_ns:  the last that was recorded of the run.
        """
        own = self._log_start
        if node is not None:
            own = self._held_from.get(node, self._dumped.get(node, own))
            own = self._log_begins.get(node, own)  # of ranges alone the first row is not the log's
        log_offset = offsets[-1]
        sent_ns = self._sent_last_ns(offsets) if value is None else self._sent_ns(value)
        dumped_ns = None if node is None else max(ended_ns, self.absent_ns or 0) + APPLIED_NS
        return 0 <= log_offset < own and self._ordered_ns(log_offset, sent_ns, sent_ns, node, dumped_ns) is not None

    @cached_property
    def _held_from(self) -> dict[int, int]:
        """The least offset that each replica's log holds."""
        logs = self._rows.columns("logs")
        nodes, place = np.unique(logs["node"], return_inverse=True)
        first = np.full(nodes.size, np.iinfo(np.int64).max)
        np.minimum.at(first, place.reshape(-1), logs["log_offset"])
        return dict(zip(nodes.tolist(), first.tolist(), strict=True))

    def values_at(self, log_offset: int) -> frozenset[int]:
        """Return the values that the logs of those that can lead hold at an offset."""
        logs = self._rows.columns("logs")
        own = is_among(logs["node"], np.asarray(sorted(self._can_lead), np.int64)) & (logs["log_offset"] == log_offset)
        return frozenset(logs["value"][own & (logs["value"] != UNKNOWN)].tolist())

    def _sent_last_ns(self, offsets: range) -> int:
        """Return when the youngest was sent of the records that were acknowledged at these offsets; else that of the one before them."""
        sends = self._rows.columns("sends")
        own = (sends["outcome"] == OK) & (sends["log_offset"] >= offsets[0]) & (sends["log_offset"] <= offsets[-1])
        return int(sends["invoke_ns"][own].max()) if own.any() else self._sent_before_ns(offsets[-1])

    def _sent_before_ns(self, log_offset: int) -> int:
        """Return when at the earliest the last record was sent that any log holds at or before an offset; 0 where nobody knows.

        What goes by its age, or by an order, goes with all that stands before it.
        """
        logs = self._rows.columns("logs")
        held = self._all.held(log_offset)
        before = np.flatnonzero(
            (logs["log_offset"] <= log_offset) & (logs["log_offset"] >= held.first) & (logs["value"] != UNKNOWN)
        )
        if before.size == 0:
            return self._all.sent_before_ns(held.first)
        offsets = logs["log_offset"][before]
        return min(map(self._sent_ns, logs["value"][before[offsets == offsets.max()]].tolist()))

    def _sent_ns(self, value: int | None) -> int:
        return self._of_send("invoke_ns", self._send(value)) or 0

    @cached_property
    def _shown_end(self) -> int:
        """The greatest end of the log that anything shows."""
        ends = [
            self._rows.columns(table)[column].max(initial=0)
            for table in ("polls", "watermarks")
            for column in ("high_watermark", *(["log_end_offset"] if table == "watermarks" else []))
        ]
        return int(max(*ends, self._all.end))

    @cached_property
    def _most_bytes(self) -> int:
        """How many bytes a record of this partition takes at most."""
        return MOST_BYTES + self._all.longest_key

    def _superseded_ns(self, value: int | None, offset: int, there_ns: int) -> int | None:
        """Return since when compaction may have taken a record of whose key the final log holds a newer one."""
        if not self._orders.is_compacted or value is None:
            return None
        send = self._send(value)
        key = None if send == UNKNOWN else self._rows.table("sends")["key"][send].as_py()
        # Of one whose offset nobody knows any record of its key may be the newer one.
        if key is None or self._newest.get(key, UNKNOWN) <= offset:
            return None
        return self._orders.compacted_ns(there_ns, self.absent_ns)

    @cached_property
    def _newest(self) -> dict[str, int]:
        """Each key's greatest offset in the final log."""
        return self._all.newest_of(frozenset(self._rows.words("sends", "key")))

    def _read_times(self, value: int | None, offset: int | None) -> list[int]:
        return [self._polled_ns[poll] for poll in self._polls_of(value, offset) if poll in self._polled_ns]

    def _fetched_after(self, value: int | None, offset: int | None) -> int | None:
        """Return the latest time at which the record was surely in the log still, as its readers show it.

        A client fetches ahead: what a poll hands out may have left its broker long before, and the broker may be gone since. Of an
        answer whose leader epoch is known that epoch says more: a deposed leader hands out what it has.
        """
        if self._fetched_since is None:
            self._fetched_since = polled_at_end(self._rows)
        found = [
            since[poll]
            for poll in self._polls_of(value, offset)
            for since in (self._fetched_since, self._first_polls, self._earlier_polls)
            if poll in since and poll not in self._answers
        ]
        return max(found, default=None)

    def _polls_of(self, value: int | None, offset: int | None) -> list[tuple[int, int]]:
        if value is None:
            return []
        own = _of_value(self._reads, self._by_value, value)
        if offset is not None:
            own = own[self._reads["log_offset"][own] == offset]
        found = zip(*(self._reads[name][own].tolist() for name in ("phase", "process", "poll_index")), strict=True)
        return [
            (process, poll) for phase, process, poll in found if phase == TAIL or (process, poll) in self._earlier_polls
        ]

    def _read_whole_ns(self, value: int | None, offset: int | None) -> int | None:
        """Return when the last reader began that read the whole log before the final read, and received the record."""
        polls = self._polls_of(value, offset) if self._earlier_polls else ()
        return max((self._earlier_polls[poll] for poll in polls if poll in self._earlier_polls), default=None)

    def _exposed(self, offset: int, since_ns: int, of_ns: int | None = None) -> list[tuple[int, int | None]]:
        """Return when a high watermark beyond an offset was observed for the first time in each leader epoch, and in an unknown one, by time.

        of_ns:  when its topic was there; None: since_ns.
        """
        at_ns, epochs = self._exposures.at_ns, self._exposures.epochs
        if offset == UNKNOWN:
            return []
        topic = self._topic(since_ns if of_ns is None else of_ns)
        rows = self._exposures.beyond(offset, since_ns, topic).tolist()
        return [(int(at_ns[row]), None if epochs[row] == UNKNOWN else int(epochs[row])) for row in rows]

    def _replaced_epoch(self, offset: int) -> int | None:
        if offset == UNKNOWN:
            return None
        held_end = self._all.held(offset).end
        place = int(np.searchsorted(self._final_offsets, offset))
        if place == self._final_offsets.size or self._final_offsets[place] >= held_end:
            return self._all.final_epoch_from(held_end)
        epoch = int(self._final_epochs[place])
        return None if epoch == UNKNOWN else epoch


def _of_value(rows: Columns, order: Array, value: int) -> Array:
    """Return the rows with a value, by the order of their values."""
    first, last = (np.searchsorted(rows["value"], value, side, sorter=order) for side in _SIDES)
    return np.asarray(order[first:last])


def _only(values: Array) -> int | None:
    """Return the one known value; None where there are several or none."""
    return int(values[0]) if values.size == 1 and values[0] != UNKNOWN else None


def _poll_times(rows: PartitionRows) -> dict[tuple[int, int], int]:
    polls = rows.columns("polls")
    keys = zip(polls["process"].tolist(), polls["poll_index"].tolist(), strict=True)
    times = np.where(polls["complete_ns"] == UNKNOWN, polls["invoke_ns"], polls["complete_ns"])
    return dict(zip(keys, times.tolist(), strict=True))


def polled_at_end(rows: PartitionRows) -> dict[tuple[int, int], int]:
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


def first_polls(rows: PartitionRows) -> dict[tuple[int, int], int]:
    """Return each process's very first poll, and when it was made: nothing was in its hands before."""
    polls = rows.columns("polls")
    first = np.flatnonzero(polls["poll_index"] == 0)
    return {
        (process, 0): at_ns
        for process, at_ns in zip(polls["process"][first].tolist(), polls["invoke_ns"][first].tolist(), strict=True)
    }


def _earlier_polls(rows: PartitionRows) -> dict[tuple[int, int], int]:
    """Return the polls of those who read in the final phase before the final read, and when each began: it asks for everything anew."""
    polls, since_ns = rows.columns("polls"), earlier_readers(rows.columns("polls"))
    own = np.flatnonzero((polls["phase"] == FINAL) & is_among(polls["process"], np.asarray(sorted(since_ns), np.int64)))
    pairs = zip(polls["process"][own].tolist(), polls["poll_index"][own].tolist(), strict=True)
    return {(process, poll): since_ns[process] for process, poll in pairs}


def _answers(rows: PartitionRows) -> dict[tuple[int, int], int]:
    """Return for polls the leader epoch of whoever answered, where it is known."""
    if "leader_epoch" not in rows.table("polls").column_names:
        return {}
    polls = rows.columns("polls")
    known = np.flatnonzero(polls["leader_epoch"] != UNKNOWN)
    keys = zip(polls["process"][known].tolist(), polls["poll_index"][known].tolist(), strict=True)
    return dict(zip(keys, polls["leader_epoch"][known].tolist(), strict=True))


def _absent_ns(rows: PartitionRows) -> int | None:
    """Return when the first complete final read had come to its end: what it lacks was absent then; None: there was none."""
    polls = rows.columns("polls")
    ends = [
        int(polls["complete_ns"][(polls["phase"] == FINAL) & (polls["process"] == reader)].max())
        for reader in complete_readers(polls).tolist()
    ]
    return min((end for end in ends if end != UNKNOWN), default=None)


class _Exposures:
    """Observations of high watermarks, by time: when, what, in which leader epoch and surely of which topic. Sorted once, for many may be asked for."""

    def __init__(self, at_ns: Array, high_watermarks: Array, epochs: Array, topics: Array) -> None:
        self.at_ns, self.epochs = at_ns, epochs
        self._high_watermarks, self._topics = high_watermarks, topics
        self._by_epoch: dict[int | None, ByEpoch] = {}

    def beyond(self, offset: int, since_ns: int, topic: int | None) -> Array:
        """Return of each leader epoch the first of them that passed an offset of a topic since a moment; None: there is only one, or nobody knows which."""
        if topic == UNKNOWN_TOPIC:
            return np.zeros(0, np.int64)
        if topic not in self._by_epoch:
            own = np.arange(self.at_ns.size) if topic is None else np.flatnonzero(self._topics == topic)
            self._by_epoch[topic] = ByEpoch(own, self.at_ns, self._high_watermarks, self.epochs)
        return self._by_epoch[topic].first_beyond(offset, since_ns)


class ByEpoch:
    """The observations of one topic, leader epoch by leader epoch."""

    def __init__(self, rows: Array, at_ns: Array, high_watermarks: Array, epochs: Array) -> None:
        self._rows = rows = rows[np.argsort(epochs[rows], kind="stable")]
        self._marks = high_watermarks[rows]
        borders = np.flatnonzero(np.diff(epochs[rows])) + 1
        self._ends = np.append(borders, rows.size) if rows.size else np.zeros(0, np.int64)
        begins = np.append(0, borders)[: self._ends.size]
        self._numbers = np.arange(self._ends.size)
        number = np.repeat(self._numbers, self._ends - begins)
        self._first_ns = int(at_ns[rows].min(initial=0))
        self._span_ns = int(at_ns[rows].max(initial=0)) - self._first_ns + 2
        self._times = number * self._span_ns + (at_ns[rows] - self._first_ns)  # ascending, as what follows
        self._most = int(self._marks.max(initial=0)) + 1
        parts = np.split(self._marks, borders)
        so_far = np.concatenate([np.maximum.accumulate(part) for part in parts])
        self._so_far = number * self._most + so_far
        self._to_come = np.concatenate([np.maximum.accumulate(part[::-1])[::-1] for part in parts])

    def first_beyond(self, offset: int, since_ns: int) -> Array:
        """Return, in order of time, the first observation of each leader epoch since a moment that lies beyond an offset, where there is one."""
        since = min(max(since_ns - self._first_ns, 0), self._span_ns - 1)
        begins = np.searchsorted(self._times, self._numbers * self._span_ns + since)
        known = np.flatnonzero(begins < self._ends)
        known = known[self._to_come[begins[known]] > offset]
        passed = np.searchsorted(self._so_far, known * self._most + min(offset, self._most - 1), "right")
        places = np.maximum(begins[known], passed)
        # Whatever was shown before that moment, beyond it or not, what comes behind it may fall short at first.
        for number in np.flatnonzero(self._marks[places] <= offset).tolist():
            later = self._marks[places[number] : self._ends[known[number]]]
            places[number] += int(np.argmax(later > offset))
        return np.sort(self._rows[places])


def _exposures(rows: PartitionRows, leaders: Leaders) -> _Exposures:
    seen = rows.columns("watermarks")
    known = np.flatnonzero(seen["high_watermark"] != UNKNOWN)
    order = known[np.argsort(seen["at_ns"][known], kind="stable")]
    at_ns, epochs = seen["at_ns"][order], seen["leader_epoch"][order]
    return _Exposures(
        at_ns, seen["high_watermark"][order], epochs, leaders.surely_of(epochs, said_by(rows)[order], at_ns)
    )


def _final_epochs(source: Columns, chosen: Array) -> tuple[Array, Array, Array]:
    """Return offsets, ascending, leader epochs and values of the final log, by final reads or else by the logs."""
    offsets, first = np.unique(source["log_offset"][chosen], return_index=True)
    return offsets, source["leader_epoch"][chosen][first], source["value"][chosen][first]


def _final(rows: PartitionRows, can_lead: Sequence[int], all_rows: AllRows) -> tuple[Columns, Array]:
    """Return where the final log is to be found: in final reads or else in the logs of those that may lead, if that is known."""
    reads, logs = rows.columns("reads"), rows.columns("logs")
    final = rows.derived(final_reads)
    if final.size or all_rows.is_read:
        return reads, final
    known = logs["log_offset"] != UNKNOWN
    return logs, known & is_among(logs["node"], np.asarray(can_lead, np.int64)) if can_lead else known
