"""The one function through which every partition changes: reassignment, ELR, election, epochs.

All of SPEC 2.5 and 2.6, pure: a partition, a wish and the rules in force go in, the fields of a
PartitionChangeRecord come out, or None when nothing is to be written. Whoever wants a partition to
change (fencing, registration, AlterPartition, reassignment, ElectLeaders) only states the wish.
"""

from collections.abc import Callable, Collection
from enum import Enum
from typing import NamedTuple, TypedDict
from uuid import UUID

import msgspec

from replog.controller.elr import NOBODY, Eligible, LastKnownMode, effective_min_isr, eligible
from replog.metadata.records import PartitionChangeRecord
from replog.metadata.state import UNASSIGNED, Nodes, Partition
from replog.types import NO_NODE, LeaderRecoveryState, NodeId, TopicIdPartition


class _Fields(TypedDict, total=False):
    """Fields of the change record in the making: only what changes."""

    isr: list[int]
    leader: int
    replicas: list[int]
    removing_replicas: list[int]
    adding_replicas: list[int]
    leader_recovery_state: int
    directories: list[UUID]
    eligible_leader_replicas: list[int]
    last_known_elr: list[int]


class Election(Enum):
    """Which leader is wanted (SPEC 2.6)."""

    ONLINE = "online"  # whoever holds all acknowledged records, the current one first
    PREFERRED = "preferred"  # the same, the first replica first
    UNCLEAN = "unclean"  # if nobody holds them: whoever is there
    DESIGNATED = "designated"  # this one (KIP-966: operator's choice, or recovery's winner)


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What should become of a partition; None keeps."""

    target_isr: Nodes | None = None
    target_replicas: Nodes | None = None
    adding_replicas: Nodes | None = None
    removing_replicas: Nodes | None = None
    leader_recovery_state: LeaderRecoveryState | None = None
    unclean_shutdown: tuple[NodeId, ...] = ()  # may be neither in ELR nor lead
    election: Election = Election.ONLINE
    designated_leader: NodeId = NO_NODE
    new_leader_epoch: bool = False  # also for a leader that stays: it must learn of what is written before


def unassigned(_: NodeId) -> UUID:
    """Return that nobody knows where a new replica will lie."""
    return UNASSIGNED


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for the partition's topic while it changes."""

    min_insync_replicas: int  # as configured, before the cap by the replication factor
    elr_enabled: bool
    last_known_mode: LastKnownMode
    default_directory: Callable[[NodeId], UUID] = unassigned  # where a new replica of a broker will lie (KIP-858)


class _Target(NamedTuple):
    """Where a partition is heading, reassignment completed where possible."""

    isr: Nodes
    replicas: Nodes
    adding: Nodes
    removing: Nodes


class _Elected(NamedTuple):
    leader: NodeId
    unclean: bool


def partition_change(
    key: TopicIdPartition,
    partition: Partition,
    wish: Wish,
    rules: Rules,
    acceptable: Callable[[NodeId], bool],
) -> PartitionChangeRecord | None:
    """Return the record that fulfils the wish, or None when nothing changes.

    acceptable: registered, unfenced, not shutting down, log directory online.
    source:     SPEC 2.5; the order of steps is that of KIP-966 and the released software (D4-D7, D12, D13).
    """
    target = _completed(_wished(partition, wish), rules)
    lists = _eligible(partition, target, wish, rules)
    fit = _acceptable(acceptable, wish.unclean_shutdown)
    elected = _elect(partition, target, lists, wish, rules, fit)
    isr = target.isr
    if elected.unclean:
        # The new leader's log is the truth now, whatever others hold (SPEC 2.5.4).
        isr, lists = (elected.leader,), NOBODY
    elif elected.leader in lists.elr:
        isr = (elected.leader,)
        lists = Eligible(_without(lists.elr, isr), lists.last_known_elr)
        if len(isr) >= effective_min_isr(rules.min_insync_replicas, len(target.replicas)):
            # min ISR was lowered while the ISR was empty: this ISR suffices, the high watermark will move, and
            # who stays behind may lack what is acknowledged from now on. KIP-966: "If ELR is not empty, the ISR
            # is under min ISR." (The released software keeps them.)
            lists = NOBODY

    fields: _Fields = {}
    _write_leader(fields, partition, target, wish, elected)
    _write_isr(fields, partition, isr, rules)
    _write_recovery(fields, partition, wish, elected)
    _write_assignment(fields, partition, target, rules)
    _write_lists(fields, partition, lists, rules)
    if not fields:
        return None  # a change that changes nothing is not written (SPEC 2.1.5)
    return PartitionChangeRecord(partition_id=key.partition, topic_id=key.topic_id, **fields)


