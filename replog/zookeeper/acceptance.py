"""Whether a control request counts: first the life it is meant for, then the controller it comes from (KIP-380).

A request of a former life changes nothing, not even what is known of controllers: that it was sent by a newer controller
says nothing, because the answer must be as if it had never come.
"""

from typing import NamedTuple

from replog.errors import Error
from replog.types import NO_BROKER_EPOCH, BrokerEpoch


class Standing(NamedTuple):
    """What a broker compares control requests with."""

    broker_epoch: BrokerEpoch
    controller_epoch: int


def is_former_life(broker_epoch: int, registered: int) -> bool:
    """Tell whether an epoch is surely of a former life; -1 is a peer that does not know, larger is newer news."""
    return broker_epoch != NO_BROKER_EPOCH and broker_epoch < registered


def accept_control(standing: Standing, broker_epoch: int, controller_epoch: int) -> tuple[Error, Standing]:
    """Return whether the request counts, and what is known afterwards (SPEC 3.12.2, 3.12.3)."""
    if is_former_life(broker_epoch, standing.broker_epoch):
        return Error.STALE_BROKER_EPOCH, standing
    if controller_epoch < standing.controller_epoch:
        return Error.STALE_CONTROLLER_EPOCH, standing
    return Error.NONE, Standing(standing.broker_epoch, controller_epoch)
