"""The invariants of docs/invariants.md, kept while a simulation runs: the first violated one stops it there.

The watch looks at what cannot lie: the files of every replica (`replica_logs.py`), the committed metadata
(`committed.py`), and what nodes report of themselves. It works after an event that changed one of these, and
only on what changed. Nothing it does reaches the simulation.

It knows less than the checkers about what a fault permits, so it claims only what no fault permits: the loss rules of
docs/verdicts.md need the whole recording and are applied after the run. In particular, once a replica has provably lost data or
an unclean election was committed, the committed prefix of that partition begins anew with its next leader.

| kept here | by |
|---|---|
| I1, I2, I3, I7, I10, I11, I12, I21, I22 | `committed.py` |
| I4, I5, I9 | `CommittedPrefix`: what was below a high watermark that a leader exposed; I9 also sees who joins without its log |
| I8 | the same prefix: who is in the ELR holds it, when it enters and as long as it stays |
| I13 | every high watermark that moves, against the ISRs that its leader may have known (`high_watermark_may_move`) |
| I14 | `Batches`: one (epoch, offset), one batch |
| I15, I16 | `stability.py`: figures, no violations |
| I17 | sequences of each replica (`sequences.py`) |
| I18 | last stable offsets (`stable_offsets.py`), and `CommittedPrefix`: none is behind the beginning of a transaction whose end is not committed |
| I23 | `votes.py`: votes and pre-votes, by the messages themselves |
| I24 | whom leaders propose for the ISR (`proposals.py`), against where their logs end |
| I20 | clean-shutdown files of running brokers, and of brokers that have ended: what they vouch for is on the disk |

I11 is kept as far as committed metadata show it: who enters an ISR is registered and not fenced; an earlier incarnation that enters
is seen by I9. I6, I19 and the readers' half of I18 are claims about clients; they are checked in the recording.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from replog.coordinators.placement import OFFSETS_TOPIC
from replog.log.clean_shutdown import CLEAN_SHUTDOWN_FILE
from replog.log.creation import partition_metadata
from replog.types import METADATA_TOPIC, TopicPartition
from tribunal.clusters.api import PartitionState
from tribunal.clusters.simulated.committed import CommittedMetadata, Incarnation, QuorumMember
from tribunal.clusters.simulated.event_fields import BrokerRegistered, Followed, HighWatermark, QuorumLeader
from tribunal.clusters.simulated.lone_leaders import LoneLeaders
from tribunal.clusters.simulated.proposals import Proposal
from tribunal.clusters.simulated.replica_logs import BatchMark, ReplicaLog, ReplicaLogs, index_reaching
from tribunal.clusters.simulated.sequences import Expiration, Sequences
from tribunal.clusters.simulated.stability import Stability
from tribunal.clusters.simulated.stable_offsets import StableOffset, StableOffsets
from tribunal.clusters.simulated.violation import Violated, batch_of
from tribunal.clusters.simulated.world import Machine, ReportedEvent, Simulation
from tribunal.results.violation import (
    CleanShutdownFile,
    ClosedUnsynced,
    Differs,
    ExposedBeyondLog,
    HostedLogGone,
    Invariant,
    LogEndsEarly,
    MovedBelowMinIsr,
    ProposedShort,
    Role,
    StableBeyondOpen,
    TakenWhileRecovering,
    TransactionLeftOpen,
    TwoBatches,
    TwoLeaders,
)

METADATA: Final = TopicPartition(METADATA_TOPIC, 0)


class Watch:
    """All invariants of one simulation."""

    def __init__(
        self,
        simulation: Simulation,
        machines: Mapping[int, Machine],
        data_directory: str,
        committed: CommittedMetadata,
        members: Callable[[], Mapping[Incarnation, QuorumMember]],
        *,
        elr_enabled: bool,
        producer_expiration_ms: int,
        log_directories: Sequence[str] = (),
    ) -> None:
        """Follow these machines.

        log_directories:         of brokers, where they have several below `data_directory`.
        members:                 the running nodes' members of the quorum.
        producer_expiration_ms:  after which silence a node may forget a producer.
        """
        self.committed = committed
        self.stability = Stability(simulation.loop, simulation.network, machines, members)
        self.lone_leaders = LoneLeaders()
        self.replicas = {node: ReplicaLogs(machine.disk, data_directory) for node, machine in machines.items()}
        self._simulation = simulation
        self._machines = machines
        self._log_directories = log_directories or (data_directory,)
        self._quorum_members = members
        self._elr_enabled = elr_enabled
        self._nodes = {machine.name: node for node, machine in machines.items()}
        self.on_violation: Callable[[Violated], None] = _raise
        self.on_commit: Callable[[], None] = lambda: None  # a partition's committed state has changed
        self.is_ending: Callable[[int], bool] = lambda node: False  # in good order, or it has ended so
        self.violation: Violated | None = None
        self._scheduled = False
        self._reported: list[ReportedEvent] = []
        self._batches: dict[tuple[TopicPartition, bytes], Batches] = {}  # by whose log it is, too
        self._prefixes: dict[TopicPartition, CommittedPrefix] = {}
        self._expirations = {node: Expiration(machine, producer_expiration_ms) for node, machine in machines.items()}
        self._sequences: dict[tuple[int, TopicPartition], Sequences] = {}
        self._forgotten: dict[tuple[int, TopicPartition], dict[BatchMark, None]] = {}
        self._unknown: dict[
            tuple[TopicPartition, BatchMark], None
        ] = {}  # taken from a producer that was not known, by right
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._stable: dict[TopicPartition, StableOffsets] = {}
        self._damaged: dict[int, None] = {}
        self._replaced: dict[tuple[int, TopicPartition], int] = {}  # leader epochs in which nodes got another disk
        self._led: dict[TopicPartition, int] = {}  # the last leader epoch in which anybody led, as committed
        self._taken: list[tuple[int, TopicPartition, list[BatchMark]]] = []  # while the partition recovers
        self._members: dict[TopicPartition, tuple[int, tuple[int, ...]]] = {}  # leader epoch and ISR as committed last
        self._proposals: list[Proposal] = []  # for the ISR, not looked at yet
        self._recovering: dict[TopicPartition, int] = {}  # the leader epochs of partitions that were committed so last
        self._behind: dict[TopicPartition, None] = {}  # a replica's log ends before what is committed
        self._exposures: dict[tuple[TopicPartition, int], tuple[int, int]] = {}  # high watermark, metadata known then
        self._former: dict[TopicPartition, dict[bytes, None]] = {}  # owners of logs of topics that are gone
        self._accused: list[Violated] = []
        self.keeps_hosted = False  # in ZooKeeper mode: a hosted replica's log may not vanish (Z3)
        for node, machine in machines.items():
            machine.disk.watcher = self.replicas[node]
            self.replicas[node].on_change = self._schedule
        simulation.listeners.append(self._note)

    def accuse(self, problem: Violated) -> None:
        """Take a violation that somebody else saw."""
        self._accused.append(problem)
        self._schedule()

    def proposed(self, proposals: Sequence[Proposal]) -> None:
        """Take whom a leader proposes for the ISR; the logs are looked at once the present event is over."""
        if proposals:
            self._proposals += proposals
            self._schedule()

    def look_soon(self) -> None:
        """Look once the present event is over: the committed state has changed."""
        self._schedule()

    def lost_data(self, node: int) -> None:
        """Know that a node's disk may have lost what it held (power failure, wipe, damage)."""
        for prefix in self._prefixes.values():
            prefix.doubtful[node] = None
            prefix.known_late.pop(node, None)
            prefix.lossy[node] = None

    def replaced_disk(self, node: int) -> None:
        """Know that a node has another, empty disk: metadata say that its replicas lie in a directory that is gone, until it says where they lie now."""
        self.lost_data(node)
        for partition, state in self.committed.state.partitions.items():
            if node in state.replicas:
                self._replaced[node, partition] = state.leader_epoch

    def damaged(self, node: int) -> None:
        """Know that bytes on a node's disk were altered: its logs say nothing any more about who wrote what."""
        self.lost_data(node)
        self._damaged[node] = None
        for prefix in self._prefixes.values():
            prefix.damaged[node] = None
        self.replicas[node].is_damaged = True
        for key in [key for key in self._sequences if key[0] == node]:
            del self._sequences[key]

    def rotten(self, node: int) -> None:
        """Know that bits of records were turned over on a node's disk: each batch is still there, and only its checksum is wrong."""
        self.replicas[node].is_damaged = True

    def epoch_altered(self, partition: TopicPartition, base_offset: int) -> None:
        """Know that a bit was turned over in a batch's leader epoch on some disk: nobody finds that, and copies of it have it too."""
        self._prefix(partition).without_epoch[base_offset] = None

    @property
    def has_damage(self) -> bool:
        """Whether bytes were altered on any disk."""
        return bool(self._damaged)

    def committed_end(self, partition: TopicPartition) -> int:
        """Return the offset behind what leaders have exposed as committed."""
        return self._prefixes[partition].end_offset if partition in self._prefixes else 0

    def waits_for_an_operator(self, partition: TopicPartition) -> bool:
        """Return whether nobody leads, and each member of the ISR holds nothing of what is committed because its own disk lost it.

        Without ELR it stays in the ISR, and is not elected as if it were whole: an operator may trust another replica's log. Of a disk that was
        replaced controllers do not know whether there was anything on it.
        """
        state = self.committed.state.partitions.get(partition)
        if self._elr_enabled or state is None or state.leader >= 0:
            return False
        return bool(state.isr) and all(self._is_emptied(node, partition) for node in state.isr)

    def _is_emptied(self, node: int, partition: TopicPartition) -> bool:
        prefix, log_end = self._prefixes.get(partition), self._log_end(node, partition)
        if prefix is not None and prefix.is_lost_by(node, log_end):
            return True
        replaced_in = self._replaced.get((node, partition))
        return replaced_in is not None and log_end == 0 and self._led.get(partition, -1) <= replaced_in

    def left_open(self) -> dict[TopicPartition, int]:
        """Return where transactions begin that nobody may end any more, in partitions that keep groups' positions.

        Their ends were lost by an unclean election whose leader does not abort what it finds open (before KIP-704): these positions stay
        unstable until an operator aborts the transaction.
        """
        found: dict[TopicPartition, int] = {}
        for partition, epoch in self.committed.unrecovered.items():
            if partition.topic == OFFSETS_TOPIC and partition in self._stable and partition in self._prefixes:
                offset = self._prefixes[partition].left_open(self._stable[partition].last, epoch)
                found |= {} if offset is None else {partition: offset}
        return found

    def may_wait_for(self, positions: Sequence[TopicPartition], partition: TopicPartition) -> bool:
        """Return whether who writes to a partition, in transactions, commits positions in one of these of `__consumer_offsets`."""
        own = self._prefixes.get(partition)
        return own is not None and any(own.may_wait_for(self._prefixes[one]) for one in positions)

    def report(self, problem: Violated) -> None:
        """Take note of what somebody else saw; the first violation is the one that counts."""
        if self.violation is None:
            problem.at_ns, problem.event_count = self._simulation.loop.now_ns, self._simulation.loop.event_count
            self.violation = problem
            self.on_violation(problem)

    def catch_up(self) -> None:
        """Look at everything that changed; the first violation ends the watch and is handed to `on_violation`."""
        self._scheduled = False
        if self.violation is not None:
            return
        try:
            self._look()
        except Violated as problem:
            self.report(problem)

    def _look(self) -> None:
        for node, logs in self.replicas.items():
            if logs.changed:
                for partition in logs.catch_up():
                    self._log_changed(node, partition)
        members = self._quorum_members()
        self.committed.advance(self.replicas, members)
        if self.committed.ended:
            self._begin_topics_anew()
        if self.committed.changed:
            self.on_commit()
        if self.committed.changed or self._behind:
            self._changed_by_commits()
        if self._taken:
            self._serve_by_right()
        if self._proposals:
            self._proposed_by_right()
        self.stability.look(members)
        reported, self._reported = self._reported, []
        for one in reported:
            self._judge(one)
        if self._accused:
            raise self._accused[0]

    def _begin_topics_anew(self) -> None:
        """Forget what was known of topics that are gone: another of the same name has other leaders and another log."""
        ended, self.committed.ended = self.committed.ended, {}
        for partition in [partition for partition in self._prefixes if partition.topic in ended]:
            topic_id = self.committed.topic_ids.get(partition.topic)
            latter = b"" if topic_id is None else partition_metadata(topic_id)
            for logs in self.replicas.values():
                if logs.owners.get(partition, latter) not in (b"", latter):
                    self._former.setdefault(partition, {})[logs.owners[partition]] = None
            del self._prefixes[partition]
            self._stable.pop(partition, None)
            self._recovering.pop(partition, None)
            self._members.pop(partition, None)
            self._behind.pop(partition, None)
            self._led.pop(partition, None)
            for known in (self._leaders, self._exposures):
                for key in [key for key in known if key[0] == partition]:
                    del known[key]
            for node in self.replicas:
                self._replaced.pop((node, partition), None)

    def _log_of(self, node: int, partition: TopicPartition) -> ReplicaLog | None:
        """Return a replica's log; None where there is none, or still that of a topic that is gone."""
        log = self.replicas[node].logs.get(partition)
        return None if log is None or log.owner in self._former.get(partition, ()) else log

    def _log_end(self, node: int, partition: TopicPartition) -> int:
        log = self._log_of(node, partition)
        return log.end_offset if log is not None else 0

    def _changed_by_commits(self) -> None:
        """Hold who is committed to be in ISR and ELR against what is committed, where one of these changed, or a log."""
        changed, self.committed.changed = {**self.committed.changed, **self._behind}, {}
        self._behind = {}
        for partition in changed:
            prefix, state = self._prefixes.get(partition), self.committed.state.partitions.get(partition)
            if state is not None:
                if state.leader >= 0:
                    self._led[partition] = state.leader_epoch
                self.lone_leaders.committed(
                    partition, state, self._simulation.loop.now_ns, self._uncommitted(partition, state)
                )
                self._recovered_by_right(partition, state)
                self._replicated_by(partition, state)
            if prefix is not None and state is not None and self.keeps_hosted:
                for node in [node for node in prefix.known_late if node not in state.isr]:
                    del prefix.known_late[node], prefix.doubtful[node]  # it comes back with its leader's log
            if prefix is not None and state is not None and state.leader in prefix.lossy:
                prefix.led_by_lossy = state.leader_epoch
            if prefix is not None and state is not None and not self._may_begin_anew(partition, prefix):
                self._members_hold(partition, state.leader_epoch, prefix)
                self._eligible_hold(partition, prefix)

    def _replicated_by(self, partition: TopicPartition, state: PartitionState) -> None:
        """Know up to where a former ISR had replicated the log when another took its place.

        Its leader may have taken that for committed without anybody having seen it, and keeps what it knows when it leads again with a lower high watermark.
        """
        term, members = (state.leader_epoch, state.isr), self._members.get(partition)
        self._members[partition] = term
        if members is None or members == term or len(members[1]) < self.committed.effective_min_isr(partition, state):
            return
        prefix = self._prefix(partition)
        ends = [self._log_end(node, partition) for node in members[1]]
        prefix.replicated_end = max(prefix.replicated_end, min(ends))

    def _recovered_by_right(self, partition: TopicPartition, state: PartitionState) -> None:
        """I12: who ends a recovery has ended the transactions that it had found open, before anybody may read (KIP-704).

        Of one whose machine lost data since, while the controller committed what it had proposed, the disk does not say what it had written.
        """
        if state.recovering:
            self._recovering[partition] = state.leader_epoch
            return
        recovered = self._recovering.pop(partition, None) == state.leader_epoch
        lost = {**self._damaged, **self._prefix(partition).doubtful}
        log = self._log_of(state.leader, partition) if recovered and state.leader not in lost else None
        found = {} if log is None else left_open_before(log.batches, state.leader_epoch)
        for producer_id, offset in found.items():
            raise Violated(
                Invariant.I12,
                TransactionLeftOpen(producer_id=producer_id),
                partition=partition,
                log_offset=offset,
                node=state.leader,
                epoch=state.leader_epoch,
            )

    def _uncommitted(self, partition: TopicPartition, state: PartitionState) -> int | None:
        """Return where a leader's log ends that is alone in its ISR, suffices, and has shown less than that as committed."""
        log = self._log_of(state.leader, partition) if state.leader in self.replicas else None
        exposed, _ = self._exposures.get((partition, state.leader_epoch), (None, 0))
        if log is None or exposed is None or state.recovering or not self.committed.may_commit_alone(partition):
            return None
        return log.end_offset if exposed < log.end_offset else None

    # what wakes it

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._simulation.loop.after_event(self.catch_up)

    def _note(self, event: ReportedEvent) -> None:
        if event.machine in self._nodes:
            self._reported.append(event)
            self._schedule()

    # logs

    def _log_changed(self, node: int, partition: TopicPartition) -> None:
        log = self.replicas[node].logs.get(partition)
        if log is None:
            self._sequences.pop((node, partition), None)
            self._prefix(partition).verified.pop(node, None)
            if self.keeps_hosted and partition != METADATA:
                self._hosted_vanished(node, partition)
            return
        first, log.lowest_change = log.lowest_change, len(log.batches)
        # What a flipped bit made of a header proves nothing; compaction makes other batches of the same offsets, and gaps.
        is_as_written = node not in self._damaged and not log.is_compacted
        if is_as_written:
            batches = self._batches.setdefault((partition, log.owner), Batches(partition))
            for mark in log.batches[first:]:
                batches.see(node, mark)
        if partition != METADATA:
            if is_as_written:
                self._sequences_of(node, partition).see(log, first, partial(self._did_not_know, partition))
            prefix = self._prefix(partition)
            prefix.changed_from(node, log.batches[first].base_offset if first < len(log.batches) else log.end_offset)
            if log.end_offset < prefix.end_offset:
                self._behind[partition] = None
            if self.committed.is_recovering(partition):
                self._taken.append((node, partition, log.batches[first:]))

    def _sequences_of(self, node: int, partition: TopicPartition) -> Sequences:
        place = (node, partition)
        found = self._sequences.get(place)
        if found is None:
            forgotten = self._forgotten.setdefault(place, {})
            found = self._sequences[place] = Sequences(partition, node, self._expirations[node], forgotten)
        return found

    def _did_not_know(self, partition: TopicPartition, mark: BatchMark, offset: int) -> bool:
        """Return whether the leader that wrote a batch, by right, did not know what its producer had written up to an offset.

        Once that was so it stays so, whatever becomes of the leader's replica.
        """
        if (partition, mark) not in self._unknown:
            leader = self._writer(partition, mark)
            if leader is None or not (
                mark in self._forgotten.get((leader, partition), ()) or self._never_held(leader, partition, offset)
            ):
                return False
            self._unknown[partition, mark] = None
        return True

    def _writer(self, partition: TopicPartition, mark: BatchMark) -> int | None:
        """Return the leader that wrote a batch, None where that is not known."""
        leader = self._leaders.get((partition, mark.epoch))
        state = self.committed.state.partitions.get(partition)
        if leader is None and state is not None and state.leader_epoch == mark.epoch:
            leader = state.leader
        return leader

    def _never_held(self, leader: int, partition: TopicPartition, offset: int) -> bool:
        """Return whether a leader began its log behind an offset when it became a replica."""
        written = self._sequences.get((leader, partition))
        return written is not None and written.lowest is not None and written.lowest > offset

    def _serve_by_right(self) -> None:
        """I12: a leader that recovers takes nothing from clients (KIP-704)."""
        taken, self._taken = self._taken, []
        for node, partition, marks in taken:
            state = self.committed.state.partitions.get(partition)
            if state is None or not state.recovering or state.leader != node:
                continue
            for mark in marks:
                if mark.epoch == state.leader_epoch and not mark.is_control:
                    raise Violated(
                        Invariant.I12,
                        TakenWhileRecovering(batch=batch_of(mark)),
                        partition=partition,
                        log_offset=mark.base_offset,
                        node=node,
                        epoch=mark.epoch,
                    )

    def _proposed_by_right(self) -> None:
        """I24: whom a leader proposes for the ISR has its log up to the beginning of the leader epoch (KAFKA-7128).

        A leader that does not know the last committed change proposes who was a member before it; nothing is said of that, nor of a process of a
        follower that is not registered now. In a log that is compacted nobody sees where a leader epoch began.
        """
        proposals, self._proposals = self._proposals, []
        names = {topic_id: name for name, topic_id in self.committed.topic_ids.items()}
        for one in proposals:
            partition = TopicPartition(names.get(one.topic_id, ""), one.partition)
            state, log = self.committed.state.partitions.get(partition), self._log_of(one.leader, partition)
            if state is None or log is None or log.is_compacted:
                continue
            known = (state.leader, state.leader_epoch, state.partition_epoch)
            if known == (one.leader, one.leader_epoch, one.partition_epoch):
                self._newcomers_reach(partition, state, _begins_at(log, one.leader_epoch), one.members)

    def _newcomers_reach(
        self, partition: TopicPartition, state: PartitionState, start_offset: int, members: Sequence[tuple[int, int]]
    ) -> None:
        lost = {**self._damaged, **self._prefix(partition).doubtful}
        for node, broker_epoch in members:
            registered = self.committed.state.brokers.get(node)
            if node in state.isr or node in lost or registered is None or registered.broker_epoch != broker_epoch:
                continue
            log = self._log_of(node, partition)
            end_offset = None if log is None else log.end_offset
            if end_offset is not None and end_offset < start_offset:
                short = ProposedShort(leader=state.leader, epoch_start_offset=start_offset, log_end_offset=end_offset)
                raise Violated(Invariant.I24, short, partition=partition, node=node, epoch=state.leader_epoch)

    def _hosted_vanished(self, node: int, partition: TopicPartition) -> None:
        """Z3: nobody but a fault takes a replica's log, and its checkpoints, from the broker it is assigned to."""
        state = self.committed.state.partitions.get(partition)
        if self.replicas[node].owners.get(partition) in self._former.get(partition, ()):
            return  # it was the log of a topic that is gone
        if partition.topic in self.committed.being_deleted:
            return
        if self.committed.moved_away.pop((node, partition), None) is not None:
            return  # the order of a former assignment, which reached it when it was assigned to it again
        lossy = node in self._prefix(partition).lossy or node in self._damaged
        if state is not None and node in state.replicas and self._machines[node].running and not lossy:
            raise Violated(Invariant.Z3, HostedLogGone(), partition=partition, node=node)

    def _prefix(self, partition: TopicPartition) -> "CommittedPrefix":
        prefix = self._prefixes.get(partition)
        if prefix is None:
            prefix = self._prefixes[partition] = CommittedPrefix(partition)
            prefix.damaged.update(self._damaged)
        return prefix

    # what nodes report

    def _judge(self, event: ReportedEvent) -> None:
        node = self._nodes[event.machine]
        match event.name:
            case "high_watermark":
                self._exposed(node, event)
            case "quorum_leader":
                claim = msgspec.convert(event.fields, QuorumLeader)
                self.stability.claimed(claim.leader, claim.epoch)
                self.committed.claimed(claim.leader, claim.epoch, node)
            case "follows":
                self._follows(msgspec.convert(event.fields, Followed))
            case "registered":
                self._registered(msgspec.convert(event.fields, BrokerRegistered).node)
            case _:
                pass

    def _follows(self, said: "Followed") -> None:
        """Whoever follows in a later leader epoch than that in which its replica was moved away has obeyed both orders."""
        place = (said.node, TopicPartition(said.topic, said.partition))
        if said.leader_epoch > self.committed.moved_away.get(place, said.leader_epoch):
            del self.committed.moved_away[place]

    def _exposed(self, node: int, event: ReportedEvent) -> None:
        """A leader says how far its partition is committed."""
        shown = msgspec.convert(event.fields, HighWatermark)
        partition = TopicPartition(shown.topic, shown.partition)
        epoch, high_watermark = shown.leader_epoch, shown.high_watermark
        log = self._log_of(node, partition)
        if log is None and partition in self._former:
            return  # it does not know yet that its topic is gone
        self._one_leader(partition, epoch, node)
        prefix = self._prefix(partition)
        may_have_lost = epoch > prefix.leader_epoch and self._may_have_lost(node, partition, prefix)
        if shown.last_stable_offset is not None:
            stable = self._stable.setdefault(partition, StableOffsets(partition))
            offset = StableOffset(epoch, high_watermark, shown.last_stable_offset)
            assured = prefix.stable_by(log, offset)
            stable.show(offset, may_have_lost=may_have_lost, assured=assured)
        self._moved_by_right(node, partition, epoch, high_watermark)
        self.lone_leaders.exposed(partition, epoch, high_watermark, self._simulation.loop.now_ns)
        if log is None:
            return
        if may_have_lost:
            prefix.begin_anew(log)
        if epoch < prefix.leader_epoch:
            self._shown_by_deposed(node, log, partition, epoch, high_watermark)
        prefix.exposed(node, log, epoch, high_watermark)
        if shown.last_stable_offset is not None:
            start = shown.log_start_offset
            prefix.hold_stable(node, log, StableOffset(epoch, high_watermark, shown.last_stable_offset, start))
        self._members_hold(partition, epoch, prefix)
        self._eligible_hold(partition, prefix)

    def _shown_by_deposed(
        self, node: int, log: ReplicaLog, partition: TopicPartition, epoch: int, high_watermark: int
    ) -> None:
        """I4: what a leader takes for committed that does not know of its successors is in the log of the last one.

        Not where one of them was elected uncleanly, nor where any machine has lost data. Logs are equal up to a batch that both have.
        """
        prefix = self._prefix(partition)
        successor = self._leaders.get((partition, prefix.leader_epoch))
        latter = None if successor is None else self._log_of(successor, partition)
        was_unclean = self.committed.unclean.get(partition, -1) > epoch
        lost = (
            was_unclean
            or prefix.lossy
            or prefix.damaged
            or self._damaged
            or partition.topic in self.committed.being_deleted
        )
        if lost or latter is None or latter.is_compacted or log.is_compacted:
            return
        place = log.index_of(high_watermark) - 1
        if place < 0 or log.batches[place].base_offset < (latter.start_offset or 0):
            return
        mark, index = log.batches[place], latter.index_of(log.batches[place].base_offset)
        found = latter.batches[index] if index < len(latter.batches) else None
        if found != mark:
            differs = Differs(committed=batch_of(mark), found=None if found is None else batch_of(found))
            raise Violated(
                Invariant.I4, differs, partition=partition, log_offset=mark.base_offset, node=successor, epoch=epoch
            )

    def _moved_by_right(self, node: int, partition: TopicPartition, epoch: int, high_watermark: int) -> None:
        """I13: nothing is committed while fewer than min ISR are in sync."""
        acted_offset = self.committed.acted_offset((node, self._machines[node].incarnations))
        if acted_offset is None:
            return
        before, known_offset = self._exposures.get((partition, epoch), (high_watermark, 0))
        self._exposures[partition, epoch] = (high_watermark, acted_offset)
        if high_watermark > before and not self.committed.high_watermark_may_move(partition, epoch, known_offset):
            raise Violated(
                Invariant.I13,
                MovedBelowMinIsr(before=before, high_watermark=high_watermark, metadata_offset=known_offset),
                partition=partition,
                node=node,
                epoch=epoch,
            )

    def _may_begin_anew(self, partition: TopicPartition, prefix: "CommittedPrefix") -> bool:
        """Return whether the next leader to speak may lawfully lack something, and has not spoken yet."""
        was_unclean = self.committed.unclean.get(partition, -1) > prefix.leader_epoch
        return was_unclean or (not self._elr_enabled and bool(prefix.lossy))

    def _may_have_lost(self, node: int, partition: TopicPartition, prefix: "CommittedPrefix") -> bool:
        """Return whether a loss of committed records by this new leader may be permitted (rules R1-R4, roughly)."""
        was_unclean = self.committed.unclean.get(partition, -1) > prefix.leader_epoch
        # Who lost data may have led without showing anything, and its followers have cut their logs to its own.
        of_lossy = node in prefix.lossy or prefix.led_by_lossy > prefix.leader_epoch
        return was_unclean or (not self._elr_enabled and of_lossy)

    def _one_leader(self, partition: TopicPartition, epoch: int, node: int) -> None:
        other = self._leaders.setdefault((partition, epoch), node)
        if other != node:
            raise Violated(
                Invariant.I10, TwoLeaders(first=other, second=node), partition=partition, node=node, epoch=epoch
            )

    def _members_hold(self, partition: TopicPartition, epoch: int, prefix: "CommittedPrefix") -> None:
        """I9: who is in the committed ISR holds what is committed."""
        state = self.committed.state.partitions.get(partition)
        if state is None or state.leader_epoch != epoch or partition.topic in self.committed.being_deleted:
            return
        for member in state.isr:
            if member in prefix.doubtful:
                continue  # it lost data, and the controller may not know yet
            log = self._log_of(member, partition)
            end_offset = log.end_offset if log is not None else 0
            if end_offset < prefix.end_offset:
                raise _ends_early(Invariant.I9, Role.IN_ISR, member, end_offset, prefix, epoch)
            if log is not None:
                prefix.compare(member, log)

    def _eligible_hold(self, partition: TopicPartition, prefix: "CommittedPrefix") -> None:
        """I8: who is in the committed ELR holds what is committed."""
        state = self.committed.state.partitions.get(partition)
        if state is None:
            return
        for member in state.elr:
            end_offset = self._log_end(member, partition)
            if member not in prefix.doubtful and end_offset < prefix.end_offset:
                raise _ends_early(Invariant.I8, Role.IN_ELR, member, end_offset, prefix, state.leader_epoch)

    def _registered(self, node: int) -> None:
        for partition, prefix in self._prefixes.items():
            state = self.committed.state.partitions.get(partition)
            # A broker registers with ZooKeeper: its controller is notified of that later, and takes it out of the ISR for its former life then.
            if self.keeps_hosted and state is not None and node in state.isr and node in prefix.doubtful:
                prefix.known_late[node] = None
            else:
                prefix.doubtful.pop(node, None)
        if self.is_ending(node):
            return  # it was asked to while its registration was under way, and the file is its own
        disk = self._machines[node].disk
        # A file in one that fails is of no use to anybody, and cannot be removed.
        for directory in self._log_directories:
            if disk.exists(f"{directory}/{CLEAN_SHUTDOWN_FILE}") and not disk.is_broken(directory):
                raise Violated(Invariant.I20, CleanShutdownFile(), node=node)

    def ended_in_order(self, node: int) -> None:
        """I20: a directory that says so was closed: what its logs held is on the disk, whatever becomes of the machine now."""
        disk, partition_of = self._machines[node].disk, self.replicas[node].partition_of
        for directory in self._log_directories:
            if disk.exists(f"{directory}/{CLEAN_SHUTDOWN_FILE}"):
                logs = (path for path in disk.files_below(directory) if partition_of(path) not in {None, METADATA})
                unsynced = next((path for path in logs if not disk.is_durable(path)), None)
                if unsynced is not None:
                    self.report(Violated(Invariant.I20, ClosedUnsynced(file=unsynced), node=node))


