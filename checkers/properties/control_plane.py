"""The committed metadata keeps its own rules: ISR, ELR, leaders, recovery, elections and who may join.

Looks at what the quorum committed, never at what nodes believe: an impossible state there is a violation even
if no record was lost. Elections are judged as docs/verdicts.md says of "violations by themselves".
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from tribunal.checkers.api import (
    Anomaly,
    Found,
    Kind,
    Meaning,
    PartitionRows,
    Property,
    table_of,
)
from tribunal.checkers.guarantees import VIOLATIONS, Elected, How, JoinedIsr, ShutDownUncleanly
from tribunal.checkers.judge.cuts import with_cuts
from tribunal.checkers.judge.presence import forgotten
from tribunal.checkers.judge.quorum import Silence, silent
from tribunal.checkers.judge.timeline import Entry, History, Timeline
from tribunal.results.metadata import NO_LEADER, RECOVERING, registrations
from tribunal.results.rows import Fault, typed

KINDS: Final = {
    "isr_outside_replicas": Kind(
        Meaning.VIOLATION, "the committed ISR or ELR names a broker that is no replica (docs/invariants.md#i7)"
    ),
    "isr_and_elr_overlap": Kind(
        Meaning.VIOLATION, "a broker is in the committed ISR and in the ELR (KIP-966, docs/invariants.md#i7)"
    ),
    "elr_beside_full_isr": Kind(
        Meaning.VIOLATION, "the ELR is not empty although the ISR has min ISR members (KIP-966)"
    ),
    "elr_member_forgotten": Kind(
        Meaning.VIOLATION,
        "a member left ISR and ELR below min ISR, without an unclean shutdown (KIP-966, docs/invariants.md#i8)",
    ),
    "leader_outside_isr": Kind(
        Meaning.VIOLATION, "the committed leader is not in the committed ISR (docs/invariants.md#i10)"
    ),
    "recovering_with_others": Kind(
        Meaning.VIOLATION, "RECOVERING with more than one ISR member (KIP-704, docs/invariants.md#i12)"
    ),
    "fenced_replica_joined": Kind(
        Meaning.VIOLATION, "a fenced broker joined the ISR (KIP-841, KIP-903, docs/invariants.md#i11)"
    ),
    "broker_epoch_back": Kind(
        Meaning.VIOLATION, "a broker registered with an epoch not above its last (KIP-380, docs/invariants.md#i2)"
    ),
    "quorum_epoch_back": Kind(
        Meaning.VIOLATION, "the quorum epoch goes back along the metadata log (docs/invariants.md#i2)"
    ),
    "quorum_epoch_raised_by_return": Kind(
        Meaning.NOTE, "the quorum elected anew when a voter came back that had been cut off (KIP-996)"
    ),
    "quorum_commits_nothing": Kind(
        Meaning.VIOLATION,
        "the metadata quorum commits nothing for long although a majority of its voters runs and nothing hurts them (KIP-595, KIP-996: liveness)",
    ),
    **{name: Kind(Meaning.VIOLATION, sentence) for name, sentence in VIOLATIONS.items()},
}
CUT_OFF: Final = frozenset({"isolate", "half_open", "half-open"})
RETURN_NS: Final = 3_000_000_000


def timeline_kernel(timeline: Timeline) -> Found:
    """Walk one partition's committed states; return one row per state that may not be.

    source:  I7, I10, I11, I12 (docs/invariants.md), docs/verdicts.md "Violations by themselves".
    """
    rows: list[Anomaly] = []
    elections = _Elections()
    rows += [
        _row("elr_member_forgotten", timeline.entries[place], f"broker {node}") for place, node in forgotten(timeline)
    ]
    for entry in timeline.entries:
        rows += [_row(kind, entry, detail) for kind, detail in elections.look_at(entry)]
        if entry.changed:
            rows += [_row(kind, entry, detail) for kind, detail in _state_faults(entry)]
            rows += [_row("fenced_replica_joined", entry, f"broker {node}") for node in _fenced_joins(entry)]
    return Found(table_of(rows), {"metadata changes": len(timeline.entries)})


def _row(kind: str, entry: Entry, detail: str) -> Anomaly:
    state = entry.state
    words = f"{detail}: ISR {list(state.isr)}, ELR {list(state.elr)}, leader {state.leader}".removeprefix(": ")
    return Anomaly(
        kind=kind,
        at_ns=entry.at_ns,
        node=None if state.leader == NO_LEADER else state.leader,
        leader_epoch=state.leader_epoch,
        detail=words,
    )


def _state_faults(entry: Entry) -> list[tuple[str, str]]:
    state = entry.state
    isr, elr = dict.fromkeys(state.isr), dict.fromkeys(state.elr)
    faults = []
    if any(node not in state.replicas for node in (*isr, *elr)):
        faults.append(("isr_outside_replicas", f"replicas {list(state.replicas)}"))
    if any(node in elr for node in isr):
        faults.append(("isr_and_elr_overlap", ""))
    if elr and len(isr) >= entry.settings.effective_min_isr:
        faults.append(("elr_beside_full_isr", f"effective min ISR {entry.settings.effective_min_isr}"))
    if state.leader != NO_LEADER and state.leader not in isr:
        faults.append(("leader_outside_isr", ""))
    if state.recovery == RECOVERING and len(isr) > 1:
        faults.append(("recovering_with_others", ""))
    return faults


def _fenced_joins(entry: Entry) -> list[int]:
    return [fact.node for fact in entry.facts if isinstance(fact, JoinedIsr) and fact.node in entry.fenced]


class _Elections:
    """Judges elections by themselves, for any record below the high watermark of the last full ISR."""

    def __init__(self) -> None:
        self._holders: tuple[int, ...] | None = None  # of what was exposed with a full enough ISR; None: unknown
        self._least_min_isr = 0
        self._unclean: dict[int, None] = {}
        self._made_anew = 0

    def look_at(self, entry: Entry) -> list[tuple[str, str]]:
        """Take in the next entry; return what is wrong with its election. A topic that is made anew holds nothing of the one before."""
        found: list[tuple[str, str]] = []
        if entry.made_anew != self._made_anew:
            self._made_anew, self._holders, self._unclean = entry.made_anew, None, {}
        for fact in entry.facts:
            match fact:
                case ShutDownUncleanly(node=node):
                    self._unclean[node] = None
                case JoinedIsr(node=node):
                    self._unclean.pop(node, None)
                case Elected():
                    found += self._judge(fact, entry)
                case _:
                    pass  # says nothing of who may be elected
        self._remember(entry)
        return found

    def _judge(self, election: Elected, entry: Entry) -> list[tuple[str, str]]:
        found = []
        settings = entry.settings
        allowed = settings.unclean or settings.recovery == "aggressive" or election.ordered
        if election.how is How.UNCLEAN and not allowed:
            found.append(("unclean_election_not_allowed", f"broker {election.leader}"))
        if election.how is How.CLEAN and settings.elr and election.leader in self._unclean:
            found.append(("clean_election_of_unclean_replica", f"broker {election.leader}"))
        if election.empty and settings.elr and self._spent() < self._least_min_isr:
            counts = f"{self._spent()} unclean shutdowns among the holders, {self._least_min_isr} were needed"
            found.append(("elr_lost_member", counts))
        if election.how is not How.CLEAN:
            self._unclean.pop(election.leader, None)
        return found

    def _spent(self) -> int:
        if self._holders is None:
            return self._least_min_isr
        return sum(node in self._unclean for node in self._holders)

    def _remember(self, entry: Entry) -> None:
        state, least = entry.state, entry.settings.effective_min_isr
        isr = tuple(dict.fromkeys(state.isr))
        if len(isr) >= least:
            self._holders, self._least_min_isr = isr, least
        elif any(isinstance(fact, Elected) and fact.how is How.UNCLEAN for fact in entry.facts):
            self._holders = None  # what they held may be lost by right: the log is its leader's now (R4)
        elif self._holders is not None:
            joined = [fact.node for fact in entry.facts if isinstance(fact, JoinedIsr)]
            holders = tuple(dict.fromkeys([*self._holders, *joined]))
            # A reassignment takes holders away by order; one that takes none of them leaves all as it was.
            self._holders = holders if set(holders) <= set(state.replicas) else None
            self._least_min_isr = min(self._least_min_isr, least)


def run_kernel(run: PartitionRows, history: History) -> Found:
    """Look at epochs along the whole metadata log."""
    metadata = run.table("metadata").sort_by("metadata_offset")
    rows: list[Anomaly] = []
    last_epoch = -1
    for offset, epoch, at_ns in zip(
        *(metadata[name].to_pylist() for name in ("metadata_offset", "quorum_epoch", "at_ns")), strict=True
    ):
        if epoch < last_epoch:
            detail = f"quorum epoch {epoch} after {last_epoch}"
            rows.append(_epoch_row("quorum_epoch_back", offset, at_ns, None, detail))
        last_epoch = max(last_epoch, epoch)
    rows += _broker_epochs(metadata)
    rows += _raised_by_return(metadata, with_cuts(run.table("faults"), run.table("phases")))
    rows += [_silence_row(silence) for silence in silent(run.table, history.settings)]
    return Found(table_of(rows), {"registrations": len(history.registrations)})


def _broker_epochs(metadata: pa.Table) -> list[Anomaly]:
    rows: list[Anomaly] = []
    known: dict[int, tuple[int, str | None]] = {}
    for row in registrations(metadata):
        node, epoch, incarnation = row.record.broker_id, row.record.broker_epoch, row.record.incarnation_id
        previous = known.get(node)
        # The same incarnation only amends its registration and keeps its epoch (SPEC 2.2.2).
        if previous is not None and (epoch < previous[0] or (epoch == previous[0] and incarnation != previous[1])):
            detail = f"broker epoch {epoch} after {previous[0]}"
            rows.append(_epoch_row("broker_epoch_back", row.metadata_offset, row.at_ns, node, detail))
        known[node] = (epoch, incarnation)
    return rows


def _raised_by_return(metadata: pa.Table, faults: pa.Table) -> list[Anomaly]:
    """Return the voters whose return was followed by an election, where no other fault can be to blame.

    A voter that reaches nobody asks with pre-votes and raises no epoch (KIP-996); machines stall too, so this is no verdict. A fault acts before it is
    proven: it may be to blame from when it is begun.
    """
    injected = typed(faults, Fault)
    moments = (at_ns for fault in injected for at_ns in (fault.planned_ns, fault.injected_ns, fault.healed_ns))
    times = [at_ns for at_ns in moments if at_ns is not None]
    columns = (metadata["at_ns"].to_pylist(), metadata["quorum_epoch"].to_pylist())
    epochs = [(at_ns, epoch) for at_ns, epoch in zip(*columns, strict=True) if at_ns is not None]
    rows = []
    for fault in injected:
        target, healed_ns = fault.resolved_target or "", fault.healed_ns
        if fault.kind not in CUT_OFF or not target.startswith("controller") or healed_ns is None:
            continue
        until = min([healed_ns + RETURN_NS, *(time for time in times if time > healed_ns)])
        before = max((epoch for at_ns, epoch in epochs if at_ns <= healed_ns), default=None)
        after = max((epoch for at_ns, epoch in epochs if healed_ns < at_ns <= until), default=None)
        if before is not None and after is not None and after > before:
            detail = f"{target} came back, quorum epoch {after} after {before}"
            rows.append(Anomaly(kind="quorum_epoch_raised_by_return", at_ns=healed_ns, detail=detail))
    return rows


def _silence_row(silence: Silence) -> Anomaly:
    return Anomaly(
        kind="quorum_commits_nothing",
        invoke_ns=silence.since_ns,
        at_ns=silence.until_ns,
        detail=silence_words(silence.voters, silence.waited_ns),
    )


def silence_words(voters: Sequence[int], waited_ns: int) -> str:
    """Say who could have committed something, and how long they had no processor meanwhile."""
    waited = (
        f"; one of them, the harness or the machine waited {waited_ns / 1e9:.1f} s for a processor" if waited_ns else ""
    )
    return f"controllers {list(voters)} ran unhurt, and nothing was committed{waited}"


def _epoch_row(kind: str, offset: int, at_ns: int | None, node: int | None, detail: str) -> Anomaly:
    return Anomaly(kind=kind, at_ns=at_ns, node=node, detail=f"{detail} at metadata offset {offset}")


SQL: Final = """
WITH last_facts AS (
  SELECT e.run_id, e.topic, e.partition, e.position, f.node, MAX(f.position) AS fact_position
  FROM entries e JOIN entry_facts f
    ON e.run_id = f.run_id AND e.topic = f.topic AND e.partition = f.partition AND f.position < e.position
   AND f.position >= e.anew_position AND (f.fact IN ('unclean_shutdown', 'joined_isr') OR (f.fact = 'elected' AND f.how <> 'clean'))
  GROUP BY e.run_id, e.topic, e.partition, e.position, f.node
), unclean AS (
  SELECT l.run_id, l.topic, l.partition, l.position, l.node FROM last_facts l JOIN entry_facts f
    ON l.run_id = f.run_id AND l.topic = f.topic AND l.partition = f.partition AND l.fact_position = f.position
   AND l.node = f.node AND f.fact = 'unclean_shutdown'
), elections AS (
  SELECT e.*, f.node AS elected, f.how, f.is_ordered, f.is_empty FROM entries e JOIN entry_facts f
    ON e.run_id = f.run_id AND e.topic = f.topic AND e.partition = f.partition AND e.position = f.position
   AND f.fact = 'elected'
), stepped AS (
  SELECT e.*, CASE WHEN e.isr_size >= e.min_isr THEN 1 ELSE 0 END AS is_full,
    CASE WHEN u.position IS NOT NULL THEN 1 ELSE 0 END AS is_anew
  FROM entries e LEFT JOIN (SELECT DISTINCT run_id, topic, partition, position FROM elections WHERE how = 'unclean') u
    ON e.run_id = u.run_id AND e.topic = u.topic AND e.partition = u.partition AND e.position = u.position
), emptied AS (
  SELECT e.run_id, e.topic, e.partition, e.position, MAX(s.position) AS full_position
  FROM elections e JOIN stepped s
    ON e.run_id = s.run_id AND e.topic = s.topic AND e.partition = s.partition AND s.position < e.position AND s.is_full = 1
   AND s.position >= e.anew_position
  WHERE e.is_empty = 1 AND e.elr_on = 1
  GROUP BY e.run_id, e.topic, e.partition, e.position
), leasts AS (
  SELECT m.run_id, m.topic, m.partition, m.position, m.full_position, MIN(s.min_isr) AS least,
         MAX(CASE WHEN s.position > m.full_position THEN s.is_anew ELSE 0 END) AS is_anew
  FROM emptied m JOIN stepped s
    ON m.run_id = s.run_id AND m.topic = s.topic AND m.partition = s.partition
   AND s.position >= m.full_position AND s.position < m.position
  GROUP BY m.run_id, m.topic, m.partition, m.position, m.full_position
), holders AS (
  SELECT m.run_id, m.topic, m.partition, m.position, p.node, m.full_position + 1 AS held_from FROM emptied m JOIN members p
    ON m.run_id = p.run_id AND m.topic = p.topic AND m.partition = p.partition AND m.full_position = p.position
   AND p.role = 'isr'
  UNION
  SELECT m.run_id, m.topic, m.partition, m.position, f.node, f.position FROM emptied m JOIN entry_facts f
    ON m.run_id = f.run_id AND m.topic = f.topic AND m.partition = f.partition
   AND f.position > m.full_position AND f.position < m.position AND f.fact = 'joined_isr'
), taken_away AS (
  SELECT DISTINCT h.run_id, h.topic, h.partition, h.position FROM holders h JOIN entries e
    ON h.run_id = e.run_id AND h.topic = e.topic AND h.partition = e.partition
   AND e.position >= h.held_from AND e.position < h.position
  ANTI JOIN (SELECT * FROM members WHERE role = 'replica') r
    ON h.run_id = r.run_id AND h.topic = r.topic AND h.partition = r.partition AND h.node = r.node
   AND e.position = r.position
), spent AS (
  SELECT h.run_id, h.topic, h.partition, h.position, COUNT(DISTINCT u.node) AS spent FROM holders h LEFT JOIN unclean u
    ON h.run_id = u.run_id AND h.topic = u.topic AND h.partition = u.partition AND h.position = u.position
   AND h.node = u.node
  GROUP BY h.run_id, h.topic, h.partition, h.position
), wrong AS (
  SELECT run_id, topic, partition, position, 'unclean_election_not_allowed' AS kind,
         CONCAT('broker ', CAST(elected AS STRING)) AS what
  FROM elections WHERE how = 'unclean' AND unclean_on = 0 AND is_aggressive = 0 AND is_ordered = 0
  UNION ALL
  SELECT e.run_id, e.topic, e.partition, e.position, 'clean_election_of_unclean_replica',
         CONCAT('broker ', CAST(e.elected AS STRING))
  FROM elections e SEMI JOIN unclean u
    ON e.run_id = u.run_id AND e.topic = u.topic AND e.partition = u.partition AND e.position = u.position
   AND e.elected = u.node
  ANTI JOIN (SELECT * FROM entry_facts WHERE fact = 'joined_isr') j
    ON e.run_id = j.run_id AND e.topic = j.topic AND e.partition = j.partition AND e.position = j.position
   AND e.elected = j.node
  WHERE e.how = 'clean' AND e.elr_on = 1
  UNION ALL
  SELECT l.run_id, l.topic, l.partition, l.position, 'elr_lost_member',
         CONCAT(CAST(s.spent AS STRING), ' unclean shutdowns among the holders, ', CAST(l.least AS STRING), ' were needed')
  FROM leasts l JOIN spent s
    ON l.run_id = s.run_id AND l.topic = s.topic AND l.partition = s.partition AND l.position = s.position
  ANTI JOIN taken_away t
    ON l.run_id = t.run_id AND l.topic = t.topic AND l.partition = t.partition AND l.position = t.position
  WHERE l.is_anew = 0 AND s.spent < l.least
  UNION ALL
  SELECT DISTINCT e.run_id, e.topic, e.partition, e.position, 'isr_outside_replicas', CONCAT('replicas ', e.replicas)
  FROM entries e JOIN members m
    ON e.run_id = m.run_id AND e.topic = m.topic AND e.partition = m.partition AND e.position = m.position
   AND m.role IN ('isr', 'elr')
  ANTI JOIN (SELECT * FROM members WHERE role = 'replica') r
    ON e.run_id = r.run_id AND e.topic = r.topic AND e.partition = r.partition AND e.position = r.position
   AND m.node = r.node
  WHERE e.is_changed = 1
  UNION ALL
  SELECT DISTINCT e.run_id, e.topic, e.partition, e.position, 'isr_and_elr_overlap', ''
  FROM entries e JOIN members m
    ON e.run_id = m.run_id AND e.topic = m.topic AND e.partition = m.partition AND e.position = m.position AND m.role = 'isr'
  JOIN members r
    ON e.run_id = r.run_id AND e.topic = r.topic AND e.partition = r.partition AND e.position = r.position
   AND m.node = r.node AND r.role = 'elr'
  WHERE e.is_changed = 1
  UNION ALL
  SELECT run_id, topic, partition, position, 'elr_beside_full_isr', CONCAT('effective min ISR ', CAST(min_isr AS STRING))
  FROM entries WHERE is_changed = 1 AND elr_size > 0 AND isr_size >= min_isr
  UNION ALL
  SELECT e.run_id, e.topic, e.partition, e.position, 'leader_outside_isr', ''
  FROM entries e ANTI JOIN (SELECT * FROM members WHERE role = 'isr') m
    ON e.run_id = m.run_id AND e.topic = m.topic AND e.partition = m.partition AND e.position = m.position
   AND e.leader = m.node
  WHERE e.is_changed = 1 AND e.leader <> -1
  UNION ALL
  SELECT run_id, topic, partition, position, 'elr_member_forgotten', CONCAT('broker ', CAST(node AS STRING)) FROM forgotten
  UNION ALL
  SELECT run_id, topic, partition, position, 'recovering_with_others', ''
  FROM entries WHERE is_changed = 1 AND recovery = 1 AND isr_size > 1
  UNION ALL
  SELECT e.run_id, e.topic, e.partition, e.position, 'fenced_replica_joined', CONCAT('broker ', CAST(f.node AS STRING))
  FROM entries e JOIN entry_facts f
    ON e.run_id = f.run_id AND e.topic = f.topic AND e.partition = f.partition AND e.position = f.position
   AND f.fact = 'joined_isr'
  SEMI JOIN (SELECT * FROM members WHERE role = 'fenced') m
    ON e.run_id = m.run_id AND e.topic = m.topic AND e.partition = m.partition AND e.position = m.position AND f.node = m.node
  WHERE e.is_changed = 1
), epochs AS (
  SELECT *, MAX(quorum_epoch) OVER (PARTITION BY run_id ORDER BY metadata_offset
                                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS greatest_before
  FROM metadata_epochs
), registered_epochs AS (
  SELECT *, LAG(broker_epoch) OVER of_node AS previous_epoch, LAG(incarnation) OVER of_node AS previous_incarnation
  FROM registrations WINDOW of_node AS (PARTITION BY run_id, node ORDER BY metadata_offset)
), times AS (
  SELECT run_id, planned_ns AS at_ns FROM faults WHERE planned_ns IS NOT NULL
  UNION ALL SELECT run_id, injected_ns FROM faults WHERE injected_ns IS NOT NULL
  UNION ALL SELECT run_id, healed_ns FROM faults WHERE healed_ns IS NOT NULL
), returns AS (
  SELECT f.run_id, f.fault_index, f.resolved_target, f.healed_ns,
         COALESCE(LEAST(MIN(t.at_ns), f.healed_ns + 3000000000), f.healed_ns + 3000000000) AS until_ns
  FROM faults f LEFT JOIN times t ON f.run_id = t.run_id AND t.at_ns > f.healed_ns
  WHERE f.kind IN ('isolate', 'half_open', 'half-open') AND f.resolved_target LIKE 'controller%'
    AND f.healed_ns IS NOT NULL
  GROUP BY f.run_id, f.fault_index, f.resolved_target, f.healed_ns
), raised AS (
  SELECT r.run_id, r.fault_index, r.resolved_target, r.healed_ns,
         MAX(CASE WHEN e.at_ns <= r.healed_ns THEN e.quorum_epoch END) AS epoch_before,
         MAX(CASE WHEN e.at_ns > r.healed_ns AND e.at_ns <= r.until_ns THEN e.quorum_epoch END) AS epoch_after
  FROM returns r JOIN metadata_epochs e ON r.run_id = e.run_id
  GROUP BY r.run_id, r.fault_index, r.resolved_target, r.healed_ns
), found AS (
  SELECT w.run_id, w.topic, w.partition, w.kind, e.at_ns, NULLIF(e.leader, -1) AS node, e.leader_epoch,
         CASE WHEN w.what = '' THEN e.description ELSE CONCAT(w.what, ': ', e.description) END AS detail
  FROM wrong w JOIN entries e
    ON w.run_id = e.run_id AND w.topic = e.topic AND w.partition = e.partition AND w.position = e.position
  UNION ALL
  SELECT run_id, CAST(NULL AS STRING), CAST(NULL AS INT), 'quorum_epoch_back', at_ns, CAST(NULL AS INT), CAST(NULL AS INT),
         CONCAT('quorum epoch ', CAST(quorum_epoch AS STRING), ' after ', CAST(greatest_before AS STRING),
                ' at metadata offset ', CAST(metadata_offset AS STRING))
  FROM epochs WHERE quorum_epoch < greatest_before
  UNION ALL
  SELECT run_id, CAST(NULL AS STRING), CAST(NULL AS INT), 'broker_epoch_back', at_ns, node, CAST(NULL AS INT),
         CONCAT('broker epoch ', CAST(broker_epoch AS STRING), ' after ', CAST(previous_epoch AS STRING),
                ' at metadata offset ', CAST(metadata_offset AS STRING))
  FROM registered_epochs
  WHERE broker_epoch < previous_epoch OR (broker_epoch = previous_epoch AND incarnation <> previous_incarnation)
  UNION ALL
  SELECT run_id, CAST(NULL AS STRING), CAST(NULL AS INT), 'quorum_epoch_raised_by_return', healed_ns, CAST(NULL AS INT),
         CAST(NULL AS INT), CONCAT(resolved_target, ' came back, quorum epoch ', CAST(epoch_after AS STRING), ' after ',
                                   CAST(epoch_before AS STRING))
  FROM raised WHERE epoch_after > epoch_before
), timed AS (
  SELECT *, CAST(NULL AS BIGINT) AS invoke_ns FROM found
  UNION ALL
  SELECT run_id, CAST(NULL AS STRING), CAST(NULL AS INT), 'quorum_commits_nothing', until_ns, CAST(NULL AS INT),
         CAST(NULL AS INT), words, since_ns
  FROM silent_quorums
)
SELECT *, CAST(NULL AS BIGINT) AS log_offset, CAST(NULL AS BIGINT) AS value, CAST(NULL AS INT) AS acks,
       CAST(NULL AS BIGINT) AS other_offset FROM timed
"""


PROPERTY: Final = Property(
    tables=("metadata", "nodes", "faults", "phases", "waits"),
    kinds=KINDS,
    run_kernel=run_kernel,
    timeline_kernel=timeline_kernel,
    sql=SQL,
)
