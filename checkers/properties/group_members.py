"""A group's work: nothing before a committed offset was left out, and no commit counts from a generation that has passed.

A commit names its member's generation. Once a commit of a later generation has been answered, that generation is stored, and one of
an earlier generation that is made afterwards has to be refused: its partitions belong to others now. What is committed says
that all records before were received by some member. Commits in transactions are `exactly_once`'s business as to the second.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tribunal.checkers.api import (
    FINAL,
    TAIL,
    UNKNOWN,
    Anomaly,
    Array,
    Columns,
    Context,
    Excuse,
    Found,
    Kind,
    LargePartition,
    Meaning,
    PartitionRows,
    Property,
    anomalies,
    distinct,
    is_among,
    nothing,
    sends_of_reads,
)
from tribunal.checkers.properties.group_offsets import answered, may_count
from tribunal.checkers.properties.lost_writes import READERS, acknowledged_sends, complete_readers, final_reads

SENTENCES: Final = {
    "stale_generation": "a commit of a generation that had passed was accepted",
    "unconsumed": "an acknowledged record lies before a committed offset, and no member received it",
}
SENT: Final = ("value", "acks", "outcome", "txn_id")
KINDS: Final = {
    # A group's generation lies beside its positions: who lost the one counts the other anew.
    "stale_generation": Kind(Meaning.VIOLATION, SENTENCES["stale_generation"], excused_by=(Excuse.POSITIONS_LOST,)),
    "unconsumed": Kind(Meaning.VIOLATION, SENTENCES["unconsumed"], excused_by=(Excuse.TAIL_LOST,)),
}


class Consumed(NamedTuple):
    """What a group says that it consumed: all before an offset, by one of its members."""

    end_offset: int
    members: Array


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Look at every group's commits.

    returns:  stale_generation: log_offset is what was committed, invoke_ns and at_ns when; unconsumed: log_offset, value.
    source:   SPEC 4.3.4, M84; I19 (docs/invariants.md).
    """
    found, groups = _of_commits(rows, context)
    left_out = [_left_out(_unconsumed(rows, context, own)) for own in groups]
    return msgspec.structs.replace(found, anomalies=pa.concat_tables([found.anomalies, *left_out]))


def kernel_in_ranges(partition: LargePartition, context: Context) -> Found:
    """Do the same range by range: of what was read in the end only what no member received in the same range is kept."""
    found, groups = _of_commits(partition.small, context)
    pairs = _unconsumed_in_ranges(partition, context, groups) if groups else []
    left_out = [_left_out(own) for own in pairs]
    return msgspec.structs.replace(found, anomalies=pa.concat_tables([found.anomalies, *left_out]))


def _of_commits(rows: PartitionRows, context: Context) -> tuple[Found, list[Consumed]]:
    """Return what commits alone show, and what each group that committed any outside of transactions says that it consumed."""
    commits = rows.columns("commits")
    if commits["kind"].size == 0:
        return Found(nothing()), []
    fine = answered(commits)
    groups = np.unique(commits["group"]).tolist()
    stale = [_stale(commits, np.flatnonzero(fine & (commits["group"] == group))) for group in groups]
    figures = {"commits of groups": int(fine.sum())}
    return Found(pa.concat_tables([nothing(), *stale]), figures), [*consumed(rows, context).values()]


def consumed(rows: PartitionRows, context: Context) -> dict[str, Consumed]:
    """Return what each group says that it consumed, of those that committed any position outside of transactions.

    rows:  commits.
    """
    commits, words = rows.columns("commits"), rows.words("commits", "group")
    perhaps = may_count(commits)
    transactional = is_among(commits["process"], distinct(context.transactions()["process"].to_numpy()))
    outside = answered(commits) & ~transactional
    found = {}
    for group in np.unique(commits["group"][outside]).tolist():
        own = commits["group"] == group
        members = distinct(commits["process"][perhaps & own])
        found[words[group]] = Consumed(int(commits["committed_offset"][outside & own].max()), members)
    return found


