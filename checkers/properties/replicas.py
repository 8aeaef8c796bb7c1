"""The logs of the ISR's members, compared: below the high watermark they are one log, without a hole, and epochs go up along it.

Every member of the final ISR and ELR holds everything below the high watermark, so what one of them lacks or holds otherwise is
wrong even if nobody reads it. The high watermark is the greatest that was shown since the last election of a replica that may have
lacked records: by leaders of these epochs, or to final reads. Only a member's own disk excuses it: what provably left it in this
partition, from that offset on to where its log had ended, and until the member was whole again; and a batch that was damaged in bytes that no checksum covers (a flipped
leader epoch), which nobody can find and which may stay for ever. Replicas begin at the log start, and compacted ones may have holes.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from tribunal.checkers.api import (
    FINAL,
    OK,
    UNKNOWN,
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
from tribunal.checkers.judge.endings import Ending
from tribunal.checkers.judge.timeline import OBSERVATION_LAG_NS
from tribunal.checkers.properties.lost_writes import LOG_STARTS, log_start
from tribunal.results.recording import WORDS

DENSE: Final = 8  # so many offsets to a row at most are laid out one beside the other
NODE: Final = WORDS["watermarks", "source"].index("node")
KINDS: Final = {
    "replica_differs": Kind(
        Meaning.VIOLATION,
        "a member of the ISR or ELR holds another record below the high watermark than its leader (docs/invariants.md#i14)",
    ),
    "replica_lacks": Kind(
        Meaning.VIOLATION,
        "a member of the ISR or ELR lacks records below the high watermark (docs/invariants.md#i9)",
        excused_by=(Excuse.BY_ORDER,),
    ),
    "replicas_lack": Kind(
        Meaning.VIOLATION,
        "no member of the ISR or ELR holds what stands below the high watermark (docs/invariants.md#i9)",
        excused_by=(Excuse.BY_ORDER,),
    ),
    "epoch_back": Kind(Meaning.VIOLATION, "leader epochs go back along a replica's log (docs/invariants.md#i14)"),
}


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Compare the recorded logs, offset by offset.

    returns:  replica_lacks: one row per stretch, from log_offset to other_offset; replicas_lack: the stretch ends before other_offset, and
              where all logs end is `shown_end`'s; epoch_back: other_offset is the record before.
    source:   I8, I9, I14 (docs/invariants.md); SPEC 3.4, 3.5.3.
    """
    logs = rows.columns("logs")
    if logs["node"].size == 0:
        return Found(nothing())
    ending = context.ending
    whole = _whole(logs, ending)
    first, end = log_start(rows), shown_high_watermark(rows, ending)
    offsets = logs["log_offset"]
    own = np.flatnonzero(
        whole & (offsets >= first) & (offsets < end) & is_among(logs["node"], np.asarray(ending.members, np.int64))
    )
    held = _Held(logs, own, ending.leader)
    found = [_differ(logs, held), *_lack(logs, held, context), _epochs_back(logs, whole)]
    return Found(pa.concat_tables(found), {"records in replicas compared": int(own.size)})


def shown_high_watermark(rows: PartitionRows, ending: Ending) -> int:
    """Return the greatest high watermark that was shown when nothing could be lost by right any more; 0 for none."""
    seen, polls = rows.columns("watermarks"), rows.columns("polls")
    known = (seen["source"] == NODE) & (seen["leader_epoch"] != UNKNOWN) & (seen["leader_epoch"] >= ending.since_epoch)
    known &= seen["at_ns"] > ending.anew_ns
    known_ns = ending.since_ns + OBSERVATION_LAG_NS
    final = (polls["phase"] == FINAL) & (polls["outcome"] == OK) & (polls["invoke_ns"] > known_ns)
    return max(
        int(seen["high_watermark"][known].max(initial=0)), int(polls["high_watermark"][final].max(initial=0))
    )  # fmt: skip