def _wished(partition: Partition, wish: Wish) -> _Target:
    return _Target(
        isr=_or(wish.target_isr, partition.isr),
        replicas=_or(wish.target_replicas, partition.replicas),
        adding=_or(wish.adding_replicas, partition.adding_replicas),
        removing=_or(wish.removing_replicas, partition.removing_replicas),
    )


def _completed(target: _Target, rules: Rules) -> _Target:
    """Return the target with its reassignment done, if the ISR allows that now (SPEC 2.5.1)."""
    if not target.adding and not target.removing:
        return target
    isr = _without(target.isr, target.removing)
    replicas = _without(target.replicas, target.removing)
    if not isr or not replicas or not set(target.adding) <= set(isr):
        return target
    # KAFKA-15665 as in 4.3: a shrinking factor must not leave fewer copies than replicas.
    if len(target.adding) < len(target.removing) and not set(replicas) <= set(isr):
        return target
    # KIP-966: "the reassignment can only be completed if the ISR size is larger or equal to min ISR".
    if len(isr) < effective_min_isr(rules.min_insync_replicas, len(replicas)):
        return target
    return _Target(isr=isr, replicas=replicas, adding=(), removing=())


def _eligible(partition: Partition, target: _Target, wish: Wish, rules: Rules) -> Eligible:
    if not rules.elr_enabled:
        return NOBODY
    return eligible(
        partition,
        target_isr=target.isr,
        target_replicas=target.replicas,
        min_isr=effective_min_isr(rules.min_insync_replicas, len(target.replicas)),
        unclean_shutdown=wish.unclean_shutdown,
    )


def _acceptable(acceptable: Callable[[NodeId], bool], unclean: Collection[NodeId]) -> Callable[[NodeId], bool]:
    return lambda node: node not in unclean and acceptable(node)


def _elect(
    partition: Partition,
    target: _Target,
    lists: Eligible,
    wish: Wish,
    rules: Rules,
    acceptable: Callable[[NodeId], bool],
) -> _Elected:
    """Choose the leader (SPEC 2.6.1, 2.6.2)."""

    def valid(node: NodeId) -> bool:
        return (
            node in target.replicas
            and acceptable(node)
            and (node in target.isr or (not target.isr and node in lists.elr))
        )

    if wish.election is Election.DESIGNATED and acceptable(wish.designated_leader):
        return _Elected(wish.designated_leader, unclean=not valid(wish.designated_leader))
    first = target.replicas[:1] if wish.election is Election.PREFERRED else ()
    for node in (*first, partition.leader, *target.replicas):
        if valid(node):
            return _Elected(node, unclean=False)
    last_known = _last_known_leader(partition, target, lists, rules)
    if last_known != NO_NODE and acceptable(last_known):
        return _Elected(last_known, unclean=True)
    if wish.election is Election.UNCLEAN:
        for node in target.replicas:
            if acceptable(node):
                return _Elected(node, unclean=True)
    return _Elected(NO_NODE, unclean=False)


