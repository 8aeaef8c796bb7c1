"""System V shared memory of a run's nodes: a segment outlives whoever made it, and no folder names it.

A segment is a run's own if it was noted in the run's journal while its maker was a living process of the run. It is known again by its id, its
maker and the second in which it was made. Who is killed leaves it; it is removed when nobody has it attached. Nothing of it is known but on Linux.
"""

import ctypes
import time
from pathlib import Path
from typing import Final

import msgspec

from tribunal.clusters.nodes.leftovers import PROC, own_processes
from tribunal.clusters.nodes.line_journal import note, noted

JOURNAL: Final = "segments.jsonl"
TABLE: Final = PROC / "sysvipc" / "shm"
REMOVE: Final = 0  # IPC_RMID
DETACHING_MS: Final = 2_000  # what a process that has ended for everybody else may take to let go of its memory
POLL_MS: Final = 20


class Segment(msgspec.Struct, frozen=True):
    """A segment: its id, who made it, and when, in seconds."""

    id: int
    maker: int
    made_s: int


def note_segments(run_dir: Path) -> None:
    """Write into the run's journal which segments its living processes have made."""
    found = _there()
    own = set(own_processes(run_dir)) if found else set()
    new = [one for one in found if one.maker in own and one not in noted(run_dir / JOURNAL, Segment)]
    if new:
        note(run_dir / JOURNAL, new)


def left_segments(run_dir: Path) -> list[str]:
    """Return which segments of a run nobody uses any more."""
    return [f"shared memory {one.id}" for one in _left(run_dir)]


def remove_segments(run_dir: Path) -> list[str]:
    """Remove them; return what was done.

    A process that is just ending has neither a command line nor an environment any more, and may have its segment attached for some time: it is waited for.
    """
    deadline = time.monotonic() + DETACHING_MS / 1000
    while any(_own(run_dir).values()) and time.monotonic() < deadline:
        time.sleep(POLL_MS / 1000)  # noqa: TID251 - the harness is no node
    library = ctypes.CDLL(None, use_errno=True)
    return [
        f"shared memory {one.id} {'removed' if library.shmctl(one.id, REMOVE, None) == 0 else 'is still there'}"
        for one in _left(run_dir)
    ]


def _left(run_dir: Path) -> list[Segment]:
    return [one for one, attached in _own(run_dir).items() if not attached]


def _own(run_dir: Path) -> dict[Segment, int]:
    """Return the segments of a run that are there, each with how often it is attached."""
    known = noted(run_dir / JOURNAL, Segment)
    return {one: attached for one, attached in _there().items() if one in known} if known else {}


def _there() -> dict[Segment, int]:
    """Return all segments of this machine, each with how often it is attached."""
    try:
        head, *lines = TABLE.read_text().splitlines()
    except OSError:
        return {}
    rows = [dict(zip(head.split(), map(int, line.split()), strict=True)) for line in lines]
    return {Segment(row["shmid"], row["cpid"], row["ctime"]): row["nattch"] for row in rows}
