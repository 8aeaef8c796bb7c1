"""What plugins and client libraries leave behind holds up neither the end of a run nor that of the process."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tribunal.clusters.clients.blocking import blocking
from tribunal.harness.event_loop import run_and_leave

ROOT = Path(__file__).resolve().parents[2]
STUBBORN = """
import asyncio, threading
from tribunal.harness.event_loop import leave, run_and_leave
async def main():
    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, threading.Event().wait)
    await asyncio.sleep(0.05)
print(run_and_leave(main(), print, limit_s=0.1))
leave(3, limit_s=0.2)
"""


def test_a_task_that_swallows_its_cancellation_is_named_and_left_behind() -> None:
    said: list[str] = []
    left: list[asyncio.Task[None]] = []
    over = asyncio.Event()

    async def stubborn() -> None:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    async def main() -> str:
        left.append(asyncio.create_task(stubborn(), name="reads the weather"))
        await asyncio.sleep(0)
        return "judged"

    assert run_and_leave(main(), said.append, limit_s=0.05) == "judged"
    assert said == ["left behind, 0.05 s after they were cancelled: reads the weather"]


def test_a_task_that_ends_when_cancelled_is_not_named() -> None:
    said: list[str] = []
    left: list[asyncio.Task[None]] = []
    ended: list[str] = []

    async def orderly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append("orderly")

    async def main() -> None:
        left.append(asyncio.create_task(orderly(), name="orderly"))
        await asyncio.sleep(0)

    run_and_leave(main(), said.append)
    assert (said, ended) == ([], ["orderly"])


def test_a_thread_that_never_ends_does_not_hold_up_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STUBBORN], cwd=ROOT, capture_output=True, text=True, timeout=20, check=False
    )

    assert done.returncode == 3
    assert done.stdout == "None\n"
    assert done.stderr.startswith("tribunal: threads do not end and are left behind: executor_0")


def test_a_blocking_call_gives_its_result_or_its_error() -> None:
    def refuses() -> None:
        raise KeyError("no such group")

    assert asyncio.run(blocking(threading.active_count, 5)) >= 2
    with pytest.raises(KeyError, match="no such group"):
        asyncio.run(blocking(refuses, 5))


@pytest.mark.parametrize(
    "answer_late", [threading.Event().wait, partial(threading.Event().wait, 0.2)], ids=["never", "late"]
)
def test_a_blocking_call_that_hangs_is_given_up(answer_late: Callable[[], object]) -> None:
    before = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(blocking(answer_late, 0.05))

    assert time.monotonic() - before < 5
    threading.Event().wait(0.3)  # an answer that comes after the loop is closed is nobody's
