"""Whether a control request counts: first the registration it is meant for, then the controller it comes from (KIP-380).

A request to an earlier registration changes nothing, not even what is known of controllers: that it was sent by a newer controller
says nothing, because the answer must be as if it had never come.
"""

from typing import NamedTuple

from replog.errors import Error
from replog.types import NO_BROKER_EPOCH, BrokerEpoch


class KnownEpochs(NamedTuple):
    """What a broker compares control requests with: its own epoch, and the latest controller's."""

    broker_epoch: BrokerEpoch
    controller_epoch: int


def is_stale_incarnation(broker_epoch: int, registered: int) -> bool:
    """Return whether an epoch is surely of an earlier registration; -1: the peer does not know it; a larger one is newer than ours."""
    return broker_epoch != NO_BROKER_EPOCH and broker_epoch < registered


def control_error(known: KnownEpochs, broker_epoch: int, controller_epoch: int) -> Error:
    """Return NONE where the request counts, or why it does not (SPEC 3.12.2, 3.12.3)."""
    if is_stale_incarnation(broker_epoch, known.broker_epoch):
        return Error.STALE_BROKER_EPOCH
    if controller_epoch < known.controller_epoch:
        return Error.STALE_CONTROLLER_EPOCH
    return Error.NONE
