"""M19: any living replica is elected although unclean elections are off.

Evidence: a leader that was in neither ISR nor ELR; acknowledged records are lost.
"""

from replog.controller.election import Election
from replog.controller.policy import Policy

SCENARIO = "elr-chain"


def install() -> None:
    """Let every election be an unclean one where no clean one is possible."""

    def election(self: Policy, topic: str) -> Election:
        return Election.UNCLEAN

    Policy.election = election  # type: ignore[method-assign]
