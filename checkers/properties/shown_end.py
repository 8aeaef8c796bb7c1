"""The highest watermark that was shown, against the end of the final log: what was shown is promised to be there.

The end is that of complete final reads, or else of the logs of those that can lead, also of one that was read and holds nothing; what was
shown after the final reads is compared with these alone, for a late request may have been served behind them. Every stretch behind it is judged by the last that
showed it: only an election after that can have taken it by right. Shown by leaders themselves, by Fetch answers whose leader
epoch is known, and by ListOffsets. What else a consumer was shown may be older than its poll: clients fetch ahead.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from tribunal.checkers.api import (
    FINAL,
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
    distinct,
    is_among,
    nothing,
)
from tribunal.checkers.properties.lost_writes import READERS, complete_readers
from tribunal.checkers.properties.watermarks import stretches
from tribunal.results.recording import WORDS

LIST_OFFSETS: Final = WORDS["watermarks", "source"].index("list_offsets")
KINDS: Final = {
    "shown_end_lost": Kind(
        Meaning.PROMISED, "a high watermark was shown beyond the end of the final log (docs/invariants.md#i4)"
    ),
}


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Look for observations beyond the final end.

    returns:  one row per stretch: from log_offset on it is gone, before other_offset it had been shown, at invoke_ns for the last time.
    source:   I4, I5 (docs/invariants.md); docs/verdicts.md, "Watermarks".
    """
    read, logged = read_end(rows), logged_end(rows, context)
    if read is None and logged is None:
        return Found(nothing())
    seen, polls = rows.columns("watermarks"), rows.columns("polls")
    asked, known = seen["source"] == LIST_OFFSETS, seen["leader_epoch"] != UNKNOWN
    answered = polls["leader_epoch"] != UNKNOWN
    columns = [
        np.concatenate([seen[name][known & ~asked], polls[other][answered]])
        for name, other in (
            ("leader_epoch", "leader_epoch"),
            ("at_ns", "invoke_ns"),
            ("high_watermark", "high_watermark"),
            ("at_ns", "complete_ns"),  # what a poll was shown was shown by its end
        )
    ]
    unknown, at_ns = np.full(int(asked.sum()), UNKNOWN, np.int64), seen["at_ns"][asked]
    both = [columns, [unknown, at_ns, seen["high_watermark"][asked], at_ns]]
    found = [_gone(end, *shown) for end, shown in _compared(read, logged, both)]
    return Found(pa.concat_tables(found), {"ends compared with what was shown": 1})


def _compared(
    read: "ReadEnd | None", logged: int | None, observed: Sequence[Sequence[Array]]
) -> Iterator[tuple[int, Sequence[Array]]]:
    """Yield ends, and the observations that each is compared with: what came behind a final read was not there to be read."""
    for epochs, at_ns, high_watermarks, done_ns in observed:
        shown = [epochs, at_ns, high_watermarks]
        if read is None:
            yield logged or 0, shown
            continue
        was_before = np.where(done_ns == UNKNOWN, at_ns, done_ns) <= read.until_ns
        yield read.end, [column[was_before] for column in shown]
        if logged is not None:
            yield max(logged, read.end), [column[~was_before] for column in shown]


class ReadEnd(NamedTuple):
    """Where complete final reads ended, and until when there was nothing behind that.

    What an empty poll asked may be answered behind its end, with a record that came meanwhile: it proves nothing later than its begin.
    """

    end: int
    until_ns: int


def read_end(rows: PartitionRows) -> ReadEnd | None:
    """Return the end of complete final reads; None: there are none."""
    polls = rows.columns("polls")
    final = (polls["phase"] == FINAL) & (polls["outcome"] == OK) & is_among(polls["process"], complete_readers(polls))
    empty = final & (polls["record_count"] == 0)  # every complete reader has one
    return ReadEnd(int(polls["position"][final].max()), int(polls["invoke_ns"][empty].max())) if empty.any() else None


def logged_end(rows: PartitionRows, context: Context) -> int | None:
    """Return the end of the logs of all that can lead; None: not all of them were recorded."""
    logs = rows.columns("logs")
    members = np.asarray(context.can_lead, np.int64)
    held = is_among(logs["node"], members)
    known = {*distinct(logs["node"][held]).tolist(), *(node for node in context.dumped if node in context.can_lead)}
    if members.size == 0 or len(known) < members.size:
        return None
    # Where all of a log is deleted its end is where it begins.
    starts = [start for node, start in context.dumped.items() if node in context.can_lead]
    return max(int(logs["log_offset"][held].max(initial=-1)) + 1, *starts, 0)


