"""Folders that live as long as their process, and what killed processes have left of them.

Whoever has one holds a lock on a file in it until it ends, however it ends; forked children hold it too. So a folder
whose lock nobody holds belongs to nobody any more.
"""

import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

PREFIX: Final = "tribunal-"
LOCK: Final = ".in-use"
MEMORY: Final = "/dev/shm"  # noqa: S108  # folders in it are made by `tempfile`, for us alone


class Scratch:
    """One folder; in memory, where the system has such a place, for what is kept only for a moment.

    Whoever takes memory first frees what killed processes hold of it: nothing else would before `tribunal heal` or a restart.
    is_needed:  asked when it is left: a folder that is needed still stays, and nobody takes it for one that was left behind.
    """

    def __init__(
        self, purpose: str, *, in_memory: bool = False, is_needed: Callable[[Path], bool] = lambda folder: False
    ) -> None:
        place = MEMORY if in_memory and os.access(MEMORY, os.W_OK) else None
        if in_memory:
            remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-", dir=place))
        unlocked = self.path / f"{LOCK}.new"
        self._lock = unlocked.open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unlocked.rename(self.path / LOCK)  # whoever sees it under this name sees it locked
        self._is_needed = is_needed
        self._remove = weakref.finalize(self, _remove, self.path, os.getpid())

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove it, unless it is needed still."""
        if self._remove.alive and self._is_needed(self.path):
            self._remove.detach()
            (self.path / LOCK).unlink(missing_ok=True)
        self._remove()
        self._lock.close()


def remove_abandoned() -> list[Path]:
    """Remove the folders that nobody uses any more; return them."""
    places = dict.fromkeys((MEMORY, tempfile.gettempdir()))
    found = [folder for place in places for folder in sorted(Path(place).glob(f"{PREFIX}*"))]
    return [folder for folder in found if _removed(folder)]


def _removed(folder: Path) -> bool:
    try:
        with (folder / LOCK).open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(folder, os.getpid())
    except OSError:  # in use, another user's, or no folder of this kind
        return False
    return not folder.exists()


def _remove(folder: Path, owner: int) -> None:
    """Remove a folder as a whole. Somebody who is about to end may write into it meanwhile: what stays then has its lock file, and is found later."""
    if os.getpid() != owner or not folder.is_dir():
        return  # a forked child ends: the folder is its parent's
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != LOCK:
            entry.unlink(missing_ok=True)
    with suppress(OSError):
        if [entry.name for entry in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()
            folder.rmdir()
    if folder.is_dir():
        with suppress(OSError):
            (folder / LOCK).touch()