def _last_known_leader(partition: Partition, target: _Target, lists: Eligible, rules: Rules) -> NodeId:
    """Return whom to take back when all who were eligible are gone, -1 when there is no such one.

    D12, SPEC 2.6.4. With ELR turned off while the ISR was empty the last leader remains the only
    one that a partition can wait for (SPEC 2.13.2).
    """
    if rules.last_known_mode is not LastKnownMode.LEADER or target.isr or lists.elr:
        return NO_NODE
    recorded = partition.last_known_elr
    return recorded[0] if len(recorded) == 1 and recorded[0] in target.replicas else NO_NODE


def _write_leader(fields: _Fields, partition: Partition, target: _Target, wish: Wish, elected: _Elected) -> None:
    # Naming a leader raises the leader epoch. Also when a replica leaves for good, so that the old
    # leader epoch cannot count it any more; not when the ISR shrinks (KAFKA-15021). Also when min ISR rises (decision 0010).
    replica_leaves = any(node not in target.replicas for node in partition.replicas)
    renewed = wish.new_leader_epoch and elected.leader != NO_NODE
    if elected.leader != partition.leader or replica_leaves or elected.unclean or renewed:
        fields["leader"] = elected.leader


def _write_isr(fields: _Fields, partition: Partition, isr: Nodes, rules: Rules) -> None:
    # Without ELR the last member stays in the ISR: it is all that remembers who may lead.
    # The order counts, as in the released software: a proposal in another order is another state.
    if isr != partition.isr and (isr or rules.elr_enabled):
        fields["isr"] = list(isr)


def _write_recovery(fields: _Fields, partition: Partition, wish: Wish, elected: _Elected) -> None:
    state = partition.leader_recovery_state if wish.leader_recovery_state is None else wish.leader_recovery_state
    if elected.unclean:
        state = LeaderRecoveryState.RECOVERING
    if state != partition.leader_recovery_state:
        fields["leader_recovery_state"] = int(state)


def _write_assignment(fields: _Fields, partition: Partition, target: _Target, rules: Rules) -> None:
    if target.replicas != partition.replicas:
        fields["replicas"] = list(target.replicas)
        known = {node: partition.directory_of(node) for node in partition.replicas}
        directories = [known[node] if node in known else rules.default_directory(node) for node in target.replicas]
        if partition.directories or any(directory != UNASSIGNED for directory in directories):
            fields["directories"] = directories
    if target.adding != partition.adding_replicas:
        fields["adding_replicas"] = list(target.adding)
    if target.removing != partition.removing_replicas:
        fields["removing_replicas"] = list(target.removing)


def _write_lists(fields: _Fields, partition: Partition, lists: Eligible, rules: Rules) -> None:
    if not rules.elr_enabled and not fields:
        return  # a downgrade removes the lists with the next change, it is none itself (SPEC 2.13.2)
    if set(lists.elr) != set(partition.elr):
        fields["eligible_leader_replicas"] = list(lists.elr)
    last_known = lists.last_known_elr
    if rules.last_known_mode is LastKnownMode.LEADER:
        last_known = _last_leader(fields, partition, rules)
    if set(last_known) != set(partition.last_known_elr):
        fields["last_known_elr"] = list(last_known)


def _last_leader(fields: _Fields, partition: Partition, rules: Rules) -> Nodes:
    """Return the last known leader after the change (SPEC 2.5.7, D7)."""
    leader = fields.get("leader", partition.leader)
    if leader != NO_NODE:
        return ()
    if not rules.elr_enabled:
        return partition.last_known_elr if not partition.isr else ()
    if not partition.last_known_elr and partition.leader != NO_NODE:
        return (partition.leader,)
    return partition.last_known_elr


def _or(nodes: Nodes | None, otherwise: Nodes) -> Nodes:
    return otherwise if nodes is None else nodes


def _without(nodes: Nodes, leaving: Nodes) -> Nodes:
    return tuple(node for node in nodes if node not in leaving)
