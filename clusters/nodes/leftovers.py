"""What a run leaves outside its files if its harness dies: processes here; containers and namespaces know their own.

A node's process names its run's folder on its command line; that is how it is found again, never by a broad name.
"""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

ENDING_MS: Final = 5_000
POLL_MS: Final = 20
PROC: Final = Path("/proc")


def node_processes(run_dir: Path) -> list[int]:
    """Return the processes whose command line names a file below this folder, ascending."""
    wanted = f"{run_dir.resolve()}{os.sep}"
    own = os.getpid()
    return sorted(pid for pid, words in command_lines() if pid != own and any(wanted in word for word in words))


def command_lines() -> list[tuple[int, list[str]]]:
    """Return every process with the words of its command line."""
    if not PROC.is_dir():
        return _command_lines_by_ps()
    found = []
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    found.append((int(folder.name), words))
    return found


def _command_lines_by_ps() -> list[tuple[int, list[str]]]:
    output = subprocess.run(["ps", "-axo", "pid=,command="], capture_output=True, text=True, check=True)  # noqa: S607
    lines = (line.split(maxsplit=1) for line in output.stdout.splitlines())
    return [(int(pid), rest.split()) for pid, rest in (line for line in lines if len(line) == 2)]


def end_processes(pids: list[int]) -> list[str]:
    """Kill -9 these processes, paused ones too, and wait for their end; return what was done."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + ENDING_MS / 1000
    living = pids
    while living and time.monotonic() < deadline:
        time.sleep(POLL_MS / 1000)  # noqa: TID251 - the harness is no node
        still = {pid for pid, _ in command_lines()}
        living = [pid for pid in living if pid in still]
    return [f"process {pid} {'is still there' if pid in living else 'killed'}" for pid in pids]


def started_at(pid: int) -> int | None:
    """Return when a process began, in the system's own unit: with its id it names one process for ever."""
    try:
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
