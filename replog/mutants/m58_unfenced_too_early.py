"""M58: a broker is unfenced with its first heartbeat, before it has replayed the metadata up to its registration.

Evidence: it is elected while it knows only old leader epochs and does not listen yet. (The opposite, never unfenced while the
metadata log is busy, is KAFKA-13959.)
"""

from msgspec.structs import replace

from replog.controller import broker_requests
from replog.controller.heartbeat import Beat, BrokerState, next_state

SCENARIO = "late-metadata"


def install() -> None:
    """Believe that whoever registered knows what was before."""

    def at_once(state: BrokerState, beat: Beat) -> BrokerState:
        if state is BrokerState.FENCED:
            beat = replace(beat, caught_up=True, want_fence=False)
        return next_state(state, beat)

    broker_requests.next_state = at_once  # type: ignore[attr-defined]
