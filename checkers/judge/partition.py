"""One partition's judge: distinguishes violations from what its committed history permits (docs/verdicts.md)."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.api import (
    UNKNOWN,
    Anomaly,
    Array,
    Context,
    Excuse,
    Found,
    Grounds,
    Kind,
    Meaning,
    PartitionRows,
    Property,
    nothing,
    rows_of,
    sends_by_value,
)
from tribunal.checkers.graphs.findings import AbortedMessage, Contradiction
from tribunal.checkers.guarantees import Promise
from tribunal.checkers.judge.all_rows import AllRows, RowsOfRanges
from tribunal.checkers.judge.cuts import with_cuts
from tribunal.checkers.judge.dumps import dumped
from tribunal.checkers.judge.endings import ending
from tribunal.checkers.judge.evidence import Evidence
from tribunal.checkers.judge.hot_partitions import HOLES, Range
from tribunal.checkers.judge.orders import OF_POSITIONS
from tribunal.checkers.judge.positions import Positions
from tribunal.checkers.judge.read_on import ReadOn
from tribunal.checkers.judge.receptions import Receptions, StableEnds
from tribunal.checkers.judge.remembered import Part, Remembered, under
from tribunal.checkers.judge.rewinds import Rewinds
from tribunal.checkers.judge.run_steps import RunSteps
from tribunal.checkers.judge.tables import Place, TableRow
from tribunal.checkers.judge.timeline import History, Judgement, NodeSettings, Record, Timeline, excused
from tribunal.checkers.judge.witnesses import answers
from tribunal.checkers.properties.aborted_reads import ABORTED_READ, READ_COMMITTED
from tribunal.checkers.properties.hanging_transactions import standing
from tribunal.checkers.properties.lost_writes import is_idempotent
from tribunal.results.admin_apis import AdminApi
from tribunal.results.manifest import KRAFT
from tribunal.results.rows import Transaction
from tribunal.results.store import Recording, partition_order

Weighed = tuple[Found, dict[int, Judgement]]  # what a property found, and what is judged of its rows
FACT_TABLES = ("metadata", "nodes", "faults", "phases", "admin")


def history_of(recording: Recording, tables: Mapping[str, pa.Table] | None = None) -> History:
    """Return what a run's timelines are made of."""
    tables = tables or {name: recording.table(name) for name in FACT_TABLES}
    return History(
        tables["metadata"],
        tables["nodes"],
        with_cuts(tables["faults"], tables["phases"]),
        tables["admin"],
        settings_of(recording) or None,
        lambda: recording.table("requests"),
    )


def settings_of(recording: Recording) -> NodeSettings:
    """Return what every node was started with, by Kafka's names, and the mode; nothing where that is unknown."""
    if recording.manifest is None or recording.manifest.settings is None:
        return {}
    return {"mode": recording.manifest.mode or KRAFT, **recording.manifest.settings}


