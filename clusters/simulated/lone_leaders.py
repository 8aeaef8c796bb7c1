"""How soon a leader that is left alone in its ISR commits what it had: a figure, because slowness is no violation.

The high watermark is computed anew when the ISR changes (SPEC 3.5; KAFKA-13091): with nobody left to wait for, what the leader had when that was
committed is committed as soon as it learns of it. A leader that waits for the next append or fetch instead keeps acks=all waiting on a partition without
traffic. From that moment on nothing else moves the high watermark of a leader alone, so it is measured for it only.
"""

from typing import Final, NamedTuple

from tribunal.clusters.api import PartitionState, TopicPartition
from tribunal.clusters.simulated.process import NS_PER_MS

NOBODY: Final = -1


class Waiting(NamedTuple):
    """Since when a leader alone has records that it has not committed, and up to which offset."""

    leader_epoch: int
    since_ns: int
    end_offset: int


class LoneLeaders:
    """The longest such time of one simulation."""

    def __init__(self) -> None:
        self.stalled_ms = 0
        self._waiting: dict[TopicPartition, Waiting] = {}

    def committed(self, partition: TopicPartition, state: PartitionState, now_ns: int, uncommitted: int | None) -> None:
        """Take note of a partition's committed state.

        uncommitted:  where the leader's log ends, if that is beyond its high watermark and it alone may commit it; else None.
        """
        waiting = self._waiting.get(partition)
        if waiting is not None and (state.leader_epoch != waiting.leader_epoch or state.leader == NOBODY):
            del self._waiting[partition]  # another leader has its own high watermark to find
        elif waiting is not None and len(state.isr) > 1:
            self._ends(partition, waiting, now_ns)
        if partition not in self._waiting and uncommitted is not None:
            self._waiting[partition] = Waiting(state.leader_epoch, now_ns, uncommitted)

    def exposed(self, partition: TopicPartition, leader_epoch: int, high_watermark: int, now_ns: int) -> None:
        """Take note of how far a leader says that its partition is committed."""
        waiting = self._waiting.get(partition)
        if waiting is not None and leader_epoch == waiting.leader_epoch and high_watermark >= waiting.end_offset:
            self._ends(partition, waiting, now_ns)

    def _ends(self, partition: TopicPartition, waiting: Waiting, now_ns: int) -> None:
        del self._waiting[partition]
        self.stalled_ms = max(self.stalled_ms, (now_ns - waiting.since_ns) // NS_PER_MS)
