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

from bisect import bisect_right
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
    is_among,
)
from tribunal.checkers.guarantees import RULES, CutLive, Elected, JoinedIsr, ProvenLoss
from tribunal.checkers.judge.led import UNKNOWN_TOPIC
from tribunal.checkers.judge.timeline import OBSERVATION_LAG_NS, Entry, true
from tribunal.results.manifest import LATEST_UNGUARDED
from tribunal.results.recording import WORDS

R3: Final = "R3"
BEFORE_KIP_207: Final = "before KIP-207 a new leader answers by its own high watermark until it has caught up with what former leaders had shown"


def _held_back(grounds: Grounds, anomaly: Anomaly) -> Entry | None:
    """Return the loss of a disk behind which a leader without ELR shows less: its member stays in the ISR and fetches again what it lost."""
    assert anomaly.log_offset is not None and anomaly.other_offset is not None and anomaly.at_ns is not None  # noqa: PT018
    leaders, seen = grounds.context.leaders, grounds.rows.columns("watermarks")
    topic = int(leaders.topics(np.array([anomaly.at_ns]))[0])
    entries = [one for one in grounds.timeline.entries if bisect_right(leaders.anew_ns, one.at_ns) == topic]
    is_former = (seen["leader_epoch"] < anomaly.leader_epoch) & (leaders.topics(seen["at_ns"]) == topic)
    shown = seen["at_ns"][is_former & (seen["high_watermark"] > anomaly.log_offset)]
    since_ns, until_ns = int(shown.min()) - OBSERVATION_LAG_NS, anomaly.at_ns + OBSERVATION_LAG_NS
    for position, entry in enumerate(entries):
        lost = [fact.node for fact in entry.facts if isinstance(fact, ProvenLoss | CutLive)]
        lost = [node for node in lost if not _is_whole_again(node, entries[position + 1 :], anomaly)]
        isrs = [other.state.isr for other in entries if other.state.leader_epoch == anomaly.leader_epoch]
        is_there = entry.from_offset < anomaly.other_offset and since_ns <= entry.at_ns <= until_ns
        if is_there and not entry.settings.elr and any(node in isr for node in lost for isr in isrs):
            return entry
    return None


def _not_caught_up(grounds: Grounds, anomaly: Anomaly) -> Entry | None:
    """Return the election of a leader that had not caught up when it was asked: in its epoch it had shown to nobody what a former epoch had.

    Only of releases before KIP-207, and of answers whose leader epochs are known.
    """
    if not true(grounds.context.settings.get(LATEST_UNGUARDED)):
        return None
    seen, epoch = grounds.rows.columns("watermarks"), anomaly.leader_epoch
    latest = (seen["source"] == LIST_OFFSETS) & (seen["leader_epoch"] != UNKNOWN)
    before = latest & (seen["at_ns"] == anomaly.invoke_ns) & (seen["log_end_offset"] == anomaly.other_offset)
    back = latest & (seen["at_ns"] == anomaly.at_ns) & (seen["log_end_offset"] == anomaly.log_offset)
    if not before.any() or not back.any() or (seen["leader_epoch"][before] >= epoch).any():
        return None
    asked_ns = int(seen["asked_ns"][back].max())
    shown = np.maximum(seen["high_watermark"], np.where(latest, seen["log_end_offset"], UNKNOWN))
    known = (seen["leader_epoch"] == epoch) & (seen["at_ns"] <= (anomaly.at_ns if asked_ns == UNKNOWN else asked_ns))
    if (shown[known] >= anomaly.other_offset).any():
        return None
    entries = (one for one in grounds.timeline.entries if one.state.leader_epoch == epoch)
    return next((one for one in entries if any(isinstance(fact, Elected) for fact in one.facts)), None)


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
    "latest_offset_back": Kind(
        Meaning.PROMISED,
        "the latest offset (ListOffsets) went back",
        (Rule(name="R14", words=BEFORE_KIP_207, excusing=_not_caught_up),),
    ),
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
            "log_start_back",
            seen,
            answered & is_said_by_leader(rows, context),
            "log_start_offset",
            within_epoch=True,
            topics=context.leaders.topics(seen["at_ns"]),
        ),
        _start_beyond(seen),
        _stable_beyond(seen, context),
        *_less_than_to_others(rows, context),
        *_below_former(rows, context),
    ]
    bounded = (seen["log_start_offset"] != UNKNOWN) & (seen["high_watermark"] != UNKNOWN)
    shown = (seen["high_watermark"] != UNKNOWN) | (seen["last_stable_offset"] != UNKNOWN)
    judged = bounded | (answered & shown) | (asked & (seen["log_end_offset"] != UNKNOWN))
    counts = {"watermarks judged": int(judged.sum()), "watermarks observed": int(judged.size)}
    return Found(pa.concat_tables(found), counts)


