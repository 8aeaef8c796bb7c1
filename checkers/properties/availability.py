"""How available a partition was: figures, never a verdict. Slow is not wrong.

`tribunal.results.silences` says what a stretch without acknowledgement is: a second or longer in which clients kept asking, from the first attempt to the last one.
What is not asked for is no unavailability. A fault's recovery is the time from its injection to the first acknowledgement of a record that was sent
after it, for the partition that took longest. Latencies (send to acknowledgement) are given per phase and acks: counted in
buckets that grow by an eighth, so that partitions can be added up; a percentile is at most that much too high.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from tribunal.checkers.api import (
    OK,
    Anomaly,
    Array,
    Columns,
    Context,
    Fold,
    Folded,
    Found,
    Kind,
    Meaning,
    PartitionRows,
    PartitionSummary,
    Property,
    anomalies,
    nothing,
)
from tribunal.results.rows import Phase, typed
from tribunal.results.silences import Attempts, Silences, bounding, joined, silences

LEVELS: Final = (-1, 1)
STEPS_PER_DOUBLING: Final = 6  # 2 ** (1/6) is 1.12
KINDS: Final = {
    "unavailable": Kind(Meaning.NOTE, "nothing was acknowledged for a second or longer although it was asked for")
}


TookByAcks = dict[int, int]
BucketsByAcks = dict[int, dict[int, int]]


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how long nothing was acknowledged, of how long it was asked for."""

    acks: int
    intervals: int
    asked_ns: int
    total_ns: int
    longest_ns: int


class Summary(msgspec.Struct, frozen=True):
    """What one partition adds: recovery times per fault, counts of latencies per phase."""

    asked: list[Interval]
    recovery: dict[int, TookByAcks]
    latency: dict[str, BucketsByAcks]


class Unavailable(msgspec.Struct, frozen=True, kw_only=True):
    """The intervals of one partition without acknowledgement, of how long it was asked for."""

    topic: str
    partition: int
    acks: int
    intervals: int
    asked_ns: int
    total_ns: int
    longest_ns: int


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """The partition that took longest after a fault."""

    fault: int
    acks: int
    recovery_ns: int
    topic: str
    partition: int


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long acknowledgements took in a phase, over all partitions."""

    phase: str
    acks: int
    count: int
    p50_ns: int
    p99_ns: int
    most_ns: int


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """How long partitions were asked for acknowledgements, all together, and how long of it nothing was acknowledged."""

    acks: int
    partitions: int
    asked_ns: int
    unavailable_ns: int


class Availability(msgspec.Struct, frozen=True):
    """The figures of a run."""

    asked: list[Asked]
    unavailable: list[Unavailable]
    recovery: list[Recovery]
    latency: list[Latency]


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Return the intervals without an acknowledgement: invoke_ns is where it begins, at_ns where it ends."""
    sends = rows.columns("sends")
    attempts = {acks: _attempts(sends, acks).until(context.deleted_ns) for acks in LEVELS}
    return _found(attempts, _recovery(sends, context), _latency(sends, context))


def kernel_in_pieces(pieces: Iterable[PartitionRows], context: Context) -> Found:
    """Do the same for a partition that comes in pieces: of each only what may bound an interval is kept."""
    recovery: dict[int, TookByAcks] = {}
    latency: dict[str, BucketsByAcks] = {}
    kept: dict[int, list[Attempts]] = {acks: [] for acks in LEVELS}
    for rows in pieces:
        sends = rows.columns("sends")
        for acks, own_attempts in kept.items():
            attempts = _attempts(sends, acks).until(context.deleted_ns)
            own_attempts.append(attempts.taken(bounding(attempts)))
        for index, by_acks in _recovery(sends, context).items():
            own = recovery.setdefault(index, {})
            own.update({acks: min(took, own.get(acks, took)) for acks, took in by_acks.items()})
        for phase, counts in _latency(sends, context).items():
            for acks, buckets in counts.items():
                counted = latency.setdefault(phase, {}).setdefault(acks, {})
                counted.update({bucket: counted.get(bucket, 0) + count for bucket, count in buckets.items()})
    return _found({acks: joined(parts) for acks, parts in kept.items()}, recovery, latency)


def _attempts(sends: Columns, acks: int) -> Attempts:
    own = sends["acks"] == acks
    return Attempts(sends["invoke_ns"][own], sends["complete_ns"][own], sends["outcome"][own] == OK)


def _found(
    attempts: Mapping[int, Attempts], recovery: dict[int, TookByAcks], latency: dict[str, BucketsByAcks]
) -> Found:
    found = {acks: silences(own) for acks, own in attempts.items() if own.invoke_ns.size}
    tables = [
        anomalies("unavailable", acks=np.full(own.start_ns.size, acks), invoke_ns=own.start_ns, at_ns=own.end_ns)
        for acks, own in found.items()
    ]
    asked = [_lengths(acks, own) for acks, own in found.items()]
    summary = Summary(asked, recovery, latency) if asked else None
    return Found(pa.concat_tables([nothing(), *tables]), summary=summary)


