"""Records are what was sent, whole: key, headers, timestamp and its type, and not only the value.

A recording says of each record that was received, or lies on a disk, what differs from what was sent; most say nothing.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from tribunal.checkers.api import (
    UNKNOWN,
    Array,
    Context,
    Found,
    Kind,
    Meaning,
    PartitionRows,
    Property,
    anomalies,
    nothing,
    sends_by_value,
)

KINDS: Final = {
    "changed_record": Kind(
        Meaning.VIOLATION, "a record's key, headers, timestamp or timestamp type is not what was sent"
    ),
}


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Look for records of which anything differs.

    returns:  one row per offset and difference as readers have it, and per node as its log has it.
    source:   SPEC 3.2; docs/recording-format.md, `content`.
    """
    found = [_changed(rows, "reads"), _changed(rows, "logs")]
    compared = rows.table("reads").num_rows + rows.table("logs").num_rows
    return Found(pa.concat_tables(found), {"records compared whole": compared})


def _changed(rows: PartitionRows, name: str) -> pa.Table:
    content = rows.table(name)["content"]
    if content.null_count == len(content):
        return nothing()
    columns = rows.columns(name)
    differing = np.flatnonzero(~content.is_null().to_numpy())
    texts = content.take(pa.array(differing)).to_pylist()
    values = columns["value"][differing]
    expected = _sent(rows, values)
    nodes = columns["node"][differing] if name == "logs" else np.full(differing.size, UNKNOWN, np.int64)
    changed = {
        (offset, value, node, text)
        for offset, value, node, text, sent in zip(
            columns["log_offset"][differing].tolist(), values.tolist(), nodes.tolist(), texts, expected, strict=True
        )
        if text != sent
    }
    ordered = sorted(changed)
    return anomalies(
        "changed_record",
        log_offset=[offset for offset, _, _, _ in ordered],
        value=[value for _, value, _, _ in ordered],
        node=[node for _, _, node, _ in ordered],
        detail=[text for _, _, _, text in ordered],
    )


def _sent(rows: PartitionRows, values: Array) -> list[str | None]:
    """Return what was said of each record when it was sent; None: nothing out of the ordinary."""
    places = rows.derived(sends_by_value).rows(values)
    content = rows.table("sends")["content"].to_pylist()
    return [None if place == UNKNOWN else content[place] for place in places.tolist()]


SQL: Final = """
WITH differing AS (
  SELECT run_id, topic, partition, log_offset, value, CAST(NULL AS INT) AS node, content FROM reads WHERE content IS NOT NULL
  UNION
  SELECT run_id, topic, partition, log_offset, value, node, content FROM logs WHERE content IS NOT NULL
)
SELECT t.run_id, t.topic, t.partition, 'changed_record' AS kind, t.log_offset, t.value, t.node, t.content AS detail,
       CAST(NULL AS INT) AS acks, CAST(NULL AS BIGINT) AS invoke_ns, CAST(NULL AS BIGINT) AS at_ns,
       CAST(NULL AS INT) AS leader_epoch, CAST(NULL AS BIGINT) AS other_offset
FROM differing t LEFT JOIN sends s
  ON t.run_id = s.run_id AND t.topic = s.topic AND t.partition = s.partition AND t.value = s.value
WHERE s.content IS NULL OR s.content <> t.content
"""


PROPERTY: Final = Property(
    tables=("sends", "reads", "logs"),
    kinds=KINDS,
    kernel=kernel,
    sql=SQL,
)
