"""Watermarks that went back, and log starts beyond the high watermark.

A new leader's Fetch answers may show a lower high watermark for a while, so only these count (docs/known-bugs.md, point 3):
the high watermark and the last stable offset that one replica shows one observer within one leader epoch (a follower that serves
readers, KIP-392, hears of both later than its leader), and the latest offset (ListOffsets) of one observer across all epochs. Observers are not compared with each other: an observation
has no invocation time, so which came first cannot be said. What was read and later vanished is `lost_writes`.
A step back is judged by what had to survive of the offsets in between.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from tribunal.checkers.api import (
    UNKNOWN,
    Array,
    Columns,
    Context,
    Found,
    Kind,
    Meaning,
    PartitionRows,
    Property,
    anomalies,
)
from tribunal.results.recording import WORDS

KINDS: Final = {
    "high_watermark_back": Kind(Meaning.PROMISED, "the high watermark went back within one leader epoch"),
    "latest_offset_back": Kind(Meaning.PROMISED, "the latest offset (ListOffsets) went back"),
    "last_stable_offset_back": Kind(Meaning.PROMISED, "the last stable offset went back within one leader epoch"),
    "log_start_beyond_high_watermark": Kind(Meaning.VIOLATION, "the log start lies beyond the high watermark"),
}
_SOURCES: Final = WORDS["watermarks", "source"]
LIST_OFFSETS: Final = _SOURCES.index("list_offsets")


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Look for steps back, observer by observer.

    rows:     watermarks of one partition, any order.
    returns:  one row per step back: log_offset is where it fell to, other_offset where it had been;
              at_ns when it was seen to be back, invoke_ns when it had been there.
    source:   KIP-207; docs/verdicts.md, "Watermarks"; I4, I5, I18 (docs/invariants.md).
    """
    seen = rows.columns("watermarks")
    asked = seen["source"] == LIST_OFFSETS
    answered = ~asked & (seen["leader_epoch"] != UNKNOWN)
    found = [
        _steps_back("high_watermark_back", seen, answered, "high_watermark", within_epoch=True),
        _steps_back("last_stable_offset_back", seen, answered, "last_stable_offset", within_epoch=True),
        _steps_back("latest_offset_back", seen, asked, "log_end_offset", within_epoch=False),
        _start_beyond(seen),
    ]
    bounded = (seen["log_start_offset"] != UNKNOWN) & (seen["high_watermark"] != UNKNOWN)
    shown = (seen["high_watermark"] != UNKNOWN) | (seen["last_stable_offset"] != UNKNOWN)
    judged = bounded | (answered & shown) | (asked & (seen["log_end_offset"] != UNKNOWN))
    counts = {"watermarks judged": int(judged.sum()), "watermarks observed": int(judged.size)}
    return Found(pa.concat_tables(found), counts)


def _steps_back(kind: str, seen: Columns, chosen: Array, column: str, *, within_epoch: bool) -> pa.Table:
    chosen = np.flatnonzero(chosen & (seen[column] != UNKNOWN))
    none = np.zeros(chosen.size, np.int64)
    epochs, replicas = (seen[name][chosen] if within_epoch else none for name in ("leader_epoch", "answered_by"))
    # Observations of one instant are not ordered: the lower one first, so that no step back is made up.
    order = chosen[
        np.lexsort((seen[column][chosen], seen["at_ns"][chosen], replicas, epochs, seen["observer"][chosen]))
    ]
    if order.size == 0:
        return anomalies(kind, log_offset=np.zeros(0, np.int64))
    offsets = seen[column][order]
    changes = seen["observer"][order][1:] != seen["observer"][order][:-1]
    if within_epoch:
        for name in ("leader_epoch", "answered_by"):
            changes |= seen[name][order][1:] != seen[name][order][:-1]
    back = 1 + np.flatnonzero((offsets[1:] < offsets[:-1]) & ~changes)
    return anomalies(
        kind,
        log_offset=offsets[back],
        other_offset=offsets[back - 1],
        invoke_ns=seen["at_ns"][order[back - 1]],
        at_ns=seen["at_ns"][order[back]],
        leader_epoch=seen["leader_epoch"][order[back]],
    )


def _start_beyond(seen: Columns) -> pa.Table:
    known = (seen["log_start_offset"] != UNKNOWN) & (seen["high_watermark"] != UNKNOWN)
    beyond = known & (seen["log_start_offset"] > seen["high_watermark"])
    return anomalies(
        "log_start_beyond_high_watermark",
        log_offset=seen["high_watermark"][beyond],
        other_offset=seen["log_start_offset"][beyond],
        at_ns=seen["at_ns"][beyond],
        leader_epoch=seen["leader_epoch"][beyond],
    )


SQL: Final = """
WITH marked AS (
  SELECT *,
    CASE WHEN source <> 'list_offsets' AND leader_epoch IS NOT NULL AND high_watermark IS NOT NULL THEN 1
         ELSE 0 END AS has_high_watermark,
    CASE WHEN source <> 'list_offsets' AND leader_epoch IS NOT NULL AND last_stable_offset IS NOT NULL THEN 1
         ELSE 0 END AS has_last_stable,
    CASE WHEN source = 'list_offsets' AND log_end_offset IS NOT NULL THEN 1 ELSE 0 END AS has_latest
  FROM watermarks
), steps AS (
  SELECT run_id, topic, partition, 'high_watermark_back' AS kind, has_high_watermark AS is_known,
    high_watermark AS log_offset, leader_epoch, at_ns,
    LAG(high_watermark) OVER high AS other_offset, LAG(at_ns) OVER high AS invoke_ns
  FROM marked
  WINDOW high AS (PARTITION BY run_id, topic, partition, observer, leader_epoch, answered_by, has_high_watermark
                  ORDER BY at_ns, high_watermark)
  UNION ALL
  SELECT run_id, topic, partition, 'last_stable_offset_back', has_last_stable, last_stable_offset,
    leader_epoch, at_ns,
    LAG(last_stable_offset) OVER stable, LAG(at_ns) OVER stable
  FROM marked
  WINDOW stable AS (PARTITION BY run_id, topic, partition, observer, leader_epoch, answered_by, has_last_stable
                    ORDER BY at_ns, last_stable_offset)
  UNION ALL
  SELECT run_id, topic, partition, 'latest_offset_back', has_latest, log_end_offset, leader_epoch, at_ns,
    LAG(log_end_offset) OVER latest, LAG(at_ns) OVER latest
  FROM marked
  WINDOW latest AS (PARTITION BY run_id, topic, partition, observer, has_latest ORDER BY at_ns, log_end_offset)
)
SELECT run_id, topic, partition, kind, log_offset, CAST(NULL AS BIGINT) AS value, CAST(NULL AS INT) AS acks, invoke_ns,
       at_ns, leader_epoch, other_offset
FROM steps WHERE is_known = 1 AND log_offset < other_offset
UNION ALL
SELECT run_id, topic, partition, 'log_start_beyond_high_watermark', high_watermark, CAST(NULL AS BIGINT),
       CAST(NULL AS INT), CAST(NULL AS BIGINT), at_ns, leader_epoch, log_start_offset
FROM watermarks WHERE log_start_offset > high_watermark
"""


PROPERTY: Final = Property(
    tables=("watermarks",),
    kinds=KINDS,
    kernel=kernel,
    sql=SQL,
)
