"""The log as one object: every observer sees one value at an offset, and order follows producers and real time.

Looks at the final log as complete final reads returned it. Real-time order is exact and linear: a violation
exists iff some record was invoked after a later-offset record had completed, that is, invoke(i) > the least
completion behind i. Only the culprits are reported: one record far out of place makes thousands of victims.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from tribunal.checkers.api import (
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
    sends_of_reads,
)
from tribunal.checkers.judge.led import UNKNOWN_TOPIC
from tribunal.checkers.properties.consumers import polls_of
from tribunal.checkers.properties.lost_writes import READERS, final_reads
from tribunal.results.manifest import KRAFT

KINDS: Final = {
    "offset_conflict": Kind(
        Meaning.PROMISED, "a consumer read another value at this offset than stands there in the end"
    ),
    "diverged": Kind(
        Meaning.VIOLATION, "a replica that can lead holds another value at this offset than was read there"
    ),
    # An earlier attempt may stand in the log of a deposed leader that an unclean election brings back: then the record is
    # there, and lost where it was acknowledged.
    "moved": Kind(Meaning.PROMISED, "an acknowledged record stands at another offset than it was acknowledged with"),
    "reordered": Kind(Meaning.VIOLATION, "an idempotent producer's records stand out of order"),
    "overtaken": Kind(Meaning.NOTE, "records of a producer without idempotence stand out of order"),
    "real_time_order": Kind(Meaning.VIOLATION, "a record stands before one that had completed before it was even sent"),
    "gap": Kind(
        Meaning.VIOLATION,
        "an offset below the end holds nothing, in the read and in the replicas' logs",
        excused_by=(Excuse.BY_ORDER,),
    ),
    "read_epoch_back": Kind(
        Meaning.VIOLATION,
        "one answer handed out a record of an older leader epoch behind one of a newer one (docs/invariants.md#i14)",
    ),
    "read_epoch_of_nobody": Kind(
        Meaning.VIOLATION, "a record was handed out with a leader epoch in which, by the metadata log, nobody led"
    ),
}
NEVER: Final = np.iinfo(np.int64).max


class _Log:
    """The final log, one row an offset, ascending, and the send of each record where it is known."""

    def __init__(self, rows: PartitionRows) -> None:
        reads, final = rows.columns("reads"), rows.derived(final_reads)
        offsets, values = reads["log_offset"][final], reads["value"][final]
        if not (offsets[1:] > offsets[:-1]).all():
            order = np.lexsort((values, offsets))
            final, ordered = final[order], offsets[order]
            first = np.ones(ordered.size, bool)
            first[1:] = ordered[1:] != ordered[:-1]
            final = final[first]
            offsets, values = reads["log_offset"][final], reads["value"][final]
        self.offsets, self.values = offsets, values
        self.sends = rows.derived(sends_of_reads)[final]
        self.without_gaps = offsets.size > 0 and int(offsets[-1]) - int(offsets[0]) + 1 == offsets.size

    def at(self, offsets: Array) -> tuple[Array, Array]:
        """Return for each offset whether the log has it, and the value there."""
        if self.offsets.size == 0:
            return np.zeros(offsets.size, bool), np.full(offsets.size, UNKNOWN, np.int64)
        last = self.offsets.size - 1
        if self.without_gaps:
            place = np.clip(offsets - self.offsets[0], 0, last)
        else:
            place = np.minimum(np.searchsorted(self.offsets, offsets), last)
        known = self.offsets[place] == offsets
        return known, np.where(known, self.values[place], UNKNOWN)


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Compare all that was seen with the final log; without a complete final read there is nothing to compare with.

    source:  I14, I17 (docs/invariants.md); docs/known-bugs.md, point 2.
    """
    log = _Log(rows)
    sends = rows.columns("sends")
    found = [
        _conflicts(rows.columns("reads"), log),
        _diverged(rows.columns("logs"), log, context),
        _moved(sends, log),
        *_reordered(rows, log),
        _real_time_order(sends, log),
        _gaps(rows.columns("logs"), log, context),
        _epochs_back(rows.columns("reads"), context),
        _epochs_of_nobody(rows, context),
    ]
    return Found(pa.concat_tables(found), {"records in final logs": int(log.offsets.size)})


