"""Acknowledged and read records that the final log lacks, records nobody sent, records that stand twice.

The final log of a partition is what complete final reads returned. A final read is complete when one process
asked from the log start on, and in the end got nothing at or beyond the high watermark; of several, one after the
other, the last one is it, and what those before it received was there then. Without one the
final logs of all replicas that can lead count, if they were recorded; without those nothing is lost, the
partition is unjudged. A record is known by its value, so one that moved to another offset is not lost.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.api import (
    FAIL,
    FINAL,
    OK,
    TAIL,
    UNKNOWN,
    Array,
    Columns,
    Context,
    Excuse,
    Found,
    Kind,
    Meaning,
    PartitionRows,
    Property,
    anomalies,
    distinct,
    is_among,
    nothing,
    sends_by_value,
    sends_of_logs,
    sends_of_reads,
)
from tribunal.checkers.judge.steps import OPEN, WRITES
from tribunal.results.recording import WORDS

READ_COMMITTED: Final = WORDS["polls", "isolation"].index("read_committed")
NEVER: Final = np.iinfo(np.int64).max
PRODUCE: Final = 0  # Kafka's API key
CLIENTS: Final = 0  # in `from` of the table requests
DOUBLED: Final = pa.schema([("node", pa.int32()), ("at_ns", pa.int64())])
KINDS: Final = {
    "lost": Kind(Meaning.PROMISED, "an acknowledged record is missing from the final log"),
    "lost_after_read": Kind(Meaning.PROMISED, "a record that a consumer had read is missing from the final log"),
    "unread": Kind(
        Meaning.VIOLATION,
        "an acknowledged record stands in the leaders' logs, yet a complete read lacks it",
        excused_by=(Excuse.END_LOST, Excuse.BY_ORDER),
    ),
    "withdrawn": Kind(
        Meaning.PROMISED,
        "a record of a transaction of unknown outcome, which a consumer of committed records had read, is missing from the final log, and no logs say "
        "whether it stands out of sight",
        excused_by=(Excuse.END_LOST,),
    ),
    "phantom": Kind(Meaning.VIOLATION, "a record was read, or stands in a replica's log, that nobody sent"),
    "refused_yet_written": Kind(
        Meaning.VIOLATION, "a record that was surely refused was read, or stands in a replica's log"
    ),
    "corrupt": Kind(Meaning.VIOLATION, "a record was read whose value is none of ours"),
    "duplicate": Kind(
        Meaning.VIOLATION, "an idempotent producer's record stands twice in the log", excused_by=(Excuse.MEMORY_LOST,)
    ),
    "repeated": Kind(Meaning.NOTE, "a producer without idempotence wrote a record twice by retrying"),
    "unjudged": Kind(
        Meaning.UNJUDGED, "neither a complete final read nor the final logs of all replicas that can lead"
    ),
}


class FinalLog:
    """What the partition holds in the end: distinct values, ascending, if it is known."""

    def __init__(self, rows: PartitionRows, context: Context) -> None:
        reads, logs = rows.columns("reads"), rows.columns("logs")
        readers = complete_readers(rows.columns("polls"))
        self._logs, self._leaders = logs, np.asarray(context.can_lead, np.int64)
        self._index = rows.derived(sends_by_value)
        self.all_logged = all_logged(logs, context)
        self.by_read = readers.size > 0
        self.known = self.by_read or self.all_logged
        self.values: Array = np.zeros(0, np.int64)
        self.holds: Array = np.zeros(rows.columns("sends")["value"].size, bool)  # one a send
        if self.by_read:
            final = rows.derived(final_reads)
            self.values = distinct(reads["value"][final])
            self.holds[_known(rows.derived(sends_of_reads)[final])] = True
        elif self.all_logged:
            self.values = self._in_logs()
            self.holds[_known(self._index.rows(self.values))] = True

    def logged(self, values: Array) -> Array:
        """Return which values are in the logs of those that can lead; none when not all of them were recorded."""
        return is_among(values, self._in_logs())

    def _in_logs(self) -> Array:
        if not self.all_logged:
            return np.zeros(0, np.int64)
        return distinct(self._logs["value"][is_among(self._logs["node"], self._leaders)])


def all_logged(logs: Columns, context: Context) -> bool:
    """Return whether the final log of each replica that can lead is known, by `node` alone."""
    leaders = np.asarray(context.can_lead, np.int64)
    held = np.flatnonzero(np.bincount(logs["node"])) if logs["node"].size else np.zeros(0, np.int64)
    logged = np.append(held, np.array([*context.dumped, *context.begins], np.int64))
    return leaders.size > 0 and bool(is_among(leaders, logged).all())


def _known(rows: Array) -> Array:
    return np.asarray(rows[rows != UNKNOWN])


def final_reads(rows: PartitionRows) -> Array:
    """Return the rows of `reads` that complete final reads received."""
    reads = rows.columns("reads")
    readers = complete_readers(rows.columns("polls"))
    return np.flatnonzero((reads["phase"] == FINAL) & is_among(reads["process"], readers))


def complete_readers(polls: Columns, *, committed: bool = False) -> Array:
    """Return the processes whose final read reached from the log start to the end, ascending.

    Of several that follow each other the last one is the final read; those that overlap stand side by side.

    committed:  only those with isolation read_committed.
    """
    found = _all_complete_readers(polls)
    if committed:
        chosen = (polls["phase"] == FINAL) & (polls["isolation"] == READ_COMMITTED)
        found = np.intersect1d(found, polls["process"][chosen])
    if found.size < 2:
        return found
    processes, since_ns, until_ns = final_spans(polls)
    own = is_among(processes, found)
    return np.asarray(processes[own & (until_ns >= since_ns[own].max())])


def final_spans(polls: Columns) -> tuple[Array, Array, Array]:
    """Return who polled in the final phase, ascending, and when each asked for the first time and was answered for the last (ns)."""
    final = np.flatnonzero(polls["phase"] == FINAL)
    processes, place = np.unique(polls["process"][final], return_inverse=True)
    since_ns, until_ns = np.full(processes.size, NEVER), np.full(processes.size, UNKNOWN)
    invoke_ns = polls["invoke_ns"][final]
    np.minimum.at(since_ns, place, invoke_ns)
    np.maximum.at(until_ns, place, np.maximum(invoke_ns, polls["complete_ns"][final]))
    return processes, since_ns, until_ns


def earlier_readers(polls: Columns) -> dict[int, int]:
    """Return who had read in the final phase, to the end or not, before another one began whose read is complete; and since when (ns).

    They are readers like those before them: what they received was there.
    """
    processes, since_ns, until_ns = final_spans(polls)
    if processes.size < 2:
        return {}
    complete = is_among(processes, _all_complete_readers(polls))
    earlier = until_ns < since_ns[complete].max(initial=UNKNOWN)
    return dict(zip(processes[earlier].tolist(), since_ns[earlier].tolist(), strict=True))


def _received(rows: PartitionRows, name: str) -> Array:
    """Return which rows of `polls` or `reads` are of consumers that read before the final read."""
    phase, process = (rows.columns(name)[column] for column in ("phase", "process"))
    before = phase == TAIL
    if earlier := earlier_readers(rows.columns("polls")):
        before |= (phase == FINAL) & is_among(process, np.asarray(sorted(earlier), np.int64))
    return np.asarray(before)


def _all_complete_readers(polls: Columns) -> Array:
    final = polls["phase"] == FINAL
    processes, position = polls["process"][final], polls["position"][final]
    starts = position <= np.maximum(polls["log_start_offset"][final], 0)
    ends = (
        (polls["outcome"][final] == OK)
        & (polls["record_count"][final] == 0)
        & (polls["high_watermark"][final] != UNKNOWN)
        & (position >= polls["high_watermark"][final])
    )
    return np.intersect1d(processes[starts & (position != UNKNOWN)], processes[ends])


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Compare what was acknowledged and read with what is there in the end.

    rows:     sends, polls, reads, logs of one partition, any order.
    returns:  one row per record; figures: how many records were judged.
    source:   KIP-966, "Motivation"; docs/verdicts.md, "Lost or unread?".
    """
    sends, reads = rows.columns("sends"), rows.columns("reads")
    log = FinalLog(rows, context)
    acknowledged = acknowledged_sends(sends, context)
    origin = rows.derived(sends_of_reads)
    found = [
        _foreign(rows, origin, context),
        _refused(rows, origin),
        _corrupt(reads),
        _twice(rows, log, context),
    ]
    if log.known:
        shown = _shown_committed(rows, log, context)
        found += [
            _lost(sends, acknowledged, log),
            _unread_again(sends, shown, log),
            _lost_after_read(rows, acknowledged, log, context, shown),
        ]
    elif acknowledged.any() or reads["value"].size:
        found.append(anomalies("unjudged", log_offset=[UNKNOWN]))
    figures = {
        "acknowledged, acks=all": int((acknowledged & (sends["acks"] == -1)).sum()),
        "acknowledged, acks=1": int((acknowledged & (sends["acks"] == 1)).sum()),
        "sent, acks=0": int((sends["acks"] == 0).sum()),
        "records read": int(reads["value"].size),
        "partitions with a final log": int(log.known),
    }
    return Found(pa.concat_tables(found), figures)


