"""The run's clock: monotonic ns since the run began, and where that stands on the other clocks."""

import time


class RunClock:
    """Stamps what the harness does and sees (docs/contract.md, clocks)."""

    def __init__(self) -> None:
        self.start_ns = time.monotonic_ns()
        self.wall_start_ms = time.time_ns() / 1_000_000

    def now_ns(self) -> int:
        """Return ns since the run began."""
        return time.monotonic_ns() - self.start_ns

    def at_ns(self, node_ns: int) -> int:
        """Return a reading of this machine's monotonic clock as ns since the run began."""
        return max(0, node_ns - self.start_ns)