def _conflicts(reads: Columns, log: _Log) -> pa.Table:
    known, there = log.at(reads["log_offset"])
    differing = known & (reads["value"] != there) & (reads["value"] != UNKNOWN)
    if not differing.any():
        return nothing()
    pairs = np.unique(np.stack([reads["log_offset"][differing], reads["value"][differing]], axis=1), axis=0)
    return anomalies("offset_conflict", log_offset=pairs[:, 0], value=pairs[:, 1])


def _diverged(logs: Columns, log: _Log, context: Context) -> pa.Table:
    known, there = log.at(logs["log_offset"])
    leaders = is_among(logs["node"], np.asarray(context.can_lead, np.int64))
    differing = known & leaders & (logs["value"] != there) & (logs["is_control"] != 1)
    return anomalies(
        "diverged",
        log_offset=logs["log_offset"][differing],
        value=logs["value"][differing],
        node=logs["node"][differing],
    )


def _moved(sends: Columns, log: _Log) -> pa.Table:
    acknowledged = (sends["outcome"] == OK) & (sends["log_offset"] != UNKNOWN)
    _, there = log.at(sends["log_offset"])
    elsewhere = acknowledged & (there != sends["value"])
    if not elsewhere.any():
        return nothing()
    elsewhere &= is_among(sends["value"], distinct(log.values))
    return anomalies(
        "moved",
        log_offset=sends["log_offset"][elsewhere],
        value=sends["value"][elsewhere],
        acks=sends["acks"][elsewhere],
        invoke_ns=sends["invoke_ns"][elsewhere],
        at_ns=sends["complete_ns"][elsewhere],
        leader_epoch=sends["leader_epoch"][elsewhere],
    )


def _reordered(rows: PartitionRows, log: _Log) -> list[pa.Table]:
    """Return records that stand behind a later one of the same process; repeated ones are `duplicate`'s business."""
    sends = rows.columns("sends")
    sent = log.sends != UNKNOWN
    values, offsets, send = log.values[sent], log.offsets[sent], log.sends[sent]
    ascending = np.sort(values)
    if (ascending[1:] == ascending[:-1]).any():
        fresh = np.zeros(values.size, bool)
        fresh[np.unique(values, return_index=True)[1]] = True
        values, offsets, send = values[fresh], offsets[fresh], send[fresh]
    # Offsets ascend already: a stable sort by process keeps each process's records in log order.
    order = np.argsort(_narrow(values >> 40), kind="stable")
    ordered = values[order]
    # Values of a process all lie below those of the next, so one running maximum serves all processes.
    late = order[ordered < np.maximum.accumulate(ordered)] if order.size else order
    words = rows.words("sends", "worker_class")
    classes = np.array([word.startswith(("idempotent", "transactional")) for word in words] + [False])
    sure = classes[sends["worker_class"][send[late]]] if late.size else np.zeros(0, bool)
    return [
        anomalies(kind, log_offset=offsets[late[chosen]], value=values[late[chosen]])
        for kind, chosen in (("reordered", sure), ("overtaken", ~sure))
    ]


def _narrow(processes: Array) -> Array:
    """Return process numbers as 16-bit ones where they fit: those are sorted in linear time."""
    return processes.astype(np.int16) if processes.size and processes.max() < 1 << 15 else processes


def _real_time_order(sends: Columns, log: _Log) -> pa.Table:
    sent = log.sends != UNKNOWN
    send = log.sends[sent]
    if send.size == 0:
        return nothing()
    invoke = sends["invoke_ns"][send]
    done = np.where(_is_acknowledged(sends, send, log.offsets[sent]), sends["complete_ns"][send], NEVER)
    behind = np.append(np.minimum.accumulate(done[::-1])[::-1][1:], NEVER)
    culprits = invoke > behind
    return anomalies(
        "real_time_order",
        log_offset=log.offsets[sent][culprits],
        value=log.values[sent][culprits],
        acks=sends["acks"][send][culprits],
        invoke_ns=invoke[culprits],
    )


def _is_acknowledged(sends: Columns, send: Array, offsets: Array) -> Array:
    """Return for each record whether it stood where it stands when its send was acknowledged.

    Another attempt may be written long after one was answered, behind it or where an unclean election has taken that one.
    """
    return np.asarray((sends["log_offset"][send] == offsets) & (sends["outcome"][send] == OK))


