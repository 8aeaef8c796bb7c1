"""M02: every registration counts as one after a clean shutdown.

Evidence: a member of ISR or ELR that restarted with an emptied disk is elected as if it held everything. KIP-966.
"""

from replog.controller import registration
from replog.controller.policy import Policy
from replog.controller.registration import Shutdown
from replog.metadata.state import Broker

SCENARIO = "elr-chain"


def install() -> None:
    """Believe every broker."""

    def how_it_ended(policy: Policy, existing: Broker | None, previous_broker_epoch: int) -> Shutdown:
        return Shutdown.CLEAN

    registration.how_it_ended = how_it_ended
