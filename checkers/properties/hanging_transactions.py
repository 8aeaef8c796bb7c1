"""Transactions that hold read_committed consumers back for ever (KIP-890, "Hanging transactions").

The last stable offset stands before the first record of the oldest open transaction. If in the end it still lies below the high
watermark, that transaction is open there; where nobody knows whose record stands there it may be any that sent to the partition. That is right as
long as it has no end; it hangs if it was committed or aborted, with an answer, ten seconds before, or if it outlived its own time-out by as much.

Where no transaction is known to have sent (groups' positions, and what coordinators remember) it may be any of the run. It was open when the
last stable offset was first seen there in the newest leader epoch: it hangs ten seconds after the longest time-out since then, or after the
end of the run's last transaction, whichever comes first.

It is not below the log start either. Where retention or DeleteRecords took the beginning of the open transaction, it stands at the first record that
was left, which may be anybody's.

For how long a node, the harness or the machine waited for a processor since a transaction ended comes on top of the ten seconds.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from tribunal.checkers.api import (
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
)
from tribunal.checkers.judge.steps import OPEN, OUTCOMES, WRITES, codes
from tribunal.checkers.judge.waits import Waits
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
    if stable >= high or context.transactions().num_rows == 0:
        return Found(nothing())
    steps = context.steps()
    sent = np.flatnonzero(is_among(steps["kind"], WRITES))
    oldest = distinct(steps["txn"][sent[steps["log_offset"][sent] == stable]])
    is_cut = stable > 0 and bool((seen["log_start_offset"] == stable).any())
    if oldest.size and not is_cut:
        sent = sent[is_among(steps["txn"][sent], oldest)]
    longest_ms = integer(context.settings, TIMEOUT, DEFAULT_TIMEOUT_MS)
    at_ns = int(seen["at_ns"][newest[0]])
    if sent.size:
        outcome, timeout_ms = steps["outcome"][sent], steps["timeout_ms"][sent]
        open_, ends = _ends(outcome, steps["begin_ns"][sent], steps["end_ns"][sent], timeout_ms, longest_ms)
        ended_ns, is_open = int(ends.max()), bool(open_.any())
    else:
        epoch = int(seen["leader_epoch"][newest].max())
        last_ns, longest_ns = of_all(context.transactions(), longest_ms)
        ended_ns, is_open = min(last_ns, _stood_ns(seen, known, epoch, stable, at_ns) + longest_ns), False
    free_ns = ended_ns + GRACE_NS
    if at_ns >= free_ns:
        free_ns += Waits.of(context.of_run("waits")).within(ended_ns, at_ns)
    if at_ns < free_ns and not is_open:
        return Found(nothing())  # markers may still be on their way
    kind = "hanging" if at_ns >= free_ns else "open"
    return Found(anomalies(kind, log_offset=[stable], other_offset=[high], invoke_ns=[free_ns], at_ns=[at_ns]))


def _ends(outcome: Array, begin_ns: Array, end_ns: Array, timeout_ms: Array, longest_ms: int) -> tuple[Array, Array]:
    """Return which transactions nobody is known to have ended, and when each had ended at the latest."""
    open_ = (outcome == OPEN) | (end_ns == UNKNOWN)
    timeout_ns = np.where(timeout_ms == UNKNOWN, longest_ms, timeout_ms) * 1_000_000
    return open_, np.where(open_, begin_ns + timeout_ns, end_ns)


def of_all(txns: pa.Table, longest_ms: int) -> tuple[int, int]:
    """Return when the last transaction of a run had ended at the latest, and the longest time-out of any, in ns.

    txns:        the table `txns`, of one row at least.
    longest_ms:  the time-out of a transaction of which no own one is recorded.
    """
    rows = Columns("txns", txns)
    outcome = codes(txns["outcome"], OUTCOMES).to_numpy()
    _, ends = _ends(outcome, rows["begin_ns"], rows["end_ns"], rows["timeout_ms"], longest_ms)
    longest = np.where(rows["timeout_ms"] == UNKNOWN, longest_ms, rows["timeout_ms"]).max()
    return int(ends.max()), int(longest) * 1_000_000


def standing(rows: PartitionRows, stable: int) -> tuple[int, int | None]:
    """Return since when the last stable offset stood there in the newest leader epoch, and when that log ended before or there at last."""
    seen = rows.columns("watermarks")
    known = np.flatnonzero((seen["last_stable_offset"] != UNKNOWN) & (seen["high_watermark"] != UNKNOWN))
    at_ns = int(seen["at_ns"][known].max())
    epoch = int(seen["leader_epoch"][known[seen["at_ns"][known] == at_ns]].max())
    before = (seen["leader_epoch"] == epoch) & (seen["log_end_offset"] != UNKNOWN) & (seen["log_end_offset"] <= stable)
    ended = seen["at_ns"][before] if epoch != UNKNOWN else seen["at_ns"][:0]
    return _stood_ns(seen, known, epoch, stable, at_ns), int(ended.max()) if ended.size else None


def _stood_ns(seen: Columns, known: Array, epoch: int, stable: int, at_ns: int) -> int:
    """Return since when the last stable offset stood there, below the high watermark, in a leader epoch; of an unknown one only now."""
    own = known[seen["leader_epoch"][known] == epoch]
    own = own[(seen["last_stable_offset"][own] == stable) & (seen["high_watermark"][own] > stable)]
    return at_ns if epoch == UNKNOWN or own.size == 0 else int(seen["at_ns"][own].min())


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
         MAX(at_ns) AS at_ns, MAX(leader_epoch) AS leader_epoch
  FROM known WHERE at_ns = last_ns GROUP BY run_id, topic, partition
), stood AS (
  SELECT k.run_id, k.topic, k.partition, MIN(k.at_ns) AS since_ns FROM known k JOIN newest n
    ON k.run_id = n.run_id AND k.topic = n.topic AND k.partition = n.partition AND k.leader_epoch = n.leader_epoch
    AND k.last_stable_offset = n.last_stable_offset AND k.high_watermark > n.last_stable_offset
  GROUP BY k.run_id, k.topic, k.partition
), begun AS (
  SELECT DISTINCT run_id, topic, partition, log_start_offset FROM watermarks WHERE log_start_offset > 0
), oldest AS (
  SELECT DISTINCT s.run_id, s.topic, s.partition, s.txn FROM txn_steps s JOIN newest n
    ON s.run_id = n.run_id AND s.topic = n.topic AND s.partition = n.partition AND s.log_offset = n.last_stable_offset
  LEFT JOIN begun b ON n.run_id = b.run_id AND n.topic = b.topic AND n.partition = b.partition
    AND n.last_stable_offset = b.log_start_offset
  WHERE s.kind IN ('send', 'append') AND b.run_id IS NULL
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
), ended AS (
  SELECT n.*, COALESCE(s.is_open, 0) AS is_open,
         COALESCE(s.ended_ns, LEAST(t.ended_ns, COALESCE(b.since_ns, n.at_ns) + t.longest_ns)) AS ended_ns
  FROM newest n JOIN transaction_timeouts t ON n.run_id = t.run_id
  LEFT JOIN stood b ON n.run_id = b.run_id AND n.topic = b.topic AND n.partition = b.partition
  LEFT JOIN senders s ON n.run_id = s.run_id AND n.topic = s.topic AND n.partition = s.partition
  WHERE n.last_stable_offset < n.high_watermark
), waited AS (
  SELECT run_id, topic, partition, SUM(longest_ns) AS waited_ns FROM (
    SELECT e.run_id, e.topic, e.partition, w.until_ns,
           MAX(LEAST(w.waited_ns, LEAST(w.until_ns, e.at_ns) - GREATEST(w.since_ns, e.ended_ns))) AS longest_ns
    FROM ended e JOIN waits w ON e.run_id = w.run_id AND w.since_ns < e.at_ns AND w.until_ns > e.ended_ns
    GROUP BY e.run_id, e.topic, e.partition, w.until_ns
  ) GROUP BY run_id, topic, partition
), judged AS (
  SELECT e.*, e.ended_ns + 10000000000
         + CASE WHEN e.at_ns >= e.ended_ns + 10000000000 THEN COALESCE(w.waited_ns, 0) ELSE 0 END AS free_ns
  FROM ended e LEFT JOIN waited w ON e.run_id = w.run_id AND e.topic = w.topic AND e.partition = w.partition
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
