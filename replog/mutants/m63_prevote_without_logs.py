"""M63: pre-votes are granted without comparing logs.

Evidence: a pre-vote that is granted to who has fewer records (I23); a voter that lags wins the round and loses the vote, and the epoch
grows by a node that can not lead. No data is lost: it must never be reported as a loss. KIP-996.
"""

from replog.quorum.election import Election
from replog.quorum.messages import VoteRequest
from replog.quorum.roles import Follower, Leader

SCENARIO = "lagging-voter"


def install() -> None:
    """Grant to whoever asks, unless there is a leader."""
    strict = Election._would_grant

    def _would_grant(self: Election, request: VoteRequest) -> bool:
        role = self._state.role
        has_leader = isinstance(role, Leader) or (isinstance(role, Follower) and role.has_fetched)
        return not has_leader if request.pre_vote else strict(self, request)

    Election._would_grant = _would_grant  # type: ignore[method-assign]
