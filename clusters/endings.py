"""Work that must not be left half-way.

`asyncio.shield` alone is not enough: who shields goes on at once, its loop is closed, and what a loop has left then is cancelled.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


async def to_its_end(work: Coroutine[object, None, T]) -> T:
    """Do work that must not be left half-way: who is cancelled meanwhile, however often, is so only when it is done."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # the cancellation is what is raised
        raise
