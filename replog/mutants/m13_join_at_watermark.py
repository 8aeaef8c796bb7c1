"""M13: a follower joins the ISR at the high watermark, short of the epoch's start.

Evidence: a proposal of who lacks the beginning of the leader epoch (I24); acknowledged records are lost after two fail-overs within one round of fetches. KAFKA-7128.
"""

from replog.broker.isr import Effect, Follower, LeaderState
from replog.types import NodeId

SCENARIO = "early-join"


def install() -> None:
    """Forget where the epoch began while a newcomer is looked at."""
    strict = LeaderState._expand

    def _expand(self: LeaderState, replica: NodeId, follower: Follower) -> list[Effect]:
        start, self.epoch_start_offset = self.epoch_start_offset, 0
        try:
            return strict(self, replica, follower)
        finally:
            self.epoch_start_offset = start

    LeaderState._expand = _expand  # type: ignore[method-assign]
