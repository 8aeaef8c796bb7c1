"""Who shall have which partitions: the assignors that the server offers (KIP-848, "Server-side assignors").

`uniform` gives every member as many partitions as any other and moves as few as it can; `range` gives every member a
run of neighbouring partitions of each topic, the same run in topics of the same size, so that they can be joined.
"""

from collections.abc import Callable, Mapping
from heapq import heappush, heapreplace
from typing import Final
from uuid import UUID

import msgspec

from replog.coordinators.consumer_group import NOTHING, Partitions
from replog.types import TopicIdPartition


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What one member wants.

    before:  its part of the last target.
    order:   members stand in this order: static ones by their instance id, so that they keep their ranges.
    """

    topics: frozenset[UUID]
    before: Partitions = NOTHING
    order: str


Wishes = Mapping[str, Wish]  # by member id
Counts = Mapping[UUID, int]  # partitions of each topic
Target = dict[str, Partitions]
Assign = Callable[[Wishes, Counts], Target]


def range_assignment(wishes: Wishes, counts: Counts) -> Target:
    """Cut each topic into as many runs as it has subscribers; the first ones are longer by one."""
    shares: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in wishes}
    ordered = sorted(wishes, key=lambda member_id: (wishes[member_id].order, member_id))
    for topic_id, count in sorted(counts.items()):
        subscribers = [member_id for member_id in ordered if topic_id in wishes[member_id].topics]
        begin = 0
        for index, member_id in enumerate(subscribers):
            length = count // len(subscribers) + (index < count % len(subscribers))
            shares[member_id] += [TopicIdPartition(topic_id, begin + step) for step in range(length)]
            begin += length
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def uniform_assignment(wishes: Wishes, counts: Counts) -> Target:
    """Spread partitions evenly; keep what can be kept."""
    if len({wish.topics for wish in wishes.values()}) <= 1:
        return _even(wishes, counts)
    return _balanced(wishes, counts)


def _even(wishes: Wishes, counts: Counts) -> Target:
    """All want the same: everyone gets the quota, the remainder goes to those who had more before."""
    wanted = frozenset[UUID]().union(*(wish.topics for wish in wishes.values()))
    partitions = [TopicIdPartition(topic, i) for topic in sorted(wanted) for i in range(counts.get(topic, 0))]
    known = frozenset(partitions)
    quota, remainder = divmod(len(partitions), max(1, len(wishes)))
    shares: dict[str, list[TopicIdPartition]] = {}
    taken: dict[TopicIdPartition, None] = {}
    rich = sorted(wishes, key=lambda member_id: (-len(wishes[member_id].before & known), member_id))
    quotas = {member_id: quota + (index < remainder) for index, member_id in enumerate(rich)}
    for member_id in sorted(wishes):
        had = [partition for partition in sorted(wishes[member_id].before & known) if partition not in taken]
        shares[member_id] = had[: quotas[member_id]]
        taken.update(dict.fromkeys(shares[member_id]))
    free = iter([partition for partition in partitions if partition not in taken])
    for member_id, share in shares.items():
        share += [next(free) for _ in range(quotas[member_id] - len(share))]
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _balanced(wishes: Wishes, counts: Counts) -> Target:
    """Members want different topics: fill up who has least, then move what makes shares more equal."""
    subscribers = {
        topic: [member_id for member_id in sorted(wishes) if topic in wishes[member_id].topics]
        for topic in sorted(counts)
    }
    holder: dict[TopicIdPartition, str] = {}
    loads = Loads(subscribers, sorted(wishes))
    partitions = [
        TopicIdPartition(topic, index)
        for topic, members in sorted(subscribers.items(), key=lambda item: (len(item[1]), item[0]))
        for index in range(counts[topic] if members else 0)
    ]
    for member_id in loads.of:
        for partition in sorted(wishes[member_id].before):
            wants = partition.topic_id in counts and partition.topic_id in wishes[member_id].topics
            if wants and partition not in holder and partition.partition < counts[partition.topic_id]:
                holder[partition] = member_id
                loads.give(member_id)
    for partition in partitions:
        if partition not in holder:
            holder[partition] = loads.least(partition.topic_id)
            loads.give(holder[partition])
    is_moving = True
    while is_moving:  # each move makes the sum of squares smaller
        is_moving = False
        for partition in partitions:
            giver, taker = holder[partition], loads.least(partition.topic_id)
            if loads.of[giver] > loads.of[taker] + 1:
                holder[partition] = taker
                loads.take(giver)
                loads.give(taker)
                is_moving = True
    shares: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in loads.of}
    for partition, member_id in holder.items():
        shares[member_id].append(partition)
    return {member_id: frozenset(share) for member_id, share in shares.items()}


class Loads:
    """How many partitions each member has, and who of a topic's subscribers has least: without a look at each of them.

    of:  by member id, in order.
    """

    def __init__(self, subscribers: Mapping[UUID, list[str]], members: list[str]) -> None:
        self.of = dict.fromkeys(members, 0)
        # By topic: of each subscriber at least one entry that says no more than it has.
        self._least = {topic: [(0, member_id) for member_id in wanting] for topic, wanting in subscribers.items()}
        self._topics: dict[str, list[UUID]] = {member_id: [] for member_id in members}
        for topic, wanting in subscribers.items():
            for member_id in wanting:
                self._topics[member_id].append(topic)

    def least(self, topic: UUID) -> str:
        """Return the subscriber that has least, the first of equals."""
        entries = self._least[topic]
        while True:
            said, member_id = entries[0]
            if said == self.of[member_id]:
                return member_id
            heapreplace(entries, (self.of[member_id], member_id))

    def give(self, member_id: str) -> None:
        """Note one more."""
        self.of[member_id] += 1

    def take(self, member_id: str) -> None:
        """Note one less."""
        self.of[member_id] -= 1
        for topic in self._topics[member_id]:
            heappush(self._least[topic], (self.of[member_id], member_id))


ASSIGNORS: Final[dict[str, Assign]] = {"uniform": uniform_assignment, "range": range_assignment}
