"""M81: the last stable offset moves beyond a transaction whose end marker is not replicated.

Evidence: after a fail-over the marker is gone, the transaction is open again, and the last stable offset goes back.
"""

from replog.log.producers import ProducerStates

SCENARIO = "markers-under-way"


def install() -> None:
    """Look at open transactions only."""

    def first_unstable_offset(self: ProducerStates, high_watermark: int) -> int | None:
        return next(iter(self._open.values()), None)

    ProducerStates.first_unstable_offset = first_unstable_offset  # type: ignore[method-assign]
