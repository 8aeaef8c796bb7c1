"""M01: a controller without eligible leader replicas: the last ISR member leads again whatever it lost.

Evidence: the last replica standing loses its unsynced tail, is elected again, and the others truncate to it. KIP-966.
"""

from replog.controller.policy import Policy

SCENARIO = "last-replica-standing"


def install() -> None:
    """Let every decision be made by the rules from before KIP-966."""
    Policy.elr_enabled = property(lambda self: False)  # type: ignore[assignment,method-assign]