def _lengths(acks: int, found: Silences) -> Interval:
    lengths = found.end_ns - found.start_ns
    return Interval(
        acks=acks, intervals=int(lengths.size), asked_ns=found.asked_ns, total_ns=int(lengths.sum()),
        longest_ns=int(lengths.max(initial=0)),
    )  # fmt: skip


def _recovery(sends: Columns, context: Context) -> dict[int, TookByAcks]:
    """Return per fault and acks the time to the first acknowledgement of what was sent after the injection."""
    found: dict[int, TookByAcks] = {}
    faults = context.of_run("faults").select(["index", "injected_ns"])
    injected = dict(zip(*(faults[name].to_pylist() for name in faults.column_names), strict=True))
    known = {index: at_ns for index, at_ns in injected.items() if at_ns is not None}
    if not known:
        return found
    for acks in LEVELS:
        own = (sends["acks"] == acks) & (sends["outcome"] == OK)
        order = np.argsort(sends["invoke_ns"][own], kind="stable")
        asked, done = sends["invoke_ns"][own][order], sends["complete_ns"][own][order]
        first_done = np.minimum.accumulate(done[::-1])[::-1]
        for index, at_ns in known.items():
            place = int(np.searchsorted(asked, at_ns))
            if place < asked.size:
                found.setdefault(index, {})[acks] = int(first_done[place]) - at_ns
    return found


def _latency(sends: Columns, context: Context) -> dict[str, BucketsByAcks]:
    """Return counts per phase, acks and bucket."""
    found: dict[str, BucketsByAcks] = {}
    for phase in typed(context.of_run("phases"), Phase):
        if phase.start_ns is None or phase.cut_off:
            continue
        end_ns = np.iinfo(np.int64).max if phase.end_ns is None else phase.end_ns
        for acks in LEVELS:
            chosen = (sends["acks"] == acks) & (sends["outcome"] == OK)
            chosen &= (sends["invoke_ns"] >= phase.start_ns) & (sends["invoke_ns"] < end_ns)
            took = sends["complete_ns"][chosen] - sends["invoke_ns"][chosen]
            if took.size:
                buckets, counts = np.unique(_bucket(took), return_counts=True)
                counted = dict(zip(buckets.tolist(), counts.tolist(), strict=True))
                found.setdefault(phase.name, {})[acks] = counted
    return found


def _bucket(took_ns: Array) -> Array:
    microseconds = np.maximum(took_ns, 1_000) / 1_000
    return np.asarray(np.ceil(np.log2(microseconds) * STEPS_PER_DOUBLING).astype(np.int64))


def _bucket_end_ns(bucket: int) -> int:
    return round(2 ** (bucket / STEPS_PER_DOUBLING) * 1_000)


def join(summaries: Sequence[PartitionSummary[Summary]]) -> Folded:
    """Add the partitions up: the figures `asked`, `unavailable`, `recovery` and `latency` of the report."""
    unavailable = [
        Unavailable(
            topic=summary.topic, partition=summary.partition, acks=own.acks, intervals=own.intervals,
            asked_ns=own.asked_ns, total_ns=own.total_ns, longest_ns=own.longest_ns,
        )
        for summary in summaries
        for own in summary.content.asked
        if own.intervals
    ]  # fmt: skip
    figures = Availability(_together(summaries), unavailable, _slowest(summaries), _percentiles(summaries))
    return Folded(nothing(), figures)


def _together(summaries: Iterable[PartitionSummary[Summary]]) -> list[Asked]:
    found: dict[int, list[Interval]] = {}
    for summary in summaries:
        for own in summary.content.asked:
            found.setdefault(own.acks, []).append(own)
    return [
        Asked(
            acks=acks, partitions=len(own), asked_ns=sum(one.asked_ns for one in own),
            unavailable_ns=sum(one.total_ns for one in own),
        )
        for acks, own in sorted(found.items())
    ]  # fmt: skip


def _slowest(summaries: Iterable[PartitionSummary[Summary]]) -> list[Recovery]:
    slowest: dict[tuple[int, int], tuple[int, str, int]] = {}
    for summary in summaries:
        for index, by_acks in summary.content.recovery.items():
            for acks, took in by_acks.items():
                place = (index, acks)
                slowest[place] = max(slowest.get(place, (-1, "", 0)), (took, summary.topic, summary.partition))
    return [
        Recovery(fault=index, acks=acks, recovery_ns=took, topic=topic, partition=partition)
        for (index, acks), (took, topic, partition) in sorted(slowest.items())
    ]


