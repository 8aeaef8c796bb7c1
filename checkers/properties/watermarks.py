"""Watermarks that went back, and log starts beyond the high watermark.

A new leader's Fetch answers may show a lower high watermark for a while, so only these count (docs/known-bugs.md, point 3):
the high watermark and the last stable offset that one replica shows one observer within one leader epoch (a follower that serves
readers, KIP-392, hears of both later than its leader), and the latest offset (ListOffsets) of one observer across all epochs. What a deposed leader
answers an observer is not compared with what a later one had: which was made first cannot be said. What was read and later vanished is `lost_writes`.

Observers are compared with each other where the time is known at which one asked (`asked_ns`): the leader of an epoch that had shown an end to anybody
before that time shows no less in this answer, which it made later. That it had been shown is known from when it was heard, not earlier; a node's own
journal has the time of the node's clock, which on another host is ours within `OBSERVATION_LAG_NS` only.

Across leader epochs that lower high watermark may stand still, but it may not move and stay below what former leaders had shown: a leader moves
it to the least end of its ISR's logs, as each member has reported it since the election, and every member holds what a former leader showed. So of what
a leader shows in its epoch all but the least is at or beyond all that was shown in former epochs. Without ELR a member that lost its disk's end
stays in the ISR, and its leader shows less until it has fetched again what it lost: nothing is lost by that (R3).
A step back is judged by what had to survive of the offsets in between.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from tribunal.checkers.api import (
    UNKNOWN,
    Anomaly,
    Array,
    Columns,
    Context,
    Found,
    Grounds,
    Kind,
    Meaning,
    PartitionRows,
    Property,
    Rule,
    anomalies,
    distinct,
)
from tribunal.checkers.guarantees import RULES, CutLive, JoinedIsr, ProvenLoss
from tribunal.checkers.judge.timeline import OBSERVATION_LAG_NS, Entry
from tribunal.results.recording import WORDS

R3: Final = "R3"


def _held_back(grounds: Grounds, anomaly: Anomaly) -> Entry | None:
    """Return the loss of a disk behind which a leader without ELR shows less: its member stays in the ISR and fetches again what it lost."""
    assert anomaly.log_offset is not None and anomaly.other_offset is not None and anomaly.at_ns is not None  # noqa: PT018
    seen, entries = grounds.rows.columns("watermarks"), grounds.timeline.entries
    shown = seen["at_ns"][(seen["leader_epoch"] < anomaly.leader_epoch) & (seen["high_watermark"] > anomaly.log_offset)]
    since_ns, until_ns = int(shown.min()) - OBSERVATION_LAG_NS, anomaly.at_ns + OBSERVATION_LAG_NS
    for position, entry in enumerate(entries):
        lost = [fact.node for fact in entry.facts if isinstance(fact, ProvenLoss | CutLive)]
        lost = [node for node in lost if not _is_whole_again(node, entries[position + 1 :], anomaly)]
        isrs = [other.state.isr for other in entries if other.state.leader_epoch == anomaly.leader_epoch]
        is_there = entry.from_offset < anomaly.other_offset and since_ns <= entry.at_ns <= until_ns
        if is_there and not entry.settings.elr and any(node in isr for node in lost for isr in isrs):
            return entry
    return None


def _is_whole_again(node: int, later: Sequence[Entry], anomaly: Anomaly) -> bool:
    """Whether who had lost its disk's end joined an ISR, with all of it, before the leader epoch that showed less."""
    former = (entry for entry in later if entry.state.leader_epoch < (anomaly.leader_epoch or 0))
    return any(isinstance(fact, JoinedIsr) and fact.node == node for entry in former for fact in entry.facts)


