"""Records that assigned consumers passed over and none received, and consumers that stopped although there was more.

`unseen`: an acknowledged record of the final log lies where an assigned consumer surely went past it (`consumers`), and no consumer at all
received it. `stopped`: an assigned consumer asks at one place to its end and gets nothing, although it was shown a high watermark
(last stable offset, if it is read_committed) beyond, and still gets fresh answers ten seconds later: what it is shown goes on
rising. A leader that is gone explains no fresh answer. Who waits for as long within the newest leader epoch is judged by that part of its wait: an
election before it took nothing that is waited for since. What nobody can read in the end is `lost_writes`.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Final

import msgspec
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
from tribunal.checkers.properties.consumers import CONSUMED, READ_COMMITTED, Passed, assigned, skipped_records
from tribunal.checkers.properties.lost_writes import acknowledged_sends, final_reads, uncommitted_sends

LEAST_NS: Final = 10_000_000_000
KINDS: Final = {
    "unseen": Kind(Meaning.VIOLATION, "consumers passed over an acknowledged record that none of them received"),
    "stopped": Kind(Meaning.PROMISED, "a consumer got nothing more although there was more to read"),
}


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Compare what assigned consumers went through with what anybody received.

    returns:  unseen: one row per record; stopped: log_offset is where the consumer stood, other_offset the end it was shown,
              invoke_ns since when, at_ns when it last had a fresh answer.
    source:   jepsen.tests.kafka `unseen`; SPEC 3.9.
    """
    polls = rows.columns("polls")
    if not (polls["phase"] == TAIL).any():
        return Found(nothing())
    return Found(pa.concat_tables([_unseen(rows, context), _stopped(rows, context)]))


def _unseen(rows: PartitionRows, context: Context) -> pa.Table:
    sends, reads = rows.columns("sends"), rows.columns("reads")
    passed = Passed(rows, context)
    places, _ = skipped_records(rows, context, passed)
    if places.size == 0:
        return nothing()
    final = rows.derived(final_reads)
    send = rows.derived(sends_of_reads)[final]
    known = send != UNKNOWN
    final, send = final[known], send[known]
    final = final[acknowledged_sends(sends, context)[send]]
    offsets, values = reads["log_offset"][final], reads["value"][final]
    open_ = ~is_among(values, distinct(reads["value"][reads["phase"] == TAIL]))
    offsets, values = offsets[open_], values[open_]
    firsts, ends = passed.expected[places], reads["log_offset"][passed.rows[places]]
    forward = firsts < ends
    # Of gaps that begin at an offset or before it, at least one has not come to its end there.
    begun, ended = (np.searchsorted(np.sort(one[forward]), offsets, "right") for one in (firsts, ends))
    over = begun > ended
    pairs = np.unique(np.stack([offsets[over], values[over]], axis=1), axis=0)
    return anomalies("unseen", log_offset=pairs[:, 0], value=pairs[:, 1])


def _stopped(rows: PartitionRows, context: Context) -> pa.Table:
    polls, reads = rows.columns("polls"), rows.columns("reads")
    final = rows.derived(final_reads)
    send = rows.derived(sends_of_reads)[final]
    sure = np.append(~uncommitted_sends(rows.columns("sends"), context), False)[send] & (send != UNKNOWN)
    offsets = (np.sort(reads["log_offset"][final]), np.sort(reads["log_offset"][final[sure]]))
    found = []
    for process, of_process in groupby(waits(polls, assigned(rows, context)), key=lambda own: own.process):
        for own in of_process:
            visible = offsets[own.is_committed]
            if np.searchsorted(visible, own.end) > np.searchsorted(visible, own.position):
                found.append((own.position, own.end, own.since_ns, own.fresh_ns, process))
                break
    columns = list(zip(*found, strict=True)) or [()] * 5
    names = ("log_offset", "other_offset", "invoke_ns", "at_ns", "process")
    return anomalies("stopped", **dict(zip(names, columns, strict=True)))


class Wait(msgspec.Struct, frozen=True):
    """A consumer got nothing at a position for long, to its end, and was shown an end beyond: whether there was more to read has to be seen."""

    process: int
    is_committed: bool
    position: int
    end: int
    since_ns: int
    fresh_ns: int


def waits(polls: Columns, who: Array) -> Iterator[Wait]:
    """Yield the long waits of these consumers at their ends: within the newest leader epoch, then as a whole."""
    tail = np.flatnonzero((polls["phase"] == TAIL) & (polls["outcome"] == OK) & (polls["position"] != UNKNOWN))
    shown = _shown_end(polls)
    for process in who.tolist():
        own = tail[polls["process"][tail] == process]
        if own.size == 0:
            continue
        own = own[np.argsort(polls["poll_index"][own], kind="stable")]
        position = int(polls["position"][own[-1]])
        idle = (polls["record_count"][own] == 0) & (polls["position"][own] == position) & (shown[own] > position)
        busy = np.flatnonzero(~idle)
        waiting = own[busy[-1] + 1 if busy.size else 0 :]
        epochs = polls["leader_epoch"][waiting]
        is_committed = bool((polls["isolation"][own] == READ_COMMITTED).any())
        for wait in (waiting[epochs == epochs.max(initial=UNKNOWN)], waiting):
            rising = np.flatnonzero(np.diff(shown[wait]) > 0) + 1
            if rising.size == 0:
                continue
            since, fresh = int(polls["invoke_ns"][wait].min()), int(polls["invoke_ns"][wait[rising]].max())
            if fresh - since >= LEAST_NS:
                yield Wait(process, is_committed, position, int(shown[wait[0]]), since, fresh)


