"""M43: the high watermark is not computed again when an ISR shrinks; only appends and fetches move it.

Evidence: on a partition without traffic acks=all times out right after a shrink. KAFKA-13091. With traffic the next append moves it, so this is
a figure: how long a leader that is left alone does not commit what it has.
"""

from collections.abc import Sequence

from replog.broker.isr import Effect, LeaderState, PartitionState

SCENARIO = "quiet-shrink"
FIGURE = "lone_leader_ms"
FIGURE_GROWTH = 100  # of an append each second that comes too late, half a second on average


def install() -> None:
    """Leave the high watermark where it is when a state is committed, and when time passes."""
    advance, commit_state, on_tick = LeaderState._advance, LeaderState._commit_state, LeaderState.on_tick
    still: list[LeaderState] = []

    def _advance(self: LeaderState, now_ms: int) -> list[Effect]:
        return [] if self in still else advance(self, now_ms)

    def _commit_state(self: LeaderState, state: PartitionState, now_ms: int) -> Sequence[Effect]:
        still.append(self)
        try:
            return commit_state(self, state, now_ms)
        finally:
            still.pop()

    def standing_still(self: LeaderState, now_ms: int) -> Sequence[Effect]:
        still.append(self)
        try:
            return on_tick(self, now_ms)
        finally:
            still.pop()

    LeaderState._advance = _advance  # type: ignore[method-assign]
    LeaderState._commit_state = _commit_state  # type: ignore[method-assign]
    LeaderState.on_tick = standing_still  # type: ignore[method-assign]
