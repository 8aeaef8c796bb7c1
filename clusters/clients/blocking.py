"""Calls of a client library that block, in threads that nobody has to wait for.

A library may hang in a call, or while it closes. Threads of asyncio's own executor are joined when the loop and the
interpreter end: one such call would hold up the end of a run for ever, with its recording closed and no verdict.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

T = TypeVar("T")
GRACE_S: Final = 5.0
"""How much longer than its own limit a call may take."""
CLOSE_S: Final = 10.0


async def blocking(call: Callable[[], T], limit_s: float) -> T:
    """Return what a blocking call returns; `TimeoutError` when it takes longer: its thread is left behind."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def report(result: T | None, problem: BaseException | None) -> None:
        if done.done():
            return
        if problem is not None:
            done.set_exception(problem)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # without a problem it is a T

    def run() -> None:
        result, problem = None, None
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - it is raised where the call is awaited
            problem = error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
            loop.call_soon_threadsafe(report, result, problem)

    threading.Thread(target=run, name=f"blocking {getattr(call, '__name__', 'call')}", daemon=True).start()
    return await asyncio.wait_for(done, limit_s)


async def limited(call: Callable[[float], T], limit_s: float) -> T:
    """Return what a blocking call with a limit of its own (s) returns; `TimeoutError` when it does not keep to it."""
    return await blocking(partial(call, limit_s), limit_s + GRACE_S)