def _percentiles(summaries: Iterable[PartitionSummary[Summary]]) -> list[Latency]:
    counts: dict[tuple[str, int], dict[int, int]] = {}
    for summary in summaries:
        for phase, by_acks in summary.content.latency.items():
            for acks, buckets in by_acks.items():
                own = counts.setdefault((phase, acks), {})
                for bucket, count in buckets.items():
                    own[bucket] = own.get(bucket, 0) + count
    return [
        Latency(
            phase=phase, acks=acks, count=sum(own.values()), p50_ns=_percentile(own, 0.5),
            p99_ns=_percentile(own, 0.99), most_ns=_bucket_end_ns(max(own)),
        )
        for (phase, acks), own in counts.items()
    ]  # fmt: skip


def _percentile(counts: Mapping[int, int], share: float) -> int:
    wanted, seen = share * sum(counts.values()), 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= wanted:
            return _bucket_end_ns(bucket)
    return 0


def detail(anomaly: Anomaly) -> str:
    """Say how long it was."""
    first, last = anomaly.invoke_ns, anomaly.at_ns
    assert first is not None
    assert last is not None
    return f"{(last - first) / 1e9:.3f} s from {first / 1e9:.3f} s on"


SQL: Final = """
WITH attempts AS (
  SELECT s.run_id, s.topic, s.partition, s.acks, s.invoke_ns,
         CASE WHEN s.complete_ns > d.ordered_ns THEN d.ordered_ns ELSE s.complete_ns END AS ended_ns,
         CASE WHEN s.outcome = 'ok' AND (d.ordered_ns IS NULL OR s.complete_ns <= d.ordered_ns) THEN 1 ELSE 0 END AS is_answered
  FROM sends s LEFT JOIN deletions d ON s.run_id = d.run_id AND s.topic = d.topic AND s.partition = d.partition
  WHERE s.acks <> 0 AND (d.ordered_ns IS NULL OR s.invoke_ns < d.ordered_ns)
),
ended AS (
  SELECT run_id, topic, partition, acks, invoke_ns, is_answered,
         COALESCE(ended_ns, MAX(COALESCE(ended_ns, invoke_ns)) OVER (PARTITION BY run_id, topic, partition, acks)) AS ended_ns
  FROM attempts
),
begun AS (
  SELECT *, CASE WHEN invoke_ns - MAX(ended_ns) OVER (
           PARTITION BY run_id, topic, partition, acks ORDER BY invoke_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
         ) < 1000000000 THEN 0 ELSE 1 END AS begins
  FROM ended
),
asked AS (
  SELECT *, SUM(begins) OVER (PARTITION BY run_id, topic, partition, acks ORDER BY invoke_ns) AS spell FROM begun
),
points AS (
  SELECT run_id, topic, partition, acks, spell, MIN(invoke_ns) AS at_ns, 0 AS step
  FROM asked GROUP BY run_id, topic, partition, acks, spell
  UNION ALL
  SELECT run_id, topic, partition, acks, spell, ended_ns AS at_ns, 1 AS step FROM asked WHERE is_answered = 1
  UNION ALL
  SELECT run_id, topic, partition, acks, spell, MAX(ended_ns) AS at_ns, 2 AS step
  FROM asked GROUP BY run_id, topic, partition, acks, spell
),
steps AS (
  SELECT *, LEAD(at_ns) OVER (PARTITION BY run_id, topic, partition, acks, spell ORDER BY at_ns, step) AS until_ns FROM points
),
silent AS (
  SELECT t.run_id, t.topic, t.partition, t.acks, t.until_ns,
         CASE WHEN t.step = 1 AND MIN(e.invoke_ns) > t.at_ns THEN MIN(e.invoke_ns) ELSE t.at_ns END AS since_ns
  FROM steps t JOIN ended e
    ON t.run_id = e.run_id AND t.topic = e.topic AND t.partition = e.partition AND t.acks = e.acks
   AND e.ended_ns >= t.at_ns - t.at_ns % 100000000 + 100000000
  WHERE t.until_ns - t.at_ns >= 1000000000
  GROUP BY t.run_id, t.topic, t.partition, t.acks, t.until_ns, t.at_ns, t.step
)
SELECT run_id, topic, partition, 'unavailable' AS kind, CAST(NULL AS BIGINT) AS log_offset,
       CAST(NULL AS BIGINT) AS value, acks, since_ns AS invoke_ns, until_ns AS at_ns, CAST(NULL AS INT) AS leader_epoch,
       CAST(NULL AS BIGINT) AS other_offset
FROM silent WHERE until_ns - since_ns >= 1000000000
"""


PROPERTY: Final = Property(
    tables=("sends",),
    kinds=KINDS,
    kernel=kernel,
    kernel_in_pieces=kernel_in_pieces,
    columns_in_pieces={"sends": ("acks", "outcome", "invoke_ns", "complete_ns")},
    fold=Fold(Summary, join),
    detail=detail,
    sql=SQL,
)
