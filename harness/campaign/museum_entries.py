"""The known faults of the museum, as data: which proposal mends each, who has it, who has it not, and how a run shows it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from tribunal.checkers.judge.verdict import HANGING
from tribunal.results.store import Recording
from tribunal.results.verdict import Finding, RunVerdict, Verdict
from tribunal.results.violation import Expected, NoProgress

ALL: Final = -1
NO_BREACH: Final = (Verdict.PASS, Verdict.PERMITTED)
LOST_WRITES: Final = "lost_writes"
LOST: Final = "lost"
LED: Final = "led"
LEADERLESS: Final = "leaderless"
ABORTED_READS: Final = "aborted_reads"
ABORTED_READ: Final = "aborted_read"
KILL: Final = "kill"
SEEN_LATE_NS: Final = 500_000_000  # what was committed before a kill may be observed this much later


class LostWrites(msgspec.Struct, frozen=True, tag=True):
    """Records that were acknowledged with acks=all are gone, permitted or not."""

    words = "records acknowledged with acks=all are lost"

    def seen(self, run_dir: Path, verdict: RunVerdict) -> tuple[bool, str]:
        """Return whether a run shows it, and what was measured."""
        lost = sum(
            found.count
            for found in verdict.findings
            if (found.property_name, found.kind, found.acks) == (LOST_WRITES, LOST, ALL)
        )
        return bool(lost), f"{lost} records of acks=all lost"


class QuorumEpochs(msgspec.Struct, frozen=True, tag=True):
    """The quorum epoch rises by more than so many: nobody loses anything, the quorum is disturbed."""

    most: int

    @property
    def words(self) -> str:
        """What is looked for."""
        return f"the quorum epoch rises by more than {self.most}"

    def seen(self, run_dir: Path, verdict: RunVerdict) -> tuple[bool, str]:
        """Return whether a run shows it, and what was measured."""
        epochs = Recording.open(run_dir, compare=False).table("metadata")["quorum_epoch"].to_pylist()
        first, last = min(epochs, default=0), max(epochs, default=0)
        return last - first > self.most, f"quorum epoch {first} to {last}"


class NoFullIsr(msgspec.Struct, frozen=True, tag=True):
    """Full service does not come about after the last fault, and nothing moves any more."""

    words = "a replica never comes back into the ISR, although every fault is undone"

    def seen(self, run_dir: Path, verdict: RunVerdict) -> tuple[bool, str]:
        """Return whether a run shows it, and what was measured."""
        stuck = [
            name
            for found in verdict.violations
            if found.violation is not None and isinstance(facts := found.violation.facts, NoProgress)
            if facts.expected is Expected.FULL_ISR
            for name in facts.states
        ]
        return bool(stuck), f"{len(stuck)} partitions without full ISR"


class Leaderless(msgspec.Struct, frozen=True, tag=True):
    """A partition has no leader, although somebody who may lead it is there with a whole log."""

    words = "a partition stays without leader although somebody who was in its ELR is back with a whole log"

    def seen(self, run_dir: Path, verdict: RunVerdict) -> tuple[bool, str]:
        """Return whether a run shows it, and what was measured."""
        left = _count(verdict.violations, LED, LEADERLESS)
        return bool(left), f"{left} partitions left without leader"


class QuorumWaits(msgspec.Struct, frozen=True, tag=True):
    """The quorum commits nothing for the second half of a controller's absence, although a majority of the voters is up."""

    words = "the metadata quorum commits nothing until the controller that was killed is back"

    def seen(self, run_dir: Path, verdict: RunVerdict) -> tuple[bool, str]:
        """Return whether a run shows it, and what was measured."""
        recording = Recording.open(run_dir, compare=False)
        committed_ns = [one for one in recording.table("metadata")["at_ns"].to_pylist() if one is not None]
        killed = [
            (row["injected_ns"], row["healed_ns"])
            for row in recording.table("faults").to_pylist()
            if row["kind"] == KILL and row["injected_ns"] is not None and row["healed_ns"] is not None
        ]
        if not killed:
            return False, "no controller was killed and came back"
        begin_ns, end_ns = max(killed, key=lambda span: span[1] - span[0])
        if not any(one <= begin_ns for one in committed_ns):
            return False, "nothing was seen to be committed before"  # what nobody could see proves nothing
        meanwhile = [one for one in committed_ns if begin_ns + (end_ns - begin_ns) // 2 <= one <= end_ns]
        first_ns = min([end_ns, *(one for one in committed_ns if one > begin_ns + SEEN_LATE_NS)])
        measured = f"nothing committed for {(first_ns - begin_ns) / 1e9:.1f} s of {(end_ns - begin_ns) / 1e9:.1f} s"
        return not meanwhile, measured


class AbortedReads(msgspec.Struct, frozen=True, tag=True):
    """What the application aborted is shown as committed."""

    words = "read_committed consumers receive what the application aborted"

    def seen(self, run_dir: Path, verdict: RunVerdict) -> tuple[bool, str]:
        """Return whether a run shows it, and what was measured."""
        seen = _count(verdict.violations, ABORTED_READS, ABORTED_READ)
        return bool(seen), f"{seen} records of aborted transactions read as committed"


class UnendedTransactions(msgspec.Struct, frozen=True, tag=True):
    """A transaction stays open that its coordinator has ended, permitted or not: nobody who reads what is committed gets beyond it."""

    words = "a last stable offset stays behind for ever"

    def seen(self, run_dir: Path, verdict: RunVerdict) -> tuple[bool, str]:
        """Return whether a run shows it, and what was measured."""
        held = _count(verdict.findings, *HANGING)
        return bool(held), f"{held} partitions whose last stable offset stays behind"


class TornTransactions(msgspec.Struct, frozen=True, tag=True):
    """A record that belongs to no transaction any more: one that stays open for ever, or is read as committed."""

    words = "a last stable offset stays behind for ever, or read_committed consumers receive what was aborted"

    def seen(self, run_dir: Path, verdict: RunVerdict) -> tuple[bool, str]:
        """Return whether a run shows it, and what was measured."""
        hanging = _count(verdict.violations, *HANGING)
        is_read, aborted = AbortedReads().seen(run_dir, verdict)
        return bool(hanging) or is_read, f"{hanging} partitions whose last stable offset stays behind, {aborted}"


def _count(findings: Iterable[Finding], property_name: str, kind: str) -> int:
    return sum(found.count for found in findings if (found.property_name, found.kind) == (property_name, kind))


Sign: TypeAlias = (
    LostWrites
    | QuorumEpochs
    | NoFullIsr
    | Leaderless
    | QuorumWaits
    | AbortedReads
    | UnendedTransactions
    | TornTransactions
)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One known fault.

    scenario:      its name; those of the folder `museum` are timed by time-outs, so that one file serves a JVM and the simulator.
    ours:          the same steps in other times, for our own log, where it flushes what Kafka leaves to the kernel.
    has, has_not:  releases of Apache Kafka; None: no release has it not, as our clients speak to it.
    expected:      the verdicts that are right on whoever has it; whoever has it not breaks no promise.
    released:      what differs from the scenario where released software runs it.
    mutant:        the same fault in our own log.
    """

    name: str
    fault: str
    proposal: str
    scenario: str
    sign: Sign
    has: str
    has_not: str | None
    expected: tuple[Verdict, ...]
    mutant: str
    story: str
    released: Mapping[str, str] = {}
    has_settings: Mapping[str, str] = {}
    ours: str | None = None


ENTRIES: Final = (
    Entry(
        name="KIP-966",
        fault="last replica standing",
        proposal="KIP-966 part 1",
        scenario="museum/last-replica-standing",
        sign=LostWrites(),
        has="3.9.1",
        has_not="4.3.1",
        expected=(Verdict.PERMITTED,),
        mutant="M01",
        story=(
            "Both followers leave the ISR one after the other; the leader stays in it alone, below min ISR, and loses power. It comes back without what it had"
            " not flushed and is elected cleanly, because it is the only member of the ISR: the followers, who have the records, truncate. With eligible leader"
            " replicas one of them would have led. The contract before KIP-966 permits this (R3), so the verdict on 3.9.1 is PERMITTED."
        ),
    ),
    Entry(
        name="KIP-101",
        fault="a follower truncates to its high watermark",
        proposal="KIP-101",
        scenario="museum/fast-failover",
        ours="fast-failovers",
        sign=LostWrites(),
        has="2.1.1",
        has_not="2.2.2",
        has_settings={"cluster.settings.inter.broker.protocol.version": "0.11.0-IV1"},
        expected=(Verdict.VIOLATION,),
        mutant="M28",
        story=(
            "Followers learn of the high watermark with the next fetch, and all fetches are late. The leader leaves in good order; who follows the next leader first truncates to a high watermark that"
            " lags, and before it has fetched anything the next leader dies. The truncated follower is in the ISR yet, and is elected cleanly: what was acknowledged above its high watermark is gone."
            " Since KIP-101 it asks the leader where their histories part. Releases before it run on no Java of today; 2.1.1 speaks as they did when `inter.broker.protocol.version` says so. Beside it stands 2.2.2: with its own protocol 2.1.1 loses nothing either, but its ListOffsets goes back when the leader changes (KIP-207 came with 2.2)."
        ),
    ),
    Entry(
        name="KIP-903",
        fault="a proposal from before a restart is accepted",
        proposal="KIP-903, KAFKA-14139",
        scenario="museum/stale-epoch-join",
        ours="stale-epoch-join",
        sign=LostWrites(),
        has="3.4.1",
        has_not="3.5.2",
        expected=(Verdict.VIOLATION,),
        mutant="M10",
        story=(
            "A follower has caught up and the leader proposes it for the ISR; the proposal is late. The follower loses power, comes back without its last"
            " records and registers. Now the proposal arrives. Without the broker epochs of KIP-903 the controller cannot know that it speaks of an earlier incarnation,"
            " and takes a replica into the ISR that lacks committed records. The leader dies, that replica is elected cleanly, and they are gone."
        ),
    ),
    Entry(
        name="KIP-380",
        fault="a broker that restarts quickly is never sent what it hosts",
        proposal="KIP-380, KAFKA-7235",
        scenario="museum/missed-bounce",
        sign=NoFullIsr(),
        has="2.1.1",
        has_not="2.2.2",
        released={"cluster.settings.controlled.shutdown.enable": "false"},
        expected=(Verdict.VIOLATION,),
        mutant="M52",
        story=(
            "What ZooKeeper says reaches the controller late. A broker ends in good order and registers again before the controller has read that it was gone; when"
            " it looks, the same broker ids are there, and without the broker epochs of KIP-380 it sees no change. The broker runs, answers and is registered,"
            " but nobody sends it the partitions that it hosts: it fetches nothing and leaves the ISR for good, and nobody but an operator ends that."
        ),
    ),
    Entry(
        name="KIP-380-late",
        fault="a StopReplica to an earlier registration is obeyed",
        proposal="KIP-380, KAFKA-7235",
        scenario="museum/late-deletion",
        ours="zookeeper-late-deletion",
        sign=NoFullIsr(),
        has="2.1.1",
        has_not="2.2.2",
        expected=(Verdict.VIOLATION,),
        mutant="M51",
        story=(
            "A topic is deleted, and the controller's StopReplica to one broker is late. That broker loses its session with ZooKeeper, without ending, and registers anew; the controller opens another"
            " connection to it, the deletion is repeated and done, and the topic is created again. Now the late request arrives on the old connection. Without the broker epochs of KIP-380 the"
            " broker cannot know for which registration it was meant, and stops to fetch what it has just been given. The controller has sent everything that it had to send, and sends nothing more."
        ),
    ),
    Entry(
        name="KIP-704",
        fault="a leader that was elected uncleanly serves without having ended what its log leaves open",
        proposal="KIP-704, KAFKA-7408",
        scenario="museum/unended-transactions",
        sign=UnendedTransactions(),
        has="3.1.2",
        has_not=None,
        released={"cluster.mode": "zookeeper"},
        expected=(Verdict.PERMITTED,),
        mutant="M50",
        story=(
            "The end markers of transactions are late at a leader, and its follower is cut off before they arrive: the follower has the records and not their ends. The leader dies, the"
            " follower is elected uncleanly, which the settings allow, and serves at once. The coordinators keep that those transactions are over, and their producers are gone: nobody writes"
            " the markers again, and who reads what is committed gets nothing beyond them. The contract permits it of a leader that need not recover (R9), so the verdict on 3.1.2 is PERMITTED."
            " KIP-704 has the leader recover before it serves. Releases since 3.2 commit that it is RECOVERING, and it declares itself RECOVERED at once, without ending anything: none has it not."
            " replog aborts what is open first."
        ),
    ),
    Entry(
        name="KIP-996",
        fault="a voter that was cut off disrupts the quorum",
        proposal="KIP-996",
        scenario="museum/cut-off-voter",
        sign=QuorumEpochs(most=6),
        has="3.9.1",
        has_not="4.3.1",
        expected=NO_BREACH,
        mutant="M59",
        story=(
            "Each voter in turn is cut off from the others for some elections. Without pre-votes it raises its epoch at every one of them, and when it is back"
            " the leader of the others has to resign before that epoch. Nothing is lost; the quorum has no leader for no reason."
        ),
    ),
    Entry(
        name="raised-min-isr",
        fault="a raised min ISR that the leader does not know of yet",
        proposal="KIP-966: a hole of its own, decision 0010",
        scenario="raised-min-isr",
        sign=LostWrites(),
        has="4.3.1",
        has_not="3.9.1",
        released={"cluster.controllers": "1"},
        expected=(Verdict.VIOLATION,),
        mutant="M88",
        story=(
            "`min.insync.replicas` is raised from 1 to 2 while the leader's metadata lag. Its follower drops out of the ISR, and the controller counts it into"
            " the ELR by the new value, while the leader goes on to commit alone by the old one. The leader is killed; the member of the ELR, which lacks"
            " those records, is elected cleanly. Releases without an ELR keep the leader as the last member of the ISR, and wait for it."
        ),
    ),
    Entry(
        name="lowered-min-isr",
        fault="a write of min ISR clears the ELR",
        proposal="KIP-966: read by its letter (D5)",
        scenario="lowered-min-isr",
        sign=Leaderless(),
        has="4.3.1",
        has_not="3.9.1",
        expected=(Verdict.VIOLATION,),
        mutant="M89",
        story=(
            "All replicas of a partition stop in good order, one after the other: nobody is in the ISR, the last ones are in the ELR. An operator writes"
            " `min.insync.replicas`, as one does to be able to write again. Beside the new value the controller writes that ELR and last known leader are forgotten."
            " Everybody comes back with a whole log, and nobody may be elected. KIP-966 lets the ELR go only where the ISR is as large as the new value."
            " Releases without an ELR keep the last member in the ISR, and elect it."
        ),
    ),
    Entry(
        name="returned-vote",
        fault="a controller with a new vote refuses every pre-vote",
        proposal="KIP-996 beside KIP-853",
        scenario="returned-vote",
        sign=QuorumWaits(),
        has="4.3.1",
        has_not="3.9.1",
        released={"cluster.settings.tribunal.dynamic.voters": "true"},
        expected=(Verdict.VIOLATION,),
        mutant="M62",
        story=(
            "A controller's vote is taken away and given back while it cannot fetch: the leader commits the new voters with the other voter. The leader dies. The other voter needs the pre-vote of the first one, which takes itself for an"
            " observer of a leader that it has fetched from; an observer has no time-out after which it would think otherwise, and refuses every time. Two of three voters"
            " are up and connected, and there is no leader until the dead one is back or somebody restarts the first one. Releases without pre-votes elect."
        ),
    ),
    Entry(
        name="KAFKA-17754",
        fault="a late EndTxn ends the next transaction",
        proposal="KIP-890 part 2",
        scenario="late-end-txn",
        sign=AbortedReads(),
        has="3.9.1",
        has_not=None,
        expected=(Verdict.VIOLATION,),
        mutant="M90",
        story=(
            "A request to commit is late. Its producer repeats it, is answered, and begins its next transaction; when that one is about to be aborted, the late request arrives. Producer id and epoch"
            " are still the same, so the coordinator commits a transaction that its application aborts. With transaction version 2 every transaction has an epoch of its own; librdkafka,"
            " which these runs use, speaks version 1 to newer releases, too."
        ),
    ),
    Entry(
        name="KAFKA-12671",
        fault="a late produce opens a transaction that nobody ends",
        proposal="KIP-890 part 1",
        scenario="late-produce",
        sign=TornTransactions(),
        has="3.5.2",
        has_not="3.6.2",
        expected=(Verdict.VIOLATION,),
        mutant="M77",
        story=(
            "A produce is late. Its producer gives the transaction up, aborts it and is answered; then the produce arrives. The leader remembers no open transaction of this"
            " producer, and takes the record for the first of a new one. The coordinator has ended its transaction and writes no marker for another: the last stable offset"
            " stays where it is, and read_committed consumers get nothing beyond. If the producer comes back to that partition, the record is committed with a"
            " transaction that it never belonged to. Since KIP-890 the leader asks the coordinator before the first record of a transaction."
        ),
    ),
)