def _gaps(logs: Columns, log: _Log, context: Context) -> pa.Table:
    """Return the first offset of each hole; without the logs a hole may be a transaction's marker."""
    leaders = is_among(logs["node"], np.asarray(context.can_lead, np.int64))
    any_log = leaders.any() or not context.begins.keys().isdisjoint(context.can_lead)
    if not any_log or log.offsets.size == 0 or log.without_gaps:
        return nothing()
    present = np.concatenate([log.offsets, logs["log_offset"][leaders]])
    present = distinct(present[(present >= log.offsets[0]) & (present <= log.offsets[-1])])
    holes = np.flatnonzero(np.diff(present) > 1)
    return anomalies("gap", log_offset=present[holes] + 1, other_offset=present[holes + 1])


def _epochs_back(reads: Columns, context: Context) -> pa.Table:
    """Return where leader epochs go back within an answer: what one log holds, whoever has it.

    A batch that was damaged where no checksum sees it may bear any leader epoch, and stay so for ever.
    """
    own = np.flatnonzero(((reads["phase"] == TAIL) | (reads["phase"] == FINAL)) & (reads["leader_epoch"] != UNKNOWN))
    epochs = reads["leader_epoch"][own]
    if own.size == 0 or epochs.min() == epochs.max():
        return nothing()
    own = own[np.lexsort((reads["log_offset"][own], reads["poll_index"][own], reads["process"][own]))]
    epochs, offsets = reads["leader_epoch"][own], reads["log_offset"][own]
    back = epochs[1:] < epochs[:-1]
    for name in ("process", "poll_index"):
        back &= reads[name][own][1:] == reads[name][own][:-1]
    for _, first, end in context.ending.damaged:
        hurt = (offsets >= first) & (offsets < end)
        back &= ~(hurt[1:] | hurt[:-1])
    places = np.flatnonzero(back) + 1
    if places.size == 0:
        return nothing()
    found = np.unique(np.stack([offsets[places], offsets[places - 1], epochs[places]], axis=1), axis=0)
    return anomalies("read_epoch_back", log_offset=found[:, 0], other_offset=found[:, 1], leader_epoch=found[:, 2])


def _epochs_of_nobody(rows: PartitionRows, context: Context) -> pa.Table:
    """Return what was handed out with a leader epoch in which nobody led; what a fault damaged may bear any."""
    if context.settings.get("mode") != KRAFT:
        return nothing()  # in ZooKeeper mode not each state is observed
    reads = rows.columns("reads")
    epochs, offsets = reads["leader_epoch"], reads["log_offset"]
    wrong = context.leaders.of_nobody_in_any(epochs)
    wrong &= (reads["phase"] == TAIL) | (reads["phase"] == FINAL)
    for _, first, end in context.ending.damaged:
        wrong &= (offsets < first) | (offsets >= end)
    if not wrong.any():
        return nothing()
    if context.leaders.anew_ns:
        wrong &= context.leaders.of_nobody(_topics_of_reads(rows, context), epochs)
    found = np.unique(np.stack([offsets[wrong], epochs[wrong]], axis=1), axis=0)
    return anomalies("read_epoch_of_nobody", log_offset=found[:, 0], leader_epoch=found[:, 1])


def _topics_of_reads(rows: PartitionRows, context: Context) -> Array:
    """Return of which topic of the name what was received is, by when its answer had come."""
    polls, reads = rows.columns("polls"), rows.columns("reads")
    times = np.where(polls["complete_ns"] == UNKNOWN, polls["invoke_ns"], polls["complete_ns"])
    topics = context.leaders.topics(times)
    poll = polls_of(polls, np.arange(times.size), reads, np.arange(reads["process"].size))
    return np.append(topics, UNKNOWN_TOPIC)[poll]


