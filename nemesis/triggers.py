"""What a fault waits for instead of a time: a state that is committed, or a message that is sent. Conditions are joined with `and`.

    isr(p0) = {leader}               elr(p0) = {2, 3}         who is in there, all of them; `leader` is whoever leads
    |isr(p0)| < 2                    |elr(p*)| >= 1           how many; = < <= > >=
    leader(p0) = 2                   leader(p0) = none
    recovering(p0)                   an unclean election is not dealt with yet (KIP-704)
    alter-partition request x3       the third that is sent since the fault waits; without x: the next
    add-partitions-to-txn answer     so waits who wants a transaction to be open

p* is the partition that the plan draws for the fault's target. What flows all the time (fetch, produce, metadata) is nothing to wait for.
In the simulator a fault strikes within the event in which its trigger is met, or a callback later: a message that it waited for is then on its
way and not received yet. On real nodes the harness looks every few milliseconds, at metadata that it has fetched.
"""

import re
from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from tribunal.clusters.api import ClusterSpec, ClusterState, PartitionState, TopicPartition
from tribunal.nemesis.messages import COUNTED, NAMED, direction_of

NUMBERED: Final = r"\(p(\d+|\*)\)"
MEMBERS: Final = re.compile(rf"(isr|elr){NUMBERED} ?= ?\{{(.*)\}}")
SIZE: Final = re.compile(rf"\|(isr|elr){NUMBERED}\| ?(=|<=|<|>=|>) ?(\d+)")
LEADER: Final = re.compile(rf"leader{NUMBERED} ?= ?(\d+|none)")
RECOVERING: Final = re.compile(rf"recovering{NUMBERED}")
MESSAGE: Final = re.compile(rf"{NAMED}(?: x(\d+))?")
ELR: Final = "eligible.leader.replicas.enable"
NOBODY: Final = PartitionState(leader=-1, leader_epoch=0, partition_epoch=0, replicas=(), isr=())
RELATIONS: Final[Mapping[str, Callable[[int, int], bool]]] = {"=": eq, "<": lt, "<=": le, ">": gt, ">=": ge}
COUNT_MAX: Final = 10_000
FORMS: Final = (
    "isr(pN) = {leader, 2}, elr(pN) = {}, |isr(pN)| < 2, |elr(pN)| >= 1, leader(pN) = 2, leader(pN) = none, recovering(pN), "
    "alter-partition request, alter-partition answer x3; several with `and`"
)

Lists = Literal["isr", "elr"]
Relation = Literal["=", "<", "<=", ">", ">="]
Member: TypeAlias = int | Literal["leader"]


class BadTrigger(ValueError):
    """The expression can never come true, or says nothing; the message says what is possible."""


class Seen(Protocol):
    """What a trigger looks at: of every cluster."""

    @property
    def state(self) -> ClusterState:
        """The committed metadata, as far as known."""

    def message_count(self, api: int, direction: Literal["request", "response"]) -> int:
        """How many messages of this API were sent until now, of those that do not flow all the time."""


class Members(msgspec.Struct, frozen=True, kw_only=True, tag="members"):
    """A list of replicas has exactly these."""

    of: Lists
    partition: int | None
    members: tuple[Member, ...]

    def holds(self, state: PartitionState) -> bool:
        """Return whether it does."""
        wanted = {state.leader if one == "leader" else one for one in self.members}
        return set(state.isr if self.of == "isr" else state.elr) == wanted


class Size(msgspec.Struct, frozen=True, kw_only=True, tag="size"):
    """A list of replicas has so many."""

    of: Lists
    partition: int | None
    relation: Relation
    number: int

    def holds(self, state: PartitionState) -> bool:
        """Return whether it has."""
        return RELATIONS[self.relation](len(state.isr if self.of == "isr" else state.elr), self.number)


class Leads(msgspec.Struct, frozen=True, kw_only=True, tag="leads"):
    """A node leads; None: nobody does."""

    partition: int | None
    node: int | None

    def holds(self, state: PartitionState) -> bool:
        """Return whether it does."""
        return state.leader == (-1 if self.node is None else self.node)


class Recovering(msgspec.Struct, frozen=True, kw_only=True, tag="recovering"):
    """The partition was elected uncleanly and has not recovered."""

    partition: int | None

    def holds(self, state: PartitionState) -> bool:
        """Return whether that is so."""
        return state.recovering


class Sent(msgspec.Struct, frozen=True, kw_only=True, tag="sent"):
    """So many messages of an API were sent since somebody waits."""

    api: str
    direction: Literal["request", "response"]
    count: int


OfPartition = Members | Size | Leads | Recovering
Condition = OfPartition | Sent


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """All of its conditions at once."""

    text: str
    conditions: tuple[Condition, ...]

    def bound(self, partition: int) -> "Trigger":
        """Return it with a number for p*."""
        conditions = tuple(
            msgspec.structs.replace(one, partition=partition)
            if not isinstance(one, Sent) and one.partition is None
            else one
            for one in self.conditions
        )
        return Trigger(text=self.text.replace("(p*)", f"(p{partition})"), conditions=conditions)