def _stale(commits: Columns, own: Array) -> pa.Table:
    own = own[commits["generation"][own] != UNKNOWN]
    if own.size == 0:
        return nothing()
    generation, done = commits["generation"][own], commits["complete_ns"][own]
    order = np.argsort(done, kind="stable")
    newest = np.append(UNKNOWN, np.maximum.accumulate(generation[order]))
    known = newest[np.searchsorted(done[order], commits["invoke_ns"][own], "left")]
    stale = own[known > generation]
    return anomalies(
        "stale_generation",
        log_offset=commits["committed_offset"][stale],
        invoke_ns=commits["invoke_ns"][stale],
        at_ns=commits["complete_ns"][stale],
        process=commits["process"][stale],
    )


def _unconsumed(rows: PartitionRows, context: Context, group: Consumed) -> Array:
    """Return offset and value of acknowledged records that no member received."""
    sends, reads = rows.columns("sends"), rows.columns("reads")
    final = rows.derived(final_reads)
    send = rows.derived(sends_of_reads)[final]
    final, send = final[send != UNKNOWN], send[send != UNKNOWN]
    final = final[acknowledged_sends(sends, context)[send]]
    received = distinct(reads["value"][(reads["phase"] == TAIL) & is_among(reads["process"], group.members)])
    final = final[(reads["log_offset"][final] < group.end_offset) & ~is_among(reads["value"][final], received)]
    return _pairs(reads, final)


def _pairs(reads: Columns, chosen: Array) -> Array:
    return np.unique(np.stack([reads["log_offset"][chosen], reads["value"][chosen]], axis=1), axis=0)


def _left_out(pairs: Array) -> pa.Table:
    return anomalies("unconsumed", log_offset=pairs[:, 0], value=pairs[:, 1])


def _unconsumed_in_ranges(partition: LargePartition, context: Context, groups: Sequence[Consumed]) -> list[Array]:
    """Return for each group offset and value of acknowledged records that no member received.

    Nearly every record was received where it stands: only those that were not are looked for elsewhere.
    """
    readers = complete_readers(partition.small.columns("polls"))
    kept: list[list[Array]] = [[np.zeros((0, 2), np.int64)] for _ in groups]
    for own_range in partition.in_ranges():
        reads = own_range.rows("reads", ("process", "phase", "log_offset", "value")).columns("reads")
        final = np.flatnonzero((reads["phase"] == FINAL) & (reads["value"] != UNKNOWN))
        final = final[is_among(reads["process"][final], readers)]
        own = [_not_received(reads, final, group) for group in groups]
        if any(pairs.size for pairs in own):
            # (where nothing is amiss nobody reads its sends)
            sends = own_range.rows("sends", ("log_offset", *SENT)).columns("sends")
            refuted = distinct(sends["value"][~acknowledged_sends(sends, context)])
            own = [pairs[~is_among(pairs[:, 1], refuted)] for pairs in own]
        for pairs, more in zip(kept, own, strict=True):
            pairs.append(more)
    found = [np.unique(np.concatenate(pairs), axis=0) for pairs in kept]
    wanted = distinct(np.concatenate([pairs[:, 1] for pairs in found]))
    if wanted.size == 0:
        return found
    received: list[list[Array]] = [[wanted[:0]] for _ in groups]
    for rows in partition.in_pieces("reads", ("process", "phase", "value")):
        reads = rows.columns("reads")
        tail = np.flatnonzero((reads["phase"] == TAIL) & is_among(reads["value"], wanted))
        for values, group in zip(received, groups, strict=True):
            values.append(distinct(reads["value"][tail[is_among(reads["process"][tail], group.members)]]))
    acknowledged = [wanted[:0]]
    for rows in partition.in_pieces("sends", SENT):
        sends = rows.columns("sends")
        own_sends = is_among(sends["value"], wanted)
        if own_sends.any():
            acknowledged.append(sends["value"][own_sends & acknowledged_sends(sends, context)])
    known = distinct(np.concatenate(acknowledged))
    return [
        pairs[is_among(pairs[:, 1], known) & ~is_among(pairs[:, 1], distinct(np.concatenate(values)))]
        for pairs, values in zip(found, received, strict=True)
    ]