SQL: Final = "".join((READERS, """, final_log AS (
  SELECT r.run_id, r.topic, r.partition, r.log_offset, NULLIF(MIN(COALESCE(r.value, -1)), -1) AS value FROM reads r
  JOIN readers d ON r.run_id = d.run_id AND r.topic = d.topic AND r.partition = d.partition AND r.process = d.process
  WHERE r.phase = 'final' GROUP BY r.run_id, r.topic, r.partition, r.log_offset
), sent AS (
  SELECT f.run_id, f.topic, f.partition, f.log_offset, f.value, s.process, s.acks, s.invoke_ns, s.outcome, s.worker_class,
         CASE WHEN s.outcome = 'ok' AND f.log_offset = s.log_offset THEN s.complete_ns END AS done_ns
  FROM final_log f JOIN sends s
    ON f.run_id = s.run_id AND f.topic = s.topic AND f.partition = s.partition AND f.value = s.value
), fresh AS (
  SELECT run_id, topic, partition, value, MIN(process) AS process, MIN(worker_class) AS worker_class,
         MIN(log_offset) AS log_offset
  FROM sent GROUP BY run_id, topic, partition, value
), ordered AS (
  SELECT *, MAX(value) OVER (PARTITION BY run_id, topic, partition, process ORDER BY log_offset
                             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS greatest_before
  FROM fresh
), timed AS (
  SELECT *, MIN(done_ns) OVER (PARTITION BY run_id, topic, partition ORDER BY log_offset
                               ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS least_done_behind
  FROM sent
), leaders_logs AS (
  SELECT l.* FROM logs l
  JOIN can_lead c ON l.run_id = c.run_id AND l.topic = c.topic AND l.partition = c.partition AND l.node = c.node
), ends AS (
  SELECT run_id, topic, partition, MIN(log_offset) AS first_offset, MAX(log_offset) AS last_offset
  FROM final_log GROUP BY run_id, topic, partition
), present AS (
  SELECT p.run_id, p.topic, p.partition, p.log_offset FROM (
    SELECT run_id, topic, partition, log_offset FROM final_log
    UNION SELECT run_id, topic, partition, log_offset FROM leaders_logs
  ) p
  JOIN ends e ON p.run_id = e.run_id AND p.topic = e.topic AND p.partition = e.partition
             AND p.log_offset BETWEEN e.first_offset AND e.last_offset
  SEMI JOIN leaders_logs l ON p.run_id = l.run_id AND p.topic = l.topic AND p.partition = l.partition
), steps AS (
  SELECT *, LEAD(log_offset) OVER (PARTITION BY run_id, topic, partition ORDER BY log_offset) AS next_offset FROM present
), answered AS (
  SELECT run_id, topic, partition, log_offset, leader_epoch, LAG(leader_epoch) OVER one AS epoch_before,
         LAG(log_offset) OVER one AS offset_before
  FROM reads WHERE phase IN ('tail', 'final') AND leader_epoch IS NOT NULL
  WINDOW one AS (PARTITION BY run_id, topic, partition, process, poll_index ORDER BY log_offset)
), led_between AS (
  SELECT run_id, topic, partition, made_anew, last_epoch,
         MAX(first_epoch) OVER (PARTITION BY run_id, topic, partition ORDER BY made_anew
                                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS first_epoch
  FROM (SELECT run_id, topic, partition, made_anew, MIN(leader_epoch) AS first_epoch, MAX(leader_epoch) AS last_epoch FROM leaders
        GROUP BY run_id, topic, partition, made_anew) led
), of_nobody AS (
  SELECT r.run_id, r.topic, r.partition, r.log_offset, r.leader_epoch
  FROM reads r
  JOIN led_between b ON r.run_id = b.run_id AND r.topic = b.topic AND r.partition = b.partition
                    AND r.leader_epoch > b.first_epoch AND r.leader_epoch < b.last_epoch
  JOIN topic_times t ON b.run_id = t.run_id AND b.topic = t.topic AND b.partition = t.partition AND b.made_anew = t.made_anew
  LEFT JOIN polls p ON r.run_id = p.run_id AND r.topic = p.topic AND r.partition = p.partition AND r.process = p.process
                   AND r.poll_index = p.poll_index AND t.is_only = 0
  SEMI JOIN kraft_runs k ON r.run_id = k.run_id
  ANTI JOIN leaders l ON r.run_id = l.run_id AND r.topic = l.topic AND r.partition = l.partition
                     AND r.leader_epoch = l.leader_epoch AND l.made_anew <= b.made_anew
  ANTI JOIN damaged_batches d
    ON r.run_id = d.run_id AND r.topic = d.topic AND r.partition = d.partition
   AND r.log_offset >= d.from_offset AND r.log_offset < d.end_offset
  WHERE r.phase IN ('tail', 'final')
    AND (t.is_only = 1 OR (COALESCE(p.complete_ns, p.invoke_ns) >= t.since_ns AND COALESCE(p.complete_ns, p.invoke_ns) < t.until_ns))
), found AS (
  SELECT DISTINCT r.run_id, r.topic, r.partition, 'offset_conflict' AS kind, r.log_offset, r.value,
         CAST(NULL AS INT) AS acks, CAST(NULL AS BIGINT) AS invoke_ns, CAST(NULL AS BIGINT) AS at_ns,
         CAST(NULL AS BIGINT) AS other_offset, CAST(NULL AS INT) AS node, CAST(NULL AS INT) AS leader_epoch
  FROM reads r JOIN final_log f
    ON r.run_id = f.run_id AND r.topic = f.topic AND r.partition = f.partition AND r.log_offset = f.log_offset
  WHERE r.value IS NOT NULL AND (f.value IS NULL OR r.value <> f.value)
  UNION ALL
  SELECT l.run_id, l.topic, l.partition, 'diverged', l.log_offset, l.value, CAST(NULL AS INT), CAST(NULL AS BIGINT),
         CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), l.node, CAST(NULL AS INT)
  FROM leaders_logs l JOIN final_log f
    ON l.run_id = f.run_id AND l.topic = f.topic AND l.partition = f.partition AND l.log_offset = f.log_offset
  WHERE COALESCE(l.value, -1) <> COALESCE(f.value, -1) AND COALESCE(l.is_control, FALSE) = FALSE
  UNION ALL
  SELECT s.run_id, s.topic, s.partition, 'moved', s.log_offset, s.value, s.acks, s.invoke_ns, s.complete_ns,
         CAST(NULL AS BIGINT), CAST(NULL AS INT), CAST(NULL AS INT)
  FROM sends s
  SEMI JOIN final_log f ON s.run_id = f.run_id AND s.topic = f.topic AND s.partition = f.partition AND s.value = f.value
  ANTI JOIN final_log g ON s.run_id = g.run_id AND s.topic = g.topic AND s.partition = g.partition
                       AND s.value = g.value AND s.log_offset = g.log_offset
  WHERE s.outcome = 'ok' AND s.log_offset IS NOT NULL
  UNION ALL
  SELECT run_id, topic, partition,
         CASE WHEN worker_class LIKE 'idempotent%' OR worker_class LIKE 'transactional%' THEN 'reordered'
              ELSE 'overtaken' END,
         log_offset, value, CAST(NULL AS INT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT),
         CAST(NULL AS INT), CAST(NULL AS INT)
  FROM ordered WHERE value < greatest_before
  UNION ALL
  SELECT run_id, topic, partition, 'real_time_order', log_offset, value, acks, invoke_ns, CAST(NULL AS BIGINT),
         CAST(NULL AS BIGINT), CAST(NULL AS INT), CAST(NULL AS INT)
  FROM timed WHERE invoke_ns > least_done_behind
  UNION ALL
  SELECT run_id, topic, partition, 'gap', log_offset + 1, CAST(NULL AS BIGINT), CAST(NULL AS INT),
         CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), next_offset, CAST(NULL AS INT), CAST(NULL AS INT)
  FROM steps WHERE next_offset > log_offset + 1
  UNION ALL
  SELECT DISTINCT a.run_id, a.topic, a.partition, 'read_epoch_back', a.log_offset, CAST(NULL AS BIGINT), CAST(NULL AS INT),
         CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), a.offset_before, CAST(NULL AS INT), a.leader_epoch
  FROM answered a ANTI JOIN damaged_batches d
    ON a.run_id = d.run_id AND a.topic = d.topic AND a.partition = d.partition
   AND ((a.log_offset >= d.from_offset AND a.log_offset < d.end_offset)
     OR (a.offset_before >= d.from_offset AND a.offset_before < d.end_offset))
  WHERE a.leader_epoch < a.epoch_before
  UNION ALL
  SELECT DISTINCT run_id, topic, partition, 'read_epoch_of_nobody', log_offset, CAST(NULL AS BIGINT), CAST(NULL AS INT),
         CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS INT), leader_epoch
  FROM of_nobody
)
SELECT * FROM found
"""))  # fmt: skip


PROPERTY: Final = Property(
    tables=("sends", "polls", "reads", "logs", "watermarks"),
    kinds=KINDS,
    kernel=kernel,
    sql=SQL,
)