class PartitionJudge:
    """Tells violations from permitted losses in one partition."""

    def __init__(
        self,
        recording: Recording,
        topic_partition: str,
        rows: PartitionRows,
        history: History | None = None,
        held: Sequence[Range] | None = None,
        run_steps: RunSteps | None = None,
    ) -> None:
        """Judge these rows of a partition.

        history:  of its run, where it is known already; run_steps: those of its run, which other partitions have asked, too.
        held:     the ranges of offsets whose rows these are; None: all.
        """
        topic, partition = partition_order(topic_partition)
        self._name = (topic, partition)
        self.place = Place(str(recording.run_dir), topic, partition)
        self._history = history_of(recording) if history is None else history
        self.timeline: Timeline = self._history.timeline(topic, partition)
        self.rows = rows
        self._all_rows = AllRows(rows, self.timeline.can_lead)
        if held is not None:
            self._all_rows = RowsOfRanges(rows, self.timeline.can_lead, recording, topic_partition, held)
        self._orders = self._history.orders_of(topic, partition)
        self._evidence: Evidence | None = None
        self._remembered = Remembered(recording.run_dir, self._history)
        of_run = cache(recording.table)
        sends, steps = rows.columns("sends"), RunSteps(recording) if run_steps is None else run_steps
        inside = sends["txn_id"] != UNKNOWN
        # Where anything was sent in a transaction somebody asks for the steps as well.
        known = steps.of_sends(topic, partition, sends["value"][inside]) if inside.any() else None
        self.context = Context(
            complete=recording.complete,
            place=(topic, partition),
            can_lead=self.timeline.can_lead,
            committed=None if known is None else known[1],
            leaders=self.timeline.leaders,
            dumped=dumped(of_run, topic, partition),
            ending=ending(self.timeline.entries),
            history=self.timeline.entries,
            settings=settings_of(recording),
            deleted_ns=self._history.deletion_ns(topic),
            of_run=of_run,
            made=lambda: steps.made,
            steps=cache(lambda: steps.in_partition(topic, partition) if known is None else known[0]),
            sent_elsewhere=cache(lambda: self._remembered.sent_elsewhere(self._name)),
        )

        # Where several excuse an anomaly the last one's words count.
        self._excuses = {
            Excuse.END_LOST: self._of_ends,
            Excuse.POSITIONS_LOST: self._of_positions,
            Excuse.TAIL_LOST: self._of_rewinds,
            Excuse.MEMORY_LOST: self._of_memory,
            Excuse.BY_ORDER: self._of_log_start,
        }

    def judged(self, chosen: Property) -> list[TableRow]:
        """Run a property's kernel; return capped witnesses with severity and rule, and the figures."""
        assert chosen.kernel is not None
        return self.explained(chosen, chosen.kernel(self.rows, self.context))

    def explained(self, chosen: Property, found: Found) -> list[TableRow]:
        """Distinguish violations from permitted losses among what a property found."""
        return list(answers(chosen, *self.weighed(chosen, found), self.place))

    def weighed(self, chosen: Property, found: Found) -> Weighed:
        """Return what a property found, but for what nothing can be said of, and what is judged of each row."""
        if self._orders.is_compacted:
            rows = enumerate(rows_of(found.anomalies))
            found = _kept(
                found,
                [row for row, one in rows if not (_by_order(chosen.kinds[one.kind]) and self._may_be_compacted(one))],
            )
        if self._orders.is_deleted:
            kinds = found.anomalies["kind"].to_pylist()
            judged = [chosen.kinds[kind].meaning is not Meaning.UNJUDGED for kind in kinds]
            found = _kept(found, [row for row, wanted in enumerate(judged) if wanted])
        return found, self._judgements(chosen, found)

    def _may_be_compacted(self, anomaly: Anomaly) -> bool:
        """Whether what an anomaly is about was sent before the last time at which older records of a key could go."""
        sends = self.rows.columns("sends")
        if anomaly.value is not None:
            own = self.rows.derived(sends_by_value).rows(np.array([anomaly.value]))
            own = own[own != UNKNOWN]
        else:
            last = anomaly.log_offset if anomaly.other_offset is None else anomaly.other_offset
            own = np.flatnonzero(
                (sends["log_offset"] >= (anomaly.log_offset or 0)) & (sends["log_offset"] <= (last or 0))
            )
        since_ns = int(sends["invoke_ns"][own].min()) if own.size else 0
        return self._orders.compacted_ns(since_ns, None) is not None

    def compacted(self, value: int, log_offset: int) -> Judgement | None:
        """Return what let compaction take a record that was written at an offset, and is missing in the end; None: nothing did."""
        if not self._orders.is_compacted:
            return None
        record = self._looked_up().record(Anomaly(kind="lost", value=value, log_offset=log_offset))
        if record.taken_ns is None:
            return None
        taken = Record(log_offset=log_offset, acks=None, invoke_ns=0, below_log_start=True, taken_ns=record.taken_ns)
        topic, partition = self._name
        return msgspec.structs.replace(self.timeline.judge(taken), topic=topic, partition=partition)

    def _judgements(self, chosen: Property, found: Found) -> dict[int, Judgement]:
        if not found.anomalies.num_rows:
            return {}
        kinds = [chosen.kinds[kind] for kind in found.anomalies["kind"].to_pylist()]
        promised = [row for row, kind in enumerate(kinds) if kind.meaning is Meaning.PROMISED]
        anomalies = rows_of(found.anomalies.take(pa.array(promised, pa.int64())))
        judgements = {row: self._judge(anomaly) for row, anomaly in zip(promised, anomalies, strict=True)}
        for excuse, judge in self._excuses.items():
            if rows := [row for row, kind in enumerate(kinds) if excuse in kind.excused_by]:
                judgements |= judge(found, rows)
        return judgements | self._of_own_rules(chosen, found)

    def _of_own_rules(self, chosen: Property, found: Found) -> dict[int, Judgement]:
        """Ask the rules that the property itself brought along."""
        judgements: dict[int, Judgement] = {}
        if not chosen.rules:
            return judgements
        grounds = Grounds(timeline=self.timeline, history=self._history, rows=self.rows, context=self.context)
        for row, anomaly in enumerate(rows_of(found.anomalies)):
            for rule in chosen.rules:
                entry = None
                if rule in chosen.kinds[anomaly.kind].excused_by:
                    entry = rule.excusing(grounds, anomaly)
                if entry is not None:
                    judgements[row] = excused(entry, rule.name)
        return judgements

    def _of_ends(self, found: Found, chosen: list[int]) -> dict[int, Judgement]:
        """Excuse what is out of sight or never ends, where its transaction's end was permitted to be lost."""
        rows = zip(chosen, rows_of(found.anomalies.take(pa.array(chosen))), strict=True)
        return _excused((row, self._of_end(anomaly)) for row, anomaly in rows)

    def _of_end(self, anomaly: Anomaly) -> Judgement | None:
        if anomaly.value is None:
            return self._of_hanging(anomaly)
        transaction = self._remembered.transaction_that_sent(anomaly.value)
        if transaction is None:
            return None
        if anomaly.kind == ABORTED_READ:
            return self._of_abort(anomaly, transaction)
        evidence = self._looked_up()
        sent = evidence.sent_in_transaction(anomaly.value, anomaly.log_offset, transaction.begin_ns)
        return self._remembered.end_lost(transaction, {self._name: sent}, evidence.absent_ns)

    def _of_abort(self, anomaly: Anomaly, transaction: Transaction) -> Judgement | None:
        """Look whether the decision to abort was permitted to be lost before a consumer of committed records received the record.

        Of an abort without an answer nobody knows whether it was ever decided: then it is that the transaction was open, which was written since it began.
        """
        if anomaly.value is None or anomaly.log_offset is None:
            return None
        since_ns = transaction.begin_ns if transaction.end_ns is None else transaction.end_ns
        received = self.rows.derived(Receptions)
        own = received.rows(anomaly.value, anomaly.log_offset)
        seen_ns = received.first_ns(own, self.rows.columns("polls")["isolation"] == READ_COMMITTED)
        if seen_ns is None:
            return None
        epoch = int(self.rows.columns("reads")["leader_epoch"][own].max(initial=UNKNOWN))
        ended_ns = self.rows.derived(StableEnds).first_ns(anomaly.log_offset, since_ns, epoch)
        return self._remembered.abort_lost(transaction, self._name, seen_ns, ended_ns)

    def _of_hanging(self, anomaly: Anomaly) -> Judgement | None:
        """Look at the transaction whose first record holds the last stable offset back, or at those that may be it.

        Whose record stands there is known by its answer, or else by the logs of those that can lead. Where groups' positions stand
        it is one of those that committed one there before the last stable offset was first seen to stay behind.
        """
        sends = self._remembered.sends_in_transactions(self._name)
        assert anomaly.log_offset is not None
        first = [send for send in sends if send.log_offset == anomaly.log_offset]
        values = () if first else self._looked_up().values_at(anomaly.log_offset)
        there = [send for send in sends if send.value is not None and send.value in values]
        chosen = first or there or [send for send in sends if send.log_offset is None]
        if not sends:
            chosen = self._positions_at(anomaly.log_offset)
        found = (self._of_open(send, anomaly) for send in chosen)
        return next((judgement for judgement in found if judgement is not None), None)

    def _of_open(self, send: Part, anomaly: Anomaly) -> Judgement | None:
        """Look at one transaction that may be the one that holds the last stable offset back."""
        row, at_ns = send.transaction, anomaly.at_ns
        aborted_ns = self._remembered.aborted_ns(row, self._name, at_ns)
        if aborted_ns is None:
            found = self._remembered.end_lost(row, {self._name: send.sent}, at_ns)
            found = found or self._remembered.ended_late(row, at_ns)
        else:  # whatever became of its own end before: nothing but the loss of that abort brings it back
            found = self._remembered.abort_taken(self._name, aborted_ns, at_ns)
        return found or self._remembered.end_hindered(row, self._name, at_ns)

    def _positions_at(self, log_offset: int) -> list[Part]:
        """Return the transactions whose position may stand at an offset at which the last stable offset stands."""
        since_ns, without_ns = standing(self.rows, log_offset)
        return self._remembered.positions_in_transactions(self._name, since_ns, without_ns)

    def _of_positions(self, found: Found, chosen: list[int]) -> dict[int, Judgement]:
        """Excuse what groups went through after their positions were permitted to be lost."""
        ordered = [one for one in self._history.orders if one.api in OF_POSITIONS and one.names(*self._name)]
        positions = Positions(self.rows, self.context, self._remembered, ordered)
        rows = zip(chosen, rows_of(found.anomalies.take(pa.array(chosen))), strict=True)
        return _excused((row, positions.excuse(anomaly)) for row, anomaly in rows)

    def _of_rewinds(self, found: Found, chosen: list[int]) -> dict[int, Judgement]:
        """Excuse records at offsets behind which a group had read on already, where what it had read there was permitted to be lost."""
        rows = zip(chosen, rows_of(found.anomalies.take(pa.array(chosen))), strict=True)
        return _excused((row, self._rewinds.excuse(anomaly)) for row, anomaly in rows)

    @cached_property
    def _rewinds(self) -> Rewinds:
        orders = [one for one in self._history.orders if one.api == AdminApi.ALTER_OFFSET and one.names(*self._name)]
        return Rewinds(self.rows, self.context, orders, self._had_read_on)

    def _had_read_on(self, log_offset: int, readers: Array | None) -> Judgement | None:
        epoch = self._looked_up().epoch_at(log_offset)
        lost = None if epoch is None else self._read_on.excuse(log_offset, epoch, readers)
        return None if lost is None else under(Excuse.TAIL_LOST, lost)

    @cached_property
    def _read_on(self) -> ReadOn:
        return ReadOn(self.rows, self.timeline)

    def _of_memory(self, found: Found, chosen: list[int]) -> dict[int, Judgement]:
        """Excuse records that stand twice, where a leader by right did not know their producer: it had lost what it knew, or had forgotten it."""
        sends = self.rows.columns("sends")
        values = found.anomalies["value"].take(pa.array(chosen)).to_numpy()
        places = self.rows.derived(sends_by_value).rows(values)
        offsets = found.anomalies["log_offset"].take(pa.array(chosen)).to_pylist()
        classes = self.rows.words("sends", "worker_class")
        judged: list[tuple[int, Judgement | None]] = []
        for row, send, offset in zip(chosen, places.tolist(), offsets, strict=True):
            if send == UNKNOWN:
                continue
            process, value, since_ns, complete_ns = (
                int(sends[name][send]) for name in ("process", "value", "invoke_ns", "complete_ns")
            )
            done_ns = None if complete_ns == UNKNOWN else complete_ns
            judgement = self._remembered.producer_forgotten(process, since_ns, done_ns)
            if judgement is None and is_idempotent(classes[sends["worker_class"][send]]):
                until_ns = self._seen_ns(value, offset)
                judgement = self._remembered.producer_expired(self._name, process, since_ns, until_ns)
            judged.append((row, judgement))
        return _excused(judged)

    def _seen_ns(self, value: int, log_offset: int) -> int:
        """Return by when a record stood at an offset: when it was first read there, or at the latest when the run ended."""
        received = self.rows.derived(Receptions)
        first_ns = received.first_ns(received.rows(value, log_offset))
        return self._ended_ns() if first_ns is None else first_ns

    def _of_log_start(self, found: Found, chosen: list[int]) -> dict[int, Judgement]:
        """Excuse what only stands before the log start in files that are still there, or before the beginning of a replica's own log."""
        rows = zip(chosen, rows_of(found.anomalies.take(pa.array(chosen))), strict=True)
        return _excused((row, self._of_start(anomaly)) for row, anomaly in rows)

    def _of_start(self, anomaly: Anomaly) -> Judgement | None:
        first, last = anomaly.log_offset, anomaly.log_offset if anomaly.other_offset is None else anomaly.other_offset
        if first is None or last is None:
            return None
        last -= anomaly.kind in HOLES  # it ends before the offset where something stands again
        evidence, ended_ns = self._looked_up(), self._ended_ns()
        if not evidence.is_before_log_start(range(first, last + 1), anomaly.value, anomaly.node, ended_ns):
            return None
        return self.timeline.judge(Record(log_offset=last, acks=None, invoke_ns=0, below_log_start=True))

    def _ended_ns(self) -> int:
        """Return when the last was recorded of the run's phases and nodes."""
        ends = (self.context.of_run("phases")["end_ns"], self.context.of_run("nodes")["at_ns"])
        return max(pc.max(column).as_py() or 0 for column in ends)

    def _looked_up(self) -> Evidence:
        if self._evidence is None:
            self._evidence = Evidence(
                self.rows,
                can_lead=self.timeline.can_lead,
                orders=self._orders,
                dumped=self.context.dumped,
                begins=self.context.begins,
                all_rows=self._all_rows,
                leaders=self.timeline.leaders,
            )
        return self._evidence

    def _judge(self, anomaly: Anomaly) -> Judgement:
        judgements = [self.timeline.judge(record) for record in self._records(self._looked_up(), anomaly)]
        # A step back over several stretches needs an excuse for each of them.
        return next((judgement for judgement in judgements if judgement.promise.must_survive), judgements[0])

    def of_contradiction(self, found: Contradiction) -> Judgement:
        """Say whether all values at an offset but one were permitted to be lost: then the log went on from there anew."""
        evidence = self._looked_up()
        gone = [value for value in found.values if not evidence.stands(value, found.log_offset)]
        judgements = [self._judge(evidence.acknowledged_there(value, found.log_offset)) for value in gone]
        kept = [judgement for judgement in judgements if judgement.promise.must_survive]
        may_stay = len(gone) == len(found.values)  # nothing of it stands there: one may have been the last
        return kept[0] if len(kept) > may_stay else next(one for one in judgements if one not in kept)

    def of_aborted(self, found: AbortedMessage) -> Judgement | None:
        """Say what permits that a message of an aborted transaction was polled here; None: nothing does."""
        return self._of_end(Anomaly(kind=ABORTED_READ, log_offset=found.log_offset, value=found.value))

    def of_place(self, value: int) -> Judgement | None:
        """Return what permitted the loss of what readers had read where a record was written anew."""
        offset = self._looked_up().offset_of(value)
        return None if offset is None else self._had_read_on(offset, None)

    def of_value(self, value: int, absent_ns: int) -> Judgement | None:
        """Say whether a record was permitted to be lost before it was found to be absent; None: nobody sent it here."""
        evidence = self._looked_up()
        record = evidence.record_of(value, absent_ns)
        if record is None:
            return None
        newest = self.timeline.newest_epoch(record.complete_ns)
        if newest is not None and record.leader_epoch is not None and record.leader_epoch > newest:
            record = msgspec.structs.replace(record, leader_epoch=None)  # what stands there was written anew
        judgement = self.timeline.judge(record)
        epoch = newest if record.leader_epoch is None else record.leader_epoch
        if evidence.stands(value, record.log_offset, epoch) and not self.timeline.may_bring_back(absent_ns):
            return msgspec.structs.replace(judgement, promise=Promise(rule=None, violations=()))
        return judgement

    def _records(self, evidence: Evidence, anomaly: Anomaly) -> Sequence[Record]:
        if anomaly.other_offset is not None:
            return evidence.records_between(anomaly, self.timeline)
        return [evidence.record(anomaly)]


