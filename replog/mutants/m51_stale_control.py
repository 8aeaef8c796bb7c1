"""M51: a broker carries out control requests to its earlier registration.

Evidence: a StopReplica with a smaller broker epoch than the registered one is answered with NONE. KIP-380, KAFKA-7235.
"""

from replog.errors import Error
from replog.zookeeper import acceptance
from replog.zookeeper.acceptance import KnownEpochs

SCENARIO = "zookeeper-late-stop-replica"


def install() -> None:
    """Ask for the controller's epoch only."""

    def control_error(known: KnownEpochs, broker_epoch: int, controller_epoch: int) -> Error:
        return Error.STALE_CONTROLLER_EPOCH if controller_epoch < known.controller_epoch else Error.NONE

    acceptance.control_error = control_error
