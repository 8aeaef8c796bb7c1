"""Where replicas of a new partition go: spread over brokers and racks, active brokers first.

Brokers stand in a ring in which racks alternate. Each partition's leader is the next one along the
ring; its followers come behind it at a distance that grows with every round, so that a broker's
load, should it die, is spread over all others. A rack gets a second replica of a partition only when each rack has
one that can, and so on: a rack that burns takes as few replicas as can be. Fenced brokers (never shutting-down ones) fill up
when there are fewer active ones than replicas. A broker all of whose log directories are cordoned gets none (KIP-1066).
"""

from collections import Counter
from collections.abc import Mapping
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from replog.metadata.image import Image
from replog.metadata.state import Broker, Nodes
from replog.types import NodeId

if TYPE_CHECKING:
    from random import Random


def placements(
    image: Image, *, partition_count: int, replication_factor: int, first_index: int, random: "Random"
) -> list[Nodes] | None:
    """Return replicas of partitions `first_index` and on, None when there are too few brokers.

    first_index: of the first new partition: a topic that grows goes on along the ring.
    """
    fit = [broker for broker in image.brokers.values() if broker.takes_new_replicas]
    active = ring([broker for broker in fit if broker.is_active])
    fenced = ring([broker for broker in fit if broker.fenced and not broker.in_controlled_shutdown])
    if not active or len(active) + len(fenced) < replication_factor:
        return None
    start = random.randrange(len(active))
    shift = random.randrange(len(active))
    racks = {broker.broker_id: broker.rack or "" for broker in image.brokers.values()}
    result = []
    for index in range(first_index, first_index + partition_count):
        leader = (start + index) % len(active)
        distance = shift + index // len(active)
        around = _by_racks(_around(active, leader, distance), racks, min(replication_factor, len(active)))
        result.append((*around, *fenced)[:replication_factor])
    return result


def ring(brokers: list[Broker]) -> Nodes:
    """Return brokers by id with racks alternating."""
    racks: dict[str, list[NodeId]] = {}
    for broker in sorted(brokers, key=lambda broker: (broker.rack or "", broker.broker_id)):
        racks.setdefault(broker.rack or "", []).append(broker.broker_id)
    return tuple(node for node in chain.from_iterable(zip_longest(*racks.values())) if node is not None)


def _by_racks(candidates: Nodes, racks: Mapping[NodeId, str], count: int) -> Nodes:
    """Return so many of these nodes: each time the first one whose rack has the fewest so far."""
    left, used = list(candidates), Counter[str]()
    chosen: list[NodeId] = []
    while len(chosen) < count:
        node = min(left, key=lambda one: used[racks[one]])  # the first of equals
        left.remove(node)
        used[racks[node]] += 1
        chosen.append(node)
    return tuple(chosen)


def _around(ring_: Nodes, leader: int, distance: int) -> Nodes:
    count = len(ring_)
    if count == 1:
        return ring_
    first = 1 + distance % (count - 1)
    followers = ((first - 1 + step) % (count - 1) + 1 for step in range(count - 1))
    return (ring_[leader], *(ring_[(leader + follower) % count] for follower in followers))