def _whole(logs: Columns, ending: Ending) -> Array:
    """Tell which rows no fault of the replica's own disk can be blamed for."""
    whole = np.ones(logs["node"].size, bool)
    for node, from_offset, end_offset in (*ending.hurt, *ending.damaged):
        whole &= (logs["node"] != node) | (logs["log_offset"] < from_offset) | (logs["log_offset"] >= end_offset)
    return whole


class _Held:
    """What the replicas hold, offset by offset, without a sort where offsets are dense.

    own:        the rows that are compared.
    offsets:    ascending, all that may be held; `place` has each own row's place among them.
    reference:  for each offset the row that the others are compared with: the leader's where the leader has one, else that of the
                smallest node; -1 where nobody holds it.
    """

    def __init__(self, logs: Columns, own: Array, leader: int) -> None:
        self.own, self.leader = own, leader
        offsets, self.nodes = logs["log_offset"][own], logs["node"][own]
        first, end = (int(offsets.min()), int(offsets.max()) + 1) if own.size else (0, 0)
        if end - first <= DENSE * own.size:
            self.offsets = np.arange(first, end)
            self.place = offsets - first
        else:
            self.offsets = distinct(offsets)
            self.place = np.searchsorted(self.offsets, offsets)
        self.reference = np.full(self.offsets.size, UNKNOWN, np.int64)
        for node in sorted(distinct(self.nodes).tolist(), key=lambda node: (node != leader, node), reverse=True):
            mine = np.flatnonzero(self.nodes == node)[::-1]  # of several rows the first one stays
            self.reference[self.place[mine]] = own[mine]

    def lacking(self, node: int) -> Array:
        """Return the offsets that somebody holds and this node does not."""
        has = np.zeros(self.offsets.size, bool)
        has[self.place[self.nodes == node]] = True
        return np.asarray(self.offsets[(self.reference != UNKNOWN) & ~has])


def _differ(logs: Columns, held: _Held) -> pa.Table:
    """Compare each row with the reference of its offset."""
    own, first = held.own, held.reference[held.place]
    odd = (logs["value"][own] != logs["value"][first]) | (
        (logs["is_control"][own] == 1) != (logs["is_control"][first] == 1)
    )
    epochs, expected = logs["leader_epoch"][own], logs["leader_epoch"][first]
    odd |= (epochs != expected) & (epochs != UNKNOWN) & (expected != UNKNOWN)
    rows = own[odd]
    rows = rows[np.lexsort((logs["node"][rows], logs["node"][rows] != held.leader, logs["log_offset"][rows]))]
    return anomalies(
        "replica_differs",
        log_offset=logs["log_offset"][rows],
        value=logs["value"][rows],
        node=logs["node"][rows],
        leader_epoch=logs["leader_epoch"][rows],
    )


def _lack(logs: Columns, held: _Held, context: Context) -> list[pa.Table]:
    ending = context.ending
    read = np.append(np.flatnonzero(np.bincount(logs["node"])), np.array([*context.dumped, *context.begins], np.int64))
    found = []
    for node in distinct(read[is_among(read, np.asarray(ending.members, np.int64))]).tolist():
        lacking = held.lacking(node)
        for member, from_offset, end_offset in (*ending.hurt, *ending.damaged):
            lacking = lacking[(lacking < from_offset) | (lacking >= end_offset)] if member == node else lacking
        begins = np.flatnonzero(np.append(True, np.diff(lacking) > 1)[: lacking.size])
        ends = np.append(begins[1:], lacking.size)[: begins.size] - 1
        nodes = np.full(begins.size, node, np.int64)
        found.append(anomalies("replica_lacks", log_offset=lacking[begins], other_offset=lacking[ends], node=nodes))
    of_anybody = held.offsets[held.reference != UNKNOWN]
    holes = np.flatnonzero(np.diff(of_anybody) > 1)
    return [
        *found,
        anomalies("replicas_lack", log_offset=of_anybody[holes] + 1, other_offset=of_anybody[holes + 1]),
    ]


