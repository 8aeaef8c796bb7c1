"""How long a partition acknowledged nothing although it was asked to: figures, never a verdict.

Slow is not wrong. An interval counts from one acknowledgement to the next of the same acks, if it is a second or
longer and something was sent in it.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.api import OK, Columns, Context, Found, Kind, Meaning, PartitionRows, anomalies

TABLES: Final = ("sends",)
LEAST_NS: Final = 1_000_000_000
KINDS: Final = {"unavailable": Kind(Meaning.NOTE, "nothing was acknowledged for a second or longer")}


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Return the intervals without an acknowledgement: invoke_ns is where it begins, at_ns where it ends."""
    sends = rows.columns("sends")
    return Found(pa.concat_tables([_intervals(sends, acks) for acks in (-1, 1)]))


def _intervals(sends: Columns, acks: int) -> pa.Table:
    own = sends["acks"] == acks
    done = np.sort(sends["complete_ns"][own & (sends["outcome"] == OK)])
    asked = np.sort(sends["invoke_ns"][own])
    wide = np.flatnonzero(np.diff(done) >= LEAST_NS)
    start, end = done[wide], done[wide + 1]
    tried = np.searchsorted(asked, end, "left") > np.searchsorted(asked, start, "right")
    start, end = start[tried], end[tried]
    return anomalies(
        "unavailable",
        acks=np.full(start.size, acks),
        invoke_ns=start,
        at_ns=end,
    )


def detail(anomaly: Mapping[str, Any]) -> str:
    """Say how long it was."""
    first, last = anomaly["invoke_ns"], anomaly["at_ns"]
    return f"{(last - first) / 1e9:.3f} s from {first / 1e9:.3f} s on"


SQL: Final = """
WITH steps AS (
  SELECT run_id, topic, partition, acks, complete_ns AS at_ns,
         LAG(complete_ns) OVER (PARTITION BY run_id, topic, partition, acks ORDER BY complete_ns) AS invoke_ns
  FROM sends WHERE outcome = 'ok' AND acks <> 0
)
SELECT DISTINCT t.run_id, t.topic, t.partition, 'unavailable' AS kind, CAST(NULL AS BIGINT) AS log_offset,
       CAST(NULL AS BIGINT) AS value, t.acks, t.invoke_ns, t.at_ns, CAST(NULL AS INT) AS leader_epoch,
       CAST(NULL AS BIGINT) AS other_offset
FROM steps t JOIN sends s
  ON t.run_id = s.run_id AND t.topic = s.topic AND t.partition = s.partition AND t.acks = s.acks
 AND s.invoke_ns > t.invoke_ns AND s.invoke_ns < t.at_ns
WHERE t.at_ns - t.invoke_ns >= 1000000000
"""
