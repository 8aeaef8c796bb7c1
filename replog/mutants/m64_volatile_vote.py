"""M64: a voter forgets its vote when it restarts.

Evidence: two leaders in one quorum epoch; committed metadata differs between controllers.
"""

from replog.quorum.events import Persist
from replog.quorum.quorum_state import Standing
from replog.quorum.state_file import QuorumState

SCENARIO = "voters-restarted"


def install() -> None:
    """Store everything but the vote."""

    def persist(self: Standing) -> None:
        self.outbox.append(Persist(state=QuorumState(epoch=self.epoch, leader_id=self.leader_id, voted=None)))

    Standing.persist = persist  # type: ignore[method-assign]
