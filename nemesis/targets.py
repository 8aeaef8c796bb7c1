"""Which node a fault is aimed at: an expression over the cluster's state, resolved at the moment of injection.

    leader(p0)  follower(p1)  isr_member(p2)    of a partition of the run's topic; p* for one drawn by the plan
    last_isr_member(p0)  elr_member(p0)         the ISR's only member, a member of the ELR; outsider(p0): in neither
    random broker, random controller            drawn by the plan
    active controller                           the leader of the metadata quorum
    standby controller                          one that might lead it and does not; any of them while nobody does
    broker 2, controller 101                    by id
    sender(vote answer)                         who has sent the last message of this kind, receiver(...): whom it was for; clients are no targets
    random node, node 2                         of a described system, which has neither brokers nor controllers
    leader, not leader                          of a described system, a role that its file names: who said last that it has it, or has it not

Where several nodes fit, the plan's drawn fraction decides, so that a seed chooses alike whatever the ids are. A node
whose process is gone (another fault has it) fits nothing: it can't be the target of another.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from tribunal.clusters.api import ClusterError, ClusterSpec, FaultTarget, PartitionState, TopicPartition
from tribunal.nemesis.messages import COUNTED, NAMED, direction_of

ROLES: Final = ("leader", "follower", "isr_member", "last_isr_member", "elr_member", "outsider")
FORMS: Final = (
    "leader(pN), follower(pN), isr_member(pN), last_isr_member(pN), elr_member(pN), outsider(pN), p* for any partition, "
    "random broker, random controller, active controller, standby controller, broker N, controller N, sender(alter-partition answer), receiver(vote request)"
)
STANDBY: Final = "standby controller"
OF_PARTITION: Final = re.compile(r"(\w+)\(p(\d+|\*)\)")
OF_MESSAGE: Final = re.compile(rf"(sender|receiver)\({NAMED}\)")
BY_ID: Final = re.compile(r"(broker|controller|node)\s+(\d+)")
FORMS_OF_SYSTEMS: Final = "random node, node N"
NOT: Final = "not "


class BadTarget(ValueError):
    """The expression names nobody; the message says what is possible."""


class NoTarget(ClusterError):
    """Nobody fits at the moment."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed expression with the chance that the plan drew for it.

    partition:  number of the partition meant, None where the expression names none.
    pick:       fraction in [0, 1) that chooses among several fitting nodes.
    """

    text: str
    partition: int | None
    pick: float


def parse(text: str, spec: ClusterSpec, partition_count: int) -> str:
    """Return the expression with single spaces; `BadTarget` when it names nobody in such a cluster."""
    words = " ".join(str(text).split())
    if spec.has_objects:
        return _of_system(words, spec)
    if words in ("random broker", "random controller", "active controller", STANDBY):
        return words
    if (match := OF_PARTITION.fullmatch(words)) and match[1] in ROLES:
        if match[2] != "*" and int(match[2]) >= partition_count:
            raise BadTarget(f"target {words!r}: the topic has partitions p0 to p{partition_count - 1}")
        return words
    if match := OF_MESSAGE.fullmatch(words):
        if match[2] not in COUNTED:
            apis = ", ".join(COUNTED)
            raise BadTarget(f"target {words!r}: {match[2]} is no API of which messages are counted; these are: {apis}")
        return words
    if (match := BY_ID.fullmatch(words)) and match[1] != "node":
        known = spec.broker_ids if match[1] == "broker" else spec.controller_ids
        if int(match[2]) not in known:
            raise BadTarget(f"target {words!r}: {match[1]}s of this cluster are {', '.join(map(str, known))}")
        return words
    raise BadTarget(f"target {words!r} is none of: {FORMS}")


def _of_system(words: str, spec: ClusterSpec) -> str:
    match = BY_ID.fullmatch(words)
    if match is not None and match[1] == "node":
        if int(match[2]) not in spec.broker_ids:
            raise BadTarget(f"target {words!r}: nodes of this system are {', '.join(map(str, spec.broker_ids))}")
        return words
    if words != "random node" and words.removeprefix(NOT) not in spec.roles:
        forms = ", ".join((FORMS_OF_SYSTEMS, *spec.roles, *(f"{NOT}{role}" for role in spec.roles)))
        hint = "" if spec.roles else " (others are what its file calls [nodes.roles])"
        raise BadTarget(f"target {words!r} is none of: {forms}{hint}")
    return words


def draw(text: str, partition_count: int, fraction: float, pick: float) -> Target:
    """Make a target of a parsed expression and two drawn fractions."""
    match = OF_PARTITION.fullmatch(text)
    if match is None:
        return Target(text=text, partition=None, pick=pick)
    partition = int(fraction * partition_count) if match[2] == "*" else int(match[2])
    return Target(text=text, partition=partition, pick=pick)


def resolve(target: Target, cluster: FaultTarget, topic: str) -> int:
    """Return the node meant now; `ClusterError` when there is none at the moment."""
    fitting = [node for node in _fitting(target, cluster, topic) if cluster.alive(node)]
    if not fitting:
        raise NoTarget(f"target {target.text!r} fits no node that runs")
    return fitting[int(target.pick * len(fitting))]


def _fitting(target: Target, cluster: FaultTarget, topic: str) -> Sequence[int]:
    spec = cluster.spec
    if match := BY_ID.fullmatch(target.text):
        return [int(match[2])]
    if target.text in ("random broker", "random node"):
        return spec.broker_ids
    if (role := target.text.removeprefix(NOT)) in spec.roles:
        having = cluster.state.roles.get(role)
        if having is None:  # nobody was asked yet
            return []
        return [node for node in spec.broker_ids if (node in having) is not target.text.startswith(NOT)]
    if target.text == "random controller":
        return spec.controller_ids
    if target.text == "active controller":
        return [cluster.state.quorum_leader] if cluster.state.quorum_leader in spec.node_ids else []
    if target.text == STANDBY:
        return standby_controllers(cluster)
    if match := OF_MESSAGE.fullmatch(target.text):
        ends = cluster.last_message(COUNTED[match[2]], direction_of(match[3]))
        return [node for node in ends[match[1] == "receiver" :][:1] if node in spec.node_ids]
    assert target.partition is not None
    partition = cluster.state.partitions.get(TopicPartition(topic, target.partition))
    if partition is None:
        return []
    return _of_partition(target.text.partition("(")[0], partition)


def standby_controllers(cluster: FaultTarget) -> list[int]:
    """Return who may become the active controller and is not, all of them while there is none; in ZooKeeper mode these are brokers."""
    spec = cluster.spec
    able = spec.broker_ids if spec.is_zookeeper_mode else spec.controller_ids
    return [node for node in able if node != cluster.state.quorum_leader]


def _of_partition(role: str, partition: PartitionState) -> Sequence[int]:
    members = sorted(partition.isr)
    match role:
        case "leader":
            return [partition.leader] if partition.leader >= 0 else []
        case "isr_member":
            return members
        case "last_isr_member":
            return members if len(members) == 1 else []
        case "elr_member":
            return sorted(partition.elr)
        case "outsider":
            inside = (*partition.isr, *partition.elr)
            return sorted(node for node in partition.replicas if node not in inside)
        case _:
            return [node for node in members if node != partition.leader]
