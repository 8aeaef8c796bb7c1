"""Consume, transform, produce: every record of the input takes part in exactly one committed transaction of its group.

A transaction belongs to a group if its process commits the group's offset in this partition while the transaction is open (table
`commits`). What it polled here is its input. Two committed transactions of one group with the same input, a value at an offset, processed it twice;
a committed record of the input that no transaction of the group may have was passed over if it lies between others that were processed, or
before them at or behind the first position that a member of the group asked from.
Transactions of unknown outcome are no evidence of an anomaly, and excuse what they polled.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from tribunal.checkers.api import (
    FINAL,
    OK,
    TAIL,
    UNKNOWN,
    Anomaly,
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
from tribunal.checkers.judge.steps import ABORTED, COMMITTED, POLL, ends
from tribunal.checkers.properties.group_offsets import COMMIT
from tribunal.checkers.properties.lost_writes import READERS, complete_readers, uncommitted_sends

KINDS: Final = {
    "processed_twice": Kind(
        Meaning.VIOLATION,
        "two committed transactions of one group consumed the same record",
        excused_by=(Excuse.POSITIONS_LOST,),
    ),
    "passed_over": Kind(
        Meaning.VIOLATION,
        "no transaction of the group consumed a record, yet later ones were",
        excused_by=(Excuse.TAIL_LOST,),
    ),
}


class Input(NamedTuple):
    """What a group's committed transactions went through: offsets from `first` on and before `last`, and those that any may have consumed."""

    first: int
    last: int
    perhaps: Array

    def lacks(self, log_offset: int) -> bool:
        """Whether an offset lies in between that nobody may have consumed."""
        return self.first <= log_offset < self.last and not is_among(np.array([log_offset]), self.perhaps).any()


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Compare the inputs of a group's transactions with the input partition.

    returns:  one row per record and group: log_offset, value; at_ns: begin of the second transaction.
    source:   KIP-98, "Guarantees"; KIP-447.
    """
    return kernel_in_pieces((rows,), context)


def kernel_in_pieces(pieces: Iterable[PartitionRows], context: Context) -> Found:
    """Do the same piece by piece, `reads` before `sends`: of what was read in the end only what no transaction may have consumed is kept."""
    parts = iter(pieces)
    small = next(parts)
    commits = small.columns("commits")
    if commits["kind"].size == 0:
        return Found(nothing())
    steps, found, judged = context.steps(), [nothing()], 0
    taken = dict(_taken(small, context))
    for own in taken.values():
        committed = own[steps["outcome"][own] == COMMITTED]
        judged += committed.size
        found.append(twice(steps, committed))
    gone_through = [*_inputs(small, context, taken).values()]
    found += _passed_over(gone_through, chain((small,), parts), complete_readers(small.columns("polls")), context)
    return Found(pa.concat_tables(found), {"records consumed exactly once": judged})


def inputs(rows: PartitionRows, context: Context) -> dict[str, Input]:
    """Return what the transactions of each group went through, of those that committed any.

    rows:  commits and polls.
    """
    return _inputs(rows, context, dict(_taken(rows, context)))


def _taken(rows: PartitionRows, context: Context) -> Iterator[tuple[str, Array]]:
    """Yield each group with the steps by which its transactions took something, as their places among all steps."""
    commits, steps = rows.columns("commits"), context.steps()
    polls = np.flatnonzero((steps["kind"] == POLL) & (steps["log_offset"] != UNKNOWN))
    words, over = rows.words("commits", "group"), _over(context.transactions(), distinct(commits["process"]))
    for group in np.unique(commits["group"]).tolist():
        yield words[group], polls[is_among(steps["txn"][polls], _transactions(steps, commits, group, over))]


def _over(transactions: pa.Table, processes: Array) -> Array:
    """Return when each transaction of some processes was over (`steps.ends`): a run has very many, a partition's groups few of them."""
    own = np.flatnonzero(is_among(transactions["process"].to_numpy(), processes))
    found = np.full(transactions.num_rows, UNKNOWN, np.int64)
    found[own] = ends(transactions.select(["process", "begin_ns", "end_ns", "outcome"]).take(pa.array(own)))
    return found


def _inputs(rows: PartitionRows, context: Context, taken: Mapping[str, Array]) -> dict[str, Input]:
    commits, steps, words = rows.columns("commits"), context.steps(), rows.words("commits", "group")
    found = {}
    for group, own in taken.items():
        committed = own[steps["outcome"][own] == COMMITTED]
        if committed.size:
            members = (commits["group"] == words.index(group)) & (commits["kind"] == COMMIT)
            found[group] = _input(steps, own, committed, _began(rows, distinct(commits["process"][members])))
    return found