def _by_order(kind: Kind) -> bool:
    return Excuse.BY_ORDER in kind.excused_by


def _kept(found: Found, rows: Sequence[int]) -> Found:
    """Return what was found in these rows only."""
    details = {place: found.details[row] for place, row in enumerate(rows) if row in found.details}
    return msgspec.structs.replace(found, anomalies=found.anomalies.take(pa.array(rows, pa.int64())), details=details)


def joined(parts: Sequence[Weighed]) -> Weighed:
    """Return what a property found in several parts of a partition as one; what each says of the partition itself is said once."""
    judgements: dict[int, Judgement] = {}
    kept: list[pa.Table] = [nothing()]
    rows, said = 0, set[Anomaly]()
    for found, judged in parts:
        own = list(rows_of(found.anomalies))
        places = [row for row, one in enumerate(own) if not _is_of_partition(one) or one not in said]
        said |= {one for one in own if _is_of_partition(one)}
        judgements |= {rows + place: judged[row] for place, row in enumerate(places) if row in judged}
        kept.append(found.anomalies.take(pa.array(places, pa.int64())))
        rows += len(places)
    return Found(pa.concat_tables(kept)), judgements


def _is_of_partition(anomaly: Anomaly) -> bool:
    return anomaly.log_offset is None and anomaly.value is None


def _excused(found: Iterable[tuple[int, Judgement | None]]) -> dict[int, Judgement]:
    return {row: judgement for row, judgement in found if judgement is not None}
