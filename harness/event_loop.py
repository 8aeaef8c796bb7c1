"""The event loop of a run on real nodes. Whatever a plugin leaves behind, the run ends and what it recorded is judged.

`asyncio.Runner` waits without limit for tasks that were cancelled and for the threads of its executor: a task that
swallows its cancellation, or a call that never returns, would hold up the end for ever.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NoReturn, TypeVar

from tribunal.harness.terminal import echo

T = TypeVar("T")
LEAVE_S: Final = 10.0
"""How long tasks may take to end once they are cancelled, and threads once nothing is asked of them."""


def run_and_leave(main: Coroutine[None, None, T], say: Callable[[str], None], limit_s: float = LEAVE_S) -> T:
    """Run a coroutine on a loop of its own; tasks that do not end within the limit are named and left behind."""
    loop = _new_loop()
    executor = ThreadPoolExecutor(thread_name_prefix="executor")
    loop.set_default_executor(executor)
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=limit_s))
        if stuck := sorted(task.get_name() for task in left if not task.done()):
            say(f"left behind, {limit_s:g} s after they were cancelled: {', '.join(stuck)}")
        loop.run_until_complete(loop.shutdown_asyncgens())
        executor.shutdown(wait=False, cancel_futures=True)
        asyncio.set_event_loop(None)
        loop.close()


def leave(code: int, limit_s: float = LEAVE_S) -> NoReturn:
    """End the process; threads that the interpreter still waits for after the limit are named and left behind."""

    def watch() -> None:
        threading.Event().wait(limit_s)
        stuck = [one.name for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]
        if stuck:
            echo(f"tribunal: threads do not end and are left behind: {', '.join(sorted(stuck))}", err=True)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    threading.Thread(target=watch, name="end of the process", daemon=True).start()
    sys.exit(code)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
