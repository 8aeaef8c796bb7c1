"""No group's position lies beyond the end of its partition's log: what nobody was ever shown to be there no member can have read.

Brokers take any offset that a member commits, so a position beyond the end says that somebody had been shown a wrong one; whoever begins there skips what is
written until then. A log may have been longer than it is in the end. So the end is the furthest that anything recorded shows, at any time: acknowledgements,
what anybody received, logs, watermarks. Where neither complete final reads nor the logs of all that can lead say how far the log goes, nothing is concluded.
No loss makes up what nobody was shown: only who set the position to this very offset did.
"""

from typing import Final

import numpy as np

from tribunal.checkers.api import (
    FINAL,
    OK,
    Anomaly,
    Context,
    Excuse,
    Found,
    Kind,
    Meaning,
    PartitionRows,
    Property,
    anomalies,
    nothing,
)
from tribunal.checkers.judge.steps import ABORTED
from tribunal.checkers.properties.group_offsets import answered, effective
from tribunal.checkers.properties.lost_writes import READERS
from tribunal.checkers.properties.shown_end import logged_end, read_end

BEYOND: Final = "offset_beyond_end"
KINDS: Final = {
    BEYOND: Kind(
        Meaning.VIOLATION, "a group committed a position beyond all that was ever there", (Excuse.POSITIONS_LOST,)
    ),
}
RECORDS: Final = ("sends", "reads", "logs")
SHOWN: Final = {
    "watermarks": ("high_watermark", "last_stable_offset", "log_end_offset", "log_start_offset"),
    "polls": ("high_watermark", "last_stable_offset", "log_start_offset"),
}


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Compare every acknowledged commit with the furthest end that anything shows.

    returns:  one row per commit: log_offset is the position, other_offset that end, at_ns when it was acknowledged.
    source:   SPEC 4.3.4; I19 (docs/invariants.md).
    """
    commits = rows.columns("commits")
    if commits["kind"].size == 0:
        return Found(nothing())
    ends = [end for end in (read_end(rows), logged_end(rows, context)) if end is not None]
    if not ends:
        return Found(nothing())
    end = furthest(rows, context)
    kept = answered(commits) & (effective(commits, context)[1] != ABORTED)
    beyond = np.flatnonzero(kept & (commits["committed_offset"] > end))
    table = anomalies(
        BEYOND,
        log_offset=commits["committed_offset"][beyond],
        other_offset=np.full(beyond.size, end, np.int64),
        invoke_ns=commits["invoke_ns"][beyond],
        at_ns=commits["complete_ns"][beyond],
        process=commits["process"][beyond],
    )
    return Found(table, {"positions compared with the end of the log": int(kept.sum())})


def furthest(rows: PartitionRows, context: Context) -> int:
    """Return the furthest end of the log that anything recorded shows, at any time."""
    ends = [int(rows.columns(table)["log_offset"].max(initial=-1)) + 1 for table in RECORDS]
    ends += [int(rows.columns(table)[name].max(initial=0)) for table, names in SHOWN.items() for name in names]
    polls = rows.columns("polls")
    # Where a tailing consumer asks from may come from the very position in question.
    final = (polls["phase"] == FINAL) & (polls["outcome"] == OK)
    return max(*ends, int(polls["position"][final].max(initial=0)), *context.dumped.values(), 0)


def detail(anomaly: Anomaly) -> str:
    """Say what was committed and where the log ended."""
    return f"process {anomaly.process} committed {anomaly.log_offset}; nothing shows a log that went beyond {anomaly.other_offset}"


SQL: Final = "".join((READERS, """, logged AS (
  SELECT c.run_id, c.topic, c.partition FROM can_lead c
  LEFT JOIN (
    SELECT run_id, topic, partition, node FROM logs
    UNION ALL
    SELECT run_id, topic, partition, node FROM dumped
  ) l ON l.run_id = c.run_id AND l.topic = c.topic AND l.partition = c.partition AND l.node = c.node
  GROUP BY c.run_id, c.topic, c.partition HAVING COUNT(DISTINCT c.node) = COUNT(DISTINCT l.node)
), known AS (
  SELECT DISTINCT run_id, topic, partition FROM (
    SELECT run_id, topic, partition FROM readers
    UNION ALL
    SELECT run_id, topic, partition FROM logged
  ) places_read
), shown AS (
  SELECT run_id, topic, partition, log_offset + 1 AS log_end FROM sends
  UNION ALL
  SELECT run_id, topic, partition, log_offset + 1 FROM reads
  UNION ALL
  SELECT run_id, topic, partition, log_offset + 1 FROM logs
  UNION ALL
  SELECT run_id, topic, partition, log_start_offset FROM dumped
  UNION ALL
  SELECT run_id, topic, partition, GREATEST(COALESCE(high_watermark, 0), COALESCE(last_stable_offset, 0),
                                            COALESCE(log_end_offset, 0), COALESCE(log_start_offset, 0)) FROM watermarks
  UNION ALL
  SELECT run_id, topic, partition, GREATEST(COALESCE(high_watermark, 0), COALESCE(last_stable_offset, 0),
                                            COALESCE(log_start_offset, 0)) FROM polls
  UNION ALL
  SELECT run_id, topic, partition, position FROM polls WHERE phase = 'final' AND outcome = 'ok'
), ends AS (
  SELECT k.run_id, k.topic, k.partition, COALESCE(MAX(s.log_end), 0) AS log_end
  FROM known k LEFT JOIN shown s ON k.run_id = s.run_id AND k.topic = s.topic AND k.partition = s.partition
  GROUP BY k.run_id, k.topic, k.partition
)
SELECT c.run_id, c.topic, c.partition, 'offset_beyond_end' AS kind, c.committed_offset AS log_offset, CAST(NULL AS BIGINT) AS value,
       CAST(NULL AS INT) AS acks, c.invoke_ns, c.complete_ns AS at_ns, CAST(NULL AS INT) AS leader_epoch,
       e.log_end AS other_offset, c.process
FROM commits c
JOIN ends e ON c.run_id = e.run_id AND c.topic = e.topic AND c.partition = e.partition
ANTI JOIN (SELECT * FROM txn_spans WHERE outcome = 'aborted') t
  ON c.run_id = t.run_id AND c.process = t.process AND c.invoke_ns >= t.begin_ns AND (t.end_ns IS NULL OR c.invoke_ns <= t.end_ns)
WHERE c.kind = 'commit' AND c.outcome = 'ok' AND c.committed_offset > e.log_end
"""))  # fmt: skip


PROPERTY: Final = Property(
    tables=("commits", "polls", "reads", "sends", "logs", "watermarks"),
    kinds=KINDS,
    kernel=kernel,
    detail=detail,
    sql=SQL,
)