def _transactions(steps: Columns, commits: Columns, group: int, over: Array) -> Array:
    """Return the transactions in which the group's offset was committed, ascending; `over`: when each was over (`steps.ends`)."""
    own = np.flatnonzero((commits["group"] == group) & (commits["kind"] == COMMIT))
    txns, rows = np.unique(steps["txn"], return_index=True)
    if own.size == 0 or txns.size == 0:
        return np.zeros(0, np.int64)
    # Process by process, in order of time: two lookups per transaction, however many commits there are.
    processes, code = np.unique(commits["process"][own], return_inverse=True)
    times = commits["invoke_ns"][own]
    first_ns, span = int(times.min()), int(times.max() - times.min()) + 2
    committed = np.sort(code * span + (times - first_ns))
    place = np.minimum(np.searchsorted(processes, steps["process"][rows]), processes.size - 1)
    begin, end = steps["begin_ns"][rows], over[txns]
    last = np.where(end == UNKNOWN, span - 1, np.clip(end - first_ns, -1, span - 1))
    since = np.searchsorted(committed, place * span + np.clip(begin - first_ns, 0, span - 1), "left")
    until = np.searchsorted(committed, place * span + last, "right")
    return np.asarray(txns[(until > since) & (processes[place] == steps["process"][rows])])


def twice(steps: Mapping[str, Array], committed: Array) -> pa.Table:
    """Return the records that several transactions consumed: what was written anew at an offset is another one."""
    columns = ("log_offset", "value", "txn")
    # A transaction has one begin: any of its rows says it.
    each, rows = np.unique(np.stack([steps[name][committed] for name in columns], axis=1), axis=0, return_index=True)
    pairs, place, counts = np.unique(each[:, :2], axis=0, return_inverse=True, return_counts=True)
    at_ns = np.full(counts.size, UNKNOWN, np.int64)
    np.maximum.at(at_ns, place.reshape(-1), steps["begin_ns"][committed[rows]])
    twice = counts > 1
    return anomalies("processed_twice", log_offset=pairs[twice, 0], value=pairs[twice, 1], at_ns=at_ns[twice])


def _began(rows: PartitionRows, members: Array) -> int | None:
    """Return the least position from which a member asked; None: nobody says it."""
    polls = rows.columns("polls")
    own = (polls["phase"] == TAIL) & (polls["outcome"] == OK) & (polls["position"] != UNKNOWN)
    asked = polls["position"][own & is_among(polls["process"], members)]
    return int(asked.min()) if asked.size else None


def _input(steps: Columns, own: Array, committed: Array, began: int | None) -> Input:
    first, last = int(steps["log_offset"][committed].min()), int(steps["log_offset"][committed].max())
    perhaps = distinct(steps["log_offset"][own[steps["outcome"][own] != ABORTED]])
    return Input(first if began is None else min(first, began), last, perhaps)


def _passed_over(
    inputs: Sequence[Input], pieces: Iterable[PartitionRows], readers: Array, context: Context
) -> list[pa.Table]:
    """Return for each input the committed records of the final log that nobody may have consumed."""
    if not any(_has_holes(own) for own in inputs):
        return []
    missed: list[list[Array]] = [[np.zeros((0, 2), np.int64)] for _ in inputs]
    visible = [np.zeros(0, np.int64)]
    wanted: Array | None = None
    for rows in pieces:
        for own, pairs in zip(inputs, missed, strict=True):
            pairs.append(_missed(rows.columns("reads"), readers, own))
        sends = rows.columns("sends")
        if sends["value"].size == 0:
            continue
        if wanted is None:
            wanted = distinct(np.concatenate([own[:, 1] for pairs in missed for own in pairs]))
        sent = is_among(sends["value"], wanted)
        if sent.any():
            visible.append(sends["value"][sent & ~uncommitted_sends(sends, context)])
    known = distinct(np.concatenate(visible))
    together = [np.unique(np.concatenate(pairs), axis=0) for pairs in missed]
    kept = [pairs[is_among(pairs[:, 1], known)] for pairs in together]
    return [anomalies("passed_over", log_offset=pairs[:, 0], value=pairs[:, 1]) for pairs in kept]


def _has_holes(own: Input) -> bool:
    return int(np.count_nonzero((own.perhaps >= own.first) & (own.perhaps < own.last))) < own.last - own.first


