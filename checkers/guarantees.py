"""What was promised: must this record have survived, and which rule says so (docs/verdicts.md as code).

The facts about one record of one partition, in the order of the committed metadata log, are folded into a
`Promise`. The rules judge one election: the one that gave the lead to the replica in whose log the record
is first missing, which is the last `Elected` of the facts given. What is unknown is simply not among the
facts, and no rule permits anything without a fact that says so: unknown never excuses.

Worked rows as data: tests/cases/data/guarantees.yaml.
"""

from collections.abc import Hashable, Iterable
from enum import StrEnum
from typing import assert_never

import msgspec


class How(StrEnum):
    """How a leader came to lead."""

    CLEAN = "clean"  # from the ISR or ELR
    LAST_KNOWN = "last_known"  # the last known leader, ISR and ELR being empty
    UNCLEAN = "unclean"  # any replica
    RECOVERY = "recovery"  # the unclean recovery manager, after comparing logs


class Excuse(StrEnum):
    """A rule by which a kind's anomalies may follow from what was permitted to happen to others (docs/verdicts.md)."""

    MEMORY_LOST = "R8"  # brokers prevent it by what they remember of producers, which went with the records
    END_LOST = "R9"  # of records in a transaction, whose end decides
    ORDER_LOST = "R10"  # of an order that lost records had a place in; the property's own kernel judges it
    POSITIONS_LOST = "R11"  # of a group, whose positions lie in a topic
    TAIL_LOST = "R12"  # of what a group's positions lie behind: the partition's own end
    # Before the log start; where a topic is compacted it says nothing at all: older records of a key go, on each replica in its time.
    BY_ORDER = "gone_by_order"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in force.

    recovery:      strategy of the unclean recovery manager: off, balanced, aggressive.
    high_watermark_needs_min_isr:  KIP-966's rule; not in force in ZooKeeper mode.
    """

    min_isr: int
    replication_factor: int
    elr: bool
    unclean: bool
    recovery: str
    high_watermark_needs_min_isr: bool

    @property
    def effective_min_isr(self) -> int:
        """min.insync.replicas, but never more than there are replicas."""
        return min(self.min_isr, self.replication_factor)

    def allows_unclean(self, election: "Elected") -> bool:
        """Whether a replica outside of ISR and ELR may lead: by the settings, or because an operator ordered it."""
        return self.unclean or self.recovery == "aggressive" or election.ordered


class Acknowledged(msgspec.Struct, frozen=True):
    """The record was acknowledged (acks 1, -1) or sent (0) while this ISR was committed.

    certain:  who was in the ISR all the time from sending to answer; None: all of it.
    """

    acks: int
    isr: tuple[int, ...]
    leader: int
    certain: tuple[int, ...] | None = None


class Exposed(msgspec.Struct, frozen=True):
    """The high watermark passed the record at some observer while this ISR was committed.

    certain:  those of it that nobody may have removed just before, as far as the leader that showed it knew; None: all.
    """

    isr: tuple[int, ...]
    certain: tuple[int, ...] | None = None


class WasRead(msgspec.Struct, frozen=True):
    """A consumer received the record."""


class ShutDownUncleanly(msgspec.Struct, frozen=True):
    """The node registered with a previous broker epoch that was not the registered one."""

    node: int


class ProvenLoss(msgspec.Struct, frozen=True):
    """A fault's proof says that the record left this node's disk while it was down."""

    node: int


class CutLive(msgspec.Struct, frozen=True):
    """The record's bytes were cut or corrupted under the node's running process."""

    node: int


class JoinedIsr(msgspec.Struct, frozen=True):
    """The node caught up and joined (again) the committed ISR: it holds the record from now on."""

    node: int


class BeganAnew(msgspec.Struct, frozen=True):
    """The node was added to the replicas again when it had carried out that it was none: of what it held before it has nothing."""

    node: int


class LogStartMoved(msgspec.Struct, frozen=True):
    """DeleteRecords or retention moved the log start past the record."""


class SettingsChanged(msgspec.Struct, frozen=True):
    """From here on these settings are in force."""

    settings: Settings


class LeadershipChanged(msgspec.Struct, frozen=True):
    """A new leader epoch without an election of anybody: the partition became leaderless."""


class Elected(msgspec.Struct, frozen=True):
    """The node was elected.

    empty:       the committed ISR and ELR were both empty before.
    ordered:     an operator asked for this unclean election.
    last_known:  the last known ELR before the election; None when it was not recorded.
    """

    leader: int
    how: How
    empty: bool
    ordered: bool = False
    last_known: tuple[int, ...] | None = None


Fact = (
    Acknowledged
    | Exposed
    | WasRead
    | ShutDownUncleanly
    | ProvenLoss
    | CutLive
    | JoinedIsr
    | BeganAnew
    | LogStartMoved
    | SettingsChanged
    | LeadershipChanged
    | Elected
)

RULES: dict[str, str] = {
    "R1": "ISR and ELR were both empty, the last known leader provably lost the record, and at least effective-min-ISR "
    "holders had shut down uncleanly (KIP-966 survives min ISR - 1 unclean shutdowns)",
    "R2": "unclean recovery (Balanced): every last known ELR member that held the record provably lost it (KIP-966)",
    "R3": "without ELR the leader elected from the ISR had provably lost the record, or nobody leads and every member of the ISR had: last replica standing",
    "R4": "an unclean election that the settings allowed chose a replica without the record (KIP-704, KIP-966)",
    "R5": "acks=1 promises the leader's log only, and another broker was elected or the leader's disk had lost the record",
    "R6": "acks=0 promises nothing before the high watermark has passed the record",
    "R7": "the leader's files were cut or corrupted under the running process",
    "gone_by_order": "an order took it: the log start moved past the record by DeleteRecords or retention, its key was written again in a "
    "compacted topic, its topic was deleted, or a group's position was set or deleted",
}
# Of systems that are no logs: what their own file permits.
OF_SYSTEMS: dict[str, str] = {
    "R13": "the system's own file permits it: its only node was killed, and what was acknowledged at most so long before that may be lost",
    "R16": "the system's own file permits it: one node alone had acknowledged it, and such a fault struck that node",
    "R15": "the system's own file permits it: after this fault its node need not start again",
}
# What excuses not a record's absence but what follows from others' absence.
OF_MEMORY: dict[str, str] = {
    Excuse.MEMORY_LOST: "records were permitted to be lost, and with them what brokers knew of their producers, or a producer was silent for as "
    "long as brokers have to remember one: these number their records anew, and nobody recognises what they repeat (KIP-98, KIP-360)",
    Excuse.END_LOST: "the end of a transaction was permitted to be lost: its marker, or its entry in the transaction log, or a "
    "leader elected uncleanly aborted what its log left open (KIP-98, KIP-704)",
    Excuse.ORDER_LOST: "records that transactions had read or built on were permitted to be lost: those that ended later stand in no order "
    "with them (KIP-704)",
    Excuse.POSITIONS_LOST: "the positions of groups were permitted to be lost with records of the topic that holds them (KIP-704)",
    Excuse.TAIL_LOST: "the partition's end was permitted to be lost: what was written there anew lies before the positions of groups that "
    "had read on (KIP-704)",
}
VIOLATIONS: dict[str, str] = {
    "unclean_election_not_allowed": "an unclean election that the settings did not allow (KIP-966)",
    "clean_election_of_unclean_replica": "a clean election of a replica that had shut down uncleanly and was not "
    "whole again (KIP-966)",
    "elr_lost_member": "ISR and ELR were empty after fewer than effective-min-ISR unclean shutdowns (KIP-966)",
}


class Promise(msgspec.Struct, frozen=True):
    """The answer to the question whether the record may be missing.

    rule:        what permits its loss; None: it must survive.
    violations:  what is wrong by itself, whatever happened to the record.
    """

    rule: str | None
    violations: tuple[str, ...]

    @property
    def must_survive(self) -> bool:
        """Whether its absence is a violation."""
        return self.rule is None


class Copies:
    """Who holds an offset that is shown for as long as these facts come, and what became of its copies.

    holders:  who was in the ISR when it was shown at first, or joined it since; unclean: since they were last whole.
    """

    def __init__(self, holders: dict[int, None] | None = None) -> None:
        self.holders = {} if holders is None else holders
        self.unclean: dict[int, None] = {}
        self.lost: dict[int, None] = {}
        self.cut_live: dict[int, None] = {}

    def add(self, fact: Fact) -> None:
        """Take in the next fact."""
        match fact:
            case CutLive(node=node):
                self.cut_live[node] = None
            case ShutDownUncleanly(node=node):
                self.unclean[node] = None
                if node in self.cut_live:
                    self.lost[node] = None
            case ProvenLoss(node=node):
                self.lost[node] = None
            case JoinedIsr(node=node):
                self.holders[node] = None
                for nodes in (self.unclean, self.lost, self.cut_live):
                    nodes.pop(node, None)
            case Elected(leader=node, how=how):
                self.lost.pop(node, None)
                self.cut_live.pop(node, None)
                if (
                    how is not How.CLEAN
                ):  # its log is the log: who else has what is shown from here on has it from there
                    self.unclean.pop(node, None)
                    self.holders = {node: None}
            case _:
                pass  # takes nothing off a disk, and puts nothing back


class Ledger:
    """What is known about one record's copies after some facts.

    before:  what was known of them before the first fact.
    """

    def __init__(self, settings: Settings, before: Copies | None = None) -> None:
        before = before or Copies()
        self.settings = settings
        self.least_min_isr = settings.effective_min_isr
        self.acks: int | None = None
        self.bound = False  # has the guarantee of acks=all
        self.was_exposed = self.was_read = False  # what gave it that guarantee, whatever its acks
        self.leader: int | None = None
        self.isr: tuple[int, ...] | None = None
        self.holders: dict[int, None] = dict(before.holders)
        self.certain: dict[int, None] = {}  # holders of whom it is known; the others may have left just before
        self.unclean: dict[int, None] = dict(before.unclean)  # any node: unclean since it was last whole
        self.lost: dict[int, None] = dict(before.lost)
        self.cut_live: dict[int, None] = {}
        self.other_led = False  # somebody else than who answered was elected since
        self.log_start_moved = False
        self.election: Elected | None = None
        self._is_election_over = True
        self.violations: dict[str, None] = {}

    @property
    def state(self) -> Hashable:
        """All that what it says from now on depends on: of two that are equal in it the same is said behind the same facts."""
        said = (self.acks, self.bound, self.was_exposed, self.was_read, self.leader, self.isr, self.other_led)
        moved = (self.settings, self.least_min_isr, self.log_start_moved, self.election, self._is_election_over)
        nodes = (self.holders, self.certain, self.unclean, self.lost, self.cut_live)
        return *said, *moved, *map(frozenset[int], nodes), frozenset(self.violations)

    def add(self, fact: Fact) -> None:
        """Take in the next fact."""
        self._finish_election()
        match fact:
            case Acknowledged():
                self._on_acknowledged(fact)
            case Exposed() | WasRead():
                self._on_shown(fact)
            case ShutDownUncleanly(node=node):
                self._on_unclean(node)
            case ProvenLoss(node=node):
                self.lost[node] = None
            case CutLive(node=node):
                self.cut_live[node] = None
            case JoinedIsr(node=node):
                self._on_joined(node)
            case BeganAnew(node=node):
                self.certain.pop(node, None)  # it held the record once, and counts for budgets (R1) as before
            case SettingsChanged(settings=settings):
                self.settings = settings
                self.least_min_isr = min(self.least_min_isr, settings.effective_min_isr)
            case LogStartMoved():
                self.log_start_moved = True
            case LeadershipChanged():
                pass  # nobody leads: nobody's log takes the place of the one that was written to
            case Elected():
                self._on_elected(fact)
            case _:
                assert_never(fact)

    def show(self, leader: int) -> None:
        """Take in that a leader showed the record: whatever had left its disk before, it has it now."""
        self.holders[leader] = self.certain[leader] = None
        self.lost.pop(leader, None)

    def _finish_election(self) -> None:
        """After an election that was not clean the leader's log is the log by definition: it is whole."""
        if not self._is_election_over and self.election is not None and self.election.how is not How.CLEAN:
            self.unclean.pop(self.election.leader, None)
        self._is_election_over = True

    def _on_acknowledged(self, fact: Acknowledged) -> None:
        self.acks, self.isr, self.leader = fact.acks, fact.isr, fact.leader
        self.least_min_isr = self.settings.effective_min_isr
        self.bound = fact.acks == -1
        for node in fact.isr if self.bound else (fact.leader,):
            self.holders[node] = None
        known = self.holders if fact.certain is None else fact.certain
        self.certain = dict.fromkeys(node for node in self.holders if node in known)

    def _on_shown(self, fact: Exposed | WasRead) -> None:
        if isinstance(fact, WasRead):
            self.was_read |= self._bind(self.isr)
        else:
            self.was_exposed |= self._bind(fact.isr)
            self.certain.update(dict.fromkeys(fact.isr if fact.certain is None else fact.certain))

    def _bind(self, isr: tuple[int, ...] | None) -> bool:
        """The high watermark passed the record: from now on it has the guarantee of acks=all, unless False is returned.

        Where the high watermark may move below min ISR (ZooKeeper mode) that binds only with a full enough ISR;
        an unknown ISR binds, because the unknown never excuses.
        """
        self.isr = isr
        exposed_too_early = isr is not None and len(isr) < self.settings.effective_min_isr
        if exposed_too_early and not self.settings.high_watermark_needs_min_isr:
            return False
        self.bound = True
        for node in isr or ():
            self.holders[node] = None
        return True

    def _on_unclean(self, node: int) -> None:
        self.unclean[node] = None
        # A start notices what was cut under the process before: from here on it is a loss like any other.
        if node in self.cut_live:
            del self.cut_live[node]
            self.lost[node] = None

    def _on_joined(self, node: int) -> None:
        # A record of unknown fate may have been written by a late attempt: before the high watermark has passed it nobody
        # is known to hold it (docs/verdicts.md, holders).
        if self.acks is not None or self.bound:
            self.holders[node] = self.certain[node] = None
        # Who joins has its leader's log: after an unclean election that may be one without the record (R4).
        leader = self.election.leader if self.election is not None else node
        if leader != node and leader not in self.certain:
            self.certain.pop(node, None)
        for nodes in (self.unclean, self.lost, self.cut_live):
            nodes.pop(node, None)

    def _on_elected(self, election: Elected) -> None:
        self.other_led |= election.leader != self.leader
        self.election = election
        self._is_election_over = False
        if election.how is not How.CLEAN and not self._allowed(election):
            self.violations["unclean_election_not_allowed"] = None
        if election.how is How.CLEAN and self.settings.elr and election.leader in self.unclean:
            self.violations["clean_election_of_unclean_replica"] = None
        # (Fewer holders than min ISR: the record was sent before, and acknowledged after this election.)
        was_held = self.bound and len(self.holders) >= self.least_min_isr
        if election.empty and self.settings.elr and was_held and self._unclean_holders() < self.least_min_isr:
            self.violations["elr_lost_member"] = None

    def _allowed(self, election: Elected) -> bool:
        match election.how:
            case How.CLEAN:
                return True
            case How.LAST_KNOWN:
                return self.settings.elr and election.empty
            case How.RECOVERY:
                return self.settings.recovery != "off"
            case How.UNCLEAN:
                return self.settings.allows_unclean(election)

    def _unclean_holders(self) -> int:
        return sum(node in self.unclean for node in self.holders)

    def promise(self) -> Promise:
        """Say whether the record may be missing from the last named leader's log."""
        return Promise(self._rule(), tuple(self.violations))

    def _rule(self) -> str | None:
        suspect = self.election.leader if self.election is not None else self.leader
        if self.log_start_moved:
            return "gone_by_order"
        if suspect in self.cut_live:
            return "R7"
        if not self.bound and self.acks == 0:
            return "R6"
        if not self.bound and self.acks == 1:
            return "R5" if self.other_led or self.leader in self.lost else None
        return None if self.election is None else self._rule_of(self.election)

    def _rule_of(self, election: Elected) -> str | None:
        """The rules for a record with the guarantee of acks=all."""
        lacks_record = election.leader in self.lost or election.leader not in self.certain
        if election.how is not How.CLEAN and self.settings.allows_unclean(election) and lacks_record:
            return "R4"
        budget_spent = election.empty and self._unclean_holders() >= self.least_min_isr
        match election.how:
            case How.CLEAN:
                return "R3" if not self.settings.elr and election.leader in self.lost else None
            case How.LAST_KNOWN:
                return "R1" if self.settings.elr and budget_spent and election.leader in self.lost else None
            case How.RECOVERY:
                return "R2" if self.settings.elr and budget_spent and self._all_last_known_lost(election) else None
            case How.UNCLEAN:
                return None

    def rule_of_members(self, isr: tuple[int, ...]) -> str | None:
        """Return what permits the loss where nobody leads in the end: without ELR only a member of the ISR may be elected, and each lost it."""
        if not self.bound or self.settings.elr or not isr:
            return None
        return "R3" if all(node in self.lost for node in isr) else None

    def _all_last_known_lost(self, election: Elected) -> bool:
        asked = tuple(self.holders) if election.last_known is None else election.last_known
        held = [node for node in asked if node in self.holders]
        return bool(held) and all(node in self.lost for node in held)


def promise(settings: Settings, facts: Iterable[Fact]) -> Promise:
    """Fold the facts about one record, in order, into what was promised."""
    ledger = Ledger(settings)
    for fact in facts:
        ledger.add(fact)
    return ledger.promise()
