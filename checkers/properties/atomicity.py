"""A transaction is visible in all its partitions or in none, also one of unknown outcome.

Looks at what complete final reads with isolation read_committed returned, partition by partition; the fold puts a transaction's
parts together. What a committed transaction lacks is `lost_writes`' business, and what of an aborted one is visible
`aborted_reads`': here those of unknown outcome are judged, which may have gone either way, but not both.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

import msgspec
import numpy as np

from tribunal.checkers.api import (
    FINAL,
    UNKNOWN,
    Array,
    Context,
    Excuse,
    Fold,
    Folded,
    Found,
    Kind,
    Meaning,
    PartitionRows,
    PartitionSummary,
    Property,
    anomalies,
    distinct,
    is_among,
    nothing,
)
from tribunal.checkers.judge.steps import OPEN, WRITES
from tribunal.checkers.properties.lost_writes import COMMITTED_READERS, complete_readers

KINDS: Final = {
    "torn": Kind(
        Meaning.VIOLATION, "one part of a transaction is visible, another one is not", excused_by=(Excuse.END_LOST,)
    ),
}


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Transactions by their rows: of which something is visible here, of which something is missing, and when each began."""

    seen: list[int]
    missing: list[int]
    begins_ns: dict[int, int]


def committed_final_reads(rows: PartitionRows) -> Array | None:
    """Return the rows of `reads` that complete final reads with isolation read_committed received; None: there were none."""
    reads, readers = rows.columns("reads"), complete_readers(rows.columns("polls"), committed=True)
    # A read that came to the end and returned nothing is one, too: nothing is visible there.
    return np.flatnonzero((reads["phase"] == FINAL) & is_among(reads["process"], readers)) if readers.size else None


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Count what of each open transaction's sends is visible here; the fold compares."""
    return kernel_in_pieces((rows,), context)


def kernel_in_pieces(pieces: Iterable[PartitionRows], context: Context) -> Found:
    """Do the same piece by piece: of each only the values of open transactions are kept."""
    parts = iter(pieces)
    small = next(parts)
    steps, polls = context.steps(), small.columns("polls")
    open_ = np.flatnonzero(is_among(steps["kind"], WRITES) & (steps["outcome"] == OPEN) & (steps["value"] != UNKNOWN))
    readers = complete_readers(polls, committed=True)
    if readers.size == 0 or open_.size == 0:
        return Found(nothing())
    wanted = steps["value"][open_]
    start = int(polls["log_start_offset"][polls["phase"] == FINAL].max(initial=0))
    seen, answered = np.zeros(open_.size, bool), np.zeros(open_.size, bool)
    in_transactions = False
    for rows in chain((small,), parts):
        sends, reads = rows.columns("sends"), rows.columns("reads")
        in_transactions = in_transactions or bool((sends["txn_id"] != UNKNOWN).any())
        # One whose send was never answered may not even have left the producer, and nobody reads what stands before the log start.
        placed = (sends["log_offset"] != UNKNOWN) & (sends["log_offset"] >= start)
        answered |= is_among(wanted, distinct(sends["value"][placed]))
        read = (reads["phase"] == FINAL) & is_among(reads["process"], readers)
        seen |= is_among(wanted, distinct(reads["value"][read]))
    if not in_transactions:
        return Found(nothing())
    begins_ns = zip(steps["txn"][open_].tolist(), steps["begin_ns"][open_].tolist(), strict=True)
    summary = Summary(
        seen=steps["txn"][open_[seen]].tolist(),
        missing=steps["txn"][open_[~seen & answered]].tolist(),
        begins_ns=dict(begins_ns),
    )
    return Found(nothing(), summary=summary)


def join(summaries: Sequence[PartitionSummary[Summary]]) -> Folded:
    """Find transactions of which one partition shows something and another one lacks something."""
    parts = [summary.content for summary in summaries]
    seen = {txn for part in parts for txn in part.seen}
    missing = {txn for part in parts for txn in part.missing}
    torn = sorted(seen & missing)
    begins_ns = {txn: at_ns for part in parts for txn, at_ns in part.begins_ns.items()}
    return Folded(
        anomalies("torn", at_ns=[begins_ns[txn] for txn in torn], detail=[f"transaction T{txn}" for txn in torn])
    )


SQL: Final = "".join((COMMITTED_READERS, """, visible AS (
  SELECT DISTINCT r.run_id, r.topic, r.partition, r.value FROM reads r
  JOIN readers d ON r.run_id = d.run_id AND r.topic = d.topic AND r.partition = d.partition AND r.process = d.process
  WHERE r.phase = 'final'
), judged AS (
  SELECT DISTINCT run_id, topic, partition FROM readers
), parts AS (
  SELECT s.run_id, s.txn, s.begin_ns,
         CASE WHEN v.value IS NOT NULL THEN 1 ELSE 0 END AS seen,
         CASE WHEN v.value IS NULL AND a.value IS NOT NULL THEN 1 ELSE 0 END AS missing
  FROM txn_steps s
  JOIN judged j ON s.run_id = j.run_id AND s.topic = j.topic AND s.partition = j.partition
  SEMI JOIN (SELECT DISTINCT run_id, topic, partition FROM sends WHERE txn_id IS NOT NULL) t
    ON s.run_id = t.run_id AND s.topic = t.topic AND s.partition = t.partition
  LEFT JOIN visible v ON s.run_id = v.run_id AND s.topic = v.topic AND s.partition = v.partition AND s.value = v.value
  LEFT JOIN (SELECT s.run_id, s.topic, s.partition, s.value FROM sends s
             JOIN (SELECT run_id, topic, partition, COALESCE(MAX(log_start_offset), 0) AS start_offset
                   FROM polls WHERE phase = 'final' GROUP BY run_id, topic, partition) p
               ON s.run_id = p.run_id AND s.topic = p.topic AND s.partition = p.partition
             WHERE s.log_offset >= p.start_offset) a
    ON s.run_id = a.run_id AND s.topic = a.topic AND s.partition = a.partition AND s.value = a.value
  WHERE s.kind IN ('send', 'append') AND s.outcome = 'info' AND s.value IS NOT NULL
)
SELECT run_id, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, 'torn' AS kind,
       CAST(NULL AS BIGINT) AS log_offset, CAST(NULL AS BIGINT) AS value, CAST(NULL AS INT) AS acks,
       CAST(NULL AS BIGINT) AS invoke_ns, MIN(begin_ns) AS at_ns, CAST(NULL AS INT) AS leader_epoch,
       CAST(NULL AS BIGINT) AS other_offset, CONCAT('transaction T', CAST(txn AS STRING)) AS detail
FROM parts GROUP BY run_id, txn HAVING MAX(seen) = 1 AND MAX(missing) = 1
"""))  # fmt: skip


PROPERTY: Final = Property(
    tables=("sends", "polls", "reads"),
    kinds=KINDS,
    kernel=kernel,
    kernel_in_pieces=kernel_in_pieces,
    columns_in_pieces={"sends": ("txn_id", "value", "log_offset"), "reads": ("process", "phase", "value")},
    fold=Fold(Summary, join),
    sql=SQL,
)