def _steps_back(
    kind: str, seen: Columns, chosen: Array, column: str, *, within_epoch: bool, topics: Array | None = None
) -> pa.Table:
    """Return steps back of an observer; `topics`: of which topic each row is, where those of two of one name are not compared."""
    chosen = np.flatnonzero(chosen & (seen[column] != UNKNOWN))
    if not within_epoch:
        chosen = chosen[~_is_of_former(seen, chosen)]
    none = np.zeros(chosen.size, np.int64)
    epochs, replicas = (seen[name][chosen] if within_epoch else none for name in ("leader_epoch", "answered_by"))
    own = none if topics is None else topics[chosen]
    # Observations of one instant are not ordered: the lower one first, so that no step back is made up.
    order = chosen[
        np.lexsort((seen[column][chosen], seen["at_ns"][chosen], replicas, epochs, own, seen["observer"][chosen]))
    ]
    if order.size == 0:
        return anomalies(kind, log_offset=np.zeros(0, np.int64))
    offsets = seen[column][order]
    changes = seen["observer"][order][1:] != seen["observer"][order][:-1]
    if within_epoch:
        for name in ("leader_epoch", "answered_by"):
            changes |= seen[name][order][1:] != seen[name][order][:-1]
    if topics is not None:
        changes |= topics[order][1:] != topics[order][:-1]
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
    topics, epochs = context.leaders.topics(seen["at_ns"][own]), seen["leader_epoch"][own]
    order = np.lexsort((epochs, topics))
    own = own[order]
    borders = np.flatnonzero((np.diff(epochs[order]) != 0) | (np.diff(topics[order]) != 0)) + 1
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
    seen, leaders, by = rows.columns("watermarks"), context.leaders, said_by(rows)
    topics = leaders.topics(seen["at_ns"])
    own = (by != UNKNOWN) & (by == leaders.leaders(topics, seen["leader_epoch"]))
    return np.asarray(own & ~leaders.may_be_of_former(topics, seen["leader_epoch"], by, seen["at_ns"]))


def said_by(rows: PartitionRows) -> Array:
    """Return the node that each observation is of; UNKNOWN where nobody recorded it."""
    seen = rows.columns("watermarks")
    names = [name.removeprefix("node-") for name in rows.words("watermarks", "observer")]
    numbers = np.array([int(name) if name.isdecimal() else UNKNOWN for name in names] + [UNKNOWN], np.int64)
    return np.where(seen["source"] == NODE, numbers[seen["observer"]], seen["answered_by"])


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


