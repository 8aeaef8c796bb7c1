"""Assigned consumers go through a log record by record: they skip none, and receive none again, unless they are told that they are out of range.

What a consumer receives proves what stood before it: if a record is in the final log at the same offset and of the same leader epoch,
the log that it was read from held all that stands before it there (I14). So a record between two that a consumer received one
after the other, or between where it began and what it received first, was skipped; no change of leaders explains that. Members of
groups, and processes with transactions, have rules of their own. A read_committed consumer need not receive what was not surely committed.

Nobody, in a group or not, receives what lies at or beyond the high watermark, or the last stable offset. The answer that it came with shows both,
but Apache Kafka's brokers read them before the records, and they may move meanwhile: that they had not is proven by what the leader of that
epoch showed to somebody who asked later, for within a leader epoch neither goes back.

Nor does anybody receive what is sent later: sends and polls have the times of one clock, the harness's.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.api import (
    OK,
    TAIL,
    UNKNOWN,
    Anomaly,
    Array,
    Columns,
    Context,
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
from tribunal.checkers.judge.timeline import OBSERVATION_LAG_NS
from tribunal.checkers.properties.lost_writes import READERS, final_reads, uncommitted_sends
from tribunal.checkers.properties.watermarks import LIST_OFFSETS, NODE, SAID_BY_LEADERS, is_said_by_leader
from tribunal.results.recording import WORDS

READ_COMMITTED: Final = WORDS["polls", "isolation"].index("read_committed")
OUT_OF_RANGE: Final = ("OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET", "_LOG_TRUNCATION")
CALL_BITS: Final = 40
KINDS: Final = {
    "skipped": Kind(Meaning.VIOLATION, "a consumer passed over a record that it never received"),
    "rewound": Kind(Meaning.VIOLATION, "a consumer received a record again without having been out of range"),
    "unexposed": Kind(
        Meaning.VIOLATION, "a consumer received a record beyond the high watermark (docs/invariants.md#i4)"
    ),
    "unstable": Kind(
        Meaning.VIOLATION,
        "a read_committed consumer received a record beyond the last stable offset (docs/invariants.md#i18)",
    ),
    "read_before_sent": Kind(Meaning.VIOLATION, "a consumer had received a record before anybody began to send it"),
}


class Passed:
    """What assigned consumers went through: rows of `reads` in order, and where each should have followed.

    rows:      of `reads`, of consumers that were assigned their partitions, process by process.
    expected:  the offset behind the record before, or where the consumer began.
    follows:   whether there is a record before, of the same consumer, with no answer in between that it was out of range.
    proven:    it stands in the final log at this offset, of the same leader epoch.
    """

    def __init__(self, rows: PartitionRows, context: Context) -> None:
        polls, reads = rows.columns("polls"), rows.columns("reads")
        who = assigned(rows, context)
        own = np.flatnonzero((reads["phase"] == TAIL) & is_among(reads["process"], who))
        calls = call_keys(reads["process"][own], reads["poll_index"][own])
        order = np.lexsort((reads["log_offset"][own], calls))
        self.rows, calls = own[order], calls[order]
        asked = np.flatnonzero((polls["phase"] == TAIL) & is_among(polls["process"], who))
        asked = asked[np.argsort(call_keys(polls["process"][asked], polls["poll_index"][asked]), kind="stable")]
        keys = call_keys(polls["process"][asked], polls["poll_index"][asked])
        resets = keys[is_among(polls["error"][asked], error_codes(rows, OUT_OF_RANGE))]
        good = (polls["outcome"][asked] == OK) & (polls["position"][asked] != UNKNOWN)
        offsets, processes = reads["log_offset"][self.rows], reads["process"][self.rows]
        turn = np.searchsorted(resets, calls)
        self.follows: Array = np.zeros(self.rows.size, bool)
        self.follows[1:] = (processes[1:] == processes[:-1]) & (turn[1:] == turn[:-1])
        self.expected: Array = np.append(0, offsets[:-1] + 1)[: offsets.size]
        begun, began = keys[good], polls["position"][asked][good]
        for place in np.flatnonzero(~self.follows).tolist():
            since = max(int(resets[turn[place] - 1]) if turn[place] else 0, int(processes[place]) << CALL_BITS)
            first = int(np.searchsorted(begun, since))
            known = first < begun.size and int(begun[first]) <= int(calls[place])
            self.expected[place] = began[first] if known else offsets[place]
        self.asked_ns = _of_calls(polls["invoke_ns"][asked], keys, calls)
        self.proven = _is_as_in_the_end(rows, self.rows, context)
        committed = polls["process"][asked][polls["isolation"][asked] == READ_COMMITTED]
        self.is_committed = is_among(processes, distinct(committed))


def assigned(rows: PartitionRows, context: Context) -> Array:
    """Return the tailing consumers that are no member of a group and have no transactions."""
    polls = rows.columns("polls")
    tail = distinct(polls["process"][polls["phase"] == TAIL])
    tables = (context.of_run("commits"), context.transactions()) if tail.size else ()
    others = [pc.unique(rows["process"]).to_numpy() for rows in tables]
    return tail[~is_among(tail, distinct(np.concatenate([*others, np.zeros(0, np.int64)])))]


def call_keys(processes: Array, poll_indices: Array) -> Array:
    """Return polls as numbers: those of each process ascend."""
    return (processes.astype(np.int64) << CALL_BITS) + poll_indices


def error_codes(rows: PartitionRows, errors: tuple[str, ...]) -> Array:
    """Return the codes of some errors of polls."""
    words = rows.words("polls", "error")
    return np.array([code for code, word in enumerate(words) if word in errors], np.int64)


def _of_calls(values: Array, keys: Array, calls: Array) -> Array:
    if keys.size == 0:
        return np.full(calls.size, UNKNOWN, np.int64)
    place = np.minimum(np.searchsorted(keys, calls), keys.size - 1)
    return np.where(keys[place] == calls, values[place], UNKNOWN)


def polls_of(polls: Columns, answered: Array, reads: Columns, own: Array) -> Array:
    """Return, of some rows of `reads`, the rows of `polls` that they came with, among those given; UNKNOWN where it is none of them."""
    keys = call_keys(polls["process"][answered], polls["poll_index"][answered])
    order = np.argsort(keys, kind="stable")
    return _of_calls(answered[order], keys[order], call_keys(reads["process"][own], reads["poll_index"][own]))


def _is_as_in_the_end(rows: PartitionRows, chosen: Array, context: Context) -> Array:
    reads, final = rows.columns("reads"), rows.derived(final_reads)
    if final.size == 0 or chosen.size == 0:
        return np.zeros(chosen.size, bool)
    final = final[np.argsort(reads["log_offset"][final], kind="stable")]
    ends = reads["log_offset"][final]
    there = final[np.minimum(np.searchsorted(ends, reads["log_offset"][chosen]), final.size - 1)]
    same = (reads["log_offset"][there] == reads["log_offset"][chosen]) & (
        reads["value"][there] == reads["value"][chosen]
    )
    epochs = reads["leader_epoch"]
    if len(context.leaders.led) > 1:
        same &= (epochs[there] == epochs[chosen]) & (epochs[chosen] != UNKNOWN)
    return np.asarray(same)


def skipped_records(rows: PartitionRows, context: Context, passed: Passed) -> tuple[Array, Array]:
    """Return places of `passed` before which something was skipped, and the first row of `reads` that was, of the final log."""
    reads = rows.columns("reads")
    final = rows.derived(final_reads)
    send = rows.derived(sends_of_reads)[final]
    sure = np.append(~uncommitted_sends(rows.columns("sends"), context), False)[send] & (send != UNKNOWN)
    places, firsts = [], []
    for is_committed in (False, True):
        own = np.flatnonzero(passed.proven & (passed.is_committed == is_committed))
        chosen = final[sure] if is_committed else final
        if own.size == 0 or chosen.size == 0:
            continue
        chosen = chosen[np.argsort(reads["log_offset"][chosen], kind="stable")]
        offsets = reads["log_offset"][chosen]
        first = np.searchsorted(offsets, passed.expected[own])
        skips = first < np.searchsorted(offsets, reads["log_offset"][passed.rows[own]])
        places.append(own[skips])
        firsts.append(chosen[first[skips]])
    none = np.zeros(0, np.int64)
    return np.concatenate([*places, none]), np.concatenate([*firsts, none])


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Look at what each assigned consumer received, one after the other.

    returns:  skipped: one row per gap, of the first record in it; rewound: the record received again; the others: each record of
              each consumer; at_ns when the consumer asked.
    source:   SPEC 3.9; jepsen.tests.kafka `poll-skip` and `nonmonotonic-poll`; I14 (docs/invariants.md).
    """
    reads = rows.columns("reads")
    if not (reads["phase"] == TAIL).any():
        return Found(nothing())
    passed = Passed(rows, context)
    places, first = skipped_records(rows, context, passed)
    offsets = reads["log_offset"][passed.rows]
    back = np.flatnonzero(passed.follows & (offsets < passed.expected) & passed.proven)
    back = back[passed.proven[back - 1]]
    tables = [
        anomalies(
            kind,
            log_offset=reads["log_offset"][records],
            value=reads["value"][records],
            at_ns=passed.asked_ns[chosen],
            process=reads["process"][passed.rows[chosen]],
        )
        for kind, chosen, records in (("skipped", places, first), ("rewound", back, passed.rows[back]))
    ]
    tables += [*_beyond(rows, context), _too_early(rows)]
    return Found(pa.concat_tables(tables), {"records received by assigned consumers": int(passed.rows.size)})