def acknowledged_sends(sends: Columns, context: Context) -> Array:
    """Return which sends were acknowledged. Offset and no error; in a transaction the commit has to be answered too (docs/verdicts.md, facts)."""
    acknowledged = (sends["outcome"] == OK) & (sends["acks"] != 0)
    return np.asarray(acknowledged & ~uncommitted_sends(sends, context))


def uncommitted_sends(sends: Columns, context: Context) -> Array:
    """Return which sends belong to a transaction that nobody knows to be committed."""
    in_transaction = sends["txn_id"] != UNKNOWN
    if not in_transaction.any():
        return np.asarray(in_transaction)
    committed = np.zeros(0, np.int64) if context.committed is None else context.committed
    return np.asarray(in_transaction & ~is_among(sends["value"], committed))


def _lost(sends: Columns, acknowledged: Array, log: FinalLog) -> pa.Table:
    missing = acknowledged & ~log.holds
    if not missing.any():
        return nothing()
    in_logs = log.logged(sends["value"]) & log.by_read
    return pa.concat_tables(
        [_of_sends("lost", sends, missing & ~in_logs), _of_sends("unread", sends, missing & in_logs)]
    )


def _of_sends(kind: str, sends: Columns, chosen: Array) -> pa.Table:
    return anomalies(
        kind,
        log_offset=sends["log_offset"][chosen],
        value=sends["value"][chosen],
        acks=sends["acks"][chosen],
        invoke_ns=sends["invoke_ns"][chosen],
        at_ns=sends["complete_ns"][chosen],
        process=sends["process"][chosen],
        leader_epoch=sends["leader_epoch"][chosen],
    )


