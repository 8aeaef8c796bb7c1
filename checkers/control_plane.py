"""The committed metadata keeps its own rules: ISR, ELR, leaders, recovery, elections and who may join.

Looks at what the quorum committed, never at what nodes believe: an impossible state there is a violation even
if no record was lost. Elections are judged as VERDICTS.md says under "violations by themselves".
"""

import json
from typing import Any, Final

import pyarrow as pa

from checkers.api import ANOMALY, Found, Kind, Meaning, PartitionRows
from checkers.guarantees import VIOLATIONS, Elected, How, JoinedIsr, ShutDownUncleanly
from checkers.timeline import Entry, History, Timeline
from results.metadata import NO_LEADER, RECOVERING

TABLES: Final = ("metadata", "nodes")
KINDS: Final = {
    "isr_outside_replicas": Kind(
        Meaning.VIOLATION, "the committed ISR or ELR names a broker that is no replica (SPEC I7)"
    ),
    "isr_and_elr_overlap": Kind(
        Meaning.VIOLATION, "a broker is in the committed ISR and in the ELR (KIP-966, SPEC I7)"
    ),
    "elr_beside_full_isr": Kind(
        Meaning.VIOLATION, "the ELR is not empty although the ISR has min ISR members (KIP-966)"
    ),
    "leader_outside_isr": Kind(Meaning.VIOLATION, "the committed leader is not in the committed ISR (SPEC I10)"),
    "recovering_with_others": Kind(Meaning.VIOLATION, "RECOVERING with more than one ISR member (KIP-704, SPEC I12)"),
    "fenced_replica_joined": Kind(Meaning.VIOLATION, "a fenced broker joined the ISR (KIP-841, KIP-903, SPEC I11)"),
    "broker_epoch_back": Kind(
        Meaning.VIOLATION, "a broker registered with an epoch not above its last (KIP-380, SPEC I2)"
    ),
    "quorum_epoch_back": Kind(Meaning.VIOLATION, "the quorum epoch goes back along the metadata log (SPEC I2)"),
    **{name: Kind(Meaning.VIOLATION, sentence) for name, sentence in VIOLATIONS.items()},
}
Row = dict[str, Any]


def timeline_kernel(timeline: Timeline) -> Found:
    """Walk one partition's committed states; return one row per state that may not be.

    source:  SPEC 7 (I7, I10, I11, I12), VERDICTS.md "Violations by themselves".
    """
    rows: list[Row] = []
    elections = _Elections()
    for entry in timeline.entries:
        rows += [_row(kind, entry, detail) for kind, detail in elections.look_at(entry)]
        if entry.changed:
            rows += [_row(kind, entry, detail) for kind, detail in _state_faults(entry)]
            rows += [_row("fenced_replica_joined", entry, f"broker {node}") for node in _fenced_joins(entry)]
    return Found(pa.Table.from_pylist(rows, schema=ANOMALY), {"metadata changes": len(timeline.entries)})


def _row(kind: str, entry: Entry, detail: str) -> Row:
    state = entry.state
    leader = None if state.leader == NO_LEADER else state.leader
    return dict.fromkeys(ANOMALY.names) | {
        "kind": kind,
        "at_ns": entry.at_ns,
        "node": leader,
        "leader_epoch": state.leader_epoch,
        "detail": f"{detail}: ISR {list(state.isr)}, ELR {list(state.elr)}, leader {state.leader}".removeprefix(": "),
    }


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
        self._replicas: tuple[int, ...] = ()

    def look_at(self, entry: Entry) -> list[tuple[str, str]]:
        """Take in the next entry; return what is wrong with its election."""
        found: list[tuple[str, str]] = []
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
            found.append(("elr_lost_member", f"unclean shutdowns of {sorted(self._unclean)} since the ISR was full"))
        if election.how is not How.CLEAN:
            self._unclean.pop(election.leader, None)
        return found

    def _spent(self) -> int:
        if self._holders is None:
            return self._least_min_isr
        return sum(node in self._unclean for node in self._holders)

    def _remember(self, entry: Entry) -> None:
        state, least = entry.state, entry.settings.effective_min_isr
        if len(state.isr) >= least:
            self._holders, self._least_min_isr = state.isr, least
        elif state.replicas != self._replicas:
            self._holders = None  # a reassignment takes holders away by order
        elif self._holders is not None:
            joined = [fact.node for fact in entry.facts if isinstance(fact, JoinedIsr)]
            self._holders = tuple(dict.fromkeys([*self._holders, *joined]))
            self._least_min_isr = min(self._least_min_isr, least)
        self._replicas = state.replicas


def run_kernel(run: PartitionRows, history: History) -> Found:
    """Look at epochs along the whole metadata log."""
    metadata = run.table("metadata").sort_by("metadata_offset")
    rows: list[Row] = []
    last_epoch = -1
    for offset, epoch, at_ns in zip(
        *(metadata[name].to_pylist() for name in ("metadata_offset", "quorum_epoch", "at_ns")), strict=True
    ):
        if epoch < last_epoch:
            detail = f"quorum epoch {epoch} after {last_epoch}"
            rows.append(_epoch_row("quorum_epoch_back", offset, at_ns, None, detail))
        last_epoch = max(last_epoch, epoch)
    rows += _broker_epochs(metadata)
    return Found(pa.Table.from_pylist(rows, schema=ANOMALY), {"registrations": len(history.registrations)})


def _broker_epochs(metadata: pa.Table) -> list[Row]:
    rows: list[Row] = []
    known: dict[int, tuple[int, str]] = {}
    for row in metadata.to_pylist():
        if row["record_type"] != "RegisterBrokerRecord":
            continue
        body = json.loads(row["body"])
        node, epoch, incarnation = body["broker_id"], body["broker_epoch"], str(body.get("incarnation_id"))
        former = known.get(node)
        # The same incarnation only amends its registration and keeps its epoch (SPEC 2.2.2).
        if former is not None and (epoch < former[0] or (epoch == former[0] and incarnation != former[1])):
            detail = f"broker epoch {epoch} after {former[0]}"
            rows.append(_epoch_row("broker_epoch_back", row["metadata_offset"], row["at_ns"], node, detail))
        known[node] = (epoch, incarnation)
    return rows


def _epoch_row(kind: str, offset: int, at_ns: int | None, node: int | None, detail: str) -> Row:
    return dict.fromkeys(ANOMALY.names) | {
        "kind": kind,
        "at_ns": at_ns,
        "node": node,
        "detail": f"{detail} at metadata offset {offset}",
    }
