"""Below min ISR nothing is acknowledged with acks=all, and the high watermark does not move.

Only what surely happened while the leader knew of its ISR counts: a change is committed a little before it is observed, and a leader hears of one
that others made later still. What a leader says in a leader epoch that began with too small an ISR, it says knowingly. Otherwise
it knows half a lag of observation later, if no fault was in effect then nor had been for two seconds, and when it sends a heartbeat
after a controller has answered one, none of its fetches from controllers being hindered. In ZooKeeper mode the high
watermark may move below min ISR (KIP-966's rule is not in force there).

And nobody acknowledges but a leader: a node that never led the partition, in its whole history, has no say in what was written to it. One that led once and was
deposed may answer on for a while; what becomes of that is asked of each record.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from tribunal.checkers.api import (
    OK,
    UNKNOWN,
    Anomaly,
    Array,
    Context,
    Found,
    Kind,
    Meaning,
    PartitionRows,
    Property,
    anomalies,
    is_among,
    nothing,
)
from tribunal.checkers.judge.presence import Led, TooSmall, below_min_isr, ever_led
from tribunal.results.recording import WORDS

NODE: Final = WORDS["watermarks", "source"].index("node")
KINDS: Final = {
    "acknowledged_below_min_isr": Kind(
        Meaning.VIOLATION,
        "acks=all was acknowledged while the committed ISR was below min ISR (docs/spec.md, section 3.7)",
    ),
    "high_watermark_moved_below_min_isr": Kind(
        Meaning.VIOLATION,
        "the high watermark moved while the committed ISR was below min ISR (KIP-966, docs/invariants.md#i13)",
    ),
    "acknowledged_by_no_leader": Kind(
        Meaning.VIOLATION, "a node acknowledged a record of a partition that it never led (docs/invariants.md#i10)"
    ),
}


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Look at answers and at leaders' own high watermarks in times of too small an ISR.

    returns:  one row per record; of the high watermark one per step: log_offset is where it went to, other_offset where it was.
    source:   KIP-966, "Additional High Watermark advancement requirement"; SPEC 3.5.2, 3.7; I13 (docs/invariants.md).
    """
    return _found(rows, context, *_of_history(context))


def _of_history(context: Context) -> tuple[list[TooSmall], Led | None]:
    known = context.history, context.settings, context.of_run
    return below_min_isr(*known), ever_led(*known)


def _found(rows: PartitionRows, context: Context, times: Sequence[TooSmall], led: Led | None) -> Found:
    found = [] if led is None else [_by_no_leader(rows, led)]
    if not times:
        return Found(pa.concat_tables([nothing(), *found]))
    needs = context.history[-1].settings.high_watermark_needs_min_isr
    found += [_acknowledged(rows, times), *([_moved(rows, times)] if needs else [])]
    return Found(pa.concat_tables(found), {"times below min ISR": len(times)})


def _by_no_leader(rows: PartitionRows, led: Led) -> pa.Table:
    sends = rows.columns("sends")
    answered = (sends["answered_by"] != UNKNOWN) & ~is_among(sends["answered_by"], np.array(led.nodes, np.int64))
    chosen = np.flatnonzero(answered)
    chosen = chosen[(sends["outcome"][chosen] == OK) & (sends["complete_ns"][chosen] != UNKNOWN)]
    chosen = chosen[sends["complete_ns"][chosen] <= led.until_ns]
    return anomalies(
        "acknowledged_by_no_leader",
        log_offset=sends["log_offset"][chosen],
        value=sends["value"][chosen],
        acks=sends["acks"][chosen],
        node=sends["answered_by"][chosen],
        invoke_ns=sends["invoke_ns"][chosen],
        at_ns=sends["complete_ns"][chosen],
    )


def kernel_in_pieces(pieces: Iterable[PartitionRows], context: Context) -> Found:
    """Do the same piece by piece: nothing here depends on two sends."""
    times, led = _of_history(context)
    found = [_found(rows, context, times, led) for rows in pieces]
    return Found(pa.concat_tables([nothing(), *(one.anomalies for one in found)]), found[0].figures if found else {})


def _acknowledged(rows: PartitionRows, times: Sequence[TooSmall]) -> pa.Table:
    sends = rows.columns("sends")
    candidates = np.flatnonzero((sends["acks"] == -1) & (sends["outcome"] == OK))
    invoked, done = sends["invoke_ns"][candidates], sends["complete_ns"][candidates]
    wrong = np.zeros(candidates.size, bool)
    for time in times:
        inside = (invoked >= time.since_ns) & (done <= time.until_ns)
        if time.by is not None:
            own = sends["answered_by"][candidates] == time.by
            own |= (sends["answered_by"][candidates] == UNKNOWN) & time.is_only
            # What began with too small an ISR began at a time that nobody knows: only the epoch tells.
            inside &= own if time.since_ns >= 0 else sends["leader_epoch"][candidates] == time.of_epoch
        wrong |= inside
    chosen = candidates[wrong]
    return anomalies(
        "acknowledged_below_min_isr",
        log_offset=sends["log_offset"][chosen],
        value=sends["value"][chosen],
        acks=sends["acks"][chosen],
        invoke_ns=sends["invoke_ns"][chosen],
        at_ns=sends["complete_ns"][chosen],
    )


