"""Tasks that may not die unnoticed, and that end with their node.

An error nobody foresaw goes to the loop's exception handler, which ends the node: going on after a bug would write a false
recording. A task that works for one request or on one link may be given `failed`, which contains what is no more than theirs
(`replog/node/boundary.py`). Tasks are held here because asyncio itself holds them only weakly.
"""

import asyncio
from collections.abc import Callable, Coroutine

Failed = Callable[[Exception], None]


class Tasks:
    """All tasks of one node."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[None], Failed | None] = {}

    def start(self, work: Coroutine[object, object, None], *, failed: Failed | None = None) -> None:
        """Run this beside everything else; `failed` takes an error, and raises it again when it ends the node."""
        task = asyncio.get_running_loop().create_task(work)
        self._running[task] = failed
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """End them all."""
        for task in list(self._running):
            task.cancel()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        failed = self._running.pop(task)
        if task.cancelled():
            return
        problem = task.exception()
        if isinstance(problem, Exception) and failed is not None:
            try:
                failed(problem)
            except Exception as more:  # noqa: BLE001  # the same one, or one of the refusal itself
                problem = more
            else:
                return
        if problem is not None:
            context = {"message": "a task ended with an error", "exception": problem, "task": task}
            task.get_loop().call_exception_handler(context)
