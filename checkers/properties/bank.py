"""Money is moved, never made: what a bank workload's accounts hold adds up to nothing.

A transfer is a transaction of two records, one that takes and one that gives; their keys are `<account>:<amount>` and their
worker class is `transactional-bank`. The kernel adds up the amounts that a partition's complete final read with isolation
read_committed returned; the fold adds up the partitions. Where an acknowledged record is missing the sum says nothing new:
`lost_writes` judges the loss itself, and a sum that the missing records make up for is a fact, no verdict. Where a log begins behind its
first record, a transfer that was acknowledged, or whose transaction is of unknown outcome, and that is not seen there any more, may have been any part of the sum, unless
it was answered with an offset behind that beginning; a log without such a transfer makes up for nothing. Where a partition that a transfer went to was not recorded there is no sum.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.api import (
    FINAL,
    UNKNOWN,
    Array,
    Columns,
    Context,
    Excuse,
    Fold,
    Folded,
    Found,
    Kind,
    LargePartition,
    Meaning,
    PartitionRows,
    PartitionSummary,
    Property,
    anomalies,
    distinct,
    is_among,
    nothing,
    sends_of_reads,
)
from tribunal.checkers.judge.steps import OPEN, SEND, flat
from tribunal.checkers.properties.atomicity import committed_final_reads
from tribunal.checkers.properties.lost_writes import COMMITTED_READERS, acknowledged_sends, complete_readers

WORKER_CLASS: Final = "transactional-bank"
SENT: Final = ("log_offset", "value", "worker_class", "key", "acks", "outcome", "txn_id")
READ: Final = ("log_offset", "process", "phase", "value")
KINDS: Final = {
    "unbalanced": Kind(
        Meaning.VIOLATION,
        "the accounts do not add up to nothing: money was made or lost",
        excused_by=(Excuse.END_LOST,),
    ),
    "unbalanced_by_loss": Kind(Meaning.NOTE, "the accounts do not add up, as records are missing"),
    "unjudged": Kind(Meaning.UNJUDGED, "no complete final read with isolation read_committed of every account"),
}


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What one partition adds.

    amount:   the sum of the transfers that are visible here.
    records:  how many those are.
    missing:  acknowledged transfers that are not visible.
    lost:     the sum of these.
    hidden:   transfers that may have stood before the first record of a final log that begins later.
    is_read:  there was a complete final read with isolation read_committed.
    named:    partitions that the transfers' transactions sent to: one that nobody recorded cannot be added up.
    """

    amount: int = 0
    records: int = 0
    missing: int = 0
    lost: int = 0
    hidden: int = 0
    is_read: bool = True
    named: tuple[str, ...] = ()


class Figures(
    msgspec.Struct, frozen=True, kw_only=True, rename={"records": "transfers' records", "amount": "sum of all accounts"}
):
    """The figures of a run."""

    records: int
    amount: int


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Add up the transfers that are visible in this partition.

    source:  redpanda chaos, tx_money; jepsen.tests.bank.
    """
    sends = rows.columns("sends")
    words = rows.words("sends", "worker_class")
    if WORKER_CLASS not in words:
        return Found(nothing())
    transfers = sends["worker_class"] == words.index(WORKER_CLASS)
    read = rows.derived(committed_final_reads)
    if read is None:
        return Found(nothing(), summary=Summary(is_read=False))
    send = rows.derived(sends_of_reads)[read]
    visible = np.zeros(transfers.size, bool)
    visible[send[send != UNKNOWN]] = True
    accounts = _Accounts(context, rows.columns("polls"))
    accounts.add(rows, np.flatnonzero(transfers), visible)
    return Found(nothing(), summary=accounts.summary())


def kernel_in_ranges(partition: LargePartition, context: Context) -> Found:
    """Do the same range by range: only values are kept that were read elsewhere than where they were acknowledged."""
    readers = complete_readers(partition.small.columns("polls"), committed=True)
    elsewhere = np.zeros(0, np.int64)
    if readers.size:
        elsewhere = distinct(np.concatenate([elsewhere, *_read_elsewhere(partition, readers)]))
    is_bank, accounts = False, _Accounts(context, partition.small.columns("polls"))
    for own in partition.in_ranges():
        rows = own.rows("sends", SENT)
        chosen = _transfers(rows)
        if chosen.size:
            is_bank = True
            values = rows.columns("sends")["value"]
            read = _read(own.rows("reads", READ).columns("reads"), readers)
            accounts.add(rows, chosen, is_among(values, read) | is_among(values, elsewhere))
    for rows in partition.in_pieces("sends", SENT):
        sends, chosen = rows.columns("sends"), _transfers(rows)
        chosen = chosen[sends["log_offset"][chosen] == UNKNOWN]
        if chosen.size:
            is_bank = True
            accounts.add(rows, chosen, is_among(sends["value"], elsewhere))
    if not is_bank:
        return Found(nothing())
    if readers.size == 0:
        return Found(nothing(), summary=Summary(is_read=False))
    return Found(nothing(), summary=accounts.summary())


def _read_elsewhere(partition: LargePartition, readers: Array) -> Iterator[Array]:
    for own in partition.in_ranges():
        read = _read(own.rows("reads", READ).columns("reads"), readers)
        sent = distinct(own.rows("sends", ("log_offset", "value")).columns("sends")["value"])
        yield read[~is_among(read, sent)]


def _read(reads: Columns, readers: Array) -> Array:
    """Return the values that some processes' final reads received."""
    chosen = (reads["phase"] == FINAL) & is_among(reads["process"], readers) & (reads["value"] != UNKNOWN)
    return distinct(reads["value"][chosen])


