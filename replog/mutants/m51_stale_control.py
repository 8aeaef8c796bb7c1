"""M51: a broker carries out control requests of its former life.

Evidence: a StopReplica with a smaller broker epoch than the registered one is answered with NONE. KIP-380, KAFKA-7235.
"""

from replog.errors import Error
from replog.zookeeper import acceptance
from replog.zookeeper.acceptance import Standing

SCENARIO = "zookeeper-late-stop-replica"


def install() -> None:
    """Ask for the controller's epoch only."""

    def accept_control(standing: Standing, broker_epoch: int, controller_epoch: int) -> tuple[Error, Standing]:
        if controller_epoch < standing.controller_epoch:
            return Error.STALE_CONTROLLER_EPOCH, standing
        return Error.NONE, Standing(standing.broker_epoch, controller_epoch)

    acceptance.accept_control = accept_control
