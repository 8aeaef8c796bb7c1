"""M64: a voter forgets its vote when it restarts.

Evidence: a vote that is given and stands in no file (I23); two leaders in one quorum epoch; committed metadata differs between controllers.
"""

from replog.quorum.events import Persist
from replog.quorum.quorum_state import QuorumState
from replog.quorum.state_file import StoredQuorumState

SCENARIO = "voters-restarted"


def install() -> None:
    """Store everything but the vote."""

    def persist(self: QuorumState) -> None:
        self.outbox.append(Persist(state=StoredQuorumState(epoch=self.epoch, leader_id=self.leader_id, voted=None)))

    QuorumState.persist = persist  # type: ignore[method-assign]
