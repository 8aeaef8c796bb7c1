"""Consume, transform, produce: every record of the input takes part in exactly one committed transaction of its group.

A transaction belongs to a group if its process commits the group's offset in this partition while the transaction is open (table
`commits`). What it polled here is its input. Two committed transactions of one group with the same input processed it twice;
a committed record of the input that no transaction of the group may have was passed over if it lies between others that were processed, or
before them at or behind the first position that a member of the group asked from.
Transactions of unknown outcome are no evidence of an anomaly, and excuse what they polled.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from tribunal.checkers.api import (
    OK,
    TAIL,
    UNKNOWN,
    Anomaly,
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
from tribunal.checkers.judge.steps import ABORTED, COMMITTED, POLL
from tribunal.checkers.properties.group_offsets import COMMIT
from tribunal.checkers.properties.lost_writes import READERS, final_reads, uncommitted_sends

KINDS: Final = {
    "processed_twice": Kind(
        Meaning.VIOLATION,
        "two committed transactions of one group consumed the same record",
        excused_by=(Excuse.POSITIONS_LOST,),
    ),
    "passed_over": Kind(
        Meaning.VIOLATION,
        "no transaction of the group consumed a record, yet later ones were",
        excused_by=(Excuse.TAIL_LOST,),
    ),
}


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Compare the inputs of a group's transactions with the input partition.

    returns:  one row per record and group: log_offset, value; at_ns: begin of the second transaction.
    source:   KIP-98, "Guarantees"; KIP-447.
    """
    commits = rows.columns("commits")
    if commits["kind"].size == 0:
        return Found(nothing())
    steps = context.steps()
    polls = np.flatnonzero((steps["kind"] == POLL) & (steps["log_offset"] != UNKNOWN))
    found, judged = [], 0
    for group in np.unique(commits["group"]).tolist():
        own = polls[is_among(steps["txn"][polls], _transactions(steps, commits, group))]
        committed = own[steps["outcome"][own] == COMMITTED]
        judged += committed.size
        found.append(_twice(steps, committed))
        began = _began(rows, distinct(commits["process"][(commits["group"] == group) & (commits["kind"] == COMMIT)]))
        found.append(_passed_over(rows, context, steps, own, committed, began))
    return Found(pa.concat_tables(found) if found else nothing(), {"records consumed exactly once": judged})


def _transactions(steps: Columns, commits: Columns, group: int) -> Array:
    """Return the transactions in which the group's offset was committed, ascending."""
    own = np.flatnonzero((commits["group"] == group) & (commits["kind"] == COMMIT))
    txns, rows = np.unique(steps["txn"], return_index=True)
    if own.size == 0 or txns.size == 0:
        return np.zeros(0, np.int64)
    # Process by process, in order of time: two lookups per transaction, however many commits there are.
    processes, code = np.unique(commits["process"][own], return_inverse=True)
    times = commits["invoke_ns"][own]
    first_ns, span = int(times.min()), int(times.max() - times.min()) + 2
    committed = np.sort(code * span + (times - first_ns))
    place = np.minimum(np.searchsorted(processes, steps["process"][rows]), processes.size - 1)
    begin, end = steps["begin_ns"][rows], steps["end_ns"][rows]
    last = np.where(end == UNKNOWN, span - 1, np.clip(end - first_ns, -1, span - 1))
    since = np.searchsorted(committed, place * span + np.clip(begin - first_ns, 0, span - 1), "left")
    until = np.searchsorted(committed, place * span + last, "right")
    return np.asarray(txns[(until > since) & (processes[place] == steps["process"][rows])])


def _twice(steps: Columns, committed: Array) -> pa.Table:
    pairs = np.unique(np.stack([steps["log_offset"][committed], steps["txn"][committed]], axis=1), axis=0)
    offsets, counts = np.unique(pairs[:, 0], return_counts=True)
    offsets = offsets[counts > 1]
    rows = [committed[steps["log_offset"][committed] == offset] for offset in offsets.tolist()]
    return anomalies(
        "processed_twice",
        log_offset=offsets,
        value=[int(steps["value"][own].max()) for own in rows],
        at_ns=[int(steps["begin_ns"][own].max()) for own in rows],
    )


def _began(rows: PartitionRows, members: Array) -> int | None:
    """Return the least position from which a member asked; None: nobody says it."""
    polls = rows.columns("polls")
    own = (polls["phase"] == TAIL) & (polls["outcome"] == OK) & (polls["position"] != UNKNOWN)
    asked = polls["position"][own & is_among(polls["process"], members)]
    return int(asked.min()) if asked.size else None


