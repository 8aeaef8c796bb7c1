"""Transactions that hold read_committed consumers back for ever (KIP-890, "Hanging transactions").

The last stable offset stands before the first record of the oldest open transaction. If in the end it still lies below the high
watermark, that transaction is open there; where nobody knows whose record stands there it may be any that sent to the partition. That is right as
long as it has no end; it hangs if it was committed or aborted, with an answer, ten seconds before, or if it outlived its own time-out by as much.
"""

from typing import Final

import numpy as np

from tribunal.checkers.api import (
    UNKNOWN,
    Anomaly,
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
)
from tribunal.checkers.judge.steps import OPEN, WRITES
from tribunal.results.manifest import integer

GRACE_NS: Final = 10_000_000_000
TIMEOUT: Final = "transaction.max.timeout.ms"
DEFAULT_TIMEOUT_MS: Final = 900_000
KINDS: Final = {
    "hanging": Kind(
        Meaning.VIOLATION,
        "the last stable offset stays behind although no transaction is open any more",
        excused_by=(Excuse.END_LOST,),
    ),
    "open": Kind(Meaning.NOTE, "a transaction without an answer holds the last stable offset back to the end"),
}


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Look at the newest observation of both watermarks.

    returns:  log_offset is the last stable offset, other_offset the high watermark, invoke_ns since when it could have moved,
              at_ns when it was last seen.
    source:   KIP-890; SPEC 4.2.8, 4.2.9; I18 (docs/invariants.md).
    """
    seen = rows.columns("watermarks")
    known = np.flatnonzero((seen["last_stable_offset"] != UNKNOWN) & (seen["high_watermark"] != UNKNOWN))
    if known.size == 0:
        return Found(nothing())
    newest = known[seen["at_ns"][known] == seen["at_ns"][known].max()]
    stable, high = int(seen["last_stable_offset"][newest].max()), int(seen["high_watermark"][newest].max())
    if stable >= high or context.of_run("txns").num_rows == 0:
        return Found(nothing())
    steps = context.steps()
    sent = np.flatnonzero(is_among(steps["kind"], WRITES))
    oldest = distinct(steps["txn"][sent[steps["log_offset"][sent] == stable]])
    if oldest.size:
        sent = sent[is_among(steps["txn"][sent], oldest)]
    begin, end = steps["begin_ns"][sent], steps["end_ns"][sent]
    longest_ms = integer(context.settings, TIMEOUT, DEFAULT_TIMEOUT_MS)
    own_ms = steps["timeout_ms"][sent]
    timeout_ns = np.where(own_ms == UNKNOWN, longest_ms, own_ms) * 1_000_000
    open_ = (steps["outcome"][sent] == OPEN) | (end == UNKNOWN)
    ends = np.where(open_, begin + timeout_ns, end)
    free_ns = int(ends.max(initial=0)) + GRACE_NS
    at_ns = int(seen["at_ns"][newest[0]])
    if at_ns < free_ns and not open_.any():
        return Found(nothing())  # markers may still be on their way
    kind = "hanging" if at_ns >= free_ns else "open"
    return Found(anomalies(kind, log_offset=[stable], other_offset=[high], invoke_ns=[free_ns], at_ns=[at_ns]))


def detail(anomaly: Anomaly) -> str:
    """Say where the last stable offset stands."""
    assert anomaly.at_ns is not None
    return (
        f"last stable offset {anomaly.log_offset}, high watermark {anomaly.other_offset} at {anomaly.at_ns / 1e9:.3f} s"
    )


SQL: Final = """
WITH known AS (
  SELECT *, MAX(at_ns) OVER (PARTITION BY run_id, topic, partition) AS last_ns FROM watermarks
  WHERE last_stable_offset IS NOT NULL AND high_watermark IS NOT NULL
), newest AS (
  SELECT run_id, topic, partition, MAX(last_stable_offset) AS last_stable_offset, MAX(high_watermark) AS high_watermark,
         MAX(at_ns) AS at_ns
  FROM known WHERE at_ns = last_ns GROUP BY run_id, topic, partition
), oldest AS (
  SELECT DISTINCT s.run_id, s.topic, s.partition, s.txn FROM txn_steps s JOIN newest n
    ON s.run_id = n.run_id AND s.topic = n.topic AND s.partition = n.partition AND s.log_offset = n.last_stable_offset
  WHERE s.kind IN ('send', 'append')
), known_places AS (
  SELECT DISTINCT run_id, topic, partition FROM oldest
), senders AS (
  SELECT s.run_id, s.topic, s.partition,
         MAX(CASE WHEN s.outcome = 'info' OR s.end_ns IS NULL
                  THEN s.begin_ns + COALESCE(s.timeout_ms * 1000000, t.timeout_ns) ELSE s.end_ns END) AS ended_ns,
         MAX(CASE WHEN s.outcome = 'info' OR s.end_ns IS NULL THEN 1 ELSE 0 END) AS is_open
  FROM txn_steps s JOIN transaction_timeouts t ON s.run_id = t.run_id
  LEFT JOIN known_places k ON s.run_id = k.run_id AND s.topic = k.topic AND s.partition = k.partition
  LEFT JOIN oldest o ON s.run_id = o.run_id AND s.topic = o.topic AND s.partition = o.partition AND s.txn = o.txn
  WHERE s.kind IN ('send', 'append') AND (k.run_id IS NULL OR o.txn IS NOT NULL) GROUP BY s.run_id, s.topic, s.partition
), judged AS (
  SELECT n.*, COALESCE(s.ended_ns, 0) + 10000000000 AS free_ns, COALESCE(s.is_open, 0) AS is_open
  FROM newest n SEMI JOIN transaction_timeouts t ON n.run_id = t.run_id
  LEFT JOIN senders s ON n.run_id = s.run_id AND n.topic = s.topic AND n.partition = s.partition
  WHERE n.last_stable_offset < n.high_watermark
)
SELECT run_id, topic, partition, CASE WHEN at_ns >= free_ns THEN 'hanging' ELSE 'open' END AS kind,
       last_stable_offset AS log_offset, CAST(NULL AS BIGINT) AS value, CAST(NULL AS INT) AS acks, free_ns AS invoke_ns,
       at_ns, CAST(NULL AS INT) AS leader_epoch, high_watermark AS other_offset
FROM judged WHERE at_ns >= free_ns OR is_open = 1
"""


PROPERTY: Final = Property(
    tables=("watermarks",),
    kinds=KINDS,
    kernel=kernel,
    detail=detail,
    sql=SQL,
)
