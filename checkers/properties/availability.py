"""How available a partition was: figures, never a verdict. Slow is not wrong.

An interval without acknowledgement counts from one acknowledgement to the next of the same acks, if it is a second or longer and
something was sent in it. A fault's recovery is the time from its injection to the first acknowledgement of a record that was sent
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

LEAST_NS: Final = 1_000_000_000
LEVELS: Final = (-1, 1)
STEPS_PER_DOUBLING: Final = 6  # 2 ** (1/6) is 1.12
KINDS: Final = {"unavailable": Kind(Meaning.NOTE, "nothing was acknowledged for a second or longer")}


TookByAcks = dict[int, int]
BucketsByAcks = dict[int, dict[int, int]]


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how long nothing was acknowledged."""

    acks: int
    intervals: int
    total_ns: int
    longest_ns: int


class Summary(msgspec.Struct, frozen=True):
    """What one partition adds: recovery times per fault, counts of latencies per phase."""

    unavailable: list[Interval]
    recovery: dict[int, TookByAcks]
    latency: dict[str, BucketsByAcks]


class Unavailable(msgspec.Struct, frozen=True, kw_only=True):
    """The intervals of one partition."""

    topic: str
    partition: int
    acks: int
    intervals: int
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


class Availability(msgspec.Struct, frozen=True):
    """The figures of a run."""

    unavailable: list[Unavailable]
    recovery: list[Recovery]
    latency: list[Latency]


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Return the intervals without an acknowledgement: invoke_ns is where it begins, at_ns where it ends."""
    sends = rows.columns("sends")
    return _found(sends, _recovery(sends, context), _latency(sends, context))


def kernel_in_pieces(pieces: Iterable[PartitionRows], context: Context) -> Found:
    """Do the same for a partition that comes in pieces: of each only what may bound an interval is kept."""
    recovery: dict[int, TookByAcks] = {}
    latency: dict[str, BucketsByAcks] = {}
    thin: list[pa.Table] = []
    for rows in pieces:
        sends = rows.columns("sends")
        thin.append(rows.table("sends").take(pa.array(_bounds(sends))))
        for index, by_acks in _recovery(sends, context).items():
            own = recovery.setdefault(index, {})
            own.update({acks: min(took, own.get(acks, took)) for acks, took in by_acks.items()})
        for phase, counts in _latency(sends, context).items():
            for acks, buckets in counts.items():
                counted = latency.setdefault(phase, {}).setdefault(acks, {})
                counted.update({bucket: counted.get(bucket, 0) + count for bucket, count in buckets.items()})
    if not thin:
        return Found(nothing())
    return _found(PartitionRows({"sends": pa.concat_tables(thin)}).columns("sends"), recovery, latency)


def _bounds(sends: Columns) -> Array:
    """Return the rows with the least and the greatest invocation and acknowledgement of each tenth of an interval and acks.

    An interval begins with the last acknowledgement of a tenth and ends with the first of another, with whole tenths between:
    what was sent inside of it is seen by these rows as well as by all.
    """
    chosen = []
    for column, own in (("invoke_ns", sends["acks"] != 0), ("complete_ns", sends["outcome"] == OK)):
        rows = np.flatnonzero(own)
        order = rows[np.lexsort((sends[column][rows], sends["acks"][rows]))]
        tenth = sends[column][order] // (LEAST_NS // 10)
        new = (tenth[1:] != tenth[:-1]) | (sends["acks"][order][1:] != sends["acks"][order][:-1])
        chosen += [order[np.append(True, new)[: order.size]], order[np.append(new, True)[: order.size]]]
    return np.unique(np.concatenate(chosen))


def _found(sends: Columns, recovery: dict[int, TookByAcks], latency: dict[str, BucketsByAcks]) -> Found:
    tables = {acks: _intervals(sends, acks) for acks in LEVELS}
    unavailable = [_lengths(acks, table) for acks, table in tables.items() if table.num_rows]
    summary = Summary(unavailable, recovery, latency) if unavailable or recovery or latency else None
    return Found(pa.concat_tables(tables.values()), summary=summary)


def _intervals(sends: Columns, acks: int) -> pa.Table:
    own = sends["acks"] == acks
    done = np.sort(sends["complete_ns"][own & (sends["outcome"] == OK)])
    wide = np.flatnonzero(np.diff(done) >= LEAST_NS)
    start, end = done[wide], done[wide + 1]
    if start.size:
        asked = np.sort(sends["invoke_ns"][own])
        tried = np.searchsorted(asked, end, "left") > np.searchsorted(asked, start, "right")
        start, end = start[tried], end[tried]
    return anomalies("unavailable", acks=np.full(start.size, acks), invoke_ns=start, at_ns=end)


def _lengths(acks: int, intervals: pa.Table) -> Interval:
    lengths = intervals["at_ns"].to_numpy() - intervals["invoke_ns"].to_numpy()
    return Interval(acks=acks, intervals=int(lengths.size), total_ns=int(lengths.sum()), longest_ns=int(lengths.max()))


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
    """Add the partitions up: the figures `unavailable`, `recovery` and `latency` of the report."""
    unavailable = [
        Unavailable(
            topic=summary.topic, partition=summary.partition, acks=own.acks, intervals=own.intervals,
            total_ns=own.total_ns, longest_ns=own.longest_ns,
        )
        for summary in summaries
        for own in summary.content.unavailable
    ]  # fmt: skip
    return Folded(nothing(), Availability(unavailable, _slowest(summaries), _percentiles(summaries)))


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


PROPERTY: Final = Property(
    tables=("sends",),
    kinds=KINDS,
    kernel=kernel,
    kernel_in_pieces=kernel_in_pieces,
    fold=Fold(Summary, join),
    detail=detail,
    sql=SQL,
)
