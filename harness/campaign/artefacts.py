"""What a night keeps of its runs stays below a size: nodes' disks go first, then the runs that say least that is new."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tribunal.harness.fault_journal import has_journal

NODES: Final = "nodes"


def within(folder: Path, limit_bytes: int, wanted: Sequence[Path]) -> list[str]:
    """Remove from a folder of runs until it is no larger than the limit; return what went, in words. What a run has left to heal stays.

    wanted:  runs, the most wanted first. What is not named is wanted least.
    """
    sizes = {run: size_of(run) for run in _runs(folder)}
    place = {run.resolve(): number for number, run in enumerate(wanted)}
    order = sorted(
        (run for run in sizes if not has_journal(run)),
        key=lambda run: (place.get(run.resolve(), len(place)), run.name),
        reverse=True,
    )
    gone: list[str] = []
    for run in order:
        if sum(sizes.values()) <= limit_bytes:
            return gone
        if (run / NODES).is_dir():
            shutil.rmtree(run / NODES)
            sizes[run] = size_of(run)
            gone.append(f"nodes' disks of {run.name} were not kept: the size limit")
    for run in order:
        if sum(sizes.values()) <= limit_bytes:
            break
        shutil.rmtree(run)
        del sizes[run]
        gone.append(f"run {run.name} was not kept: the size limit")
    return gone


def in_turn(folders_of: Sequence[Sequence[str]]) -> list[Path]:
    """Return the folders of several signatures, the first of each before the second of any."""
    longest = max(map(len, folders_of), default=0)
    places = (folders[number] for number in range(longest) for folders in folders_of if number < len(folders))
    return [Path(one) for one in dict.fromkeys(places)]


def size_of(folder: Path) -> int:
    """Return how many bytes the files below a folder have."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _runs(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in sorted(folder.iterdir()) if path.is_dir())
