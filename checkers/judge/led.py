"""Who led which leader epoch of which topic, where a topic was deleted and made anew and the recording knows both by one name.

Leader epochs begin anew with each topic, so an epoch alone names no leader. What was observed is of the topic of its time, and of nobody knows which within
`AROUND_NS` of the moment at which the later one was observed to be made. A broker that nobody could tell goes on to lead the deleted one.
"""

from functools import cached_property
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

NEVER: Final = 1 << 62
NOBODY: Final = -1
UNKNOWN_TOPIC: Final = -1
# A commit is observed by half a second late, and a node's journal has the node's clock, which differs by no more.
AROUND_NS: Final = 1_000_000_000
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


class Led(msgspec.Struct, frozen=True, array_like=True):
    """Who led a leader epoch, as committed.

    topic:     how often the topic had been made anew with leader epochs that began anew.
    until_ns:  a process that leads it on then has surely learned that the topic was deleted; NEVER: it was not.
    """

    topic: int
    leader_epoch: int
    leader: int
    until_ns: int = NEVER


class Leaders(msgspec.Struct, frozen=True, dict=True):
    """Who led a partition, and when its topic was made anew (ns, ascending)."""

    led: tuple[Led, ...] = ()
    anew_ns: tuple[int, ...] = ()

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Since when and until when what is observed is surely of each topic."""
        begins = [-NEVER, *(at_ns + AROUND_NS for at_ns in self.anew_ns)]
        ends = [*(at_ns - AROUND_NS for at_ns in self.anew_ns), NEVER]
        return tuple(zip(begins, ends, strict=True))

    def topics(self, at_ns: Integers) -> Integers:
        """Return of which topic what was observed at some times is: how often it had been made anew, UNKNOWN_TOPIC where that cannot be said."""
        if not self.anew_ns:
            return np.zeros(at_ns.size, np.int64)
        found = np.full(at_ns.size, UNKNOWN_TOPIC, np.int64)
        for topic, (since_ns, until_ns) in enumerate(self.spans):
            found[(at_ns >= since_ns) & (at_ns < until_ns)] = topic
        return found

    def leaders(self, topics: Integers, epochs: Integers) -> Integers:
        """Return who led these leader epochs of these topics; NOBODY where that is not known."""
        if not self.led:
            return np.full(epochs.size, NOBODY, np.int64)
        keys, nodes = self._by_epoch
        wanted = _keys(topics, epochs)
        places = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        return np.where((keys[places] == wanted) & (topics >= 0) & (epochs >= 0), nodes[places], NOBODY)

    def may_be_of_former(self, topics: Integers, epochs: Integers, nodes: Integers, at_ns: Integers) -> Booleans:
        """Tell where a node led that very leader epoch of an earlier topic and may lead it on: it need not know that that one was deleted."""
        found = np.zeros(epochs.size, bool)
        for one in self.led if self.anew_ns else ():
            own = (topics > one.topic) & (epochs == one.leader_epoch) & (nodes == one.leader)
            found |= own & (at_ns < one.until_ns)
        return found

    def surely_of(self, epochs: Integers, nodes: Integers, at_ns: Integers) -> Integers:
        """Return of which topic what some nodes said surely is: UNKNOWN_TOPIC also where one that leads a former one on may have said it.

        epochs, nodes:  NOBODY where that is not known: then it may be any of them.
        """
        found = topics = self.topics(at_ns)
        for one in self.led if self.anew_ns else ():
            former = (topics > one.topic) & (at_ns < one.until_ns)
            former &= (epochs == one.leader_epoch) | (epochs == NOBODY)
            found = np.where(former & ((nodes == one.leader) | (nodes == NOBODY)), UNKNOWN_TOPIC, found)
        return found

    def of_nobody(self, topics: Integers, epochs: Integers) -> Booleans:
        """Tell which leader epochs lie between two of their topic in which somebody led, and had no leader themselves, nor in an earlier topic.

        Only between them: an older or a newer one may have been before or behind what was observed.
        """
        found = np.zeros(epochs.size, bool)
        led: set[int] = set()
        least = NOBODY
        for topic in sorted({one.topic for one in self.led}):
            own = [one.leader_epoch for one in self.led if one.topic == topic]
            led |= set(own)
            least = max(least, min(own))
            between = (topics == topic) & (epochs > least) & (epochs < max(own))
            if between.any():
                found |= between & ~np.isin(epochs, sorted(led))
        return found

    def of_nobody_in_any(self, epochs: Integers) -> Booleans:
        """Tell which leader epochs are of nobody in some topic, where it is not known which one they are of."""
        found = np.zeros(epochs.size, bool)
        for topic in dict.fromkeys(one.topic for one in self.led):
            found |= self.of_nobody(np.full(epochs.size, topic), epochs)
        return found

    @cached_property
    def _by_epoch(self) -> tuple[Integers, Integers]:
        keys = np.array([one.topic << 32 | one.leader_epoch for one in self.led], np.int64)
        order = np.argsort(keys, kind="stable")
        return keys[order], np.array([one.leader for one in self.led], np.int64)[order]


def _keys(topics: Integers, epochs: Integers) -> Integers:
    return (topics << 32) + epochs