def _transfers(rows: PartitionRows) -> Array:
    words = rows.words("sends", "worker_class")
    if WORKER_CLASS not in words:
        return np.zeros(0, np.int64)
    return np.flatnonzero(rows.columns("sends")["worker_class"] == words.index(WORKER_CLASS))


class _Accounts:
    """Adds up a partition's transfers."""

    def __init__(self, context: Context, polls: Columns) -> None:
        self._context = context
        self._begins = int(polls["log_start_offset"][polls["phase"] == FINAL].max(initial=0))
        steps = context.steps()
        self._open = distinct(steps["value"][steps["outcome"] == OPEN])
        self._sent, self._step = np.unique(steps["value"][steps["kind"] == SEND], return_inverse=True)
        self._txn = steps["txn"][steps["kind"] == SEND]
        self._is_named = np.zeros(self._sent.size, bool)
        self._amount = self._records = self._missing = self._lost = self._hidden = 0

    def add(self, rows: PartitionRows, transfers: Array, visible: Array) -> None:
        """Add some transfers; `visible`: which sends of these rows are."""
        sends = rows.columns("sends")
        chosen, hidden = transfers[visible[transfers]], transfers[~visible[transfers]]
        missing = hidden[acknowledged_sends(sends, self._context)[hidden]]
        self._amount += int(_amounts(rows, chosen).sum())
        self._records += int(chosen.size)
        self._missing += int(missing.size)
        self._lost += int(_amounts(rows, missing).sum())
        unseen = np.concatenate([missing, hidden[is_among(sends["value"][hidden], self._open)]])
        self._hidden += int((sends["log_offset"][unseen] < self._begins).sum())  # (UNKNOWN: anywhere)
        if self._sent.size:
            place = np.minimum(np.searchsorted(self._sent, sends["value"][transfers]), self._sent.size - 1)
            self._is_named[place[self._sent[place] == sends["value"][transfers]]] = True

    def summary(self) -> Summary:
        """Return what the partition adds."""
        return Summary(
            amount=self._amount,
            records=self._records,
            missing=self._missing,
            lost=self._lost,
            hidden=self._hidden if self._begins else 0,
            named=_places(self._context, np.unique(self._txn[self._is_named[self._step]])),
        )


def _places(context: Context, txns: Array) -> tuple[str, ...]:
    """Return all partitions to which some transactions sent."""
    if txns.size == 0:
        return ()
    steps = flat(context.of_run("txns"))
    steps = steps.filter(pc.and_(pc.is_in(steps["txn"], pa.array(txns)), pc.equal(steps["kind"], SEND)))
    places = steps.select(["topic", "partition"]).group_by(["topic", "partition"]).aggregate([])
    return tuple(sorted(f"{row['topic']}-{row['partition']}" for row in places.to_pylist()))


def _amounts(rows: PartitionRows, chosen: Array) -> Array:
    keys = rows.table("sends")["key"].take(chosen).to_pylist()
    return np.array([_amount(key) for key in keys], np.int64)


def _amount(key: str | None) -> int:
    text = (key or "").rpartition(":")[2]
    return int(text) if text.removeprefix("-").isdecimal() else 0


def join(summaries: Sequence[PartitionSummary[Summary]]) -> Folded:
    """Add up the partitions."""
    parts = [summary.content for summary in summaries]
    total, missing = sum(part.amount for part in parts), sum(part.missing for part in parts)
    figures = Figures(records=sum(part.records for part in parts), amount=total)
    here = {f"{summary.topic}-{summary.partition}" for summary in summaries}
    if not all(part.is_read and here.issuperset(part.named) for part in parts):
        return Folded(anomalies("unjudged", log_offset=[UNKNOWN]), figures)
    if total == 0:
        return Folded(nothing(), figures)
    made_up = missing > 0 and total + sum(part.lost for part in parts) == 0
    kind = "unbalanced_by_loss" if made_up or any(part.hidden for part in parts) else "unbalanced"
    return Folded(anomalies(kind, detail=[f"all accounts together hold {total}"]), figures)


