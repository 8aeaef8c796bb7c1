"""M60: a round of pre-votes raises the quorum epoch of whoever asks.

Evidence: the epoch of a voter that is cut off grows without any vote, and the leader has to go when it comes back. KIP-996.
"""

from replog.quorum.quorum_state import QuorumState
from replog.types import NO_NODE, QuorumEpoch

SCENARIO = "disruptive-voter"
FIGURE = "isolated_epoch_growth"


def install() -> None:
    """Take the next epoch already when asking who would vote."""
    strict = QuorumState.become_prospective

    def become_prospective(self: QuorumState, now_ms: int) -> None:
        self.epoch, self.voted = QuorumEpoch(self.epoch + 1), None
        strict(self, now_ms)
        self.role.leader_id = NO_NODE
        self.persist()

    QuorumState.become_prospective = become_prospective  # type: ignore[method-assign]
