"""M37: followers' positions from an earlier leadership count in the next one.

Evidence: a record is acknowledged that only the leader has: the follower was truncated in between.
"""

from weakref import WeakKeyDictionary

from replog.broker.identity import BrokerIdentity
from replog.broker.isr import Effect as LeaderEffect
from replog.broker.isr import Follower, LeaderState, PartitionState
from replog.broker.partition import Effect, Partition
from replog.types import NodeId

SCENARIO = "lead-there-and-back"


def install() -> None:
    """Remember positions beyond the end of a leadership."""
    kept: WeakKeyDictionary[Partition, dict[NodeId, Follower]] = WeakKeyDictionary()
    become_leader, give_up = Partition._become_leader, Partition._give_up_leadership
    on_leadership = LeaderState.on_leadership
    taking: list[Partition] = []

    def _give_up_leadership(self: Partition) -> None:
        if self.leadership is not None:
            kept[self] = self.leadership.followers
        give_up(self)

    def _become_leader(
        self: Partition, state: PartitionState, *, identity: BrokerIdentity, now_ms: int, wall_ms: int
    ) -> list[Effect]:
        if self.leadership is not None:
            kept[self] = self.leadership.followers
        taking.append(self)
        try:
            return become_leader(self, state, identity=identity, now_ms=now_ms, wall_ms=wall_ms)
        finally:
            taking.pop()

    def with_positions(self: LeaderState, now_ms: int) -> "list[LeaderEffect]":
        for replica, former in kept.get(taking[-1], {}).items() if taking else ():
            if replica in self.followers:
                self.followers[replica].log_end_offset = former.log_end_offset
        return list(on_leadership(self, now_ms))

    Partition._give_up_leadership = _give_up_leadership  # type: ignore[method-assign]
    Partition._become_leader = _become_leader  # type: ignore[method-assign]
    LeaderState.on_leadership = with_positions  # type: ignore[method-assign]
