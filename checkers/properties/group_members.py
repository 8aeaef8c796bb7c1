"""A group's work: nothing before a committed offset was left out, and no commit counts from a generation that has passed.

A commit names its member's generation. Once a commit of a later generation has been answered, that generation is stored, and one of
an earlier generation that is made afterwards has to be refused: its partitions belong to others now. What is committed says
that all records before were received by some member. Commits in transactions are `exactly_once`'s business as to the second.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from tribunal.checkers.api import (
    FAIL,
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
from tribunal.checkers.properties.group_offsets import COMMIT
from tribunal.checkers.properties.lost_writes import READERS, acknowledged_sends, final_reads

SENTENCES: Final = {
    "stale_generation": "a commit of a generation that had passed was accepted",
    "unconsumed": "an acknowledged record lies before a committed offset, and no member received it",
}
KINDS: Final = {
    # A group's generation lies beside its positions: who lost the one counts the other anew.
    "stale_generation": Kind(Meaning.VIOLATION, SENTENCES["stale_generation"], excused_by=(Excuse.POSITIONS_LOST,)),
    "unconsumed": Kind(Meaning.VIOLATION, SENTENCES["unconsumed"], excused_by=(Excuse.TAIL_LOST,)),
}


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Look at every group's commits.

    returns:  stale_generation: log_offset is what was committed, invoke_ns and at_ns when; unconsumed: log_offset, value.
    source:   SPEC 4.3.4, M84; I19 (docs/invariants.md).
    """
    commits = rows.columns("commits")
    if commits["kind"].size == 0:
        return Found(nothing())
    fine = (commits["kind"] == COMMIT) & (commits["outcome"] == OK)
    # Also one whose commits were never answered may have moved the group's offset.
    perhaps = (commits["kind"] == COMMIT) & (commits["outcome"] != FAIL)
    transactional = is_among(commits["process"], distinct(context.of_run("txns")["process"].to_numpy()))
    found = []
    for group in np.unique(commits["group"]).tolist():
        own = np.flatnonzero(fine & (commits["group"] == group))
        found.append(_stale(commits, own))
        members = distinct(commits["process"][perhaps & (commits["group"] == group)])
        found.append(_unconsumed(rows, context, own[~transactional[own]], members))
    return Found(pa.concat_tables(found), {"commits of groups": int(fine.sum())})


def _stale(commits: Columns, own: Array) -> pa.Table:
    own = own[commits["generation"][own] != UNKNOWN]
    if own.size == 0:
        return nothing()
    generation, done = commits["generation"][own], commits["complete_ns"][own]
    order = np.argsort(done, kind="stable")
    newest = np.append(UNKNOWN, np.maximum.accumulate(generation[order]))
    known = newest[np.searchsorted(done[order], commits["invoke_ns"][own], "left")]
    stale = own[known > generation]
    return anomalies(
        "stale_generation",
        log_offset=commits["committed_offset"][stale],
        invoke_ns=commits["invoke_ns"][stale],
        at_ns=commits["complete_ns"][stale],
        process=commits["process"][stale],
    )


def _unconsumed(rows: PartitionRows, context: Context, own: Array, members: Array) -> pa.Table:
    commits, sends, reads = rows.columns("commits"), rows.columns("sends"), rows.columns("reads")
    if own.size == 0:
        return nothing()
    end_offset = int(commits["committed_offset"][own].max())
    final = rows.derived(final_reads)
    send = rows.derived(sends_of_reads)[final]
    final, send = final[send != UNKNOWN], send[send != UNKNOWN]
    final = final[acknowledged_sends(sends, context)[send]]
    received = distinct(reads["value"][(reads["phase"] == TAIL) & is_among(reads["process"], members)])
    final = final[(reads["log_offset"][final] < end_offset) & ~is_among(reads["value"][final], received)]
    pairs = np.unique(np.stack([reads["log_offset"][final], reads["value"][final]], axis=1), axis=0)
    return anomalies("unconsumed", log_offset=pairs[:, 0], value=pairs[:, 1])


def detail(anomaly: Anomaly) -> str:
    """Say who committed, or what was left out."""
    if anomaly.kind == "unconsumed":
        return f"nobody received the record at {anomaly.log_offset}"
    return f"process {anomaly.process} committed {anomaly.log_offset}"


SQL: Final = "".join((READERS, """, acknowledged AS (
  SELECT DISTINCT r.run_id, r.topic, r.partition, r.log_offset, r.value FROM reads r
  JOIN readers d ON r.run_id = d.run_id AND r.topic = d.topic AND r.partition = d.partition AND r.process = d.process
  JOIN sends s ON r.run_id = s.run_id AND r.topic = s.topic AND r.partition = s.partition AND r.value = s.value
  LEFT JOIN committed c ON s.run_id = c.run_id AND s.value = c.value
  WHERE r.phase = 'final' AND s.outcome = 'ok' AND s.acks <> 0 AND (s.txn_id IS NULL OR c.value IS NOT NULL)
), fine AS (
  SELECT * FROM commits WHERE kind = 'commit' AND outcome = 'ok'
), outside AS (
  SELECT f.* FROM fine f ANTI JOIN txn_spans t ON f.run_id = t.run_id AND f.process = t.process
), ends AS (
  SELECT run_id, topic, partition, group_id, MAX(committed_offset) AS end_offset FROM outside
  GROUP BY run_id, topic, partition, group_id
), received AS (
  SELECT DISTINCT o.run_id, o.topic, o.partition, o.group_id, r.value
  FROM (SELECT * FROM commits WHERE kind = 'commit' AND outcome <> 'fail') o
  JOIN reads r ON o.run_id = r.run_id AND o.topic = r.topic AND o.partition = r.partition AND o.process = r.process
   AND r.phase = 'tail'
), found AS (
  SELECT a.run_id, a.topic, a.partition, 'stale_generation' AS kind, a.committed_offset AS log_offset,
         CAST(NULL AS BIGINT) AS value, a.invoke_ns, a.complete_ns AS at_ns, a.process
  FROM fine a WHERE EXISTS (
    SELECT 1 FROM fine b WHERE a.run_id = b.run_id AND a.topic = b.topic AND a.partition = b.partition
     AND a.group_id = b.group_id AND b.generation > a.generation AND b.complete_ns < a.invoke_ns)
  UNION ALL
  SELECT k.run_id, k.topic, k.partition, 'unconsumed', k.log_offset, k.value, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT),
         CAST(NULL AS INT)
  FROM acknowledged k
  JOIN ends e ON k.run_id = e.run_id AND k.topic = e.topic AND k.partition = e.partition AND k.log_offset < e.end_offset
  ANTI JOIN received r ON k.run_id = r.run_id AND k.topic = r.topic AND k.partition = r.partition
   AND e.group_id = r.group_id AND k.value = r.value
)
SELECT f.run_id, f.topic, f.partition, f.kind, f.log_offset, f.value, CAST(NULL AS INT) AS acks, f.invoke_ns, f.at_ns, CAST(NULL AS INT) AS leader_epoch,
       CAST(NULL AS BIGINT) AS other_offset, f.process
FROM found f
"""))  # fmt: skip


PROPERTY: Final = Property(
    tables=("sends", "polls", "reads", "commits"),
    kinds=KINDS,
    kernel=kernel,
    detail=detail,
    sql=SQL,
)