def _gone(end: int, epochs: Array, times: Array, shown: Array) -> pa.Table:
    """Return what each observation shows that none behind it does: by leader epoch, then by time."""
    rows, so_far = stretches(np.arange(shown.size), end, epochs, times, shown)
    return anomalies(
        "shown_end_lost",
        log_offset=so_far,
        other_offset=shown[rows],
        invoke_ns=times[rows],
        leader_epoch=epochs[rows],
    )


def detail(anomaly: Anomaly) -> str:
    """Say what was shown."""
    return f"the high watermark {anomaly.other_offset} was shown; from {anomaly.log_offset} on the log is gone"


SQL: Final = "".join((READERS, """, read_ends AS (
  SELECT p.run_id, p.topic, p.partition, MAX(p.position) AS log_end,
    MAX(CASE WHEN p.record_count = 0 THEN p.invoke_ns END) AS until_ns FROM polls p
  JOIN readers r ON p.run_id = r.run_id AND p.topic = r.topic AND p.partition = r.partition AND p.process = r.process
  WHERE p.phase = 'final' AND p.outcome = 'ok' GROUP BY p.run_id, p.topic, p.partition
), logged AS (
  SELECT c.run_id, c.topic, c.partition, MAX(l.log_end) AS log_end FROM can_lead c
  LEFT JOIN (
    SELECT run_id, topic, partition, node, log_offset + 1 AS log_end FROM logs
    UNION ALL
    SELECT run_id, topic, partition, node, log_start_offset FROM dumped
  ) l ON l.run_id = c.run_id AND l.topic = c.topic AND l.partition = c.partition AND l.node = c.node
  GROUP BY c.run_id, c.topic, c.partition HAVING COUNT(DISTINCT c.node) = COUNT(DISTINCT l.node)
), ends AS (
  SELECT run_id, topic, partition, log_end, CAST(-1 AS BIGINT) AS after_ns, until_ns FROM read_ends
  UNION ALL
  SELECT l.run_id, l.topic, l.partition, GREATEST(l.log_end, COALESCE(r.log_end, 0)), COALESCE(r.until_ns, -1),
    CAST(9223372036854775807 AS BIGINT)
  FROM logged l
  LEFT JOIN read_ends r ON l.run_id = r.run_id AND l.topic = r.topic AND l.partition = r.partition
), shown AS (
  SELECT run_id, topic, partition, leader_epoch, at_ns, high_watermark, 'answer' AS sort, at_ns AS done_ns FROM watermarks
  WHERE source <> 'list_offsets' AND leader_epoch IS NOT NULL
  UNION ALL
  SELECT run_id, topic, partition, leader_epoch, invoke_ns, high_watermark, 'answer', COALESCE(complete_ns, invoke_ns) FROM polls
  WHERE leader_epoch IS NOT NULL
  UNION ALL
  SELECT run_id, topic, partition, CAST(NULL AS INT), at_ns, high_watermark, 'asked', at_ns FROM watermarks
  WHERE source = 'list_offsets'
), behind AS (
  SELECT DISTINCT t.run_id, t.topic, t.partition, t.leader_epoch, t.at_ns, t.high_watermark, t.sort, e.log_end,
    e.after_ns
  FROM shown t JOIN ends e ON t.run_id = e.run_id AND t.topic = e.topic AND t.partition = e.partition
  WHERE t.high_watermark > e.log_end AND t.done_ns > e.after_ns AND t.done_ns <= e.until_ns
), stretches AS (
  SELECT *, COALESCE(MAX(high_watermark) OVER (PARTITION BY run_id, topic, partition, sort, after_ns
                                               ORDER BY COALESCE(leader_epoch, -1) DESC, at_ns DESC, high_watermark DESC
                                               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), log_end) AS so_far
  FROM behind
)
SELECT run_id, topic, partition, 'shown_end_lost' AS kind, so_far AS log_offset, CAST(NULL AS BIGINT) AS value,
       CAST(NULL AS INT) AS acks, at_ns AS invoke_ns, CAST(NULL AS BIGINT) AS at_ns, leader_epoch,
       high_watermark AS other_offset
FROM stretches WHERE high_watermark > so_far
"""))  # fmt: skip


PROPERTY: Final = Property(
    tables=("polls", "watermarks"),
    kinds=KINDS,
    kernel=kernel,
    detail=detail,
    sql=SQL,
)