def _beyond(rows: PartitionRows, context: Context) -> list[pa.Table]:
    """Return what consumers received beyond the ends that the very answer showed, and that had not moved when it had come."""
    polls, reads = rows.columns("polls"), rows.columns("reads")
    own = np.flatnonzero((reads["phase"] == TAIL) & (reads["leader_epoch"] != UNKNOWN))
    answered = np.flatnonzero((polls["phase"] == TAIL) & (polls["leader_epoch"] != UNKNOWN))
    answered = answered[polls["complete_ns"][answered] != UNKNOWN]
    if own.size == 0 or answered.size == 0:
        return []
    poll = polls_of(polls, answered, reads, own)
    known = (poll != UNKNOWN) & (polls["leader_epoch"][poll] == reads["leader_epoch"][own])
    own, poll = own[known], poll[known]
    of_committed = polls["isolation"][poll] == READ_COMMITTED
    tables = []
    for kind, column, judged in (
        ("unexposed", "high_watermark", np.ones(own.size, bool)),
        ("unstable", "last_stable_offset", of_committed),
    ):
        end = polls[column][poll]
        suspects = np.flatnonzero(judged & (end != UNKNOWN) & (reads["log_offset"][own] >= end))
        if suspects.size == 0:
            continue
        done_ns, epochs = polls["complete_ns"][poll[suspects]], reads["leader_epoch"][own[suspects]]
        still = _shown_later(rows, context, column, epochs, done_ns)
        wrong = suspects[(still != UNKNOWN) & (reads["log_offset"][own[suspects]] >= still)]
        record, asked = own[wrong], poll[wrong]
        tables.append(
            anomalies(
                kind,
                log_offset=reads["log_offset"][record],
                value=reads["value"][record],
                at_ns=polls["invoke_ns"][asked],
                process=reads["process"][record],
            )
        )
    return tables