class Batches:
    """I14: within one leader epoch an offset is written once, so one (epoch, offset) is one batch everywhere."""

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._known: dict[tuple[int, int], tuple[int, int, int]] = {}

    def see(self, node: int, mark: BatchMark) -> None:
        """Compare a batch with the first one seen of its epoch and offset."""
        key = (mark.epoch, mark.base_offset)
        known = self._known.setdefault(key, (mark.last_offset, mark.crc, node))
        if known[:2] != (mark.last_offset, mark.crc):
            raise Violated(
                Invariant.I14,
                TwoBatches(other=known[2]),
                partition=self._partition,
                log_offset=mark.base_offset,
                node=node,
                epoch=mark.epoch,
            )


def _begins_at(log: ReplicaLog, epoch: int) -> int:
    """Return the first offset of a leader epoch in its leader's log; where it has written nothing yet, the end of that."""
    place = bisect_left(log.batches, epoch, key=lambda mark: mark.epoch)
    return log.batches[place].base_offset if place < len(log.batches) else log.end_offset


def left_open_before(batches: Sequence[BatchMark], epoch: int) -> dict[int, int]:
    """Return where transactions begin that former leader epochs left without an end, by their producers."""
    found: dict[int, int] = {}
    for mark in batches:
        if mark.is_control:
            found.pop(mark.producer_id, None)
        elif mark.is_transactional and mark.epoch < epoch:
            found.setdefault(mark.producer_id, mark.base_offset)
    return found