KINDS: Final = {
    "high_watermark_below_former": Kind(
        Meaning.PROMISED,
        "in a new leader epoch the high watermark moved, and stayed below what a former epoch had shown",
        (Rule(name=R3, words=RULES[R3], excusing=_held_back),),
    ),
    "high_watermark_back": Kind(Meaning.PROMISED, "the high watermark went back within one leader epoch"),
    "latest_offset_back": Kind(Meaning.PROMISED, "the latest offset (ListOffsets) went back"),
    "last_stable_offset_back": Kind(Meaning.PROMISED, "the last stable offset went back within one leader epoch"),
    "log_start_back": Kind(
        Meaning.VIOLATION,
        "the log start of a leader went back within its leader epoch: what was deleted is there again",
    ),
    "log_start_beyond_high_watermark": Kind(Meaning.VIOLATION, "the log start lies beyond the high watermark"),
    "last_stable_offset_beyond_high_watermark": Kind(
        Meaning.VIOLATION, "the last stable offset lies beyond the high watermark (docs/invariants.md#i18)"
    ),
}
_SOURCES: Final = WORDS["watermarks", "source"]
LIST_OFFSETS: Final = _SOURCES.index("list_offsets")
NODE: Final = _SOURCES.index("node")


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Look for steps back, observer by observer, and for answers that show less than others had been shown.

    rows:     watermarks of one partition, any order.
    returns:  one row per step back: log_offset is where it fell to, other_offset where it had been;
              at_ns when it was seen to be back, invoke_ns when it had been there. Of what an observer is shown less than others,
              one row each time that this begins.
    source:   KIP-207; docs/verdicts.md, "Watermarks"; I4, I5, I18 (docs/invariants.md).
    """
    seen = rows.columns("watermarks")
    asked = seen["source"] == LIST_OFFSETS
    answered = ~asked & (seen["leader_epoch"] != UNKNOWN)
    found = [
        _steps_back("high_watermark_back", seen, answered, "high_watermark", within_epoch=True),
        _steps_back("last_stable_offset_back", seen, answered, "last_stable_offset", within_epoch=True),
        _steps_back("latest_offset_back", seen, asked, "log_end_offset", within_epoch=False),
        _steps_back(
            "log_start_back", seen, answered & is_said_by_leader(rows, context), "log_start_offset", within_epoch=True
        ),
        _start_beyond(seen),
        _stable_beyond(seen),
        *_less_than_to_others(rows, context),
        *_below_former(seen, context),
    ]
    bounded = (seen["log_start_offset"] != UNKNOWN) & (seen["high_watermark"] != UNKNOWN)
    shown = (seen["high_watermark"] != UNKNOWN) | (seen["last_stable_offset"] != UNKNOWN)
    judged = bounded | (answered & shown) | (asked & (seen["log_end_offset"] != UNKNOWN))
    counts = {"watermarks judged": int(judged.sum()), "watermarks observed": int(judged.size)}
    return Found(pa.concat_tables(found), counts)


def _steps_back(kind: str, seen: Columns, chosen: Array, column: str, *, within_epoch: bool) -> pa.Table:
    chosen = np.flatnonzero(chosen & (seen[column] != UNKNOWN))
    if not within_epoch:
        chosen = chosen[~_is_of_former(seen, chosen)]
    none = np.zeros(chosen.size, np.int64)
    epochs, replicas = (seen[name][chosen] if within_epoch else none for name in ("leader_epoch", "answered_by"))
    # Observations of one instant are not ordered: the lower one first, so that no step back is made up.
    order = chosen[
        np.lexsort((seen[column][chosen], seen["at_ns"][chosen], replicas, epochs, seen["observer"][chosen]))
    ]
    if order.size == 0:
        return anomalies(kind, log_offset=np.zeros(0, np.int64))
    offsets = seen[column][order]
    changes = seen["observer"][order][1:] != seen["observer"][order][:-1]
    if within_epoch:
        for name in ("leader_epoch", "answered_by"):
            changes |= seen[name][order][1:] != seen[name][order][:-1]
    back = 1 + np.flatnonzero((offsets[1:] < offsets[:-1]) & ~changes)
    return anomalies(
        kind,
        log_offset=offsets[back],
        other_offset=offsets[back - 1],
        invoke_ns=seen["at_ns"][order[back - 1]],
        at_ns=seen["at_ns"][order[back]],
        leader_epoch=seen["leader_epoch"][order[back]],
    )


def _is_of_former(seen: Columns, chosen: Array) -> Array:
    """Tell which answers are of an older leader epoch than one that their observer had before: a deposed leader's say nothing of the log since."""
    epochs, observers = seen["leader_epoch"][chosen], seen["observer"][chosen]
    order = np.lexsort((epochs, seen["at_ns"][chosen], observers))
    keys = (observers[order].astype(np.int64) << 32) + epochs[order]
    former = np.zeros(chosen.size, bool)
    former[order] = (epochs[order] != UNKNOWN) & (keys < np.maximum.accumulate(keys))
    return former