def _passed_over(
    rows: PartitionRows, context: Context, steps: Columns, own: Array, committed: Array, began: int | None
) -> pa.Table:
    if committed.size == 0:
        return nothing()
    reads, final = rows.columns("reads"), rows.derived(final_reads)
    first, last = int(steps["log_offset"][committed].min()), int(steps["log_offset"][committed].max())
    first = first if began is None else min(first, began)
    offsets = reads["log_offset"][final]
    final = final[(offsets >= first) & (offsets < last)]
    send = rows.derived(sends_of_reads)[final]
    visible = ~uncommitted_sends(rows.columns("sends"), context)
    known = send != UNKNOWN
    final, send = final[known], send[known]
    final = final[visible[send]]
    perhaps = distinct(steps["log_offset"][own[steps["outcome"][own] != ABORTED]])
    missed = final[~is_among(reads["log_offset"][final], perhaps)]
    pairs = np.unique(np.stack([reads["log_offset"][missed], reads["value"][missed]], axis=1), axis=0)
    return anomalies("passed_over", log_offset=pairs[:, 0], value=pairs[:, 1])


def detail(anomaly: Anomaly) -> str:
    """Name the record."""
    return f"the record at {anomaly.log_offset} of the input"


SQL: Final = "".join((READERS, """, visible AS (
  SELECT DISTINCT r.run_id, r.topic, r.partition, r.log_offset, r.value FROM reads r
  JOIN readers d ON r.run_id = d.run_id AND r.topic = d.topic AND r.partition = d.partition AND r.process = d.process
  JOIN sends s ON r.run_id = s.run_id AND r.topic = s.topic AND r.partition = s.partition AND r.value = s.value
  LEFT JOIN committed c ON s.run_id = c.run_id AND s.value = c.value
  WHERE r.phase = 'final' AND (s.txn_id IS NULL OR c.value IS NOT NULL)
), inputs AS (
  SELECT DISTINCT s.run_id, s.topic, s.partition, c.group_id, s.txn, s.outcome, s.begin_ns, s.log_offset, s.value
  FROM txn_steps s JOIN commits c
    ON s.run_id = c.run_id AND s.topic = c.topic AND s.partition = c.partition AND s.process = c.process
   AND c.kind = 'commit' AND c.invoke_ns >= s.begin_ns AND (s.end_ns IS NULL OR c.invoke_ns <= s.end_ns)
  WHERE s.kind = 'poll' AND s.log_offset IS NOT NULL
), ends AS (
  SELECT run_id, topic, partition, group_id, MIN(log_offset) AS first_offset, MAX(log_offset) AS last_offset
  FROM inputs WHERE outcome = 'committed' GROUP BY run_id, topic, partition, group_id
), begins AS (
  SELECT p.run_id, p.topic, p.partition, c.group_id, MIN(p.position) AS position FROM polls p
  JOIN (SELECT DISTINCT run_id, topic, partition, group_id, process FROM commits WHERE kind = 'commit') c
    ON p.run_id = c.run_id AND p.topic = c.topic AND p.partition = c.partition AND p.process = c.process
  WHERE p.phase = 'tail' AND p.outcome = 'ok' AND p.position IS NOT NULL
  GROUP BY p.run_id, p.topic, p.partition, c.group_id
), found AS (
  SELECT run_id, topic, partition, 'processed_twice' AS kind, log_offset, MAX(value) AS value, MAX(begin_ns) AS at_ns
  FROM inputs WHERE outcome = 'committed' GROUP BY run_id, topic, partition, group_id, log_offset
  HAVING COUNT(DISTINCT txn) > 1
  UNION ALL
  SELECT v.run_id, v.topic, v.partition, 'passed_over', v.log_offset, v.value, CAST(NULL AS BIGINT)
  FROM visible v JOIN ends e
    ON v.run_id = e.run_id AND v.topic = e.topic AND v.partition = e.partition AND v.log_offset < e.last_offset
  LEFT JOIN begins b
    ON e.run_id = b.run_id AND e.topic = b.topic AND e.partition = b.partition AND e.group_id = b.group_id
  ANTI JOIN (SELECT * FROM inputs WHERE outcome <> 'aborted') i
    ON v.run_id = i.run_id AND v.topic = i.topic AND v.partition = i.partition AND e.group_id = i.group_id
   AND v.log_offset = i.log_offset
  WHERE v.log_offset >= LEAST(e.first_offset, COALESCE(b.position, e.first_offset))
)
SELECT *, CAST(NULL AS INT) AS acks, CAST(NULL AS BIGINT) AS invoke_ns, CAST(NULL AS INT) AS leader_epoch,
       CAST(NULL AS BIGINT) AS other_offset FROM found
"""))  # fmt: skip


PROPERTY: Final = Property(
    tables=("sends", "polls", "reads", "commits"),
    kinds=KINDS,
    kernel=kernel,
    detail=detail,
    sql=SQL,
)
