"""M59: a voter that misses its leader stands for election at once.

Evidence: the quorum epoch jumps and the leader changes when a voter that was cut off comes back. No data is lost: this is a
figure of stability, and must never be reported as a loss. KIP-996.
"""

from replog.quorum.quorum_state import QuorumState
from replog.quorum.roles import Prospective

SCENARIO = "disruptive-voter"
FIGURE = "isolated_epoch_growth"


def install() -> None:
    """Waive every pre-vote round."""
    strict = QuorumState.become_prospective

    def become_prospective(self: QuorumState, now_ms: int) -> None:
        strict(self, now_ms)
        if isinstance(self.role, Prospective):
            self.role.ballot.waive()

    QuorumState.become_prospective = become_prospective  # type: ignore[method-assign]