def _less_than_to_others(rows: PartitionRows, context: Context) -> Iterator[pa.Table]:
    """Yield, of each leader epoch, the answers that show less than their leader had shown before they were asked for."""
    seen = rows.columns("watermarks")
    own = np.flatnonzero(is_said_by_leader(rows, context))
    asked = (seen["asked_ns"] != UNKNOWN) & (seen["source"] != NODE)
    if not asked[own].any():
        return
    own = own[np.argsort(seen["leader_epoch"][own], kind="stable")]
    borders = np.flatnonzero(np.diff(seen["leader_epoch"][own])) + 1
    is_shown = seen["source"] != LIST_OFFSETS
    latest = asked & ~is_shown & (seen["log_end_offset"] != UNKNOWN)
    for said in np.split(own, borders):
        fetched, stable = said[(asked & is_shown)[said]], said[is_shown[said]]
        yield _behind("high_watermark_back", seen, "high_watermark", said, fetched)
        yield _behind("latest_offset_back", seen, "high_watermark", said, said[latest[said]])
        yield _behind("log_start_back", seen, "log_start_offset", said, said[asked[said]])
        yield _behind("last_stable_offset_back", seen, "last_stable_offset", stable, fetched)


def is_said_by_leader(rows: PartitionRows, context: Context) -> Array:
    """Tell which observations are answers of the leader of their leader epoch, or of its own journal."""
    seen, leaders = rows.columns("watermarks"), dict(context.leaders)
    epochs = seen["leader_epoch"]
    led_by = np.array([leaders.get(epoch, UNKNOWN) for epoch in range(int(epochs.max(initial=-1)) + 1)] + [UNKNOWN])
    names = [name.removeprefix("node-") for name in rows.words("watermarks", "observer")]
    numbers = np.array([int(name) if name.isdigit() else UNKNOWN for name in names] + [UNKNOWN], np.int64)
    by = np.where(seen["source"] == NODE, numbers[seen["observer"]], seen["answered_by"])
    return np.asarray((by != UNKNOWN) & (by == led_by[epochs]))


def _behind(kind: str, seen: Columns, column: str, said: Array, judged: Array) -> pa.Table:
    """Return where an observer begins to be shown less than a leader had shown in its epoch before it was asked.

    said:    the observations that say what it had shown.
    judged:  those of which it is known when they were asked for.
    """
    offsets, asked_ns = seen[column], seen["asked_ns"]
    said, judged = said[offsets[said] != UNKNOWN], judged[offsets[judged] != UNKNOWN]
    known_ns = seen["at_ns"][said] + np.where(seen["source"][said] == NODE, OBSERVATION_LAG_NS, 0)
    order = np.argsort(known_ns, kind="stable")
    said, known_ns = said[order], known_ns[order]
    keys = (asked_ns, offsets, seen["at_ns"], seen["observer"])
    judged = judged[np.lexsort([key[judged] for key in keys])]
    before = np.searchsorted(known_ns, asked_ns[judged], side="left")
    most = np.append(UNKNOWN, np.maximum.accumulate(offsets[said]))[before]
    is_less, observers = offsets[judged] < most, seen["observer"][judged]
    begins = is_less.copy()
    begins[1:] &= ~(is_less[:-1] & (observers[1:] == observers[:-1]))
    last = [_last_shown(seen, said[: before[place]], column, most[place]) for place in np.flatnonzero(begins)]
    return anomalies(
        kind,
        log_offset=offsets[judged[begins]],
        other_offset=most[begins],
        invoke_ns=np.array(last, np.int64),
        at_ns=seen["at_ns"][judged[begins]],
        leader_epoch=seen["leader_epoch"][judged[begins]],
    )


