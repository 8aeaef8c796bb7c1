"""M53: the controller carries out a ControlledShutdown of a broker's earlier registration.

Evidence: leaders leave a healthy broker, its followers stop, and it is in no ISR any more. KIP-380.
"""

from replog.zookeeper.controller import ZooKeeperController

SCENARIO = "zookeeper-late-leave"


def install() -> None:
    """Take every registration of a broker for the present one."""

    def _is_over(self: ZooKeeperController, broker_epoch: int, registered: int) -> bool:
        return False

    ZooKeeperController._is_over = _is_over  # type: ignore[method-assign]
