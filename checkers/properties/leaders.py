"""One leader per partition and leader epoch: by what the nodes themselves did, and by what the metadata log committed.

A node writes down a partition's high watermark only while it leads it (as a follower it records its log end alone), so two
nodes with such rows of one leader epoch both took themselves for its leader, and a node with one of an epoch that the
metadata log gave to another was never elected.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from tribunal.checkers.api import (
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
    nothing,
)
from tribunal.results.recording import WORDS

NODE: Final = WORDS["watermarks", "source"].index("node")
KINDS: Final = {
    "two_leaders": Kind(
        Meaning.VIOLATION, "two nodes led one partition in the same leader epoch (docs/invariants.md#i10)"
    ),
    "leader_not_elected": Kind(
        Meaning.VIOLATION,
        "a node led in a leader epoch that the metadata log gave to another one (docs/invariants.md#i10)",
    ),
}


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Look at who led in which leader epoch.

    returns:  one row per node beyond the first of an epoch, and per node that was not elected; at_ns: its first row of the epoch.
    source:   I10 (docs/invariants.md); KIP-101, KIP-595.
    """
    seen = rows.columns("watermarks")
    is_known = (seen["leader_epoch"] != UNKNOWN) & (seen["high_watermark"] != UNKNOWN)
    own = np.flatnonzero((seen["source"] == NODE) & is_known)
    if own.size == 0:
        return Found(nothing())
    names = rows.words("watermarks", "observer")
    nodes = np.array([_number(name) for name in names], np.int64)[seen["observer"][own]]
    epochs, times = seen["leader_epoch"][own], seen["at_ns"][own]
    order = np.lexsort((times, nodes, epochs))
    epochs, nodes, times = epochs[order], nodes[order], times[order]
    first = np.append(True, (epochs[1:] != epochs[:-1]) | (nodes[1:] != nodes[:-1]))
    epochs, nodes, times = epochs[first], nodes[first], times[first]
    found = [_doubled(epochs, nodes, times), _conflicting(epochs, nodes, times, context)]
    return Found(pa.concat_tables(found), {"leader epochs seen at nodes": int(np.unique(epochs).size)})


def _number(observer: str) -> int:
    number = observer.rpartition("-")[2]
    return int(number) if number.isdigit() else UNKNOWN


def _doubled(epochs: Array, nodes: Array, times: Array) -> pa.Table:
    order = np.lexsort((nodes, times, epochs))
    again = order[1:][epochs[order][1:] == epochs[order][:-1]]
    return anomalies("two_leaders", leader_epoch=epochs[again], node=nodes[again], at_ns=times[again])


def _conflicting(epochs: Array, nodes: Array, times: Array, context: Context) -> pa.Table:
    elected = dict(context.leaders)
    leaders = np.array([elected.get(epoch, UNKNOWN) for epoch in epochs.tolist()], np.int64)
    wrong = (leaders != UNKNOWN) & (leaders != nodes)
    return anomalies("leader_not_elected", leader_epoch=epochs[wrong], node=nodes[wrong], at_ns=times[wrong])


def detail(anomaly: Anomaly) -> str:
    """Name the node and the epoch."""
    return f"node {anomaly.node} led in leader epoch {anomaly.leader_epoch}"


SQL: Final = """
WITH led AS (
  SELECT run_id, topic, partition, leader_epoch, CAST(SUBSTR(observer, 6) AS INT) AS node, MIN(at_ns) AS at_ns
  FROM watermarks WHERE source = 'node' AND leader_epoch IS NOT NULL AND high_watermark IS NOT NULL
  GROUP BY run_id, topic, partition, leader_epoch, observer
), ranked AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY run_id, topic, partition, leader_epoch ORDER BY at_ns, node) AS place FROM led
), found AS (
  SELECT run_id, topic, partition, 'two_leaders' AS kind, leader_epoch, node, at_ns FROM ranked WHERE place > 1
  UNION ALL
  SELECT l.run_id, l.topic, l.partition, 'leader_not_elected', l.leader_epoch, l.node, l.at_ns
  FROM led l JOIN leaders e
    ON l.run_id = e.run_id AND l.topic = e.topic AND l.partition = e.partition AND l.leader_epoch = e.leader_epoch
  WHERE l.node <> e.node
)
SELECT *, CAST(NULL AS BIGINT) AS log_offset, CAST(NULL AS BIGINT) AS value, CAST(NULL AS INT) AS acks,
       CAST(NULL AS BIGINT) AS invoke_ns, CAST(NULL AS BIGINT) AS other_offset FROM found
"""


PROPERTY: Final = Property(
    tables=("watermarks",),
    kinds=KINDS,
    kernel=kernel,
    detail=detail,
    sql=SQL,
)
