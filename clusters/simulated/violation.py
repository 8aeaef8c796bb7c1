"""What the watch raises: an invariant of docs/invariants.md does not hold."""


class Violated(AssertionError):
    """An invariant does not hold, in this state, after this event."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.text = text
        self.at_ns = 0
        self.event_count = 0
