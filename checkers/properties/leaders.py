"""One leader per partition and leader epoch: by what the nodes themselves did, and by what the metadata log committed.

A node writes down a partition's high watermark only while it leads it (as a follower it records its log end alone), so two
nodes with such rows of one leader epoch both took themselves for its leader, and a node with one of an epoch that the
metadata log gave to another was never elected. Of a topic that was deleted and made anew under the same name each has leader epochs of its own; who is not
known to have learned of the deletion leads the deleted one on.
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
from tribunal.checkers.judge.led import NOBODY, UNKNOWN_TOPIC, Leaders
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
    figures = {"leader epochs seen at nodes": int(np.unique(epochs).size)}
    topics = context.leaders.topics(times)
    sure = (topics != UNKNOWN_TOPIC) & ~context.leaders.may_be_of_former(topics, epochs, nodes, times)
    led = np.stack([topics, epochs, nodes, times])[:, sure]
    led = led[:, np.lexsort(led[::-1])]
    first = np.append(True, (led[:3, 1:] != led[:3, :-1]).any(axis=0))[: led.shape[1]]
    topics, epochs, nodes, times = led[:, first]
    found = [_doubled(topics, epochs, nodes, times), _conflicting(topics, epochs, nodes, times, context.leaders)]
    return Found(pa.concat_tables(found), figures)


def _number(observer: str) -> int:
    number = observer.rpartition("-")[2]
    return int(number) if number.isdecimal() else UNKNOWN


def _doubled(topics: Array, epochs: Array, nodes: Array, times: Array) -> pa.Table:
    order = np.lexsort((nodes, times, epochs, topics))
    same = (topics[order][1:] == topics[order][:-1]) & (epochs[order][1:] == epochs[order][:-1])
    again = order[1:][same]
    return anomalies("two_leaders", leader_epoch=epochs[again], node=nodes[again], at_ns=times[again])


def _conflicting(topics: Array, epochs: Array, nodes: Array, times: Array, leaders: Leaders) -> pa.Table:
    elected = leaders.leaders(topics, epochs)
    wrong = (elected != NOBODY) & (elected != nodes)
    return anomalies("leader_not_elected", leader_epoch=epochs[wrong], node=nodes[wrong], at_ns=times[wrong])


def detail(anomaly: Anomaly) -> str:
    """Name the node and the epoch."""
    return f"node {anomaly.node} led in leader epoch {anomaly.leader_epoch}"


SQL: Final = """
WITH placed AS (
  SELECT w.run_id, w.topic, w.partition, t.made_anew, w.leader_epoch, CAST(SUBSTR(w.observer, 6) AS INT) AS node, w.at_ns
  FROM watermarks w JOIN topic_times t ON w.run_id = t.run_id AND w.topic = t.topic AND w.partition = t.partition
                                      AND w.at_ns >= t.since_ns AND w.at_ns < t.until_ns
  WHERE w.source = 'node' AND w.leader_epoch IS NOT NULL AND w.high_watermark IS NOT NULL
), led AS (
  SELECT p.run_id, p.topic, p.partition, p.made_anew, p.leader_epoch, p.node, MIN(p.at_ns) AS at_ns
  FROM placed p ANTI JOIN leaders f
    ON p.run_id = f.run_id AND p.topic = f.topic AND p.partition = f.partition AND p.leader_epoch = f.leader_epoch
   AND p.node = f.node AND f.made_anew < p.made_anew AND p.at_ns < f.until_ns
  GROUP BY p.run_id, p.topic, p.partition, p.made_anew, p.leader_epoch, p.node
), ranked AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY run_id, topic, partition, made_anew, leader_epoch ORDER BY at_ns, node) AS place
  FROM led
), found AS (
  SELECT run_id, topic, partition, 'two_leaders' AS kind, leader_epoch, node, at_ns FROM ranked WHERE place > 1
  UNION ALL
  SELECT l.run_id, l.topic, l.partition, 'leader_not_elected', l.leader_epoch, l.node, l.at_ns
  FROM led l JOIN leaders e
    ON l.run_id = e.run_id AND l.topic = e.topic AND l.partition = e.partition AND l.made_anew = e.made_anew
   AND l.leader_epoch = e.leader_epoch
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