SQL: Final = "".join((COMMITTED_READERS, """, visible AS (
  SELECT DISTINCT r.run_id, r.topic, r.partition, r.value FROM reads r
  JOIN readers d ON r.run_id = d.run_id AND r.topic = d.topic AND r.partition = d.partition AND r.process = d.process
  WHERE r.phase = 'final'
), transfers AS (
  SELECT s.run_id, s.topic, s.partition, s.value, s.outcome, s.acks, c.value AS committed_value, s.txn_id, s.log_offset,
         COALESCE(TRY_CAST(SPLIT_PART(s.key, ':', 2) AS BIGINT), 0) AS amount
  FROM sends s LEFT JOIN committed c ON s.run_id = c.run_id AND s.value = c.value
  WHERE s.worker_class = 'transactional-bank'
), starts AS (
  SELECT run_id, topic, partition, MAX(log_start_offset) AS log_start FROM polls WHERE phase = 'final'
  GROUP BY run_id, topic, partition
), parts AS (
  SELECT t.run_id, t.topic, t.partition,
         SUM(CASE WHEN v.value IS NOT NULL THEN t.amount ELSE 0 END) AS total,
         MAX(CASE WHEN v.value IS NOT NULL THEN 1 ELSE 0 END) AS was_read,
         SUM(CASE WHEN v.value IS NULL AND t.outcome = 'ok' AND t.acks <> 0
                   AND (t.txn_id IS NULL OR t.committed_value IS NOT NULL) THEN 1 ELSE 0 END) AS missing,
         SUM(CASE WHEN v.value IS NULL AND t.outcome = 'ok' AND t.acks <> 0
                   AND (t.txn_id IS NULL OR t.committed_value IS NOT NULL) THEN t.amount ELSE 0 END) AS lost,
         MAX(CASE WHEN v.value IS NULL AND b.log_start > 0 AND COALESCE(t.log_offset, -1) < b.log_start
                   AND (o.value IS NOT NULL OR (t.outcome = 'ok' AND t.acks <> 0
                                                AND (t.txn_id IS NULL OR t.committed_value IS NOT NULL))) THEN 1 ELSE 0 END) AS hidden
  FROM transfers t
  LEFT JOIN starts b ON t.run_id = b.run_id AND t.topic = b.topic AND t.partition = b.partition
  LEFT JOIN (SELECT DISTINCT run_id, topic, partition, value FROM txn_steps WHERE outcome = 'info') o
    ON t.run_id = o.run_id AND t.topic = o.topic AND t.partition = o.partition AND t.value = o.value
  LEFT JOIN visible v ON t.run_id = v.run_id AND t.topic = v.topic AND t.partition = v.partition AND t.value = v.value
  GROUP BY t.run_id, t.topic, t.partition
), named AS (
  SELECT DISTINCT o.run_id, o.topic, o.partition
  FROM txn_steps s JOIN transfers t ON s.run_id = t.run_id AND s.topic = t.topic AND s.partition = t.partition AND s.value = t.value
  JOIN txn_steps o ON s.run_id = o.run_id AND s.txn = o.txn
  WHERE s.kind = 'send' AND o.kind = 'send'
), lacking AS (
  SELECT DISTINCT n.run_id FROM named n
  ANTI JOIN parts p ON n.run_id = p.run_id AND n.topic = p.topic AND n.partition = p.partition
), judged AS (
  SELECT p.run_id, SUM(p.total) AS total, SUM(p.missing) AS missing, SUM(p.lost) AS lost,
         MAX(p.hidden) AS is_hidden,
         MIN(CASE WHEN r.run_id IS NULL OR l.run_id IS NOT NULL THEN 0 ELSE 1 END) AS is_read
  FROM parts p LEFT JOIN (SELECT DISTINCT run_id, topic, partition FROM readers) r
    ON p.run_id = r.run_id AND p.topic = r.topic AND p.partition = r.partition
  LEFT JOIN lacking l ON p.run_id = l.run_id
  GROUP BY p.run_id
)
SELECT run_id, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
       CASE WHEN is_read = 0 THEN 'unjudged'
            WHEN is_hidden = 1 OR (missing > 0 AND total + lost = 0) THEN 'unbalanced_by_loss' ELSE 'unbalanced' END AS kind,
       CAST(NULL AS BIGINT) AS log_offset, CAST(NULL AS BIGINT) AS value, CAST(NULL AS INT) AS acks,
       CAST(NULL AS BIGINT) AS invoke_ns, CAST(NULL AS BIGINT) AS at_ns, CAST(NULL AS INT) AS leader_epoch,
       CAST(NULL AS BIGINT) AS other_offset,
       CASE WHEN is_read = 1 THEN CONCAT('all accounts together hold ', CAST(CAST(total AS BIGINT) AS STRING)) END AS detail
FROM judged WHERE is_read = 0 OR total <> 0
"""))  # fmt: skip


PROPERTY: Final = Property(
    tables=("sends", "polls", "reads"),
    kinds=KINDS,
    kernel=kernel,
    kernel_in_ranges=kernel_in_ranges,
    fold=Fold(Summary, join),
    sql=SQL,
)