def _shown_end(polls: Columns) -> Array:
    stable = (polls["isolation"] == READ_COMMITTED) & (polls["last_stable_offset"] != UNKNOWN)
    return np.where(stable, polls["last_stable_offset"], polls["high_watermark"])


def detail(anomaly: Anomaly) -> str:
    """Say how long a consumer waited."""
    if anomaly.kind == "unseen":
        return f"nobody received the record at {anomaly.log_offset}"
    assert anomaly.invoke_ns is not None
    assert anomaly.at_ns is not None
    waited = (anomaly.at_ns - anomaly.invoke_ns) / 1e9
    return f"stood at {anomaly.log_offset} for {waited:.1f} s, was shown {anomaly.other_offset}"


SQL: Final = "".join((CONSUMED, """, acknowledged AS (
  SELECT s.run_id, s.topic, s.partition, s.value FROM sends s
  LEFT JOIN committed c ON s.run_id = c.run_id AND s.value = c.value
  WHERE s.outcome = 'ok' AND s.acks <> 0 AND (s.txn_id IS NULL OR c.value IS NOT NULL)
), shown AS (
  SELECT *, CASE WHEN isolation = 'read_committed' AND last_stable_offset IS NOT NULL THEN last_stable_offset
                 ELSE COALESCE(high_watermark, -1) END AS shown_end,
         MAX(poll_index) OVER (PARTITION BY run_id, topic, partition, process) AS last_index
  FROM asked WHERE outcome = 'ok' AND position IS NOT NULL
), places AS (
  SELECT run_id, topic, partition, process, MAX(position) AS place FROM shown WHERE poll_index = last_index
  GROUP BY run_id, topic, partition, process
), idle AS (
  SELECT t.*, p.place,
    CASE WHEN t.record_count = 0 AND t.position = p.place AND t.shown_end > p.place THEN 1 ELSE 0 END AS is_idle
  FROM shown t JOIN places p
    ON t.run_id = p.run_id AND t.topic = p.topic AND t.partition = p.partition AND t.process = p.process
), busy AS (
  SELECT run_id, topic, partition, process, MAX(poll_index) AS last_busy FROM idle WHERE is_idle = 0
  GROUP BY run_id, topic, partition, process
), waiting AS (
  SELECT i.*, MAX(COALESCE(i.leader_epoch, -1)) OVER (PARTITION BY i.run_id, i.topic, i.partition, i.process) AS newest_epoch
  FROM idle i LEFT JOIN busy b
    ON i.run_id = b.run_id AND i.topic = b.topic AND i.partition = b.partition AND i.process = b.process
  WHERE i.poll_index > COALESCE(b.last_busy, -1)
), parts AS (
  SELECT *, 1 AS part FROM waiting WHERE COALESCE(leader_epoch, -1) = newest_epoch
  UNION ALL
  SELECT *, 2 AS part FROM waiting
), risen AS (
  SELECT *, LAG(shown_end) OVER (PARTITION BY run_id, topic, partition, process, part ORDER BY poll_index) AS shown_before,
         ROW_NUMBER() OVER (PARTITION BY run_id, topic, partition, process, part ORDER BY poll_index) AS number
  FROM parts
), waits AS (
  SELECT run_id, topic, partition, process, place, part, MIN(invoke_ns) AS since_ns,
         MAX(CASE WHEN number = 1 THEN shown_end END) AS first_shown,
         MAX(CASE WHEN shown_end > shown_before THEN invoke_ns END) AS fresh_ns
  FROM risen GROUP BY run_id, topic, partition, process, place, part
), stops AS (
  SELECT w.run_id, w.topic, w.partition, w.process, w.place, w.since_ns, w.fresh_ns, w.first_shown, w.part,
         MIN(w.part) OVER (PARTITION BY w.run_id, w.topic, w.partition, w.process) AS first_part
  FROM waits w
  JOIN isolations i ON w.run_id = i.run_id AND w.topic = i.topic AND w.partition = i.partition AND w.process = i.process
  JOIN visible v ON w.run_id = v.run_id AND w.topic = v.topic AND w.partition = v.partition
                AND v.is_committed = i.is_committed AND v.log_offset >= w.place AND v.log_offset < w.first_shown
  WHERE w.fresh_ns - w.since_ns >= 10000000000
), found AS (
  SELECT DISTINCT f.run_id, f.topic, f.partition, 'unseen' AS kind, f.log_offset, f.value,
         CAST(NULL AS BIGINT) AS invoke_ns, CAST(NULL AS BIGINT) AS at_ns, CAST(NULL AS BIGINT) AS other_offset,
         CAST(NULL AS INT) AS process
  FROM gaps f
  SEMI JOIN acknowledged a
    ON f.run_id = a.run_id AND f.topic = a.topic AND f.partition = a.partition AND f.value = a.value
  ANTI JOIN (SELECT run_id, topic, partition, value FROM reads WHERE phase = 'tail') t
    ON f.run_id = t.run_id AND f.topic = t.topic AND f.partition = t.partition AND f.value = t.value
  UNION ALL
  SELECT DISTINCT run_id, topic, partition, 'stopped', place, CAST(NULL AS BIGINT), since_ns, fresh_ns, first_shown, process
  FROM stops WHERE part = first_part
)
SELECT *, CAST(NULL AS INT) AS acks, CAST(NULL AS INT) AS leader_epoch FROM found
"""))  # fmt: skip


PROPERTY: Final = Property(
    tables=("sends", "polls", "reads"),
    kinds=KINDS,
    kernel=kernel,
    detail=detail,
    sql=SQL,
)
