"""M28: a follower truncates to its high watermark when it starts to follow.

Evidence: what is acknowledged and above the follower's late high watermark is lost when it leads next. KIP-101.
"""

from replog.broker.fetcher import Truncation
from replog.broker.isr import PartitionState
from replog.broker.partition import Effect, Partition

SCENARIO = "fast-failovers"


def install() -> None:
    """Cut before asking anybody where histories part."""
    strict = Partition._become_follower

    def _become_follower(self: Partition, state: PartitionState) -> list[Effect]:
        effects = strict(self, state)
        return [*effects, *self._cut(Truncation(offset=self._high_watermark, done=True))]

    Partition._become_follower = _become_follower  # type: ignore[method-assign]