def _moved(rows: PartitionRows, times: Sequence[TooSmall]) -> pa.Table:
    seen = rows.columns("watermarks")
    known = (seen["source"] == NODE) & (seen["leader_epoch"] != UNKNOWN) & (seen["high_watermark"] != UNKNOWN)
    own = np.flatnonzero(known)
    order = own[
        np.lexsort((seen["high_watermark"][own], seen["at_ns"][own], seen["leader_epoch"][own], seen["observer"][own]))
    ]
    before, after = order[:-1], order[1:]
    step = (seen["observer"][before] == seen["observer"][after]) & _same_epoch(seen["leader_epoch"], before, after)
    step &= seen["high_watermark"][after] > seen["high_watermark"][before]
    wrong = np.zeros(after.size, bool)
    for time in times:
        inside = (seen["at_ns"][after] <= time.until_ns) & (seen["at_ns"][before] >= time.since_ns)
        wrong |= inside & (seen["leader_epoch"][after] == time.of_epoch if time.by is not None else True)
    chosen = step & wrong
    return anomalies(
        "high_watermark_moved_below_min_isr",
        log_offset=seen["high_watermark"][after[chosen]],
        other_offset=seen["high_watermark"][before[chosen]],
        invoke_ns=seen["at_ns"][before[chosen]],
        at_ns=seen["at_ns"][after[chosen]],
        leader_epoch=seen["leader_epoch"][after[chosen]],
    )


def _same_epoch(epochs: Array, before: Array, after: Array) -> Array:
    return np.asarray(epochs[before] == epochs[after])


def detail(anomaly: Anomaly) -> str:
    """Name who acknowledged what was not its own."""
    return "" if anomaly.node is None else f"node {anomaly.node} acknowledged it, and never led the partition"


SQL: Final = """
WITH steps AS (
  SELECT *, LAG(high_watermark) OVER one AS was_at, LAG(at_ns) OVER one AS was_ns FROM watermarks
  WHERE source = 'node' AND leader_epoch IS NOT NULL AND high_watermark IS NOT NULL
  WINDOW one AS (PARTITION BY run_id, topic, partition, observer, leader_epoch ORDER BY at_ns, high_watermark)
)
SELECT DISTINCT s.run_id, s.topic, s.partition, 'acknowledged_below_min_isr' AS kind, s.log_offset, s.value, s.acks,
       s.invoke_ns, s.complete_ns AS at_ns, CAST(NULL AS INT) AS leader_epoch, CAST(NULL AS BIGINT) AS other_offset,
       CAST(NULL AS INT) AS node
FROM sends s JOIN below_min_isr b ON s.run_id = b.run_id AND s.topic = b.topic AND s.partition = b.partition
WHERE s.acks = -1 AND s.outcome = 'ok' AND COALESCE(s.complete_ns, -1) <= b.until_ns
  AND s.invoke_ns >= b.since_ns
  AND (b.said_by IS NULL OR (b.since_ns < 0 AND s.leader_epoch = b.of_epoch)
    OR (b.since_ns >= 0 AND (s.answered_by = b.said_by OR (s.answered_by IS NULL AND b.is_only = 1))))
UNION ALL
SELECT DISTINCT w.run_id, w.topic, w.partition, 'high_watermark_moved_below_min_isr', w.high_watermark, CAST(NULL AS BIGINT),
       CAST(NULL AS INT), w.was_ns, w.at_ns, w.leader_epoch, w.was_at, CAST(NULL AS INT)
FROM steps w JOIN below_min_isr b ON w.run_id = b.run_id AND w.topic = b.topic AND w.partition = b.partition
WHERE b.needs_min_isr = 1 AND w.high_watermark > w.was_at AND w.at_ns <= b.until_ns
  AND w.was_ns >= b.since_ns AND (b.said_by IS NULL OR w.leader_epoch = b.of_epoch)
UNION ALL
SELECT DISTINCT s.run_id, s.topic, s.partition, 'acknowledged_by_no_leader', s.log_offset, s.value, s.acks,
       s.invoke_ns, s.complete_ns, CAST(NULL AS INT), CAST(NULL AS BIGINT), s.answered_by
FROM sends s JOIN ever_led e ON s.run_id = e.run_id AND s.topic = e.topic AND s.partition = e.partition
LEFT JOIN ever_led l
  ON s.run_id = l.run_id AND s.topic = l.topic AND s.partition = l.partition AND s.answered_by = l.node
WHERE s.outcome = 'ok' AND s.answered_by IS NOT NULL AND s.complete_ns <= e.until_ns AND l.node IS NULL
"""


PROPERTY: Final = Property(
    tables=("sends", "watermarks"),
    kinds=KINDS,
    kernel=kernel,
    kernel_in_pieces=kernel_in_pieces,
    columns_in_pieces={
        "sends": ("acks", "outcome", "invoke_ns", "complete_ns", "value", "log_offset", "leader_epoch", "answered_by")
    },
    detail=detail,
    sql=SQL,
)