def _unread_again(sends: Columns, shown: Array, log: FinalLog) -> pa.Table:
    """Return records that were shown as committed and still stand in the logs, yet the final read lacks them."""
    if not shown.size or not log.by_read:
        return nothing()
    return _of_sends("unread", sends, is_among(sends["value"], shown[log.logged(shown)]))


def _lost_after_read(
    rows: PartitionRows, acknowledged: Array, log: FinalLog, context: Context, shown: Array
) -> pa.Table:
    """Return records seen by a consumer and gone in the end; those acknowledged are `lost` already.

    shown:  values of transactions of unknown outcome that are known to be committed, and are missing.
    """
    sends, reads = rows.columns("sends"), rows.columns("reads")
    tail = np.flatnonzero(_received(rows, "reads") & (reads["value"] != UNKNOWN))
    gone = tail[~is_among(reads["value"][tail], log.values)]
    if gone.size == 0:
        return nothing()
    order = gone[np.lexsort((reads["leader_epoch"][gone], reads["log_offset"][gone], reads["value"][gone]))]
    values, first = np.unique(reads["value"][order], return_index=True)
    read, send = order[first], rows.derived(sends_of_reads)[order[first]]
    judged_elsewhere = acknowledged | uncommitted_sends(sends, context)
    open_ = ~(judged_elsewhere[send] & (send != UNKNOWN)) if judged_elsewhere.size else np.ones(send.size, bool)
    committed = is_among(values, shown[~log.logged(shown)])
    tables = []
    for kind, chosen in (
        ("lost_after_read", open_ | committed if log.all_logged else open_),
        ("withdrawn", np.zeros(open_.size, bool) if log.all_logged else committed & ~open_),
    ):
        tables.append(
            anomalies(
                kind,
                log_offset=reads["log_offset"][read[chosen]],
                value=values[chosen],
                acks=pa.array([_acks(sends, row) for row in send[chosen].tolist()], pa.int32()),
                invoke_ns=_picked(sends["invoke_ns"], send[chosen]),
                process=values[chosen] >> 40,
                leader_epoch=reads["leader_epoch"][read[chosen]],
            )
        )
    return pa.concat_tables(tables)


def _shown_committed(rows: PartitionRows, log: FinalLog, context: Context) -> Array:
    """Return the values of transactions of unknown outcome that a read_committed consumer received, and that the final log lacks.

    Who received one knows that its transaction was committed.
    """
    if not (rows.columns("sends")["txn_id"] != UNKNOWN).any():
        return np.zeros(0, np.int64)
    polls, reads, steps = rows.columns("polls"), rows.columns("reads"), context.steps()
    open_ = steps["value"][is_among(steps["kind"], WRITES) & (steps["outcome"] == OPEN)]
    consumers = distinct(polls["process"][_received(rows, "polls") & (polls["isolation"] == READ_COMMITTED)])
    shown = reads["value"][_received(rows, "reads") & is_among(reads["process"], consumers)]
    found = distinct(shown[is_among(shown, distinct(open_))])
    return np.asarray(found[~is_among(found, log.values)])


