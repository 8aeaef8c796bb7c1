"""Ends a Java that is still starting.

Until Java answers, only pyspark's launcher knows its process, and it forgets it when Ctrl-C or another error ends the wait. Java
would end by itself when it comes to read its standard input, but in between it may fail, or wait, for what is no longer there.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path


def end_java(folder: Path) -> list[int]:
    """Kill the processes that were started with a scratch folder of ours in their command line; return their ids."""
    ended = []
    for pid in _started_with(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # it has written nothing that anybody needs
            ended.append(pid)
    return ended


def hurry(folder: Path) -> None:
    """Give the threads of such processes this process's own priority: somebody waits for them now. Who may not do that leaves them as they are."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for pid in _started_with(folder):
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(thread.name), own)


def _started_with(folder: Path) -> Iterator[int]:
    mark = str(folder).encode()
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        with contextlib.suppress(OSError):  # it has ended meanwhile
            is_ours = pid != os.getpid() and entry.stat().st_uid == os.getuid()
            if is_ours and mark in (entry / "cmdline").read_bytes():
                yield pid