def _missed(reads: Columns, readers: Array, own: Input) -> Array:
    """Return offset and value of what final reads received among an input's offsets where nobody may have consumed anything, each once."""
    offsets = reads["log_offset"]
    final = np.flatnonzero((reads["phase"] == FINAL) & (offsets >= own.first) & (offsets < own.last))
    final = final[is_among(reads["process"][final], readers) & (reads["value"][final] != UNKNOWN)]
    final = final[~is_among(offsets[final], own.perhaps)]
    return np.unique(np.stack([offsets[final], reads["value"][final]], axis=1), axis=0)


def detail(anomaly: Anomaly) -> str:
    """Name the record."""
    return f"the record at {anomaly.log_offset} of the input"


SQL: Final = "".join((READERS, """, visible AS (
  SELECT DISTINCT r.run_id, r.topic, r.partition, r.log_offset, r.value FROM reads r
  JOIN readers d ON r.run_id = d.run_id AND r.topic = d.topic AND r.partition = d.partition AND r.process = d.process
  JOIN sends s ON r.run_id = s.run_id AND r.topic = s.topic AND r.partition = s.partition AND r.value = s.value
  LEFT JOIN committed c ON s.run_id = c.run_id AND s.value = c.value
  WHERE r.phase = 'final' AND (s.txn_id IS NULL OR c.value IS NOT NULL)
), inputs AS (
  SELECT DISTINCT s.run_id, s.topic, s.partition, c.group_id, s.txn, s.outcome, s.begin_ns, s.log_offset, s.value
  FROM txn_steps s JOIN txn_spans t ON s.run_id = t.run_id AND s.txn = t.txn
  JOIN commits c
    ON s.run_id = c.run_id AND s.topic = c.topic AND s.partition = c.partition AND s.process = c.process
   AND c.kind = 'commit' AND c.invoke_ns >= t.begin_ns AND (t.end_ns IS NULL OR c.invoke_ns <= t.end_ns)
  WHERE s.kind = 'poll' AND s.log_offset IS NOT NULL
), ends AS (
  SELECT run_id, topic, partition, group_id, MIN(log_offset) AS first_offset, MAX(log_offset) AS last_offset
  FROM inputs WHERE outcome = 'committed' GROUP BY run_id, topic, partition, group_id
), begins AS (
  SELECT p.run_id, p.topic, p.partition, c.group_id, MIN(p.position) AS position FROM polls p
  JOIN (SELECT DISTINCT run_id, topic, partition, group_id, process FROM commits WHERE kind = 'commit') c
    ON p.run_id = c.run_id AND p.topic = c.topic AND p.partition = c.partition AND p.process = c.process
  WHERE p.phase = 'tail' AND p.outcome = 'ok' AND p.position IS NOT NULL
  GROUP BY p.run_id, p.topic, p.partition, c.group_id
), found AS (
  SELECT run_id, topic, partition, 'processed_twice' AS kind, log_offset, value, MAX(begin_ns) AS at_ns
  FROM inputs WHERE outcome = 'committed' GROUP BY run_id, topic, partition, group_id, log_offset, value
  HAVING COUNT(DISTINCT txn) > 1
  UNION ALL
  SELECT v.run_id, v.topic, v.partition, 'passed_over', v.log_offset, v.value, CAST(NULL AS BIGINT)
  FROM visible v JOIN ends e
    ON v.run_id = e.run_id AND v.topic = e.topic AND v.partition = e.partition AND v.log_offset < e.last_offset
  LEFT JOIN begins b
    ON e.run_id = b.run_id AND e.topic = b.topic AND e.partition = b.partition AND e.group_id = b.group_id
  ANTI JOIN (SELECT * FROM inputs WHERE outcome <> 'aborted') i
    ON v.run_id = i.run_id AND v.topic = i.topic AND v.partition = i.partition AND e.group_id = i.group_id
   AND v.log_offset = i.log_offset
  WHERE v.log_offset >= LEAST(e.first_offset, COALESCE(b.position, e.first_offset))
)
SELECT *, CAST(NULL AS INT) AS acks, CAST(NULL AS BIGINT) AS invoke_ns, CAST(NULL AS INT) AS leader_epoch,
       CAST(NULL AS BIGINT) AS other_offset FROM found
"""))  # fmt: skip


PROPERTY: Final = Property(
    tables=("sends", "polls", "reads", "commits"),
    kinds=KINDS,
    kernel=kernel,
    kernel_in_pieces=kernel_in_pieces,
    columns_in_pieces={"reads": ("process", "phase", "log_offset", "value"), "sends": ("value", "txn_id")},
    detail=detail,
    sql=SQL,
)