class CommittedPrefix:
    """I4, I5: what a leader exposed as committed stays, in every leader's log."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.leader_epoch = -1
        self.batches: list[BatchMark] = []
        self.end_offset = 0
        self.verified: dict[int, int] = {}  # node -> offset up to which its log was found equal
        self.doubtful: dict[int, None] = {}  # nodes that lost data since they registered
        self.known_late: dict[int, None] = {}  # those of them that have registered while they still counted as in sync
        self.replicated_end = 0  # up to where a former ISR held the log: its leader may have taken that for committed
        self.lossy: dict[int, None] = {}  # nodes that ever lost data
        self.led_by_lossy = -1  # the last leader epoch in which one of these led
        self.damaged: dict[int, None] = {}  # nodes whose bytes were altered: what their batches say is not theirs
        self.without_epoch: dict[int, None] = {}  # base offsets of batches whose leader epoch was altered on some disk
        self.transactional: dict[int, None] = {}  # producers that ever wrote in transactions
        self.open: dict[int, int] = {}  # producer -> where its transaction begins, whose end is not among the batches

    def is_lost_by(self, node: int, log_end: int) -> bool:
        """Return whether a node holds nothing of what is committed, and its own disk once lost something."""
        return node in self.lossy and log_end == 0 < self.end_offset

    def left_open(self, shown: StableOffset | None, epoch: int) -> int | None:
        """Return the last stable offset where a transaction begins there that an election had found open; None: there is none.

        epoch:  of the leader that was elected.
        """
        if shown is None or shown.offset >= shown.high_watermark:
            return None
        index = index_reaching(self.batches, shown.offset)
        return shown.offset if index < len(self.batches) and self.batches[index].epoch < epoch else None

    def may_wait_for(self, positions: "CommittedPrefix") -> bool:
        """Return whether it is written in transactions, by producers that committed positions in another partition: who only writes waits for no group."""
        return self.ends_in_transaction and not self.transactional.keys().isdisjoint(positions.transactional)

    @property
    def ends_in_transaction(self) -> bool:
        """Whether its last batch is a transaction's, or the end of one."""
        return bool(self.batches) and (self.batches[-1].is_transactional or self.batches[-1].is_control)

    def changed_from(self, node: int, offset: int) -> None:
        """A replica's log is other, or longer, from this offset on."""
        if self.verified.get(node, 0) > offset:
            self.verified[node] = offset

    def begin_anew(self, log: ReplicaLog) -> None:
        """Forget what an unclean election may have lost."""
        self.replicated_end = 0
        self.verified.clear()
        common = 0
        for mark in self.batches:
            index = log.index_of(mark.base_offset)
            if index >= len(log.batches) or not self._is_same(log.batches[index], mark):
                break
            common += 1
        del self.batches[common:]
        self.open.clear()
        for mark in self.batches:
            self._note_transaction(mark)
        self.end_offset = self.batches[-1].last_offset + 1 if self.batches else 0

    def exposed(self, node: int, log: ReplicaLog, epoch: int, high_watermark: int) -> None:
        """A leader shows its high watermark."""
        if epoch < self.leader_epoch:
            return  # deposed, and does not know it
        self.leader_epoch = epoch
        if high_watermark > log.end_offset:
            beyond = ExposedBeyondLog(high_watermark=high_watermark, log_end_offset=log.end_offset)
            raise Violated(
                Invariant.I4, beyond, partition=self.partition, log_offset=log.end_offset, node=node, epoch=epoch
            )
        if log.end_offset < self.end_offset:
            raise _ends_early(Invariant.I4, Role.LEADER, node, log.end_offset, self, epoch)
        self.compare(node, log)
        if high_watermark > self.end_offset:
            index = log.index_of(self.end_offset)
            while index < len(log.batches) and log.batches[index].last_offset < high_watermark:
                self.batches.append(log.batches[index])
                self._note_transaction(log.batches[index])
                if log.batches[index].is_transactional:
                    self.transactional[log.batches[index].producer_id] = None
                index += 1
            self.end_offset = high_watermark
            self.verified[node] = high_watermark

    def _note_transaction(self, mark: BatchMark) -> None:
        if mark.is_control:
            self.open.pop(mark.producer_id, None)
        elif mark.is_transactional:
            self.open.setdefault(mark.producer_id, mark.base_offset)

    def stable_by(self, log: ReplicaLog | None, shown: StableOffset) -> int:
        """Return how far a last stable offset goes by what lies below the high watermark that it is shown with, as its leader's log has it.

        Beyond that it rests on an end that a former ISR had replicated: its leader knows that, the next one need not.
        """
        if log is None or self.replicated_end <= shown.high_watermark:
            return shown.offset
        below = log.batches[: log.index_of(shown.high_watermark)]
        return min((shown.offset, *left_open_before(below, shown.leader_epoch + 1).values()))

    def hold_stable(self, node: int, log: ReplicaLog, shown: StableOffset) -> None:
        """I18: readers of committed transactions are shown nothing behind the beginning of one whose end is not committed.

        Of one whose beginning its log does not have (retention took it, or it was copied from a log that begins later) the leader knows nothing. One
        that began before the log's start, in a batch that is still there, holds up nobody: nobody can read from there. Nor does one whose end a former
        ISR had replicated.
        """
        if node in self.damaged or shown.leader_epoch < self.leader_epoch:
            return
        begins = log.batches[0].base_offset if log.batches else log.end_offset
        behind = log.batches[log.index_of(self.end_offset) :] if self.replicated_end > self.end_offset else ()
        ended = {mark.producer_id for mark in behind if mark.is_control and mark.last_offset < self.replicated_end}
        first = min(
            (offset for producer, offset in self.open.items() if offset >= begins and producer not in ended),
            default=shown.offset,
        )
        if shown.offset > max(first, shown.log_start_offset):
            raise Violated(
                Invariant.I18,
                StableBeyondOpen(
                    last_stable_offset=shown.offset, first_offset=first, high_watermark=shown.high_watermark
                ),
                partition=self.partition,
                log_offset=first,
                node=node,
                epoch=shown.leader_epoch,
            )

    def compare(self, node: int, log: ReplicaLog) -> None:
        """Compare a replica with the committed batches, from where that was done last."""
        if node in self.damaged:
            return  # no CRC covers a batch's leader epoch: a bit turned over there is found by nobody (R7)
        start = self.verified.get(node, 0)
        if start >= self.end_offset:
            return
        begins = log.batches[0].base_offset if log.batches else log.end_offset
        start = max(start, begins)  # retention took what is before
        for mark in self.batches[index_reaching(self.batches, start) :]:
            index = log.index_of(mark.base_offset)
            if index >= len(log.batches) or not self._is_same(log.batches[index], mark):
                found = log.batches[index] if index < len(log.batches) else None
                if log.is_compacted and found is not None and _is_left_of(found, mark):
                    continue
                differs = Differs(committed=batch_of(mark), found=None if found is None else batch_of(found))
                raise Violated(
                    Invariant.I4,
                    differs,
                    partition=self.partition,
                    log_offset=mark.base_offset,
                    node=node,
                    epoch=self.leader_epoch,
                )
        self.verified[node] = self.end_offset

    def _is_same(self, found: BatchMark, mark: BatchMark) -> bool:
        """Whether a batch is the committed one: of any leader epoch where that was altered on a disk, for no CRC covers it (R7)."""
        if found != mark and mark.base_offset in self.without_epoch:
            return msgspec.structs.replace(found, epoch=mark.epoch) == mark
        return found == mark


def _is_left_of(found: BatchMark, mark: BatchMark) -> bool:
    """Return whether a compacted log has this where a batch was: the same one with fewer records, or only what was behind it."""
    same = (found.base_offset, found.last_offset, found.epoch) == (mark.base_offset, mark.last_offset, mark.epoch)
    return same or found.base_offset > mark.last_offset


def _ends_early(
    invariant: Invariant, role: Role, node: int, log_end_offset: int, prefix: CommittedPrefix, epoch: int
) -> Violated:
    facts = LogEndsEarly(role=role, log_end_offset=log_end_offset, committed_end=prefix.end_offset)
    return Violated(invariant, facts, partition=prefix.partition, log_offset=log_end_offset, node=node, epoch=epoch)


def _raise(problem: Violated) -> None:
    raise problem