class Waiting:
    """Somebody waits for a trigger from now on."""

    def __init__(self, trigger: Trigger, cluster: Seen, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._of_partitions = [one for one in trigger.conditions if not isinstance(one, Sent)]
        sent = [one for one in trigger.conditions if isinstance(one, Sent)]
        self._due = [(one, self._sent(one) + one.count) for one in sent]

    @property
    def is_met(self) -> bool:
        """Whether all conditions hold now."""
        return all(self._sent(one) >= due for one, due in self._due) and all(map(self._holds, self._of_partitions))

    def _holds(self, condition: OfPartition) -> bool:
        assert condition.partition is not None, "a plan binds p*"
        state = self._cluster.state.partitions.get(TopicPartition(self._topic, condition.partition))
        return state is not None and condition.holds(state)

    def _sent(self, condition: Sent) -> int:
        return self._cluster.message_count(COUNTED[condition.api], condition.direction)


def never_met(trigger: Trigger, spec: ClusterSpec) -> str:
    """Say which condition no cluster of this spec can come to meet, and why; empty: all of them can come true.

    spec:  of a scenario. A drawn cluster, or one of a smaller plan, may have fewer replicas, and then waits in vain.
    """
    if spec.has_objects:
        return f"trigger {trigger.text!r}: {spec.system} has no partitions, and nobody sees its messages: leave it out"
    has_elr = spec.node_settings().get(ELR, True)
    for one in trigger.conditions:
        if isinstance(one, Members | Size) and one.of == "elr" and not has_elr and not one.holds(NOBODY):
            return f"trigger {trigger.text!r}: no ELR here, it stays empty: {ELR} is off, or this mode or release has none; wait for the ISR"
        if isinstance(one, Members) and one.of == "elr" and "leader" in one.members:
            return f"trigger {trigger.text!r}: who leads is in the ISR, never in the ELR: name other brokers"
        if isinstance(one, Members) and len(set(one.members)) > spec.replication_factor:
            return f"trigger {trigger.text!r}: partitions have {spec.replication_factor} replicas: name no more brokers"
    return ""


def parse_trigger(text: str, spec: ClusterSpec, partition_count: int) -> Trigger:
    """Return a trigger; `BadTrigger` when such a cluster never meets it."""
    words = " ".join(str(text).split())
    conditions = tuple(_condition(one.strip(), spec, partition_count) for one in words.split(" and "))
    return Trigger(text=words, conditions=conditions)


def _condition(text: str, spec: ClusterSpec, partition_count: int) -> Condition:
    if match := MEMBERS.fullmatch(text):
        members = tuple(_member(one.strip(), spec, text) for one in match[3].split(",") if one.strip())
        return Members(of=_list(match[1]), partition=_partition(match[2], partition_count, text), members=members)
    if match := SIZE.fullmatch(text):
        number = int(match[4])
        if not any(RELATIONS[match[3]](size, number) for size in range(spec.replication_factor + 1)):
            raise BadTrigger(f"trigger {text!r}: partitions have {spec.replication_factor} replicas")
        return Size(
            of=_list(match[1]),
            partition=_partition(match[2], partition_count, text),
            relation=msgspec.convert(match[3], Relation),
            number=number,
        )
    if match := LEADER.fullmatch(text):
        node = None if match[2] == "none" else _broker(match[2], spec, text)
        return Leads(partition=_partition(match[1], partition_count, text), node=node)
    if match := RECOVERING.fullmatch(text):
        return Recovering(partition=_partition(match[1], partition_count, text))
    if match := MESSAGE.fullmatch(text):
        return _sent(match, text)
    raise BadTrigger(f"trigger {text!r} is none of: {FORMS}")


def _list(text: str) -> Lists:
    return "isr" if text == "isr" else "elr"


def _member(text: str, spec: ClusterSpec, where: str) -> Member:
    return "leader" if text == "leader" else _broker(text, spec, where)


def _broker(text: str, spec: ClusterSpec, where: str) -> int:
    if not text.isdecimal() or int(text) not in spec.broker_ids:
        raise BadTrigger(f"trigger {where!r}: {text} is no broker; they are {', '.join(map(str, spec.broker_ids))}")
    return int(text)


def _partition(text: str, partition_count: int, where: str) -> int | None:
    if text == "*":
        return None
    if int(text) >= partition_count:
        raise BadTrigger(f"trigger {where!r}: the topic has partitions p0 to p{partition_count - 1}")
    return int(text)


def _sent(match: re.Match[str], text: str) -> Sent:
    api, count = match[1], int(match[3] or 1)
    if api not in COUNTED:
        raise BadTrigger(f"trigger {text!r}: {api} is no API to wait for; these are: {', '.join(COUNTED)}")
    if not 1 <= count <= COUNT_MAX:
        raise BadTrigger(f"trigger {text!r}: x1 to x{COUNT_MAX}")
    return Sent(api=api, direction=direction_of(match[2]), count=count)