def _acks(sends: Columns, row: int) -> int | None:
    """acks=0 as sent; a record of unknown fate has the guarantees of nobody but its readers."""
    return 0 if row != UNKNOWN and sends["acks"][row] == 0 else None


def _picked(column: Array, rows: Array) -> Array:
    return np.where(rows == UNKNOWN, UNKNOWN, column[rows]) if column.size else np.full(rows.size, UNKNOWN, np.int64)


def _reads(kind: str, reads: Columns, chosen: Array) -> pa.Table:
    """One row per offset and value, however many consumers read it."""
    if not chosen.any():
        return nothing()
    pairs, first = np.unique(
        np.stack([reads["log_offset"][chosen], reads["value"][chosen]], axis=1), axis=0, return_index=True
    )
    return anomalies(kind, log_offset=pairs[:, 0], value=pairs[:, 1], process=reads["process"][chosen][first])


def _foreign(rows: PartitionRows, origin: Array, context: Context) -> pa.Table:
    """Return what nobody sent and yet is there, whoever has it: a replica outside of the ISR invents nothing either."""
    # A cut-off harness never wrote down what was in flight: there every value may have been sent.
    if not context.complete:
        return nothing()
    found = []
    for there, sends in ((rows.columns("reads"), origin), (rows.columns("logs"), rows.derived(sends_of_logs))):
        foreign = (there["value"] != UNKNOWN) & (sends == UNKNOWN)
        # A broker that has not heard of a topic's deletion may take what is meant for the next one of its name.
        if foreign.any():
            foreign &= ~is_among(there["value"], context.sent_elsewhere())
        found.append((there, foreign))
    (reads, read), (logs, logged) = found
    for node, from_offset, end_offset in context.ending.damaged if logged.any() else ():
        logged &= (logs["node"] != node) | (logs["log_offset"] < from_offset) | (logs["log_offset"] >= end_offset)
    return _there("phantom", reads, read, logs, logged)


def _refused(rows: PartitionRows, origin: Array) -> pa.Table:
    """Return what was refused and yet is there, whoever has it: what nobody wrote stands in no replica's log, read or not."""
    sends, reads, logs = rows.columns("sends"), rows.columns("reads"), rows.columns("logs")
    refused = sends["outcome"] == FAIL
    if not refused.any():
        return nothing()
    read = refused[origin] & (origin != UNKNOWN)
    logged = is_among(logs["value"], distinct(sends["value"][refused]))
    return _there("refused_yet_written", reads, read, logs, logged)


def _there(kind: str, reads: Columns, read: Array, logs: Columns, logged: Array) -> pa.Table:
    """One row per offset and value, however many consumers read it or replicas hold it."""
    if not (read.any() or logged.any()):
        return nothing()
    offsets, values = (np.concatenate([reads[name][read], logs[name][logged]]) for name in ("log_offset", "value"))
    pairs = np.unique(np.stack([offsets, values], axis=1), axis=0)
    return anomalies(kind, log_offset=pairs[:, 0], value=pairs[:, 1])


def _corrupt(reads: Columns) -> pa.Table:
    return _reads("corrupt", reads, reads["value"] == UNKNOWN)