def _last_shown(seen: Columns, said: Array, column: str, offset: int) -> int:
    """Return when an offset was shown last."""
    return int(seen["at_ns"][said[seen[column][said] == offset]].max())


def _below_former(seen: Columns, context: Context) -> Iterator[pa.Table]:
    """Yield, of each leader epoch, the highest that its leader's high watermark moved to below what former epochs had shown.

    A stretch of offsets each, judged by the last epoch that had shown it.
    """
    shown = (seen["source"] != LIST_OFFSETS) & (seen["leader_epoch"] != UNKNOWN) & (seen["high_watermark"] != UNKNOWN)
    epochs, marks, times = (seen[name][shown] for name in ("leader_epoch", "high_watermark", "at_ns"))
    if epochs.size == 0:
        return
    leaders = dict(context.leaders)
    led_by = np.array([leaders.get(epoch, UNKNOWN) for epoch in range(int(epochs.max()) + 1)], np.int64)
    answered_by = seen["answered_by"][shown]
    by_leader = (seen["source"][shown] == NODE) | ((answered_by != UNKNOWN) & (answered_by == led_by[epochs]))
    for epoch in distinct(epochs[by_leader]).tolist():
        own, former = by_leader & (epochs == epoch), epochs < epoch
        most = int(marks[former].max(initial=UNKNOWN))
        moved = np.flatnonzero(own & (marks > marks[own].min()) & (marks < most))
        if moved.size == 0:
            continue
        last = moved[np.lexsort((times[moved], -marks[moved]))[0]]
        rows, so_far = stretches(np.flatnonzero(former), int(marks[last]), epochs, times, marks)
        yield anomalies(
            "high_watermark_below_former",
            log_offset=so_far,
            other_offset=marks[rows],
            invoke_ns=times[rows],
            at_ns=np.full(rows.size, times[last]),
            leader_epoch=np.full(rows.size, epoch),
        )


def stretches(rows: Array, end: int, epochs: Array, times: Array, shown: Array) -> tuple[Array, Array]:
    """Return the observations beyond an end that show what none behind them does, by leader epoch and then by time, and from where on."""
    beyond = rows[shown[rows] > end]
    order = beyond[np.lexsort((shown[beyond], times[beyond], epochs[beyond]))][::-1]
    so_far = np.maximum.accumulate(np.concatenate([[end], shown[order]]))[:-1]
    higher = np.flatnonzero(shown[order] > so_far)
    return order[higher], so_far[higher]


def _start_beyond(seen: Columns) -> pa.Table:
    known = (seen["log_start_offset"] != UNKNOWN) & (seen["high_watermark"] != UNKNOWN)
    beyond = known & (seen["log_start_offset"] > seen["high_watermark"])
    return anomalies(
        "log_start_beyond_high_watermark",
        log_offset=seen["high_watermark"][beyond],
        other_offset=seen["log_start_offset"][beyond],
        at_ns=seen["at_ns"][beyond],
        leader_epoch=seen["leader_epoch"][beyond],
    )


