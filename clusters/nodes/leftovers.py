"""What a run leaves outside its files if its harness dies: processes here; containers and namespaces know their own.

A process is a run's own if the run's journal has its id and start time, and its environment names the run's folder, or its output goes there: all are
given to it when it is started, and some programs write over their environment (redis-server, for its title). What a journal says counts only where this machine wrote it
since it was started, for this very folder (`line_journal.py`). So nothing else is ever ended: not who only names a file of that folder (a user's `tail -f`), and not who stands in a
journal that somebody else wrote.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tribunal.clusters.nodes.line_journal import note, noted

JOURNAL: Final = "processes.jsonl"
MARK: Final = "TRIBUNAL_RUN"
ENDING_MS: Final = 5_000
POLL_MS: Final = 20
PROC: Final = Path("/proc")


class Started(msgspec.Struct, frozen=True):
    """A process that a run started."""

    pid: int
    started: int | None


def mark(run_dir: Path) -> Mapping[str, str]:
    """Return what the environment of a run's processes has, and no other's."""
    return {MARK: f"{run_dir.resolve()}"}


def note_started(run_dir: Path, pid: int) -> None:
    """Write into the run's journal that it started a process."""
    note(run_dir / JOURNAL, [Started(pid, started_at(pid))])


def own_processes(run_dir: Path) -> list[int]:
    """Return the living processes that the run of this folder provably started, ascending; on Linux with those of their sessions.

    A command may be a shell around the program that serves. The number of a session is given to nobody else while somebody is in it.
    """
    living = {pid for pid, _ in command_lines()} - {os.getpid()}
    known = [one for one in noted(run_dir / JOURNAL, Started) if one.started is not None]
    own = {one.pid for one in known if one.pid in living and one.started == started_at(one.pid)}
    # A leader that is there, and began at another time, leads another session: the number was given away when the run's was empty.
    sessions = {one.pid for one in known if started_at(one.pid) in {None, one.started}}
    own |= {pid for pid in living if _session(pid) in sessions}
    return sorted(pid for pid in own if _is_marked(pid, run_dir))


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _is_marked(pid: int, run_dir: Path) -> bool:
    wanted = f"{MARK}={run_dir.resolve()}"
    try:
        if PROC.is_dir():
            environment = (PROC / f"{pid}" / "environ").read_bytes().split(b"\0")
            return wanted.encode() in environment or _speaks_to(pid, run_dir.resolve())
    except OSError:
        return False
    return f" {wanted} " in f" {_ps(pid, '-wwE', 'command=')} "


def _speaks_to(pid: int, folder: Path) -> bool:
    """Whether what a process says goes to a file of a folder."""
    return any((PROC / f"{pid}" / "fd" / stream).readlink().is_relative_to(folder) for stream in ("1", "2"))


def _ps(pid: int, flag: str, column: str) -> str:
    words = ["ps", flag, "-o", column, "-p", f"{pid}"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603


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
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    found.append((int(folder.name), words))
    return found


def command_line(pid: int | None) -> list[str]:
    """Return the words of a process's command line; none where there is no such process."""
    return next((words for one, words in command_lines() if one == pid), [])


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
    if not PROC.is_dir():
        try:
            return int(time.mktime(time.strptime(_ps(pid, "-ww", "lstart="))))
        except ValueError:
            return None
    try:
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
