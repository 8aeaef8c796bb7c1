"""The run's clock: monotonic ns since the run began, and where that stands on the other clocks."""

import asyncio
import time
from functools import cache


def moment_s() -> float:
    """Return now, in s, by the clock of the event loop that runs: of the simulator's loop its own, elsewhere the machine's monotonic one.

    uvloop's stands still while callbacks run, and counts whole ms: what was asked later would seem to have been asked before.
    """
    loop = asyncio.get_running_loop()
    return time.monotonic() if isinstance(loop, _loops_with_coarse_clocks()) else loop.time()


def ago_ns(moment: float) -> int:
    """Return how long ago a moment of that clock is."""
    return round((moment_s() - moment) * 1e9)


@cache
def _loops_with_coarse_clocks() -> tuple[type[asyncio.AbstractEventLoop], ...]:
    try:
        import uvloop
    except ImportError:
        return ()
    return (uvloop.Loop,)


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
