"""M61: a follower that fetches from its leader grants pre-votes.

Evidence: a pre-vote that is granted by who fetches from its leader (I23); with one link cut between two voters the lead goes to and fro
although all of them run. No data is lost: it must never be reported as a loss. KIP-996.
"""

from replog.quorum.election import Election
from replog.quorum.messages import VoteRequest
from replog.quorum.roles import Follower

SCENARIO = "one-link-of-controllers"


def install() -> None:
    """Look at the candidate's log only."""
    strict = Election._would_grant

    def _would_grant(self: Election, request: VoteRequest) -> bool:
        if isinstance(self._state.role, Follower) and request.pre_vote:
            return self._state.log.is_covered_by(request.last_epoch, request.last_offset)
        return strict(self, request)

    Election._would_grant = _would_grant  # type: ignore[method-assign]
