"""Consumers that skip or go back: where they asked on, against what they had received.

A consumer asks from the offset behind the last record that it received. Asking from further on means that it skipped what
stands between; asking from before means that it went back. A subscriber does both rightly when partitions change hands or when a
log was truncated below its position, so these are facts for the reader and no verdicts: what was lost for everybody is found
by `lost_writes`, and what differs between two reads by `log_order`.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from tribunal.checkers.api import (
    OK,
    TAIL,
    UNKNOWN,
    Array,
    Context,
    Found,
    Kind,
    Meaning,
    PartitionRows,
    Property,
    anomalies,
    nothing,
)
from tribunal.checkers.properties.lost_writes import final_reads

KINDS: Final = {
    "skipped": Kind(Meaning.NOTE, "a consumer asked on beyond records that it never received"),
    "rewound": Kind(Meaning.NOTE, "a consumer asked again for what it had received already"),
}


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Compare neighbouring polls of each tailing consumer.

    returns:  one row per step: log_offset is where it asked on, other_offset where it should have; at_ns when it asked.
    source:   SPEC 3.9; jepsen.tests.kafka `poll-skip` and `nonmonotonic-poll`.
    """
    polls = rows.columns("polls")
    asked = (polls["phase"] == TAIL) & (polls["outcome"] == OK) & (polls["position"] != UNKNOWN)
    tail = np.flatnonzero(asked)
    if tail.size < 2:
        return Found(nothing())
    order = tail[np.lexsort((polls["poll_index"][tail], polls["process"][tail]))]
    reached = np.maximum(polls["position"][order], _received_ends(rows, order))
    same = polls["process"][order][1:] == polls["process"][order][:-1]
    position, before = polls["position"][order][1:], reached[:-1]
    skipped = np.flatnonzero(same & (position > before))
    skipped = skipped[_records_between(rows, before[skipped], position[skipped])]
    rewound = np.flatnonzero(same & (position < before))
    tables = [
        anomalies(
            kind,
            log_offset=position[chosen],
            other_offset=before[chosen],
            at_ns=polls["invoke_ns"][order][1:][chosen],
            process=polls["process"][order][1:][chosen],
        )
        for kind, chosen in (("skipped", skipped), ("rewound", rewound))
    ]
    return Found(pa.concat_tables(tables))


def _received_ends(rows: PartitionRows, order: Array) -> Array:
    """Return for each poll the offset behind the last record that it received, 0 for none."""
    polls, reads = rows.columns("polls"), rows.columns("reads")
    ends: dict[tuple[int, int], int] = {}
    tail = np.flatnonzero(reads["phase"] == TAIL)
    call = np.lexsort((reads["log_offset"][tail], reads["poll_index"][tail], reads["process"][tail]))
    tail = tail[call]
    process, poll_index = reads["process"][tail], reads["poll_index"][tail]
    last = np.append((process[1:] != process[:-1]) | (poll_index[1:] != poll_index[:-1]), True)[: tail.size]
    chosen = tail[last]
    keys = zip(reads["process"][chosen].tolist(), reads["poll_index"][chosen].tolist(), strict=True)
    ends.update(zip(keys, (reads["log_offset"][chosen] + 1).tolist(), strict=True))
    asked = zip(polls["process"][order].tolist(), polls["poll_index"][order].tolist(), strict=True)
    return np.array([ends.get(key, 0) for key in asked], np.int64)


def _records_between(rows: PartitionRows, first: Array, end: Array) -> Array:
    """Return where the final log holds a record in [first, end): markers and aborted offsets are no loss to a reader."""
    offsets = np.sort(rows.columns("reads")["log_offset"][rows.derived(final_reads)])
    return np.searchsorted(offsets, end) > np.searchsorted(offsets, first)


SQL: Final = """
WITH readers AS (
  SELECT run_id, topic, partition, process FROM polls WHERE phase = 'final'
  GROUP BY run_id, topic, partition, process
  HAVING MAX(CASE WHEN position <= COALESCE(log_start_offset, 0) THEN 1 ELSE 0 END) = 1
     AND MAX(CASE WHEN outcome = 'ok' AND record_count = 0 AND position >= high_watermark THEN 1 ELSE 0 END) = 1
), final_log AS (
  SELECT DISTINCT r.run_id, r.topic, r.partition, r.log_offset FROM reads r
  JOIN readers d ON r.run_id = d.run_id AND r.topic = d.topic AND r.partition = d.partition AND r.process = d.process
  WHERE r.phase = 'final'
), received AS (
  SELECT run_id, topic, partition, process, poll_index, MAX(log_offset) + 1 AS end_offset
  FROM reads WHERE phase = 'tail' GROUP BY run_id, topic, partition, process, poll_index
), steps AS (
  SELECT p.run_id, p.topic, p.partition, p.position, p.invoke_ns,
         LAG(GREATEST(p.position, COALESCE(r.end_offset, 0)))
           OVER (PARTITION BY p.run_id, p.topic, p.partition, p.process ORDER BY p.poll_index) AS reached
  FROM polls p LEFT JOIN received r
    ON p.run_id = r.run_id AND p.topic = r.topic AND p.partition = r.partition AND p.process = r.process
   AND p.poll_index = r.poll_index
  WHERE p.phase = 'tail' AND p.outcome = 'ok' AND p.position IS NOT NULL
), found AS (
  SELECT DISTINCT s.run_id, s.topic, s.partition, 'skipped' AS kind, s.position, s.reached, s.invoke_ns FROM steps s
  JOIN final_log f ON s.run_id = f.run_id AND s.topic = f.topic AND s.partition = f.partition
   AND f.log_offset >= s.reached AND f.log_offset < s.position
  UNION ALL
  SELECT run_id, topic, partition, 'rewound', position, reached, invoke_ns FROM steps WHERE position < reached
)
SELECT run_id, topic, partition, kind, position AS log_offset, CAST(NULL AS BIGINT) AS value, CAST(NULL AS INT) AS acks,
       CAST(NULL AS BIGINT) AS invoke_ns, invoke_ns AS at_ns, CAST(NULL AS INT) AS leader_epoch, reached AS other_offset
FROM found
"""


PROPERTY: Final = Property(
    tables=("polls", "reads"),
    kinds=KINDS,
    kernel=kernel,
    sql=SQL,
)
