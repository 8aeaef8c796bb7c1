"""What brokers remember, as records: a group's positions, a transaction's decision and its markers, what is known of a producer.

Each of these is a record of some partition that was acknowledged like one with acks=all: a position in the partition of
`__consumer_offsets` that its group hashes to, a decision in that of `__transaction_state`, a marker in the partition itself, a producer's
state in its last acknowledged record. So each is judged by the same rules (R1 to R7) in its own place, from when it was written until it
was found to be missing. R8 to R12 (docs/verdicts.md) are names for what follows.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow.compute as pc
from msgspec.structs import replace

from tribunal.checkers.api import FAIL, FINAL, OK, UNKNOWN, Array, Columns, Excuse, PartitionRows, distinct
from tribunal.checkers.guarantees import Promise
from tribunal.checkers.judge.clocks import leading, set_back
from tribunal.checkers.judge.evidence import NODE, Sent
from tribunal.checkers.judge.incarnations import Calm, begun_ns, hinders, undone_ns
from tribunal.checkers.judge.markers import lost_marker
from tribunal.checkers.judge.orders import Order
from tribunal.checkers.judge.presence import DELIVERED
from tribunal.checkers.judge.silence import longest_silence
from tribunal.checkers.judge.skews import CLOCK, Skew, skews
from tribunal.checkers.judge.steps import WRITE_KINDS
from tribunal.checkers.judge.timeline import (
    GROUP_LOG,
    OBSERVATION_LAG_NS,
    TRANSACTION_LOG,
    Deposed,
    History,
    Judgement,
    NodeSettings,
    Record,
)
from tribunal.checkers.properties.hanging_transactions import DEFAULT_TIMEOUT_MS, GRACE_NS, TIMEOUT
from tribunal.results.manifest import LEADER_RECOVERY, PRODUCER_EXPIRATION, PROMISED, REQUEST_TIMEOUT, integer
from tribunal.results.rows import Commit, Fault, Transaction, typed
from tribunal.results.store import Recording
from tribunal.results.topic_names import MARK

NEVER: Final = 1 << 62
NOBODY: Final = -1
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
COMMIT_KIND: Final = "commit"
OPEN: Final = "info"
DEPOSED: Final = "deposed"
HINDERED: Final = "hindered"
EXPIRED: Final = "expired"
WRITE_TXN_MARKERS: Final = 27
KAFKA_REQUEST_TIMEOUT_MS: Final = 30_000  # of released brokers, where nothing else is set
OF_MARKERS: Final = ("polls", "reads", "watermarks")
Place = tuple[str, int]


class Part(msgspec.Struct, frozen=True):
    """A value that a transaction sent to a partition. log_offset None: nobody knows where it went."""

    transaction: Transaction
    value: int | None
    log_offset: int | None

    @property
    def sent(self) -> Sent:
        """It, as what a marker stands behind."""
        return Sent(since_ns=self.transaction.begin_ns, log_offset=self.log_offset)


def _request_timeout_ms(settings: NodeSettings) -> int:
    """Return for how long a broker waits for another one's answer; 0: nobody knows.

    A released broker is known by not recovering as a leader (D3, docs/spec.md). Of other systems that speak like it, which state their promises, nobody knows.
    """
    stated_ms = integer(settings, *REQUEST_TIMEOUT)
    is_released = settings.get(LEADER_RECOVERY) == "off" and not any(name.startswith(PROMISED) for name in settings)
    return stated_ms or (KAFKA_REQUEST_TIMEOUT_MS if is_released else 0)


class Remembered:
    """One run's memory, looked at only where something is wrong with it."""

    def __init__(self, run_dir: Path, history: History) -> None:
        self._run_dir = run_dir
        self._history = history
        self._rows: dict[tuple[str, Place], Columns] = {}
        self._shows_markers: dict[Place, PartitionRows] = {}
        self._acknowledged: dict[tuple[Place, int], Array] = {}
        self._final_reads: dict[Place, tuple[Array, Array]] = {}  # by value

    @cached_property
    def _recording(self) -> Recording:
        return Recording.open(self._run_dir, compare=False)

    def _columns(self, table: str, place: Place) -> Columns:
        if (table, place) not in self._rows:
            self._rows[table, place] = Columns(table, self._recording.table(table, f"{place[0]}-{place[1]}"))
        return self._rows[table, place]

    @cached_property
    def transactions(self) -> list[Transaction]:
        """The rows of `txns`."""
        return typed(self._recording.table("txns"), Transaction)

    # Things written at a known time

    def written(
        self,
        place: Place,
        since_ns: int,
        done_ns: int | None,
        absent_ns: int | None,
        seen_ns: int | None = None,
        answered_by: int | None = None,
    ) -> Judgement:
        """Judge what was written to a partition between two moments, as if with acks=all; its offset lies between the ends of those moments."""
        first, last = self._bounds(place, since_ns, done_ns)
        timeline = self._history.timeline(*place)
        record = Record(
            log_offset=last,
            first_offset=first,
            acks=-1,
            invoke_ns=since_ns,
            complete_ns=done_ns,
            seen_ns=seen_ns,
            absent_ns=absent_ns,
            answered_by=answered_by,
        )
        return timeline.judge(record)

    def _bounds(self, place: Place, since_ns: int, done_ns: int | None) -> tuple[int, int]:
        """Return the least and the greatest offset that something may have, by the high watermarks of its leader epoch.

        Those that were surely shown before it was written, and those that were surely asked for when it had been: a node's journal has its node's clock,
        and an answer may have been long on its way.
        """
        seen, timeline = self._columns("watermarks", place), self._history.timeline(*place)
        epochs = {timeline.leader_epoch_at(since_ns), None if done_ns is None else timeline.leader_epoch_at(done_ns)}
        known = seen["high_watermark"] != UNKNOWN
        if len(epochs) > 1 or None in epochs or done_ns is None:
            return 0, NEVER
        known &= seen["leader_epoch"] == epochs.pop()
        of_journal = seen["source"] == NODE
        shown_ns = seen["at_ns"] + np.where(of_journal, OBSERVATION_LAG_NS, 0)
        asked_ns = np.where(of_journal, seen["at_ns"] - OBSERVATION_LAG_NS, seen["asked_ns"])
        before = seen["high_watermark"][known & (shown_ns < since_ns)]
        behind = seen["high_watermark"][known & (asked_ns > done_ns)]
        return int(before.max(initial=0)), int(behind.min(initial=NEVER)) - 1 if behind.size else NEVER

    # Things written at some time

    def marker(self, place: Place, sent: Sent, absent_ns: int | None) -> Judgement | None:
        """Return what may have taken a transaction's end marker from a partition to which it sent."""
        if place not in self._shows_markers:
            tables = {table: self._recording.table(table, f"{place[0]}-{place[1]}") for table in OF_MARKERS}
            self._shows_markers[place] = PartitionRows(tables)
        return lost_marker(self._history.timeline(*place), self._shows_markers[place], sent, absent_ns)

    def decision(self, row: Transaction, since_ns: int, absent_ns: int | None) -> Judgement | None:
        """Return what may have taken the decision of a transaction, which was made after that moment, and before its answer."""
        home = self._history.home(TRANSACTION_LOG, row.txn_id)
        done_ns = row.end_ns if row.outcome == COMMITTED else None
        return None if home is None else self._history.timeline(*home).permitting(since_ns, absent_ns, done_ns=done_ns)

    def abort_lost(self, row: Transaction, place: Place, seen_ns: int, ended_ns: int | None) -> Judgement | None:
        """Return what may have taken the end of an aborted transaction of which a consumer received a record as committed (R9).

        Without the decision, who coordinates it from then on takes it for open, or does not know that it ever was (as it may, where the abort was never
        answered, without what it had written since the transaction began): the next transaction of that
        producer may be committed under an epoch that the brokers know already, and its marker commits what is open there of both. Without the
        abort's marker in this partition the records are open there, and the next one that sends there commits them.

        place:     the partition that the record was received from.
        seen_ns:   when a consumer of committed records had received the record for the first time.
        ended_ns:  when the last stable offset had passed the record at first, since the transaction was answered, or began without an answer; None: nobody saw it.
        """
        home = self._history.home(TRANSACTION_LOG, row.txn_id)
        if home is None:
            return None
        timeline = self._history.timeline(*home)
        decided = _first([timeline.permitting(row.begin_ns, seen_ns, done_ns=row.end_ns)], Excuse.END_LOST)
        marked = _first([self._abort_marker_lost(row, place, seen_ns)], Excuse.END_LOST)
        for lost, passed_ns, is_there in (
            (decided, ended_ns, False),
            (marked, self._passed_since(marked, row, place), True),
        ):
            if lost is None or lost.at_ns is None:
                continue
            for other in self._may_commit(row, seen_ns, passed_ns):
                is_later = other.end_ns is None or other.end_ns > lost.at_ns
                if is_later and (_offsets(other, place) or not is_there):
                    return lost
        return None

    def _may_commit(self, row: Transaction, seen_ns: int, ended_ns: int | None) -> Iterator[Transaction]:
        """Yield the later transactions of an aborted one's producer whose markers may have committed what it had left open, before that was received."""
        for other in self.transactions:
            if other.txn_id != row.txn_id or other.outcome == ABORTED or not row.begin_ns < other.begin_ns < seen_ns:
                continue
            is_of_producer = other.producer_id == row.producer_id or None in (other.producer_id, row.producer_id)
            # A marker that stood behind the record before that was the abort's: nothing can commit it any more.
            if is_of_producer and (ended_ns is None or ended_ns >= other.begin_ns):
                yield other

    def _abort_marker_lost(self, row: Transaction, place: Place, seen_ns: int) -> Judgement | None:
        """Return what may have taken an abort's marker, and left the records before it where they were.

        Who recovers when it is elected uncleanly aborts what its log leaves open (KIP-704), so nobody commits it any more.
        """
        known = [offset for offset in _offsets(row, place) if offset is not None]
        lost = self.marker(place, Sent(since_ns=row.begin_ns, log_offset=max(known)), seen_ns) if known else None
        if lost is None or lost.election is None or self._history.timeline(*place).recovers(lost):
            return None
        return lost

    def _passed_since(self, lost: Judgement | None, row: Transaction, place: Place) -> int | None:
        """Return when the last stable offset had passed what a transaction sent to a partition, after that loss: its marker was there after all."""
        if lost is None or lost.at_ns is None:
            return None
        seen, last = self._columns("watermarks", place), max(offset or 0 for offset in _offsets(row, place))
        passed = (seen["last_stable_offset"] > last) & (seen["at_ns"] >= lost.at_ns)
        passed &= seen["leader_epoch"] >= lost.leader_epoch
        return int(seen["at_ns"][passed].min()) if passed.any() else None

    def end_lost(self, row: Transaction, sent: Mapping[Place, Sent], absent_ns: int | None) -> Judgement | None:
        """Return what may have taken the end of a transaction: its marker in each of these partitions, or its decision (R9)."""
        since_ns = min((one.since_ns for one in sent.values()), default=row.begin_ns)
        decided = _first([self.decision(row, since_ns, absent_ns)], Excuse.END_LOST)
        found = [_first([self.marker(place, one, absent_ns)], Excuse.END_LOST) for place, one in sent.items()]
        if None in found or not found:
            return decided
        return _first([*found, decided], Excuse.END_LOST)

    def aborted_ns(self, row: Transaction, place: Place, at_ns: int | None) -> int | None:
        """Return when a leader that had been elected uncleanly had aborted all that a transaction had left open in a partition.

        None: it has left nothing there that such a leader had to find, as far as is known, or leaders of this cluster do not recover (D3).
        """
        if at_ns is None or self._history.settings.get(LEADER_RECOVERY) != "on":
            return None
        if row.outcome == OPEN or row.end_ns is None:
            return None
        recovered_ns = self._history.timeline(*place).recovered_ns(at_ns)
        # While it recovers it takes no record; that it has recovered is observed later than it was.
        is_found = recovered_ns is not None and row.end_ns < recovered_ns - OBSERVATION_LAG_NS
        return recovered_ns if is_found else None

    def abort_taken(self, place: Place, aborted_ns: int, at_ns: int | None) -> Judgement | None:
        """Return what may have taken the markers that a leader wrote when it recovered (R9)."""
        found = self._history.timeline(*place).permitting(aborted_ns, at_ns, done_ns=aborted_ns)
        return _first([found], Excuse.END_LOST)

    def ended_late(self, row: Transaction, at_ns: int | None) -> Judgement | None:
        """Return when the clock was set back by which a transaction without an answer would have been ended before it was last looked at (R9)."""
        home = self._history.home(TRANSACTION_LOG, row.txn_id)
        if home is None or at_ns is None or (row.outcome != OPEN and row.end_ns is not None):
            return None
        longest_ms = integer(self._history.settings, TIMEOUT, DEFAULT_TIMEOUT_MS)
        due_ns = row.begin_ns + (longest_ms if row.timeout_ms is None else row.timeout_ms) * 1_000_000 + GRACE_NS
        entries = self._history.timeline(*home).entries
        # What was set back when it was overdue already kept nobody from ending it.
        back = set_back(entries, self._skews, row.begin_ns, min(at_ns, due_ns))
        if back is None or at_ns >= due_ns + back[0]:
            return None
        promise = Promise(rule=Excuse.END_LOST, violations=())
        return Judgement(promise, None, -1, back[1], (), topic=home[0], partition=home[1], by=CLOCK)

    def end_hindered(self, row: Transaction, place: Place, at_ns: int | None) -> Judgement | None:
        """Return the fault by which a transaction's marker may not have come to a partition before it was last looked at (R9).

        A coordinator writes markers to who leads the partition for as long as it takes. They need ten seconds at a stretch in which no
        fault is in effect at any node that led either of both partitions; what hurts others hinders nobody here. And one of Apache Kafka waits
        for the answer of a broker that is gone for as long as any request may take, before it asks the next leader.
        """
        home = self._history.home(TRANSACTION_LOG, row.txn_id)
        if home is None or at_ns is None:
            return None
        longest_ms = integer(self._history.settings, TIMEOUT, DEFAULT_TIMEOUT_MS)
        due_ns = row.begin_ns + (longest_ms if row.timeout_ms is None else row.timeout_ms) * 1_000_000
        since_ns = due_ns if row.outcome == OPEN or row.end_ns is None else row.end_ns
        led = [*leading(self._history.timeline(*home).entries, since_ns, at_ns)]
        led += leading(self._history.timeline(*place).entries, since_ns, at_ns)
        nodes = {one.node for one in led}
        faults = [fault for fault in self._history.faults if (since := begun_ns(fault)) is not None and since < at_ns]
        there = [fault for fault in faults if hinders(fault, nodes)]
        if not there:
            return None
        if Calm(there).lasted(NOBODY, since_ns, at_ns, GRACE_NS):
            hindered_ns = self._asked_in_vain(home, place, since_ns, at_ns, there)
        else:
            hindered_ns = max(since for fault in there if (since := begun_ns(fault)) is not None)
        if hindered_ns is None:
            return None
        promise = Promise(rule=Excuse.END_LOST, violations=())
        return Judgement(promise, None, -1, hindered_ns, (), topic=home[0], partition=home[1], by=HINDERED)

    def _asked_in_vain(
        self, home: Place, place: Place, since_ns: int, at_ns: int, faults: Iterable[Fault]
    ) -> int | None:
        """Return when a coordinator had asked who led a partition to write markers, and may have waited for the answer when it was last looked at.

        It asked that process and nobody answered, for a fault ended it; it has coordinated ever since itself, and the transaction was ended
        while that broker led. Only where relays saw what nodes ask each other, and where it is recorded how long they wait.
        """
        waits_ns = _request_timeout_ms(self._history.settings) * 1_000_000
        if not waits_ns:
            return None
        led = {one.node for one in leading(self._history.timeline(*place).entries, since_ns, at_ns)}
        ended_ns = self._history.incarnations.ended_ns
        for asked_ns, source, target in reversed(self._unanswered):
            if target not in led or not asked_ns <= at_ns < asked_ns + waits_ns + GRACE_NS:
                continue
            gone_ns = ended_ns(target, asked_ns)
            is_hurt = any(_lasts(one, gone_ns) and hinders(one, {target}) for one in faults)
            coordinated = {one.node for one in leading(self._history.timeline(*home).entries, asked_ns, at_ns)}
            if is_hurt and asked_ns <= gone_ns <= at_ns < ended_ns(source, asked_ns) and coordinated == {source}:
                return asked_ns
        return None

    @cached_property
    def _unanswered(self) -> list[tuple[int, int, int]]:
        """When which node asked which other one to write markers, of those requests that nobody answered, in order."""
        rows = self._recording.table("requests")
        rows = rows.filter(pc.equal(rows["api_key"], WRITE_TXN_MARKERS)).sort_by("at_ns")
        asked: dict[tuple[int, int, int], int] = {}
        for row in rows.select(["direction", "from", "to", "correlation_id", "fate", "at_ns"]).to_pylist():
            if row["direction"] == "request":
                asked[row["from"], row["to"], row["correlation_id"]] = row["at_ns"]
            elif row["fate"] == DELIVERED:
                asked.pop((row["to"], row["from"], row["correlation_id"]), None)
        return sorted((at_ns, source, target) for (source, target, _), at_ns in asked.items())

    def sent_elsewhere(self, place: Place) -> Array:
        """Return the values that were offered to other topics of this name and may stand in this one, distinct."""
        topic, partition = place
        name = topic.partition(MARK)[0]
        others = (
            other
            for other in map(_place, self._recording.partitions("sends"))
            if other[0] != topic and other[0].partition(MARK)[0] == name and other[1] == partition
        )
        found = [np.zeros(0, np.int64)]
        for other in others:
            sends = self._columns("sends", other)
            surely_there = (sends["outcome"] == OK) & (sends["attempts"] == 1)
            found.append(sends["value"][~surely_there & (sends["outcome"] != FAIL)])
        return distinct(np.concatenate(found))

    def transaction_that_sent(self, value: int) -> Transaction | None:
        """Return the transaction that a record was sent in."""
        return self._that_sent.get(value)

    @cached_property
    def _that_sent(self) -> dict[int, Transaction]:
        """The transaction of each value that was sent in one."""
        found: dict[int, Transaction] = {}
        for row in self.transactions:
            for step in row.operations or ():
                if step.kind in WRITE_KINDS and step.value is not None:
                    found.setdefault(step.value, row)
        return found

    def sends_in_transactions(self, place: Place) -> list[Part]:
        """Return what transactions sent to a partition."""
        return [
            Part(row, step.value, step.log_offset)
            for row in self.transactions
            for step in row.operations or ()
            if step.kind in WRITE_KINDS and (step.topic, step.partition) == place
        ]

    def positions_in_transactions(self, place: Place, last_ns: int, without_ns: int | None) -> list[Part]:
        """Return the transactions that may have written a group's position to a partition of `__consumer_offsets`, each once.

        last_ns:     those that began until then.
        without_ns:  and whose position was answered later than that, when the partition held nothing yet of what is asked for.
        """
        found: dict[tuple[int, int], Part] = {}
        for partition in self._recording.partitions("commits"):
            for commit in typed(self._recording.table("commits", partition), Commit):
                if commit.kind != COMMIT_KIND or self._history.home(GROUP_LOG, commit.group) != place:
                    continue
                if without_ns is not None and commit.complete_ns is not None and commit.complete_ns < without_ns:
                    continue
                row = self.transaction_of(commit)
                if row is not None and row.begin_ns <= last_ns:
                    found[row.process, row.begin_ns] = Part(row, None, None)
        return list(found.values())

    # Positions of groups

    def position_lost(self, commit: Commit, absent_ns: int, seen_ns: int | None = None) -> Judgement | None:
        """Return what may have taken a position that a group had committed, and that stood in the log of `seen_ns` still (R11)."""
        home = self._history.home(GROUP_LOG, commit.group)
        if home is None:
            return None
        times = (commit.invoke_ns, commit.complete_ns, absent_ns, seen_ns)
        found: list[Judgement | None] = [self.written(home, *times, answered_by=commit.answered_by)]
        transaction = self.transaction_of(commit)
        if transaction is not None:
            since_ns = commit.invoke_ns if seen_ns is None else seen_ns
            found.append(self.marker(home, Sent(since_ns=since_ns), absent_ns))
        if transaction is not None and seen_ns is None:
            found.append(self.decision(transaction, transaction.begin_ns, absent_ns))
        return _first(found, Excuse.POSITIONS_LOST)

    def absence(self, group: str, absent_ns: int) -> Hashable:
        """Return what `position_lost` makes of when a position was absent, of one that was committed in no transaction and was never fetched."""
        home = self._history.home(GROUP_LOG, group)
        return None if home is None else self._history.timeline(*home).absence(absent_ns)

    def position_seen(self, group: str, at_ns: int, answered_by: int | None) -> int:
        """Return the earliest moment whose log somebody may have answered from who was asked for a group's position."""
        home = self._history.home(GROUP_LOG, group)
        return at_ns if home is None else self._history.timeline(*home).answered_since(at_ns, answered_by)

    def coordinator_deposed(self, group: str, node: int, at_ns: int) -> Deposed | None:
        """Return the election by which a node that answered for a group was no longer its coordinator, if it may not have known that (R11)."""
        home = self._history.home(GROUP_LOG, group)
        found = None if home is None else self._history.timeline(*home).deposed(node, at_ns, Excuse.POSITIONS_LOST)
        return None if found is None else found._replace(judgement=replace(found.judgement, by=DEPOSED))

    def transaction_of(self, commit: Commit) -> Transaction | None:
        """Return the transaction that a commit was a part of; one whose end nobody saw ends where its process begins the next one."""
        own = self._of_process.get(commit.process, [])
        begun = bisect_right(own, commit.invoke_ns, key=lambda row: row.begin_ns)
        if not begun:
            return None
        last = own[begun - 1]
        return last if last.end_ns is None or commit.invoke_ns <= last.end_ns else None

    @cached_property
    def _of_process(self) -> dict[int, list[Transaction]]:
        """The transactions of each process, by their begins."""
        found: dict[int, list[Transaction]] = {}
        for row in sorted(self.transactions, key=lambda row: row.begin_ns):
            found.setdefault(row.process, []).append(row)
        return found

    # Producers

    def producer_expired(self, own: Place, process: int, since_ns: int, until_ns: int) -> Judgement | None:
        """Return the silence after which a leader may have forgotten a producer, before a record of it stood twice (R8).

        Where the record itself stands, the silence is anywhere between its being sent and its being seen to stand twice. Elsewhere it is while another
        record was under way, beside this one: a leader that has forgotten the producer takes one record and refuses the other as out
        of order, and the producer numbers all its records anew. A pause between records makes nobody repeat any.
        """
        found = self._silence(own, process, since_ns, until_ns)
        least_ns = self._expiration_ns - min(sum(one.span_ns for one in self._skews), NEVER)
        for place in map(_place, self._recording.partitions("sends")):
            sends = self._columns("sends", place)
            ended_ns = np.where(sends["complete_ns"] == UNKNOWN, until_ns, np.minimum(sends["complete_ns"], until_ns))
            beside = (sends["process"] == process) & (sends["invoke_ns"] <= until_ns) & (ended_ns >= since_ns)
            for row in np.flatnonzero(beside & (ended_ns - sends["invoke_ns"] >= least_ns)).tolist():
                found = found or self._silence(place, process, int(sends["invoke_ns"][row]), int(ended_ns[row]))
        return found

    def _silence(self, place: Place, process: int, since_ns: int, until_ns: int) -> Judgement | None:
        """Return the silence of a producer in one partition that was long enough for who led it to forget the producer."""
        enough_ns = self._expiration_ns - self._ahead_ns(place, since_ns, until_ns)
        if until_ns - since_ns < enough_ns:
            return None
        sends = self._columns("sends", place)
        answered = (sends["process"] == process) & (sends["outcome"] == OK) & (sends["acks"] == -1)
        times = sends["invoke_ns"][answered], sends["complete_ns"][answered]
        silence_ns, at_ns = longest_silence(*times, since_ns, until_ns)
        if silence_ns < enough_ns:
            return None
        promise = Promise(rule=Excuse.MEMORY_LOST, violations=())
        return Judgement(promise, None, -1, at_ns, (), topic=place[0], partition=place[1], by=EXPIRED)

    @cached_property
    def _expiration_ns(self) -> int:
        return integer(self._history.settings, *PRODUCER_EXPIRATION) * 1_000_000

    def _ahead_ns(self, place: Place, since_ns: int, until_ns: int) -> int:
        """Return by how much faults of clocks may have made a silence longer to who led a partition meanwhile."""
        skewed = [one for one in self._skews if one.since_ns <= until_ns and one.until_ns >= since_ns]
        if not skewed:
            return 0
        led = {one.node for one in leading(self._history.timeline(*place).entries, since_ns, until_ns)}
        return min(sum(one.span_ns for one in skewed if one.node is None or one.node in led), NEVER)

    @cached_property
    def _skews(self) -> list[Skew]:
        return list(skews(self._history.faults))

    def producer_forgotten(self, process: int, invoke_ns: int, done_ns: int | None) -> Judgement | None:
        """Return what may have taken what a leader knew of a producer, before it was done with a record (R8).

        A producer that one leader does not know numbers its records anew in all its partitions (KIP-360); a leader knows it by
        its last acknowledged record there.
        """
        found = []
        for place in map(_place, self._recording.partitions("sends")):
            sends = self._columns("sends", place)
            for row in self._state(sends, self._acknowledged_by(place, process), invoke_ns, done_ns):
                offset = int(sends["log_offset"][row])
                record = Record(
                    log_offset=offset,
                    acks=-1,
                    invoke_ns=int(sends["invoke_ns"][row]),
                    complete_ns=int(sends["complete_ns"][row]),
                    absent_ns=done_ns,
                )
                if self._stands(place, int(sends["value"][row]), record):
                    continue
                found.append(self._history.timeline(*place).judge(record))
        return _first(found, Excuse.MEMORY_LOST)

    def _acknowledged_by(self, place: Place, process: int) -> Array:
        """Return the sends of a producer that were acknowledged with acks=all: asked for once, for one may have repeated very much."""
        if (place, process) not in self._acknowledged:
            sends = self._columns("sends", place)
            own = (sends["process"] == process) & (sends["outcome"] == OK) & (sends["acks"] == -1)
            self._acknowledged[place, process] = np.flatnonzero(own)
        return self._acknowledged[place, process]

    def _stands(self, place: Place, value: int, record: Record) -> bool:
        """Whether a record stands in the final log as it was acknowledged: nobody wrote it anew, or brought it back after it had been missed."""
        reads, timeline = self._columns("reads", place), self._history.timeline(*place)
        if place not in self._final_reads:
            final = np.flatnonzero(reads["phase"] == FINAL)
            final = final[np.argsort(reads["value"][final], kind="stable")]
            self._final_reads[place] = final, reads["value"][final]
        final, values = self._final_reads[place]
        own = final[np.searchsorted(values, value, "left") : np.searchsorted(values, value, "right")]
        own = own[reads["log_offset"][own] == record.log_offset]
        newest = timeline.newest_epoch(record.complete_ns)
        if newest is not None:
            own = own[reads["leader_epoch"][own] <= newest]
        return own.size > 0 and not timeline.may_bring_back(record.absent_ns)

    def _state(self, sends: Columns, own: Array, invoke_ns: int, done_ns: int | None) -> list[int]:
        """Return the record by which a leader knew the producer when another one was sent, and those while that was under way."""
        done = sends["complete_ns"][own]
        before = own[done < invoke_ns]
        within = own[(done >= invoke_ns) & (done <= (NEVER if done_ns is None else done_ns))]
        last = before[np.argmax(sends["complete_ns"][before])] if before.size else None
        return [*([] if last is None else [int(last)]), *within.tolist()]