def _twice(rows: PartitionRows, log: FinalLog, context: Context) -> pa.Table:
    """Return values at two offsets of the final log, with the first and the second offset."""
    sends, reads, logs = rows.columns("sends"), rows.columns("reads"), rows.columns("logs")
    if log.by_read:
        final = rows.derived(final_reads)
        source, chosen = reads, final[reads["value"][final] != UNKNOWN]
    elif log.all_logged:
        # Replicas may hold different tails: one of those that can lead stands for the log.
        leader = logs["node"] == min(context.can_lead)
        # What stands before the log start is in no reader's log; each replica deletes it when it comes to it.
        own = leader & (logs["log_offset"] >= log_start(rows))
        source, chosen = logs, np.flatnonzero(own & (logs["value"] != UNKNOWN))
    else:
        return nothing()
    ordered = np.sort(source["value"][chosen])
    suspects = distinct(ordered[1:][ordered[1:] == ordered[:-1]])
    if suspects.size == 0:
        return nothing()
    chosen = chosen[is_among(source["value"][chosen], suspects)]
    pairs = np.unique(np.stack([source["value"][chosen], source["log_offset"][chosen]], axis=1), axis=0)
    again = np.flatnonzero(pairs[1:, 0] == pairs[:-1, 0]) + 1
    if again.size == 0:
        return nothing()
    at = rows.derived(sends_by_value).rows(pairs[again, 0])
    sure = np.append(_idempotent(rows, context), False)[at] & (at != UNKNOWN)
    tables = []
    for kind, chosen_pairs, chosen_rows in (
        ("duplicate", again[sure], at[sure]),
        ("repeated", again[~sure], at[~sure]),
    ):
        tables.append(
            anomalies(
                kind,
                log_offset=pairs[chosen_pairs, 1],
                value=pairs[chosen_pairs, 0],
                other_offset=pairs[chosen_pairs - 1, 1],
                invoke_ns=_picked(sends["invoke_ns"], chosen_rows),
                process=pairs[chosen_pairs, 0] >> 40,
            )
        )
    return pa.concat_tables(tables)


def log_start(rows: PartitionRows) -> int:
    """Return the greatest log start that was shown: no replica has to hold what stands before it."""
    shown = [rows.columns(name)["log_start_offset"] for name in ("polls", "watermarks")]
    return max(int(column.max(initial=0)) for column in shown)


def _idempotent(rows: PartitionRows, context: Context) -> Array:
    """Per send: written by an idempotent producer or in a single attempt that arrived once, so that it may not stand twice."""
    sends = rows.columns("sends")
    words = rows.words("sends", "worker_class")
    classes = np.array([is_idempotent(word) for word in words] + [False])
    once = sends["attempts"] == 1
    twice = doubled_produces(context.of_run("requests"))
    for node, at_ns in zip(twice["node"].to_pylist(), twice["at_ns"].to_pylist(), strict=True):
        under_way = (sends["invoke_ns"] <= at_ns) & (
            (sends["complete_ns"] == UNKNOWN) | (sends["complete_ns"] >= at_ns)
        )
        once &= ~(under_way & ((sends["answered_by"] == UNKNOWN) | (sends["answered_by"] == node)))
    return np.asarray(classes[sends["worker_class"]] | once)


def doubled_produces(requests: pa.Table) -> pa.Table:
    """Return when a fault let a client's produce request arrive twice, and at which node: DOUBLED. Who sent it made one attempt."""
    named = pc.and_(pc.equal(requests["api_key"], PRODUCE), pc.equal(requests["from"], CLIENTS))
    doubled = requests.filter(
        pc.and_(named, pc.and_(pc.equal(requests["fate"], "duplicated"), pc.equal(requests["direction"], "request")))
    )
    return doubled.select(["to", "at_ns"]).rename_columns(DOUBLED.names).cast(DOUBLED)


def is_idempotent(worker_class: str) -> bool:
    """Return whether brokers know the producers of such workers, and what these sent already."""
    return worker_class.startswith(("idempotent", "transactional"))


def _readers(condition: str) -> str:
    """Return the SQL, up to its next view, of who read to the end and nobody after him did; `complete_reads`: of all who did, and when the last of them began."""
    return "".join((
        """
WITH final_spans AS (
  SELECT run_id, topic, partition, process, MIN(invoke_ns) AS since_ns,
    MAX(GREATEST(invoke_ns, COALESCE(complete_ns, invoke_ns))) AS until_ns,
    MAX(CASE WHEN position <= COALESCE(log_start_offset, 0) THEN 1 ELSE 0 END) AS from_start,
    MAX(CASE WHEN outcome = 'ok' AND record_count = 0 AND position >= high_watermark THEN 1 ELSE 0 END) AS to_end,
    MAX(CASE WHEN isolation = 'read_committed' THEN 1 ELSE 0 END) AS is_committed
  FROM polls WHERE phase = 'final' GROUP BY run_id, topic, partition, process
), complete_reads AS (
  SELECT *, MAX(since_ns) OVER (PARTITION BY run_id, topic, partition) AS last_ns
  FROM final_spans WHERE from_start = 1 AND to_end = 1""",
        condition,
        """
), readers AS (
  SELECT run_id, topic, partition, process FROM complete_reads WHERE until_ns >= last_ns
)""",
    ))  # fmt: skip