def _stable_beyond(seen: Columns) -> pa.Table:
    """Return the answers whose last stable offset lies beyond the high watermark, but for what may have moved between the reading of the two.

    Apache Kafka's brokers read the high watermark first, and the last stable offset then: the one that bounded it has been shown by somebody soon.
    """
    known = (seen["source"] != LIST_OFFSETS) & (seen["leader_epoch"] != UNKNOWN) & (seen["high_watermark"] != UNKNOWN)
    beyond = np.flatnonzero(known & (seen["last_stable_offset"] > seen["high_watermark"]))
    shown = [seen[name][known] for name in ("leader_epoch", "high_watermark", "at_ns")] if beyond.size else []
    beyond = beyond[[not _is_bounded(seen, row, *shown) for row in beyond.tolist()]] if beyond.size else beyond
    return anomalies(
        "last_stable_offset_beyond_high_watermark",
        log_offset=seen["high_watermark"][beyond],
        other_offset=seen["last_stable_offset"][beyond],
        at_ns=seen["at_ns"][beyond],
        leader_epoch=seen["leader_epoch"][beyond],
    )


def _is_bounded(seen: Columns, row: int, epochs: Array, marks: Array, times: Array) -> bool:
    own = (epochs == seen["leader_epoch"][row]) & (times <= seen["at_ns"][row] + OBSERVATION_LAG_NS)
    return bool((marks[own] >= seen["last_stable_offset"][row]).any())