def _too_early(rows: PartitionRows) -> pa.Table:
    """Return what consumers had received when nobody had begun to send it; an answer whose time is unknown says nothing."""
    polls, reads = rows.columns("polls"), rows.columns("reads")
    send = rows.derived(sends_of_reads)
    own = np.flatnonzero((reads["phase"] == TAIL) & (send != UNKNOWN))
    answered = np.flatnonzero((polls["phase"] == TAIL) & (polls["complete_ns"] != UNKNOWN))
    poll = polls_of(polls, answered, reads, own)
    own, poll = own[poll != UNKNOWN], poll[poll != UNKNOWN]
    early = polls["complete_ns"][poll] < rows.columns("sends")["invoke_ns"][send[own]]
    own, poll = own[early], poll[early]
    return anomalies(
        "read_before_sent",
        log_offset=reads["log_offset"][own],
        value=reads["value"][own],
        at_ns=polls["invoke_ns"][poll],
        process=reads["process"][own],
    )


def _shown_later(rows: PartitionRows, context: Context, column: str, epochs: Array, done_ns: Array) -> Array:
    """Return the least end that the leader of each of these epochs showed to anybody who asked from a moment on, UNKNOWN for none.

    A node's own journal has its node's clock.
    """
    seen, leaders = rows.columns("watermarks"), context.leaders
    asked_ns = np.where(seen["source"] == NODE, seen["at_ns"] - OBSERVATION_LAG_NS, seen["asked_ns"])
    known = is_said_by_leader(rows, context) & (seen[column] != UNKNOWN) & (asked_ns != UNKNOWN)
    known &= seen["source"] != LIST_OFFSETS
    found = np.full(epochs.size, UNKNOWN, np.int64)
    topics, topics_done = leaders.topics(seen["at_ns"]), leaders.topics(done_ns)
    for topic, epoch in sorted({*zip(topics_done.tolist(), epochs.tolist(), strict=True)}):
        own = np.flatnonzero(known & (topics == topic) & (seen["leader_epoch"] == epoch))
        own = own[np.argsort(asked_ns[own], kind="stable")]
        least = np.append(np.minimum.accumulate(seen[column][own][::-1])[::-1], UNKNOWN)
        asked = (epochs == epoch) & (topics_done == topic)
        found[asked] = least[np.searchsorted(asked_ns[own], done_ns[asked], side="left")]
    return found


