"""M39: the first LeaderAndIsr of a process counts as complete, whatever registration it was meant for.

Evidence: what it does not name loses its high-watermark checkpoint, and its log is put aside. KAFKA-7235, KAFKA-8333.
"""

from replog.types import BrokerEpoch
from replog.wire.messages.leader_and_isr import LeaderAndIsrRequest
from replog.zookeeper.broker import ControlledBroker, Effect
from replog.zookeeper.soundness import ControlRequestBody

SCENARIO = "zookeeper-early-leader-and-isr"


def install() -> None:
    """Believe the first LeaderAndIsr."""
    handle = ControlledBroker.handle

    def believing(self: ControlledBroker, request: ControlRequestBody) -> list[Effect]:
        if isinstance(request, LeaderAndIsrRequest) and not self.is_complete:
            registered = self.identity.broker_epoch
            self.identity.broker_epoch = BrokerEpoch(request.broker_epoch)
            try:
                return handle(self, request)
            finally:
                self.identity.broker_epoch = registered
        return handle(self, request)

    ControlledBroker.handle = believing  # type: ignore[method-assign]
