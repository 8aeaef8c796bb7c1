"""Tasks that may not die unnoticed: an error nobody foresaw ends the node, and the seed is kept."""

import asyncio
from collections.abc import Coroutine
from typing import Any


def start(work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    """Run this beside; what it does not catch goes to the loop's exception handler, which ends the node."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_report)
    return task


def _report(task: "asyncio.Task[None]") -> None:
    if task.cancelled():
        return
    problem = task.exception()
    if problem is not None:
        context = {"message": "a task ended with an error", "exception": problem, "task": task}
        task.get_loop().call_exception_handler(context)