def _lasts(fault: Fault, at_ns: int) -> bool:
    """Whether a fault was being injected or in effect at a moment: who ends a process says so when it is gone."""
    begun = [one for one in (fault.planned_ns, begun_ns(fault)) if one is not None]
    return min(begun, default=NEVER) <= at_ns <= undone_ns(fault, without_proof=True)


def _place(topic_partition: str) -> Place:
    topic, _, partition = topic_partition.rpartition("-")
    return topic, int(partition)


def _offsets(row: Transaction, place: Place) -> list[int | None]:
    """Return the offset of each record that a transaction sent to a partition, None where nobody knows it."""
    steps = row.operations or ()
    return [step.log_offset for step in steps if step.kind in WRITE_KINDS and (step.topic, step.partition) == place]


def _first(found: Iterable[Judgement | None], rule: Excuse) -> Judgement | None:
    """Return the earliest of those that permit something, under the name of a rule of its own."""
    permitted = [one for one in found if one is not None and not one.promise.must_survive]
    if not permitted:
        return None
    return under(rule, min(permitted, key=lambda one: one.at_ns or 0))


def by_order(order: Order) -> Judgement:
    """Return that something is gone because somebody ordered it."""
    promise = Promise(rule="gone_by_order", violations=())
    return Judgement(promise, None, -1, order.since_ns, (), topic=order.topic, partition=order.partition)


def under(rule: Excuse, judgement: Judgement) -> Judgement:
    """Return a permitted loss under the name of the rule for what follows from it."""
    return replace(judgement, promise=Promise(rule=rule, violations=()), by=judgement.promise.rule)
