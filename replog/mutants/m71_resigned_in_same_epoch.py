"""M71: a leader that resigned becomes a voter like others without leaving its epoch.

Evidence: peers name it as the leader of that epoch, and it follows itself, or ends. KAFKA-18379.
"""

from replog.quorum.election import Election
from replog.quorum.roles import ResignedLeader, Unattached
from replog.types import NO_NODE

SCENARIO = "controllers-die"


def install() -> None:
    """Keep the epoch."""
    strict = Election._step

    def _step(self: Election, now_ms: int) -> bool:
        state = self._state
        role = state.role
        if not isinstance(role, ResignedLeader) or state.shutting_down or role.election_deadline_ms > now_ms:
            return strict(self, now_ms)
        deadline_ms = state.election_deadline_ms(now_ms)
        state._enter(Unattached(leader_id=NO_NODE, election_deadline_ms=deadline_ms))
        return True

    Election._step = _step  # type: ignore[method-assign]
