"""Records that consumers passed over and none received, and consumers that stopped although there was more.

Looks at tailing consumers. `unseen`: an acknowledged record of the final log lies within what some consumer went through, yet no
consumer received it. `stopped`: a consumer asked at one place to its end, for ten seconds or longer, was told of a high watermark
(last stable offset, if it is read_committed) beyond, and got nothing. A truncation below a consumer's position explains the first,
a partition without a leader the second: these are facts, no verdicts. What nobody can read in the end is `lost_writes`.
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
from tribunal.checkers.properties.lost_writes import acknowledged_sends, final_reads
from tribunal.results.recording import WORDS

LEAST_NS: Final = 10_000_000_000
READ_COMMITTED: Final = WORDS["polls", "isolation"].index("read_committed")
KINDS: Final = {
    "unseen": Kind(Meaning.NOTE, "consumers passed over an acknowledged record that none of them received"),
    "stopped": Kind(Meaning.NOTE, "a consumer got nothing more although there was more to read"),
}


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Compare what tailing consumers went through with what they received.

    returns:  unseen: one row per record; stopped: log_offset is where the consumer stood, other_offset the end it was told of,
              invoke_ns since when, at_ns until when it asked.
    source:   jepsen.tests.kafka `unseen`; SPEC 3.9.
    """
    polls = rows.columns("polls")
    tail = np.flatnonzero((polls["phase"] == TAIL) & (polls["outcome"] == OK) & (polls["position"] != UNKNOWN))
    if tail.size == 0:
        return Found(nothing())
    return Found(pa.concat_tables([_unseen(rows, context, tail), _stopped(rows, tail)]))


def _unseen(rows: PartitionRows, context: Context, tail: Array) -> pa.Table:
    sends, reads = rows.columns("sends"), rows.columns("reads")
    final = rows.derived(final_reads)
    send = rows.derived(sends_of_reads)[final]
    known = send != UNKNOWN
    final, send = final[known], send[known]
    final = final[acknowledged_sends(sends, context)[send]]
    offsets, values = reads["log_offset"][final], reads["value"][final]
    received = distinct(reads["value"][reads["phase"] == TAIL])
    open_ = ~is_among(values, received)
    offsets, values = offsets[open_], values[open_]
    passed = np.zeros(offsets.size, bool)
    for first, reached in _stretches(rows, tail):
        passed |= (offsets >= first) & (offsets < reached)
    pairs = np.unique(np.stack([offsets[passed], values[passed]], axis=1), axis=0)
    return anomalies("unseen", log_offset=pairs[:, 0], value=pairs[:, 1])


def _stretches(rows: PartitionRows, tail: Array) -> list[tuple[int, int]]:
    """Return for each tailing consumer the least offset that it asked for and the end of what it reached."""
    polls, reads = rows.columns("polls"), rows.columns("reads")
    stretches = []
    for process in distinct(polls["process"][tail]).tolist():
        positions = polls["position"][tail[polls["process"][tail] == process]]
        own = reads["log_offset"][(reads["process"] == process) & (reads["phase"] == TAIL)]
        stretches.append((int(positions.min()), max(int(positions.max()), int(own.max(initial=-1)) + 1)))
    return stretches


def _stopped(rows: PartitionRows, tail: Array) -> pa.Table:
    polls = rows.columns("polls")
    offsets = np.sort(rows.columns("reads")["log_offset"][rows.derived(final_reads)])
    found = []
    for process in distinct(polls["process"][tail]).tolist():
        own = tail[polls["process"][tail] == process]
        own = own[np.argsort(polls["poll_index"][own], kind="stable")]
        position = int(polls["position"][own[-1]])
        idle = (polls["record_count"][own] == 0) & (polls["position"][own] == position)
        idle &= _told_end(polls)[own] > position
        busy = np.flatnonzero(~idle)
        waiting = own[busy[-1] + 1 if busy.size else 0 :]
        if waiting.size == 0:
            continue
        since, until = int(polls["invoke_ns"][waiting].min()), int(polls["invoke_ns"][waiting].max())
        end = int(_told_end(polls)[waiting].max())
        more = np.searchsorted(offsets, end) > np.searchsorted(offsets, position)
        if until - since >= LEAST_NS and more:
            found.append((position, end, since, until, process))
    columns = list(zip(*found, strict=True)) or [()] * 5
    names = ("log_offset", "other_offset", "invoke_ns", "at_ns", "process")
    return anomalies("stopped", **dict(zip(names, columns, strict=True)))


def _told_end(polls: Columns) -> Array:
    stable = (polls["isolation"] == READ_COMMITTED) & (polls["last_stable_offset"] != UNKNOWN)
    return np.where(stable, polls["last_stable_offset"], polls["high_watermark"])


def detail(anomaly: Anomaly) -> str:
    """Say how long a consumer waited."""
    if anomaly.kind == "unseen":
        return f"nobody received the record at {anomaly.log_offset}"
    assert anomaly.invoke_ns is not None
    assert anomaly.at_ns is not None
    waited = (anomaly.at_ns - anomaly.invoke_ns) / 1e9
    return f"stood at {anomaly.log_offset} for {waited:.1f} s, was told of {anomaly.other_offset}"