def _not_received(reads: Columns, final: Array, group: Consumed) -> Array:
    """Return offset and value of what stands in a range before a group's position, and was not received there by any of its members."""
    before = final[reads["log_offset"][final] < group.end_offset]
    if before.size == 0:
        return np.zeros((0, 2), np.int64)
    received = distinct(reads["value"][(reads["phase"] == TAIL) & is_among(reads["process"], group.members)])
    return _pairs(reads, before[~is_among(reads["value"][before], received)])


def detail(anomaly: Anomaly) -> str:
    """Say who committed, or what was left out."""
    if anomaly.kind == "unconsumed":
        return f"nobody received the record at {anomaly.log_offset}"
    return f"process {anomaly.process} committed {anomaly.log_offset}"


SQL: Final = "".join((READERS, """, acknowledged AS (
  SELECT DISTINCT r.run_id, r.topic, r.partition, r.log_offset, r.value FROM reads r
  JOIN readers d ON r.run_id = d.run_id AND r.topic = d.topic AND r.partition = d.partition AND r.process = d.process
  JOIN sends s ON r.run_id = s.run_id AND r.topic = s.topic AND r.partition = s.partition AND r.value = s.value
  LEFT JOIN committed c ON s.run_id = c.run_id AND s.value = c.value
  WHERE r.phase = 'final' AND s.outcome = 'ok' AND s.acks <> 0 AND (s.txn_id IS NULL OR c.value IS NOT NULL)
), fine AS (
  SELECT * FROM commits WHERE kind = 'commit' AND outcome = 'ok'
), outside AS (
  SELECT f.* FROM fine f ANTI JOIN txn_spans t ON f.run_id = t.run_id AND f.process = t.process
), ends AS (
  SELECT run_id, topic, partition, group_id, MAX(committed_offset) AS end_offset FROM outside
  GROUP BY run_id, topic, partition, group_id
), received AS (
  SELECT DISTINCT o.run_id, o.topic, o.partition, o.group_id, r.value
  FROM (SELECT * FROM commits WHERE kind = 'commit' AND outcome <> 'fail') o
  JOIN reads r ON o.run_id = r.run_id AND o.topic = r.topic AND o.partition = r.partition AND o.process = r.process
   AND r.phase = 'tail'
), found AS (
  SELECT a.run_id, a.topic, a.partition, 'stale_generation' AS kind, a.committed_offset AS log_offset,
         CAST(NULL AS BIGINT) AS value, a.invoke_ns, a.complete_ns AS at_ns, a.process
  FROM fine a WHERE EXISTS (
    SELECT 1 FROM fine b WHERE a.run_id = b.run_id AND a.topic = b.topic AND a.partition = b.partition
     AND a.group_id = b.group_id AND b.generation > a.generation AND b.complete_ns < a.invoke_ns)
  UNION ALL
  SELECT k.run_id, k.topic, k.partition, 'unconsumed', k.log_offset, k.value, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT),
         CAST(NULL AS INT)
  FROM acknowledged k
  JOIN ends e ON k.run_id = e.run_id AND k.topic = e.topic AND k.partition = e.partition AND k.log_offset < e.end_offset
  ANTI JOIN received r ON k.run_id = r.run_id AND k.topic = r.topic AND k.partition = r.partition
   AND e.group_id = r.group_id AND k.value = r.value
)
SELECT f.run_id, f.topic, f.partition, f.kind, f.log_offset, f.value, CAST(NULL AS INT) AS acks, f.invoke_ns, f.at_ns, CAST(NULL AS INT) AS leader_epoch,
       CAST(NULL AS BIGINT) AS other_offset, f.process
FROM found f
"""))  # fmt: skip


PROPERTY: Final = Property(
    tables=("sends", "polls", "reads", "commits"),
    kinds=KINDS,
    kernel=kernel,
    kernel_in_ranges=kernel_in_ranges,
    detail=detail,
    sql=SQL,
)
