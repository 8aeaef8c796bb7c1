"""M62: a voter that has lost its leader goes on refusing pre-votes.

Evidence: nobody is elected after the leader died. KIP-996.
"""

from replog.quorum.election import Election
from replog.quorum.messages import VoteRequest
from replog.quorum.roles import Follower, Prospective
from replog.types import NO_NODE

SCENARIO = "returned-vote"


def install() -> None:
    """Refuse as long as the epoch has a leader, whether it answers or not."""
    strict = Election._would_grant

    def _would_grant(self: Election, request: VoteRequest) -> bool:
        role = self._state.role
        if request.pre_vote and isinstance(role, Follower | Prospective) and role.leader_id != NO_NODE:
            return False
        return strict(self, request)

    Election._would_grant = _would_grant  # type: ignore[method-assign]
