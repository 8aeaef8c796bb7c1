"""Who waits for a processor is recorded with its time, and who does not is not."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tribunal.harness.processor_waits import PROC, ProcessorWaits
from tribunal.results.manifest import Made
from tribunal.results.rows import Wait, typed
from tribunal.results.store import Recorder, Recording

BUSY = "while True: pass"
IDLE = "import time; time.sleep(60)"

pytestmark = pytest.mark.skipif(
    not (PROC / "self" / "task" / str(os.getpid()) / "schedstat").exists(),
    reason="this machine's kernel does not count who waits for a processor",
)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two that want all of one processor, and one that sleeps."""
    begun = [subprocess.Popen([sys.executable, "-c", program]) for program in (BUSY, BUSY, IDLE)]
    processor = min(os.sched_getaffinity(0))
    for process in begun:
        os.sched_setaffinity(process.pid, {processor})
    yield begun
    for process in begun:
        process.kill()
        process.wait()


def test_two_that_share_a_processor_wait_and_one_that_sleeps_does_not(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    recorder = Recorder(tmp_path / "run", "run")

    async def look() -> None:
        loop = asyncio.get_running_loop()
        waits = ProcessorWaits(
            lambda: {node: process.pid for node, process in enumerate(processes)},
            recorder,
            lambda: int(loop.time() * 1e9) - began_ns,
        )
        waits.start()
        await asyncio.sleep(2)
        await waits.stop()

    began_ns = 0
    asyncio.run(look())
    recorder.finish(Made())
    rows = [row for row in typed(Recording.open(tmp_path / "run").table("waits"), Wait) if row.holder == "node"]
    waited_ns = {node: sum(row.waited_ns for row in rows if row.node == node) for node in range(3)}

    assert min(waited_ns[0], waited_ns[1]) > 300_000_000  # of two seconds about half; more where others want it as well
    assert waited_ns[2] < 200_000_000
    assert all(0 <= row.since_ns < row.until_ns and row.waited_ns <= row.until_ns - row.since_ns for row in rows)


def test_a_node_behind_a_shell_has_the_waits_of_what_does_its_work(tmp_path: Path) -> None:
    """Also one in a container, whose first process is the engine's own: the shell itself sleeps all the time."""
    shell = subprocess.Popen(["/bin/sh", "-c", f"{sys.executable} -c '{BUSY}'; true"], start_new_session=True)
    rival = subprocess.Popen([sys.executable, "-c", BUSY])
    processor = min(os.sched_getaffinity(0))
    recorder = Recorder(tmp_path / "run", "run")

    async def look() -> None:
        children = PROC / str(shell.pid) / "task" / str(shell.pid) / "children"
        while not (child := children.read_text().split()):  # noqa: ASYNC110 - only the system knows
            await asyncio.sleep(0.01)
        for pid in (rival.pid, int(child[0])):
            os.sched_setaffinity(pid, {processor})
        waits = ProcessorWaits(lambda: {1: shell.pid}, recorder, lambda: int(asyncio.get_running_loop().time() * 1e9))
        waits.start()
        await asyncio.sleep(2)
        await waits.stop()

    try:
        asyncio.run(look())
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        rival.kill()
        for process in (shell, rival):
            process.wait()
    recorder.finish(Made())
    rows = [row for row in typed(Recording.open(tmp_path / "run").table("waits"), Wait) if row.holder == "node"]

    assert sum(row.waited_ns for row in rows) > 300_000_000


def test_of_a_process_that_is_gone_nothing_is_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", "run")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    async def look() -> None:
        waits = ProcessorWaits(lambda: {1: ended.pid}, recorder, lambda: int(asyncio.get_running_loop().time() * 1e9))
        waits.start()
        await waits.stop()

    asyncio.run(look())
    recorder.finish(Made())

    assert [row for row in typed(Recording.open(tmp_path / "run").table("waits"), Wait) if row.node is not None] == []