SQL: Final = """
WITH marked AS (
  SELECT *,
    CASE WHEN source <> 'list_offsets' AND leader_epoch IS NOT NULL AND high_watermark IS NOT NULL THEN 1
         ELSE 0 END AS has_high_watermark,
    CASE WHEN source <> 'list_offsets' AND leader_epoch IS NOT NULL AND last_stable_offset IS NOT NULL THEN 1
         ELSE 0 END AS has_last_stable,
    CASE WHEN source = 'list_offsets' AND log_end_offset IS NOT NULL AND COALESCE(leader_epoch, 2147483647) >= COALESCE(
           MAX(CASE WHEN log_end_offset IS NOT NULL THEN leader_epoch END) OVER (
             PARTITION BY run_id, topic, partition, observer, source ORDER BY at_ns, COALESCE(leader_epoch, -1)
             ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW), -1) THEN 1 ELSE 0 END AS has_latest
  FROM watermarks
), said AS (
  SELECT w.run_id, w.topic, w.partition, w.leader_epoch, w.observer, w.source, w.asked_ns, w.at_ns, w.log_end_offset,
    w.log_start_offset, w.answered_by,
    w.high_watermark, CASE WHEN w.source <> 'list_offsets' THEN w.last_stable_offset END AS last_stable_offset,
    CASE WHEN w.source = 'node' THEN w.at_ns + 500000000 ELSE w.at_ns END AS known_ns
  FROM watermarks w JOIN leaders l ON w.run_id = l.run_id AND w.topic = l.topic AND w.partition = l.partition
                                  AND w.leader_epoch = l.leader_epoch
  WHERE (w.source <> 'node' AND w.answered_by = l.node)
     OR (w.source = 'node' AND w.observer = CONCAT('node-', CAST(l.node AS STRING)))
), steps AS (
  SELECT run_id, topic, partition, 'high_watermark_back' AS kind, has_high_watermark AS is_known,
    high_watermark AS log_offset, leader_epoch, at_ns,
    LAG(high_watermark) OVER high AS other_offset, LAG(at_ns) OVER high AS invoke_ns
  FROM marked
  WINDOW high AS (PARTITION BY run_id, topic, partition, observer, leader_epoch, answered_by, has_high_watermark
                  ORDER BY at_ns, high_watermark)
  UNION ALL
  SELECT run_id, topic, partition, 'last_stable_offset_back', has_last_stable, last_stable_offset,
    leader_epoch, at_ns,
    LAG(last_stable_offset) OVER stable, LAG(at_ns) OVER stable
  FROM marked
  WINDOW stable AS (PARTITION BY run_id, topic, partition, observer, leader_epoch, answered_by, has_last_stable
                    ORDER BY at_ns, last_stable_offset)
  UNION ALL
  SELECT run_id, topic, partition, 'latest_offset_back', has_latest, log_end_offset, leader_epoch, at_ns,
    LAG(log_end_offset) OVER latest, LAG(at_ns) OVER latest
  FROM marked
  WINDOW latest AS (PARTITION BY run_id, topic, partition, observer, has_latest ORDER BY at_ns, log_end_offset)
  UNION ALL
  SELECT run_id, topic, partition, 'log_start_back', 1, log_start_offset, leader_epoch, at_ns,
    LAG(log_start_offset) OVER start, LAG(at_ns) OVER start
  FROM said WHERE source <> 'list_offsets' AND log_start_offset IS NOT NULL
  WINDOW start AS (PARTITION BY run_id, topic, partition, observer, leader_epoch, answered_by ORDER BY at_ns, log_start_offset)
), shown AS (
  SELECT w.*, CASE WHEN w.source = 'node' OR w.answered_by = l.node THEN 1 ELSE 0 END AS by_leader
  FROM watermarks w LEFT JOIN leaders l ON w.run_id = l.run_id AND w.topic = l.topic AND w.partition = l.partition
                                       AND w.leader_epoch = l.leader_epoch
  WHERE w.source <> 'list_offsets' AND w.leader_epoch IS NOT NULL AND w.high_watermark IS NOT NULL
), epochs AS (
  SELECT run_id, topic, partition, leader_epoch, MAX(high_watermark) AS most,
    MIN(CASE WHEN by_leader = 1 THEN high_watermark END) AS least
  FROM shown GROUP BY run_id, topic, partition, leader_epoch
), formers AS (
  SELECT *, MAX(most) OVER (PARTITION BY run_id, topic, partition ORDER BY leader_epoch
                            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS shown_before
  FROM epochs
), moved AS (
  SELECT s.run_id, s.topic, s.partition, s.leader_epoch, s.at_ns, s.high_watermark,
    ROW_NUMBER() OVER (PARTITION BY s.run_id, s.topic, s.partition, s.leader_epoch
                       ORDER BY s.high_watermark DESC, s.at_ns) AS place
  FROM shown s JOIN formers f ON s.run_id = f.run_id AND s.topic = f.topic AND s.partition = f.partition
                             AND s.leader_epoch = f.leader_epoch
  WHERE s.by_leader = 1 AND s.high_watermark > f.least AND s.high_watermark < f.shown_before
), ends AS (
  SELECT run_id, topic, partition, leader_epoch, observer, source, asked_ns, at_ns, known_ns,
    'high_watermark' AS what, high_watermark AS log_offset,
    CASE WHEN source = 'fetch' THEN 'high_watermark_back'
         WHEN source = 'list_offsets' AND log_end_offset IS NOT NULL THEN 'latest_offset_back' END AS kind
  FROM said WHERE high_watermark IS NOT NULL
  UNION ALL
  SELECT run_id, topic, partition, leader_epoch, observer, source, asked_ns, at_ns, known_ns,
    'last_stable_offset', last_stable_offset, CASE WHEN source = 'fetch' THEN 'last_stable_offset_back' END
  FROM said WHERE last_stable_offset IS NOT NULL
  UNION ALL
  SELECT run_id, topic, partition, leader_epoch, observer, source, asked_ns, at_ns, known_ns,
    'log_start', log_start_offset, CASE WHEN source <> 'node' THEN 'log_start_back' END
  FROM said WHERE log_start_offset IS NOT NULL
), moments AS (
  SELECT *, known_ns AS moment_ns, 1 AS is_known FROM ends
  UNION ALL
  SELECT *, asked_ns, 0 FROM ends WHERE asked_ns IS NOT NULL AND kind IS NOT NULL
), bounded AS (
  SELECT *, MAX(CASE WHEN is_known = 1 THEN log_offset END) OVER (
              PARTITION BY run_id, topic, partition, leader_epoch, what ORDER BY moment_ns, is_known
              ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS most
  FROM moments
), compared AS (
  SELECT *, CASE WHEN log_offset < most THEN 1 ELSE 0 END AS is_less FROM bounded WHERE is_known = 0
), answers AS (
  SELECT *, LAG(is_less) OVER (PARTITION BY run_id, topic, partition, leader_epoch, what, kind, observer
                               ORDER BY at_ns, log_offset, asked_ns) AS was_less
  FROM compared
), behind AS (
  SELECT a.run_id, a.topic, a.partition, a.kind, a.log_offset, MAX(e.at_ns) AS invoke_ns, a.at_ns, a.leader_epoch, a.most
  FROM answers a JOIN ends e ON a.run_id = e.run_id AND a.topic = e.topic AND a.partition = e.partition
                            AND a.leader_epoch = e.leader_epoch AND a.what = e.what
                            AND e.log_offset = a.most AND e.known_ns < a.asked_ns
  WHERE a.is_less = 1 AND COALESCE(a.was_less, 0) = 0
  GROUP BY a.run_id, a.topic, a.partition, a.kind, a.log_offset, a.at_ns, a.leader_epoch, a.most, a.observer, a.asked_ns
), stretches AS (
  SELECT m.run_id, m.topic, m.partition, m.leader_epoch, m.at_ns, t.at_ns AS invoke_ns, t.high_watermark,
    COALESCE(MAX(t.high_watermark) OVER (PARTITION BY m.run_id, m.topic, m.partition, m.leader_epoch
                                         ORDER BY t.leader_epoch DESC, t.at_ns DESC, t.high_watermark DESC
                                         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), m.high_watermark) AS so_far
  FROM moved m JOIN shown t ON m.run_id = t.run_id AND m.topic = t.topic AND m.partition = t.partition
                           AND t.leader_epoch < m.leader_epoch AND t.high_watermark > m.high_watermark
  WHERE m.place = 1
)
SELECT run_id, topic, partition, kind, log_offset, CAST(NULL AS BIGINT) AS value, CAST(NULL AS INT) AS acks, invoke_ns,
       at_ns, leader_epoch, other_offset
FROM steps WHERE is_known = 1 AND log_offset < other_offset
UNION ALL
SELECT run_id, topic, partition, 'high_watermark_below_former', so_far, CAST(NULL AS BIGINT), CAST(NULL AS INT),
       invoke_ns, at_ns, leader_epoch, high_watermark
FROM stretches WHERE high_watermark > so_far
UNION ALL
SELECT run_id, topic, partition, kind, log_offset, CAST(NULL AS BIGINT), CAST(NULL AS INT), invoke_ns, at_ns,
       leader_epoch, most
FROM behind
UNION ALL
SELECT run_id, topic, partition, 'log_start_beyond_high_watermark', high_watermark, CAST(NULL AS BIGINT),
       CAST(NULL AS INT), CAST(NULL AS BIGINT), at_ns, leader_epoch, log_start_offset
FROM watermarks WHERE log_start_offset > high_watermark
UNION ALL
SELECT w.run_id, w.topic, w.partition, 'last_stable_offset_beyond_high_watermark', w.high_watermark,
       CAST(NULL AS BIGINT), CAST(NULL AS INT), CAST(NULL AS BIGINT), w.at_ns, w.leader_epoch, w.last_stable_offset
FROM watermarks w
ANTI JOIN shown s ON w.run_id = s.run_id AND w.topic = s.topic AND w.partition = s.partition
                 AND w.leader_epoch = s.leader_epoch AND s.high_watermark >= w.last_stable_offset
                 AND s.at_ns <= w.at_ns + 500000000
WHERE w.source <> 'list_offsets' AND w.leader_epoch IS NOT NULL AND w.last_stable_offset > w.high_watermark
"""


PROPERTY: Final = Property(
    tables=("watermarks",),
    kinds=KINDS,
    kernel=kernel,
    sql=SQL,
)