# The SQL of `log_start`.
LOG_STARTS: Final = """SELECT run_id, topic, partition, MAX(log_start_offset) AS log_start FROM (
    SELECT run_id, topic, partition, log_start_offset FROM polls
    UNION ALL SELECT run_id, topic, partition, log_start_offset FROM watermarks
  ) shown GROUP BY run_id, topic, partition"""
READERS: Final = _readers("")
COMMITTED_READERS: Final = _readers(" AND is_committed = 1")
SQL: Final = "".join((READERS, """, earlier AS (
  SELECT s.run_id, s.topic, s.partition, s.process FROM final_spans s
  JOIN (SELECT DISTINCT run_id, topic, partition, last_ns FROM complete_reads) c
    ON s.run_id = c.run_id AND s.topic = c.topic AND s.partition = c.partition
  WHERE s.until_ns < c.last_ns
), seen AS (
  SELECT * FROM reads WHERE phase = 'tail'
  UNION ALL
  SELECT r.* FROM reads r
  SEMI JOIN earlier e
    ON r.run_id = e.run_id AND r.topic = e.topic AND r.partition = e.partition AND r.process = e.process
  WHERE r.phase = 'final'
), read_partitions AS (
  SELECT DISTINCT run_id, topic, partition FROM readers
), logged_partitions AS (
  SELECT c.run_id, c.topic, c.partition FROM can_lead c
  LEFT JOIN (SELECT run_id, topic, partition, node FROM logs
             UNION SELECT run_id, topic, partition, node FROM dumped) l
    ON l.run_id = c.run_id AND l.topic = c.topic AND l.partition = c.partition AND l.node = c.node
  GROUP BY c.run_id, c.topic, c.partition HAVING COUNT(*) = COUNT(l.node)
), in_logs AS (
  SELECT DISTINCT l.run_id, l.topic, l.partition, l.value FROM logs l
  JOIN can_lead c ON l.run_id = c.run_id AND l.topic = c.topic AND l.partition = c.partition AND l.node = c.node
  JOIN logged_partitions p ON l.run_id = p.run_id AND l.topic = p.topic AND l.partition = p.partition
), final_log AS (
  SELECT r.run_id, r.topic, r.partition, r.log_offset, r.value FROM reads r
  JOIN readers d ON r.run_id = d.run_id AND r.topic = d.topic AND r.partition = d.partition AND r.process = d.process
  WHERE r.phase = 'final'
), present AS (
  SELECT run_id, topic, partition, value FROM final_log
  UNION
  SELECT l.run_id, l.topic, l.partition, l.value FROM in_logs l
  ANTI JOIN read_partitions p ON l.run_id = p.run_id AND l.topic = p.topic AND l.partition = p.partition
), judged AS (
  SELECT run_id, topic, partition FROM read_partitions UNION SELECT run_id, topic, partition FROM logged_partitions
), uncommitted AS (
  SELECT s.run_id, s.value FROM sends s
  ANTI JOIN committed c ON s.run_id = c.run_id AND s.value = c.value
  WHERE s.txn_id IS NOT NULL
), acknowledged AS (
  SELECT s.* FROM sends s
  ANTI JOIN uncommitted u ON s.run_id = u.run_id AND s.value = u.value
  WHERE s.outcome = 'ok' AND s.acks <> 0
), committed_consumers AS (
  SELECT DISTINCT p.run_id, p.topic, p.partition, p.process FROM polls p
  LEFT JOIN earlier e
    ON p.run_id = e.run_id AND p.topic = e.topic AND p.partition = e.partition AND p.process = e.process
  WHERE p.isolation = 'read_committed' AND (p.phase = 'tail' OR (p.phase = 'final' AND e.process IS NOT NULL))
), shown_committed AS (
  SELECT DISTINCT r.run_id, r.topic, r.partition, r.value FROM seen r
  JOIN committed_consumers c
    ON r.run_id = c.run_id AND r.topic = c.topic AND r.partition = c.partition AND r.process = c.process
  JOIN judged j ON r.run_id = j.run_id AND r.topic = j.topic AND r.partition = j.partition
  SEMI JOIN (SELECT run_id, topic, partition, value FROM txn_steps
             WHERE kind IN ('send', 'append') AND outcome = 'info') o
    ON r.run_id = o.run_id AND r.topic = o.topic AND r.partition = o.partition AND r.value = o.value
  ANTI JOIN present p
    ON r.run_id = p.run_id AND r.topic = p.topic AND r.partition = p.partition AND r.value = p.value
), missing AS (
  SELECT a.* FROM acknowledged a
  JOIN judged j ON a.run_id = j.run_id AND a.topic = j.topic AND a.partition = j.partition
  ANTI JOIN present p
    ON a.run_id = p.run_id AND a.topic = p.topic AND a.partition = p.partition AND a.value = p.value
), copies AS (
  SELECT DISTINCT run_id, topic, partition, log_offset, value FROM final_log WHERE value IS NOT NULL
  UNION
  SELECT l.run_id, l.topic, l.partition, l.log_offset, l.value FROM logs l
  JOIN (SELECT run_id, topic, partition, MIN(node) AS node FROM can_lead GROUP BY run_id, topic, partition) c
    ON l.run_id = c.run_id AND l.topic = c.topic AND l.partition = c.partition AND l.node = c.node
  JOIN logged_partitions p ON l.run_id = p.run_id AND l.topic = p.topic AND l.partition = p.partition
  ANTI JOIN read_partitions q ON l.run_id = q.run_id AND l.topic = q.topic AND l.partition = q.partition
  LEFT JOIN (""", LOG_STARTS, """) b
    ON l.run_id = b.run_id AND l.topic = b.topic AND l.partition = b.partition
  WHERE l.value IS NOT NULL AND l.log_offset >= COALESCE(b.log_start, 0)
), tail AS (
  SELECT run_id, topic, partition, value, MIN(log_offset) AS log_offset
  FROM seen WHERE value IS NOT NULL GROUP BY run_id, topic, partition, value
), tail_epochs AS (
  SELECT t.run_id, t.topic, t.partition, t.value, NULLIF(MIN(COALESCE(r.leader_epoch, -1)), -1) AS leader_epoch
  FROM tail t JOIN seen r ON t.run_id = r.run_id AND t.topic = r.topic AND t.partition = r.partition
                         AND t.value = r.value AND t.log_offset = r.log_offset
  GROUP BY t.run_id, t.topic, t.partition, t.value
), found AS (
SELECT m.run_id, m.topic, m.partition, 'lost' AS kind, m.log_offset, m.value, CAST(NULL AS BIGINT) AS other_offset
FROM missing m
ANTI JOIN in_logs l
  ON m.run_id = l.run_id AND m.topic = l.topic AND m.partition = l.partition AND m.value = l.value
UNION ALL
SELECT m.run_id, m.topic, m.partition, 'unread', m.log_offset, m.value, CAST(NULL AS BIGINT)
FROM missing m
SEMI JOIN in_logs l
  ON m.run_id = l.run_id AND m.topic = l.topic AND m.partition = l.partition AND m.value = l.value
UNION ALL
SELECT s.run_id, s.topic, s.partition, 'unread', s.log_offset, s.value, CAST(NULL AS BIGINT)
FROM sends s
JOIN shown_committed c ON s.run_id = c.run_id AND s.topic = c.topic AND s.partition = c.partition AND s.value = c.value
SEMI JOIN in_logs l
  ON s.run_id = l.run_id AND s.topic = l.topic AND s.partition = l.partition AND s.value = l.value
UNION ALL
SELECT t.run_id, t.topic, t.partition,
       CASE WHEN u.value IS NULL OR p.topic IS NOT NULL THEN 'lost_after_read' ELSE 'withdrawn' END, t.log_offset, t.value,
       CAST(NULL AS BIGINT)
FROM tail t
JOIN judged j ON t.run_id = j.run_id AND t.topic = j.topic AND t.partition = j.partition
ANTI JOIN present p
  ON t.run_id = p.run_id AND t.topic = p.topic AND t.partition = p.partition AND t.value = p.value
ANTI JOIN acknowledged a
  ON t.run_id = a.run_id AND t.topic = a.topic AND t.partition = a.partition AND t.value = a.value
ANTI JOIN (SELECT u.run_id, u.value FROM uncommitted u
           ANTI JOIN (SELECT c.* FROM shown_committed c ANTI JOIN in_logs l
                      ON c.run_id = l.run_id AND c.topic = l.topic AND c.partition = l.partition AND c.value = l.value) c
             ON u.run_id = c.run_id AND u.value = c.value) n
  ON t.run_id = n.run_id AND t.value = n.value
LEFT JOIN shown_committed u
  ON t.run_id = u.run_id AND t.topic = u.topic AND t.partition = u.partition AND t.value = u.value
LEFT JOIN logged_partitions p ON t.run_id = p.run_id AND t.topic = p.topic AND t.partition = p.partition
UNION ALL
SELECT DISTINCT r.run_id, r.topic, r.partition, 'phantom', r.log_offset, r.value, CAST(NULL AS BIGINT)
FROM (SELECT run_id, topic, partition, log_offset, value FROM reads
      UNION SELECT l.run_id, l.topic, l.partition, l.log_offset, l.value FROM logs l ANTI JOIN damaged_batches d
        ON l.run_id = d.run_id AND l.topic = d.topic AND l.partition = d.partition AND l.node = d.node
       AND l.log_offset >= d.from_offset AND l.log_offset < d.end_offset) r
JOIN complete_runs c ON r.run_id = c.run_id
ANTI JOIN sends s ON r.run_id = s.run_id AND r.topic = s.topic AND r.partition = s.partition AND r.value = s.value
ANTI JOIN (
  SELECT run_id, SPLIT_PART(topic, '@', 1) AS name, partition, value FROM sends
  WHERE outcome IN ('info', 'sent') OR (outcome = 'ok' AND COALESCE(attempts, 0) <> 1)
) o ON r.run_id = o.run_id AND SPLIT_PART(r.topic, '@', 1) = o.name AND r.partition = o.partition AND r.value = o.value
WHERE r.value IS NOT NULL
UNION ALL
SELECT DISTINCT r.run_id, r.topic, r.partition, 'refused_yet_written', r.log_offset, r.value, CAST(NULL AS BIGINT)
FROM (SELECT run_id, topic, partition, log_offset, value FROM reads
      UNION SELECT run_id, topic, partition, log_offset, value FROM logs) r
JOIN sends s ON r.run_id = s.run_id AND r.topic = s.topic AND r.partition = s.partition AND r.value = s.value
WHERE s.outcome = 'fail'
UNION ALL
SELECT DISTINCT run_id, topic, partition, 'corrupt', log_offset, value, CAST(NULL AS BIGINT)
FROM reads WHERE value IS NULL
UNION ALL
SELECT c.run_id, c.topic, c.partition, CASE WHEN i.value IS NULL THEN 'repeated' ELSE 'duplicate' END, c.log_offset,
       c.value, o.first_offset
FROM copies c
JOIN (SELECT run_id, topic, partition, value, MIN(log_offset) AS first_offset FROM copies
      GROUP BY run_id, topic, partition, value) o
  ON c.run_id = o.run_id AND c.topic = o.topic AND c.partition = o.partition AND c.value = o.value
 AND c.log_offset > o.first_offset
LEFT JOIN (SELECT run_id, topic, partition, value FROM sends
           WHERE worker_class LIKE 'idempotent%' OR worker_class LIKE 'transactional%'
           UNION
           SELECT s.run_id, s.topic, s.partition, s.value FROM sends s
           ANTI JOIN doubled_produces d
             ON s.run_id = d.run_id AND s.invoke_ns <= d.at_ns AND COALESCE(s.complete_ns, d.at_ns) >= d.at_ns
            AND COALESCE(s.answered_by, d.node) = d.node
           WHERE s.attempts = 1) i
  ON c.run_id = i.run_id AND c.topic = i.topic AND c.partition = i.partition AND c.value = i.value
UNION ALL
SELECT n.run_id, n.topic, n.partition, 'unjudged', CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT) FROM (
  SELECT run_id, topic, partition FROM acknowledged UNION SELECT run_id, topic, partition FROM reads
) n ANTI JOIN judged j ON n.run_id = j.run_id AND n.topic = j.topic AND n.partition = j.partition
)
SELECT f.run_id, f.topic, f.partition, f.kind, f.log_offset, f.value,
       CASE WHEN f.kind IN ('lost', 'unread') OR (f.kind IN ('lost_after_read', 'withdrawn') AND s.acks = 0) THEN s.acks
            END AS acks,
       CASE WHEN f.kind IN ('lost', 'unread', 'lost_after_read', 'withdrawn', 'duplicate', 'repeated') THEN s.invoke_ns
            END AS invoke_ns,
       CASE WHEN f.kind IN ('lost', 'unread') THEN s.complete_ns END AS at_ns,
       CASE WHEN f.kind IN ('lost', 'unread') THEN s.leader_epoch
            WHEN f.kind IN ('lost_after_read', 'withdrawn') THEN e.leader_epoch END AS leader_epoch,
       f.other_offset
FROM found f LEFT JOIN sends s ON f.run_id = s.run_id AND f.value = s.value
LEFT JOIN tail_epochs e ON f.run_id = e.run_id AND f.topic = e.topic AND f.partition = e.partition AND f.value = e.value
"""))  # fmt: skip


PROPERTY: Final = Property(
    tables=("sends", "polls", "reads", "logs", "watermarks"),
    kinds=KINDS,
    kernel=kernel,
    sql=SQL,
)
