"""The committed metadata of a simulation, known without asking anybody: read from the disks, as far as any member of the quorum calls it committed.

It is the state by which faults choose their targets and the source of the recording's table `metadata`; and every
committed record is held against the invariants of docs/invariants.md that speak of metadata alone.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from replog.config import Endpoint
from replog.quorum.messages import OffsetAndEpoch
from replog.quorum.roles import Role
from replog.types import METADATA_TOPIC, NodeId, QuorumEpoch, TopicPartition
from tribunal.clusters.api import ClusterState, MetadataEntry, PartitionState
from tribunal.clusters.committed_records import CommittedRecords
from tribunal.clusters.metadata import MetadataView
from tribunal.clusters.simulated.disk import SimulatedDisk
from tribunal.clusters.simulated.replica_logs import BatchMark, ReplicaLog, ReplicaLogs, index_reaching
from tribunal.clusters.simulated.violation import Violated, batch_of, state_of
from tribunal.results.violation import (
    BadState,
    Differs,
    EligibleBesideFullIsr,
    FencedJoined,
    Grows,
    Invariant,
    RecoveryForgotten,
    RemovedBelowMinIsr,
    TwoLeaders,
    UnfencedEarly,
    WentBack,
)

Incarnation = tuple[int, int]  # node id, and which of its processes, counted from 1
METADATA: Final = TopicPartition(METADATA_TOPIC, 0)
MIN_ISR: Final = "min.insync.replicas"


class IsrState(NamedTuple):
    """A committed ISR as far as it decides whether the high watermark may move.

    end_offset:  of the metadata batch with which it began.
    """

    end_offset: int
    leader_epoch: int
    size: int
    effective_min_isr: int


class QuorumMember(Protocol):
    """A member of the quorum, as far as it is watched."""

    @property
    def high_watermark(self) -> int:
        """First offset that it does not know to be committed."""

    @property
    def is_leading(self) -> bool:
        """Whether it leads and acts."""

    @property
    def leader(self) -> tuple[NodeId, QuorumEpoch, Endpoint | None]:
        """Who leads, by its knowledge, and in which epoch."""

    @property
    def log_end(self) -> OffsetAndEpoch:
        """Where its log ends."""

    @property
    def role(self) -> Role:
        """What it is in its epoch."""

    @property
    def voter_directories(self) -> Mapping[NodeId, UUID]:
        """Who votes by its log, and with which directory."""


class CommittedMetadata:
    """Follows the committed prefix of the metadata log."""

    def __init__(
        self,
        disks: Mapping[int, SimulatedDisk],
        *,
        now_ns: Callable[[], int],
        wall_start_ms: float,
        acted_offset: Callable[[Incarnation], int | None] = lambda _: None,
        min_insync_replicas: int = 1,
    ) -> None:
        """Read these nodes' disks.

        acted_offset:  how far a broker's process has carried out the metadata: given roles, made logs; None: not known.
        """
        self.state = ClusterState()
        self.unclean: dict[TopicPartition, int] = {}  # the leader epoch of the last unclean election
        # And of the last one whose leader does not recover, by a protocol before KIP-704: transactions that it finds stay open.
        self.unrecovered: dict[TopicPartition, int] = {}
        # Replicas that were taken from a node, and in which leader epoch: it gives the log up when the order reaches it.
        self.moved_away: dict[tuple[int, TopicPartition], int] = {}
        self.changed: dict[TopicPartition, None] = {}  # partitions, until somebody has looked at them
        self.topic_ids: dict[str, UUID] = {}
        self.being_deleted: dict[str, None] = {}  # topics whose logs go before they do (ZooKeeper mode)
        self.ended: dict[str, None] = {}  # topics deleted, or created again with another id, until somebody has looked
        self.acted_offset = acted_offset
        self._disks = disks
        self._records = CommittedRecords(self.state)
        self._view = MetadataView(self._records, now_ns=now_ns, wall_start_ms=wall_start_ms)
        self._marks: list[BatchMark] = []
        self._end_offset = 0
        self._leaders: dict[int, int] = {}  # quorum epoch -> leader
        self._watermarks: dict[Incarnation, int] = {}
        self._last_members: Mapping[Incarnation, QuorumMember] = {}
        self._last_watermarks: list[int] = []  # of these members, in their order
        self._broker_epochs: dict[int, int] = {}
        self._unfenced: dict[int, bool] = {}
        self._registered_by: dict[
            int, Incarnation | None
        ] = {}  # the process that ran when its registration was committed
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._min_insync_replicas = min_insync_replicas  # where nothing else is committed
        self._isr_states: dict[TopicPartition, list[IsrState]] = {}

    def drain(self) -> list[MetadataEntry]:
        """Hand over committed records since the last call."""
        return self._records.drain()

    def claimed(self, leader: int, epoch: int, node: int) -> None:
        """A node says who leads an epoch: at most one ever does (I1)."""
        if epoch >= self.state.quorum_epoch:
            self.state.quorum_epoch = epoch
            self.state.quorum_leader = leader
        if leader < 0:
            return
        other = self._leaders.setdefault(epoch, leader)
        if other != leader:
            raise Violated(
                Invariant.I1, TwoLeaders(first=other, second=leader, according_to=node), node=node, epoch=epoch
            )

    def high_watermark_may_move(self, partition: TopicPartition, leader_epoch: int, since_offset: int) -> bool:
        """Return whether the leader of an epoch may have known an ISR of at least min ISR (I13).

        since_offset:  how far it had carried out the metadata when it last said how far its partition is committed. What was
            committed later it may have learned from an answer to its own proposal, before its metadata show it.
        """
        states = self._isr_states.get(partition, [])
        first = max((index for index, state in enumerate(states) if state.end_offset <= since_offset), default=0)
        possible = [state for state in states[first:] if state.leader_epoch == leader_epoch]
        return not possible or any(state.size >= state.effective_min_isr for state in possible)

    def may_commit_alone(self, partition: TopicPartition) -> bool:
        """Return whether a partition's leader is the only one in the committed ISR, and that suffices."""
        states = self._isr_states.get(partition, [])
        return bool(states) and states[-1].size == 1 >= states[-1].effective_min_isr

    def is_recovering(self, partition: TopicPartition) -> bool:
        """Return whether a partition was elected uncleanly and is not RECOVERED."""
        state = self.state.partitions.get(partition)
        return state is not None and state.recovering

    def advance(self, replicas: Mapping[int, ReplicaLogs], members: Mapping[Incarnation, QuorumMember]) -> None:
        """Take what has been committed since the last call.

        members:  the running nodes' members of the quorum.
        """
        watermarks = [member.high_watermark for member in members.values()]
        if watermarks == self._last_watermarks and members is self._last_members:
            return  # as nearly always: this is asked after each append anywhere
        known, self._last_members = self._watermarks, members
        for incarnation, high_watermark in zip(members, watermarks, strict=True):
            if high_watermark != known.get(incarnation, -1):
                self._moved(incarnation, high_watermark, replicas[incarnation[0]].logs.get(METADATA))
        self._last_watermarks = watermarks

    def _moved(self, incarnation: Incarnation, high_watermark: int, log: ReplicaLog | None) -> None:
        node = incarnation[0]
        before = self._watermarks.get(incarnation, -1)
        if high_watermark < before:
            back = WentBack(what=Grows.METADATA_HIGH_WATERMARK, before=before, now=high_watermark)
            raise Violated(Invariant.I3, back, node=node)
        self._watermarks[incarnation] = high_watermark
        if log is None or not log.batches:
            return
        self._compare(node, log, max(before, 0), min(high_watermark, self._end_offset))
        if high_watermark > self._end_offset:
            self._take(node, log, high_watermark)

    def _compare(self, node: int, log: ReplicaLog, start: int, end: int) -> None:
        """I1: what two members call committed is the same, as far as snapshots have left it in their logs."""
        start = max(start, log.batches[0].base_offset)
        index = log.index_of(start)
        position = index_reaching(self._marks, start)
        while index < len(log.batches) and position < len(self._marks):
            mine, known = log.batches[index], self._marks[position]
            if mine.base_offset >= end or known.base_offset >= end:
                return
            if mine != known:
                differs = Differs(committed=batch_of(known), found=batch_of(mine))
                raise Violated(
                    Invariant.I1, differs, partition=METADATA, log_offset=mine.base_offset, node=node, epoch=mine.epoch
                )
            index += 1
            position += 1

    def _take(self, node: int, log: ReplicaLog, high_watermark: int) -> None:
        if log.batches[0].base_offset > self._end_offset:
            return  # it began with a snapshot; what that replaced is known from its writer
        for index in range(log.index_of(self._end_offset), len(log.batches)):
            mark = log.batches[index]
            if mark.last_offset >= high_watermark:
                break
            path, end = log.ends[index]
            start = log.ends[index - 1][1] if index and log.ends[index - 1][0] == path else 0
            content = self._disks[node].content(path)
            assert content is not None
            self._marks.append(mark)
            self._end_offset = mark.last_offset + 1
            self._view.apply_committed(bytes(content[start:end]), high_watermark)
            self._hold(mark)

    def _hold(self, mark: BatchMark) -> None:
        """Hold the state after a committed batch against what must hold of it."""
        state = self.state
        self._begin_topics_anew()
        self._hold_brokers()
        for partition, now in state.partitions.items():
            before = self._partitions.get(partition)
            min_isr = self.effective_min_isr(partition, now)
            if before is not now and before != now:
                self.changed[partition] = None
                for node in () if before is None else set(before.replicas).difference(now.replicas):
                    self.moved_away[node, partition] = now.leader_epoch
                self._hold_partition(partition, before, now, min_isr)
            self._remember(partition, IsrState(mark.last_offset + 1, now.leader_epoch, len(now.isr), min_isr))
        self._partitions = dict(state.partitions)

    def _hold_brokers(self) -> None:
        for broker, registration in self.state.brokers.items():
            former, own = self._broker_epochs.get(broker, -1), registration.broker_epoch
            if own < former:
                raise Violated(Invariant.I2, WentBack(what=Grows.BROKER_EPOCH, before=former, now=own), node=broker)
            if own != former:
                self._broker_epochs[broker] = own
                self._unfenced[broker] = False
                self._registered_by[broker] = self._process_of(broker)
            if self._unfenced[broker] is registration.fenced:
                self._unfenced[broker] = not registration.fenced
                if not registration.fenced:
                    self._knows_itself(broker, own)

    def _knows_itself(self, broker: int, broker_epoch: int) -> None:
        """I22: who is unfenced has replayed the metadata up to its own registration. Of a later process that is not asked."""
        process = self._process_of(broker)
        if process is None or process != self._registered_by[broker]:
            return
        acted_offset = self.acted_offset(process)
        if acted_offset is not None and acted_offset <= broker_epoch:
            early = UnfencedEarly(broker_epoch=broker_epoch, metadata_offset=acted_offset)
            raise Violated(Invariant.I22, early, node=broker)

    def _process_of(self, broker: int) -> Incarnation | None:
        return max((process for process in self._last_members if process[0] == broker), default=None)

    def _begin_topics_anew(self) -> None:
        """Forget what a name stood for once it stands for nothing, or for another topic."""
        topic_ids = self._records.topic_ids()
        if topic_ids == self.topic_ids:
            return
        ended = {name: None for name, topic_id in self.topic_ids.items() if topic_ids.get(name) != topic_id}
        for known in (self._partitions, self._isr_states, self.unclean, self.unrecovered):
            for partition in [partition for partition in known if partition.topic in ended]:
                del known[partition]
        self.moved_away = {place: epoch for place, epoch in self.moved_away.items() if place[1].topic not in ended}
        self.ended |= ended
        self.topic_ids = topic_ids

    def effective_min_isr(self, partition: TopicPartition, now: PartitionState) -> int:
        """Return how large an ISR must be for its leader to commit anything."""
        configured = self.min_isr(partition.topic)
        return min(self._min_insync_replicas if configured is None else configured, len(now.replicas))

    def min_isr(self, topic: str) -> int | None:
        """Return the min ISR that is committed for a topic or the cluster; None: what the nodes were started with."""
        configured = self._records.setting(topic, MIN_ISR)
        return None if configured is None else int(configured)

    def _remember(self, partition: TopicPartition, now: IsrState) -> None:
        states = self._isr_states.setdefault(partition, [])
        if not states or states[-1][1:] != now[1:]:
            states.append(now)

    def _hold_partition(
        self, partition: TopicPartition, before: PartitionState | None, now: PartitionState, min_isr: int
    ) -> None:
        if before is not None:
            for what, was, is_now in (
                (Grows.LEADER_EPOCH, before.leader_epoch, now.leader_epoch),
                (Grows.PARTITION_EPOCH, before.partition_epoch, now.partition_epoch),
            ):
                if is_now < was:
                    raise Violated(Invariant.I2, WentBack(what=what, before=was, now=is_now), partition=partition)
        problem = _shape(now)
        if problem:
            raise Violated(problem, BadState(state=state_of(now)), partition=partition, epoch=now.leader_epoch)
        if now.elr and len(now.isr) >= min_isr and (before is None or now.elr != before.elr or now.isr != before.isr):
            beside = EligibleBesideFullIsr(min_isr=min_isr, state=state_of(now))
            raise Violated(Invariant.I7, beside, partition=partition, epoch=now.leader_epoch)
        for newcomer in _newcomers(before, now):
            broker = self.state.brokers.get(newcomer)
            if broker is None or broker.fenced:
                joined = FencedJoined(before=None if before is None else state_of(before), now=state_of(now))
                raise Violated(Invariant.I11, joined, partition=partition, node=newcomer, epoch=now.leader_epoch)
        if before is not None:
            self._hold_change(partition, before, now, min_isr)
        if self._is_unclean(before, now):
            self.unclean[partition] = now.leader_epoch
            if not now.recovering:
                self.unrecovered[partition] = now.leader_epoch

    def _hold_change(
        self, partition: TopicPartition, before: PartitionState, now: PartitionState, min_isr: int
    ) -> None:
        if len(now.isr) < min_isr and not set(before.replicas) <= set(now.replicas):
            removed = RemovedBelowMinIsr(min_isr=min_isr, before=state_of(before), now=state_of(now))
            raise Violated(Invariant.I21, removed, partition=partition, epoch=now.leader_epoch)
        if self._forgets_recovery(before, now):
            forgotten = RecoveryForgotten(before=state_of(before), now=state_of(now))
            raise Violated(Invariant.I12, forgotten, partition=partition, epoch=now.leader_epoch)

    def _forgets_recovery(self, before: PartitionState, now: PartitionState) -> bool:
        """Return whether a recovery ended by anybody else than the leader that recovered (KIP-704)."""
        return before.recovering and not now.recovering and now.leader != before.leader

    def _is_unclean(self, before: PartitionState | None, now: PartitionState) -> bool:
        """Return whether the present leader was elected uncleanly: its recovery state is then RECOVERING (KIP-704)."""
        return now.recovering


def _newcomers(before: PartitionState | None, now: PartitionState) -> list[int]:
    return [] if before is None else [node for node in now.isr if node not in before.isr]


def _shape(now: PartitionState) -> Invariant | None:
    """Return the invariant that a committed partition state breaks by itself."""
    if not set(now.isr) <= set(now.replicas) or set(now.isr) & set(now.elr):
        return Invariant.I7
    if now.leader >= 0 and now.leader not in now.isr:
        return Invariant.I10
    if now.recovering and len(now.isr) > 1:
        return Invariant.I12
    return None
