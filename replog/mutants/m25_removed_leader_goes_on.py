"""M25: a leader that a completed reassignment removed takes NEW_LEADER_ELECTED for a refusal and goes back to its former ISR.

Evidence: it serves on without the replicas that came; what it acknowledges is in nobody's log. Derived from KIP-966.
"""

from replog.broker import isr
from replog.errors import Error

SCENARIO = "removed-leader"


def install() -> None:
    """Treat it as a refused proposal."""
    isr.REVERTING = isr.REVERTING | {Error.NEW_LEADER_ELECTED}  # type: ignore[misc]
    isr.AWAITING_METADATA = isr.AWAITING_METADATA - {Error.NEW_LEADER_ELECTED}  # type: ignore[misc]
