"""How long nodes' processes, and the harness itself, waited for a processor: what a rule about time needs to know of a busy machine.

Linux counts for each thread how long it was ready to run and did not (`/proc/PID/task/TID/schedstat`, the second figure, in ns; it grows when the
thread runs at last). A process has waited as long as the thread of it that waited longest, a node also as long as one of its children: its first process may
be a shell, or the engine's own in a container. What a hypervisor took of a processor is in none
of these, but in `/proc/stat` (`steal`, in hundredths of a second). Where there are no such files (other systems, other hosts) nothing is recorded.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tribunal.clusters.endings import put_down
from tribunal.results.recording import HARNESS, MACHINE, NODE
from tribunal.results.store import Recorder

LOOK_MS: Final = 500
LEAST_SHARE: Final = 0.05  # of the time between two looks: what is less is how any machine is
PROC: Final = Path("/proc")
TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
STEAL: Final = 8  # place in a line of /proc/stat, behind the processor's name


class ProcessorWaits:
    """Looks twice a second at who waited, and records it with its time.

    process_ids:  the processes of nodes that run on this machine, by node.
    """

    def __init__(
        self, process_ids: Callable[[], Mapping[int, int]], recorder: Recorder, now_ns: Callable[[], int]
    ) -> None:
        self._process_ids = process_ids
        self._recorder = recorder
        self._now_ns = now_ns
        self._last_ns = now_ns()
        # Of each process, how long each of its threads had waited by then.
        self._threads: dict[int, dict[str, int]] = {}
        self._stolen_ns: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look from now on."""
        self._threads = {os.getpid(): _waited_by_thread([os.getpid()])}
        self._stolen_ns = _stolen_by_processor()
        self._last_ns = self._now_ns()
        self._task = asyncio.create_task(self._look_always(), name="processor waits")

    async def stop(self) -> None:
        """Look for the last time."""
        task, self._task = self._task, None
        if task is not None:
            await put_down(task)
            self._look()

    async def _look_always(self) -> None:
        while True:
            await asyncio.sleep(LOOK_MS / 1000)
            self._look()

    def _look(self) -> None:
        until_ns = self._now_ns()
        processes = dict(self._process_ids())
        for holder, node, waited_ns in self._waited(processes):
            if waited_ns >= LEAST_SHARE * (until_ns - self._last_ns):
                # Who waited longer than since the last look has begun to wait before it.
                since_ns = max(0, min(self._last_ns, until_ns - waited_ns))
                self._recorder.row(
                    "waits", holder=holder, node=node, since_ns=since_ns, until_ns=until_ns,
                    waited_ns=min(waited_ns, until_ns - since_ns),
                )  # fmt: skip
        self._last_ns = until_ns

    def _waited(self, processes: Mapping[int, int]) -> Iterator[tuple[str, int | None, int]]:
        """Yield who waited how long since the last look, at the longest of its threads; what was taken of a processor, likewise."""
        own = os.getpid()
        now = {own: _waited_by_thread([own])} | {pid: _waited_by_thread(_family(pid)) for pid in processes.values()}
        before, self._threads = self._threads, now
        for node, pid in processes.items():
            yield NODE, node, _most(now[pid], before.get(pid, {}))
        yield HARNESS, None, _most(now[own], before.get(own, {}))
        stolen_ns, self._stolen_ns = self._stolen_ns, _stolen_by_processor()
        yield MACHINE, None, _most(self._stolen_ns, stolen_ns)


def _most(now: Mapping[str, int], before: Mapping[str, int]) -> int:
    """Return by how much the one grew most that grew most; what is new began at nothing."""
    return max((count - before.get(name, 0) for name, count in now.items()), default=0)


def _family(pid: int) -> list[int]:
    """Return a process and its children, theirs too; of a kernel that does not name them (`CONFIG_PROC_CHILDREN`), it alone."""
    found = [pid]
    for one in found:  # it grows meanwhile
        with contextlib.suppress(OSError):
            for thread in (PROC / str(one) / "task").iterdir():
                with contextlib.suppress(OSError):
                    found += map(int, (thread / "children").read_bytes().split())
    return found


def _waited_by_thread(pids: Iterable[int]) -> dict[str, int]:
    """Return for each thread of processes how long it has waited in its life, in ns; nothing of one that is gone."""
    waited: dict[str, int] = {}
    for pid in pids:
        # The process or a thread may end between two looks; a kernel may be built without these figures.
        with contextlib.suppress(OSError):
            for thread in (PROC / str(pid) / "task").iterdir():
                with contextlib.suppress(OSError, IndexError, ValueError):
                    waited[thread.name] = int((thread / "schedstat").read_bytes().split()[1])
    return waited


def _stolen_by_processor() -> dict[str, int]:
    """Return for each processor how long it was taken away, in ns since the machine's start."""
    try:
        lines = (PROC / "stat").read_text().splitlines()
    except OSError:
        return {}
    rows = [line.split() for line in lines if line.startswith("cpu") and not line.startswith("cpu ")]
    return {row[0]: int(row[STEAL]) * TICK_NS for row in rows if len(row) > STEAL}
