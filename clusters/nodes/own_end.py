"""How a node comes to its end in time: asked in good order, or by what somebody else does."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Coroutine
from typing import Final

from tribunal.clusters.api import ClusterError

KILLED_WITHIN_MS: Final = 30_000


async def died(end: Awaitable[object], who: str) -> None:
    """Wait for the end of who was killed; `ClusterError` where it does not come: a process that waits in the kernel, as for a disk far away, dies when that answers."""
    try:
        async with asyncio.timeout(KILLED_WITHIN_MS / 1000):
            await end
    except TimeoutError:
        raise ClusterError(
            f"{who} does not die within {KILLED_WITHIN_MS} ms of SIGKILL: it hangs in the kernel"
        ) from None


class OwnEnd(ABC):
    """A node that is watched; while `_ending` is set its end is no failure of its own."""

    node: int
    pid: int | None
    _ending: bool
    is_here: bool = True  # whether its process is one of this machine

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether its process exists."""

    @abstractmethod
    async def _ended(self) -> None:
        """Wait until it is at its end, and everybody knows."""

    @abstractmethod
    async def _ask_to_end(self) -> None:
        """Send SIGTERM to a node that is alive."""

    async def _dies(self) -> None:
        """Wait for the end of a node that was killed."""
        await died(self._ended(), f"node {self.node}: its process {self.pid}")

    async def terminate(self, timeout_ms: int) -> bool:
        """Ask for an orderly end; return whether it came in time."""
        self._ending = True
        if self.alive:
            await self._ask_to_end()
        try:
            await asyncio.wait_for(self._ended(), timeout_ms / 1000)
        except TimeoutError:
            return False
        return True

    async def ends_by(self, asking: Coroutine[object, None, bool], timeout_ms: int) -> bool:
        """Expect it to end by what somebody else does; return whether that worked, and the end came in time."""
        self._ending = True
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                asked = await asking
                await self._ended()
        except TimeoutError:
            # It goes on, and if it dies later that was nobody's wish.
            self._ending = not self.alive
            return False
        return asked
