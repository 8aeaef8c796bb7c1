"""Tasks that may not die unnoticed, and that end with their node.

An error nobody foresaw goes to the loop's exception handler, which ends the node: going on after a bug would write a false
recording. Tasks are held here because asyncio itself holds them only weakly.
"""

import asyncio
from collections.abc import Coroutine


class Tasks:
    """All tasks of one node."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[None], None] = {}

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Run this beside everything else."""
        task = asyncio.get_running_loop().create_task(work)
        self._running[task] = None
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """End them all."""
        for task in list(self._running):
            task.cancel()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._running[task]
        if task.cancelled():
            return
        problem = task.exception()
        if problem is not None:
            context = {"message": "a task ended with an error", "exception": problem, "task": task}
            task.get_loop().call_exception_handler(context)