SQL: Final = """
WITH readers AS (
  SELECT run_id, topic, partition, process FROM polls WHERE phase = 'final'
  GROUP BY run_id, topic, partition, process
  HAVING MAX(CASE WHEN position <= COALESCE(log_start_offset, 0) THEN 1 ELSE 0 END) = 1
     AND MAX(CASE WHEN outcome = 'ok' AND record_count = 0 AND position >= high_watermark THEN 1 ELSE 0 END) = 1
), final_log AS (
  SELECT DISTINCT r.run_id, r.topic, r.partition, r.log_offset, r.value FROM reads r
  JOIN readers d ON r.run_id = d.run_id AND r.topic = d.topic AND r.partition = d.partition AND r.process = d.process
  WHERE r.phase = 'final'
), acknowledged AS (
  SELECT s.run_id, s.topic, s.partition, s.value FROM sends s
  LEFT JOIN committed c ON s.run_id = c.run_id AND s.value = c.value
  WHERE s.outcome = 'ok' AND s.acks <> 0 AND (s.txn_id IS NULL OR c.value IS NOT NULL)
), asked AS (
  SELECT *, CASE WHEN isolation = 'read_committed' AND last_stable_offset IS NOT NULL THEN last_stable_offset
                 ELSE COALESCE(high_watermark, -1) END AS told_end,
         MAX(poll_index) OVER (PARTITION BY run_id, topic, partition, process) AS last_index
  FROM polls WHERE phase = 'tail' AND outcome = 'ok' AND position IS NOT NULL
), received AS (
  SELECT run_id, topic, partition, process, MAX(log_offset) + 1 AS end_offset
  FROM reads WHERE phase = 'tail' GROUP BY run_id, topic, partition, process
), stretches AS (
  SELECT a.run_id, a.topic, a.partition, a.process, MIN(a.position) AS first_offset,
         GREATEST(MAX(a.position), COALESCE(MAX(r.end_offset), 0)) AS end_offset
  FROM asked a LEFT JOIN received r
    ON a.run_id = r.run_id AND a.topic = r.topic AND a.partition = r.partition AND a.process = r.process
  GROUP BY a.run_id, a.topic, a.partition, a.process
), places AS (
  SELECT run_id, topic, partition, process, MAX(position) AS place FROM asked WHERE poll_index = last_index
  GROUP BY run_id, topic, partition, process
), idle AS (
  SELECT a.*, p.place,
    CASE WHEN a.record_count = 0 AND a.position = p.place AND a.told_end > p.place THEN 1 ELSE 0 END AS is_idle
  FROM asked a JOIN places p
    ON a.run_id = p.run_id AND a.topic = p.topic AND a.partition = p.partition AND a.process = p.process
), busy AS (
  SELECT run_id, topic, partition, process, MAX(poll_index) AS last_busy FROM idle WHERE is_idle = 0
  GROUP BY run_id, topic, partition, process
), waits AS (
  SELECT i.run_id, i.topic, i.partition, i.process, i.place, MAX(i.told_end) AS told_end,
         MIN(i.invoke_ns) AS since_ns, MAX(i.invoke_ns) AS until_ns
  FROM idle i LEFT JOIN busy b
    ON i.run_id = b.run_id AND i.topic = b.topic AND i.partition = b.partition AND i.process = b.process
  WHERE i.poll_index > COALESCE(b.last_busy, -1)
  GROUP BY i.run_id, i.topic, i.partition, i.process, i.place
), found AS (
  SELECT DISTINCT f.run_id, f.topic, f.partition, 'unseen' AS kind, f.log_offset, f.value,
         CAST(NULL AS BIGINT) AS invoke_ns, CAST(NULL AS BIGINT) AS at_ns, CAST(NULL AS BIGINT) AS other_offset,
         CAST(NULL AS INT) AS process
  FROM final_log f
  SEMI JOIN acknowledged a
    ON f.run_id = a.run_id AND f.topic = a.topic AND f.partition = a.partition AND f.value = a.value
  JOIN stretches s
    ON f.run_id = s.run_id AND f.topic = s.topic AND f.partition = s.partition
   AND f.log_offset >= s.first_offset AND f.log_offset < s.end_offset
  ANTI JOIN (SELECT run_id, topic, partition, value FROM reads WHERE phase = 'tail') t
    ON f.run_id = t.run_id AND f.topic = t.topic AND f.partition = t.partition AND f.value = t.value
  UNION ALL
  SELECT DISTINCT w.run_id, w.topic, w.partition, 'stopped', w.place, CAST(NULL AS BIGINT), w.since_ns, w.until_ns,
         w.told_end, w.process
  FROM waits w JOIN final_log f
    ON w.run_id = f.run_id AND w.topic = f.topic AND w.partition = f.partition
   AND f.log_offset >= w.place AND f.log_offset < w.told_end
  WHERE w.until_ns - w.since_ns >= 10000000000
)
SELECT *, CAST(NULL AS INT) AS acks, CAST(NULL AS INT) AS leader_epoch FROM found
"""


PROPERTY: Final = Property(
    tables=("sends", "polls", "reads"),
    kinds=KINDS,
    kernel=kernel,
    detail=detail,
    sql=SQL,
)
