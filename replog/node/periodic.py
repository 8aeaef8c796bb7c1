"""What a node does again and again, each at its own interval."""

import asyncio
from collections.abc import Callable


class PeriodicWork:
    """Timers that arm themselves anew, until all are stopped."""

    def __init__(self) -> None:
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def every(self, name: str, interval_ms: int, action: Callable[[], None]) -> None:
        """Call the action after each interval."""

        def fire() -> None:
            self._timers[name] = asyncio.get_running_loop().call_later(interval_ms / 1000, fire)
            action()

        self._timers[name] = asyncio.get_running_loop().call_later(interval_ms / 1000, fire)

    def stop(self) -> None:
        """Do nothing more."""
        for timer in self._timers.values():
            timer.cancel()