def detail(anomaly: Anomaly) -> str:
    """Name the consumer."""
    what = {"skipped": "never received it", "rewound": "received it again"}.get(anomaly.kind, "received it")
    return f"consumer {anomaly.process} {what}"


CONSUMED: Final = "".join((READERS, """, final_log AS (
  SELECT DISTINCT r.run_id, r.topic, r.partition, r.log_offset, r.value, COALESCE(r.leader_epoch, -1) AS leader_epoch
  FROM reads r
  JOIN readers d ON r.run_id = d.run_id AND r.topic = d.topic AND r.partition = d.partition AND r.process = d.process
  WHERE r.phase = 'final'
), visible AS (
  SELECT f.run_id, f.topic, f.partition, f.log_offset, f.value, 0 AS is_committed FROM final_log f
  UNION
  SELECT f.run_id, f.topic, f.partition, f.log_offset, f.value, 1 FROM final_log f
  JOIN sends s ON f.run_id = s.run_id AND f.topic = s.topic AND f.partition = s.partition AND f.value = s.value
  LEFT JOIN committed c ON s.run_id = c.run_id AND s.value = c.value
  WHERE s.txn_id IS NULL OR c.value IS NOT NULL
), others AS (
  SELECT run_id, process FROM commits UNION SELECT run_id, process FROM txn_spans
), asked AS (
  SELECT p.*, SUM(CASE WHEN p.error IN ('OFFSET_OUT_OF_RANGE', '_AUTO_OFFSET_RESET', '_LOG_TRUNCATION') THEN 1 ELSE 0 END)
                OVER (PARTITION BY p.run_id, p.topic, p.partition, p.process ORDER BY p.poll_index) AS turn
  FROM polls p ANTI JOIN others o ON p.run_id = o.run_id AND p.process = o.process
  WHERE p.phase = 'tail'
), begins AS (
  SELECT run_id, topic, partition, process, turn, position FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY run_id, topic, partition, process, turn ORDER BY poll_index) AS place
    FROM asked WHERE outcome = 'ok' AND position IS NOT NULL
  ) good WHERE place = 1
), isolations AS (
  SELECT run_id, topic, partition, process, MAX(CASE WHEN isolation = 'read_committed' THEN 1 ELSE 0 END) AS is_committed
  FROM asked GROUP BY run_id, topic, partition, process
), epochs AS (
  SELECT run_id, topic, partition, COUNT(*) AS count_of_epochs FROM leaders GROUP BY run_id, topic, partition
), proven AS (
  SELECT DISTINCT r.run_id, r.topic, r.partition, r.process, r.poll_index, r.log_offset
  FROM reads r
  JOIN final_log f ON r.run_id = f.run_id AND r.topic = f.topic AND r.partition = f.partition
                  AND r.log_offset = f.log_offset AND COALESCE(r.value, -1) = COALESCE(f.value, -1)
  LEFT JOIN epochs e ON r.run_id = e.run_id AND r.topic = e.topic AND r.partition = e.partition
  WHERE r.phase = 'tail' AND (COALESCE(e.count_of_epochs, 0) <= 1 OR r.leader_epoch = f.leader_epoch)
), received AS (
  SELECT r.run_id, r.topic, r.partition, r.process, r.poll_index, r.log_offset, r.value, a.turn, a.invoke_ns,
         CASE WHEN p.process IS NULL THEN 0 ELSE 1 END AS is_proven
  FROM reads r
  JOIN asked a ON r.run_id = a.run_id AND r.topic = a.topic AND r.partition = a.partition AND r.process = a.process
              AND r.poll_index = a.poll_index
  LEFT JOIN proven p ON r.run_id = p.run_id AND r.topic = p.topic AND r.partition = p.partition
                    AND r.process = p.process AND r.poll_index = p.poll_index AND r.log_offset = p.log_offset
  WHERE r.phase = 'tail'
), chained AS (
  SELECT *, LAG(log_offset) OVER one AS before_offset, LAG(is_proven) OVER one AS was_proven FROM received
  WINDOW one AS (PARTITION BY run_id, topic, partition, process, turn ORDER BY poll_index, log_offset)
), steps AS (
  SELECT c.*, i.is_committed, COALESCE(c.before_offset + 1, b.position, c.log_offset) AS expected
  FROM chained c
  JOIN isolations i ON c.run_id = i.run_id AND c.topic = i.topic AND c.partition = i.partition AND c.process = i.process
  LEFT JOIN begins b ON c.run_id = b.run_id AND c.topic = b.topic AND c.partition = b.partition
                    AND c.process = b.process AND c.turn = b.turn
), gaps AS (
  SELECT s.run_id, s.topic, s.partition, s.process, s.poll_index, s.log_offset AS next_offset, s.invoke_ns,
         v.log_offset, v.value,
         ROW_NUMBER() OVER (PARTITION BY s.run_id, s.topic, s.partition, s.process, s.poll_index, s.log_offset
                            ORDER BY v.log_offset) AS place
  FROM steps s
  JOIN visible v ON s.run_id = v.run_id AND s.topic = v.topic AND s.partition = v.partition
                AND s.is_committed = v.is_committed AND v.log_offset >= s.expected AND v.log_offset < s.log_offset
  WHERE s.is_proven = 1
)
"""))  # fmt: skip
SQL: Final = "".join((CONSUMED, ", ", SAID_BY_LEADERS, """, ends AS (
  SELECT *, 'unexposed' AS kind, high_watermark AS end_offset, 1 AS is_judged FROM polls
  UNION ALL
  SELECT *, 'unstable', last_stable_offset, CASE WHEN isolation = 'read_committed' THEN 1 ELSE 0 END FROM polls
), beyond AS (
  SELECT r.run_id, r.topic, r.partition, e.kind, r.log_offset, r.value, r.leader_epoch, r.process, e.invoke_ns, e.complete_ns, t.made_anew
  FROM reads r
  JOIN ends e ON r.run_id = e.run_id AND r.topic = e.topic AND r.partition = e.partition AND r.process = e.process
             AND r.poll_index = e.poll_index AND r.leader_epoch = e.leader_epoch
  JOIN topic_times t ON r.run_id = t.run_id AND r.topic = t.topic AND r.partition = t.partition
                    AND e.complete_ns >= t.since_ns AND e.complete_ns < t.until_ns
  WHERE r.phase = 'tail' AND e.phase = 'tail' AND e.is_judged = 1 AND e.complete_ns IS NOT NULL AND r.log_offset >= e.end_offset
), said AS (
  SELECT *, CASE WHEN source = 'node' THEN at_ns - 500000000 ELSE asked_ns END AS since_ns FROM led WHERE source IN ('node', 'fetch')
), shown AS (
  SELECT run_id, topic, partition, made_anew, leader_epoch, 'unexposed' AS kind, high_watermark AS end_offset, since_ns FROM said
  UNION ALL
  SELECT run_id, topic, partition, made_anew, leader_epoch, 'unstable', last_stable_offset, since_ns FROM said
), found AS (
  SELECT run_id, topic, partition, 'skipped' AS kind, log_offset, value, invoke_ns AS at_ns, process FROM gaps WHERE place = 1
  UNION ALL
  SELECT run_id, topic, partition, 'rewound', log_offset, value, invoke_ns, process FROM steps
  WHERE before_offset IS NOT NULL AND log_offset <= before_offset AND is_proven = 1 AND was_proven = 1
  UNION ALL
  SELECT b.run_id, b.topic, b.partition, b.kind, b.log_offset, b.value, b.invoke_ns, b.process
  FROM beyond b SEMI JOIN shown s
    ON b.run_id = s.run_id AND b.topic = s.topic AND b.partition = s.partition AND b.leader_epoch = s.leader_epoch
   AND b.made_anew = s.made_anew AND b.kind = s.kind AND s.end_offset <= b.log_offset AND s.since_ns >= b.complete_ns
  UNION ALL
  SELECT r.run_id, r.topic, r.partition, 'read_before_sent', r.log_offset, r.value, p.invoke_ns, r.process
  FROM reads r
  JOIN polls p ON r.run_id = p.run_id AND r.topic = p.topic AND r.partition = p.partition AND r.process = p.process
              AND r.poll_index = p.poll_index
  JOIN sends s ON r.run_id = s.run_id AND r.topic = s.topic AND r.partition = s.partition AND r.value = s.value
  WHERE r.phase = 'tail' AND p.phase = 'tail' AND p.complete_ns < s.invoke_ns
)
SELECT *, CAST(NULL AS INT) AS acks, CAST(NULL AS BIGINT) AS invoke_ns, CAST(NULL AS INT) AS leader_epoch,
       CAST(NULL AS BIGINT) AS other_offset
FROM found
"""))  # fmt: skip


PROPERTY: Final = Property(
    tables=("sends", "polls", "reads", "watermarks"),
    kinds=KINDS,
    kernel=kernel,
    detail=detail,
    sql=SQL,
)
