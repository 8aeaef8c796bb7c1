"""M04: whoever names the epoch of any earlier clean shutdown counts as having ended cleanly.

Evidence: as M02, for a broker whose clean-shutdown file is of an incarnation before the last: one that was left (M03), or came
with an old image of the disk. Derived from KIP-966.
"""

from replog.controller import registration
from replog.controller.policy import Policy
from replog.controller.registration import Shutdown
from replog.metadata.state import Broker
from replog.types import NO_BROKER_EPOCH

SCENARIO = "restored-disk"


def install() -> None:
    """Ask whether there is an epoch, not which."""

    def how_it_ended(policy: Policy, existing: Broker | None, previous_broker_epoch: int) -> Shutdown:
        return Shutdown.UNCLEAN if previous_broker_epoch == NO_BROKER_EPOCH else Shutdown.CLEAN

    registration.how_it_ended = how_it_ended