def _epochs_back(logs: Columns, whole: Array) -> pa.Table:
    epochs, nodes, offsets = logs["leader_epoch"], logs["node"], logs["log_offset"]
    order = np.flatnonzero(whole & (epochs != UNKNOWN))
    epochs, nodes, offsets = epochs[order], nodes[order], offsets[order]
    same = nodes[1:] == nodes[:-1]
    if not ((nodes[1:] > nodes[:-1]) | (same & (offsets[1:] >= offsets[:-1]))).all():
        again = np.lexsort((offsets, nodes))
        order, epochs, nodes = order[again], epochs[again], nodes[again]
        same = nodes[1:] == nodes[:-1]
    back = 1 + np.flatnonzero(same & (epochs[1:] < epochs[:-1]))
    return anomalies(
        "epoch_back",
        log_offset=logs["log_offset"][order[back]],
        value=logs["value"][order[back]],
        node=logs["node"][order[back]],
        leader_epoch=logs["leader_epoch"][order[back]],
        other_offset=logs["log_offset"][order[back - 1]],
    )


SQL: Final = "".join(("WITH starts AS (", LOG_STARTS, """), shown AS (
  SELECT w.run_id, w.topic, w.partition, w.high_watermark FROM watermarks w
  JOIN endings e ON w.run_id = e.run_id AND w.topic = e.topic AND w.partition = e.partition
  WHERE w.source = 'node' AND w.leader_epoch >= e.since_epoch AND w.at_ns > e.anew_ns
  UNION ALL
  SELECT p.run_id, p.topic, p.partition, p.high_watermark FROM polls p
  JOIN endings e ON p.run_id = e.run_id AND p.topic = e.topic AND p.partition = e.partition
  WHERE p.phase = 'final' AND p.outcome = 'ok' AND p.invoke_ns > e.since_ns + 500000000
), ends AS (
  SELECT run_id, topic, partition, MAX(high_watermark) AS log_end FROM shown GROUP BY run_id, topic, partition
), whole AS (
  SELECT l.*, COALESCE(l.value, -1) AS own_value, COALESCE(l.leader_epoch, -1) AS own_epoch,
         COALESCE(l.is_control, FALSE) AS own_control
  FROM logs l
  ANTI JOIN hurt_disks h
    ON l.run_id = h.run_id AND l.topic = h.topic AND l.partition = h.partition AND l.node = h.node
   AND l.log_offset >= h.from_offset AND l.log_offset < h.end_offset
  ANTI JOIN damaged_batches d
    ON l.run_id = d.run_id AND l.topic = d.topic AND l.partition = d.partition AND l.node = d.node
   AND l.log_offset >= d.from_offset AND l.log_offset < d.end_offset
), held AS (
  SELECT w.run_id, w.topic, w.partition, w.node, w.log_offset, w.value, w.leader_epoch, w.own_value, w.own_epoch,
         w.own_control, CASE WHEN w.node = e.leader THEN 0 ELSE 1 END AS is_follower
  FROM whole w
  JOIN can_lead c ON w.run_id = c.run_id AND w.topic = c.topic AND w.partition = c.partition AND w.node = c.node
  JOIN endings e ON w.run_id = e.run_id AND w.topic = e.topic AND w.partition = e.partition
  JOIN ends s ON w.run_id = s.run_id AND w.topic = s.topic AND w.partition = s.partition
  LEFT JOIN starts b ON w.run_id = b.run_id AND w.topic = b.topic AND w.partition = b.partition
  WHERE w.log_offset >= COALESCE(b.log_start, 0) AND w.log_offset < s.log_end
), compared AS (
  SELECT *, FIRST_VALUE(own_value) OVER one AS first_value, FIRST_VALUE(own_epoch) OVER one AS first_epoch,
         FIRST_VALUE(own_control) OVER one AS first_control
  FROM held
  WINDOW one AS (PARTITION BY run_id, topic, partition, log_offset ORDER BY is_follower, node
                 ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
), offsets AS (
  SELECT DISTINCT run_id, topic, partition, log_offset FROM held
), members AS (
  SELECT DISTINCT l.run_id, l.topic, l.partition, l.node
  FROM (SELECT run_id, topic, partition, node FROM logs UNION SELECT run_id, topic, partition, node FROM dumped) l
  JOIN can_lead c ON l.run_id = c.run_id AND l.topic = c.topic AND l.partition = c.partition AND l.node = c.node
), wanted AS (
  SELECT o.run_id, o.topic, o.partition, m.node, o.log_offset, CASE WHEN h.node IS NULL THEN 1 ELSE 0 END AS is_lacking
  FROM offsets o
  JOIN members m ON o.run_id = m.run_id AND o.topic = m.topic AND o.partition = m.partition
  LEFT JOIN (SELECT DISTINCT run_id, topic, partition, node, log_offset FROM held) h
    ON o.run_id = h.run_id AND o.topic = h.topic AND o.partition = h.partition AND o.log_offset = h.log_offset
   AND m.node = h.node
  ANTI JOIN hurt_disks u
    ON o.run_id = u.run_id AND o.topic = u.topic AND o.partition = u.partition AND m.node = u.node
   AND o.log_offset >= u.from_offset AND o.log_offset < u.end_offset
  ANTI JOIN damaged_batches d
    ON o.run_id = d.run_id AND o.topic = d.topic AND o.partition = d.partition AND m.node = d.node
   AND o.log_offset >= d.from_offset AND o.log_offset < d.end_offset
), stretches AS (
  SELECT *, log_offset - ROW_NUMBER() OVER (PARTITION BY run_id, topic, partition, node ORDER BY log_offset) AS stretch
  FROM wanted WHERE is_lacking = 1
), steps AS (
  SELECT *, LEAD(log_offset) OVER (PARTITION BY run_id, topic, partition ORDER BY log_offset) AS next_offset FROM offsets
), along AS (
  SELECT *, LAG(own_epoch) OVER one AS epoch_before, LAG(log_offset) OVER one AS offset_before
  FROM whole WHERE own_epoch >= 0
  WINDOW one AS (PARTITION BY run_id, topic, partition, node ORDER BY log_offset)
), found AS (
  SELECT run_id, topic, partition, 'replica_differs' AS kind, log_offset, value, node, leader_epoch,
         CAST(NULL AS BIGINT) AS other_offset
  FROM compared
  WHERE own_value <> first_value OR own_control <> first_control
     OR (own_epoch <> first_epoch AND own_epoch >= 0 AND first_epoch >= 0)
  UNION ALL
  SELECT run_id, topic, partition, 'replica_lacks', MIN(log_offset), CAST(NULL AS BIGINT), node, CAST(NULL AS INT),
         MAX(log_offset)
  FROM stretches GROUP BY run_id, topic, partition, node, stretch
  UNION ALL
  SELECT run_id, topic, partition, 'replicas_lack', log_offset + 1, CAST(NULL AS BIGINT), CAST(NULL AS INT),
         CAST(NULL AS INT), next_offset
  FROM steps WHERE next_offset > log_offset + 1
  UNION ALL
  SELECT run_id, topic, partition, 'epoch_back', log_offset, value, node, leader_epoch, offset_before
  FROM along WHERE own_epoch < epoch_before
)
SELECT *, CAST(NULL AS INT) AS acks, CAST(NULL AS BIGINT) AS invoke_ns, CAST(NULL AS BIGINT) AS at_ns FROM found
"""))  # fmt: skip


PROPERTY: Final = Property(
    tables=("logs", "polls", "watermarks"),
    kinds=KINDS,
    kernel=kernel,
    sql=SQL,
)