def _below_former(rows: PartitionRows, context: Context) -> Iterator[pa.Table]:
    """Yield, of each leader epoch, the highest that its leader's high watermark moved to below what former epochs of its topic had shown.

    A stretch of offsets each, judged by the last epoch that had shown it.
    """
    seen, leaders = rows.columns("watermarks"), context.leaders
    shown = (seen["source"] != LIST_OFFSETS) & (seen["leader_epoch"] != UNKNOWN) & (seen["high_watermark"] != UNKNOWN)
    topics = leaders.topics(seen["at_ns"])
    shown &= topics != UNKNOWN_TOPIC
    if leaders.anew_ns:
        shown &= ~leaders.may_be_of_former(topics, seen["leader_epoch"], said_by(rows), seen["at_ns"])
    epochs, marks, times = (seen[name][shown] for name in ("leader_epoch", "high_watermark", "at_ns"))
    if epochs.size == 0:
        return
    topics, answered_by = topics[shown], seen["answered_by"][shown]
    led_by = leaders.leaders(topics, epochs)
    by_leader = (seen["source"][shown] == NODE) | ((answered_by != UNKNOWN) & (answered_by == led_by))
    for topic, epoch in sorted({*zip(topics[by_leader].tolist(), epochs[by_leader].tolist(), strict=True)}):
        of_topic = topics == topic
        own, former = by_leader & of_topic & (epochs == epoch), of_topic & (epochs < epoch)
        most = int(marks[former].max(initial=UNKNOWN))
        moved = np.flatnonzero(own & (marks > marks[own].min()) & (marks < most))
        if moved.size == 0:
            continue
        last = moved[np.lexsort((times[moved], -marks[moved]))[0]]
        places, so_far = stretches(np.flatnonzero(former), int(marks[last]), epochs, times, marks)
        yield anomalies(
            "high_watermark_below_former",
            log_offset=so_far,
            other_offset=marks[places],
            invoke_ns=times[places],
            at_ns=np.full(places.size, times[last]),
            leader_epoch=np.full(places.size, epoch),
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


def _stable_beyond(seen: Columns, context: Context) -> pa.Table:
    """Return the answers whose last stable offset lies beyond the high watermark, but for what may have moved between the reading of the two.

    Apache Kafka's brokers read the high watermark first, and the last stable offset then: the one that bounded it has been shown by somebody soon.
    """
    known = (seen["source"] != LIST_OFFSETS) & (seen["leader_epoch"] != UNKNOWN) & (seen["high_watermark"] != UNKNOWN)
    beyond = np.flatnonzero(known & (seen["last_stable_offset"] > seen["high_watermark"]))
    if beyond.size:
        topics = context.leaders.topics(seen["at_ns"])
        beyond = beyond[~_are_bounded(seen, beyond, np.flatnonzero(known), topics)]
    return anomalies(
        "last_stable_offset_beyond_high_watermark",
        log_offset=seen["high_watermark"][beyond],
        other_offset=seen["last_stable_offset"][beyond],
        at_ns=seen["at_ns"][beyond],
        leader_epoch=seen["leader_epoch"][beyond],
    )


def _are_bounded(seen: Columns, rows: Array, shown: Array, topics: Array) -> Array:
    """Tell of which answers somebody showed a high watermark as far on as the last stable offset, in that leader epoch of that topic, soon enough."""
    found = np.zeros(rows.size, bool)
    shown = shown[np.argsort(seen["at_ns"][shown], kind="stable")]
    pairs, place = np.unique(np.stack([topics[rows], seen["leader_epoch"][rows]], axis=1), axis=0, return_inverse=True)
    for number, (topic, epoch) in enumerate(pairs.tolist()):
        own = shown[seen["leader_epoch"][shown] == epoch]
        if topic != UNKNOWN_TOPIC:
            own = own[is_among(topics[own], np.array([UNKNOWN_TOPIC, topic]))]
        asked = place.reshape(-1) == number
        until_ns = seen["at_ns"][rows[asked]] + OBSERVATION_LAG_NS
        so_far = np.append(UNKNOWN, np.maximum.accumulate(seen["high_watermark"][own]))
        most = so_far[np.searchsorted(seen["at_ns"][own], until_ns, "right")]
        found[asked] = most >= seen["last_stable_offset"][rows[asked]]
    return found


SAID_BY_LEADERS: Final = """placed AS (
  SELECT w.*, t.made_anew
  FROM watermarks w LEFT JOIN topic_times t ON w.run_id = t.run_id AND w.topic = t.topic AND w.partition = t.partition
                                           AND w.at_ns >= t.since_ns AND w.at_ns < t.until_ns
), sure AS (
  SELECT p.* FROM placed p ANTI JOIN leaders f
    ON p.run_id = f.run_id AND p.topic = f.topic AND p.partition = f.partition AND p.leader_epoch = f.leader_epoch
   AND f.made_anew < p.made_anew AND p.at_ns < f.until_ns
   AND f.node = CASE WHEN p.source <> 'node' THEN p.answered_by
                     WHEN p.observer = CONCAT('node-', CAST(f.node AS STRING)) THEN f.node END
  WHERE p.made_anew IS NOT NULL
), led AS (
  SELECT p.* FROM sure p JOIN leaders l
    ON p.run_id = l.run_id AND p.topic = l.topic AND p.partition = l.partition AND p.leader_epoch = l.leader_epoch
   AND p.made_anew = l.made_anew
  WHERE (p.source <> 'node' AND p.answered_by = l.node)
     OR (p.source = 'node' AND p.observer = CONCAT('node-', CAST(l.node AS STRING)))
)"""
SQL: Final = "".join(("WITH ", SAID_BY_LEADERS, """, marked AS (
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
  SELECT run_id, topic, partition, made_anew, leader_epoch, observer, source, asked_ns, at_ns, log_end_offset, log_start_offset,
    answered_by, high_watermark, CASE WHEN source <> 'list_offsets' THEN last_stable_offset END AS last_stable_offset,
    CASE WHEN source = 'node' THEN at_ns + 500000000 ELSE at_ns END AS known_ns
  FROM led
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
  WINDOW start AS (PARTITION BY run_id, topic, partition, observer, made_anew, leader_epoch, answered_by ORDER BY at_ns, log_start_offset)
), shown AS (
  SELECT * FROM placed WHERE source <> 'list_offsets' AND leader_epoch IS NOT NULL AND high_watermark IS NOT NULL
), of_topics AS (
  SELECT s.*, CASE WHEN s.source = 'node' OR s.answered_by = l.node THEN 1 ELSE 0 END AS by_leader
  FROM sure s LEFT JOIN leaders l ON s.run_id = l.run_id AND s.topic = l.topic AND s.partition = l.partition
                                 AND s.made_anew = l.made_anew AND s.leader_epoch = l.leader_epoch
  WHERE s.source <> 'list_offsets' AND s.leader_epoch IS NOT NULL AND s.high_watermark IS NOT NULL
), epochs AS (
  SELECT run_id, topic, partition, made_anew, leader_epoch, MAX(high_watermark) AS most,
    MIN(CASE WHEN by_leader = 1 THEN high_watermark END) AS least
  FROM of_topics GROUP BY run_id, topic, partition, made_anew, leader_epoch
), formers AS (
  SELECT *, MAX(most) OVER (PARTITION BY run_id, topic, partition, made_anew ORDER BY leader_epoch
                            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS shown_before
  FROM epochs
), moved AS (
  SELECT s.run_id, s.topic, s.partition, s.made_anew, s.leader_epoch, s.at_ns, s.high_watermark,
    ROW_NUMBER() OVER (PARTITION BY s.run_id, s.topic, s.partition, s.made_anew, s.leader_epoch
                       ORDER BY s.high_watermark DESC, s.at_ns) AS place
  FROM of_topics s JOIN formers f ON s.run_id = f.run_id AND s.topic = f.topic AND s.partition = f.partition
                                 AND s.made_anew = f.made_anew AND s.leader_epoch = f.leader_epoch
  WHERE s.by_leader = 1 AND s.high_watermark > f.least AND s.high_watermark < f.shown_before
), ends AS (
  SELECT run_id, topic, partition, made_anew, leader_epoch, observer, source, asked_ns, at_ns, known_ns,
    'high_watermark' AS what, high_watermark AS log_offset,
    CASE WHEN source = 'fetch' THEN 'high_watermark_back'
         WHEN source = 'list_offsets' AND log_end_offset IS NOT NULL THEN 'latest_offset_back' END AS kind
  FROM said WHERE high_watermark IS NOT NULL
  UNION ALL
  SELECT run_id, topic, partition, made_anew, leader_epoch, observer, source, asked_ns, at_ns, known_ns,
    'last_stable_offset', last_stable_offset, CASE WHEN source = 'fetch' THEN 'last_stable_offset_back' END
  FROM said WHERE last_stable_offset IS NOT NULL
  UNION ALL
  SELECT run_id, topic, partition, made_anew, leader_epoch, observer, source, asked_ns, at_ns, known_ns,
    'log_start', log_start_offset, CASE WHEN source <> 'node' THEN 'log_start_back' END
  FROM said WHERE log_start_offset IS NOT NULL
), moments AS (
  SELECT *, known_ns AS moment_ns, 1 AS is_known FROM ends
  UNION ALL
  SELECT *, asked_ns, 0 FROM ends WHERE asked_ns IS NOT NULL AND kind IS NOT NULL
), bounded AS (
  SELECT *, MAX(CASE WHEN is_known = 1 THEN log_offset END) OVER (
              PARTITION BY run_id, topic, partition, made_anew, leader_epoch, what ORDER BY moment_ns, is_known
              ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS most
  FROM moments
), compared AS (
  SELECT *, CASE WHEN log_offset < most THEN 1 ELSE 0 END AS is_less FROM bounded WHERE is_known = 0
), answers AS (
  SELECT *, LAG(is_less) OVER (PARTITION BY run_id, topic, partition, made_anew, leader_epoch, what, kind, observer
                               ORDER BY at_ns, log_offset, asked_ns) AS was_less
  FROM compared
), behind AS (
  SELECT a.run_id, a.topic, a.partition, a.kind, a.log_offset, MAX(e.at_ns) AS invoke_ns, a.at_ns, a.leader_epoch, a.most
  FROM answers a JOIN ends e ON a.run_id = e.run_id AND a.topic = e.topic AND a.partition = e.partition
                            AND a.made_anew = e.made_anew AND a.leader_epoch = e.leader_epoch AND a.what = e.what
                            AND e.log_offset = a.most AND e.known_ns < a.asked_ns
  WHERE a.is_less = 1 AND COALESCE(a.was_less, 0) = 0
  GROUP BY a.run_id, a.topic, a.partition, a.made_anew, a.kind, a.log_offset, a.at_ns, a.leader_epoch, a.most, a.observer, a.asked_ns
), stretches AS (
  SELECT m.run_id, m.topic, m.partition, m.leader_epoch, m.at_ns, t.at_ns AS invoke_ns, t.high_watermark,
    COALESCE(MAX(t.high_watermark) OVER (PARTITION BY m.run_id, m.topic, m.partition, m.made_anew, m.leader_epoch
                                         ORDER BY t.leader_epoch DESC, t.at_ns DESC, t.high_watermark DESC
                                         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), m.high_watermark) AS so_far
  FROM moved m JOIN of_topics t ON m.run_id = t.run_id AND m.topic = t.topic AND m.partition = t.partition AND m.made_anew = t.made_anew
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
FROM placed w
ANTI JOIN shown s ON w.run_id = s.run_id AND w.topic = s.topic AND w.partition = s.partition
                 AND w.leader_epoch = s.leader_epoch AND s.high_watermark >= w.last_stable_offset
                 AND s.at_ns <= w.at_ns + 500000000 AND COALESCE(s.made_anew = w.made_anew, TRUE)
WHERE w.source <> 'list_offsets' AND w.leader_epoch IS NOT NULL AND w.last_stable_offset > w.high_watermark
"""))  # fmt: skip


PROPERTY: Final = Property(
    tables=("watermarks",),
    kinds=KINDS,
    kernel=kernel,
    sql=SQL,
)
