"""M66: the quorum's high watermark counts records of earlier epochs before one of the leader's own is committed.

Evidence: a committed record disappears after changes of leader over partly replicated records ("figure 8" of Raft). KAFKA-12619.
"""

from replog.quorum.roles import Leader
from replog.quorum.voters import high_watermark

SCENARIO = "figure-eight"


def install() -> None:
    """Count whatever a majority holds."""

    def majority_end_offset(self: Leader) -> int | None:
        return high_watermark([progress.end_offset for progress in self.progress.values()], -1, self.high_watermark)

    Leader.majority_end_offset = majority_end_offset  # type: ignore[method-assign]
