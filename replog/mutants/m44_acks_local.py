"""M44: acks=all is answered at the local append, as if acks were 1.

Evidence: acknowledged records are lost when the leader dies or is cut off before its followers have fetched them.
The sanity mutant: a harness that does not find it within one run is blind.
"""

from replog.broker.isr import LeaderState
from replog.errors import Error


def install() -> None:
    """Let no acks=all append wait for the high watermark."""

    def produce_outcome(self: LeaderState, last_offset: int) -> Error | None:
        return Error.NONE

    LeaderState.produce_outcome = produce_outcome  # type: ignore[method-assign]
