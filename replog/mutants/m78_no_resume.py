"""M78: a coordinator that has loaded its partition does not send markers again.

Evidence: a transaction that was decided before the fail-over is visible on some partitions and never on others.
KAFKA-16352.
"""

from replog.coordinators.events import Effect, Now, SendMarkers
from replog.coordinators.transaction_coordinator import TransactionCoordinator

SCENARIO = "unreplicated-markers"


def install() -> None:
    """Let loading end without markers."""
    loaded = TransactionCoordinator.on_loaded

    def on_loaded(self: TransactionCoordinator, now: Now) -> list[Effect]:
        return [effect for effect in loaded(self, now) if not isinstance(effect, SendMarkers)]

    TransactionCoordinator.on_loaded = on_loaded  # type: ignore[method-assign]
