"""A cluster's state with all that does not decide left away: no ids, no offsets, no epochs, no times.

Two moments have the same abstract state when the same may go wrong next. Nodes are alike: a shape lists what replicas or voters are, in an
order of its own, never which node it is, so that renaming equal nodes changes nothing. What is compared is compared by order alone: a log
holds what is committed or ends short of it, a voter has the metadata that are committed or lags.

Partitions, quorum and coordinators have a shape each; `reached.py` says which of them a run came to, and at which events.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from replog.broker.isr import LeaderState
from replog.coordinators.group_coordinator import GroupCoordinator
from replog.coordinators.transaction_coordinator import TransactionCoordinator
from replog.node.broker import Broker
from replog.node.controller import ControllerNode
from replog.node.zookeeper.broker import ZooKeeperBroker
from replog.quorum.roles import Candidate, Follower, Leader, Prospective, ResignedLeader, Unattached
from replog.types import TopicPartition
from tribunal.clusters.api import PartitionState
from tribunal.clusters.simulated.committed import METADATA, CommittedMetadata
from tribunal.clusters.simulated.node import SimulatedNode
from tribunal.clusters.simulated.watch import Watch


class ReplicaRole(StrEnum):
    """What the committed state says of a replica."""

    LEADER = "L"
    IN_ISR = "I"
    IN_ELR = "E"
    OUTSIDE = "O"


class Service(StrEnum):
    """Whether a node runs, and whether the controllers let a broker serve."""

    SERVES = ""
    FENCED = "fenced"
    DOWN = "down"


class LogEnd(StrEnum):
    """Where a log ends, against what is committed and against the leader's log."""

    SHORT = "<"  # of what a leader has shown as committed
    HOLDS = "="
    BEYOND = ">"  # longer than the leader's own


class Room(StrEnum):
    """The size of an ISR against the effective min ISR."""

    BELOW = "isr<min"
    AT = "isr=min"
    ABOVE = "isr>min"


class Leading(StrEnum):
    """What a replica that takes itself for the leader is about: a proposal that was not answered, or what it does not know yet."""

    IDLE = "leads"
    BEHIND = "leads-behind"  # its metadata show another ISR, or another min ISR, than is committed
    DEPOSED = "deposed"
    SHRINKS = "shrinks"
    GROWS = "grows"
    REPLACES = "replaces"
    RECOVERS = "recovers"


class PartitionShape(msgspec.Struct, frozen=True, kw_only=True):
    """A partition; replicas and leaders in order of their words."""

    replicas: tuple[str, ...]
    room: Room
    recovering: bool
    leading: tuple[Leading, ...]

    def __str__(self) -> str:
        words = ["partition", " ".join(self.replicas), self.room]
        words += ["recovering"] if self.recovering else []
        return " ".join([*words, *self.leading])


class QuorumShape(msgspec.Struct, frozen=True, kw_only=True):
    """The controllers: what each is by its own knowledge, in order of these words."""

    members: tuple[str, ...]

    def __str__(self) -> str:
        return f"quorum {' '.join(self.members)}"


class CoordinatorsShape(msgspec.Struct, frozen=True, kw_only=True):
    """Which states there are among all transactions and groups, each once; `=>` leads to what is being written."""

    transactions: tuple[str, ...]
    groups: tuple[str, ...]
    loading: bool

    def __str__(self) -> str:
        words = [*self.transactions, *self.groups, *(["loading"] if self.loading else [])]
        return f"coordinators {' '.join(words)}" if words else "coordinators none"


ROLES: Final[Mapping[type, str]] = {
    Unattached: "unattached",
    Follower: "follower",
    Prospective: "prospective",
    Candidate: "candidate",
    Leader: "leader",
    ResignedLeader: "resigned",
}


class PartitionSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A partition as it was found: the committed state, and by node where its log ends and whether it serves.

    leading:  what those say who take themselves for the leader.
    """

    state: PartitionState
    committed_end: int
    min_isr: int
    ends: Mapping[int, int]
    services: Mapping[int, Service]
    leading: tuple[Leading, ...] = ()

    def shape(self) -> PartitionShape:
        """Leave away which node is which, and every number."""
        size = len(self.state.isr)
        return PartitionShape(
            replicas=tuple(sorted(self._words(node) for node in self.state.replicas)),
            room=Room.BELOW if size < self.min_isr else Room.AT if size == self.min_isr else Room.ABOVE,
            recovering=self.state.recovering,
            leading=tuple(sorted(self.leading)),
        )

    def _words(self, node: int) -> str:
        state, end = self.state, self.ends[node]
        role = ReplicaRole.OUTSIDE
        if node == state.leader:
            role = ReplicaRole.LEADER
        elif node in state.isr:
            role = ReplicaRole.IN_ISR
        elif node in state.elr:
            role = ReplicaRole.IN_ELR
        log_end = LogEnd.HOLDS if end >= self.committed_end else LogEnd.SHORT
        if state.leader in self.ends and end > self.ends[state.leader]:
            log_end = LogEnd.BEYOND
        return f"{role}{log_end}{self.services[node]}"


def partition_seen(
    partition: TopicPartition,
    state: PartitionState,
    *,
    committed: CommittedMetadata,
    watch: Watch,
    nodes: Mapping[int, SimulatedNode],
) -> PartitionSeen:
    """Look at one partition."""
    logs = {node: watch.replicas[node].logs.get(partition) for node in state.replicas}
    min_isr = committed.effective_min_isr(partition, state)
    leaderships = [_leadership(nodes[node], partition) for node in state.replicas]
    return PartitionSeen(
        state=state,
        committed_end=watch.committed_end(partition),
        min_isr=min_isr,
        ends={node: 0 if log is None else log.end_offset for node, log in logs.items()},
        services={node: _service(node, committed, nodes) for node in state.replicas},
        leading=tuple(_leading(one, state, min_isr) for one in leaderships if one is not None),
    )


def _service(node: int, committed: CommittedMetadata, nodes: Mapping[int, SimulatedNode]) -> Service:
    if not nodes[node].machine.running:
        return Service.DOWN
    broker = committed.state.brokers.get(node)
    return Service.FENCED if broker is None or broker.fenced else Service.SERVES


def _leadership(node: SimulatedNode, partition: TopicPartition) -> LeaderState | None:
    shell = node.shell
    if not node.machine.running or not isinstance(shell, Broker | ZooKeeperBroker):
        return None
    replica = shell.plane.replicas.find(partition)
    return None if replica is None else replica.partition.leadership


def _leading(leadership: LeaderState, committed: PartitionState, min_isr: int) -> Leading:
    proposal, state = leadership.pending, leadership.state
    if proposal is None:
        if state.leader_epoch < committed.leader_epoch:
            return Leading.DEPOSED
        is_behind = state.partition_epoch < committed.partition_epoch or leadership.min_isr != min_isr
        return Leading.BEHIND if is_behind else Leading.IDLE
    wanted, own = {node for node, _ in proposal.isr}, set(state.isr)
    if proposal.recovery is not state.recovery:
        return Leading.RECOVERS
    if wanted < own:
        return Leading.SHRINKS
    return Leading.GROWS if wanted > own else Leading.REPLACES


def quorum_shape(controllers: Iterable[SimulatedNode], watch: Watch, committed_end: int) -> QuorumShape:
    """Return the shape of the quorum; of an ensemble of ZooKeeper, only which servers run."""
    known = list(controllers)
    shells = [node.shell for node in known if node.machine.running]
    quorums = [shell.quorum for shell in shells if isinstance(shell, ControllerNode) and shell.quorum is not None]
    newest = max((quorum.leader[1] for quorum in quorums), default=0)
    words = []
    for node in known:
        shell = node.shell
        if not node.machine.running:
            words.append("down")
        elif not isinstance(shell, ControllerNode) or shell.quorum is None:
            words.append("up")
        else:
            log = watch.replicas[node.node].logs.get(METADATA)
            lags = "<" if log is None or log.end_offset < committed_end else ""
            former = "" if shell.quorum.leader[1] == newest else "-"
            words.append(f"{former}{ROLES[type(shell.quorum.role)]}{'*' if shell.quorum.has_voted else ''}{lags}")
    return QuorumShape(members=tuple(sorted(words)))


def coordinators_shape(nodes: Iterable[SimulatedNode]) -> CoordinatorsShape:
    """Return which states transactions and groups are in, on all brokers."""
    transactions: dict[str, None] = {}
    groups: dict[str, None] = {}
    loading = False
    for node in nodes:
        shell = node.shell
        if not node.machine.running or not isinstance(shell, Broker | ZooKeeperBroker):
            continue
        service = shell.plane.coordinators
        for of_transactions in service.transactions.partitions.by_partition.values():
            loading |= not (of_transactions.is_loaded or of_transactions.is_offline)
            transactions |= dict.fromkeys(_states_of_transactions(of_transactions.core.core))
        for of_groups in service.groups.partitions.by_partition.values():
            loading |= not (of_groups.is_loaded or of_groups.is_offline)
            groups |= dict.fromkeys(_states_of_groups(of_groups.core.core))
    return CoordinatorsShape(transactions=tuple(sorted(transactions)), groups=tuple(sorted(groups)), loading=loading)


def _states_of_transactions(core: TransactionCoordinator) -> Iterable[str]:
    for slot in core.slots.values():
        known = "New" if slot.known is None else slot.known.state.words
        yield known if slot.next is None else f"{known}=>{slot.next.state.words}"


def _states_of_groups(core: GroupCoordinator) -> Iterable[str]:
    yield from (group.state.value for group in core.groups.values())
    yield from (f"Consumer{group.state.value}" for group in core.consumer.groups.values())
