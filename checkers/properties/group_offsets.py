"""A group's committed offset is a register: a fetch returns a commit that may be the newest, and never none or an older one.

A commit may have taken effect from its invocation on and surely has when it was answered; one inside of a transaction takes
effect with that if it was answered itself, and one of unknown outcome has when a fetch returned what nobody else committed. A fetch may return any commit
that was not surely overwritten before it was asked. A position is a record of the group's partition of `__consumer_offsets`, and is lost
as records are (R11).
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.api import (
    FAIL,
    OK,
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
    nothing,
)
from tribunal.checkers.judge.steps import ABORTED, COMMITTED, OUTCOMES, codes, spans
from tribunal.results.recording import WORDS

COMMIT: Final = WORDS["commits", "kind"].index("commit")
NEVER: Final = np.iinfo(np.int64).max
SIDES: Final[tuple[Literal["left"], Literal["right"]]] = ("left", "right")
INVENTED: Final = "offset_invented"
"""No loss makes up what nobody committed: only who set the position to this very offset did."""
SENTENCES: Final = {
    "offset_stale": "a group fetched an offset that a later commit had overwritten",
    "offset_forgotten": "a group fetched no offset although a commit had been answered",
    INVENTED: "a group fetched an offset that nobody committed",
}
KINDS: Final = {
    kind: Kind(Meaning.VIOLATION, sentence, (Excuse.POSITIONS_LOST,)) for kind, sentence in SENTENCES.items()
}


def answered(commits: Columns) -> Array:
    """Return of each row whether it is a commit that was answered without an error."""
    return np.asarray((commits["kind"] == COMMIT) & (commits["outcome"] == OK))


def may_count(commits: Columns) -> Array:
    """Return of each row whether it is a commit that may have moved its group's offset: one without an answer may have as well."""
    return np.asarray((commits["kind"] == COMMIT) & (commits["outcome"] != FAIL))


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Look at every fetch of every group.

    returns:  one row per fetch: log_offset what it returned (-1 for none is unknown), other_offset the newest sure commit.
    source:   KIP-98, "Guarantees"; SPEC 4.3.4; I19 (docs/invariants.md).
    """
    commits = rows.columns("commits")
    if commits["kind"].size == 0:
        return Found(nothing())
    effects = effective(commits, context)
    found = []
    for group in np.unique(commits["group"]).tolist():
        own = np.flatnonzero(commits["group"] == group)
        fetches = own[(commits["kind"][own] != COMMIT) & (commits["outcome"][own] == OK)]
        writes = own[(commits["kind"][own] == COMMIT) & (effects[1][own] != ABORTED)]
        prove(commits, effects, writes, fetches)
        register = _Register(commits, effects, writes)
        found += [(*register.wrong(fetch), fetch) for fetch in fetches.tolist()]
    tables = [_row(commits, kind, newest, fetch) for kind, newest, fetch in found if kind]
    return Found(pa.concat_tables(tables) if tables else nothing(), {"offset fetches of groups": len(found)})


def effective(commits: Columns, context: Context) -> tuple[Array, Array]:
    """Return when each commit had surely taken effect (NEVER: nobody knows) and whether it did (steps' codes)."""
    done = np.where(commits["outcome"] == OK, commits["complete_ns"], NEVER)
    # fail: refused, without effect.
    outcome = np.select([commits["outcome"] == OK, commits["outcome"] == 1], [COMMITTED, ABORTED], 2)
    # Of each process in order of time, so that what lies in a transaction is one stretch.
    order = np.flatnonzero(commits["kind"] == COMMIT)
    if order.size == 0:
        return done, outcome
    order = order[np.lexsort((commits["invoke_ns"][order], commits["process"][order]))]
    processes, first = np.unique(commits["process"][order], return_index=True)
    times = np.split(commits["invoke_ns"][order], first[1:])
    own = {
        process: (begin, some) for process, begin, some in zip(processes.tolist(), first.tolist(), times, strict=True)
    }
    for begin, behind, end_ns, ended in _spans(context, own):
        within = order[begin:behind]
        within = within[outcome[within] != ABORTED]
        # The coordinator ends a transaction without knowing of a commit that never reached the group.
        sure = within[(outcome[within] != 2) | (ended != COMMITTED)]
        outcome[sure] = ended
        done[within] = NEVER
        done[sure] = end_ns if ended == COMMITTED else NEVER
    return done, outcome


def prove(commits: Columns, effects: tuple[Array, Array], writes: Array, fetches: Array) -> None:
    """A commit of unknown outcome has taken effect once a fetch returned what nobody else committed."""
    done, outcome = effects
    offset = commits["committed_offset"]
    _, first, counts = np.unique(offset[writes], return_index=True, return_counts=True)
    alone = writes[first[counts == 1]]
    seen = fetches[np.lexsort((commits["complete_ns"][fetches], offset[fetches]))]
    seen_ns, seen_offsets = commits["complete_ns"][seen], offset[seen]
    for write in alone[(done[alone] == NEVER) & (offset[alone] != UNKNOWN)].tolist():
        first_seen, end = (np.searchsorted(seen_offsets, offset[write], side) for side in SIDES)
        place = first_seen + np.searchsorted(seen_ns[first_seen:end], commits["invoke_ns"][write], "right")
        if place < end:
            done[write], outcome[write] = seen_ns[place], COMMITTED


def _spans(context: Context, commits: Mapping[int, tuple[int, Array]]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the transactions in which commits lie: the place of the first and the one behind the last, when it ended (NEVER: nobody knows), and how.

    commits:  of each process the place of its first commit, and when each of them was asked for, ascending.
    """
    txns = context.transactions()
    txns = spans(txns.filter(pc.is_in(txns["process"], value_set=pa.array(commits, txns["process"].type))))
    process, begin_ns = txns["process"].to_numpy(), txns["begin_ns"].to_numpy()
    end_ns = txns["end_ns"].fill_null(NEVER).to_numpy()
    ended = codes(txns["outcome"], OUTCOMES).to_numpy()
    for number, (place, invoke_ns) in commits.items():
        own = slice(*(int(np.searchsorted(process, number, side)) for side in SIDES))
        since = np.searchsorted(invoke_ns, begin_ns[own], "left")
        until = np.searchsorted(invoke_ns, end_ns[own], "right")
        for row in np.flatnonzero(until > since).tolist():
            at = own.start + row
            yield place + int(since[row]), place + int(until[row]), int(end_ns[at]), int(ended[at])


class _Register:
    """One group's commits to the partition: which of them a fetch may return. Linear but for one sort."""

    def __init__(self, commits: Columns, effects: tuple[Array, Array], writes: Array) -> None:
        done, outcome = effects
        self._commits = commits
        self._invoke, self._done = commits["invoke_ns"][writes], done[writes]
        offset = commits["committed_offset"][writes]
        self._by_offset: dict[int, list[int]] = {}
        for place, value in enumerate(offset.tolist()):
            self._by_offset.setdefault(value, []).append(place)
        sure = np.flatnonzero(outcome[writes] == COMMITTED)
        sure = sure[np.argsort(self._done[sure], kind="stable")]
        self._sure_done = self._done[sure]
        # Of the commits done so far the newest by invocation, and of those of one instant the one furthest on.
        rank = np.zeros(sure.size, np.int64)
        by_age = np.lexsort((offset[sure], self._invoke[sure]))
        rank[by_age] = np.arange(sure.size)
        newest = by_age[np.maximum.accumulate(rank)] if sure.size else by_age
        self._newest_invoke, self._newest_offset = self._invoke[sure][newest], offset[sure][newest]

    def wrong(self, fetch: int) -> tuple[str, int]:
        """Return what is wrong with a fetch ("": nothing), and the newest offset that it had to know of."""
        count = int(np.searchsorted(self._sure_done, self._commits["invoke_ns"][fetch], "left"))
        newest = int(self._newest_offset[count - 1]) if count else UNKNOWN
        overwritten_before = int(self._newest_invoke[count - 1]) if count else -1
        value = int(self._commits["committed_offset"][fetch])
        if value == UNKNOWN:
            return ("offset_forgotten" if count else ""), newest
        places = self._by_offset.get(value)
        if places is None:
            return INVENTED, newest
        valid = self._invoke[places] < self._commits["complete_ns"][fetch]
        valid &= self._done[places] >= overwritten_before
        return ("" if valid.any() else "offset_stale"), newest


def _row(commits: Columns, kind: str, newest: int, fetch: int) -> pa.Table:
    return anomalies(
        kind,
        log_offset=[int(commits["committed_offset"][fetch])],
        other_offset=[newest],
        invoke_ns=[int(commits["invoke_ns"][fetch])],
        at_ns=[int(commits["complete_ns"][fetch])],
        process=[int(commits["process"][fetch])],
    )


def detail(anomaly: Anomaly) -> str:
    """Say what was fetched and what had been committed."""
    fetched = "none" if anomaly.log_offset is None else anomaly.log_offset
    return f"process {anomaly.process} fetched {fetched}, committed was {anomaly.other_offset}"


SQL: Final = """
WITH raw AS (
  SELECT c.run_id, c.topic, c.partition, c.group_id AS name, c.process, c.kind, c.committed_offset, c.invoke_ns, c.complete_ns,
         c.outcome, t.outcome AS ended, t.end_ns
  FROM commits c LEFT JOIN txn_spans t
    ON c.run_id = t.run_id AND c.process = t.process AND c.kind = 'commit'
   AND c.invoke_ns >= t.begin_ns AND (t.end_ns IS NULL OR c.invoke_ns <= t.end_ns)
), offered AS (
  SELECT *, CASE WHEN ended IS NULL THEN (CASE WHEN outcome = 'ok' THEN complete_ns END)
                 WHEN ended = 'committed' AND outcome = 'ok' THEN end_ns END AS done_ns
  FROM raw WHERE kind = 'commit' AND outcome <> 'fail' AND COALESCE(ended, 'committed') <> 'aborted'
), fetches AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY run_id, topic, partition, name ORDER BY invoke_ns, complete_ns, process) AS number
  FROM raw WHERE kind = 'fetch' AND outcome = 'ok'
), seen AS (
  SELECT o.run_id, o.topic, o.partition, o.name, o.committed_offset, MIN(f.complete_ns) AS seen_ns
  FROM (SELECT run_id, topic, partition, name, committed_offset, MIN(invoke_ns) AS invoke_ns FROM offered
        WHERE committed_offset <> -1 GROUP BY run_id, topic, partition, name, committed_offset HAVING COUNT(*) = 1) o
  JOIN fetches f
    ON f.run_id = o.run_id AND f.topic = o.topic AND f.partition = o.partition AND f.name = o.name
   AND f.committed_offset = o.committed_offset AND f.complete_ns > o.invoke_ns
  GROUP BY o.run_id, o.topic, o.partition, o.name, o.committed_offset
), writes AS (
  SELECT o.run_id, o.topic, o.partition, o.name, o.committed_offset, o.invoke_ns, COALESCE(o.done_ns, s.seen_ns) AS done_ns
  FROM offered o LEFT JOIN seen s
    ON o.run_id = s.run_id AND o.topic = s.topic AND o.partition = s.partition AND o.name = s.name
   AND o.committed_offset = s.committed_offset
), sure AS (
  SELECT f.run_id, f.topic, f.partition, f.name, f.number, MAX(w.invoke_ns) AS overwritten_before
  FROM fetches f JOIN writes w
    ON f.run_id = w.run_id AND f.topic = w.topic AND f.partition = w.partition AND f.name = w.name
   AND w.done_ns < f.invoke_ns
  GROUP BY f.run_id, f.topic, f.partition, f.name, f.number
), newest AS (
  SELECT s.run_id, s.topic, s.partition, s.name, s.number, MAX(w.committed_offset) AS committed_offset
  FROM sure s JOIN fetches f
    ON s.run_id = f.run_id AND s.topic = f.topic AND s.partition = f.partition AND s.name = f.name AND s.number = f.number
  JOIN writes w
    ON s.run_id = w.run_id AND s.topic = w.topic AND s.partition = w.partition AND s.name = w.name
   AND w.invoke_ns = s.overwritten_before AND w.done_ns < f.invoke_ns
  GROUP BY s.run_id, s.topic, s.partition, s.name, s.number
), matched AS (
  SELECT f.run_id, f.topic, f.partition, f.name, f.number,
         MAX(CASE WHEN w.invoke_ns < f.complete_ns
                   AND (w.done_ns IS NULL OR w.done_ns >= COALESCE(s.overwritten_before, -1)) THEN 1 ELSE 0 END) AS valid
  FROM fetches f JOIN writes w
    ON f.run_id = w.run_id AND f.topic = w.topic AND f.partition = w.partition AND f.name = w.name
   AND f.committed_offset = w.committed_offset
  LEFT JOIN sure s
    ON f.run_id = s.run_id AND f.topic = s.topic AND f.partition = s.partition AND f.name = s.name AND f.number = s.number
  GROUP BY f.run_id, f.topic, f.partition, f.name, f.number
), judged AS (
  SELECT f.*, n.committed_offset AS newest_offset,
    CASE WHEN COALESCE(f.committed_offset, -1) = -1
              THEN (CASE WHEN n.number IS NOT NULL THEN 'offset_forgotten' END)
         WHEN m.number IS NULL THEN 'offset_invented'
         WHEN m.valid = 0 THEN 'offset_stale' END AS verdict
  FROM fetches f
  LEFT JOIN newest n
    ON f.run_id = n.run_id AND f.topic = n.topic AND f.partition = n.partition AND f.name = n.name AND f.number = n.number
  LEFT JOIN matched m
    ON f.run_id = m.run_id AND f.topic = m.topic AND f.partition = m.partition AND f.name = m.name AND f.number = m.number
)
SELECT j.run_id, j.topic, j.partition, j.verdict AS kind,
       NULLIF(j.committed_offset, -1) AS log_offset, CAST(NULL AS BIGINT) AS value, CAST(NULL AS INT) AS acks, j.invoke_ns,
       j.complete_ns AS at_ns, CAST(NULL AS INT) AS leader_epoch, NULLIF(j.newest_offset, -1) AS other_offset, j.process
FROM judged j WHERE j.verdict IS NOT NULL
"""


PROPERTY: Final = Property(
    tables=("commits",),
    kinds=KINDS,
    kernel=kernel,
    detail=detail,
    sql=SQL,
)
